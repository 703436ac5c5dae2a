//! Answers the requests of a helmfile for data on other servers. Addresses are always fetched, but charts are fetched only for
//! releases that differ.
//!
//! Elsewhere: charts (`chart_fetch.rs`), addresses (`remote_file_fetcher.rs`), the releases that differ (`helmfile_rendering.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use helmfile::{ChartFetchError, ChartVersionRequest};
use helmfile_controller::helmfile::remote_fetch::HelmfileServerAccess;
use parking_lot::Mutex;
use sources::go_getter::GoGetterRequest;
use sources::remote_bases::without_credentials;
use tree::MemoryTree;

use super::chart_fetch::ChartFetcher;
use super::remote_file_fetcher::RemoteFileFetcher;
use super::render_failure::RenderFailure;

/// Sends the requests of one plan of a helmfile.
pub(crate) struct HelmfileRequestSender {
    charts: Arc<ChartFetcher>,
    remote: Arc<RemoteFileFetcher>,
    /// The earlier refusals of charts that should be fetched now.
    wanted: Vec<String>,
    /// The data that was requested but not fetched.
    unfetched: Arc<HelmfileFetchRefusals>,
}

/// The data that one plan of a helmfile requested but did not get.
#[derive(Default)]
pub(crate) struct HelmfileFetchRefusals {
    /// Why charts were not fetched, by the text that identifies the chart in refusals.
    charts: Mutex<BTreeMap<String, RenderFailure>>,
    /// Why an address was not fetched.
    address: Mutex<Option<RenderFailure>>,
}

impl HelmfileFetchRefusals {
    /// Makes the failure of a plan with this error text. An address that is not fetched ends the plan.
    pub(crate) fn failure(&self, text: String) -> RenderFailure {
        like(self.address.lock().clone(), text)
    }

    /// Makes the failure of a release with this error text. `refusal` is the text about its chart that was not fetched.
    pub(crate) fn failure_of_release(&self, refusal: Option<&str>, text: String) -> RenderFailure {
        let charts = self.charts.lock();
        let is_named = |chart: &str| refusal.is_some_and(|refusal| refusal.contains(chart));
        let chart = charts.iter().find(|(chart, _)| is_named(chart.as_str()));
        like(chart.map(|(_, failure)| failure.clone()), text)
    }
}

/// Makes a failure of the same kind as its cause, with another text. Without a cause, the failure is an ordinary error.
fn like(cause: Option<RenderFailure>, text: String) -> RenderFailure {
    match cause {
        Some(cause) => cause.with_text(|_| text),
        None => RenderFailure::Failed(text),
    }
}

impl HelmfileRequestSender {
    /// Fetches no charts. Each refusal contains a string that identifies the chart.
    pub(crate) fn without_charts(
        charts: &Arc<ChartFetcher>,
        remote: &Arc<RemoteFileFetcher>,
    ) -> Self {
        Self {
            charts: charts.clone(),
            remote: remote.clone(),
            wanted: Vec::new(),
            unfetched: Arc::default(),
        }
    }

    /// The data that was not fetched so far.
    pub(crate) fn unfetched(&self) -> Arc<HelmfileFetchRefusals> {
        self.unfetched.clone()
    }

    /// Fetches only the charts in these refusals.
    #[must_use]
    pub(crate) fn with_charts(self, refusals: Vec<String>) -> Self {
        Self { wanted: refusals, ..self }
    }
}

/// A text that identifies a chart without fetching it.
fn chart_text(chart: &ChartVersionRequest) -> String {
    let ChartVersionRequest { name, range, url, .. } = chart;
    format!("`{name} {range} of {}`", without_credentials(url))
}

impl HelmfileServerAccess for HelmfileRequestSender {
    fn chart(&mut self, chart: &ChartVersionRequest) -> Result<Vec<u8>, ChartFetchError> {
        let text = chart_text(chart);
        // A refused chart fails only the releases that use it.
        if !self.wanted.iter().any(|why| why.contains(&text)) {
            return Err(ChartFetchError::Refused(format!("{text} was not fetched")));
        }
        let ChartVersionRequest { name, range, url, .. } = chart;
        let archive = self.charts.archive(url, name, range).map_err(|failure| {
            self.unfetched.charts.lock().insert(text, failure.clone());
            ChartFetchError::Refused(failure.into_text())
        })?;
        Ok(archive.to_vec())
    }

    fn address(&mut self, request: &GoGetterRequest) -> Result<MemoryTree, String> {
        self.remote.address(request).map_err(|failure| {
            self.unfetched.address.lock().get_or_insert_with(|| failure.clone());
            failure.into_text()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_fetched_only_if_its_release_changes() {
        let charts = Arc::new(ChartFetcher::new(Vec::new(), None));
        let remote = Arc::new(RemoteFileFetcher::new(Vec::new()).unwrap());
        let chart =
            ChartVersionRequest::anonymous("https://u:hunter2@charts.example.com", "web", "1.x");
        let mut servers = HelmfileRequestSender::without_charts(&charts, &remote);
        let refusal = servers.chart(&chart).unwrap_err().to_string();
        assert_eq!(refusal, "`web 1.x of https://***@charts.example.com` was not fetched");
        let mut servers = servers.with_charts(vec![format!("cannot fetch the chart: {refusal}")]);
        let error = servers.chart(&chart).unwrap_err().to_string();
        assert!(error.contains("--allow-hosts=charts.example.com"), "{error}");
        let unfetched = servers.unfetched();
        let failure =
            |refusal: Option<&str>| unfetched.failure_of_release(refusal, "it fails".into());
        let not_fetched = RenderFailure::NotFetched("it fails".to_owned());
        assert_eq!(failure(Some(&format!("cannot fetch the chart: {refusal}"))), not_fetched);
        let failed = RenderFailure::Failed("it fails".to_owned());
        assert_eq!(failure(Some("`db 1.x of https://charts.example.com`")), failed);
        assert_eq!(failure(None), failed);
        let other = ChartVersionRequest::anonymous("https://charts.example.com", "db", "1.x");
        let other = servers.chart(&other).unwrap_err().to_string();
        assert!(!other.contains("--allow-hosts"), "{other}");
    }
}
