//! Tests of pull requests with a fake server that behaves like the API of Gitea.

use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, LINK};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Json, Router};
use http_client::{EgressDenyList, EgressRules};
use notify::PullRequestOutcome;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// The time of the first commit on the branch.
const COMMITTED: i64 = 1_800_000_000;

/// The page size of the fake server, whatever a request asks for.
const MAX_RESPONSE_ITEMS: usize = 2;

const PULLS: &str = "/git/api/v1/repos/acme/fleet/pulls";

/// The pull requests of a fake repository.
#[derive(Default)]
struct GiteaRepository {
    pulls: Vec<Value>,
    /// How many requests wrote something.
    writes: usize,
}

type SharedRepository = Arc<Mutex<GiteaRepository>>;

fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

impl GiteaRepository {
    fn add(&mut self, new: &Value) -> Value {
        let number = self.pulls.len() + 1;
        let pull = json!({
            "number": number,
            "html_url": format!("https://git.example.com/acme/fleet/pulls/{number}"),
            "title": new["title"], "body": new["body"], "state": "open",
            "head": {"ref": new["head"], "repo_id": 1},
            "base": {"ref": new["base"], "repo_id": 1},
            "closed_at": null, "updated_at": rfc3339(COMMITTED),
        });
        self.pulls.push(pull.clone());
        pull
    }

    /// Closes a pull request as a user would.
    fn close(&mut self, number: usize, seconds: i64) {
        let pull = &mut self.pulls[number - 1];
        pull["state"] = json!("closed");
        pull["closed_at"] = json!(rfc3339(seconds));
        pull["updated_at"] = json!(rfc3339(seconds));
    }
}

fn refused(headers: &HeaderMap) -> Option<Response> {
    let is_known = headers.get(AUTHORIZATION).is_some_and(|value| value == "token t0ken");
    let message = json!({"message": "invalid username, password or token"});
    (!is_known).then(|| (StatusCode::UNAUTHORIZED, Json(message)).into_response())
}

async fn list(
    State(repository): State<SharedRepository>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refused(&headers) {
        return refusal;
    }
    let mut pulls = repository.lock().pulls.clone();
    pulls.retain(|pull| pull["state"].as_str() == query.get("state").map(String::as_str));
    pulls.sort_by_key(|pull| std::cmp::Reverse(pull["updated_at"].to_string()));
    let page: usize = query["page"].parse().unwrap();
    let has_more = pulls.len() > page * MAX_RESPONSE_ITEMS;
    let items = pulls.into_iter().skip((page - 1) * MAX_RESPONSE_ITEMS).take(MAX_RESPONSE_ITEMS);
    let items = Json(items.collect::<Vec<_>>());
    // The server's own address for itself may not be reachable by clients.
    let link = format!("<http://gitea.internal{PULLS}?page={}>; rel=\"next\"", page + 1);
    if has_more { ([(LINK, link)], items).into_response() } else { items.into_response() }
}

async fn create(
    State(repository): State<SharedRepository>,
    headers: HeaderMap,
    Json(new): Json<Value>,
) -> Response {
    if let Some(refusal) = refused(&headers) {
        return refusal;
    }
    let mut repository = repository.lock();
    repository.writes += 1;
    let is_same = |pull: &Value| {
        pull["state"] == "open"
            && pull["head"]["ref"] == new["head"]
            && pull["base"]["ref"] == new["base"]
    };
    if repository.pulls.iter().any(is_same) {
        let message = json!({"message": "pull request already exists for these targets"});
        return (StatusCode::CONFLICT, Json(message)).into_response();
    }
    (StatusCode::CREATED, Json(repository.add(&new))).into_response()
}

async fn edit(
    State(repository): State<SharedRepository>,
    Path(number): Path<usize>,
    headers: HeaderMap,
    Json(change): Json<Value>,
) -> Response {
    if let Some(refusal) = refused(&headers) {
        return refusal;
    }
    let mut repository = repository.lock();
    repository.writes += 1;
    let Some(pull) = repository.pulls.get_mut(number - 1) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    pull["title"] = change["title"].clone();
    pull["body"] = change["body"].clone();
    (StatusCode::CREATED, Json(pull.clone())).into_response()
}

