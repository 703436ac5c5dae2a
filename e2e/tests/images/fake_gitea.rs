//! A fake Gitea with the pull requests of one repository, for automations.
//!
//! Elsewhere: the requests to forges (`engines/notify`), a real Gitea (`notification_services/gitea.rs`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// The token that the server accepts.
pub(super) const TOKEN: &str = "f0rge-t0ken";

const PULLS: &str = "/api/v1/repos/team/app/pulls";

#[derive(Default)]
struct FakeGiteaState {
    pulls: Vec<Value>,
    /// How many requests changed something.
    writes: usize,
    is_failing: bool,
}

type SharedFakeGiteaState = Arc<Mutex<FakeGiteaState>>;

/// A running server. It ends when it is dropped.
pub(super) struct FakeGitea {
    address: SocketAddr,
    state: SharedFakeGiteaState,
    stop: AbortHandle,
}

impl Drop for FakeGitea {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl FakeGitea {
    /// Starts a server without pull requests on the current runtime.
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a forge")?;
        let address = listener.local_addr()?;
        let state = SharedFakeGiteaState::default();
        let router = Router::new()
            .route(PULLS, get(list).post(create))
            .route(&format!("{PULLS}/{{number}}"), patch(edit))
            .layer(from_fn_with_state(state.clone(), admit))
            .with_state(state.clone());
        let serving = async move { axum::serve(listener, router).await };
        let stop = tokio::spawn(serving).abort_handle();
        Ok(Self { address, state, stop })
    }

    /// The URL of the repository.
    pub(super) fn url(&self) -> String {
        format!("http://{}/team/app", self.address)
    }

    /// Sets whether requests fail from now on.
    pub(super) fn fail(&self, is_failing: bool) {
        self.state.lock().is_failing = is_failing;
    }

    /// The pull requests, the oldest first.
    pub(super) fn pulls(&self) -> Vec<Value> {
        self.state.lock().pulls.clone()
    }

    /// How many requests changed something.
    pub(super) fn writes(&self) -> usize {
        self.state.lock().writes
    }

    /// Closes all pull requests, as a user would.
    pub(super) fn close_all(&self, at: &str) {
        for pull in &mut self.state.lock().pulls {
            pull["state"] = json!("closed");
            pull["closed_at"] = json!(at);
            pull["updated_at"] = json!(at);
        }
    }
}

async fn admit(
    State(state): State<SharedFakeGiteaState>,
    request: Request,
    next: Next,
) -> Response {
    if state.lock().is_failing {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let expected = format!("token {TOKEN}");
    let is_known = request.headers().get(AUTHORIZATION).is_some_and(|given| *given == expected);
    if !is_known {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    next.run(request).await
}

async fn list(
    State(state): State<SharedFakeGiteaState>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Vec<Value>> {
    let mut pulls = state.lock().pulls.clone();
    pulls.retain(|pull| pull["state"].as_str() == query.get("state").map(String::as_str));
    pulls.reverse();
    Json(pulls)
}

async fn create(
    State(state): State<SharedFakeGiteaState>,
    Json(new): Json<Value>,
) -> impl IntoResponse {
    let mut state = state.lock();
    state.writes += 1;
    let number = state.pulls.len() + 1;
    let pull = json!({
        "number": number,
        "html_url": format!("https://git.example.com/team/app/pulls/{number}"),
        "title": new["title"], "body": new["body"], "state": "open",
        "head": {"ref": new["head"], "repo_id": 1},
        "base": {"ref": new["base"], "repo_id": 1},
        "closed_at": null, "updated_at": jiff::Timestamp::now().to_string(),
    });
    state.pulls.push(pull.clone());
    (StatusCode::CREATED, Json(pull))
}

async fn edit(
    State(state): State<SharedFakeGiteaState>,
    Path(number): Path<usize>,
    Json(change): Json<Value>,
) -> Response {
    let mut state = state.lock();
    state.writes += 1;
    let pull = number.checked_sub(1).and_then(|at| state.pulls.get_mut(at));
    let Some(pull) = pull else { return StatusCode::NOT_FOUND.into_response() };
    pull["title"] = change["title"].clone();
    pull["body"] = change["body"].clone();
    (StatusCode::CREATED, Json(pull.clone())).into_response()
}
