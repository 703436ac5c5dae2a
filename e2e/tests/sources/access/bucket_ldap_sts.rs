//! Access to Buckets with keys of a token service that knows the users of a directory (`spec.sts` with `ldap`). The store is
//! always available, and the cells differ in the access to the token service.
//!
//! The token service is a fake, because MinIO is not available here.

use anyhow::Result;
use e2e::harness::Story;
use e2e::servers::aws_identity::{AwsIdentityServer, LDAP_PASSWORD, LDAP_USER};
use e2e::servers::s3::S3Server;
use serde_json::{Map, Value, json};

use super::bucket::NAME;
use super::{
    API, AccessServerUrl, KindFailureReasons, SourceAccessFailure, SourceAccessKind,
    SourceAccessProxies, WRONG, over_http, plain, tell,
};

const DENIED: &str = "AuthenticationFailed";
const FIELD: &str = "sts.secretRef";

fn user(password: &str) -> Value {
    json!({"username": LDAP_USER, "password": password})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_for_users_of_a_directory_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-directory").await?;
    let store = S3Server::start().await?;
    let service = AwsIdentityServer::start().await?;
    store.bucket(NAME).await?;
    store.put(NAME, "a.yaml", "value: 1\n").await?;
    let endpoint = store.endpoint();
    let objects = move |name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>| {
        let own = json!({"endpoint": endpoint, "bucketName": NAME, "insecure": true,
            "timeout": super::timeout(name), "sts": {"provider": "ldap", "endpoint": url.base()}});
        vec![super::object(API, "Bucket", name, spec, &own)]
    };
    let fails = |says| SourceAccessFailure { reason: DENIED, says };
    let subject = SourceAccessKind {
        kind: (API, "Bucket"),
        certificates: "sts.certSecretRef",
        always: vec![(FIELD, user(LDAP_PASSWORD))],
        failures: KindFailureReasons {
            refused: fails("LDAP server error: no such user"),
            untrusted: fails("spec.sts.certSecretRef"),
            unknown: DENIED,
            unreachable: fails("the STS endpoint 127.0.0.1 cannot be reached: Connection refused"),
            stalled: fails("the STS endpoint 127.0.0.1 did not respond within 2s"),
            // No cell of this table uses a proxy.
            proxy_refuses: fails(""),
            proxy_unreachable: fails(""),
        },
        objects: Box::new(objects),
    };
    let ways = SourceAccessProxies::to(service.address()).await?;
    let mut cells = over_http(&subject, service.address(), &ways)?;
    let refused = subject.failures.refused;
    cells.extend([
        plain("password-wrong", service.address()).with(FIELD, user(WRONG)).fails(refused),
        plain("password-missing", service.address())
            .with(FIELD, user(""))
            .fails(fails("required fields username, password")),
    ]);
    tell(&story, &subject, &cells).await?;
    story.end().await
}
