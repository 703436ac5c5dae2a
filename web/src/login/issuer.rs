//! The requests to the OpenID Connect issuer: its endpoints, its keys, and the token for a code.
//!
//! A flag gives the address of the issuer. The endpoints that the issuer names have to use `https`, too. windlass does not
//! follow redirects.
//! Elsewhere: the verification of tokens (`id_token.rs`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use http_client::{EgressRules, HttpClient, TlsConfig, TlsTrust};
use objects::{RedactedValue, clean_line};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::{Host, Url};

use super::id_token::ALGORITHMS;

/// How long the issuer may take to answer a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer of the issuer, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// How long windlass keeps the list of the issuer's endpoints.
const ENDPOINTS_LIFETIME: Duration = Duration::from_secs(600);

/// How a client authenticates, unless the issuer supports only other methods.
const BASIC: &str = "client_secret_basic";

/// The signature algorithm of tokens if the issuer announces none.
const DEFAULT_ALGORITHM: &str = "RS256";

/// The settings of a client of an issuer.
#[derive(Debug, Clone)]
pub(super) struct IssuerClientOptions {
    /// The URL of the issuer, exactly as in its tokens.
    pub(super) issuer: String,
    pub(super) client_id: String,
    /// The secret of the client. `None` for a public client, which PKCE protects.
    pub(super) client_secret: Option<RedactedValue<String>>,
    /// Certificate authorities in PEM, in addition to those of the system.
    pub(super) authorities: Option<Vec<u8>>,
}

/// The endpoints of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuerEndpoints {
    pub(super) authorization: Url,
    token: Url,
    keys: Url,
    /// The accepted signature algorithms that the issuer announces.
    pub(super) algorithms: Vec<String>,
    /// Whether the client sends its secret in the body instead of in a header.
    is_secret_in_body: bool,
}

/// The endpoints that were read last, and when.
struct CachedIssuerEndpoints {
    read_at: Instant,
    endpoints: Arc<IssuerEndpoints>,
}

/// The code of a login, and what proves to the issuer that windlass may use it.
pub(super) struct LoginCode<'c> {
    pub(super) code: &'c str,
    pub(super) verifier: &'c str,
    pub(super) redirect: &'c str,
}

/// Sends requests to an issuer.
pub(super) struct IssuerClient {
    http: HttpClient,
    options: IssuerClientOptions,
    kept: Mutex<Option<CachedIssuerEndpoints>>,
}

impl IssuerClient {
    /// Makes a client. It sends no request yet.
    ///
    /// # Errors
    /// The address of the issuer or its authorities cannot be used.
    pub(super) fn new(options: IssuerClientOptions) -> anyhow::Result<Self> {
        secure_url(&options.issuer).context("the issuer of logins")?;
        let tls = TlsConfig { ca: options.authorities.clone(), ..TlsConfig::default() };
        let http =
            http_client::client_trusting(&tls, TlsTrust::Beside, None, &EgressRules::Anywhere)?;
        Ok(Self { http, options, kept: Mutex::new(None) })
    }

    /// The URL of the issuer, as in its tokens.
    pub(super) fn issuer(&self) -> &str {
        &self.options.issuer
    }

    pub(super) fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Returns the endpoints of the issuer.
    ///
    /// # Errors
    /// The issuer does not respond, or its URL differs from the flag.
    pub(super) async fn endpoints(&self) -> anyhow::Result<Arc<IssuerEndpoints>> {
        // One login reads the endpoints for all waiting logins. The time limit keeps the last login from waiting for the
        // attempts of all others.
        let turn = timeout(REQUEST_TIMEOUT, self.kept.lock()).await;
        let mut kept = turn.context("other logins wait for the issuer")?;
        if let Some(kept) = kept.as_ref().filter(|it| it.read_at.elapsed() < ENDPOINTS_LIFETIME) {
            return Ok(kept.endpoints.clone());
        }
        let base = self.options.issuer.trim_end_matches('/');
        let address = secure_url(&format!("{base}/.well-known/openid-configuration"))?;
        let found = self.ask(&address, None).await.context("the configuration of the issuer")?;
        let endpoints = Arc::new(endpoints_of(&found, &self.options.issuer)?);
        *kept =
            Some(CachedIssuerEndpoints { read_at: Instant::now(), endpoints: endpoints.clone() });
        Ok(endpoints)
    }

