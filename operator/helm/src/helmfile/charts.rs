//! Charts of repositories and registries: which versions there are, and fetching one.
//!
//! Elsewhere: which charts helmfiles name (engine `helmfile`), which of them may be asked for (`repositories.rs`),
//! repositories and registries (`sources`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use helmfile::ChartVersionRequest;
use http_client::TlsConfig;
use objects::RedactedValue;
use sources::bucket::BucketIdentity;
use sources::charts::repository::ChartRepositoryClients;
use sources::charts::{
    ChartBucketServer, ChartIndex, ChartRepository, ChartRepositoryCredentials, IndexFetchResult,
    MAX_CHART, MAX_INDEX,
};
use sources::oci::{self, RegistryAuth, RegistryKeyring, RegistryLimits, RemoteOciRepository};

/// How long a repository may take.
const REPOSITORY_TIMEOUT: Duration = Duration::from_secs(60);

/// The chart repositories of one plan: each index is fetched once.
pub struct ChartRepositoryCache {
    indexes: BTreeMap<String, ChartIndex>,
    reach: ChartRepositoryClients,
    known: Arc<oci::RegistryCache>,
    /// The logins of the user who runs the command, for registries whose login the helmfile does not give.
    logins: Option<fn() -> anyhow::Result<RegistryKeyring>>,
    /// Whether buckets are read anonymously instead of with the credentials of the environment.
    is_anonymous: bool,
}

/// How the chart repository or the registry of a chart is spoken to.
pub(super) enum HelmfileChartRemote {
    Index(Box<ChartRepository>),
    Registry(Box<RemoteOciRepository>, Arc<oci::RegistryCache>),
}

impl ChartRepositoryCache {
    /// A cache in which nothing was fetched yet. Requests use the clients of `reach` and what `known` remembers of
    /// registries; `logins` reads the registry logins of the user who runs the command.
    pub fn new(
        reach: ChartRepositoryClients,
        known: Arc<oci::RegistryCache>,
        logins: Option<fn() -> anyhow::Result<RegistryKeyring>>,
    ) -> Self {
        Self { indexes: BTreeMap::new(), reach, known, logins, is_anonymous: false }
    }

    /// Buckets are read anonymously: the author of a helmfile must not use the credentials of this process.
    #[must_use]
    pub(super) fn anonymous(self) -> Self {
        Self { is_anonymous: true, ..self }
    }

    /// The highest version of a chart that is in its range.
    ///
    /// # Errors
    /// The repository cannot be read, or has no such version.
    pub async fn version(&mut self, chart: &ChartVersionRequest) -> anyhow::Result<String> {
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

    /// The archive of the highest version of a chart that is in its range.
    ///
    /// # Errors
    /// The repository cannot be read, has no such version, or the archive cannot be fetched.
    pub async fn archive(&mut self, chart: &ChartVersionRequest) -> anyhow::Result<Vec<u8>> {
        check(chart)?;
        let place = match chart.url.starts_with("oci://") {
            true => {
                HelmfileChartRemote::Registry(Box::new(self.remote(chart)?), self.known.clone())
            }
            false => HelmfileChartRemote::Index(Box::new(self.repository(chart)?)),
        };
        self.archive_at(&place, chart).await
    }

    /// As [`ChartRepositoryCache::archive`], from a repository whose access is configured elsewhere than in the
    /// helmfile.
    ///
    /// # Errors
    /// As [`ChartRepositoryCache::archive`].
    pub(super) async fn archive_at(
        &mut self,
        place: &HelmfileChartRemote,
        chart: &ChartVersionRequest,
    ) -> anyhow::Result<Vec<u8>> {
        let repository = match place {
            HelmfileChartRemote::Index(repository) => repository,
            HelmfileChartRemote::Registry(remote, known) => {
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

    async fn index(
        &mut self,
        repository: &ChartRepository,
        chart: &ChartVersionRequest,
    ) -> anyhow::Result<&ChartIndex> {
        if !self.indexes.contains_key(&chart.url) {
            let IndexFetchResult::Index { file, .. } = repository.index(None).await? else {
                return Err(anyhow!("the repository answers that its index is unchanged"));
            };
            let mut text = Vec::new();
            file.take(MAX_INDEX).read_to_end(&mut text)?;
            self.indexes.insert(chart.url.clone(), ChartIndex::parse(&text)?);
        }
        self.indexes.get(&chart.url).context("an index that was just read")
    }

    fn repository(&self, chart: &ChartVersionRequest) -> anyhow::Result<ChartRepository> {
        let basic =
            chart.login.clone().map(|(user, password)| (user, RedactedValue::new(password)));
        let mut credentials =
            ChartRepositoryCredentials { basic, ..ChartRepositoryCredentials::default() };
        if self.is_anonymous {
            credentials.bucket = ChartBucketServer {
                identity: BucketIdentity::Anonymous,
                ..ChartBucketServer::default()
            };
        }
        let pass = chart.pass_credentials;
        Ok(ChartRepository::new(&chart.url, credentials, pass, REPOSITORY_TIMEOUT, &self.reach)?)
    }

    /// The repository of a chart in a registry.
    fn remote(&self, chart: &ChartVersionRequest) -> anyhow::Result<RemoteOciRepository> {
        let url = format!("{}/{}", chart.url.trim_end_matches('/'), chart.name);
        let repository = oci::OciRepositoryName::parse(&url)?;
        let auth = match (chart.login.clone(), self.logins) {
            (Some((username, password)), _) => {
                RegistryAuth::Basic { username, password: RedactedValue::new(password) }
            }
            (None, Some(logins)) => logins()?.auth(&repository),
            (None, None) => RegistryAuth::Anonymous,
        };
        Ok(RemoteOciRepository {
            repository,
            auth,
            tls: TlsConfig::default(),
            proxy: None,
            insecure: chart.plain_http,
            timeout: REPOSITORY_TIMEOUT,
            limits: RegistryLimits { layer: MAX_CHART, ..RegistryLimits::default() },
        })
    }
}

fn check(chart: &ChartVersionRequest) -> anyhow::Result<()> {
    if !chart.unsupported.is_empty() {
        bail!("the repository has {}, which is not supported", chart.unsupported.join(", "));
    }
    Ok(())
}
