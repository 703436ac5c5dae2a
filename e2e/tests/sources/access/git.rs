//! Access to GitRepositories over HTTP and SSH.

use anyhow::{Context as _, Result};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::Story;
use serde_json::{Map, Value, json};

use super::proxies::TestProxies;
use super::{
    API, AccessServerUrl, KindFailureReasons, PASSWORD, SourceAccessFailure, SourceAccessKind,
    SourceAccessProxies, USER, WRONG, closed_port, over_http, plain, tell,
};

const FAILED: &str = "GitOperationFailed";
const DENIED: &str = "AuthenticationFailed";

fn repositories(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": format!("{}/app.git", url.base()), "ref": {"branch": "main"},
        "timeout": super::timeout(name)});
    vec![super::object(API, "GitRepository", name, spec, &own)]
}

fn subject() -> SourceAccessKind {
    SourceAccessKind {
        kind: (API, "GitRepository"),
        certificates: "secretRef",
        always: Vec::new(),
        failures: KindFailureReasons {
            refused: SourceAccessFailure { reason: DENIED, says: "credentials" },
            untrusted: SourceAccessFailure { reason: FAILED, says: "ca.crt" },
            unknown: FAILED,
            unreachable: SourceAccessFailure { reason: FAILED, says: "Connection refused" },
            stalled: SourceAccessFailure { reason: FAILED, says: "2s" },
            proxy_refuses: SourceAccessFailure { reason: DENIED, says: "proxy" },
            proxy_unreachable: SourceAccessFailure { reason: FAILED, says: "proxy" },
        },
        objects: Box::new(repositories),
    }
}

fn served(access: GitReadAccess) -> Result<(GitServer, std::net::SocketAddr)> {
    let server = GitServer::start(access)?;
    server.repository("app")?.commit(&[("a.yaml", "value: 1\n")], "first")?;
    let address = server.base_url();
    let address = address.strip_prefix("http://").context("it is served over HTTP")?.parse()?;
    Ok((server, address))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_http_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-git").await?;
    let subject = subject();
    let (_open, open) = served(GitReadAccess::Open)?;
    let access = GitReadAccess::Basic { user: USER.to_owned(), password: PASSWORD.to_owned() };
    let (_basic, basic) = served(access)?;
    let (_bearer, bearer) = served(GitReadAccess::Bearer(PASSWORD.to_owned()))?;
    let ways = SourceAccessProxies::to(open).await?;
    let proxies = TestProxies::start().await?;
    let tokens = SourceAccessProxies::to(bearer).await?;
    let mut cells = over_http(&subject, open, &ways)?;
    cells.extend(proxies.cells(&subject, open, &ways)?);
    let field = "secretRef";
    let refused = subject.failures.refused;
    let as_user = |password: &str| json!({"username": USER, "password": password});
    let by_token =
        |token: &str| json!({"bearerToken": token, "ca.crt": tokens.authority.certificate()});
    let over_tls = tokens.tls.address();
    cells.extend([
        plain("basic-works", basic).with(field, as_user(PASSWORD)),
        plain("basic-wrong", basic).with(field, as_user(WRONG)).fails(refused),
        plain("basic-missing", basic).fails(refused),
        super::tls("token-works", over_tls).with(field, by_token(PASSWORD)),
        super::tls("token-wrong", over_tls).with(field, by_token(WRONG)).fails(refused),
    ]);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(open, &ways)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_ssh_is_reached_by_a_key_of_a_known_host() -> Result<()> {
    let story = Story::begin("access-ssh").await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("app")?;
    repository.commit(&[("a.yaml", "value: 1\n")], "first")?;
    let ssh = server.ssh()?;
    let url = ssh.url(&repository);
    let rest = url.strip_prefix("ssh://").context("it is served over SSH")?;
    let (user, rest) = rest.split_once('@').context("a user")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let place = (user.to_owned(), path.to_owned());
    let over_ssh = move |name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>| {
        let (user, path) = &place;
        let url = format!("ssh://{user}@{}/{path}", url.server);
        let own = json!({"url": url, "ref": {"branch": "main"}, "timeout": super::timeout(name)});
        vec![super::object(API, "GitRepository", name, spec, &own)]
    };
    let address = host.parse()?;
    let silent = super::silent(address).await?;
    let stranger = GitServer::start(GitReadAccess::Open)?;
    let stranger = stranger.ssh()?;

    let subject = SourceAccessKind { objects: Box::new(over_ssh), ..subject() };
    let known = ssh.known_hosts()?;
    let key = known.split_once(' ').context("no known host")?.1;
    let strange_hosts = stranger.known_hosts()?;
    let strange_key = strange_hosts.split_once(' ').context("no known host")?.1;
    let hosts = |at: std::net::SocketAddr, key: &str| format!("[127.0.0.1]:{} {key}", at.port());
    let closed_port = closed_port()?;
    let secret =
        |identity: &str, hosts: String| json!({"identity": identity, "known_hosts": hosts});
    let mine = ssh.identity()?;
    let strange = stranger.identity()?;
    let field = "secretRef";
    let fails = |reason, says| SourceAccessFailure { reason, says };
    let cells = [
        plain("ssh-works", address).with(field, secret(&mine, hosts(address, key))),
        plain("ssh-key-wrong", address)
            .with(field, secret(&strange, hosts(address, key)))
            .fails(subject.failures.refused),
        plain("ssh-host-changed", address)
            .with(field, secret(&mine, hosts(address, strange_key)))
            .fails(fails(FAILED, "known_hosts")),
        plain("ssh-host-unknown", address)
            .with(field, secret(&mine, hosts(closed_port, key)))
            .fails(fails(FAILED, "known_hosts")),
        plain("ssh-unreachable", closed_port)
            .with(field, secret(&mine, hosts(closed_port, key)))
            .fails(subject.failures.unreachable),
        plain("ssh-stalled", silent.address())
            .with(field, secret(&mine, hosts(silent.address(), key)))
            .fails(subject.failures.stalled),
    ];
    tell(&story, &subject, &cells).await?;
    story.end().await
}
