//! Finds the version of a chart in a registry, and fetches it.
//!
//! Elsewhere: requests to registries (`sources::oci`), the spec of a HelmRepository of type `oci`
//! (`windlass_runtime::chart_repository_access`).

use std::io::{self, Read as _};
use std::sync::Arc;

use crds::source::HelmChart;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use signatures::image_verification;
use sources::oci::{
    Error, FetchedLayer, OciDigest, RegistrySession, RegistrySessionCache, RemoteOciRepository,
    chart,
};
use sources::source_condition_reasons::{
    AUTHENTICATION_FAILED, CHART_PULL_ERROR, CHART_VERIFICATION_ERROR, INVALID_CHART_REFERENCE,
};

use super::chart_source::ChartRegistry;
use super::executor::{ChartLookupResult, failed};
use crate::image_trust::{ImageTrustError, ImageVerificationPolicy, signer};
use crate::source::artifact_verification_record::VerificationRecord;
use crate::source::busy;
use crate::source::executor::SourceRun;
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;

/// The outcome of a failed request to a registry, in Flux's words.
fn refused(what: &str, error: &Error) -> RunOutcome {
    let text = || format!("{what}: {}", chain(error));
    match error {
        Error::Busy(said) => busy(CHART_PULL_ERROR, said),
        Error::Unauthorized { .. } | Error::Login { .. } => RunOutcome::Failed(
            AUTHENTICATION_FAILED,
            format!("failed to authenticate with the registry: {}", chain(error)),
            NextRunTrigger::default(),
        ),
        // A version may be pushed later, and no watch reports that, so the registry is asked again.
        Error::NoMatch { .. } | Error::NotFound { .. } => {
            again(INVALID_CHART_REFERENCE, &format!("invalid chart reference: {}", text()))
        }
        Error::InvalidReference { .. } => failed(INVALID_CHART_REFERENCE, text()),
        _ => failed(CHART_PULL_ERROR, text()),
    }
}

fn again(why: ConditionReason, text: &str) -> RunOutcome {
    RunOutcome::Failed(why, text.to_owned(), NextRunTrigger::default())
}

/// The name of a chart that may be in a folder of the repository.
pub(super) fn name_of(chart: &str) -> &str {
    chart.rsplit('/').next().unwrap_or(chart)
}

/// Chooses the version of the chart.
pub(super) async fn choose(
    remote: &RemoteOciRepository,
    known: &RegistrySessionCache,
    name: &str,
    range: &str,
) -> Result<(ChartLookupResult, String, String), RunOutcome> {
    let refused =
        |error: Error| refused("failed to get chart version for remote reference", &error);
    let version = chart::choose(remote, known, range).await.map_err(refused)?;
    Ok((ChartLookupResult::Tag(version.clone()), name_of(name).to_owned(), version))
}

/// Fetches the archive of a version, once what its digest stands for is verified; gives who signed it, if a signature
/// is required.
///
/// Differs(flux): what is verified is what is fetched. There the tag is asked for each time, and may be moved in between.
pub(super) async fn pull(
    run: &Arc<SourceRun<HelmChart>>,
    registry: &ChartRegistry,
    version: &str,
) -> Result<(Vec<u8>, Option<VerificationRecord>), RunOutcome> {
    let refused = |error: Error| refused("failed to download chart for remote reference", &error);
    let known = &run.context.remotes.oci;
    let session = RegistrySession::new(&registry.remote, known).map_err(refused)?;
    let digest = chart::resolve(&session, version).await.map_err(refused)?;
    let verified = match &registry.signed {
        Some(signed) => Some(verify(run, signed, &session, &digest).await?),
        None => None,
    };
    let (_, layer) = chart::pull(&session, &digest).await.map_err(refused)?;
    let read = move || read(layer).map_err(|error| failed(CHART_PULL_ERROR, error.to_string()));
    let archive = blocking(CHART_PULL_ERROR, "reading the chart", read).await?;
    Ok((archive, verified))
}

async fn verify(
    run: &SourceRun<HelmChart>,
    signed: &ImageVerificationPolicy,
    session: &RegistrySession<'_>,
    digest: &OciDigest,
) -> Result<VerificationRecord, RunOutcome> {
    let verified = signed.verify(session, digest).await.map_err(|failure| match failure {
        ImageTrustError::Registry(error) => {
            refused("failed to fetch the signatures of the chart", &error)
        }
        ImageTrustError::Refused(why) => {
            again(CHART_VERIFICATION_ERROR, &format!("chart verification error: {why}"))
        }
    })?;
    let text = match verified {
        image_verification::ImageVerification::By(name) => {
            format!("verified signature of version {}{}", run.work.built().version, signer(&name))
        }
        image_verification::ImageVerification::Ignored => String::new(),
    };
    Ok(VerificationRecord { how: signed.how(), text })
}

/// The bytes of a layer. Blocks.
pub(super) fn read(mut layer: FetchedLayer) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    layer.file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use sources::oci::TagSelection;

    use super::*;

    #[test]
    fn a_version_that_is_not_there_is_looked_for_again_and_a_range_that_is_none_is_not() {
        let none = refused("failed", &Error::NoMatch { range: "9.x".to_owned() });
        assert!(matches!(none, RunOutcome::Failed(INVALID_CHART_REFERENCE, ..)), "{none:?}");
        assert_eq!(none.text(), "invalid chart reference: failed: no match found for semver: 9.x");
        let range = TagSelection::parse("nonsense", None, true).unwrap_err();
        let range = refused("failed", &range);
        assert!(matches!(range, RunOutcome::Stalled(INVALID_CHART_REFERENCE, _)), "{range:?}");
    }

    #[test]
    fn the_folder_of_a_chart_is_not_its_name() {
        assert_eq!(name_of("team/app"), "app");
        assert_eq!(name_of("app"), "app");
    }
}
