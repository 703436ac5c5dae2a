//! Builds whose bases are in repositories and files of web servers, as a service fetches them.
//!
//! Elsewhere: the servers, which are those of the tests of `git` (`sources/git/tests/git_loopback`).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../../git/tests/git_loopback/http_server.rs"]
#[expect(dead_code, reason = "the tests of `git` use the rest")]
mod http_server;
#[path = "../../git/tests/git_loopback/test_repository.rs"]
#[expect(dead_code, reason = "the tests of `git` use the rest")]
mod test_repository;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use git::{GitOperationContext, GitServerCache};
use http_client::EgressRules;
use kustomize::{KustomizeBuildOptions, LoadRestriction, TreeBuildFiles, build};
use sources::remote_bases::{
    RemoteBaseLimits, RemoteBuildFiles, ResolvedRemoteBase, without_credentials,
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tree::MemoryTree;

use http_server::{GitHttpServer, GitHttpServerBehavior};
use test_repository::BareRepository;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// The text of `.gitmodules`, with a path and a URL for each submodule.
fn modules(entries: &[(&str, &str)]) -> String {
    let entry = |(path, url): &(&str, &str)| {
        format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n")
    };
    entries.iter().map(entry).collect()
}

/// Serves a repository beside another, as `/<name>.git`.
fn beside(root: &BareRepository, name: &str, other: &BareRepository) {
    let target = root.root.path().join(format!("{name}.git"));
    let status = std::process::Command::new("cp").arg("-r").arg(other.path()).arg(target).status();
    assert!(status.unwrap().success());
}

const OBJECT: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}";

/// Moves `main` to a commit of files; those with the mode of a link become links.
fn commit(repository: &BareRepository, files: &[(&str, &str, &str)]) -> String {
    repository.git(&["read-tree", "--empty"], b"");
    for (mode, path, content) in files {
        let id = match *mode {
            "160000" => (*content).to_owned(),
            _ => repository.object("blob", content.as_bytes()),
        };
        let entry = format!("{mode},{id},{path}");
        repository.git(&["update-index", "--add", "--cacheinfo", &entry], b"");
    }
    let tree = repository.git(&["write-tree"], b"");
    repository.git(&["symbolic-ref", "HEAD", "refs/heads/main"], b"");
    repository.commit_tree(&tree, "a commit", None, "main")
}

/// A repository with a base that a tag, a branch and the default branch have in different states.
fn repository() -> BareRepository {
    let repository = BareRepository::empty();
    for name in ["tagged", "branched", "newest"] {
        let object = OBJECT.replace("one", name);
        commit(
            &repository,
            &[
                ("100644", "base/kustomization.yaml", "resources: [../other, link.yaml]"),
                ("100644", "other/kustomization.yaml", "resources: [a.yaml]"),
                ("100644", "other/a.yaml", &object),
                ("100644", "base/real.yaml", &OBJECT.replace("one", "linked")),
                ("120000", "base/link.yaml", "../folder/real.yaml"),
                ("120000", "folder", "base"),
                ("120000", "out", "/etc"),
                ("120000", "round", "round"),
            ],
        );
        match name {
            "tagged" => drop(repository.git(&["tag", "-f", "v1", "main"], b"")),
            "branched" => drop(repository.git(&["branch", "-f", "feature/x", "main"], b"")),
            _ => {}
        }
    }
    repository
}

/// What a build came to.
struct BuildOutcome {
    names: Result<Vec<String>, String>,
    is_used: bool,
    resolved: Vec<ResolvedRemoteBase>,
}

struct BasesTestbed {
    scratch: tempfile::TempDir,
    egress: EgressRules,
    limits: RemoteBaseLimits,
}

