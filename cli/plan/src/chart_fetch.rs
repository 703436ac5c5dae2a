//! Fetches charts from chart repositories and registries, each chart once, and only from hosts that the user allows.
//!
//! Elsewhere: the protocols of repositories (`helmfile_controller::helmfile::chart_fetch`), results of earlier runs
//! (`chart_download_folder.rs`), the hosts that requests may reach (`http_client::EgressRules`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use helmfile::ChartVersionRequest;
use helmfile_controller::helmfile::chart_fetch::ChartRepositoryCache;
use http_client::{EgressHostList, EgressRules, HostBudgets, HttpClientCache};
use parking_lot::Mutex;
use sources::bucket::BucketClientCache;
use sources::charts::repository::ChartRepositoryClients;
use sources::oci::RegistrySessionCache;
use url::Url;

use super::chart_download_folder::ChartDownloadFolder;
use super::render_failure::RenderFailure;
use windlass_cli_runtime::connection::{ProgressGlyph, block_on, say};

/// How long fetching one chart may take, including the index of its repository.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);

/// The archive of a chart, or the reason why it was not fetched.
type ChartArchiveFetchResult = Result<Arc<[u8]>, RenderFailure>;

/// Fetches charts without credentials.
pub(crate) struct ChartFetcher {
    hosts: Arc<EgressHostList>,
    repositories: Mutex<ChartRepositoryCache>,
    archives: Mutex<BTreeMap<String, ChartArchiveFetchResult>>,
}

impl ChartFetcher {
    /// Makes a fetcher that reaches only these hosts, even if an index or a redirect names others. Fetched files are kept in
    /// `downloads` and reused.
    pub(crate) fn new(hosts: Vec<String>, downloads: Option<ChartDownloadFolder>) -> Self {
        let hosts = Arc::new(EgressHostList::new(hosts));
        let egress = EgressRules::Listed(hosts.clone());
        let budgets = Arc::new(HostBudgets::within(egress.clone()));
        let access = ChartRepositoryClients {
            budgets: budgets.clone(),
            clients: Arc::new(HttpClientCache::within(egress)),
            buckets: Arc::new(BucketClientCache::default().sharing(budgets.clone())),
        };
        let registries = Arc::new(RegistrySessionCache::default().sharing(budgets));
        let mut repositories = ChartRepositoryCache::new(access, registries, None);
        if let Some(downloads) = downloads {
            repositories = repositories.with_downloads(Arc::new(downloads));
        }
        Self { hosts, repositories: Mutex::new(repositories), archives: Mutex::default() }
    }

    /// Whether the host of an address is allowed.
    pub(crate) fn may_fetch(&self, url: &str) -> bool {
        let host = |url: Url| url.host_str().is_some_and(|host| self.hosts.has(host));
        Url::parse(url).is_ok_and(host)
    }

    /// Returns the archive of a chart's highest version in a version range.
    ///
    /// # Errors
    /// The host is not allowed, or the chart cannot be fetched.
    pub(crate) fn archive(&self, url: &str, name: &str, range: &str) -> ChartArchiveFetchResult {
        let key = [url, name, range].join("\n");
        // The lock is held during the fetch, so each chart is fetched once.
        let mut archives = self.archives.lock();
        if let Some(known) = archives.get(&key) {
            return known.clone();
        }
        let fetched = self.fetch(url, name, range);
        archives.insert(key, fetched.clone());
        fetched
    }

    fn fetch(&self, url: &str, name: &str, range: &str) -> ChartArchiveFetchResult {
        let shown = without_userinfo(url);
        let parsed = Url::parse(url).map_err(|error| format!("invalid URL `{shown}`: {error}"))?;
        if !matches!(parsed.scheme(), "https" | "http" | "oci") {
            let why = format!("chart {name} of {shown} was not fetched: buckets are not read");
            return Err(RenderFailure::NotFetched(why));
        }
        let host = parsed.host_str().unwrap_or_default();
        if !self.hosts.has(host) {
            return Err(RenderFailure::NotFetched(format!(
                "chart {name} of {shown} was not fetched: allow its host with --allow-hosts={host}"
            )));
        }
        let progress = format!("fetching chart {name} {range} of {shown}");
        say(ProgressGlyph::Action, &plan::clean_line(&progress));
        let request = ChartVersionRequest::anonymous(url, name, range);
        let mut repositories = self.repositories.lock();
        let fetched = block_on(async {
            let fetching = repositories.archive(&request);
            let within = tokio::time::timeout(FETCH_TIMEOUT, fetching).await;
            within.unwrap_or_else(|_elapsed| Err(anyhow!("timed out after {FETCH_TIMEOUT:?}")))
        });
        let failed = |error: anyhow::Error| {
            let why = format!("chart {name} of {shown} was not fetched: {error:#}");
            RenderFailure::Interruption(why)
        };
        Ok(fetched.map_err(failed)?.into())
    }
}

/// An address without its user and password.
fn without_userinfo(url: &str) -> String {
    sources::remote_bases::without_credentials(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_is_reached_that_is_not_allowed() {
        let fetcher = ChartFetcher::new(vec!["charts.example.com".to_owned()], None);
        let failure = |url: &str| fetcher.archive(url, "web", "1.x").unwrap_err();
        assert!(failure("https://evil.example.com/charts").is_not_fetched());
        assert!(failure("s3://bucket/charts").is_not_fetched());
        assert!(!failure("charts").is_not_fetched());
        let error = |url: &str| failure(url).into_text();
        assert_eq!(
            error("https://evil.example.com/charts"),
            "chart web of https://evil.example.com/charts was not fetched: allow its host with \
             --allow-hosts=evil.example.com"
        );
        assert!(error("oci://evil.example.com/charts").contains("--allow-hosts=evil.example.com"));
        assert!(error("s3://bucket/charts").contains("buckets are not read"));
        assert!(error("charts").contains("invalid URL"));
        let error = error("https://user:hunter2@evil.example.com/charts");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
