//! Verifies ID tokens. A token has to be signed by a key of the issuer, issued for this client and this login, and not expired.
//!
//! Source of the semantics: OpenID Connect Core 1.0, section 3.1.3.7, and the algorithms that the API server accepts.
//! Elsewhere: signatures (`notify::json_web_token_signature`), keys (`issuer.rs`).

use notify::json_web_token_signature::UnverifiedJwt;
use serde_json::Value;

use crate::request_guard::is_equal;

/// The accepted signature algorithms. The API server accepts the same ones, all with a public key.
pub(super) const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"];

/// The longest token, in bytes. It has to fit into the cookies together with the other fields of the session.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// How many keys of an issuer are tried.
const MAX_KEYS: usize = 100;

/// How many seconds the clock of the issuer may be ahead of this machine's clock.
const CLOCK_LEEWAY_SECONDS: i64 = 60;

/// The values that a token has to contain.
pub(super) struct ExpectedToken<'e> {
    pub(super) issuer: &'e str,
    pub(super) client_id: &'e str,
    /// The nonce of the login.
    pub(super) nonce: &'e str,
    /// The signature algorithms that the issuer announces.
    pub(super) algorithms: &'e [String],
    /// The current time, in seconds since 1970.
    pub(super) now: i64,
}

/// The user whom a verified token names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerifiedUser {
    pub(super) subject: String,
    /// When the token expires, in seconds since 1970.
    pub(super) expires_at: i64,
}

/// Why a token is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdTokenError {
    #[error("the ID token is longer than 8192 bytes: let the issuer put fewer groups into it")]
    TooLong,
    #[error("the ID token cannot be read")]
    Unreadable,
    #[error("the ID token is signed by an algorithm that does not count")]
    Algorithm,
    #[error("the ID token is signed by a key that the issuer does not publish")]
    UnknownKey,
    #[error("the signature of the ID token is wrong")]
    Signature,
    #[error("the ID token is of another issuer")]
    Issuer,
    #[error("the ID token is for another client")]
    Audience,
    #[error("the ID token is of another login")]
    Nonce,
    #[error("the ID token is over, or begins later")]
    Time,
    #[error("the ID token names no subject")]
    Subject,
}

/// Verifies a token with the issuer's public keys, which are JWKs.
///
/// # Errors
/// The first reason why the token is not valid.
pub(super) fn verify(
    token: &str,
    keys: &[Value],
    expected: &ExpectedToken<'_>,
) -> Result<VerifiedUser, IdTokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(IdTokenError::TooLong);
    }
    let jwt = UnverifiedJwt::parse(token).map_err(|_text| IdTokenError::Unreadable)?;
    let is_allowed = ALGORITHMS.contains(&jwt.algorithm.as_str());
    if !is_allowed || !expected.algorithms.contains(&jwt.algorithm) {
        return Err(IdTokenError::Algorithm);
    }
    is_signed(&jwt, keys)?;
    if jwt.text("iss") != expected.issuer {
        return Err(IdTokenError::Issuer);
    }
    if !is_for_client(&jwt, expected.client_id) {
        return Err(IdTokenError::Audience);
    }
    if jwt.text("nonce").is_empty() || !is_equal(jwt.text("nonce"), expected.nonce) {
        return Err(IdTokenError::Nonce);
    }
    let latest = expected.now.saturating_add(CLOCK_LEEWAY_SECONDS);
    let is_begun = |name: &str| jwt.time(name).is_none_or(|at| at <= latest);
    let expires_at = jwt.time("exp").ok_or(IdTokenError::Time)?;
    if expires_at <= expected.now || !is_begun("nbf") || !is_begun("iat") {
        return Err(IdTokenError::Time);
    }
    match jwt.text("sub") {
        "" => Err(IdTokenError::Subject),
        subject => Ok(VerifiedUser { subject: subject.to_owned(), expires_at }),
    }
}

/// Whether the key that the token names has signed the token. A token without a key ID is accepted only if the issuer has
/// exactly one key.
fn is_signed(jwt: &UnverifiedJwt, keys: &[Value]) -> Result<(), IdTokenError> {
    let is_for_signatures = |key: &&Value| {
        let is_of_use = key.get("use").is_none_or(|it| it == "sig");
        is_of_use && key.get("alg").is_none_or(|it| *it == *jwt.algorithm)
    };
    let is_its = |key: &&Value| match jwt.key.as_str() {
        "" => keys.len() == 1,
        id => key.get("kid").is_some_and(|it| it == id),
    };
    let candidates = keys.iter().take(MAX_KEYS).filter(is_its).filter(is_for_signatures);
    let mut candidates = candidates.peekable();
    if candidates.peek().is_none() {
        return Err(IdTokenError::UnknownKey);
    }
    match candidates.any(|key| jwt.is_signed_by(key)) {
        true => Ok(()),
        false => Err(IdTokenError::Signature),
    }
}

