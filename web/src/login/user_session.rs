//! The session of a user who has logged in, and how it is split into cookies.
//!
//! The token belongs to the user. windlass sends it to the API server with each request. Elsewhere: encryption
//! (`sealed_cookie.rs`).

use axum::http::HeaderMap;
use objects::RedactedValue;
use serde_json::{Value, json};

use super::sealed_cookie::{CookieSeal, cookie, set_cookie};

/// The purpose of the cookies of sessions.
const PURPOSE: &str = "session";

/// The prefix of the cookie names. Browsers accept cookies with `__Host-` only from this host and only with TLS.
const NAME: &str = "__Host-windlass-session-";

/// The maximum number of cookies of a session. Browsers keep 4096 bytes of each cookie.
const MAX_PIECES: usize = 4;

/// The longest piece in one cookie, in bytes.
const PIECE_BYTES: usize = 3800;

/// A user who has logged in.
#[derive(Debug, Clone)]
pub(crate) struct UserSession {
    /// A random ID, which distinguishes sessions.
    pub(crate) id: String,
    /// The subject: the issuer's ID of the user.
    pub(crate) subject: String,
    /// The ID token, which the API server verifies.
    pub(crate) token: RedactedValue<String>,
    /// When the session ends, in seconds since 1970. It never ends after the token.
    pub(crate) expires_at: i64,
    /// The key that seals the forms of this session. It is derived from the key of the replicas, and is not in the cookies.
    pub(crate) form_key: RedactedValue<Vec<u8>>,
}

impl UserSession {
    /// The headers `Set-Cookie` for a session. Returns `None` if the session is too long for the cookies.
    pub(super) fn cookies(&self, seal: &CookieSeal, now: i64) -> Option<Vec<String>> {
        let Self { id, subject, token, expires_at, .. } = self;
        let content = json!({"id": id, "sub": subject, "token": token.expose(), "exp": expires_at});
        let sealed = seal.seal(PURPOSE, &content.to_string())?;
        let pieces: Vec<&str> = pieces(&sealed);
        let seconds = expires_at.saturating_sub(now);
        (pieces.len() <= MAX_PIECES).then(|| {
            let all = (0..MAX_PIECES).map(|at| match pieces.get(at) {
                Some(piece) => set_cookie(&name(at), piece, seconds),
                // Removes a cookie of an earlier, longer session.
                None => set_cookie(&name(at), "", 0),
            });
            all.collect()
        })
    }

    /// The session of a request, if the session has not ended.
    pub(super) fn of(headers: &HeaderMap, seal: &CookieSeal, now: i64) -> Option<Self> {
        let pieces = (0..MAX_PIECES).map_while(|at| cookie(headers, &name(at)));
        let content = seal.open(PURPOSE, &pieces.collect::<String>())?;
        let content: Value = serde_json::from_str(&content).ok()?;
        let text = |name: &str| Some(content.get(name)?.as_str()?.to_owned());
        let id = text("id")?;
        let session = Self {
            form_key: seal.form_key(&id),
            id,
            subject: text("sub")?,
            token: RedactedValue::new(text("token")?),
            expires_at: content.get("exp")?.as_i64()?,
        };
        (session.expires_at > now).then_some(session)
    }
}

/// The headers `Set-Cookie` that remove a session from the browser.
pub(super) fn no_cookies() -> Vec<String> {
    (0..MAX_PIECES).map(|at| set_cookie(&name(at), "", 0)).collect()
}

fn name(at: usize) -> String {
    format!("{NAME}{at}")
}

/// Splits an ASCII text into pieces.
fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while let Some((piece, more)) = rest.split_at_checked(PIECE_BYTES) {
        pieces.push(piece);
        rest = more;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::COOKIE;

    use super::*;

    fn session(token: String) -> UserSession {
        let token = RedactedValue::new(token);
        let form_key = RedactedValue::default();
        let [id, subject] = ["1", "alice"].map(str::to_owned);
        UserSession { id, subject, token, expires_at: 1000, form_key }
    }

    fn returned(cookies: &[String]) -> HeaderMap {
        let pairs = cookies.iter().filter_map(|it| it.split_once(';')).map(|(pair, _)| pair);
        let pairs = pairs.filter(|it| !it.ends_with('='));
        let line = pairs.collect::<Vec<_>>().join("; ");
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(&line).unwrap());
        headers
    }

    #[test]
    fn a_session_comes_back_from_its_cookies_until_it_ends() {
        let seal = CookieSeal::new(None, String::new()).unwrap();
        for length in [10, 3000, 8192] {
            let token = "t".repeat(length);
            let cookies = session(token.clone()).cookies(&seal, 900).unwrap();
            assert_eq!(cookies.len(), MAX_PIECES);
            for cookie in &cookies {
                assert!(cookie.len() < 4096 && !cookie.contains("tttttt"), "{cookie}");
                assert!(cookie.starts_with("__Host-"), "{cookie}");
                assert!(cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Lax; "), "{cookie}");
            }
            assert!(cookies[0].ends_with("Max-Age=100"));
            let headers = returned(&cookies);
            let back = UserSession::of(&headers, &seal, 999).unwrap();
            assert_eq!((back.subject.as_str(), back.token.expose()), ("alice", &token));
            assert_eq!(back.form_key, seal.form_key("1"));
            assert!(UserSession::of(&headers, &seal, 1000).is_none());
        }
        assert!(session("t".repeat(20_000)).cookies(&seal, 900).is_none());
        assert!(UserSession::of(&HeaderMap::new(), &seal, 0).is_none());
    }

    #[test]
    fn a_session_prints_no_token() {
        assert!(!format!("{:?}", session("hunter2".to_owned())).contains("hunter2"));
    }
}
