//! Tokens of an OpenID Connect issuer and of Google. Their keys are served on loopback.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use axum::{Json, Router, routing::get};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use rcgen::{
    KeyPair, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize, SigningKey as _,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// The issuer of tokens for Google accounts.
pub(super) const GOOGLE: &str = "https://accounts.google.com";
pub(super) const AUDIENCE: &str = "https://hooks.shop.example";
pub(super) const SUBJECT: &str = "repo:shop/app:ref:refs/heads/main";
pub(super) const EMAIL: &str = "push@shop.example";

/// The current time in seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// The claims of a valid token, with some changes.
pub(super) fn claims(issuer: &str, change: Value) -> Value {
    let mut claims = json!({"iss": issuer, "aud": AUDIENCE, "sub": SUBJECT, "email": EMAIL,
        "email_verified": true, "iat": now(), "exp": now() + 600});
    for (name, value) in change.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    claims
}

fn encoded(part: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(part.to_string())
}

/// A token that claims to be unsigned.
pub(super) fn unsigned_token(claims: &Value) -> String {
    format!("{}.{}.", encoded(&json!({"alg": "none", "kid": "1"})), encoded(claims))
}

/// The signing keys of an issuer.
pub(super) struct IssuerKeys {
    own: KeyPair,
    google: KeyPair,
}

impl IssuerKeys {
    pub(super) fn generate() -> Result<Self> {
        let own = KeyPair::generate_for(&PKCS_ED25519)?;
        let google = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        Ok(Self { own, google })
    }

    pub(super) fn token(&self, claims: &Value) -> Result<String> {
        sign(&self.own, "EdDSA", claims)
    }

    /// A token that is signed like Google's.
    pub(super) fn google_token(&self, claims: &Value) -> Result<String> {
        sign(&self.google, "RS256", claims)
    }

    fn published(&self) -> Result<[Value; 2]> {
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.own.der_bytes());
        // The key is a sequence of two integers: 256 bytes after a zero byte, and 65537.
        let modulus = self.google.der_bytes().get(9..265).context("no key of 2048 bits")?;
        let n = BASE64_URL_SAFE_NO_PAD.encode(modulus);
        Ok([
            json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "1", "x": x}),
            json!({"kty": "RSA", "alg": "RS256", "kid": "1", "n": n, "e": "AQAB"}),
        ])
    }
}

fn sign(key: &KeyPair, algorithm: &str, claims: &Value) -> Result<String> {
    let signed = format!("{}.{}", encoded(&json!({"alg": algorithm, "kid": "1"})), encoded(claims));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Serves the keys of an issuer and of Google. It ends when it is dropped.
pub(super) struct TokenIssuerServer {
    pub(super) address: SocketAddr,
    pub(super) url: String,
    pub(super) keys: IssuerKeys,
    stop: AbortHandle,
}

impl Drop for TokenIssuerServer {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl TokenIssuerServer {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let url = format!("http://{address}");
        let keys = IssuerKeys::generate()?;
        let [own, google] = keys.published()?;
        let found = json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
            "id_token_signing_alg_values_supported": ["EdDSA"]});
        let serve = |body: Value| get(async move || Json(body));
        let app = Router::new()
            .route("/.well-known/openid-configuration", serve(found))
            .route("/keys", serve(json!({"keys": [own]})))
            .route("/oauth2/v3/certs", serve(json!({"keys": [google]})));
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self { address, url, keys, stop: server.abort_handle() })
    }
}
