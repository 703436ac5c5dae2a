//! Connections to fake API servers (crate `fake-api-server`) for tests. Also the test that a kind knows every field
//! ([`spec_field_check`]), Leases and Pods of operators ([`operator_objects`]), and example objects ([`answer_examples`]).
//!
//! Elsewhere: the same for tests of the client itself, which cannot use this crate (`operator/cluster`).

#![expect(clippy::unwrap_used, reason = "only tests depend on it, and its faults are theirs")]

pub mod answer_examples;
pub mod operator_objects;
pub mod spec_field_check;

use axum::body::Body;
use fake_api_server::FakeApiServer;
pub use fake_api_server::{RecordedRequest, RecordedWrites};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use windlass_cluster::ClusterConnection;
use windlass_cluster::client::{ClusterAccessOptions, connect};
use windlass_cluster::leadership::Leadership;
use windlass_cluster::metrics::MetricsRegistry;

async fn connected(server: &FakeApiServer) -> ClusterConnection {
    let kubeconfig = server.kubeconfig();
    let access =
        ClusterAccessOptions { kubeconfig: Some(&kubeconfig), ..ClusterAccessOptions::default() };
    connect(access, "test", &Leadership::unlimited(), &MetricsRegistry::new()).await.unwrap()
}

/// A cluster whose API server answers each request with the status and body that `answer` returns.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn answering(
    answer: impl Fn(RecordedRequest) -> (u16, Body) + Clone + Send + Sync + 'static,
) -> ClusterConnection {
    connected(&fake_api_server::answering(answer).await).await
}

/// A cluster with these objects. It serves their kinds in addition to those that every cluster has.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn with_objects(objects: Vec<Value>) -> (ClusterConnection, RecordedWrites) {
    with_shared_objects(Arc::new(Mutex::new(objects))).await
}

/// As [`with_objects`], with objects that the test may change later.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn with_shared_objects(
    objects: Arc<Mutex<Vec<Value>>>,
) -> (ClusterConnection, RecordedWrites) {
    let (server, writes) = fake_api_server::with_shared_objects(objects).await;
    (connected(&server).await, writes)
}

/// A cluster whose objects and statuses merge patches change. Objects can also be applied and deleted.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn with_patched_objects(objects: Arc<Mutex<Vec<Value>>>) -> ClusterConnection {
    connected(&fake_api_server::with_patched_objects(objects).await).await
}
