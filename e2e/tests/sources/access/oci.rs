//! Access to OCIRepositories, and to charts of a registry.

use anyhow::Result;
use e2e::harness::Story;
use e2e::servers::registry::{self, PushedLayer, RegistryServer};
use serde_json::{Map, Value, json};
use sources::charts::LoadedChartFiles;
use sources::oci::chart;
use tree::{MemoryTree, RelPath};

use super::proxies::TestProxies;
use super::{
    API, AccessServerUrl, KindFailureReasons, SourceAccessCase, SourceAccessFailure,
    SourceAccessKind, SourceAccessProxies, WRONG, over_http, plain, tell,
};

fn repositories(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": format!("oci://{}/app", url.server), "insecure": !url.is_tls,
        "timeout": super::timeout(name)});
    vec![super::object(API, "OCIRepository", name, spec, &own)]
}

fn charts(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"type": "oci", "url": format!("oci://{}/charts", url.server),
        "insecure": !url.is_tls, "timeout": super::timeout(name)});
    let chart = json!({"chart": "app", "sourceRef": {"kind": "HelmRepository", "name": name}});
    vec![
        super::object(API, "HelmRepository", name, spec, &own),
        super::object(API, "HelmChart", name, Map::new(), &chart),
    ]
}

/// An OCIRepository, and the reasons of its failures.
pub(super) fn repositories_of(
    objects: fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>,
) -> SourceAccessKind {
    let failed = "OCIArtifactPullFailed";
    SourceAccessKind {
        kind: (API, "OCIRepository"),
        certificates: "certSecretRef",
        always: Vec::new(),
        failures: KindFailureReasons {
            refused: SourceAccessFailure {
                reason: failed,
                says: "UNAUTHORIZED: authentication required",
            },
            untrusted: SourceAccessFailure { reason: failed, says: "spec.certSecretRef" },
            unknown: failed,
            unreachable: SourceAccessFailure { reason: failed, says: "Connection refused" },
            stalled: SourceAccessFailure { reason: failed, says: "2s" },
            proxy_refuses: SourceAccessFailure { reason: failed, says: "407" },
            proxy_unreachable: SourceAccessFailure { reason: failed, says: "through the proxy" },
        },
        objects: Box::new(objects),
    }
}

/// A chart of a registry, and the reasons of its failures.
pub(super) fn charts_of(
    objects: fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>,
) -> SourceAccessKind {
    let failed = "ChartPullError";
    let denied = "AuthenticationFailed";
    SourceAccessKind {
        kind: (API, "HelmChart"),
        certificates: "certSecretRef",
        always: Vec::new(),
        failures: KindFailureReasons {
            refused: SourceAccessFailure {
                reason: denied,
                says: "UNAUTHORIZED: authentication required",
            },
            untrusted: SourceAccessFailure { reason: failed, says: "spec.certSecretRef" },
            unknown: failed,
            unreachable: SourceAccessFailure { reason: failed, says: "Connection refused" },
            stalled: SourceAccessFailure { reason: failed, says: "2s" },
            // A HelmRepository names no proxy.
            proxy_refuses: SourceAccessFailure { reason: failed, says: "" },
            proxy_unreachable: SourceAccessFailure { reason: failed, says: "" },
        },
        objects: Box::new(objects),
    }
}

/// Adds an artifact and a chart to a registry.
pub(super) async fn filled(registry: RegistryServer) -> Result<RegistryServer> {
    registry.push_files("app", "latest", &[("a.yaml", "value: 1\n")], json!({})).await?;
    let chart = [("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")];
    let mut packed = Vec::new();
    LoadedChartFiles::in_tree(&MemoryTree::from_files(chart)?, &RelPath::parse("app")?)?
        .write(&mut packed)?;
    let layer = PushedLayer { media_type: chart::CHART, bytes: packed };
    registry.push("charts/app", "1.0.0", &[layer], json!({})).await?;
    Ok(registry)
}

/// The cells with a password, which is in a docker config or in two keys of a Secret.
async fn by_password(
    registry: &RegistryServer,
    failure: SourceAccessFailure,
    in_keys: bool,
) -> Result<Vec<SourceAccessCase>> {
    let server = registry.host();
    let field = "secretRef";
    let config = |password: &str| json!({".dockerconfigjson": registry.docker_config(password)});
    let keys = |password: &str| json!({"username": registry::USER, "password": password});
    let mut cells = vec![
        plain("config-works", server).with(field, config(registry::PASSWORD)),
        plain("config-wrong", server).with(field, config(WRONG)).fails(failure),
        plain("config-missing", server).fails(failure),
    ];
    if in_keys {
        cells.extend([
            plain("basic-works", server).with(field, keys(registry::PASSWORD)),
            plain("basic-wrong", server).with(field, keys(WRONG)).fails(failure),
        ]);
    }
    Ok(cells)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_of_a_registry_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-oci").await?;
    let subject = repositories_of(repositories);
    let open = filled(RegistryServer::start().await?).await?;
    let protected = filled(RegistryServer::start_with_password().await?).await?;
    let address = open.host().parse()?;
    let ways = SourceAccessProxies::to(address).await?;
    let proxies = TestProxies::start().await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(proxies.cells(&subject, address, &ways)?);
    cells.extend(by_password(&protected, subject.failures.refused, false).await?);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(address, &ways)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_registry_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-oci-charts").await?;
    let subject = charts_of(charts);
    let open = filled(RegistryServer::start().await?).await?;
    let protected = filled(RegistryServer::start_with_password().await?).await?;
    let address = open.host().parse()?;
    let ways = SourceAccessProxies::to(address).await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(by_password(&protected, subject.failures.refused, true).await?);
    tell(&story, &subject, &cells).await?;
    story.end().await
}
