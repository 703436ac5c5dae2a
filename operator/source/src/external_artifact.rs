//! The kind ExternalArtifact: an artifact that another object or another controller provides. It has no work of its own. When
//! it changes, windlass wakes the objects that read it.

use std::sync::Arc;
use std::time::Duration;

use artifactgen::GENERATOR_LABEL;
use crds::source::ExternalArtifact;
use crds::source_extensions::ArtifactGenerator;
use crds::windlass_source::HTTPArchive;
use crds::{Artifact, ArtifactSource as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{Resource as _, ResourceExt as _};

use windlass_cluster::object_store::TypeMap;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::CatalogSourceKind;
use windlass_serve::settings::OperatorSettings;

/// Runs ExternalArtifacts, and makes them available to the objects that read them.
pub struct ExternalArtifactController;

impl ControllerKind for ExternalArtifactController {
    type Object = ExternalArtifact;
    type ControllerState = ();

    fn announcement(object: &ExternalArtifact) -> String {
        // The time tells of an artifact that was lost and made again, equal to the last byte.
        let said = |a: &Artifact| {
            format!("{} {} {} {:?}", a.revision, a.digest, a.url, a.last_update_time)
        };
        object.artifact().map(said).unwrap_or_default()
    }

    fn run(
        _object: Arc<ExternalArtifact>,
        _context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        std::future::ready(None).boxed()
    }
}

impl CatalogSourceKind for ExternalArtifactController {
    type Object = ExternalArtifact;

    const IS_RUN: bool = false;

    /// Parity(flux): its files are with the controller that wrote it. Those of an HTTPArchive and an ArtifactGenerator of
    /// this process are here.
    fn is_elsewhere(
        object: &ExternalArtifact,
        settings: &OperatorSettings,
        kept: &TypeMap,
    ) -> bool {
        !is_of_archive(object, settings, kept) && !is_of_generator(object, settings, kept)
    }
}

/// Whether an HTTPArchive of this process offers its artifact by an ExternalArtifact.
fn is_of_archive(object: &ExternalArtifact, settings: &OperatorSettings, kept: &TypeMap) -> bool {
    let namespace = object.namespace().unwrap_or_default();
    let found = kept.seen::<HTTPArchive>(&namespace, &object.name_any());
    let place = |artifact: &Artifact| (artifact.path.clone(), artifact.digest.clone());
    found.is_some_and(|archive| {
        settings.selects(archive.labels())
            && object.artifact().is_some()
            && archive.artifact().map(place) == object.artifact().map(place)
    })
}

/// Whether an ArtifactGenerator of this process makes the artifact of an ExternalArtifact, which lies in the place of the
/// latter.
fn is_of_generator(object: &ExternalArtifact, settings: &OperatorSettings, kept: &TypeMap) -> bool {
    let namespace = object.namespace().unwrap_or_default();
    let place = format!("externalartifact/{namespace}/{}/", object.name_any());
    let Some(source) = &object.spec.source_ref else { return false };
    let is_in_place = source.kind == ArtifactGenerator::kind(&())
        && object.artifact().is_some_and(|artifact| artifact.path.starts_with(&place));
    let found = kept.seen::<ArtifactGenerator>(&namespace, &source.name);
    found.filter(|_| is_in_place).is_some_and(|generator| {
        let uid = generator.uid();
        uid.is_some()
            && object.labels().get(GENERATOR_LABEL) == uid.as_ref()
            && settings.selects(generator.labels())
    })
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;

    #[test]
    fn every_field_of_the_schema_is_used() {
        spec_field_check::knows_every_field("ExternalArtifact", ["sourceRef"]);
    }
}
