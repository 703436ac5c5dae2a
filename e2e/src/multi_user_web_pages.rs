//! The pages for a team (`windlass serve --web-only`), and what they need: an issuer of logins, the flags, and the cookies of a
//! browser.
//!
//! Stories and measurements use this. Elsewhere: how the API server trusts the issuer
//! ([`ControlPlane::trusted_issuer`](crate::control_plane::ControlPlane::trusted_issuer)), running the program
//! (`operator_process`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Form, Query, State};
use axum::response::Redirect;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize, SigningKey as _};
use reqwest::header::SET_COOKIE;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use crate::control_plane::{ApiServerOidcIssuer, LOGIN_CLIENT};

/// How long the token of a browser that comes to the issuer is valid, in seconds.
const BROWSER_TOKEN_SECONDS: i64 = 600;

/// An issuer of OpenID Connect whose users agree to each login.
pub struct OidcLoginIssuer {
    url: Mutex<String>,
    key: KeyPair,
    codes: Mutex<LoginCodes>,
    /// The user of a browser that comes to the issuer.
    user: Mutex<Option<String>>,
}

/// The codes that an issuer has issued.
#[derive(Debug, Default)]
struct LoginCodes {
    /// How many codes were issued.
    issued: u64,
    /// The claims of the token for each code, which can be used once.
    claims: BTreeMap<String, Value>,
}

impl OidcLoginIssuer {
    /// Starts an issuer over HTTP, and returns the address on which it listens. [`OidcLoginIssuer::set_url`] has to be called
    /// before the first login.
    ///
    /// # Errors
    /// There is no key, or no free port.
    pub async fn start() -> Result<(Arc<Self>, SocketAddr)> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let issuer = Arc::new(Self {
            url: Mutex::default(),
            key,
            codes: Mutex::default(),
            user: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/auth", get(authorization))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(issuer.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((issuer, address))
    }

    /// Sets the URL by which the issuer calls itself. It is known only after the issuer was started.
    pub fn set_url(&self, url: &str) {
        url.clone_into(&mut self.url.lock());
    }

    /// Agrees to a login of a user. `page` is the page of windlass that sends the browser to the issuer. The result is the
    /// address at windlass to which the issuer sends the browser back. The token is valid for this number of seconds.
    ///
    /// # Errors
    /// The page does not lead to an issuer.
    pub fn agree(&self, page: &str, user: &str, valid_seconds: i64) -> Result<String> {
        let address = page.split("content=\"0; url=").nth(1).and_then(|it| it.split('"').next());
        let address = address.with_context(|| format!("this page leads to no issuer:\n{page}"))?;
        let location = Url::parse(&address.replace("&amp;", "&"))?;
        let sent: BTreeMap<String, String> = location.query_pairs().into_owned().collect();
        let of = |name: &str| sent.get(name).with_context(|| format!("{location} lacks {name}"));
        let code = self.issue_code(user, of("nonce")?, valid_seconds);
        Ok(format!("/callback?code={code}&state={}", of("state")?))
    }

    /// Sets the user of a browser that comes to the issuer. Without a user, the issuer refuses the browser.
    pub fn answer_as(&self, user: Option<&str>) {
        *self.user.lock() = user.map(str::to_owned);
    }

    /// Makes a token, and returns the code for it.
    fn issue_code(&self, user: &str, nonce: &str, valid_seconds: i64) -> String {
        let now = jiff::Timestamp::now().as_second();
        let url = self.url.lock().clone();
        let claims = json!({"iss": url, "aud": LOGIN_CLIENT, "sub": user, "nonce": nonce,
            "iat": now, "exp": now + valid_seconds, "groups": ["developers"]});
        let mut codes = self.codes.lock();
        // A code belongs to one login. A browser that begins another login in the meantime must not use up its code.
        codes.issued += 1;
        let code = format!("code-{}-of-{user}", codes.issued);
        codes.claims.insert(code.clone(), claims);
        code
    }

    fn signed(&self, claims: &Value) -> Result<String> {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "RS256", "kid": "1"})), part(claims));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes())?);
        Ok(format!("{signed}.{signature}"))
    }
}

