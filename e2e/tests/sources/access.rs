//! Every kind of source with every protocol and every authentication method. The cases are right and wrong credentials, no
//! server, and a server that accepts the connection but never answers.
//!
//! Each kind has a list of [`SourceAccessCase`]s, whose objects are in one namespace. Here: making and comparing the cells. In
//! the folder: the kinds, and proxies (`proxies`).

mod bucket;
mod bucket_ldap_sts;
mod clouds;
mod ecr;
mod git;
mod helm;
mod http_archive;
mod oci;
mod proxies;

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::{aws_identity, registry, s3};
use e2e::tcp_relay::TcpRelay;
use e2e::tls_proxy::TlsProxyListener;
use serde_json::{Map, Value, json};

const API: &str = "source.toolkit.fluxcd.io/v1";
const USER: &str = "walker";
const PASSWORD: &str = "r1ght-passw0rd";
const WRONG: &str = "wr0ng-passw0rd";

/// The keys of Secrets whose values are always secret.
const SECRET: [&str; 6] =
    ["accountKey", "sasKey", "serviceaccount", "secretkey", "password", "bearerToken"];

/// Secret texts that no status, event or log may show, in whatever form they were given.
const SECRETS_NEVER_SHOWN: [&str; 5] =
    [PASSWORD, WRONG, registry::PASSWORD, s3::SECRET, aws_identity::LDAP_PASSWORD];

/// The `spec.timeout` of the objects in a cell. It is short only where nothing but the timeout ends a fetch. Other fetches may
/// need more time on a busy machine.
fn timeout(cell: &str) -> &'static str {
    match cell.contains("stalled") {
        true => "2s",
        false => "60s",
    }
}

/// The subject of a cell. The name of its objects is derived from it.
struct SourceAccessCase {
    name: String,
    is_tls: bool,
    /// The host and port of the server.
    server: String,
    /// The data of Secrets, by the field of the spec that names the Secret. A dot leads into a nested field.
    secrets: Vec<(&'static str, Value)>,
    /// The expected failure. `None` if the object becomes Ready.
    failure: Option<SourceAccessFailure>,
}

/// Why an object does not become Ready.
#[derive(Clone, Copy)]
struct SourceAccessFailure {
    reason: &'static str,
    /// A text that the message contains.
    says: &'static str,
}

/// The condition reasons of a kind's failures.
struct KindFailureReasons {
    refused: SourceAccessFailure,
    untrusted: SourceAccessFailure,
    /// The reason without a client certificate. Servers close the connection in different ways.
    unknown: &'static str,
    unreachable: SourceAccessFailure,
    stalled: SourceAccessFailure,
    proxy_refuses: SourceAccessFailure,
    proxy_unreachable: SourceAccessFailure,
}

/// Makes the objects of a cell from their name, the address of the server, and the fields of the spec that name Secrets. The
/// last object is observed.
type SourceAccessObjects = dyn Fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>;

/// A kind, with the data for its table.
struct SourceAccessKind {
    kind: (&'static str, &'static str),
    /// The field for certificates.
    certificates: &'static str,
    /// The Secrets of every cell.
    always: Vec<(&'static str, Value)>,
    failures: KindFailureReasons,
    objects: Box<SourceAccessObjects>,
}

/// The address of a cell's server.
#[derive(Clone, Copy)]
struct AccessServerUrl<'a> {
    is_tls: bool,
    server: &'a str,
}

impl AccessServerUrl<'_> {
    fn base(self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.server)
    }
}

