//! Logging in to the registries of clouds, as the machine that windlass runs on.
//!
//! Elsewhere: how that is done (`sources::oci`), registries that a Secret has credentials for (each kind).

use crds::source::RegistryProvider;
use reconcile::{Outcome, Wake};
use sources::oci::{Error, Remote};
use sources::reason::{AUTHENTICATION_FAILED, URL_INVALID};

use super::source::busy;
use windlass_cluster::error::chain;
use windlass_runtime::context::Context;

/// Has a registry asked with a login of its cloud, where the spec wants that.
///
/// Parity(flux): a Secret goes before the cloud.
pub(crate) async fn login(
    context: &Context,
    provider: Option<RegistryProvider>,
    has_secret: bool,
    remote: &mut Remote,
) -> Result<(), Outcome> {
    if provider != Some(RegistryProvider::Aws) || has_secret {
        return Ok(());
    }
    let login = context.remotes.oci.login_to_aws(&remote.repository, remote.timeout).await;
    remote.auth = login.map_err(|error| match &error {
        Error::InvalidUrl { .. } => Outcome::Stalled(URL_INVALID, chain(&error)),
        Error::Busy(said) => busy(AUTHENTICATION_FAILED, said),
        error => {
            let text = format!("failed to get credential from 'aws': {}", chain(error));
            Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        }
    })?;
    Ok(())
}
