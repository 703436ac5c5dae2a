//! Charts of repositories and registries: which versions there are, and fetching one.
//!
//! Elsewhere: which charts helmfiles name (engine `helmfile`), which of them may be asked for (`repositories.rs`),
//! repositories and registries (`sources`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use helmfile::Wanted;
use objects::Redacted;
use sources::bucket::Identity;
use sources::charts::repository::Reach;
use sources::charts::{Answer, BucketServer, Credentials, Index, MAX_CHART, MAX_INDEX, Repository};
use sources::http::Tls;
use sources::oci::{self, Auth, Keyring, Limits, Remote};

/// How long a repository may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Repositories during one plan: each index is fetched once.
pub(crate) struct Charts {
    indexes: BTreeMap<String, Index>,
    reach: Reach,
    known: Arc<oci::Known>,
    /// The logins of whoever runs this, if a registry asks for one that the helmfile does not give.
    logins: Option<fn() -> anyhow::Result<Keyring>>,
    /// Whether buckets are asked anonymously, and not as the environment says.
    is_anonymous: bool,
}

/// How the chart repository or the registry of a chart is spoken to.
pub(super) enum Place {
    Index(Box<Repository>),
    Registry(Box<Remote>, Arc<oci::Known>),
}

impl Charts {
    /// Asks as `reach` and `known` allow it.
    pub(crate) fn new(
        reach: Reach,
        known: Arc<oci::Known>,
        logins: Option<fn() -> anyhow::Result<Keyring>>,
    ) -> Self {
        Self { indexes: BTreeMap::new(), reach, known, logins, is_anonymous: false }
    }

    /// Buckets are asked anonymously: whoever names one does not speak for this process.
    #[must_use]
    pub(super) fn anonymous(self) -> Self {
        Self { is_anonymous: true, ..self }
    }

    /// The highest version of a chart in its range.
    ///
    /// # Errors
    /// The repository cannot be read, or has no such version.
    pub(crate) async fn version(&mut self, chart: &Wanted) -> anyhow::Result<String> {
        check(chart)?;
        if chart.url.starts_with("oci://") {
            return Ok(oci::chart::choose(&self.remote(chart)?, &self.known, &chart.range).await?);
        }
        let repository = self.repository(chart)?;
        Ok(self
            .index(&repository, chart)
            .await?
            .choose(&chart.name, &chart.range)?
            .version
            .to_owned())
    }

    /// The archive of that version.
    ///
    /// # Errors
    /// The same, and that the archive cannot be fetched.
    pub(crate) async fn archive(&mut self, chart: &Wanted) -> anyhow::Result<Vec<u8>> {
        check(chart)?;
        let place = match chart.url.starts_with("oci://") {
            true => Place::Registry(Box::new(self.remote(chart)?), self.known.clone()),
            false => Place::Index(Box::new(self.repository(chart)?)),
        };
        self.archive_at(&place, chart).await
    }

    /// As [`Charts::archive`], from a place that somebody else than the helmfile says how to speak to.
    ///
    /// # Errors
    /// As [`Charts::archive`].
    pub(super) async fn archive_at(
        &mut self,
        place: &Place,
        chart: &Wanted,
    ) -> anyhow::Result<Vec<u8>> {
        let repository = match place {
            Place::Index(repository) => repository,
            Place::Registry(remote, known) => {
                let version = oci::chart::choose(remote, known, &chart.range).await?;
                let mut layer = oci::chart::fetch(remote, known, &version).await?;
                let mut bytes = Vec::new();
                layer.file.read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
        };
        let chosen = self.index(repository, chart).await?.choose(&chart.name, &chart.range)?;
        let Some(url) = chosen.url else {
            bail!("the index of {} has no address for version {}", chart.url, chosen.version);
        };
        Ok(repository.chart(url, chosen.digest).await?)
    }

    async fn index(&mut self, repository: &Repository, chart: &Wanted) -> anyhow::Result<&Index> {
        if !self.indexes.contains_key(&chart.url) {
            let Answer::Index { file, .. } = repository.index(None).await? else {
                return Err(anyhow!("the repository answers that its index is unchanged"));
            };
            let mut text = Vec::new();
            file.take(MAX_INDEX).read_to_end(&mut text)?;
            self.indexes.insert(chart.url.clone(), Index::parse(&text)?);
        }
        self.indexes.get(&chart.url).context("an index that was just read")
    }

    fn repository(&self, chart: &Wanted) -> anyhow::Result<Repository> {
        let basic = chart.login.clone().map(|(user, password)| (user, Redacted::new(password)));
        let mut credentials = Credentials { basic, ..Credentials::default() };
        if self.is_anonymous {
            credentials.bucket =
                BucketServer { identity: Identity::Anonymous, ..BucketServer::default() };
        }
        let pass = chart.pass_credentials;
        Ok(Repository::new(&chart.url, credentials, pass, TIMEOUT, &self.reach)?)
    }

    /// The repository of a chart in a registry.
    fn remote(&self, chart: &Wanted) -> anyhow::Result<Remote> {
        let url = format!("{}/{}", chart.url.trim_end_matches('/'), chart.name);
        let repository = oci::Repository::parse(&url)?;
        let auth = match (chart.login.clone(), self.logins) {
            (Some((username, password)), _) => {
                Auth::Basic { username, password: Redacted::new(password) }
            }
            (None, Some(logins)) => logins()?.auth(&repository),
            (None, None) => Auth::Anonymous,
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
}

fn check(chart: &Wanted) -> anyhow::Result<()> {
    if !chart.unsupported.is_empty() {
        bail!("the repository has {}, which is not supported", chart.unsupported.join(", "));
    }
    Ok(())
}
