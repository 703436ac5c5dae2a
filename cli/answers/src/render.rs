//! Builds or renders an object of the cluster in the same way as the operator, for `diff`, `build` and `resume --plan`.
//!
//! Here: the origin of the files. Below: a local folder in place of an artifact (`render/local_source_checkout.rs`),
//! Kustomizations (`render/kustomization.rs`), HelmReleases (`render/helm_release.rs`).
//! Elsewhere: building and rendering (`controllers`).

pub mod helm_release;
pub mod kustomization;
mod local_source_checkout;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use artifacts::remote_artifact::{ArtifactFetchLimits, RemoteArtifact};
use cause::object_references;
use crds::Artifact;
use http::Uri;
use http_client::EgressRules;
use objects::{Object, ObjectId};
use reconcile::RunOutcome;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::cause_facts;
use windlass_cluster::ClusterConnection;
use windlass_cluster::error::chain;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::service_ranges::ServicePort;
use windlass_cluster::work_queue::WorkQueue;

/// The largest artifact that is read, in bytes. The whole artifact is kept in memory.
const MOST_BYTES: u64 = 256 << 20;

/// How long the download of an artifact may take.
const FETCH_LIMIT: Duration = Duration::from_secs(60);

/// The origin of the files for a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildFilesOrigin {
    /// A local folder, or the archive of a chart.
    Local(PathBuf),
    /// The artifact of the object's source.
    Source(ObjectId),
    /// An earlier artifact of the object's source.
    Earlier(EarlierArtifact),
}

/// An earlier artifact of a source. The source server offers it beside the newest one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierArtifact {
    /// The source.
    pub source: ObjectId,
    /// The path below the root of the artifact storage.
    pub path: String,
    /// The digest of the artifact.
    pub digest: String,
    /// The revision of the artifact.
    pub revision: String,
}

impl BuildFilesOrigin {
    /// Uses the local path if one is given. Otherwise uses the source of the object.
    ///
    /// # Errors
    /// The object names no source.
    pub fn of(local: Option<&PathBuf>, object: &Object) -> anyhow::Result<Self> {
        if let Some(path) = local {
            return Ok(Self::Local(path.clone()));
        }
        let source = object_references::sources(object).into_iter().next();
        let named = || format!("{} names no source", object.id().subject());
        source.map(Self::Source).with_context(named)
    }
}

/// A downloaded artifact, and its description in the status of the source.
struct ArtifactDownload {
    kind: String,
    revision: String,
    digest: String,
    bytes: Vec<u8>,
}

/// Downloads the artifact of a source. Inside the cluster, it uses the URL in the status, and otherwise the API server as a
/// proxy.
async fn fetched(
    cluster: &ClusterConnection,
    source: &ObjectId,
) -> anyhow::Result<ArtifactDownload> {
    let artifact = artifact_of(cluster, source).await?;
    download(cluster, source, artifact).await
}

/// Downloads an earlier artifact of a source from the server of the newest one.
async fn fetched_earlier(
    cluster: &ClusterConnection,
    earlier: &EarlierArtifact,
) -> anyhow::Result<ArtifactDownload> {
    let EarlierArtifact { source, path, digest, revision } = earlier;
    let newest = artifact_of(cluster, source).await?;
    let server = newest.url.strip_suffix(newest.path.as_str());
    let server = server.with_context(|| {
        format!("the URL of the artifact of {} does not end with its path", source.subject())
    })?;
    let url = format!("{server}{path}");
    let artifact = Artifact {
        url,
        path: path.clone(),
        digest: digest.clone(),
        revision: revision.clone(),
        ..newest
    };
    let what = format!("the artifact of revision {}, the last good one", earlier.revision);
    download(cluster, source, artifact).await.context(what)
}

