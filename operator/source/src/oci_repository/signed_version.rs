//! Checks the version in the tag of a signed chart. No signature covers a tag.
//!
//! Elsewhere: signatures themselves (`image_trust`), the same check for a HelmChart (`helm_chart/signed_name.rs`).

use std::io::{Read as _, Seek as _};

use reconcile::{NextRunTrigger, RunOutcome};
use sources::charts::{LoadedChartFiles, MAX_CHART};
use sources::oci::FetchedLayer;
use sources::oci::chart::{is_same_version, stated_version};
use sources::source_condition_reasons::{OCI_LAYER_OPERATION_FAILED, VERIFICATION_ERROR};

use super::executor::PulledArtifact;
use windlass_cluster::error::chain;

/// Checks that a signed chart has the version that its tag says. Other layers are not checked, and neither are tags
/// that are not versions, such as `latest`. Blocks.
///
/// Differs(flux): a user who may push to a registry can put the tag of a new version on the signed manifest of an old
/// one.
pub(super) fn check(pulled: &mut PulledArtifact, tag: &str) -> Result<(), RunOutcome> {
    let Some(version) = stated_version(tag).filter(|_| pulled.is_chart) else { return Ok(()) };
    let own = version_of(&mut pulled.layer)?;
    if is_same_version(&own, &version) {
        return Ok(());
    }
    let text = format!(
        "what is signed is a chart with version '{own}', and the registry has it under the tag '{tag}'"
    );
    Err(RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default()))
}

/// The version in the `Chart.yaml` of a layer, which can be read again then.
fn version_of(layer: &mut FetchedLayer) -> Result<String, RunOutcome> {
    let failed = |why: String| {
        let text = format!("failed to read the version of the signed chart: {why}");
        RunOutcome::Failed(OCI_LAYER_OPERATION_FAILED, text, NextRunTrigger::default())
    };
    if layer.size > MAX_CHART {
        return Err(failed(format!("the layer is larger than {MAX_CHART} bytes")));
    }
    let mut bytes = Vec::new();
    let read = layer.file.read_to_end(&mut bytes).and_then(|_| layer.file.rewind());
    read.map_err(|error| failed(error.to_string()))?;
    let files = LoadedChartFiles::in_archive(&bytes).map_err(|error| failed(chain(&error)))?;
    Ok(files.chart().metadata.version.clone())
}
