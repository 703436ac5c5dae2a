//! Connections to fake API servers for the tests of this crate (crate `fake-api-server`).

use axum::body::Body;
use fake_api_server::{FakeApiServer, RecordedRequest, RecordedWrites};
use serde_json::Value;

use crate::ClusterConnection;
use crate::client::{ClusterAccessOptions, connect};
use crate::leadership::Leadership;
use crate::metrics::MetricsRegistry;

async fn connected(server: &FakeApiServer) -> ClusterConnection {
    let kubeconfig = server.kubeconfig();
    let access =
        ClusterAccessOptions { kubeconfig: Some(&kubeconfig), ..ClusterAccessOptions::default() };
    connect(access, "test", &Leadership::unlimited(), &MetricsRegistry::new()).await.unwrap()
}

/// A cluster whose API server answers each request with the status and body that `answer` returns.
pub(crate) async fn answering(
    answer: impl Fn(RecordedRequest) -> (u16, Body) + Clone + Send + Sync + 'static,
) -> ClusterConnection {
    connected(&fake_api_server::answering(answer).await).await
}

/// A cluster with these objects. It serves their kinds in addition to those that every cluster has.
pub(crate) async fn with_objects(objects: Vec<Value>) -> (ClusterConnection, RecordedWrites) {
    let (server, writes) = fake_api_server::with_objects(objects).await;
    (connected(&server).await, writes)
}
