//! A signing key of an issuer, and ID tokens, for tests of logins. Sessions without a login, for tests of pages.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use objects::RedactedValue;
use serde_json::{Value, json};

use super::{LoginService, UserSession};

pub(super) const ISSUER: &str = "https://issuer.example";
pub(super) const CLIENT: &str = "windlass";

/// A key of an issuer.
pub(super) struct IssuerSigningKey(EcdsaKeyPair);

impl IssuerSigningKey {
    pub(super) fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    pub(super) fn public_bytes(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    /// The public key as the issuer publishes it.
    pub(super) fn published(&self, id: &str) -> Value {
        let point = self.public_bytes();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "use": "sig",
            "x": part(&point[1..33]), "y": part(&point[33..])})
    }

    pub(super) fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The header of a token that is signed by the key `1`.
pub(super) fn header() -> Value {
    json!({"alg": "ES256", "kid": "1"})
}

impl LoginService {
    /// A session that no login created. The API server of the test does not verify its token.
    pub(crate) fn sample_session(&self, subject: &str, expires_at: i64) -> UserSession {
        let id = format!("session-of-{subject}");
        let token = RedactedValue::new(format!("token-of-{subject}"));
        let form_key = self.seal.form_key(&id);
        UserSession { id, subject: subject.to_owned(), token, expires_at, form_key }
    }

    /// The header `Cookie` of a browser that has a session.
    pub(crate) fn sample_cookies(&self, session: &UserSession, now: i64) -> String {
        let cookies = session.cookies(&self.seal, now).unwrap();
        let pairs = cookies.iter().filter_map(|it| it.split_once(';')).map(|(pair, _)| pair);
        pairs.filter(|it| !it.ends_with('=')).collect::<Vec<_>>().join("; ")
    }
}
