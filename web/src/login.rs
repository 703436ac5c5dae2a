//! Logins by OpenID Connect. windlass sends the browser to the issuer. The browser returns with a code, and windlass gives it a
//! session.
//!
//! The login uses the code flow with PKCE, state and nonce. A started login and a session are kept in encrypted cookies, so any
//! replica can serve any browser. A session ends with its token, which is not renewed.
//! Below: cookies (`sealed_cookie.rs`), their content (`login_attempt.rs`, `user_session.rs`), the issuer (`issuer.rs`), the
//! verification of tokens (`id_token.rs`). Elsewhere: the API server decides what the user of a session may read.

mod id_token;
mod issuer;
mod login_attempt;
#[cfg(test)]
mod samples;
mod sealed_cookie;
mod user_session;

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode};
use objects::{RedactedValue, clean_line};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use url::Url;

use self::id_token::{ExpectedToken, VerifiedUser};
use self::issuer::{IssuerClient, IssuerClientOptions, LoginCode};
use self::login_attempt::{LoginAttempt, MAX_LOGIN_SECONDS};
use self::sealed_cookie::CookieSeal;
pub(crate) use self::user_session::UserSession;
use crate::page_query::PageQuery;
use crate::request_guard::{is_equal, secret};

/// The path that starts a login.
pub(crate) const LOGIN_PATH: &str = "/login";

/// The path to which the issuer sends the browser back.
pub(crate) const CALLBACK_PATH: &str = "/callback";

/// The path that ends a session.
pub(crate) const LOGOUT_PATH: &str = "/logout";

/// The path at which a user chooses the namespace that pages read.
pub(crate) const NAMESPACE_PATH: &str = "/namespace";

/// The name of the cookie with the namespace that the user chose.
const NAMESPACE_COOKIE: &str = "__Host-windlass-namespace";

/// How long the browser keeps the chosen namespace, in seconds.
const NAMESPACE_SECONDS: i64 = 30 * 24 * 3600;

/// The longest name of a namespace, in bytes.
const MAX_NAMESPACE_BYTES: usize = 63;

/// The longest session, in seconds, even if its token is valid for longer.
const MAX_SESSION_SECONDS: i64 = 8 * 3600;

/// How many requests to the issuer for logins may run at once.
const MAX_LOGINS_AT_ONCE: usize = 16;

/// How many finished logins, and how many ended sessions, a replica remembers.
const MAX_REMEMBERED: usize = 10_000;

/// The longest code that windlass accepts from an issuer, in bytes.
const MAX_CODE_BYTES: usize = 2048;

/// The settings of logins.
#[derive(Debug, Clone)]
pub struct LoginOptions {
    /// The address of the pages for users, without a path.
    pub base_url: String,
    /// The URL of the issuer, exactly as in its tokens.
    pub issuer: String,
    /// The client ID of windlass at the issuer. The API server has to accept tokens for this client.
    pub client_id: String,
    /// The secret of the client. `None` for a public client.
    pub client_secret: Option<RedactedValue<String>>,
    /// Certificate authorities for the issuer's certificate in PEM, in addition to those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The scopes that windlass requests in addition to `openid`.
    pub scopes: Vec<String>,
    /// The key that all replicas share to encrypt the cookies of sessions. Without it, a session works with one process only,
    /// and ends when that process ends.
    pub session_key: Option<RedactedValue<Vec<u8>>>,
}

/// Why a login failed, as a text for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginRefusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl LoginRefusal {
    fn forbidden(text: impl Into<String>) -> Self {
        let text = format!("{}. Open the first page to log in again", text.into());
        Self { status: StatusCode::FORBIDDEN, text }
    }

    fn unavailable(text: &str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: text.to_owned() }
    }

    /// The issuer, or the connection to it, failed. The details are only logged.
    fn issuer(error: &anyhow::Error) -> Self {
        tracing::error!(
            error = format!("{error:#}"),
            "a login failed: check the issuer and the flags --web-oidc-*"
        );
        let text =
            "the issuer of logins did not respond as it has to; the log of windlass says how"
                .to_owned();
        Self { status: StatusCode::BAD_GATEWAY, text }
    }
}

/// The next address of the browser in a login, and the cookies for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginRedirect {
    pub(crate) location: String,
    /// The values of the headers `Set-Cookie`.
    pub(crate) cookies: Vec<String>,
}