/// A fake server whose repository already has pull requests of others, and its address.
async fn serve() -> (String, SharedRepository) {
    let repository = SharedRepository::default();
    for head in ["fix", "feature", "docs"] {
        repository.lock().add(&json!({"title": head, "body": "", "head": head, "base": "main"}));
    }
    let router = Router::new()
        .route(PULLS, get(list).post(create))
        .route(&format!("{PULLS}/{{number}}"), patch(edit))
        .with_state(repository.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/git/acme/fleet", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, repository)
}

fn conversation(address: &str, token: &str, title: &str, committed: i64) -> PullRequestUpsert {
    let provider = json!({
        "metadata": {"name": "p", "namespace": "apps"},
        "spec": {"type": "gitea", "address": address, "secretRef": {"name": "s"}},
    });
    let provider = notify::Provider::new(provider).unwrap();
    let data = BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
    let secret =
        |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
    let proposal = PullRequestProposal {
        repository: "ssh://git@git.example.com/acme/fleet.git".to_owned(),
        base: "main".to_owned(),
        head: "updates".to_owned(),
        committed,
        title: title.to_owned(),
        body: "- web: 1.2.4\n".to_owned(),
    };
    PullRequestUpsert::new(proposal, &provider, COMMITTED, &secret)
}

#[tokio::test]
async fn a_branch_has_one_pull_request_until_a_person_closes_it() {
    let (address, repository) = serve().await;
    let clients = HttpClientCache::within(EgressRules::with_loopback());
    let permits = RunPermits::new(1);
    for (title, committed, number, change, writes) in [
        ("Update web", COMMITTED, 4, PullRequestOutcome::Created, 1),
        ("Update web", COMMITTED, 4, PullRequestOutcome::Unchanged, 1),
        ("Update web and api", COMMITTED + 5, 4, PullRequestOutcome::Updated, 2),
        ("Update web and api", COMMITTED + 5, 4, PullRequestOutcome::Unchanged, 2),
    ] {
        let proposed = conversation(&address, "t0ken", title, committed);
        let made = converse(&clients, &permits, "apps", proposed).await.unwrap();
        assert_eq!((made.number, made.change), (number, change));
        assert_eq!(made.url, "https://git.example.com/acme/fleet/pulls/4");
        assert_eq!(repository.lock().writes, writes);
    }
    repository.lock().close(4, COMMITTED + 10);
    for (committed, number, change, writes) in [
        (COMMITTED + 5, 4, PullRequestOutcome::Ended, 2),
        (COMMITTED + 20, 5, PullRequestOutcome::Created, 3),
        (COMMITTED + 20, 5, PullRequestOutcome::Unchanged, 3),
    ] {
        let proposed = conversation(&address, "t0ken", "Update web and api", committed);
        let made = converse(&clients, &permits, "apps", proposed).await.unwrap();
        assert_eq!((made.number, made.change), (number, change));
        assert_eq!(repository.lock().writes, writes);
    }
}

#[tokio::test]
async fn a_server_that_refuses_or_may_not_be_asked_is_named_with_what_to_do() {
    let (address, repository) = serve().await;
    let permits = RunPermits::new(1);
    let clients = HttpClientCache::within(EgressRules::with_loopback());
    let proposed = conversation(&address, "expired", "Update web", COMMITTED);
    let error = converse(&clients, &permits, "apps", proposed).await.unwrap_err();
    let said = "authentication failed (invalid username, password or token); replace the token";
    assert!(error.message.contains(said) && !error.may_help, "{error}");
    let clients = HttpClientCache::within(EgressRules::Named(EgressDenyList::default().into()));
    let proposed = conversation(&address, "t0ken", "Update web", COMMITTED);
    let error = converse(&clients, &permits, "apps", proposed).await.unwrap_err();
    assert!(error.message.contains("not allowed") && !error.may_help, "{error}");
    assert_eq!(repository.lock().writes, 0);
}
