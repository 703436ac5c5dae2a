//! HelmRepository over HTTP, its index and a chart from it.

use anyhow::{Context as _, Result};
use e2e::harness::Story;
use e2e::servers::charts::ChartServer;
use serde_json::{Map, Value, json};

use super::{
    API, Failure, Failures, PASSWORD, Subject, USER, Url, WRONG, Ways, over_http, plain, tell,
};

const FAILED: &str = "Failed";

fn objects(name: &str, url: Url, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": url.base(), "timeout": super::TIMEOUT});
    let chart = json!({"chart": "app", "sourceRef": {"kind": "HelmRepository", "name": name}});
    vec![
        super::object(API, "HelmChart", name, Map::new(), &chart),
        super::object(API, "HelmRepository", name, spec, &own),
    ]
}

/// The same, of which the chart is looked at.
fn chart_last(name: &str, url: Url, spec: Map<String, Value>) -> Vec<Value> {
    objects(name, url, spec).into_iter().rev().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_charts_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-helm").await?;
    let mut subject = Subject {
        kind: (API, "HelmRepository"),
        certificates: "certSecretRef",
        always: Vec::new(),
        failures: Failures {
            refused: Failure { reason: FAILED, says: "status 401" },
            untrusted: Failure { reason: FAILED, says: "certificate" },
            unknown: FAILED,
            unreachable: Failure { reason: FAILED, says: "Connection refused" },
            stalled: Failure { reason: FAILED, says: "2s" },
            // A HelmRepository names no proxy.
            proxy_refuses: Failure { reason: FAILED, says: "" },
            proxy_unreachable: Failure { reason: FAILED, says: "" },
        },
        objects: Box::new(objects),
    };
    let open = ChartServer::start(None)?;
    let protected = ChartServer::start(Some((USER, PASSWORD)))?;
    for server in [&open, &protected] {
        server.publish(&[("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")])?;
    }
    let address = |server: &ChartServer| -> Result<std::net::SocketAddr> {
        let url = server.url();
        Ok(url.strip_prefix("http://").context("it is served over HTTP")?.parse()?)
    };
    let ways = Ways::to(address(&open)?).await?;
    let mut cells = over_http(&subject, address(&open)?, &ways)?;
    let (field, refused) = ("secretRef", subject.failures.refused);
    let as_user = |password: &str| json!({"username": USER, "password": password});
    let protected = address(&protected)?;
    cells.extend([
        plain("basic-works", protected).with(field, as_user(PASSWORD)),
        plain("basic-wrong", protected).with(field, as_user(WRONG)).fails(refused),
        plain("basic-missing", protected).fails(refused),
    ]);
    tell(&story, &subject, &cells).await?;
    // Where the index comes, so does the chart.
    subject.kind = (API, "HelmChart");
    subject.objects = Box::new(chart_last);
    cells.retain(|cell| cell.failure.is_none());
    tell(&story, &subject, &cells).await?;
    story.end().await
}