/// An object with all fields except those that name Secrets.
fn object(api: &str, kind: &str, name: &str, spec: Map<String, Value>, own: &Value) -> Value {
    let mut spec = Value::Object(spec);
    for (field, value) in own.as_object().into_iter().flatten() {
        match (&mut spec[field], value) {
            (Value::Object(given), Value::Object(more)) => given.extend(more.clone()),
            (given, value) => *given = value.clone(),
        }
    }
    spec["interval"] = json!(NEVER);
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The proxies in front of a server that speaks plain HTTP without authentication.
struct SourceAccessProxies {
    authority: TestCertificateAuthority,
    tls: TlsProxyListener,
    mutual: TlsProxyListener,
    /// Relays that accept connections but never answer.
    stalled: TcpRelay,
    stalled_tls: TcpRelay,
}

impl SourceAccessProxies {
    async fn to(server: SocketAddr) -> Result<Self> {
        let authority = TestCertificateAuthority::generate()?;
        let tls = TlsProxyListener::start(server, &authority, false).await?;
        let mutual = TlsProxyListener::start(server, &authority, true).await?;
        let stalled = silent(server).await?;
        let stalled_tls = silent(tls.address()).await?;
        Ok(Self { authority, tls, mutual, stalled, stalled_tls })
    }
}

/// A relay that accepts connections to a server but passes on none of its answers.
async fn silent(server: SocketAddr) -> Result<TcpRelay> {
    let relay = TcpRelay::start(server).await?;
    relay.hold_after(0);
    Ok(relay)
}

/// An address on which no server listens.
fn closed_port() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn plain(name: &str, server: impl ToString) -> SourceAccessCase {
    let name = name.to_owned();
    let server = server.to_string();
    SourceAccessCase { name, is_tls: false, server, secrets: Vec::new(), failure: None }
}

fn tls(name: &str, server: impl ToString) -> SourceAccessCase {
    SourceAccessCase { is_tls: true, ..plain(name, server) }
}

impl SourceAccessCase {
    fn with(mut self, field: &'static str, data: Value) -> Self {
        self.secrets.push((field, data));
        self
    }

    fn fails(self, failure: SourceAccessFailure) -> Self {
        Self { failure: Some(failure), ..self }
    }
}

/// The cells of all kinds that use HTTP: without credentials, and with certificates of both sides.
fn over_http(
    subject: &SourceAccessKind,
    server: SocketAddr,
    ways: &SourceAccessProxies,
) -> Result<Vec<SourceAccessCase>> {
    let SourceAccessKind { certificates, failures, .. } = subject;
    let ca = ways.authority.certificate();
    let closed_port = closed_port()?;
    let mine = ways.authority.issue_user("windlass", &[])?;
    let stranger = TestCertificateAuthority::generate()?;
    let strange = stranger.issue_user("windlass", &[])?;
    let unknown = SourceAccessFailure { reason: failures.unknown, says: "" };
    Ok(vec![
        plain("http-works", server),
        plain("http-unreachable", closed_port).fails(failures.unreachable),
        plain("http-stalled", ways.stalled.address()).fails(failures.stalled),
        tls("ca-works", ways.tls.address()).with(certificates, json!({"ca.crt": ca})),
        tls("ca-wrong", ways.tls.address())
            .with(certificates, json!({"ca.crt": stranger.certificate()}))
            .fails(failures.untrusted),
        tls("ca-unreachable", closed_port)
            .with(certificates, json!({"ca.crt": ca}))
            .fails(failures.unreachable),
        tls("ca-stalled", ways.stalled_tls.address())
            .with(certificates, json!({"ca.crt": ca}))
            .fails(failures.stalled),
        tls("certificate-works", ways.mutual.address()).with(
            certificates,
            json!({"ca.crt": ca, "tls.crt": mine.certificate, "tls.key": mine.key}),
        ),
        tls("certificate-wrong", ways.mutual.address())
            .with(
                certificates,
                json!({"ca.crt": ca, "tls.crt": strange.certificate, "tls.key": strange.key}),
            )
            .fails(unknown),
        tls("certificate-missing", ways.mutual.address())
            .with(certificates, json!({"ca.crt": ca}))
            .fails(unknown),
    ])
}

/// The Secrets and objects of a cell.
fn objects(subject: &SourceAccessKind, cell: &SourceAccessCase) -> Vec<Value> {
    let mut spec = Map::new();
    let mut all = Vec::new();
    // A field names one Secret, which contains the data of the kind and of the cell.
    let mut secrets: Vec<(&str, Value)> = Vec::new();
    for (field, data) in subject.always.iter().chain(&cell.secrets) {
        match secrets.iter_mut().find(|(known, _)| known == field) {
            Some((_, known)) => {
                for (key, value) in data.as_object().into_iter().flatten() {
                    known[key] = value.clone();
                }
            }
            None => secrets.push((field, data.clone())),
        }
    }
    for (field, data) in secrets {
        let name = format!("{}-{}", cell.name, field.to_lowercase());
        let is_docker = data.get(".dockerconfigjson").is_some();
        let kind = if is_docker { "kubernetes.io/dockerconfigjson" } else { "Opaque" };
        all.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "type": kind, "stringData": data}));
        let reference = json!({"name": name});
        match field.split_once('.') {
            Some((outer, inner)) => {
                spec.entry(outer).or_insert_with(|| json!({}))[inner] = reference;
            }
            None => drop(spec.insert(field.to_owned(), reference)),
        }
    }
    let url = AccessServerUrl { is_tls: cell.is_tls, server: &cell.server };
    all.extend((subject.objects)(&cell.name, url, spec));
    all
}