/// The artifact in the status of a source.
async fn artifact_of(cluster: &ClusterConnection, source: &ObjectId) -> anyhow::Result<Artifact> {
    let subject = source.subject();
    let found = cause_facts::read(cluster, source).await.map_err(anyhow::Error::msg);
    let object = found.with_context(|| format!("cannot read {subject}"))?;
    let object = object.with_context(|| format!("{subject} does not exist"))?;
    let artifact = object.get("status").map(|it| it["artifact"].clone()).unwrap_or_default();
    ensure!(artifact.is_object(), "{subject} has no artifact; `windlass why` says why");
    serde_json::from_value(artifact)
        .with_context(|| format!("the artifact of {subject} cannot be read"))
}

async fn download(
    cluster: &ClusterConnection,
    source: &ObjectId,
    artifact: Artifact,
) -> anyhow::Result<ArtifactDownload> {
    let subject = source.subject();
    let bytes = match service(&artifact.url) {
        Some((endpoint, path)) => {
            let bytes = cluster.ask_service(&endpoint, &path, MOST_BYTES).await;
            let text = || {
                let ServicePort { namespace, name, .. } = &endpoint;
                format!(
                    "cannot read the artifact of {subject} from Service {namespace}/{name} through the API server; give \
                     the files with --path or --chart instead"
                )
            };
            let bytes = bytes.with_context(text)?;
            let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
            ensure!(
                digest == artifact.digest,
                "the artifact of {subject} has digest {digest} instead of {}",
                artifact.digest
            );
            bytes
        }
        // The status may name any address, and this process may reach more addresses than its user. So windlass refuses.
        None if cluster.reads_for_bearer => bail!(
            "the artifact of {subject} is not at a Service of the cluster, and is not read for a user who is logged in; run \
             the command instead"
        ),
        None => direct(&artifact).await.with_context(|| format!("the artifact of {subject}"))?,
    };
    let kind = source.kind.clone();
    let Artifact { revision, digest, .. } = artifact;
    Ok(ArtifactDownload { kind, revision, digest, bytes })
}

async fn direct(artifact: &Artifact) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let Artifact { url, digest, .. } = artifact.clone();
    let remote = RemoteArtifact { url, digest, egress: EgressRules::Anywhere };
    let limits = ArtifactFetchLimits { bytes: MOST_BYTES, time: FETCH_LIMIT };
    let mut file = artifacts::remote_artifact::fetch(&remote, &limits).await.map_err(|it| {
        anyhow::anyhow!("{}; give the files with --path or --chart instead", chain(&it))
    })?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context("it cannot be read")?;
    Ok(bytes)
}

/// The Service and the path of a URL. `None` if the host is not that of a Service.
fn service(url: &str) -> Option<(ServicePort, String)> {
    let uri: Uri = url.parse().ok()?;
    let mut parts = uri.host()?.split('.');
    let name = parts.next()?.to_owned();
    let namespace = parts.next()?.to_owned();
    let is_service = parts.next() == Some("svc") && uri.scheme_str() == Some("http");
    let port = uri.port_u16().unwrap_or(80);
    is_service.then(|| (ServicePort { namespace, name, port }, uri.path().to_owned()))
}

/// A kind whose objects can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildableKind {
    /// A Kustomization, which is built from files.
    Kustomization,
    /// A HelmRelease, which is rendered from a chart.
    HelmRelease,
}

impl BuildableKind {
    /// The buildable kind of an object.
    ///
    /// # Errors
    /// The object has another kind.
    pub fn of(object: &Object) -> anyhow::Result<Self> {
        let gvk = object.gvk();
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Ok(Self::Kustomization),
            ("helm.toolkit.fluxcd.io", "HelmRelease") => Ok(Self::HelmRelease),
            _ => bail!("{} is not a Kustomization or HelmRelease", gvk.kind),
        }
    }
}

/// Converts an object to its type.
///
/// # Errors
/// The object does not match the type.
pub fn typed<K: DeserializeOwned>(object: Object) -> anyhow::Result<K> {
    let subject = object.id().subject();
    serde_json::from_value(object.into_value()).with_context(|| format!("{subject} cannot be read"))
}