impl BasesTestbed {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        Self { scratch, egress: EgressRules::Anywhere, limits: RemoteBaseLimits::default() }
    }

    /// The names of the objects that an overlay of these resources has, and whether remote parts were asked for.
    fn build(&self, resources: &[&str]) -> (Result<Vec<String>, String>, bool) {
        let BuildOutcome { names, is_used, .. } = self.outcome(resources);
        (names, is_used)
    }

    fn outcome(&self, resources: &[&str]) -> BuildOutcome {
        let context = GitOperationContext {
            runtime: RUNTIME.handle().clone(),
            cancel: CancellationToken::new(),
            scratch: self.scratch.path().to_owned(),
            known: Arc::new(GitServerCache::within(self.egress.clone())),
        };
        let listed: String =
            resources.iter().map(|resource| format!("- \"{resource}\"\n")).collect();
        let overlay = format!("namePrefix: my-\nresources:\n- own.yaml\n{listed}");
        let tree = MemoryTree::from_files([
            ("app/kustomization.yaml", overlay.as_str()),
            ("app/own.yaml", OBJECT),
        ])
        .unwrap();
        let remotes = RemoteBuildFiles::new(TreeBuildFiles(tree), context, self.limits);
        let options = KustomizeBuildOptions {
            restriction: LoadRestriction::None,
            ..KustomizeBuildOptions::default()
        };
        let budget = kustomize::BuildBudget::default();
        let built = build(&remotes, "/app", &options, &budget, &mut Vec::new());
        let built = built.and_then(|built| built.into_objects());
        let names = built
            .map(|objects| objects.into_iter().map(|object| object.id.name).collect())
            .map_err(|error| error.to_string());
        let is_used = remotes.is_used();
        let resolved = remotes.resolved();
        assert!(remotes.received() == 0 || !resolved.is_empty());
        drop(remotes);
        let left = std::fs::read_dir(self.scratch.path()).unwrap().count();
        assert_eq!(left, 0, "a scratch repository is left");
        BuildOutcome { names, is_used, resolved }
    }

    fn names(&self, resources: &[&str]) -> Vec<String> {
        self.build(resources).0.unwrap()
    }

    fn refused(&self, resource: &str) -> String {
        let (names, is_used) = self.build(&[resource]);
        assert!(is_used);
        names.unwrap_err()
    }
}

fn served(repository: &BareRepository) -> GitHttpServer {
    GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default())
}

#[test]
fn an_overlay_has_its_bases_in_a_repository() {
    let repository = repository();
    let sha = repository.commit_of("v1");
    let server = served(&repository);
    let bed = BasesTestbed::new();
    let url = server.url();
    let base = |query: &str| bed.names(&[&format!("{url}//base{query}")]);
    assert_eq!(base(""), ["my-one", "my-newest", "my-linked"]);
    assert_eq!(base("?ref=v1"), ["my-one", "my-tagged", "my-linked"]);
    assert_eq!(base("?ref=feature/x"), ["my-one", "my-branched", "my-linked"]);
    assert_eq!(base("?ref=refs/heads/feature/x"), ["my-one", "my-branched", "my-linked"]);
    assert_eq!(base(&format!("?ref={sha}")), ["my-one", "my-tagged", "my-linked"]);
    let error = bed.refused(&format!("{url}//base?ref=none"));
    assert!(error.contains("branch, tag or commit `none` not found in"), "{error}");
}

#[test]
fn a_build_knows_which_commits_its_bases_were() {
    let repository = repository();
    let server = served(&repository);
    let url = server.url();
    let outcome = BasesTestbed::new().outcome(&[&format!("{url}//base?ref=feature/x")]);
    let resolved = ResolvedRemoteBase {
        address: url,
        reference: "feature/x".to_owned(),
        revision: repository.commit_of("feature/x"),
    };
    assert_eq!(outcome.resolved, [resolved]);
}

#[test]
fn a_build_without_remote_parts_says_so() {
    assert!(!BasesTestbed::new().build(&[]).1);
}

#[test]
fn a_repository_that_is_named_twice_is_fetched_once() {
    let repository = repository();
    let server = served(&repository);
    let bed = BasesTestbed::new();
    let url = server.url();
    bed.names(&[&format!("{url}//base")]);
    let conversations =
        || server.seen().iter().filter(|seen| seen.target.contains("upload-pack")).count();
    let once = conversations();
    let both = bed.names(&[&format!("{url}//base"), &format!("{url}//other?ref=v1")]);
    assert_eq!(both, ["my-one", "my-newest", "my-linked", "my-tagged"]);
    let three = conversations();
    let other = format!("{url}//other");
    let base = format!("{url}//base/../base/");
    let error = bed.build(&[&other, &base]).0.unwrap_err();
    assert!(error.contains("newest"), "{error}");
    assert_eq!(conversations() - three, once);
}

#[test]
fn a_base_does_not_leave_its_repository() {
    let repository = repository();
    let server = served(&repository);
    let bed = BasesTestbed::new();
    let url = server.url();
    for (folder, said) in [
        ("out", "/.remote/0/out: it leaves the repository"),
        ("round", "/.remote/0/round: too many links"),
        ("none", "/.remote/0/none: no such file or directory"),
        ("base/real.yaml", "refers to file 'real.yaml'; expecting directory"),
    ] {
        let error = bed.refused(&format!("{url}//{folder}"));
        assert!(error.contains(said), "{error}");
    }
    commit(&repository, &[("100644", "kustomization.yaml", "resources: [../../app]")]);
    let error = bed.refused(&url);
    assert!(error.contains("must be within the repo"), "{error}");
    commit(&repository, &[("100644", "kustomization.yaml", "resources: [../../app/own.yaml]")]);
    let error = bed.refused(&url);
    assert!(error.contains("is not in or below '/.remote/0'"), "{error}");
}

