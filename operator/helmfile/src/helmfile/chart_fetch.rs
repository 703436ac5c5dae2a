//! Charts of repositories and registries: lists the versions of a chart, and fetches one.
//!
//! Elsewhere: which charts helmfiles name (engine `helmfile`), which repositories a helmfile may use (`chart_repositories.rs`),
//! requests to repositories and registries (`sources`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use helmfile::ChartVersionRequest;
use http_client::TlsConfig;
use objects::RedactedValue;
use sources::bucket::BucketCredentialSource;
use sources::charts::repository::ChartRepositoryClients;
use sources::charts::{
    ChartBucketServer, ChartIndex, ChartIndexFetchResult, ChartRepository,
    ChartRepositoryCredentials, DownloadCache, MAX_CHART, MAX_INDEX, download_cache,
};
use sources::oci::{self, RegistryAuth, RegistryKeyring, RegistryLimits, RemoteOciRepository};

/// The time limit for requests to a repository.
const REPOSITORY_TIMEOUT: Duration = Duration::from_secs(60);

/// The chart repositories of one plan. The index of each repository is fetched once.
pub struct ChartRepositoryCache {
    indexes: BTreeMap<String, ChartIndex>,
    reach: ChartRepositoryClients,
    known: Arc<oci::RegistrySessionCache>,
    /// The logins of the user who runs the command, for registries without a login in the helmfile.
    logins: Option<fn() -> anyhow::Result<RegistryKeyring>>,
    /// Whether buckets are read anonymously instead of with the credentials of the environment.
    is_anonymous: bool,
    /// The store of files that were fetched without credentials.
    downloads: Option<Arc<dyn DownloadCache>>,
}

/// The connection to the chart repository or the registry of a chart.
pub(super) enum HelmfileChartRemote {
    Index(Box<ChartRepository>),
    Registry(Box<RemoteOciRepository>, Arc<oci::RegistrySessionCache>),
}

impl ChartRepositoryCache {
    /// An empty cache. Requests use the clients of `reach`, and the tokens and digests of registries in `known`. `logins`
    /// reads the registry logins of the user who runs the command.
    pub fn new(
        reach: ChartRepositoryClients,
        known: Arc<oci::RegistrySessionCache>,
        logins: Option<fn() -> anyhow::Result<RegistryKeyring>>,
    ) -> Self {
        let downloads = None;
        Self { indexes: BTreeMap::new(), reach, known, logins, is_anonymous: false, downloads }
    }

    /// Stores files that were fetched without credentials in `downloads`, and reuses such a file if the repository still has
    /// the same.
    #[must_use]
    pub fn with_downloads(self, downloads: Arc<dyn DownloadCache>) -> Self {
        Self { downloads: Some(downloads), ..self }
    }

    /// Reads buckets anonymously. The author of a helmfile must not use the credentials of this process.
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

