//! How many requests to each API server may be in flight. The limits are read when metrics are scraped, and those of clusters
//! that are no longer in use end.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::request_limit::RequestLimitReader;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterMetricLabels {
    cluster: String,
}

/// A cluster whose limit is shown.
struct MeasuredCluster {
    name: String,
    limit: RequestLimitReader,
}

/// The gauges of all clusters.
pub(super) struct RequestLimits {
    gauges: Family<ClusterMetricLabels, Gauge<i64, AtomicI64>>,
    clusters: Mutex<Vec<MeasuredCluster>>,
}

impl RequestLimits {
    /// Adds the gauges to the registry.
    pub(super) fn added(registry: &mut Registry) -> Self {
        let help = "How many requests to an API server may be in flight, by cluster";
        let gauges = super::added(registry, "windlass_api_request_limit", help);
        Self { gauges, clusters: Mutex::default() }
    }

    /// Adds a cluster, and drops those that are no longer in use.
    pub(super) fn add(&self, name: String, limit: RequestLimitReader) {
        let mut clusters = self.clusters.lock();
        clusters.retain(|cluster| cluster.limit.limit().is_some());
        clusters.push(MeasuredCluster { name, limit });
    }

    /// Reads all limits. If several connections have the same name, the lowest limit is shown.
    pub(super) fn measure(&self) {
        let mut lowest = BTreeMap::<String, usize>::new();
        self.clusters.lock().retain(|cluster| {
            let Some(limit) = cluster.limit.limit() else { return false };
            let shown = lowest.entry(cluster.name.clone()).or_insert(limit);
            *shown = limit.min(*shown);
            true
        });
        self.gauges.clear();
        for (cluster, limit) in lowest {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            self.gauges.get_or_create(&ClusterMetricLabels { cluster }).set(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use crate::fake_cluster::answering;
    use crate::metrics::MetricsRegistry;

    #[tokio::test]
    async fn each_cluster_has_its_limit_and_of_two_with_one_name_the_lower_one_is_shown() {
        let metrics = MetricsRegistry::new();
        let home = answering(|_| (200, Body::from("{}"))).await;
        let busy = answering(|_| (429, Body::from("{}"))).await;
        metrics.measure_request_limit("", &home);
        metrics.measure_request_limit("shop/edge", &busy);
        metrics.measure_request_limit("shop/edge", &home);
        assert!(busy.secret("shop", "a").await.is_err());
        let text = metrics.text();
        for line in [
            "windlass_api_request_limit{cluster=\"\"} 32",
            "windlass_api_request_limit{cluster=\"shop/edge\"} 16",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