/// Whether a token was issued for a client, at the request of that client.
fn is_for_client(jwt: &UnverifiedJwt, client_id: &str) -> bool {
    let is_in = match jwt.claims.get("aud") {
        Some(Value::String(one)) => one == client_id,
        Some(Value::Array(all)) => {
            let is_among = all.iter().any(|one| one == client_id);
            // A token for several clients has to name the client that requested it.
            is_among && (all.len() == 1 || jwt.claims.contains_key("azp"))
        }
        _ => false,
    };
    is_in && jwt.claims.get("azp").is_none_or(|it| it == client_id)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;
    use crate::login::samples::{CLIENT, ISSUER, IssuerSigningKey, header};

    const NOW: i64 = 1_000_000;

    fn claims(name: &str, value: Value) -> Value {
        let mut claims = json!({"iss": ISSUER, "aud": CLIENT, "sub": "alice", "nonce": "n",
            "iat": NOW, "exp": NOW + 300});
        claims[name] = value;
        claims
    }

    fn judged(token: &str, keys: &[Value]) -> Result<VerifiedUser, IdTokenError> {
        let algorithms: Vec<String> = ALGORITHMS.map(str::to_owned).to_vec();
        let expected = ExpectedToken {
            issuer: ISSUER,
            client_id: CLIENT,
            nonce: "n",
            algorithms: &algorithms,
            now: NOW,
        };
        verify(token, keys, &expected)
    }

    fn with_claim(name: &str, value: Value) -> Result<VerifiedUser, IdTokenError> {
        let key = IssuerSigningKey::new();
        judged(&key.token(&header(), &claims(name, value)), &[key.published("1")])
    }

    #[test]
    fn a_token_of_this_login_names_its_user() {
        let user = VerifiedUser { subject: "alice".to_owned(), expires_at: NOW + 300 };
        assert_eq!(with_claim("other", json!(1)), Ok(user));
        assert!(with_claim("aud", json!([CLIENT])).is_ok());
        assert!(with_claim("iat", json!(NOW + 60)).is_ok());
        assert!(with_claim("azp", json!(CLIENT)).is_ok());
    }

    #[test]
    fn a_token_of_another_issuer_client_login_or_time_is_refused() {
        for (name, value, error) in [
            ("iss", json!("https://issuer.example/"), IdTokenError::Issuer),
            ("iss", json!(null), IdTokenError::Issuer),
            ("aud", json!("other"), IdTokenError::Audience),
            ("aud", json!(["other"]), IdTokenError::Audience),
            ("aud", json!([CLIENT, "other"]), IdTokenError::Audience),
            ("aud", json!({}), IdTokenError::Audience),
            ("azp", json!("other"), IdTokenError::Audience),
            ("nonce", json!("m"), IdTokenError::Nonce),
            ("nonce", json!(""), IdTokenError::Nonce),
            ("nonce", json!(null), IdTokenError::Nonce),
            ("exp", json!(NOW), IdTokenError::Time),
            ("exp", json!(null), IdTokenError::Time),
            ("exp", json!("9999999999"), IdTokenError::Time),
            ("nbf", json!(NOW + 61), IdTokenError::Time),
            ("iat", json!(NOW + 61), IdTokenError::Time),
            ("sub", json!(""), IdTokenError::Subject),
            ("sub", json!(7), IdTokenError::Subject),
        ] {
            assert_eq!(with_claim(name, value.clone()), Err(error), "{name}: {value}");
        }
    }

    #[test]
    fn a_token_without_a_signature_by_a_published_key_is_refused() {
        let key = IssuerSigningKey::new();
        let published = [key.published("1")];
        let good = claims("other", json!(1));
        let signed = |header: Value| judged(&key.token(&header, &good), &published);
        assert!(signed(json!({"alg": "ES256"})).is_ok(), "the only key");
        for algorithm in ["none", "None", "", "HS256", "HS512", "EdDSA", "ES256K"] {
            let header = json!({"alg": algorithm, "kid": "1"});
            assert_eq!(signed(header), Err(IdTokenError::Algorithm), "{algorithm}");
        }
        assert_eq!(signed(json!({"alg": "RS256", "kid": "1"})), Err(IdTokenError::UnknownKey));
        assert_eq!(signed(json!({"alg": "ES256", "kid": "2"})), Err(IdTokenError::UnknownKey));
        let other = IssuerSigningKey::new();
        let forged = other.token(&header(), &good);
        assert_eq!(judged(&forged, &published), Err(IdTokenError::Signature));
        let two = [key.published("1"), other.published("2")];
        let nameless = key.token(&json!({"alg": "ES256"}), &good);
        assert_eq!(judged(&nameless, &two), Err(IdTokenError::UnknownKey));
        assert_eq!(judged(&nameless, &[]), Err(IdTokenError::UnknownKey));
        let mut encryption = key.published("1");
        encryption["use"] = json!("enc");
        let token = key.token(&header(), &good);
        assert_eq!(judged(&token, &[encryption]), Err(IdTokenError::UnknownKey));
        let (body, _) = token.rsplit_once('.').unwrap();
        assert_eq!(judged(&format!("{body}."), &published), Err(IdTokenError::Signature));
        assert_eq!(judged(body, &published), Err(IdTokenError::Unreadable));
    }

    #[test]
    fn the_public_key_is_no_secret_of_hmac() {
        let key = IssuerSigningKey::new();
        let public = key.public_bytes();
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "HS256", "kid": "1"});
        let signed = format!("{}.{}", part(&header), part(&claims("other", json!(1))));
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &public);
        let tag = aws_lc_rs::hmac::sign(&secret, signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(judged(&token, &[key.published("1")]), Err(IdTokenError::Algorithm));
    }

    #[test]
    fn an_algorithm_that_the_issuer_does_not_use_is_refused() {
        let key = IssuerSigningKey::new();
        let token = key.token(&header(), &claims("other", json!(1)));
        let expected = ExpectedToken {
            issuer: ISSUER,
            client_id: CLIENT,
            nonce: "n",
            algorithms: &["RS256".to_owned()],
            now: NOW,
        };
        let judged = verify(&token, &[key.published("1")], &expected);
        assert_eq!(judged, Err(IdTokenError::Algorithm));
    }

    #[test]
    fn a_token_that_fits_in_no_cookie_is_refused() {
        assert_eq!(with_claim("groups", json!("g".repeat(8 << 10))), Err(IdTokenError::TooLong));
    }
}
