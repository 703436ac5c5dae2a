//! Where machines and pods of AWS get their credentials, on loopback: the metadata of an instance, the credentials of a
//! container or pod, the token service.
//!
//! Every way hands out the same keys, so that a server which checks signatures tells whether they arrived.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::s3::{ACCESS, SECRET};

/// The token that containers must show.
pub const POD_TOKEN: &str = "token-of-the-pod";
/// The web identity that is exchanged.
pub const WEB_IDENTITY: &str = "token-of-the-service-account";
/// None: the server takes no keys of a session.
const SESSION: &str = "";
const METADATA_TOKEN: &str = "token-of-the-instance";

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct AwsIdentity {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    server: tokio::task::JoinHandle<()>,
}

impl AwsIdentity {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let app = Router::new().fallback(answer).with_state(asked.clone());
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self { port, asked, server })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What was asked: `<method> <path>`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for AwsIdentity {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(asked): State<Arc<Mutex<Vec<String>>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {path}", parts.method));
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
    StatusCode::NOT_FOUND.into_response()
}