#[test]
fn submodules_come_too_unless_they_are_not_wanted() {
    let outer = BareRepository::empty();
    let inner = repository();
    let sha = inner.commit_of("main");
    let file = modules(&[("inner", "../inner.git")]);
    let entries = [("100644", ".gitmodules", file.as_str()), ("160000", "inner", sha.as_str())];
    commit(&outer, &entries);
    beside(&outer, "inner", &inner);
    let server = served(&outer);
    let bed = BasesTestbed::new();
    let url = server.url();
    assert_eq!(bed.names(&[&format!("{url}//inner/other")]), ["my-one", "my-newest"]);
    let error = bed.refused(&format!("{url}//inner/other?submodules=false"));
    assert!(error.contains("/.remote/0/inner/other: no such file or directory"), "{error}");
}

#[test]
fn credentials_and_other_schemes_are_refused() {
    let repository = repository();
    let server = served(&repository);
    let bed = BasesTestbed::new();
    let with = server.url().replace("http://", "http://me:hunter2@");
    let error = without_credentials(&bed.refused(&format!("{with}//base")));
    assert!(error.contains("accessed anonymously") && !error.contains("hunter2"), "{error}");
    for address in ["file:///etc//passwd", "ssh://git@host/a/b", "git@github.com:a/b"] {
        let error = bed.refused(address);
        assert!(error.contains("only http:// and https:// repositories"), "{error}");
    }
    assert!(server.seen().is_empty());
    server.change(|manners| manners.authorization = Some("nobody".to_owned()));
    let error = bed.refused(&format!("{}//base", server.url()));
    assert!(error.contains("use a GitRepository for a private one"), "{error}");
}

#[test]
fn only_public_servers_receive_requests_where_that_is_set() {
    let repository = repository();
    let server = served(&repository);
    let bed = BasesTestbed { egress: EgressRules::Public(Arc::default()), ..BasesTestbed::new() };
    let port = server.address.port();
    for host in ["127.0.0.1", "127.1", "[::1]", "localhost", "169.254.169.254"] {
        for path in ["app.git//base", "a.yaml"] {
            let error = bed.refused(&format!("http://{host}:{port}/{path}"));
            assert!(
                error.contains("does not resolve to a public address; others are not allowed"),
                "{error}"
            );
        }
    }
    assert!(server.seen().is_empty());
}

#[test]
fn remote_parts_have_limits_together() {
    let repository = repository();
    let server = served(&repository);
    let url = server.url();
    let few = BasesTestbed {
        limits: RemoteBaseLimits { parts: 2, ..RemoteBaseLimits::default() },
        ..BasesTestbed::new()
    };
    let base = format!("{url}//other");
    assert_eq!(few.names(&[&base]), ["my-one", "my-newest"]);
    let error = few.build(&[&base, &format!("{url}//other?ref=v1")]).0.unwrap_err();
    assert!(error.contains("a build may have at most 2 remote bases"), "{error}");
    let bytes = BasesTestbed {
        limits: RemoteBaseLimits { bytes: 100, ..RemoteBaseLimits::default() },
        ..BasesTestbed::new()
    };
    let error = bytes.refused(&base);
    assert!(error.contains("100 bytes"), "{error}");
    let both = [base.as_str(), &format!("{url}//base?ref=v1")];
    let enough = |bytes| BasesTestbed {
        limits: RemoteBaseLimits { bytes, ..RemoteBaseLimits::default() },
        ..BasesTestbed::new()
    };
    let least = (100..100_000).step_by(100).find(|bytes| enough(*bytes).build(&[&base]).0.is_ok());
    let error = enough(least.unwrap()).build(&both).0.unwrap_err();
    assert!(error.contains("bytes"), "{error}");
    let time = BasesTestbed {
        limits: RemoteBaseLimits { time: Duration::ZERO, ..RemoteBaseLimits::default() },
        ..BasesTestbed::new()
    };
    let error = time.refused(&base);
    assert!(error.contains("timed out after 0ns"), "{error}");
}

#[test]
fn a_file_of_a_web_server_is_a_resource() {
    let repository = repository();
    let body = OBJECT.replace("one", "remote");
    let length = body.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = Some(answer.into_bytes());
    let server = GitHttpServer::start(
        repository.root.path(),
        GitHttpServerBehavior { answer, ..GitHttpServerBehavior::default() },
    );
    let url = format!("http://{}/a.yaml", server.address);
    assert_eq!(BasesTestbed::new().names(&[&url]), ["my-one", "my-remote"]);
}