/// Reads the objects that a spec refers to from the cluster, as a reconciliation does. The objects are not watched.
fn references(cluster: &ClusterConnection) -> RunReferenceReads {
    let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
    RunReferenceReads::new(&ObjectWatcher::new(cluster.clone(), work_queue, BTreeMap::new()))
}

/// The error that the status would contain after a reconciliation.
fn outcome_error(outcome: RunOutcome) -> anyhow::Error {
    anyhow::anyhow!(outcome.text().to_owned())
}

/// The stack of a build. Nested Kustomizations and templates need a large stack.
const BUILD_STACK_BYTES: usize = 64 << 20;

/// How many builds may run at once. A build continues to its end even if its caller no longer waits.
const MAX_BUILDS_AT_ONCE: usize = 4;

static BUILD_PERMITS: Semaphore = Semaphore::const_new(MAX_BUILDS_AT_ONCE);

/// Runs work on a thread with a large stack. Other tasks can use the cluster meanwhile.
async fn on_large_stack<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let permit = BUILD_PERMITS.acquire().await.context("nothing is built any more")?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new()
        .stack_size(BUILD_STACK_BYTES.max(helm::render::REQUIRED_STACK_BYTES));
    let work = move || {
        let built = work();
        drop(permit);
        sender.send(built).ok()
    };
    thread.spawn(work).context("cannot start a thread")?;
    receiver.await.context("the build panicked; this is a bug in windlass, please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn builds_that_nothing_waits_for_any_more_are_bounded() {
        let mut ends = Vec::new();
        for _ in 0..MAX_BUILDS_AT_ONCE {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            ends.push(end);
            let build = on_large_stack(move || ended.recv().is_err());
            let left = tokio::time::timeout(Duration::from_millis(50), build).await;
            assert!(left.is_err(), "it goes on");
        }
        let next = tokio::time::timeout(Duration::from_millis(50), on_large_stack(|| 7)).await;
        assert!(next.is_err(), "it waits for one of them");
        drop(ends);
        assert_eq!(on_large_stack(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn no_status_makes_a_server_of_pages_ask_another_server() {
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        let token = objects::RedactedValue::new("token".to_owned());
        let user = cluster.with_bearer(&token, &MetricsRegistry::new()).unwrap();
        let source = ObjectId::new("apps", "web", "source.toolkit.fluxcd.io", "ExternalArtifact");
        let artifact = serde_json::json!({"url": "http://127.0.0.1:1/x", "path": "x", "revision": "1",
            "digest": "sha256:0", "lastUpdateTime": "2026-11-24T12:00:00Z"});
        let artifact: Artifact = serde_json::from_value(artifact).unwrap();
        let refused = download(&user, &source, artifact).await.err().unwrap().to_string();
        assert!(refused.contains("is not read for a user who is logged in"), "{refused}");
    }

    #[test]
    fn artifacts_are_read_through_the_api_server_where_a_service_has_them() {
        let of = |url: &str| {
            let (ServicePort { namespace, name, port }, path) = service(url)?;
            Some(format!("{namespace}/{name}:{port}{path}"))
        };
        let expected = Some("flux-system/source:80/gitrepository/apps/web/a.tar.gz".to_owned());
        for host in ["source.flux-system.svc", "source.flux-system.svc.cluster.local."] {
            assert_eq!(of(&format!("http://{host}/gitrepository/apps/web/a.tar.gz")), expected);
        }
        assert_eq!(of("http://a.b.svc:9090/x"), Some("b/a:9090/x".to_owned()));
        for elsewhere in
            ["http://127.0.0.1:9090/x", "https://a.b.svc/x", "http://a.b.example/x", ""]
        {
            assert_eq!(of(elsewhere), None, "{elsewhere}");
        }
    }
}
