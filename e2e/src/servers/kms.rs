//! Fake services on loopback that decrypt data keys. They are the transit engine of Vault, and the key management services of
//! AWS, Google and Azure with their logins.
//!
//! No other fake verifies everything that the clouds document: paths, headers, tokens and their audiences, signatures,
//! encryption contexts, and algorithms.
//! Elsewhere: the other logins of AWS (`aws_identity`), TLS and the host names of the clouds (`tls_proxy`, `forward_proxy`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::aws_identity::is_signed;
use super::s3::{ACCESS, SECRET};

/// The token that may use the key `shop` of Vault.
pub const VAULT_TOKEN: &str = "hvs.token-of-the-shop";
/// A token of Vault that may use only the key `other`.
pub const OTHER_TOKEN: &str = "hvs.token-of-another";
/// The secret of the application at Azure.
pub const AZURE_SECRET: &str = "azure-client-s3cret";
/// The directory of the application at Azure.
pub const AZURE_TENANT: &str = "shop.example";
/// The access token of the machine at Google.
pub const MACHINE_TOKEN: &str = "token-of-the-machine";
/// The ARN of the key at AWS.
pub const ARN: &str = "arn:aws:kms:eu-west-1:123456789012:key/shop";
/// The AWS role that may use the key.
pub const ROLE: &str = "arn:aws:iam::123456789012:role/shop";
/// The key at Google.
pub const RESOURCE: &str = "projects/shop/locations/global/keyRings/ring/cryptoKeys/shop";
/// The vault at Azure.
pub const VAULT_URL: &str = "https://shop.vault.azure.net";
/// The version of the key at Azure.
pub const VERSION: &str = "0123456789abcdef";
/// The host names of the clouds.
pub const NAMES: [&str; 6] = [
    "kms.eu-west-1.amazonaws.com",
    "sts.eu-west-1.amazonaws.com",
    "cloudkms.googleapis.com",
    "shop.vault.azure.net",
    "login.microsoftonline.com",
    "login.example",
];

/// The session token of [`ROLE`].
const SESSION: &str = "session-of-the-role";
const AZURE_TOKEN: &str = "token-for-the-vault";

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct KmsServer {
    address: SocketAddr,
    shared: Arc<Mutex<KmsServerState>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct KmsServerState {
    asked: Vec<String>,
    /// The data keys, by their encrypted form.
    keys: BTreeMap<String, Vec<u8>>,
    /// The path of requests that the server never answers.
    held: Option<String>,
}

impl KmsServer {
    /// Starts a server that answers like key management services, on a free port of this machine.
    pub async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<KmsServerState>>::default();
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self { address, shared, server })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL at which the server answers as Vault.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the server decrypt `encrypted` to `data_key` from now on.
    pub fn seal(&self, encrypted: &str, data_key: &[u8]) {
        self.shared.lock().keys.insert(encrypted.to_owned(), data_key.to_vec());
    }

    /// Stops answering requests whose path contains this text.
    pub fn hold(&self, path: &str) {
        self.shared.lock().held = Some(path.to_owned());
    }

    /// The requests since the last call, as `<method> <path>`.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().asked)
    }
}

impl Drop for KmsServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type KmsAnswer = (StatusCode, String);

fn said(status: u16, value: &Value) -> KmsAnswer {
    (StatusCode::from_u16(status).unwrap_or_default(), value.to_string())
}

async fn answer(State(shared): State<Arc<Mutex<KmsServerState>>>, request: Request) -> KmsAnswer {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let path = parts.uri.path().to_owned();
    let is_held = {
        let mut shared = shared.lock();
        shared.asked.push(format!("{} {path}", parts.method));
        shared.held.as_ref().is_some_and(|held| path.contains(held.as_str()))
    };
    if is_held {
        return std::future::pending().await;
    }
    let keys = shared.lock().keys.clone();
    let open = |encrypted: &str| keys.get(encrypted).cloned();
    if path == "/computeMetadata/v1/instance/service-accounts/default/token" {
        return said(200, &json!({"access_token": MACHINE_TOKEN, "expires_in": 3600}));
    }
    if path.ends_with("/oauth2/v2.0/token") {
        return azure_login(&path, &body);
    }
    if path.starts_with("/keys/") {
        return azure(&parts, &body, open);
    }
    if path.starts_with("/v1/projects/") {
        return google(&parts, &body, open);
    }
    if path.starts_with("/v1/") {
        return vault(&parts, &body, open);
    }
    aws(&parts, &body, open)
}

fn header<'p>(parts: &'p Parts, name: &str) -> &'p str {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn read(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_default()
}

fn vault(parts: &Parts, body: &str, open: impl Fn(&str) -> Option<Vec<u8>>) -> KmsAnswer {
    let refused = |status, why: &str| said(status, &json!({"errors": [why]}));
    let may = match header(parts, "x-vault-token") {
        VAULT_TOKEN => "/v1/team/sops/decrypt/shop",
        OTHER_TOKEN => "/v1/team/sops/decrypt/other",
        _ => return refused(403, "permission denied: invalid token"),
    };
    if parts.method != Method::PUT || parts.uri.path() != may {
        return refused(403, "1 error occurred:\n\t* permission denied\n\n");
    }
    let body = read(body);
    match open(body["ciphertext"].as_str().unwrap_or_default()) {
        Some(key) => said(200, &json!({"data": {"plaintext": BASE64_STANDARD.encode(key)}})),
        None => refused(400, "cipher: message authentication failed"),
    }
}

