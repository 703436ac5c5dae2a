//! Logging in to the registries of clouds, as the machine that windlass runs on.
//!
//! Elsewhere: how that is done (`sources::oci`), registries that a Secret has credentials for (each kind).

use crds::source::RegistryProvider;
use reconcile::{RunOutcome, WakeTrigger};
use sources::oci::{Error, RemoteOciRepository};
use sources::source_reasons::{AUTHENTICATION_FAILED, URL_INVALID};

use super::source::busy;
use windlass_cluster::error::chain;
use windlass_runtime::run_context::RunContext;

/// Has a registry asked with a login of its cloud, where the spec wants that.
///
/// Parity(flux): a Secret goes before the cloud.
pub(crate) async fn login(
    context: &RunContext,
    provider: Option<RegistryProvider>,
    has_secret: bool,
    remote: &mut RemoteOciRepository,
) -> Result<(), RunOutcome> {
    if provider != Some(RegistryProvider::Aws) || has_secret {
        return Ok(());
    }
    let login = context.remotes.oci.login_to_aws(&remote.repository, remote.timeout).await;
    remote.auth = login.map_err(|error| match &error {
        Error::InvalidUrl { .. } => RunOutcome::Stalled(URL_INVALID, chain(&error)),
        Error::Busy(said) => busy(AUTHENTICATION_FAILED, said),
        error => {
            let text = format!("failed to get credential from 'aws': {}", chain(error));
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, WakeTrigger::default())
        }
    })?;
    Ok(())
}