/// The outcome of a cell, if it differs from the expected one.
///
/// An object may be created before its dependency, so only its last condition counts.
async fn wrong(
    story: &Story,
    target: &StoryObject,
    cell: &SourceAccessCase,
) -> Result<Option<String>> {
    let mut last = String::new();
    let outcome = e2e::harness::await_until(&cell.name, DEFAULT_WAIT_TIMEOUT, async || {
        let object = story.expect(target).await?;
        let ready = condition(&object, "Ready");
        let text = ready["message"].as_str().unwrap_or_default();
        last = format!("{}: {}: {text}", cell.name, ready["reason"]);
        let is_right = match cell.failure {
            None => ready["status"] == "True",
            Some(SourceAccessFailure { reason, says }) => {
                ready["status"] == "False" && ready["reason"] == reason && text.contains(says)
            }
        };
        Ok(is_right.then_some(()))
    });
    Ok(outcome.await.err().map(|_waited| last))
}

/// Creates the objects of all cells, and compares the outcomes. Checks that no status, event or log shows a secret.
async fn tell(story: &Story, subject: &SourceAccessKind, cells: &[SourceAccessCase]) -> Result<()> {
    tell_within(story, subject, cells, &[]).await
}

/// Like [`tell`], with a windlass that has further environment variables.
async fn tell_within(
    story: &Story,
    subject: &SourceAccessKind,
    cells: &[SourceAccessCase],
    environment: &[(&str, &str)],
) -> Result<()> {
    let flags = ["--concurrent-source=16"];
    let windlass = WindlassProcess::start_for_with(story, &flags, environment).await?;
    let (api, kind) = subject.kind;
    for cell in cells {
        for object in objects(subject, cell) {
            story.apply_value(object).await?;
        }
    }
    let mut all_wrong = Vec::new();
    let mut answers = String::new();
    for cell in cells {
        let target = StoryObject::new(api, kind, &cell.name);
        all_wrong.extend(wrong(story, &target, cell).await?);
        answers += &story.expect(&target).await?.data["status"].to_string();
        answers += &story.events(kind, &cell.name).await?.join("\n");
    }
    ensure!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    let log = windlass.operator.log()?;
    for cell in cells {
        let secrets = subject.always.iter().chain(&cell.secrets);
        for (key, value) in secrets.filter_map(|(_, data)| data.as_object()).flatten() {
            // Names and certificates may be shown, but not keys and passwords.
            let text = value.as_str().unwrap_or_default();
            let is_secret = [PASSWORD, WRONG].contains(&text)
                || text.contains("PRIVATE KEY")
                || (SECRET.contains(&key.as_str()) && !text.is_empty());
            for line in text.lines().filter(|line| is_secret && !line.starts_with("-----")) {
                ensure!(
                    !answers.contains(line),
                    "{}: a status or an event has a secret",
                    cell.name
                );
                ensure!(!log.contains(line), "{}: the log has a secret", cell.name);
            }
        }
    }
    for secret in SECRETS_NEVER_SHOWN {
        ensure!(!answers.contains(secret), "a status or an event has `{secret}`");
        ensure!(!log.contains(secret), "the log has `{secret}`");
    }
    Ok(())
}
