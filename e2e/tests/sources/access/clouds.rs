//! Access to Buckets of Google and Azure. fake-gcs-server accepts any credentials, and Azurite verifies keys and signatures.
//!
//! A server that accepts no token takes the place of Google when credentials are rejected. The fetched files and the number of
//! requests are in `tests/bucket`.

use anyhow::Result;
use e2e::harness::Story;
use e2e::servers::azurite::{ACCOUNT, AzuriteServer, KEY};
use e2e::servers::gcs::GcsServer;
use e2e::servers::web::FileWebServer;
use serde_json::{Map, Value, json};

use super::bucket::{NAME, subject};
use super::proxies::TestProxies;
use super::{
    API, AccessServerUrl, SourceAccessFailure, SourceAccessProxies, over_http, plain, tell,
};

/// An unusable Secret is reported before any request is sent.
const fn unusable(says: &'static str) -> SourceAccessFailure {
    SourceAccessFailure { reason: "AuthenticationFailed", says }
}

fn in_google(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"provider": "gcp", "endpoint": url.server, "bucketName": NAME,
        "insecure": !url.is_tls, "timeout": super::timeout(name)});
    vec![super::object(API, "Bucket", name, spec, &own)]
}

fn in_azure(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let endpoint = format!("{}/{ACCOUNT}", url.base());
    let own = json!({"provider": "azure", "endpoint": endpoint, "bucketName": NAME,
        "timeout": super::timeout(name)});
    vec![super::object(API, "Bucket", name, spec, &own)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_google_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-gcs").await?;
    let server = GcsServer::start().await?;
    server.bucket(NAME).await?;
    server.put(NAME, "a.yaml", "value: 1\n").await?;
    let address = server.endpoint().parse()?;
    let refusing = FileWebServer::start().await?;
    refusing.protect("Bearer of somebody else");
    let refusing = refusing.address();
    let subject = subject(Vec::new(), "authentication failed at", in_google);
    let ways = SourceAccessProxies::to(address).await?;
    let proxies = TestProxies::start().await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(proxies.cells(&subject, address, &ways)?);
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)?;
    let key = json!({"type": "service_account", "client_email": "reader@shop.example",
        "private_key_id": "1", "private_key": key.serialize_pem()});
    let key = json!({"serviceaccount": key.to_string()});
    let field = "secretRef";
    let refused = subject.failures.refused;
    cells.extend([
        plain("key-works", address).with(field, key.clone()),
        plain("key-wrong", refusing).with(field, key).fails(refused),
        plain("key-unusable", address)
            .with(field, json!({"serviceaccount": "n0-such-key"}))
            .fails(unusable("is not a JSON key")),
        plain("key-missing", address)
            .with(field, json!({"accesskey": "a"}))
            .fails(unusable("required fields 'serviceaccount'")),
    ]);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(address, &ways)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_azure_is_reached_by_every_way() -> Result<()> {
    let story = Story::begin("access-azure").await?;
    let server = AzuriteServer::start().await?;
    server.bucket(NAME).await?;
    server.put(NAME, "a.yaml", "value: 1\n").await?;
    let address = server.address().parse()?;
    let always = vec![("secretRef", json!({"accountKey": KEY}))];
    let subject = subject(always, "denied", in_azure);
    let ways = SourceAccessProxies::to(address).await?;
    let proxies = TestProxies::start().await?;
    let mut cells = over_http(&subject, address, &ways)?;
    cells.extend(proxies.cells(&subject, address, &ways)?);
    let field = "secretRef";
    let refused = subject.failures.refused;
    // An empty key counts as missing, so the signature is used.
    let signature = |signature: &str| json!({"accountKey": "", "sasKey": signature});
    let right = server.signature(NAME)?;
    let wrong = server.signature("other")?;
    let other = "aHVudGVyMjogbm90IHRoZSBrZXkgb2YgYW55Ym9keSE=";
    cells.extend([
        plain("key-wrong", address).with(field, json!({"accountKey": other})).fails(refused),
        plain("key-of-another", address)
            .with(field, json!({"accountName": "other"}))
            .fails(refused),
        plain("key-unusable", address)
            .with(field, json!({"accountKey": "n0-such-key!"}))
            .fails(unusable("`accountKey` is not base64")),
        plain("key-missing", address)
            .with(field, json!({"accountKey": ""}))
            .fails(unusable("requires a 'clientId'")),
        plain("signature-works", address).with(field, signature(&right)),
        plain("signature-wrong", address).with(field, signature(&wrong)).fails(refused),
        plain("certificate-login", address)
            .with(field, json!({"tenantId": "t", "clientId": "c", "clientCertificate": "x"}))
            .fails(unusable("'clientCertificate' is not supported")),
    ]);
    tell(&story, &subject, &cells).await?;
    proxies.ensure_used(address, &ways)?;
    story.end().await
}
