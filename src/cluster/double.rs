//! An API server on loopback for tests, which answers what a closure says.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use serde_json::Value;

use super::Cluster;
use super::client::{Access, connect};
use super::leadership::Leadership;
use crate::metrics::Metrics;

/// What was asked: `METHOD path?query`, and the body; null if there is none.
pub(crate) type Asked = (String, Value);

/// A cluster whose API server answers requests, one after the other, with a status and a body.
pub(crate) async fn answering(
    answer: impl Fn(Asked) -> (u16, Body) + Clone + Send + Sync + 'static,
) -> Cluster {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let handler = move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, body) = answer((format!("{} {}", parts.method, parts.uri), body));
            Response::builder().status(code).body(body).unwrap()
        }
    };
    let router = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let access = Access { kubeconfig: Some(&path), ..Access::default() };
    connect(access, "test", &Leadership::unlimited(), &Metrics::new()).await.unwrap()
}
