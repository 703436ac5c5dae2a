//! Tests with servers on loopback. One never answers, and the other must get no request.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::mpsc;

use futures::FutureExt as _;
use git::GitServerCache;
use golang::work_meter::StopSignal;
use http_client::EgressRules;
use kustomize::{BuildBudget, KustomizeBuildOptions, TreeBuildFiles, build};
use tokio::runtime::Runtime;

use super::*;
use crate::time_limit::TIME_LIMIT;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

struct BuildPermitsFixture {
    building: RunPermits,
    reaching: RunPermits,
    cancel: CancellationToken,
}

impl BuildPermitsFixture {
    fn new() -> Self {
        Self {
            building: RunPermits::new(1),
            reaching: RunPermits::new(1),
            cancel: CancellationToken::new(),
        }
    }

    /// The remote bases that a build with a permit may fetch under these egress rules.
    fn bases(&self, egress: EgressRules) -> RemoteBaseAccess {
        let git = git::GitOperationContext {
            runtime: RUNTIME.handle().clone(),
            cancel: self.cancel.clone(),
            scratch: std::env::temp_dir(),
            known: Arc::new(GitServerCache::within(egress)),
        };
        let permits = SharedBuildPermits::new(BuildPermits {
            building: self.building.clone(),
            reaching: self.reaching.clone(),
            runtime: RUNTIME.handle().clone(),
            cancel: self.cancel.clone(),
            namespace: "shop".to_owned(),
            held: HeldBuildPermits {
                building: self.building.acquire("shop").now_or_never(),
                reaching: None,
            },
            preparing: PreparingPermit::default(),
        });
        RemoteBaseAccess::Fetched(Box::new(RemoteBaseFetchContext {
            git,
            limits: RemoteBaseLimits::default(),
            permits: Some(permits),
            rules: None,
        }))
    }
}

/// The names of the built objects, and whether the build used a remote base.
fn built(bases: RemoteBaseAccess, resources: &str) -> (Result<Vec<String>, String>, bool) {
    let own = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n";
    let overlay = format!("resources: [{resources}]\n");
    let tree =
        tree::MemoryTree::from_files([("kustomization.yaml", overlay.as_str()), ("own.yaml", own)]);
    let limit = TimeLimit::start(TIME_LIMIT, &StopSignal::default());
    let (built, is_remote) = bases.beside(TreeBuildFiles(tree.unwrap()), &limit, |files| {
        let objects = build(
            files,
            "/",
            &KustomizeBuildOptions::default(),
            &BuildBudget::default(),
            &mut Vec::new(),
        )?
        .into_objects()?;
        Ok(objects.into_iter().map(|object| object.id.name).collect())
    });
    (built.map_err(|error: Error| error.to_string()), is_remote)
}

#[test]
fn a_server_that_is_slow_keeps_no_permit_from_others_and_the_build_goes_on_with_one() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let (bed, (asked, is_asked)) = (BuildPermitsFixture::new(), mpsc::channel());
    let (answer, answered) = mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        let mut stream = server.accept().unwrap().0;
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        asked.send(()).unwrap();
        answered.recv().unwrap();
        let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: far}\n";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
    });
    let bases = bed.bases(EgressRules::Anywhere);
    assert_eq!(bed.building.free(), 0);
    let work = std::thread::spawn(move || {
        built(bases, &format!("own.yaml, \"http://{address}/far.yaml\""))
    });
    is_asked.recv().unwrap();
    let other =
        bed.building.acquire("other").now_or_never().expect("the permit was not given back");
    assert_eq!(bed.reaching.free(), 0);
    answer.send(()).unwrap();
    drop(other);
    let (names, is_remote) = work.join().unwrap();
    assert_eq!((names.unwrap(), is_remote), (vec!["own".to_owned(), "far".to_owned()], true));
    assert_eq!((bed.building.free(), bed.reaching.free()), (1, 1));
    serving.join().unwrap();
}

#[test]
fn a_canceled_build_waits_for_no_permit() {
    let bed = BuildPermitsFixture::new();
    let bases = bed.bases(EgressRules::Anywhere);
    let _all = bed.reaching.acquire("other").now_or_never().unwrap();
    bed.cancel.cancel();
    let (names, _) = built(bases, "\"http://127.0.0.1:9/far.yaml\"");
    assert!(names.unwrap_err().contains("was cancelled"));
}

#[test]
fn servers_without_public_addresses_are_asked_only_where_that_is_allowed() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let resource = format!("\"http://{address}/far.yaml\"");
    let (names, is_remote) =
        built(BuildPermitsFixture::new().bases(EgressRules::Public(Arc::default())), &resource);
    let error = names.unwrap_err();
    assert!(
        error.contains("does not resolve to a public address; others are not allowed"),
        "{error}"
    );
    assert!(is_remote);
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "it was asked");
}

#[test]
fn without_remote_bases_they_are_refused_and_files_are_read() {
    let (names, is_remote) = built(RemoteBaseAccess::Refused(DISABLED), "own.yaml");
    assert_eq!((names.unwrap(), is_remote), (vec!["own".to_owned()], false));
    for resource in ["http://127.0.0.1:9/far.yaml", "git@127.0.0.1:9/far.git"] {
        let error =
            built(RemoteBaseAccess::Refused(DISABLED), &format!("\"{resource}\"")).0.unwrap_err();
        assert!(error.contains("--no-remote-bases"), "{error}");
    }
}
