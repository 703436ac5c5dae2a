//! Every source by kind and name, as the watches last saw it: what appliers and other sources read from.
//!
//! Elsewhere: the artifact's files (`controllers::artifact`), running the kinds (each its folder).

use std::sync::Arc;

use crds::Artifact;
use crds::source::{ExternalArtifact, GitRepository};
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
    pub(crate) external_artifacts: Store<ExternalArtifact>,
    pub(crate) git_repositories: Store<GitRepository>,
}

/// What fills a [`Catalog`].
pub(crate) struct Writers {
    pub(crate) external_artifacts: Writer<ExternalArtifact>,
    pub(crate) git_repositories: Writer<GitRepository>,
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
        let (external_artifacts, external_writer) = reflector::store();
        let (git_repositories, git_writer) = reflector::store();
        let writers = Writers { external_artifacts: external_writer, git_repositories: git_writer };
        (Self { external_artifacts, git_repositories }, writers)
    }

    /// Whether objects of a kind are known here.
    pub(crate) fn has(kind: &str) -> bool {
        ["ExternalArtifact", "GitRepository"].contains(&kind)
    }

    /// The source that a node stands for; `None` if there is none of that name, or if its kind is no source.
    pub(crate) fn find(&self, node: &Node, settings: &Settings) -> Option<Found> {
        match node.kind.as_str() {
            "ExternalArtifact" => found(&self.external_artifacts, node, settings),
            "GitRepository" => found(&self.git_repositories, node, settings),
            _ => None,
        }
    }

    /// Returns when all kinds have listed their objects once.
    ///
    /// # Errors
    /// The watches ended before.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WriterDropped> {
        self.external_artifacts.wait_until_ready().await?;
        self.git_repositories.wait_until_ready().await
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
