//! A started login. The values that the browser brings back from the issuer have to belong to it.
//!
//! The login is kept in a cookie of the browser, so the browser may return to another replica.
//! Elsewhere: encryption (`sealed_cookie.rs`), the two requests of a login (`login.rs`).

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::sealed_cookie::{CookieSeal, cookie, set_cookie};
use crate::href::Href;
use crate::request_guard::secret;

const PURPOSE: &str = "login";

const NAME: &str = "__Host-windlass-login";

/// How long a login may take, in seconds. The user may have to type a password.
pub(super) const MAX_LOGIN_SECONDS: i64 = 600;

/// The values that identify a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoginAttempt {
    /// The random state. The browser brings it back with the issuer's answer.
    pub(super) state: String,
    /// The random nonce. The issuer puts it into the token.
    pub(super) nonce: String,
    /// The PKCE verifier. It proves to the issuer that the party that uses the code also began the login.
    pub(super) verifier: String,
    /// The page to which the browser returns after the login.
    pub(super) return_to: String,
    began_at: i64,
}

impl LoginAttempt {
    /// Begins a login for a page.
    pub(super) fn new(return_to: &str, now: i64) -> Self {
        let return_to = Href::page_at(return_to).as_str().to_owned();
        Self { state: secret(), nonce: secret(), verifier: secret(), return_to, began_at: now }
    }

    /// The PKCE challenge: the digest of [`Self::verifier`], which the issuer receives when the login begins.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }

    /// The header `Set-Cookie` with this login. `None` if the encryption library fails.
    pub(super) fn cookie(&self, seal: &CookieSeal) -> Option<String> {
        let Self { state, nonce, verifier, return_to, began_at } = self;
        let content = json!({"state": state, "nonce": nonce, "verifier": verifier,
            "return": return_to, "at": began_at});
        let sealed = seal.seal(PURPOSE, &content.to_string())?;
        Some(set_cookie(NAME, &sealed, MAX_LOGIN_SECONDS))
    }

    /// The login that the browser of a request began, if the login has not expired.
    pub(super) fn of(headers: &HeaderMap, seal: &CookieSeal, now: i64) -> Option<Self> {
        let content = seal.open(PURPOSE, cookie(headers, NAME)?)?;
        let content: Value = serde_json::from_str(&content).ok()?;
        let text = |name: &str| Some(content.get(name)?.as_str()?.to_owned());
        let attempt = Self {
            state: text("state")?,
            nonce: text("nonce")?,
            verifier: text("verifier")?,
            return_to: text("return")?,
            began_at: content.get("at")?.as_i64()?,
        };
        (0..MAX_LOGIN_SECONDS).contains(&now.saturating_sub(attempt.began_at)).then_some(attempt)
    }
}

/// The header `Set-Cookie` that removes a login from the browser.
pub(super) fn no_cookie() -> String {
    set_cookie(NAME, "", 0)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::COOKIE;

    use super::*;

    #[test]
    fn a_login_comes_back_with_its_cookie_for_ten_minutes() {
        let seal = CookieSeal::new(None, String::new()).unwrap();
        let attempt = LoginAttempt::new("/me", 1000);
        let header = attempt.cookie(&seal).unwrap();
        assert!(header.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=600"));
        let pair = header.split_once(';').unwrap().0;
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(pair).unwrap());
        assert_eq!(LoginAttempt::of(&headers, &seal, 1599), Some(attempt.clone()));
        assert_eq!(LoginAttempt::of(&headers, &seal, 1600), None);
        assert_eq!(LoginAttempt::of(&headers, &seal, 999), None);
        let other = CookieSeal::new(None, String::new()).unwrap();
        assert_eq!(LoginAttempt::of(&headers, &other, 1000), None);
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = LoginAttempt { verifier, ..LoginAttempt::new("/", 0) };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
