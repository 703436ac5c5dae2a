//! Serves artifacts over HTTP, at the paths in the statuses of sources.
//!
//! Differs(flux): folders are not listed, and nothing but stored artifacts is served.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio_util::io::ReaderStream;

use windlass_cluster::leadership::Leadership;

/// A router that serves the artifacts in the store.
pub fn artifacts(store: Arc<artifacts::store::ArtifactStore>, leadership: Leadership) -> Router {
    // Parity(flux): a readiness probe of this path sends those who want artifacts to the leader, which has them.
    let root = move || {
        let leads = leadership.may_act();
        async move {
            if leads {
                (StatusCode::OK, "artifacts\n")
            } else {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "another process is the leader and serves the artifacts\n",
                )
            }
        }
    };
    Router::new().route("/", get(root)).route("/{*path}", get(one)).with_state(store)
}

async fn one(
    State(store): State<Arc<artifacts::store::ArtifactStore>>,
    Path(path): Path<String>,
) -> Response {
    let opened = tokio::task::spawn_blocking(move || {
        let file = store.open_file(&path)?;
        let len = file.metadata().map(|m| m.len()).ok();
        Ok::<_, artifacts::store::Error>((file, len))
    });
    let (file, len) = match opened.await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => {
            return (StatusCode::NOT_FOUND, "artifact not found\n").into_response();
        }
    };
    let body =
        Body::from_stream(ReaderStream::with_capacity(tokio::fs::File::from_std(file), 64 * 1024));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/gzip"));
    if let Some(len) = len {
        headers.insert(header::CONTENT_LENGTH, len.into());
    }
    response
}
