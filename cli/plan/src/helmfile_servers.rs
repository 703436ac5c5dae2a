//! The servers that a helmfile names, as far as a plan asks them: addresses always, and charts only of releases that change.
//!
//! Elsewhere: charts (`chart_fetch.rs`), addresses (`remote_servers.rs`), which releases change (`helmfile_rendering.rs`).

use std::sync::Arc;

use helmfile::{ChartFetchError, ChartVersionRequest};
use helmfile_controller::helmfile::remote_fetch::HelmfileServerAccess;
use sources::go_getter::GetterRequest;
use sources::remote_bases::without_credentials;
use tree::MemoryTree;

use super::chart_fetch::ChartFetcher;
use super::remote_servers::RemoteServers;

/// Sends the requests of one plan of a helmfile.
pub(crate) struct HelmfileServers {
    charts: Arc<ChartFetcher>,
    remote: Arc<RemoteServers>,
    /// Why charts were not fetched before that are wanted now.
    wanted: Vec<String>,
}

impl HelmfileServers {
    /// Fetches no chart: each is named by what identifies it.
    pub(crate) fn without_charts(charts: &Arc<ChartFetcher>, remote: &Arc<RemoteServers>) -> Self {
        Self { charts: charts.clone(), remote: remote.clone(), wanted: Vec::new() }
    }

    /// Fetches the charts whose names these refusals have, and no others.
    #[must_use]
    pub(crate) fn with_charts(self, refusals: Vec<String>) -> Self {
        Self { wanted: refusals, ..self }
    }
}

/// What identifies a chart, without fetching it.
fn chart_text(chart: &ChartVersionRequest) -> String {
    let ChartVersionRequest { name, range, url, .. } = chart;
    format!("`{name} {range} of {}`", without_credentials(url))
}

impl HelmfileServerAccess for HelmfileServers {
    fn chart(&mut self, chart: &ChartVersionRequest) -> Result<Vec<u8>, ChartFetchError> {
        let text = chart_text(chart);
        // A refusal fails the releases of the chart alone.
        if !self.wanted.iter().any(|why| why.contains(&text)) {
            return Err(ChartFetchError::Refused(format!("{text} was not fetched")));
        }
        let ChartVersionRequest { name, range, url, .. } = chart;
        let archive = self.charts.archive(url, name, range).map_err(ChartFetchError::Refused)?;
        Ok(archive.to_vec())
    }

    fn address(&mut self, request: &GetterRequest) -> Result<MemoryTree, String> {
        self.remote.address(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_fetched_only_if_its_release_changes() {
        let charts = Arc::new(ChartFetcher::new(Vec::new(), None));
        let remote = Arc::new(RemoteServers::new(Vec::new()).unwrap());
        let chart =
            ChartVersionRequest::anonymous("https://u:hunter2@charts.example.com", "web", "1.x");
        let mut servers = HelmfileServers::without_charts(&charts, &remote);
        let refusal = servers.chart(&chart).unwrap_err().to_string();
        assert_eq!(refusal, "`web 1.x of https://***@charts.example.com` was not fetched");
        let mut servers = servers.with_charts(vec![format!("cannot fetch the chart: {refusal}")]);
        let error = servers.chart(&chart).unwrap_err().to_string();
        assert!(error.contains("--allow-hosts=charts.example.com"), "{error}");
        let other = ChartVersionRequest::anonymous("https://charts.example.com", "db", "1.x");
        let other = servers.chart(&other).unwrap_err().to_string();
        assert!(!other.contains("--allow-hosts"), "{other}");
    }
}
