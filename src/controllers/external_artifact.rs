//! ExternalArtifact: an artifact that somebody else's controller provides. Nothing runs for it; whoever reads it is woken.

use std::sync::Arc;
use std::time::Duration;

use crds::source::ExternalArtifact;
use crds::windlass::HTTPArchive;
use crds::{Artifact, ArtifactSource as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::ResourceExt as _;

use super::catalog::Provider;
use super::context::Context;
use super::kind::ControllerKind;
use super::object_store::ByType;
use windlass_serve::settings::Settings;

impl ControllerKind for ExternalArtifact {
    const CONTROLLER: &'static str = "source-controller";
    const APPLIES: bool = false;

    type ControllerState = ();

    fn announcement(&self) -> String {
        let artifact = self.artifact();
        artifact.map(|a| format!("{} {} {}", a.revision, a.digest, a.url)).unwrap_or_default()
    }

    fn run(self: Arc<Self>, _context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        std::future::ready(None).boxed()
    }
}

impl Provider for ExternalArtifact {
    const IS_RUN: bool = false;

    /// Parity(flux): its files are with whoever wrote it. Those of an HTTPArchive of this process are here.
    fn is_elsewhere(&self, settings: &Settings, kept: &ByType) -> bool {
        let namespace = self.namespace().unwrap_or_default();
        let name = self.name_any();
        let Some(archive) = kept.seen::<HTTPArchive>(&namespace, &name) else { return true };
        let place = |artifact: &Artifact| (artifact.path.clone(), artifact.digest.clone());
        let is_offered = settings.selects(archive.labels())
            && self.artifact().is_some()
            && archive.artifact().map(place) == self.artifact().map(place);
        !is_offered
    }
}
