//! The bytes that stores hold in memory. They are asked when metrics are scraped, so a store counts here only if it knows its
//! size without a search.

use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreMetricLabels {
    store: &'static str,
}

/// A store that knows its size.
struct MeasuredStore {
    name: &'static str,
    size: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// The gauges of all measured stores.
pub(super) struct StoreSizes {
    bytes: Family<StoreMetricLabels, Gauge<i64, AtomicI64>>,
    stores: Mutex<Vec<MeasuredStore>>,
}

impl StoreSizes {
    /// Adds the gauges to the registry.
    pub(super) fn added(registry: &mut Registry) -> Self {
        let help = "Bytes that a store holds in memory, as it counts them";
        let bytes = super::added(registry, "windlass_store_bytes", help);
        Self { bytes, stores: Mutex::default() }
    }

    /// Adds a store.
    pub(super) fn add(&self, name: &'static str, size: Box<dyn Fn() -> u64 + Send + Sync>) {
        self.stores.lock().push(MeasuredStore { name, size });
    }

    /// Asks all stores for their sizes.
    pub(super) fn measure(&self) {
        for store in &*self.stores.lock() {
            let labels = StoreMetricLabels { store: store.name };
            let bytes = i64::try_from((store.size)()).unwrap_or(i64::MAX);
            self.bytes.get_or_create(&labels).set(bytes);
        }
    }
}
