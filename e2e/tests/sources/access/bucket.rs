//! Bucket, on a server that checks signatures.

use anyhow::Result;
use e2e::harness::Story;
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use serde_json::{Map, Value, json};

use super::{API, Failure, Failures, Subject, Url, WRONG, Ways, by_proxy, over_http, plain, tell};

const FAILED: &str = "BucketOperationFailed";
const NAME: &str = "app";

fn objects(name: &str, url: Url, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"endpoint": url.server.to_string(), "bucketName": NAME,
        "insecure": !url.is_tls, "timeout": super::TIMEOUT});
    vec![super::object(API, "Bucket", name, spec, &own)]
}

fn keys(secret: &str) -> Value {
    json!({"accesskey": ACCESS, "secretkey": secret})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-bucket").await?;
    let server = S3Server::start().await?;
    server.bucket(NAME).await?;
    server.put(NAME, "a.yaml", "value: 1\n").await?;
    let address = server.endpoint().parse()?;
    let subject = Subject {
        kind: (API, "Bucket"),
        certificates: "certSecretRef",
        always: vec![("secretRef", keys(SECRET))],
        failures: Failures {
            refused: Failure { reason: FAILED, says: "does not accept the credentials" },
            untrusted: Failure { reason: FAILED, says: "spec.certSecretRef" },
            unknown: FAILED,
            unreachable: Failure { reason: FAILED, says: "Connection refused" },
            stalled: Failure { reason: FAILED, says: "2s" },
            proxy_refuses: Failure { reason: FAILED, says: "407" },
            proxy_unreachable: Failure { reason: FAILED, says: "through the proxy" },
        },
        objects: Box::new(objects),
    };
    let ways = Ways::to(address).await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(by_proxy(&subject, address, &ways)?);
    let refused = subject.failures.refused;
    let stranger = json!({"accesskey": "stranger"});
    // Not as S3 answers: this server has a code and a status of its own for that.
    let unknown = Failure { reason: FAILED, says: "No user exists" };
    cells.extend([
        plain("key-wrong", address).with("secretRef", keys(WRONG)).fails(refused),
        plain("key-unknown", address).with("secretRef", stranger).fails(unknown),
    ]);
    tell(&story, &subject, &cells).await?;
    story.end().await
}
