//! JSON Web Tokens: reading a token, and checking its signature with a public key.
//! Elsewhere: which claims are required, and where keys come from (`receivers/oidc_token.rs`, logins of pages).

use aws_lc_rs::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// A JWT that was not verified yet.
pub struct UnverifiedJwt {
    /// The header `alg` of the token; empty if it is absent.
    pub algorithm: String,
    /// The header `kid` of the token; empty if it is absent.
    pub key: String,
    /// The claims of the token. They may be trusted only after the signature is verified.
    pub claims: Map<String, Value>,
    signed: String,
    signature: Vec<u8>,
}

impl UnverifiedJwt {
    /// Parses a token in the compact form, which has three parts. It does not verify the signature.
    ///
    /// # Errors
    /// The text is not a token. The message is for users.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('.').collect();
        let [header, claims, signature] = *parts else {
            return Err("token is not a JWT".to_owned());
        };
        let decode = |part: &str| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|error| format!("unable to decode the JWT: {error}"))
        };
        let object = |part: &str| {
            let value: Value = serde_json::from_slice(&decode(part)?)
                .map_err(|error| format!("unable to parse the JWT: {error}"))?;
            match value {
                Value::Object(members) => Ok(members),
                _ => Err("unable to parse the JWT: a part is no object".to_owned()),
            }
        };
        let members = object(header)?;
        let text =
            |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self {
            algorithm: text("alg"),
            key: text("kid"),
            claims: object(claims)?,
            signed: format!("{header}.{claims}"),
            signature: decode(signature)?,
        })
    }

    /// The value of a claim that is a string; otherwise empty.
    pub fn text(&self, name: &str) -> &str {
        self.claims.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A claim of the token that is a time, in seconds since 1970. `None` if the claim is missing or not a number.
    pub fn time(&self, name: &str) -> Option<i64> {
        let value = self.claims.get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "times of tokens are whole seconds")]
        value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
    }

    /// Whether a key of a key set (JWK) signed the token with the algorithm in its header. Always false for `none` and for
    /// algorithms with a shared secret, because the keys of a set are public.
    pub fn is_signed_by(&self, key: &Value) -> bool {
        let data = self.signed.as_bytes();
        let tag = &*self.signature;
        let part = |name: &str| {
            let text = key.get(name).and_then(Value::as_str)?;
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
        };
        let rsa = |parameters: &'static RsaParameters| {
            let (Some(n), Some(e)) = (part("n"), part("e")) else { return false };
            RsaPublicKeyComponents { n, e }.verify(parameters, data, tag).is_ok()
        };
        let curve = |algorithm: &'static dyn VerificationAlgorithm| {
            let (Some(x), Some(y)) = (part("x"), part("y")) else { return false };
            let point = [&[4][..], &x, &y].concat();
            UnparsedPublicKey::new(algorithm, point).verify(data, tag).is_ok()
        };
        match &*self.algorithm {
            "RS256" => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            "RS384" => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            "RS512" => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            "PS256" => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            "PS384" => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            "PS512" => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            "ES256" => curve(&signature::ECDSA_P256_SHA256_FIXED),
            "ES384" => curve(&signature::ECDSA_P384_SHA384_FIXED),
            "ES512" => curve(&signature::ECDSA_P521_SHA512_FIXED),
            "EdDSA" => part("x").is_some_and(|x| {
                UnparsedPublicKey::new(&signature::ED25519, x).verify(data, tag).is_ok()
            }),
            _ => false,
        }
    }
}
