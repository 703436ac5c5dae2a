//! Charts of repositories and registries: which versions there are, and fetching one.
//!
//! Elsewhere: which charts helmfiles name (engine `helmfile`), repositories and registries (`sources`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use helmfile::Wanted;
use objects::Redacted;
use sources::charts::repository::Reach;
use sources::charts::{Answer, Credentials, Index, MAX_CHART, MAX_INDEX, Repository};
use sources::http::Tls;
use sources::oci::{self, Auth, Keyring, Limits, Remote};

/// How long a repository may take where the command has no limit.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Repositories during one run of a command: each index is fetched once.
#[derive(Default)]
pub(super) struct Charts {
    indexes: BTreeMap<String, Index>,
}

impl Charts {
    /// The highest version of a chart in its range.
    ///
    /// # Errors
    /// The repository cannot be read, or has no such version.
    pub(super) async fn version(&mut self, chart: &Wanted) -> anyhow::Result<String> {
        check(chart)?;
        if chart.url.starts_with("oci://") {
            let (remote, known) = (remote(chart)?, oci::Known::default());
            return Ok(oci::chart::choose(&remote, &known, &chart.range).await?);
        }
        Ok(self.index(chart).await?.choose(&chart.name, &chart.range)?.version.to_owned())
    }

    /// The archive of that version.
    ///
    /// # Errors
    /// The same, and that the archive cannot be fetched.
    pub(super) async fn archive(&mut self, chart: &Wanted) -> anyhow::Result<Vec<u8>> {
        check(chart)?;
        if chart.url.starts_with("oci://") {
            let (remote, known) = (remote(chart)?, oci::Known::default());
            let version = oci::chart::choose(&remote, &known, &chart.range).await?;
            let mut layer = oci::chart::fetch(&remote, &known, &version).await?;
            let mut bytes = Vec::new();
            layer.file.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
        let chosen = self.index(chart).await?.choose(&chart.name, &chart.range)?;
        let Some(url) = chosen.url else {
            bail!("the index of {} has no address for version {}", chart.url, chosen.version);
        };
        Ok(repository(chart)?.chart(url, chosen.digest).await?)
    }

    async fn index(&mut self, chart: &Wanted) -> anyhow::Result<&Index> {
        if !self.indexes.contains_key(&chart.url) {
            let Answer::Index { file, .. } = repository(chart)?.index(None).await? else {
                return Err(anyhow!("the repository answers that its index is unchanged"));
            };
            let mut text = Vec::new();
            file.take(MAX_INDEX).read_to_end(&mut text)?;
            self.indexes.insert(chart.url.clone(), Index::parse(&text)?);
        }
        self.indexes.get(&chart.url).context("an index that was just read")
    }
}

fn check(chart: &Wanted) -> anyhow::Result<()> {
    if !chart.unsupported.is_empty() {
        bail!("the repository has {}, which is not supported", chart.unsupported.join(", "));
    }
    Ok(())
}

fn repository(chart: &Wanted) -> anyhow::Result<Repository> {
    let basic = chart.login.clone().map(|(user, password)| (user, Redacted::new(password)));
    let credentials = Credentials { basic, ..Credentials::default() };
    let reach = Reach::default();
    Ok(Repository::new(&chart.url, credentials, chart.pass_credentials, TIMEOUT, &reach)?)
}

/// The repository of a chart in a registry.
fn remote(chart: &Wanted) -> anyhow::Result<Remote> {
    let url = format!("{}/{}", chart.url.trim_end_matches('/'), chart.name);
    let repository = oci::Repository::parse(&url)?;
    let auth = match chart.login.clone() {
        Some((username, password)) => Auth::Basic { username, password: Redacted::new(password) },
        None => logins()?.auth(&repository),
    };
    Ok(Remote {
        repository,
        auth,
        tls: Tls::default(),
        proxy: None,
        insecure: chart.plain_http,
        timeout: TIMEOUT,
        limits: Limits { layer: MAX_CHART, ..Limits::default() },
    })
}

/// What `helm registry login` and `docker login` left, in the first file that is there. Credential helpers are not run.
fn logins() -> anyhow::Result<Keyring> {
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
    let mut logins = Keyring::default();
    if let Some(path) = places.into_iter().flatten().find(|path| path.is_file()) {
        let shown = path.display().to_string();
        let text = std::fs::read(&path).with_context(|| shown.clone())?;
        let data = BTreeMap::from([(".dockerconfigjson".to_owned(), text)]);
        logins.add(&data).map_err(|_| anyhow!("{shown} is not a docker config"))?;
    }
    Ok(logins)
}