    /// Reads the keys that the issuer currently publishes.
    ///
    /// # Errors
    /// The issuer does not respond.
    pub(super) async fn keys(&self, endpoints: &IssuerEndpoints) -> anyhow::Result<Vec<Value>> {
        let found = self.ask(&endpoints.keys, None).await.context("the keys of the issuer")?;
        Ok(found.get("keys").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// Exchanges the code of a login for the ID token. The issuer accepts each code once.
    ///
    /// # Errors
    /// The issuer refuses the code, or does not respond.
    pub(super) async fn id_token(
        &self,
        endpoints: &IssuerEndpoints,
        login: &LoginCode<'_>,
    ) -> anyhow::Result<RedactedValue<String>> {
        let form = self.code_form(endpoints, login);
        let answer =
            self.ask(&endpoints.token, Some(form)).await.context("the code of the login")?;
        let token = answer.get("id_token").and_then(Value::as_str);
        let token = token.context("the issuer gave no ID token: the scope `openid` is needed")?;
        Ok(RedactedValue::new(token.to_owned()))
    }

    /// The form that exchanges the code of a login for an ID token.
    fn code_form(&self, endpoints: &IssuerEndpoints, login: &LoginCode<'_>) -> IssuerRequestForm {
        let IssuerClientOptions { client_id, client_secret, .. } = &self.options;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", login.code)
            .append_pair("redirect_uri", login.redirect)
            .append_pair("code_verifier", login.verifier)
            .append_pair("client_id", client_id);
        let in_body = client_secret.as_ref().filter(|_| endpoints.is_secret_in_body);
        if let Some(secret) = in_body {
            form.append_pair("client_secret", secret.expose());
        }
        IssuerRequestForm { body: form.finish(), has_credentials: in_body.is_some() }
    }

    /// Sends a GET request, or a form, to the issuer and returns the answer.
    async fn ask(&self, address: &Url, form: Option<IssuerRequestForm>) -> anyhow::Result<Value> {
        let request = match form {
            None => self.http.get(address.clone()),
            Some(IssuerRequestForm { body, has_credentials }) => {
                let request = self.http.post(address.clone()).body(body);
                let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                match &self.options.client_secret {
                    Some(secret) if !has_credentials => {
                        let name = form_encoded(&self.options.client_id);
                        request.basic_auth(name, Some(form_encoded(secret.expose())))
                    }
                    _ => request,
                }
            }
        };
        let request = request.timeout(REQUEST_TIMEOUT).header(ACCEPT, "application/json");
        let host = address.host_str().unwrap_or_default();
        let unanswered = || format!("{host} does not respond");
        let mut answer =
            request.send().await.map_err(|it| it.without_url()).with_context(unanswered)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) =
            answer.chunk().await.map_err(|it| it.without_url()).with_context(unanswered)?
        {
            ensure!(
                body.len() + piece.len() <= MAX_ANSWER_BYTES,
                "the answer of {host} is too long"
            );
            body.extend_from_slice(&piece);
        }
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        if !status.is_success() {
            let error = value.as_ref().and_then(|it| it.get("error")).and_then(Value::as_str);
            bail!("{host} refuses it: {status} {}", clean_line(error.unwrap_or_default()));
        }
        value.with_context(|| format!("the answer of {host} is no JSON"))
    }
}

/// A form that is posted to the issuer.
struct IssuerRequestForm {
    body: String,
    /// Whether the form contains the secret of the client.
    has_credentials: bool,
}

/// Encodes a text like a form field. The standard requires this before the text is put into the header `Authorization`.
fn form_encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Parses an address that is safe against eavesdropping and tampering: `https`, or `http` on this machine.
///
/// # Errors
/// The text is no such address.
pub(super) fn secure_url(text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text).with_context(|| format!("`{text}` is not a URL"))?;
    let is_own = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let is_secure = url.scheme() == "https" || (url.scheme() == "http" && is_own);
    let is_plain = url.username().is_empty() && url.password().is_none();
    ensure!(
        is_secure && is_plain && url.fragment().is_none(),
        "`{text}` is not an https URL without credentials and fragment"
    );
    Ok(url)
}

fn endpoints_of(found: &Value, issuer: &str) -> anyhow::Result<IssuerEndpoints> {
    let text = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
    let named = text("issuer");
    ensure!(named == issuer, "the issuer calls itself `{}`, not `{issuer}`", clean_line(named));
    let url = |name: &str| secure_url(text(name)).with_context(|| format!("{name} of the issuer"));
    let list = |name: &str| -> Vec<&str> {
        let values = found.get(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).collect()
    };
    let mut algorithms = list("id_token_signing_alg_values_supported");
    if algorithms.is_empty() {
        algorithms.push(DEFAULT_ALGORITHM);
    }
    algorithms.retain(|it| ALGORITHMS.contains(it));
    let ways = list("token_endpoint_auth_methods_supported");
    Ok(IssuerEndpoints {
        authorization: url("authorization_endpoint")?,
        token: url("token_endpoint")?,
        keys: url("jwks_uri")?,
        algorithms: algorithms.into_iter().map(str::to_owned).collect(),
        is_secret_in_body: !ways.is_empty() && !ways.contains(&BASIC),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(name: &str, value: Value) -> Value {
        let mut found = json!({"issuer": "https://issuer.example",
            "authorization_endpoint": "https://issuer.example/auth",
            "token_endpoint": "https://issuer.example/token",
            "jwks_uri": "https://keys.example/keys"});
        found[name] = value;
        found
    }

    #[test]
    fn only_what_is_encrypted_or_on_this_machine_is_asked() {
        for good in
            ["https://a.example/x", "http://127.0.0.1:1/x", "http://[::1]/", "http://localhost/"]
        {
            assert!(secure_url(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "http://a.example/",
            "http://localhost.example/",
            "https://u:p@a.example/",
            "ftp://a/",
            "https://a.example/#x",
            "javascript:alert(1)",
        ] {
            assert!(secure_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_issuer_is_what_the_flag_says_and_names_secure_addresses() {
        let of = |name: &str, value: Value| {
            endpoints_of(&configuration(name, value), "https://issuer.example")
        };
        let plain = of("x", json!(1)).unwrap();
        assert_eq!(plain.algorithms, ["RS256"]);
        assert!(!plain.is_secret_in_body);
        let named = json!(["none", "HS256", "ES256", "RS256"]);
        let named = of("id_token_signing_alg_values_supported", named).unwrap();
        assert_eq!(named.algorithms, ["ES256", "RS256"]);
        let ways = of("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
        assert!(ways.unwrap().is_secret_in_body);
        assert!(of("issuer", json!("https://evil.example")).is_err());
        assert!(of("issuer", json!("https://issuer.example/")).is_err());
        for name in ["authorization_endpoint", "token_endpoint", "jwks_uri"] {
            assert!(of(name, json!("http://issuer.example/x")).is_err(), "{name}");
            assert!(of(name, json!(null)).is_err(), "{name}");
        }
    }
}