    /// Like [`ChartRepositoryCache::archive`], for a repository whose access is not configured in the helmfile.
    ///
    /// # Errors
    /// As [`ChartRepositoryCache::archive`].
    pub(super) async fn archive_at(
        &mut self,
        place: &HelmfileChartRemote,
        chart: &ChartVersionRequest,
    ) -> anyhow::Result<Vec<u8>> {
        let downloads = self.downloads_of(chart);
        let repository = match place {
            HelmfileChartRemote::Index(repository) => repository,
            HelmfileChartRemote::Registry(remote, known) => {
                let version = oci::chart::choose(remote, known, &chart.range).await?;
                let is_anonymous = remote.auth == RegistryAuth::Anonymous;
                if let Some(downloads) = downloads.filter(|_| is_anonymous) {
                    let downloads = downloads.as_ref();
                    let archive =
                        download_cache::registry_archive(remote, known, &version, downloads);
                    return Ok(archive.await?);
                }
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
        Ok(match downloads {
            Some(downloads) => {
                download_cache::archive(repository, chosen, downloads.as_ref()).await?
            }
            None => repository.chart(url, chosen.digest).await?,
        })
    }

    /// The store for downloads of a chart. `None` if its requests may have credentials.
    fn downloads_of(&self, chart: &ChartVersionRequest) -> Option<Arc<dyn DownloadCache>> {
        let may_have_login = chart.login.is_some() || self.logins.is_some();
        // User and password of an address are credentials, and a query may be one.
        let is_public = !may_have_login && !chart.url.contains(['@', '?']);
        self.downloads.clone().filter(|_| is_public)
    }

    async fn index(
        &mut self,
        repository: &ChartRepository,
        chart: &ChartVersionRequest,
    ) -> anyhow::Result<&ChartIndex> {
        if let Some(downloads) = self.downloads_of(chart)
            && !self.indexes.contains_key(&chart.url)
        {
            let text = download_cache::index_text(repository, downloads.as_ref()).await?;
            self.indexes.insert(chart.url.clone(), ChartIndex::parse(&text)?);
        }
        if !self.indexes.contains_key(&chart.url) {
            let ChartIndexFetchResult::Index { file, .. } = repository.index(None).await? else {
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
                identity: BucketCredentialSource::Anonymous,
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use parking_lot::Mutex;
    use sha2::{Digest as _, Sha256};
    use sources::charts::{CachedDownload, DownloadCacheKey};

    use super::*;

    #[derive(Default)]
    struct MemoryDownloads(Mutex<BTreeMap<String, CachedDownload>>);

    impl DownloadCache for MemoryDownloads {
        fn download(&self, key: &DownloadCacheKey) -> Option<CachedDownload> {
            self.0.lock().get(key.text()).cloned()
        }

        fn keep(&self, key: &DownloadCacheKey, download: &CachedDownload) {
            self.0.lock().insert(key.text().to_owned(), download.clone());
        }
    }

    /// A repository with the chart `web`, whose archive is `archive`, and the requests that it got.
    fn server(version: &'static str, has_digest: bool) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.extend(byte);
                }
                let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let is_known = request.contains("if-none-match: \"1\"");
                let digest = match has_digest {
                    true => format!(", digest: {}", hex::encode(Sha256::digest("archive"))),
                    false => String::new(),
                };
                let body = match path.as_str() {
                    "/index.yaml" => format!(
                        "apiVersion: v1\nentries: {{web: [{{name: web, version: {version}, urls: [web.tgz]{digest}}}]}}\n"
                    ),
                    _ => "archive".to_owned(),
                };
                let answer = match is_known {
                    true => "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned(),
                    false => format!(
                        "HTTP/1.1 200 OK\r\nconnection: close\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    ),
                };
                seen.lock().push(format!("{path} {}", if is_known { 304 } else { 200 }));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (url, requests)
    }

    async fn fetched(url: &str, downloads: &Arc<MemoryDownloads>) -> Vec<u8> {
        let repositories =
            ChartRepositoryCache::new(ChartRepositoryClients::default(), Arc::default(), None);
        let mut repositories = repositories.with_downloads(downloads.clone());
        repositories.archive(&ChartVersionRequest::anonymous(url, "web", "1.x")).await.unwrap()
    }

    #[tokio::test]
    async fn an_archive_with_a_digest_is_fetched_once_and_the_index_is_asked_for_each_time() {
        let (url, requests) = server("1.0.0", true);
        let downloads = Arc::new(MemoryDownloads::default());
        for _ in 0..2 {
            assert_eq!(fetched(&url, &downloads).await, b"archive");
        }
        assert_eq!(*requests.lock(), ["/index.yaml 200", "/web.tgz 200", "/index.yaml 304"]);
        // What is kept and has another digest is not used.
        for download in downloads.0.lock().values_mut().filter(|it| it.bytes == b"archive") {
            download.bytes = b"another".to_vec();
        }
        assert_eq!(fetched(&url, &downloads).await, b"archive");
        assert_eq!(requests.lock().last().map(String::as_str), Some("/web.tgz 200"));
    }

    #[tokio::test]
    async fn without_a_digest_the_server_says_whether_an_archive_is_still_the_same() {
        let (url, requests) = server("1.0.0", false);
        let downloads = Arc::new(MemoryDownloads::default());
        for _ in 0..2 {
            assert_eq!(fetched(&url, &downloads).await, b"archive");
        }
        let asked = ["/index.yaml 200", "/web.tgz 200", "/index.yaml 304", "/web.tgz 304"];
        assert_eq!(*requests.lock(), asked);
    }

    #[tokio::test]
    async fn what_one_repository_sent_is_not_used_for_another_and_not_with_credentials() {
        let (url, _) = server("1.0.0", true);
        let (other, requests) = server("1.0.0", true);
        let downloads = Arc::new(MemoryDownloads::default());
        fetched(&url, &downloads).await;
        let kept = downloads.0.lock().len();
        fetched(&other, &downloads).await;
        assert_eq!(requests.lock().len(), 2);
        assert_eq!(downloads.0.lock().len(), 2 * kept);
        let with_login = other.replace("http://", "http://user:hunter2@");
        fetched(&with_login, &downloads).await;
        assert_eq!(downloads.0.lock().len(), 2 * kept);
    }
}
