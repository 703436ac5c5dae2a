//! Every kind by every protocol and every authentication method: with right and wrong credentials, with no server at the
//! address, and with a server that accepts the connection and says nothing.
//!
//! A kind has a list of [`AccessTableCell`]s, which are objects of one namespace. Here: how cells are made and
//! compared. In the folder: the kinds, and ways through a proxy (`proxies`).

mod bucket;
mod clouds;
mod directory;
mod ecr;
mod git;
mod helm;
mod http_archive;
mod oci;
mod proxies;

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::flux::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::{aws_identity, registry, s3};
use e2e::tcp_relay::TcpRelay;
use e2e::tls_proxy::TlsProxyListener;
use serde_json::{Map, Value, json};

const API: &str = "source.toolkit.fluxcd.io/v1";
const USER: &str = "walker";
const PASSWORD: &str = "r1ght-passw0rd";
const WRONG: &str = "wr0ng-passw0rd";

/// Keys of Secrets whose values are secrets, whatever they are.
const SECRET: [&str; 6] =
    ["accountKey", "sasKey", "serviceaccount", "secretkey", "password", "bearerToken"];

/// Secrets that no status, event or log may show, in whatever form they were given.
const SECRETS_NEVER_SHOWN: [&str; 5] =
    [PASSWORD, WRONG, registry::PASSWORD, s3::SECRET, aws_identity::LDAP_PASSWORD];

/// `spec.timeout` of the objects of a cell: short only where nothing but the timeout ends a fetch, since a machine that is
/// busy may need more than that for one that works.
fn timeout(cell: &str) -> &'static str {
    match cell.contains("stalled") {
        true => "2s",
        false => "60s",
    }
}

/// What a cell is about; the name of its objects is made of it.
struct AccessTableCell {
    name: String,
    is_tls: bool,
    /// Host and port.
    server: String,
    /// Data of Secrets, by the field of the spec that names them; a dot leads into a field.
    secrets: Vec<(&'static str, Value)>,
    /// Without it the object becomes Ready.
    failure: Option<AccessFailure>,
}

/// Why it does not become Ready.
#[derive(Clone, Copy)]
struct AccessFailure {
    reason: &'static str,
    /// A part of the message.
    says: &'static str,
}

/// What the failures of a kind are called.
struct KindFailureReasons {
    refused: AccessFailure,
    untrusted: AccessFailure,
    /// Without a certificate of one's own; servers end the connection then, each in its way.
    unknown: &'static str,
    unreachable: AccessFailure,
    stalled: AccessFailure,
    proxy_refuses: AccessFailure,
    proxy_unreachable: AccessFailure,
}

/// The objects of a cell by their name, where its server is, and the fields of the spec that name Secrets. The last one is
/// observed.
type AccessCellObjects = dyn Fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>;

/// A kind, as its table needs it.
struct AccessSubject {
    kind: (&'static str, &'static str),
    /// The field for certificates.
    certificates: &'static str,
    /// Secrets that every cell has.
    always: Vec<(&'static str, Value)>,
    failures: KindFailureReasons,
    objects: Box<AccessCellObjects>,
}

/// Where the server of a cell is.
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

/// An object with everything but the fields that name Secrets.
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

/// What is between windlass and a server that speaks plain HTTP without authentication.
struct AccessServerFronts {
    authority: TestCertificateAuthority,
    tls: TlsProxyListener,
    mutual: TlsProxyListener,
    /// Each accepts connections and says nothing.
    stalled: TcpRelay,
    stalled_tls: TcpRelay,
}

impl AccessServerFronts {
    async fn to(server: SocketAddr) -> Result<Self> {
        let authority = TestCertificateAuthority::generate()?;
        let tls = TlsProxyListener::start(server, &authority, false).await?;
        let mutual = TlsProxyListener::start(server, &authority, true).await?;
        let stalled = silent(server).await?;
        let stalled_tls = silent(tls.address()).await?;
        Ok(Self { authority, tls, mutual, stalled, stalled_tls })
    }
}

/// A relay that accepts connections to a server, and passes nothing of its answers.
async fn silent(server: SocketAddr) -> Result<TcpRelay> {
    let relay = TcpRelay::start(server).await?;
    relay.hold_after(0);
    Ok(relay)
}

/// An address at which no server listens.
fn closed_port() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn plain(name: &str, server: impl ToString) -> AccessTableCell {
    let name = name.to_owned();
    let server = server.to_string();
    AccessTableCell { name, is_tls: false, server, secrets: Vec::new(), failure: None }
}

fn tls(name: &str, server: impl ToString) -> AccessTableCell {
    AccessTableCell { is_tls: true, ..plain(name, server) }
}

impl AccessTableCell {
    fn with(mut self, field: &'static str, data: Value) -> Self {
        self.secrets.push((field, data));
        self
    }

    fn fails(self, failure: AccessFailure) -> Self {
        Self { failure: Some(failure), ..self }
    }
}

/// The cells that all kinds have whose protocol is HTTP: no credentials, certificates either way.
fn over_http(
    subject: &AccessSubject,
    server: SocketAddr,
    ways: &AccessServerFronts,
) -> Result<Vec<AccessTableCell>> {
    let AccessSubject { certificates, failures, .. } = subject;
    let ca = ways.authority.certificate();
    let closed_port = closed_port()?;
    let mine = ways.authority.issue_user("windlass", &[])?;
    let stranger = TestCertificateAuthority::generate()?;
    let strange = stranger.issue_user("windlass", &[])?;
    let unknown = AccessFailure { reason: failures.unknown, says: "" };
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

/// Secrets and objects of a cell.
fn objects(subject: &AccessSubject, cell: &AccessTableCell) -> Vec<Value> {
    let mut spec = Map::new();
    let mut all = Vec::new();
    // A field names one Secret, which has the data of the kind and of the cell.
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

/// The outcome of a cell, if it is not the expected one.
///
/// An object may be created before the one that it waits for, so only its last condition counts.
async fn wrong(
    story: &Story,
    target: &StoryObject,
    cell: &AccessTableCell,
) -> Result<Option<String>> {
    let mut last = String::new();
    let outcome = e2e::harness::await_until(&cell.name, DEFAULT_WAIT_TIMEOUT, async || {
        let object = story.expect(target).await?;
        let ready = condition(&object, "Ready");
        let text = ready["message"].as_str().unwrap_or_default();
        last = format!("{}: {}: {text}", cell.name, ready["reason"]);
        let is_right = match cell.failure {
            None => ready["status"] == "True",
            Some(AccessFailure { reason, says }) => {
                ready["status"] == "False" && ready["reason"] == reason && text.contains(says)
            }
        };
        Ok(is_right.then_some(()))
    });
    Ok(outcome.await.err().map(|_waited| last))
}

/// Creates the objects of all cells, and compares the outcome of each. No status, event or log may show a secret.
async fn tell(story: &Story, subject: &AccessSubject, cells: &[AccessTableCell]) -> Result<()> {
    tell_within(story, subject, cells, &[]).await
}

/// As [`tell`], by a windlass with more variables in its environment.
async fn tell_within(
    story: &Story,
    subject: &AccessSubject,
    cells: &[AccessTableCell],
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
            // Names and certificates may be shown, keys and passwords may not.
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
