//! Access to Buckets, on a server that verifies signatures.

use anyhow::Result;
use e2e::harness::Story;
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use serde_json::{Map, Value, json};

use super::proxies::TestProxies;
use super::{
    API, AccessServerUrl, KindFailureReasons, SourceAccessFailure, SourceAccessKind,
    SourceAccessProxies, WRONG, over_http, plain, tell,
};

pub(super) const FAILED: &str = "BucketOperationFailed";
pub(super) const NAME: &str = "app";

fn objects(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"endpoint": url.server, "bucketName": NAME,
        "insecure": !url.is_tls, "timeout": super::timeout(name)});
    vec![super::object(API, "Bucket", name, spec, &own)]
}

fn keys(secret: &str) -> Value {
    json!({"accesskey": ACCESS, "secretkey": secret})
}

/// A Bucket of any provider, and the message with which its server rejects credentials.
pub(super) fn subject(
    always: Vec<(&'static str, Value)>,
    refused: &'static str,
    objects: fn(&str, AccessServerUrl<'_>, Map<String, Value>) -> Vec<Value>,
) -> SourceAccessKind {
    let fails = |says| SourceAccessFailure { reason: FAILED, says };
    SourceAccessKind {
        kind: (API, "Bucket"),
        certificates: "certSecretRef",
        always,
        failures: KindFailureReasons {
            refused: fails(refused),
            untrusted: fails("spec.certSecretRef"),
            unknown: FAILED,
            unreachable: fails("Connection refused"),
            stalled: fails("2s"),
            proxy_refuses: fails("407"),
            proxy_unreachable: fails("through the proxy"),
        },
        objects: Box::new(objects),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-bucket").await?;
    let server = S3Server::start().await?;
    server.bucket(NAME).await?;
    server.put(NAME, "a.yaml", "value: 1\n").await?;
    let address = server.endpoint().parse()?;
    let always = vec![("secretRef", keys(SECRET))];
    let subject = subject(always, "authentication failed at", objects);
    let ways = SourceAccessProxies::to(address).await?;
    let proxies = TestProxies::start().await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(proxies.cells(&subject, address, &ways)?);
    let refused = subject.failures.refused;
    let stranger = json!({"accesskey": "stranger"});
    // The answer differs from S3, because this server has its own code and status.
    let unknown = SourceAccessFailure { reason: FAILED, says: "No user exists" };
    cells.extend([
        plain("key-wrong", address).with("secretRef", keys(WRONG)).fails(refused),
        plain("key-unknown", address).with("secretRef", stranger).fails(unknown),
    ]);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(address, &ways)?;
    story.end().await
}
