//! Fake AWS services on loopback from which machines and Pods get credentials: instance metadata, container credentials, the
//! token service, and the registry login service. The token service also has MinIO's action for directory users.
//!
//! All services give the same keys, so a server that verifies signatures shows whether the keys arrived.
//! The login service verifies signatures itself. It returns the login of the test bed's registry, because there is no fake of
//! AWS's registry.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::registry::{PASSWORD, USER};
use super::s3::{ACCESS, SECRET, hex, hmac};

/// The token that containers must send.
pub const POD_TOKEN: &str = "token-of-the-pod";
/// The web identity token that clients exchange for keys.
pub const WEB_IDENTITY: &str = "token-of-the-service-account";
/// The directory user who gets keys.
pub const LDAP_USER: &str = "uid=app,dc=example,dc=com";
/// The password of [`LDAP_USER`].
pub const LDAP_PASSWORD: &str = "d1rectory & passw0rd";
/// Empty, because the test server accepts no session tokens.
const SESSION: &str = "";
const METADATA_TOKEN: &str = "token-of-the-instance";

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct AwsIdentityServer {
    address: SocketAddr,
    shared: Arc<Mutex<AwsIdentityServerState>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct AwsIdentityServerState {
    asked: Vec<String>,
    /// The passwords that the login service returns before the right one.
    stale: Vec<String>,
}

impl AwsIdentityServer {
    /// Starts a server that answers like the login services of AWS, on a free port of this machine.
    pub async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<AwsIdentityServerState>>::default();
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self { address, shared, server })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, as `<method> <path>`.
    pub fn asked(&self) -> Vec<String> {
        self.shared.lock().asked.clone()
    }

    /// Makes the next registry logins return these passwords, as if AWS had revoked them meanwhile.
    pub fn give_first(&self, passwords: &[&str]) {
        self.shared.lock().stale = passwords.iter().rev().map(|&it| it.to_owned()).collect();
    }
}

impl Drop for AwsIdentityServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    State(shared): State<Arc<Mutex<AwsIdentityServerState>>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    shared.lock().asked.push(format!("{} {path}", parts.method));
    let has = |headers: &HeaderMap, name: &str, value: &str| {
        headers.get(name).is_some_and(|it| it == value)
    };
    let expiration =
        (Timestamp::now() + SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%SZ");
    let keys = json!({
        "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
        "AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Token": SESSION, "Expiration": expiration.to_string(),
    });
    let role = "/latest/meta-data/iam/security-credentials/";
    if parts.method == Method::PUT && path == "/latest/api/token" {
        return ([("x-aws-ec2-metadata-token-ttl-seconds", "21600")], METADATA_TOKEN)
            .into_response();
    }
    if path.starts_with("/latest/") {
        if !has(&parts.headers, "x-aws-ec2-metadata-token", METADATA_TOKEN) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        return match path.strip_prefix(role) {
            Some("") => "the-role".into_response(),
            Some("the-role") => keys.to_string().into_response(),
            _ => StatusCode::NOT_FOUND.into_response(),
        };
    }
    if path == "/v1/credentials" {
        if !has(&parts.headers, "authorization", POD_TOKEN) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        return keys.to_string().into_response();
    }
    let form = axum::body::to_bytes(body, 1 << 16).await.unwrap_or_default();
    let form = String::from_utf8_lossy(&form).into_owned();
    if let Some(target) = parts.headers.get("x-amz-target") {
        let password = shared.lock().stale.pop();
        let password = password.as_deref().unwrap_or(PASSWORD);
        return login(&parts.headers, target.to_str().unwrap_or_default(), &form, password);
    }
    if path == "/" && form.contains("Action=AssumeRoleWithWebIdentity") {
        if !form.contains(&format!("WebIdentityToken={WEB_IDENTITY}")) {
            let text = "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>\
                        <Message>No such token</Message></Error></ErrorResponse>";
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
        return format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>\
             <AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser><Credentials><AccessKeyId>{ACCESS}</AccessKeyId>\
             <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{SESSION}</SessionToken>\
             <Expiration>{expiration}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
             </AssumeRoleWithWebIdentityResponse>"
        )
        .into_response();
    }
    if path == "/" && form.contains("Action=AssumeRoleWithLDAPIdentity") {
        return of_directory(&form, &expiration);
    }
    StatusCode::NOT_FOUND.into_response()
}

/// The keys for a directory user, in MinIO's format.
fn of_directory(form: &str, expiration: &impl Display) -> Response {
    let sent: Vec<(String, String)> = url_pairs(form);
    let is_sent = |key: &str, value: &str| sent.iter().any(|(k, v)| k == key && v == value);
    if !is_sent("Version", "2011-06-15")
        || !is_sent("LDAPUsername", LDAP_USER)
        || !is_sent("LDAPPassword", LDAP_PASSWORD)
    {
        let text = "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type></Type>\
                    <Code>InvalidParameterValue</Code><Message>LDAP server error: no such user</Message></Error>\
                    </ErrorResponse>";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<AssumeRoleWithLDAPIdentityResponse \
         xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleWithLDAPIdentityResult><Credentials>\
         <AccessKeyId>{ACCESS}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
         <Expiration>{expiration}</Expiration><SessionToken>{SESSION}</SessionToken></Credentials>\
         </AssumeRoleWithLDAPIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>\
         </AssumeRoleWithLDAPIdentityResponse>"
    )
    .into_response()
}

/// The keys and values of a form.
fn url_pairs(form: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://form/?{form}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

/// A login for the test registry in ECR's format, if the request is signed with the test keys.
fn login(headers: &HeaderMap, target: &str, body: &str, password: &str) -> Response {
    let refused = |kind: &str| {
        let text = json!({"__type": kind, "message": "not for you"}).to_string();
        (StatusCode::BAD_REQUEST, text).into_response()
    };
    if target != "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken" {
        return refused("UnknownOperationException");
    }
    if !is_signed(headers, body, "ecr") {
        return refused("InvalidSignatureException");
    }
    let token = BASE64_STANDARD.encode(format!("{USER}:{password}"));
    let until = (Timestamp::now() + SignedDuration::from_hours(12)).as_second();
    let data =
        json!([{"authorizationToken": token, "expiresAt": until, "proxyEndpoint": "https://x"}]);
    json!({"authorizationData": data}).to_string().into_response()
}

/// Whether a POST to `/` is signed with the test keys (AWS Signature Version 4).
pub(super) fn is_signed(headers: &HeaderMap, body: &str, service: &str) -> bool {
    let header = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let authorization = header("authorization");
    let part = |name: &str| {
        let rest = authorization.split_once(&format!("{name}="))?.1;
        Some(rest.split(',').next().unwrap_or_default().trim().to_owned())
    };
    let (Some(credential), Some(names), Some(signature)) =
        (part("Credential"), part("SignedHeaders"), part("Signature"))
    else {
        return false;
    };
    let scope: Vec<&str> = credential.split('/').collect();
    let [ACCESS, date, region, named, "aws4_request"] = scope.as_slice() else { return false };
    let lines: String = names.split(';').map(|name| format!("{name}:{}\n", header(name))).collect();
    let digest = hex(&Sha256::digest(body));
    let canonical = hex(&Sha256::digest(format!("POST\n/\n\n{lines}\n{names}\n{digest}")));
    let time = header("x-amz-date");
    let text =
        format!("AWS4-HMAC-SHA256\n{time}\n{date}/{region}/{named}/aws4_request\n{canonical}");
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in [date, region, named, &"aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    *named == service
        && names.split(';').any(|name| name == "host")
        && hex(&hmac(&key, text.as_bytes())) == signature
}
