//! The registry logins that are stored on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use sources::charts::repository::ChartRepositoryClients;
use sources::oci::RegistryKeyring;

use helmfile_controller::helmfile::chart_fetch::ChartRepositoryCache;

/// Makes a client of chart repositories and registries that uses the logins of the current user.
pub(super) fn charts() -> ChartRepositoryCache {
    ChartRepositoryCache::new(ChartRepositoryClients::default(), Arc::default(), Some(logins))
}

/// Reads the logins that `helm registry login` and `docker login` stored, from the first file that exists. Credential helpers
/// are not run.
fn logins() -> anyhow::Result<RegistryKeyring> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let home = || variable("HOME");
    let places = [
        variable("HELM_REGISTRY_CONFIG"),
        variable("XDG_CONFIG_HOME")
            .or_else(|| home().map(|it| it.join(".config")))
            .map(|it| it.join("helm/registry/config.json")),
        variable("DOCKER_CONFIG")
            .or_else(|| home().map(|it| it.join(".docker")))
            .map(|it| it.join("config.json")),
    ];
    let mut logins = RegistryKeyring::default();
    if let Some(path) = places.into_iter().flatten().find(|path| path.is_file()) {
        let shown = path.display().to_string();
        let text = std::fs::read(&path).with_context(|| shown.clone())?;
        let data = BTreeMap::from([(".dockerconfigjson".to_owned(), text)]);
        logins.add(&data).map_err(|_| anyhow!("{shown} is not a docker config"))?;
    }
    Ok(logins)
}
