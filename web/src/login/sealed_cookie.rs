//! Cookies that only replicas of this installation can create and read. All replicas share a key, so each replica can read the
//! cookies of the others.
//!
//! The cookies are encrypted and authenticated with AES-256-GCM. Each cookie is bound to one purpose and one installation.
//! The keys that seal forms come from the same secret, so each replica can also check the forms of the others.
//! Elsewhere: the content of the cookies (`user_session.rs`, `login_attempt.rs`), the seals of forms (`actions/form_seal.rs`).

use anyhow::ensure;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use objects::RedactedValue;
use sha2::{Digest as _, Sha256};
use windlass_runtime::random_bytes;

/// The shortest secret that is accepted, in bytes.
const MIN_SECRET_BYTES: usize = 32;

/// The attributes of every cookie. Browsers send it to this host with TLS only, and hide it from scripts. They send it from
/// other sites only when the user follows a link.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";

/// Encrypts and decrypts the content of cookies, and derives the keys of forms.
pub(super) struct CookieSeal {
    key: RandomizedNonceKey,
    /// The key from which the keys of forms are derived.
    forms: hmac::Key,
    /// The name of the installation. Cookies of another installation with the same key are rejected.
    installation: String,
}

impl CookieSeal {
    /// Makes a seal from a secret. Without a secret, it uses a random key of this process.
    ///
    /// # Errors
    /// The secret is too short.
    pub(super) fn new(
        secret: Option<&RedactedValue<Vec<u8>>>,
        installation: String,
    ) -> anyhow::Result<Self> {
        let mut random = [0; MIN_SECRET_BYTES];
        random_bytes::fill(&mut random);
        let secret = secret.map_or(random.as_slice(), |it| it.expose().trim_ascii());
        ensure!(
            secret.len() >= MIN_SECRET_BYTES,
            "the key of sessions has {} bytes, and needs at least {MIN_SECRET_BYTES} random ones",
            secret.len()
        );
        let derived = |purpose: &str| -> [u8; 32] {
            Sha256::new().chain_update(purpose).chain_update(secret).finalize().into()
        };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &derived("windlass cookies\n"));
        let key = key.map_err(|_unspecified| anyhow::anyhow!("no key can be made"))?;
        let forms = hmac::Key::new(HMAC_SHA256, &derived("windlass forms\n"));
        Ok(Self { key, forms, installation })
    }

    /// The key that seals the forms of a session. It is the same in all replicas, and another one for each session.
    pub(super) fn form_key(&self, session: &str) -> RedactedValue<Vec<u8>> {
        let about = format!("{session}\n{}", self.installation);
        RedactedValue::new(hmac::sign(&self.forms, about.as_bytes()).as_ref().to_vec())
    }

    /// Encrypts a text for a purpose. Returns `None` if the encryption library fails.
    pub(super) fn seal(&self, purpose: &str, text: &str) -> Option<String> {
        let mut sealed = text.as_bytes().to_vec();
        let nonce = self.key.seal_in_place_append_tag(self.about(purpose), &mut sealed).ok()?;
        let nonce: &[u8; NONCE_LEN] = nonce.as_ref();
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), sealed.as_slice()].concat()))
    }

    /// Decrypts a text that was encrypted for this purpose. Returns `None` for any other text.
    pub(super) fn open(&self, purpose: &str, sealed: &str) -> Option<String> {
        let mut sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.key.open_in_place(nonce, self.about(purpose), text).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn about(&self, purpose: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("{purpose}\n{}", self.installation).into_bytes())
    }
}

/// The header `Set-Cookie` for a cookie that lasts this many seconds. With 0 seconds, the browser removes the cookie.
pub(super) fn set_cookie(name: &str, value: &str, seconds: i64) -> String {
    format!("{name}={value}; {ATTRIBUTES}; Max-Age={}", seconds.max(0))
}

/// The value of a cookie. Returns `None` unless the request contains the cookie exactly once.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
    let value = values.next();
    value.filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn seal(secret: &str, installation: &str) -> CookieSeal {
        let secret = RedactedValue::new(secret.as_bytes().to_vec());
        CookieSeal::new(Some(&secret), installation.to_owned()).unwrap()
    }

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_cookie_is_read_by_replicas_with_the_key_and_for_its_purpose_only() {
        let sealed = seal(SECRET, "a").seal("session", "who").unwrap();
        assert!(
            !sealed.contains("who") && sealed != seal(SECRET, "a").seal("session", "who").unwrap()
        );
        let lines = format!("{SECRET}\n");
        assert_eq!(seal(&lines, "a").open("session", &sealed).as_deref(), Some("who"));
        assert_eq!(seal(SECRET, "a").open("login", &sealed), None);
        assert_eq!(seal(SECRET, "b").open("session", &sealed), None);
        assert_eq!(seal(&SECRET.replace('0', "1"), "a").open("session", &sealed), None);
        let of_process = CookieSeal::new(None, "a".to_owned()).unwrap();
        assert_eq!(of_process.open("session", &sealed), None);
    }

    #[test]
    fn a_cookie_that_was_changed_is_not_read() {
        let seal = seal(SECRET, "a");
        let sealed = URL_SAFE_NO_PAD.decode(seal.seal("session", "who").unwrap()).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open("session", &URL_SAFE_NO_PAD.encode(&changed)), None, "{at}");
            assert_eq!(seal.open("session", &URL_SAFE_NO_PAD.encode(&sealed[..at])), None, "{at}");
        }
        for text in ["", "who", "=", "ä"] {
            assert_eq!(seal.open("session", text), None);
        }
    }

    #[test]
    fn replicas_seal_the_forms_of_a_session_alike_and_those_of_another_session_otherwise() {
        let key = |secret: &str, installation: &str, session: &str| {
            seal(secret, installation).form_key(session).expose().clone()
        };
        let own = key(SECRET, "a", "1");
        assert_eq!((own.len(), &own), (32, &key(&format!("{SECRET}\n"), "a", "1")));
        for other in [
            key(SECRET, "a", "2"),
            key(SECRET, "b", "1"),
            key(&SECRET.replace('0', "1"), "a", "1"),
            CookieSeal::new(None, "a".to_owned()).unwrap().form_key("1").expose().clone(),
        ] {
            assert_ne!(own, other);
        }
    }

    #[test]
    fn a_short_key_is_refused() {
        let short = RedactedValue::new(b"0123456789abcdef0123456789abcde\n".to_vec());
        assert!(CookieSeal::new(Some(&short), String::new()).is_err());
    }

    #[test]
    fn one_of_two_cookies_with_one_name_is_not_chosen() {
        let headers = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, HeaderValue::from_static(line));
            headers
        };
        assert_eq!(cookie(&headers("b=2; a=1"), "a"), Some("1"));
        assert_eq!(cookie(&headers("a=1; a=1"), "a"), None);
        assert_eq!(cookie(&headers("aa=1"), "a"), None);
    }
}