/// Random texts that may be used once, each with the time until which it is remembered. When there are too many, those that
/// expire first are removed.
#[derive(Default)]
struct ExpiringTokenSet(BTreeMap<String, i64>);

impl ExpiringTokenSet {
    /// Remembers a text. Returns whether the text is new.
    fn insert(&mut self, text: &str, until: i64, now: i64) -> bool {
        self.0.retain(|_, until| *until > now);
        if self.0.len() >= MAX_REMEMBERED {
            let first = self.0.iter().min_by_key(|(_, until)| **until);
            if let Some(text) = first.map(|(text, _)| text.clone()) {
                self.0.remove(&text);
            }
        }
        self.0.insert(text.to_owned(), until).is_none()
    }
}

/// Logs users in.
pub(crate) struct LoginService {
    issuer: IssuerClient,
    seal: CookieSeal,
    /// The full address of [`CALLBACK_PATH`].
    redirect: String,
    scopes: String,
    permits: Semaphore,
    /// The states of finished logins, which may not be used again.
    used: Mutex<ExpiringTokenSet>,
    /// The IDs of the sessions that users ended.
    ended: Mutex<ExpiringTokenSet>,
}

impl LoginService {
    /// Prepares logins at an issuer, for pages at an address.
    ///
    /// # Errors
    /// An address, the authorities or the key cannot be used.
    pub(crate) fn new(options: LoginOptions) -> anyhow::Result<Self> {
        let base = base_url(&options.base_url)?;
        let LoginOptions { issuer, client_id, .. } = &options;
        let seal = CookieSeal::new(
            options.session_key.as_ref(),
            format!("{base}\n{issuer}\n{client_id}"),
        )?;
        let asked = options.scopes.iter().map(String::as_str).filter(|it| *it != "openid");
        let scopes = ["openid"].into_iter().chain(asked).collect::<Vec<_>>().join(" ");
        let redirect = format!("{}{CALLBACK_PATH}", base.origin().ascii_serialization());
        let issuer = IssuerClient::new(IssuerClientOptions {
            issuer: options.issuer,
            client_id: options.client_id,
            client_secret: options.client_secret,
            authorities: options.authorities,
        })?;
        Ok(Self {
            issuer,
            seal,
            redirect,
            scopes,
            permits: Semaphore::new(MAX_LOGINS_AT_ONCE),
            used: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    /// Returns the session of a request, or `None` if the request has no valid session.
    pub(crate) fn session(&self, headers: &HeaderMap, now: i64) -> Option<UserSession> {
        let session = UserSession::of(headers, &self.seal, now)?;
        let is_ended = self.ended.lock().0.contains_key(&session.id);
        (!is_ended).then_some(session)
    }

    /// Sends a browser to the issuer. `return_to` is the page that the user wanted to open. An address that is not a page of
    /// this server is ignored.
    ///
    /// # Errors
    /// The issuer does not respond, or too many logins already wait for the issuer.
    pub(crate) async fn begin(
        &self,
        return_to: &str,
        now: i64,
    ) -> Result<LoginRedirect, LoginRefusal> {
        let _permit = self.permit()?;
        let endpoints = self.issuer.endpoints().await;
        let endpoints = endpoints.map_err(|error| LoginRefusal::issuer(&error))?;
        let attempt = LoginAttempt::new(return_to, now);
        let mut location = endpoints.authorization.clone();
        location
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", self.issuer.client_id())
            .append_pair("redirect_uri", &self.redirect)
            .append_pair("scope", &self.scopes)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        let cookie = attempt.cookie(&self.seal);
        let cookie = cookie.ok_or_else(|| LoginRefusal::unavailable("no login can begin"))?;
        Ok(LoginRedirect { location: location.into(), cookies: vec![cookie] })
    }

    /// Completes a login with the answer that the browser brings back from the issuer, and creates a session.
    ///
    /// # Errors
    /// The answer does not belong to a login of this browser, or it was used before. Or the issuer refuses the login, or its
    /// token is not valid.
    pub(crate) async fn finish(
        &self,
        headers: &HeaderMap,
        query: &PageQuery,
        now: i64,
    ) -> Result<LoginRedirect, LoginRefusal> {
        let attempt = LoginAttempt::of(headers, &self.seal, now);
        let attempt = attempt.ok_or_else(|| {
            LoginRefusal::forbidden(
                "this browser has begun no login, or did so over ten minutes ago",
            )
        })?;
        let issuer = query.get("iss");
        let is_of_issuer = issuer.is_empty() || issuer == self.issuer.issuer();
        if !is_equal(query.get("state"), &attempt.state) || !is_of_issuer {
            return Err(LoginRefusal::forbidden("this answer belongs to another login"));
        }
        if !query.get("error").is_empty() {
            let error = clean_line(query.get("error"));
            return Err(LoginRefusal::forbidden(format!("the issuer refused the login: {error}")));
        }
        let code = query.get("code");
        if code.is_empty() || code.len() > MAX_CODE_BYTES {
            return Err(LoginRefusal::forbidden("the issuer sent no code"));
        }
        let _permit = self.permit()?;
        let until = now.saturating_add(MAX_LOGIN_SECONDS);
        if !self.used.lock().insert(&attempt.state, until, now) {
            return Err(LoginRefusal::forbidden("this answer of the issuer was used before"));
        }
        let session = self.session_of(&attempt, code, now).await?;
        let cookies = session.cookies(&self.seal, now);
        let mut cookies = cookies
            .ok_or_else(|| LoginRefusal::forbidden("the token is too long for a session"))?;
        cookies.push(login_attempt::no_cookie());
        tracing::info!(subject = clean_line(&session.subject), "a user logged in to the pages");
        Ok(LoginRedirect { location: attempt.return_to, cookies })
    }

    async fn session_of(
        &self,
        attempt: &LoginAttempt,
        code: &str,
        now: i64,
    ) -> Result<UserSession, LoginRefusal> {
        let at_fault = |error: anyhow::Error| LoginRefusal::issuer(&error);
        let endpoints = self.issuer.endpoints().await.map_err(at_fault)?;
        let proof = LoginCode { code, verifier: &attempt.verifier, redirect: &self.redirect };
        let token = self.issuer.id_token(&endpoints, &proof).await.map_err(at_fault)?;
        let keys = self.issuer.keys(&endpoints).await.map_err(at_fault)?;
        let expected = ExpectedToken {
            issuer: self.issuer.issuer(),
            client_id: self.issuer.client_id(),
            nonce: &attempt.nonce,
            algorithms: &endpoints.algorithms,
            now,
        };
        let verified = id_token::verify(token.expose(), &keys, &expected);
        let VerifiedUser { subject, expires_at } = verified.map_err(|error| {
            tracing::info!(error = error.to_string(), "a login was refused");
            LoginRefusal::forbidden(error.to_string())
        })?;
        let expires_at = expires_at.min(now.saturating_add(MAX_SESSION_SECONDS));
        let id = secret();
        let form_key = self.seal.form_key(&id);
        Ok(UserSession { id, subject, token, expires_at, form_key })
    }

    /// Ends a session in this browser and in this replica. Returns the values of the headers `Set-Cookie`.
    pub(crate) fn end(&self, session: Option<&UserSession>, now: i64) -> Vec<String> {
        if let Some(UserSession { id, expires_at, .. }) = session {
            self.ended.lock().insert(id, *expires_at, now);
        }
        user_session::no_cookies()
    }

    fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LoginRefusal> {
        let text = "too many users log in at the moment; try again soon";
        self.permits.try_acquire().map_err(|_full| LoginRefusal::unavailable(text))
    }
}

/// Parses the address of the pages.
///
/// # Errors
/// The address has a path or a query, or it is neither an `https` address nor one on this machine.
pub(crate) fn base_url(text: &str) -> anyhow::Result<Url> {
    let url = issuer::secure_url(text)?;
    anyhow::ensure!(
        url.path() == "/" && url.query().is_none(),
        "`{text}` has a path: pages need a host of their own"
    );
    Ok(url)
}

/// The namespace that the user of a browser chose for pages. Empty for all namespaces. The choice grants no right.
pub(crate) fn chosen_namespace(headers: &HeaderMap) -> String {
    let chosen = sealed_cookie::cookie(headers, NAMESPACE_COOKIE).unwrap_or_default();
    if is_namespace(chosen) { chosen.to_owned() } else { String::new() }
}

/// The header `Set-Cookie` that stores the namespace that the user chose.
pub(crate) fn namespace_cookie(namespace: &str) -> String {
    match is_namespace(namespace) {
        true => sealed_cookie::set_cookie(NAMESPACE_COOKIE, namespace, NAMESPACE_SECONDS),
        false => sealed_cookie::set_cookie(NAMESPACE_COOKIE, "", 0),
    }
}

fn is_namespace(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAMESPACE_BYTES).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests;
