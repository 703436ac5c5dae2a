//! Access to HTTPArchives.

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use e2e::harness::Story;
use e2e::servers::web::FileWebServer;
use serde_json::{Map, Value, json};

use super::proxies::TestProxies;
use super::{
    AccessServerUrl, KindFailureReasons, PASSWORD, SourceAccessFailure, SourceAccessKind,
    SourceAccessProxies, USER, WRONG, over_http, plain, tell,
};

const GROUP: &str = "source.windlass.dev/v1alpha1";
const FAILED: &str = "HTTPOperationFailed";
const DENIED: &str = "AuthenticationFailed";

fn objects(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": format!("{}/app.yaml", url.base()), "timeout": super::timeout(name)});
    vec![super::object(GROUP, "HTTPArchive", name, spec, &own)]
}

fn subject() -> SourceAccessKind {
    SourceAccessKind {
        kind: (GROUP, "HTTPArchive"),
        certificates: "certSecretRef",
        always: Vec::new(),
        failures: KindFailureReasons {
            refused: SourceAccessFailure { reason: DENIED, says: "HTTP status 401" },
            untrusted: SourceAccessFailure { reason: FAILED, says: "spec.certSecretRef" },
            unknown: FAILED,
            unreachable: SourceAccessFailure { reason: FAILED, says: "Connection refused" },
            stalled: SourceAccessFailure { reason: FAILED, says: "timed out after 2s" },
            proxy_refuses: SourceAccessFailure { reason: FAILED, says: "407" },
            proxy_unreachable: SourceAccessFailure { reason: FAILED, says: "through the proxy" },
        },
        objects: Box::new(objects),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_a_web_server_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-http-archive").await?;
    let subject = subject();
    let [open, basic, bearer] = [
        FileWebServer::start().await?,
        FileWebServer::start().await?,
        FileWebServer::start().await?,
    ];
    for server in [&open, &basic, &bearer] {
        server.put("app.yaml", "value: 1\n");
    }
    let encoded = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    basic.protect(&format!("Basic {encoded}"));
    bearer.protect(&format!("Bearer {PASSWORD}"));
    let ways = SourceAccessProxies::to(open.address()).await?;
    let proxies = TestProxies::start().await?;
    let mut cells = over_http(&subject, open.address(), &ways)?;
    cells.extend(proxies.cells(&subject, open.address(), &ways)?);
    let field = "secretRef";
    let refused = subject.failures.refused;
    let as_user = |password: &str| json!({"username": USER, "password": password});
    let by_token = |token: &str| json!({"bearerToken": token});
    cells.extend([
        plain("basic-works", basic.address()).with(field, as_user(PASSWORD)),
        plain("basic-wrong", basic.address()).with(field, as_user(WRONG)).fails(refused),
        plain("basic-missing", basic.address()).fails(refused),
        plain("token-works", bearer.address()).with(field, by_token(PASSWORD)),
        plain("token-wrong", bearer.address()).with(field, by_token(WRONG)).fails(refused),
    ]);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(open.address(), &ways)?;
    story.end().await
}
