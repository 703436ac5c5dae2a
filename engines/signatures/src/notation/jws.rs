//! Signatures in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::envelope::{
    AUTHENTIC_TIME, EXPIRY, NotationEnvelopeError, SCHEME, TIME, TIMESTAMP,
    UnverifiedNotationEnvelope,
};

#[derive(Deserialize)]
struct RawJws {
    #[serde(default)]
    payload: String,
    #[serde(default)]
    protected: String,
    #[serde(default)]
    header: Map<String, Value>,
    #[serde(default)]
    signature: String,
}

/// Reads a Notation signature in the format JWS, without verifying it.
pub(super) fn read(bytes: &[u8]) -> Result<UnverifiedNotationEnvelope, NotationEnvelopeError> {
    let raw: RawJws = serde_json::from_slice(bytes)
        .map_err(|error| NotationEnvelopeError::Unreadable(error.to_string()))?;
    parts(raw).map_err(NotationEnvelopeError::Invalid)
}

fn parts(raw: RawJws) -> Result<UnverifiedNotationEnvelope, String> {
    let decoded = |what: &str, text: &str| {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| format!("the {what} of the signature is not base64url"))
    };
    let chain = raw.header.get("x5c").and_then(Value::as_array);
    let certificates = chain.into_iter().flatten().map(|it| {
        let text = it.as_str().unwrap_or_default();
        STANDARD.decode(text).map_err(|_| "the certificate chain is not base64".to_owned())
    });
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() {
        return Err("certificate chain is not present".to_owned());
    }
    let protected: Map<String, Value> =
        serde_json::from_slice(&decoded("protected header", &raw.protected)?)
            .map_err(|error| format!("jws envelope protected header can't be decoded: {error}"))?;
    let text = |name: &str| protected.get(name).and_then(Value::as_str).unwrap_or_default();
    let time = |name: &str| match protected.get(name) {
        None => Ok(None),
        Some(value) => {
            let time: Option<jiff::Timestamp> = value.as_str().and_then(|text| text.parse().ok());
            time.map(|time| Some(time.as_second())).ok_or_else(|| format!("{name} is not a time"))
        }
    };
    let critical = protected.get("crit").and_then(Value::as_array).into_iter().flatten();
    Ok(UnverifiedNotationEnvelope {
        signed: format!("{}.{}", raw.protected, raw.payload).into_bytes(),
        signature: decoded("value", &raw.signature)?,
        payload: decoded("payload", &raw.payload)?,
        algorithm: text("alg").to_owned(),
        content_type: text("cty").to_owned(),
        critical: critical.map(|it| it.as_str().unwrap_or_default().to_owned()).collect(),
        protected: protected.keys().cloned().collect(),
        scheme: text(SCHEME).to_owned(),
        time: time(TIME)?,
        authentic_time: time(AUTHENTIC_TIME)?,
        expiry: time(EXPIRY)?,
        certificates,
        has_timestamp: raw.header.contains_key(TIMESTAMP),
    })
}
