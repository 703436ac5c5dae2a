//! Every source by kind and name, as the watches last saw it: what appliers and other sources read from.
//!
//! Elsewhere: the artifact's files (`controllers::artifact`), running the kinds (each its folder).

use std::sync::Arc;

use crds::Artifact;
use crds::Source as _;
use crds::source::{
    Bucket, ExternalArtifact, GitRepository, HelmChart, HelmRepository, OCIRepository,
};
use crds::windlass::HTTPArchive;
use kube::core::{Resource as _, ResourceExt as _};
use kube::runtime::reflector::store::{Writer, WriterDropped};
use kube::runtime::reflector::{self, ObjectRef, Store};
use reconcile::Node;

use crate::cluster::status::OurKind;
use crate::settings::Settings;

/// The API group of the sources.
pub(crate) const SOURCES: &str = "source.toolkit.fluxcd.io";

/// See the module.
pub(crate) struct Catalog {
    pub(crate) buckets: Store<Bucket>,
    pub(crate) external_artifacts: Store<ExternalArtifact>,
    pub(crate) git_repositories: Store<GitRepository>,
    pub(crate) helm_charts: Store<HelmChart>,
    pub(crate) helm_repositories: Store<HelmRepository>,
    pub(crate) http_archives: Store<HTTPArchive>,
    pub(crate) oci_repositories: Store<OCIRepository>,
}

/// What fills a [`Catalog`].
pub(crate) struct Writers {
    pub(crate) buckets: Writer<Bucket>,
    pub(crate) external_artifacts: Writer<ExternalArtifact>,
    pub(crate) git_repositories: Writer<GitRepository>,
    pub(crate) helm_charts: Writer<HelmChart>,
    pub(crate) helm_repositories: Writer<HelmRepository>,
    pub(crate) http_archives: Writer<HTTPArchive>,
    pub(crate) oci_repositories: Writer<OCIRepository>,
}

/// A source, as whoever reads from it needs to know it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its artifact.
    pub(crate) artifact: Option<Artifact>,
    /// Whether its artifact is in another process' store, and comes over HTTP.
    pub(crate) is_elsewhere: bool,
}

impl Catalog {
    /// A catalog without anything in it, and what fills it.
    pub(crate) fn new() -> (Self, Writers) {
        let (buckets, bucket_writer) = reflector::store();
        let (external_artifacts, external_writer) = reflector::store();
        let (git_repositories, git_writer) = reflector::store();
        let (helm_charts, chart_writer) = reflector::store();
        let (helm_repositories, helm_writer) = reflector::store();
        let (http_archives, http_writer) = reflector::store();
        let (oci_repositories, oci_writer) = reflector::store();
        let writers = Writers {
            buckets: bucket_writer,
            external_artifacts: external_writer,
            git_repositories: git_writer,
            helm_charts: chart_writer,
            helm_repositories: helm_writer,
            http_archives: http_writer,
            oci_repositories: oci_writer,
        };
        let catalog = Self {
            buckets,
            external_artifacts,
            git_repositories,
            helm_charts,
            helm_repositories,
            http_archives,
            oci_repositories,
        };
        (catalog, writers)
    }

    /// The source that a node stands for; `None` if there is none of that name, or if its kind is no source.
    pub(crate) fn find(&self, node: &Node, settings: &Settings) -> Option<Found> {
        match node.kind.as_str() {
            "ExternalArtifact" => {
                let mut found = found(&self.external_artifacts, node, settings)?;
                found.is_elsewhere &= !self.is_offered(node, &found, settings);
                Some(found)
            }
            "Bucket" => found(&self.buckets, node, settings),
            "GitRepository" => found(&self.git_repositories, node, settings),
            "HelmChart" => found(&self.helm_charts, node, settings),
            "HelmRepository" => found(&self.helm_repositories, node, settings),
            "OCIRepository" => found(&self.oci_repositories, node, settings),
            _ => None,
        }
    }

    /// Whether what an ExternalArtifact says is the artifact of an HTTPArchive of this process.
    fn is_offered(&self, node: &Node, found: &Found, settings: &Settings) -> bool {
        let named = ObjectRef::new(&node.name).within(&node.namespace);
        let Some(object) = self.http_archives.get(&named) else { return false };
        let place = |artifact: &Artifact| (artifact.path.clone(), artifact.digest.clone());
        settings.selects(object.labels())
            && found.artifact.is_some()
            && object.artifact().map(place) == found.artifact.as_ref().map(place)
    }

    /// Returns when all kinds of Flux have listed their objects once; ours need not be installed.
    ///
    /// # Errors
    /// The watches ended before.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WriterDropped> {
        self.buckets.wait_until_ready().await?;
        self.external_artifacts.wait_until_ready().await?;
        self.git_repositories.wait_until_ready().await?;
        self.helm_charts.wait_until_ready().await?;
        self.helm_repositories.wait_until_ready().await?;
        self.oci_repositories.wait_until_ready().await
    }
}

fn found<K: OurKind + crds::Source>(
    store: &Store<K>,
    node: &Node,
    settings: &Settings,
) -> Option<Found> {
    let object: Arc<K> = store.get(&ObjectRef::new(&node.name).within(&node.namespace))?;
    // Parity(flux): nobody runs for an ExternalArtifact, so its files are always with whoever wrote it.
    let is_foreign = K::kind(&()) == ExternalArtifact::kind(&());
    Some(Found {
        artifact: object.artifact().cloned(),
        is_elsewhere: is_foreign || !settings.selects(object.labels()),
    })
}
