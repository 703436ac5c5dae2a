//! Logs in to registries of cloud providers, with the identity of the machine that windlass runs on.
//!
//! Elsewhere: the login itself (`sources::oci`), and registries with credentials in a Secret (each kind).

use crds::source::RegistryProvider;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::oci::{Error, RemoteOciRepository};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, URL_INVALID};

use super::run_context::RunContext;
use windlass_cluster::error::chain;

/// Logs in to the cloud of a registry if the spec names a provider and no Secret.
///
/// Parity(flux): a Secret goes before the cloud.
///
/// # Errors
/// The outcome of a run: the address is no registry of this cloud, or the cloud refuses the login.
pub async fn login(
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
        Error::Busy(busy) => {
            let retry = NextRunTrigger::at(busy.until);
            RunOutcome::Failed(AUTHENTICATION_FAILED, busy.to_string(), retry)
        }
        error => {
            let text = format!("failed to get credential from 'aws': {}", chain(error));
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        }
    })?;
    Ok(())
}
