//! Reads a metrics page of windlass by name and label.
//!
//! `docs/running.md` lists the metrics.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::Client;

/// How long a page may take. A page about two thousand objects has megabytes.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The HTTP endpoint with windlass's metrics.
pub(crate) struct MetricsEndpoint {
    client: Client,
    url: String,
}

/// The text of a metrics page.
#[derive(Debug, Clone)]
pub(crate) struct MetricsPage(String);

impl MetricsEndpoint {
    /// The endpoint at an address, `127.0.0.1:8080`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(crate) fn at(address: &str) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().timeout(PAGE_TIMEOUT).build()?;
        Ok(Self { client, url: format!("http://{address}/metrics") })
    }

    /// Reads the present page.
    ///
    /// # Errors
    /// When windlass does not respond.
    pub(crate) async fn page(&self) -> anyhow::Result<MetricsPage> {
        let answer = self.client.get(&self.url).send().await.context("no metrics")?;
        let text = answer.error_for_status().context("no metrics")?.text().await;
        Ok(MetricsPage(text.with_context(|| self.url.clone())?))
    }
}

impl MetricsPage {
    /// The sum of a metric over all its labels. It is zero if the page does not have the metric.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.samples(name).map(|(_, value)| value).sum()
    }

    /// The sum of a metric over the series of one kind.
    pub(crate) fn of_kind(&self, name: &str, kind: &str) -> f64 {
        let label = format!("kind=\"{kind}\"");
        self.samples(name)
            .filter(|(labels, _)| labels.split(',').any(|it| it == label))
            .map(|(_, value)| value)
            .sum()
    }

    /// The samples of a metric: the labels as text, and the value.
    fn samples(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            Some((labels, value.parse().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP windlass_running Reconciliations in progress.\n\
        # TYPE windlass_running gauge\n\
        windlass_running 7\n\
        windlass_running_since 9\n\
        windlass_wakes_total{kind=\"Kustomization\",reason=\"Source\"} 3\n\
        windlass_wakes_total{kind=\"HelmRelease\",reason=\"Source\"} 4\n\
        # EOF\n";

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_with_another_of_a_longer_name() {
        let page = MetricsPage(PAGE.to_owned());
        assert_eq!(page.sum("windlass_running"), 7.0);
        assert_eq!(page.sum("windlass_wakes_total"), 7.0);
        assert_eq!(page.of_kind("windlass_wakes_total", "HelmRelease"), 4.0);
        assert_eq!(page.of_kind("windlass_wakes_total", "Source"), 0.0);
        assert_eq!(page.sum("windlass_leader"), 0.0);
    }
}
