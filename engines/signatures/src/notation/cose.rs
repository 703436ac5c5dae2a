//! Signatures in CBOR: `COSE_Sign1` of RFC 9052.

use std::collections::BTreeMap;

use ciborium::Value;

use super::envelope::{
    AUTHENTIC_TIME, EXPIRY, MOST_HEADERS, NotationEnvelopeError, SCHEME, TIME, TIMESTAMP,
    UnverifiedNotationEnvelope,
};

/// The deepest nesting of values.
const MOST_DEPTH: usize = 16;

/// The headers in a map, keyed by their names in JSON.
type CoseHeaders = BTreeMap<String, Value>;

/// Reads a Notation signature in the format COSE, without verifying it.
pub(super) fn read(bytes: &[u8]) -> Result<UnverifiedNotationEnvelope, NotationEnvelopeError> {
    let not_one =
        || NotationEnvelopeError::Unreadable("cbor: invalid COSE_Sign1_Tagged object".to_owned());
    let Value::Tag(18, signed) = value(bytes).ok_or_else(not_one)? else { return Err(not_one()) };
    let Value::Array(fields) = *signed else { return Err(not_one()) };
    let Ok([protected, unprotected, payload, signature]) = <[Value; 4]>::try_from(fields) else {
        return Err(not_one());
    };
    let (
        Value::Bytes(protected),
        Value::Map(unprotected),
        Value::Bytes(payload),
        Value::Bytes(signature),
    ) = (protected, unprotected, payload, signature)
    else {
        return Err(not_one());
    };
    let Some(Value::Map(headers)) = value(&protected) else { return Err(not_one()) };
    let headers = named(headers).map_err(NotationEnvelopeError::Invalid)?;
    let unprotected = named(unprotected).map_err(NotationEnvelopeError::Invalid)?;
    let signed = Value::Array(vec![
        Value::Text("Signature1".to_owned()),
        Value::Bytes(protected),
        Value::Bytes(Vec::new()),
        Value::Bytes(payload.clone()),
    ]);
    let mut bytes = Vec::new();
    ciborium::into_writer(&signed, &mut bytes).map_err(|_| not_one())?;
    parts(&headers, &unprotected, bytes, signature, payload).map_err(NotationEnvelopeError::Invalid)
}

fn value(bytes: &[u8]) -> Option<Value> {
    let mut rest = bytes;
    let value = ciborium::de::from_reader_with_recursion_limit(&mut rest, MOST_DEPTH).ok()?;
    rest.is_empty().then_some(value)
}

/// Headers by name. A name may not occur twice.
fn named(headers: Vec<(Value, Value)>) -> Result<CoseHeaders, String> {
    if headers.len() > MOST_HEADERS {
        return Err(format!("it has more than {MOST_HEADERS} headers"));
    }
    let mut named = CoseHeaders::new();
    for (label, value) in headers {
        let name = match label {
            Value::Text(name) => name,
            Value::Integer(number) => match i128::from(number) {
                1 => "alg".to_owned(),
                2 => "crit".to_owned(),
                3 => "cty".to_owned(),
                33 => "x5c".to_owned(),
                other => other.to_string(),
            },
            _ => return Err("the label of a header is malformed".to_owned()),
        };
        if named.contains_key(&name) {
            return Err(format!("the header {name:?} is there twice"));
        }
        named.insert(name, value);
    }
    Ok(named)
}

fn parts(
    protected: &CoseHeaders,
    unprotected: &CoseHeaders,
    signed: Vec<u8>,
    signature: Vec<u8>,
    payload: Vec<u8>,
) -> Result<UnverifiedNotationEnvelope, String> {
    let get = |headers: &'_ CoseHeaders, name: &str| headers.get(name).cloned();
    let certificates = match get(unprotected, "x5c") {
        None => return Err("certificate chain is not present".to_owned()),
        Some(Value::Bytes(one)) => vec![one],
        Some(Value::Array(all)) => {
            let all = all.into_iter().map(|it| it.into_bytes());
            all.collect::<Result<_, _>>().map_err(|_| "the certificate chain is malformed")?
        }
        Some(_) => return Err("the certificate chain is malformed".to_owned()),
    };
    let text = |name: &str| match get(protected, name) {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    };
    let time = |name: &str| match get(protected, name) {
        None => Ok(None),
        Some(Value::Tag(1, seconds)) => match *seconds {
            Value::Integer(seconds) => Ok(i64::try_from(seconds).ok()),
            _ => Err(format!("{name} is not a time in seconds")),
        },
        Some(_) => Err(format!("{name} is not a time")),
    };
    let critical = match get(protected, "crit") {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    let critical = critical.into_iter().map(|it| match it {
        Value::Text(name) => name,
        Value::Integer(number) => match i128::from(number) {
            1 => "alg".to_owned(),
            3 => "cty".to_owned(),
            other => other.to_string(),
        },
        _ => String::new(),
    });
    Ok(UnverifiedNotationEnvelope {
        signed,
        signature,
        payload,
        algorithm: get(protected, "alg")
            .map(|value| algorithm(&value).to_owned())
            .unwrap_or_default(),
        content_type: text("cty"),
        critical: critical.filter(|name| name != "alg" && name != "cty").collect(),
        protected: protected.keys().cloned().collect(),
        scheme: text(SCHEME),
        time: time(TIME)?,
        authentic_time: time(AUTHENTIC_TIME)?,
        expiry: time(EXPIRY)?,
        certificates,
        has_timestamp: get(unprotected, TIMESTAMP).is_some(),
    })
}

fn algorithm(value: &Value) -> &'static str {
    let Value::Integer(number) = value else { return "" };
    match i128::from(*number) {
        -37 => "PS256",
        -38 => "PS384",
        -39 => "PS512",
        -7 => "ES256",
        -35 => "ES384",
        -36 => "ES512",
        _ => "",
    }
}
