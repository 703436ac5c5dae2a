//! ExternalArtifact: an artifact that another controller provides. Nothing runs for it; the objects that read it are
//! woken.

use std::sync::Arc;
use std::time::Duration;

use crds::source::ExternalArtifact;
use crds::windlass::HTTPArchive;
use crds::{Artifact, ArtifactSource as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::ResourceExt as _;

use windlass_runtime::catalog::Provider;
use windlass_runtime::context::Context;
use windlass_runtime::kind::ControllerKind;
use windlass_runtime::object_store::TypeMap;
use windlass_serve::settings::Settings;

/// Runs ExternalArtifacts, and has others find them.
pub struct ExternalArtifactController;

impl ControllerKind for ExternalArtifactController {
    type Object = ExternalArtifact;
    type ControllerState = ();

    fn announcement(object: &ExternalArtifact) -> String {
        let artifact = object.artifact();
        artifact.map(|a| format!("{} {} {}", a.revision, a.digest, a.url)).unwrap_or_default()
    }

    fn run(
        _object: Arc<ExternalArtifact>,
        _context: Arc<Context>,
    ) -> BoxFuture<'static, Option<Duration>> {
        std::future::ready(None).boxed()
    }
}

impl Provider for ExternalArtifactController {
    type Object = ExternalArtifact;

    const IS_RUN: bool = false;

    /// Parity(flux): its files are in the storage of the controller that wrote it. Those of an HTTPArchive of this
    /// process are here.
    fn is_elsewhere(object: &ExternalArtifact, settings: &Settings, kept: &TypeMap) -> bool {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let Some(archive) = kept.seen::<HTTPArchive>(&namespace, &name) else { return true };
        let place = |artifact: &Artifact| (artifact.path.clone(), artifact.digest.clone());
        let is_offered = settings.selects(archive.labels())
            && object.artifact().is_some()
            && archive.artifact().map(place) == object.artifact().map(place);
        !is_offered
    }
}