async fn configuration(State(issuer): State<Arc<OidcLoginIssuer>>) -> Json<Value> {
    let url = issuer.url.lock().clone();
    Json(json!({"issuer": url, "authorization_endpoint": format!("{url}/auth"),
        "token_endpoint": format!("{url}/token"), "jwks_uri": format!("{url}/keys"),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"]}))
}

/// Sends a browser back with a code at once, as an issuer does that knows the user.
async fn authorization(
    State(issuer): State<Arc<OidcLoginIssuer>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Redirect, (StatusCode, &'static str)> {
    let bad = (StatusCode::BAD_REQUEST, "the request of the login is not complete");
    let of = |name: &str| query.get(name).ok_or(bad);
    let user = issuer.user.lock().clone();
    let user = user.ok_or((StatusCode::UNAUTHORIZED, "the issuer does not know this browser"))?;
    let code = issuer.issue_code(&user, of("nonce")?, BROWSER_TOKEN_SECONDS);
    let mut back = Url::parse(of("redirect_uri")?).map_err(|_| bad)?;
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", of("state")?);
    Ok(Redirect::to(back.as_str()))
}

async fn keys(State(issuer): State<Arc<OidcLoginIssuer>>) -> Json<Value> {
    // The key is a sequence of two integers: 256 bytes after a zero byte, and 65537.
    let modulus = issuer.key.der_bytes().get(9..265).unwrap_or_default();
    let n = BASE64_URL_SAFE_NO_PAD.encode(modulus);
    Json(
        json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": n, "e": "AQAB"}]}),
    )
}

async fn token(
    State(issuer): State<Arc<OidcLoginIssuer>>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Json<Value> {
    let claims = form.get("code").and_then(|code| issuer.codes.lock().claims.remove(code));
    let token = claims.and_then(|claims| issuer.signed(&claims).ok());
    Json(json!({"id_token": token, "token_type": "Bearer"}))
}

/// The settings of a process that serves pages to users who log in.
#[derive(Debug, Clone, Copy)]
pub struct MultiUserWebPagesSettings<'a> {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The host and port that browsers use.
    pub host: &'a str,
    /// The issuer of logins.
    pub issuer: &'a ApiServerOidcIssuer,
    /// The file with the key of sessions, which all replicas share.
    pub session_key: &'a Path,
    /// The kubeconfig of the process.
    pub kubeconfig: &'a Path,
}

impl MultiUserWebPagesSettings<'_> {
    /// The command-line arguments with which `windlass` serves the web pages for several users.
    pub fn arguments(&self) -> Vec<String> {
        let Self { port, host, issuer, session_key, kubeconfig } = self;
        vec![
            "serve".to_owned(),
            "--web-only".to_owned(),
            format!("--web-addr=127.0.0.1:{port}"),
            format!("--web-url=http://{host}"),
            format!("--web-oidc-issuer-url={}", issuer.url),
            format!("--web-oidc-client-id={LOGIN_CLIENT}"),
            format!("--web-oidc-ca-file={}", issuer.authority.display()),
            format!("--web-session-key-file={}", session_key.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            // The Git servers of stories are on this machine.
            "--allow-loopback-sources".to_owned(),
            "--health-addr=127.0.0.1:0".to_owned(),
            "--metrics-addr=127.0.0.1:0".to_owned(),
        ]
    }
}

/// The cookies that a browser has received from the pages.
#[derive(Debug, Clone, Default)]
pub struct BrowserCookies(BTreeMap<String, String>);

impl BrowserCookies {
    /// Keeps the cookies of a response, and drops those that the response removes.
    ///
    /// # Errors
    /// A cookie lacks an attribute that protects it.
    pub fn keep(&mut self, reply: &Response) -> Result<()> {
        for header in reply.headers().get_all(SET_COOKIE) {
            let header = header.to_str()?;
            let safe = "; Path=/; Secure; HttpOnly; SameSite=Lax";
            ensure!(header.starts_with("__Host-") && header.contains(safe), "{header}");
            let (pair, _) = header.split_once(';').context("attributes")?;
            let (name, value) = pair.split_once('=').context("a value")?;
            match value {
                "" => self.0.remove(name),
                value => self.0.insert(name.to_owned(), value.to_owned()),
            };
        }
        Ok(())
    }

    /// The value of the header `Cookie`.
    pub fn line(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }
}
