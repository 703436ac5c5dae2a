//! Access to HelmRepositories over HTTP and in a bucket: their index, and a chart.

use anyhow::{Context as _, Result};
use e2e::harness::Story;
use e2e::servers::charts::ChartServer;
use e2e::servers::s3::{ACCESS, REGION, S3Server, SECRET};
use serde_json::{Map, Value, json};

use super::{
    API, AccessServerUrl, KindFailureReasons, PASSWORD, SourceAccessCase, SourceAccessFailure,
    SourceAccessKind, SourceAccessProxies, USER, WRONG, over_http, plain, tell,
};

const FAILED: &str = "Failed";

fn objects(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": url.base(), "timeout": super::timeout(name)});
    let chart = json!({"chart": "app", "sourceRef": {"kind": "HelmRepository", "name": name}});
    vec![
        super::object(API, "HelmChart", name, Map::new(), &chart),
        super::object(API, "HelmRepository", name, spec, &own),
    ]
}

/// A HelmRepository in a bucket of the server that a Secret names.
fn in_bucket(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": "s3://charts/stable", "insecure": !url.is_tls, "timeout": super::timeout(name)});
    let mut all = objects(name, url, Map::new());
    all.pop();
    all.push(super::object(API, "HelmRepository", name, spec, &own));
    all
}

/// The same objects, followed by the chart, which is observed.
fn chart_last(objects: Box<super::SourceAccessObjects>) -> Box<super::SourceAccessObjects> {
    Box::new(move |name, url, spec| objects(name, url, spec).into_iter().rev().collect())
}

/// Compares the repositories, and then the charts of reachable repositories. If the index can be fetched, the chart can, too.
async fn tell_both(
    story: &Story,
    mut subject: SourceAccessKind,
    mut cells: Vec<SourceAccessCase>,
) -> Result<()> {
    tell(story, &subject, &cells).await?;
    subject.kind = (API, "HelmChart");
    subject.objects = chart_last(subject.objects);
    cells.retain(|cell| cell.failure.is_none());
    tell(story, &subject, &cells).await
}

fn subject(
    refused: &'static str,
    objects: fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>,
) -> SourceAccessKind {
    let fails = |says| SourceAccessFailure { reason: FAILED, says };
    SourceAccessKind {
        kind: (API, "HelmRepository"),
        certificates: "certSecretRef",
        always: Vec::new(),
        failures: KindFailureReasons {
            refused: fails(refused),
            untrusted: fails("certificate"),
            unknown: FAILED,
            unreachable: fails("Connection refused"),
            stalled: fails("2s"),
            // A HelmRepository names no proxy.
            proxy_refuses: fails(""),
            proxy_unreachable: fails(""),
        },
        objects: Box::new(objects),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_charts_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-helm").await?;
    let subject = subject("status 401", objects);
    let open = ChartServer::start(None)?;
    let protected = ChartServer::start(Some((USER, PASSWORD)))?;
    for server in [&open, &protected] {
        server.publish(&[("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")])?;
    }
    let address = |server: &ChartServer| -> Result<std::net::SocketAddr> {
        let url = server.url();
        Ok(url.strip_prefix("http://").context("it is served over HTTP")?.parse()?)
    };
    let ways = SourceAccessProxies::to(address(&open)?).await?;
    let mut cells = over_http(&subject, address(&open)?, &ways)?;
    let field = "secretRef";
    let refused = subject.failures.refused;
    let as_user = |password: &str| json!({"username": USER, "password": password});
    let protected = address(&protected)?;
    cells.extend([
        plain("basic-works", protected).with(field, as_user(PASSWORD)),
        plain("basic-wrong", protected).with(field, as_user(WRONG)).fails(refused),
        plain("basic-missing", protected).fails(refused),
    ]);
    tell_both(&story, subject, cells).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_bucket_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-helm-s3").await?;
    let charts = ChartServer::start(None)?;
    let store = S3Server::start().await?;
    charts.publish(&[("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")])?;
    store.bucket("charts").await?;
    for file in ["index.yaml", "app-1.0.0.tgz"] {
        let url = format!("{}/{file}", charts.url());
        let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
        store.put("charts", &format!("stable/{file}"), bytes).await?;
    }
    let field = "secretRef";
    let address = store.endpoint().parse()?;
    let subject = SourceAccessKind {
        always: vec![(field, json!({"accesskey": ACCESS, "secretkey": SECRET, "region": REGION}))],
        ..subject("authentication failed at", in_bucket)
    };
    let refused = subject.failures.refused;
    let ways = SourceAccessProxies::to(address).await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.push(plain("key-wrong", address).with(field, json!({"secretkey": WRONG})).fails(refused));
    let at = |cell: SourceAccessCase| {
        let endpoint = json!({"endpoint": cell.server});
        cell.with(field, endpoint)
    };
    tell_both(&story, subject, cells.into_iter().map(at).collect()).await?;
    story.end().await
}