fn aws(parts: &Parts, body: &str, open: impl Fn(&str) -> Option<Vec<u8>>) -> KmsAnswer {
    let refused = |kind: &str, why: &str| said(400, &json!({"__type": kind, "message": why}));
    if body.contains("Action=AssumeRole&") {
        let is_ours = is_signed(&parts.headers, body, "sts")
            && header(parts, "host").starts_with("sts.eu-west-1.")
            && body.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fshop")
            && body.contains("RoleSessionName=sops%40");
        let text = if is_ours {
            format!(
                "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
                 <Credentials><AccessKeyId>{ACCESS}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
                 <SessionToken>{SESSION}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>\
                 </AssumeRoleResult></AssumeRoleResponse>"
            )
        } else {
            "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized to perform \
             sts:AssumeRole</Message></Error></ErrorResponse>"
                .to_owned()
        };
        return (if is_ours { StatusCode::OK } else { StatusCode::FORBIDDEN }, text);
    }
    if header(parts, "x-amz-target") != "TrentService.Decrypt" {
        return refused("UnknownOperationException", "what?");
    }
    if !is_signed(&parts.headers, body, "kms") {
        let why = "The request signature we calculated does not match";
        return refused("InvalidSignatureException", why);
    }
    let body = read(body);
    let is_of_role = header(parts, "x-amz-security-token") == SESSION;
    if !is_of_role || body["KeyId"] != ARN {
        return refused("AccessDeniedException", "not authorized to perform: kms:Decrypt");
    }
    let blob = body["CiphertextBlob"].as_str().unwrap_or_default();
    let key = decoded(blob).and_then(|encrypted| open(&encrypted));
    match key.filter(|_| body["EncryptionContext"] == json!({"app": "shop"})) {
        Some(key) => said(200, &json!({"KeyId": ARN, "Plaintext": BASE64_STANDARD.encode(key)})),
        None => refused("InvalidCiphertextException", ""),
    }
}

fn decoded(base64: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(base64).ok()?).ok()
}

fn google(parts: &Parts, body: &str, open: impl Fn(&str) -> Option<Vec<u8>>) -> KmsAnswer {
    let refused = |status: u16, why: &str| said(status, &json!({"error": {"message": why}}));
    let bearer = header(parts, "authorization").strip_prefix("Bearer ").unwrap_or_default();
    // A service account signs the token itself, and the scope covers all services.
    let claims = bearer.split('.').nth(1).and_then(|it| BASE64_URL_SAFE_NO_PAD.decode(it).ok());
    let claims = read(&String::from_utf8_lossy(&claims.unwrap_or_default()));
    let is_account = claims["scope"] == "https://www.googleapis.com/auth/cloud-platform";
    if bearer != MACHINE_TOKEN && !is_account {
        return refused(401, "Request had invalid authentication credentials.");
    }
    if parts.method != Method::POST || parts.uri.path() != format!("/v1/{RESOURCE}:decrypt") {
        return refused(403, "Permission 'cloudkms.cryptoKeyVersions.useToDecrypt' denied");
    }
    let body = read(body);
    let key = decoded(body["ciphertext"].as_str().unwrap_or_default());
    match key.and_then(|encrypted| open(&encrypted)) {
        Some(key) => said(200, &json!({"plaintext": BASE64_STANDARD.encode(key)})),
        None => refused(400, "Decryption failed: the ciphertext is invalid."),
    }
}

fn azure_login(path: &str, form: &str) -> KmsAnswer {
    let is_ours = path == format!("/{AZURE_TENANT}/oauth2/v2.0/token")
        && form.contains(&format!("client_secret={AZURE_SECRET}"))
        && form.contains("scope=https%3A%2F%2Fvault.azure.net%2F.default");
    if !is_ours {
        let why = format!("AADSTS7000215: Invalid client secret provided in {form}");
        return said(401, &json!({"error": "invalid_client", "error_description": why}));
    }
    said(200, &json!({"access_token": AZURE_TOKEN, "expires_in": 3600, "token_type": "Bearer"}))
}

fn azure(parts: &Parts, body: &str, open: impl Fn(&str) -> Option<Vec<u8>>) -> KmsAnswer {
    let refused = |status, code: &str, why: &str| {
        said(status, &json!({"error": {"code": code, "message": why}}))
    };
    if header(parts, "authorization") != format!("Bearer {AZURE_TOKEN}") {
        return refused(401, "Unauthorized", "AKV10032: Invalid issuer.");
    }
    let is_right = parts.method == Method::POST
        && parts.uri.path() == format!("/keys/shop/{VERSION}/decrypt")
        && parts.uri.query().is_some_and(|query| query.starts_with("api-version=7."));
    if !is_right {
        return refused(404, "KeyNotFound", "A key with this name was not found.");
    }
    let body = read(body);
    let value = BASE64_URL_SAFE_NO_PAD.decode(body["value"].as_str().unwrap_or_default());
    let key = value.ok().and_then(|value| open(&String::from_utf8_lossy(&value)));
    match key.filter(|_| body["alg"] == "RSA-OAEP-256") {
        Some(key) => said(200, &json!({"kid": "", "value": BASE64_URL_SAFE_NO_PAD.encode(key)})),
        None => refused(400, "BadParameter", "The parameter is incorrect."),
    }
}
