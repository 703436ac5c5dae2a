//! Tests the requests to each service against a server that answers according to the documentation of the service.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;

use super::*;

/// A request: method, path, credentials and body.
type ForgeRequest = (String, String, String, Value);

#[derive(Clone, Default)]
struct FakeForgeServer {
    asked: Arc<Mutex<Vec<ForgeRequest>>>,
    has_repository: bool,
    takes_keys: bool,
}

async fn answer(State(double): State<FakeForgeServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let header = |name: &str| {
        let value = parts.headers.get(name);
        value.map(|it| it.to_str().unwrap().to_owned())
    };
    let access = header("authorization").or_else(|| header("private-token")).unwrap_or_default();
    let method = parts.method.to_string();
    let path = parts.uri.path().to_owned();
    let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    double.asked.lock().push((method.clone(), path.clone(), access, body));
    let refused = (StatusCode::FORBIDDEN, r#"{"message": "not\u0007 allowed"}"#).into_response();
    match method.as_str() {
        "GET" if path.contains("/groups/") => r#"{"id": 42}"#.into_response(),
        "GET" if double.has_repository => "{}".into_response(),
        "GET" => (StatusCode::NOT_FOUND, r#"{"message": "Not Found"}"#).into_response(),
        _ if path.contains("keys") && !double.takes_keys => refused,
        _ => (StatusCode::CREATED, "{}").into_response(),
    }
}

impl FakeForgeServer {
    async fn serve(&self) -> Url {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Url::parse(&url).unwrap()
    }

    fn asked(&self) -> Vec<ForgeRequest> {
        std::mem::take(&mut self.asked.lock())
    }
}

fn forge(service: ForgeService, host: Url) -> ForgeRepository {
    ForgeRepository {
        service,
        ssh: Url::parse(&format!("ssh://git@{}/", host.host_str().unwrap())).unwrap(),
        host,
        owner: "acme".to_owned(),
        repository: "fleet".to_owned(),
        is_personal: false,
        visibility: RepositoryVisibility::Private,
        read_only: true,
        token: "t0ken".to_owned(),
        tls: TlsConfig::default(),
    }
}

fn asked(method: &str, path: &str, access: &str, body: Value) -> ForgeRequest {
    (method.to_owned(), path.to_owned(), access.to_owned(), body)
}

#[tokio::test]
async fn a_repository_that_is_missing_is_created_and_takes_a_key() {
    let double = FakeForgeServer { takes_keys: true, ..FakeForgeServer::default() };
    let host = double.serve().await;
    for (service, version, access) in
        [(ForgeService::GitHub, "v3", "Bearer t0ken"), (ForgeService::Gitea, "v1", "token t0ken")]
    {
        let forge = forge(service, host.clone());
        forge.ensure_repository().await.unwrap();
        forge.register("ssh-ed25519 AAAA\n", "flux-system").await.unwrap();
        let top = format!("/api/{version}");
        let repository = json!({"name": "fleet", "private": true});
        let key = json!({"title": "flux-system", "key": "ssh-ed25519 AAAA", "read_only": true});
        assert_eq!(
            double.asked(),
            [
                asked("GET", &format!("{top}/repos/acme/fleet"), access, Value::Null),
                asked("POST", &format!("{top}/orgs/acme/repos"), access, repository),
                asked("POST", &format!("{top}/repos/acme/fleet/keys"), access, key),
            ]
        );
    }
    let forge =
        ForgeRepository { owner: "acme/infra".to_owned(), ..forge(ForgeService::GitLab, host) };
    forge.ensure_repository().await.unwrap();
    forge.register("ssh-ed25519 AAAA", "flux-system").await.unwrap();
    let project = "/api/v4/projects/acme%2Finfra%2Ffleet";
    let body = json!({
        "name": "fleet", "path": "fleet", "visibility": "private", "namespace_id": 42,
    });
    let key = json!({"title": "flux-system", "key": "ssh-ed25519 AAAA", "can_push": false});
    assert_eq!(
        double.asked(),
        [
            asked("GET", project, "t0ken", Value::Null),
            asked("GET", "/api/v4/groups/acme%2Finfra", "t0ken", Value::Null),
            asked("POST", "/api/v4/projects", "t0ken", body),
            asked("POST", &format!("{project}/deploy_keys"), "t0ken", key),
        ]
    );
}

#[tokio::test]
async fn a_repository_that_exists_is_left_as_it_is_and_a_refusal_says_what_to_do() {
    let double = FakeForgeServer { has_repository: true, ..FakeForgeServer::default() };
    let forge = forge(ForgeService::GitHub, double.serve().await);
    forge.ensure_repository().await.unwrap();
    assert_eq!(double.asked().len(), 1);
    let error = forge.register("ssh-ed25519 AAAA", "x").await.unwrap_err().to_string();
    assert!(error.contains("403 Forbidden: not allowed"), "{error}");
    assert!(error.contains("--token-auth") && !error.contains("t0ken"), "{error}");
    let closed = Url::parse("http://127.0.0.1:1/").unwrap();
    let error = self::forge(ForgeService::Gitea, closed).ensure_repository().await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1/api/v1/repos/acme/fleet cannot be reached"));
}

#[derive(clap::Parser)]
struct ForgeTestCommand {
    #[command(flatten)]
    hosted: ForgeBootstrapArgs,
}

/// The repository that further flags give for acme/fleet.
fn given(service: ForgeService, more: &[&str]) -> Result<ForgeRepository, String> {
    let flags = ["x", "--owner=acme", "--repository=fleet", "--token=t"];
    let flags =
        <ForgeTestCommand as clap::Parser>::try_parse_from(flags.iter().chain(more)).unwrap();
    ForgeRepository::new(service, &flags.hosted).map_err(|error| error.to_string())
}

#[test]
fn internal_repositories_are_for_gitlab() {
    let made =
        |service, visibility: &str| given(service, &["--visibility", visibility]).map(|_| ());
    for service in [ForgeService::GitHub, ForgeService::Gitea] {
        assert!(made(service, "internal").unwrap_err().contains("is for GitLab"));
        assert_eq!(made(service, "public"), Ok(()));
    }
    assert_eq!(made(ForgeService::GitLab, "internal"), Ok(()));
}

#[test]
fn urls_are_those_of_the_host() {
    let forge = forge(ForgeService::GitHub, Url::parse("https://github.com/").unwrap());
    assert_eq!(forge.api(), "https://api.github.com/");
    assert_eq!(forge.url().unwrap().as_str(), "https://github.com/acme/fleet.git");
    assert_eq!(forge.ssh_url().unwrap().as_str(), "ssh://git@github.com/acme/fleet.git");
}

#[test]
fn keys_may_have_a_host_and_a_port_of_their_own() {
    let ssh_url = |more: &[&str]| {
        given(ForgeService::Gitea, more).map(|forge| forge.ssh_url().unwrap().to_string())
    };
    let host = "--hostname=git.acme.example:3000";
    assert_eq!(ssh_url(&[host]).unwrap(), "ssh://git@git.acme.example/acme/fleet.git");
    assert_eq!(
        ssh_url(&[host, "--ssh-hostname=ssh.acme.example:2222"]).unwrap(),
        "ssh://git@ssh.acme.example:2222/acme/fleet.git"
    );
    for wrong in ["", "a/b", "me@a", "a:b", "a?b", "-oProxyCommand=x"] {
        let error = ssh_url(&[host, &format!("--ssh-hostname={wrong}")]).unwrap_err();
        assert!(error.contains("is not the name of a host"), "{wrong}: {error}");
    }
}
