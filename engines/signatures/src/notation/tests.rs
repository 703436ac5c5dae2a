//! What a chain of certificates and a signature must not be able to do; verdicts are recorded answers of Notation
//! (`tools/conformance/src/replay/trust`).

use ciborium::Value;

use super::*;

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// A signature in CBOR that is well formed, with headers of both kinds.
fn cose() -> Vec<u8> {
    let text = |text: &str| Value::Text(text.to_owned());
    let protected = Value::Map(vec![
        (Value::from(1), Value::from(-37)),
        (Value::from(2), Value::Array(vec![text("io.cncf.notary.signingScheme")])),
        (Value::from(3), text("application/vnd.cncf.notary.payload.v1+json")),
        (text("io.cncf.notary.signingScheme"), text("notary.x509")),
        (text("io.cncf.notary.signingTime"), Value::Tag(1, Box::new(Value::from(1_796_083_200)))),
    ]);
    let chain = Value::Array(vec![Value::Bytes(vec![0x30, 3, 2, 1, 1])]);
    encoded(&Value::Tag(
        18,
        Box::new(Value::Array(vec![
            Value::Bytes(encoded(&protected)),
            Value::Map(vec![(Value::from(33), chain)]),
            Value::Bytes(b"{}".to_vec()),
            Value::Bytes(vec![1; 64]),
        ])),
    ))
}

#[test]
fn a_signature_with_any_byte_changed_or_cut_off_is_refused() {
    let whole = cose();
    assert!(cose::read(&whole).is_ok());
    for at in 0..whole.len() {
        assert!(NotationEnvelope::verified("application/cose", &whole[..at]).is_err());
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            assert!(NotationEnvelope::verified("application/cose", &changed).is_err());
        }
    }
}

#[test]
fn deep_and_large_signatures_are_refused() {
    // Arrays in arrays, and a text in JSON that never ends.
    let deep = [&[0xd2][..], &[0x81; 100_000]].concat();
    let json = format!("{{\"header\":{}", "[".repeat(100_000)).into_bytes();
    let large = vec![b' '; 300 << 10];
    for (kind, bytes) in [
        ("application/cose", deep),
        ("application/jose+json", json),
        ("application/jose+json", large),
        ("application/xml", Vec::new()),
    ] {
        let failed = NotationEnvelope::verified(kind, &bytes).err().unwrap();
        assert!(matches!(failed, NotationEnvelopeError::Unreadable(_)), "{failed:?}");
    }
}

#[test]
fn a_policy_that_asks_for_what_is_not_supported_does_not_pass() {
    let policy = |more: &str| {
        let text = format!(
            r#"{{"version":"1.0","trustPolicies":[{{"name":"a","registryScopes":["*"],"trustStores":["ca:a"],
            "trustedIdentities":["*"],{more}}}]}}"#
        );
        TrustPolicy::parse(text.as_bytes()).and_then(|policy| policy.validate())
    };
    assert_eq!(policy(r#""signatureVerification":{"level":"strict"}"#), Ok(()));
    for more in [
        r#""signatureVerification":{"level":"lax"}"#,
        r#""signatureVerification":{"level":"strict","override":{"expiry":"skip"}}"#,
        r#""signatureVerification":{"level":"strict","verifyTimestamp":"never"}"#,
        r#""signatureVerification":{"level":"skip","override":{"expiry":"log"}}"#,
        r#""signatureVerification":null"#,
    ] {
        assert!(policy(more).is_err(), "{more}");
    }
}

#[test]
fn a_statement_with_too_many_identities_is_refused_before_they_are_compared() {
    let policy = |count: usize| {
        let identities: Vec<String> =
            (0..count).map(|at| format!("\"x509.subject:C=a,ST=b,O={at:05}\"")).collect();
        let text = format!(
            r#"{{"version":"1.0","trustPolicies":[{{"name":"a","registryScopes":["*"],"trustStores":["ca:a"],
            "trustedIdentities":[{}],"signatureVerification":{{"level":"strict"}}}}]}}"#,
            identities.join(",")
        );
        TrustPolicy::parse(text.as_bytes()).and_then(|policy| policy.validate())
    };
    assert_eq!(policy(100), Ok(()));
    assert!(policy(101).unwrap_err().contains("more than 100 trusted identities"));
}

#[test]
fn a_signature_with_too_many_headers_is_refused_before_they_are_compared() {
    let read = |count: i64, critical: usize| {
        let headers = (100..100 + count).map(|label| (Value::from(label), Value::from(1)));
        let fields = vec![
            Value::Bytes(encoded(&Value::Map(vec![(Value::from(1), Value::from(-37))]))),
            Value::Map(headers.chain([(Value::from(33), Value::Bytes(vec![0x30]))]).collect()),
            Value::Bytes(b"{}".to_vec()),
            Value::Bytes(vec![1; 64]),
        ];
        let signature = encoded(&Value::Tag(18, Box::new(Value::Array(fields))));
        let mut parts = cose::read(&signature)?;
        parts.critical = vec![envelope::SCHEME.to_owned(); critical];
        parts.protected = vec![envelope::SCHEME.to_owned()];
        parts.check_critical(SigningScheme::X509).map_err(NotationEnvelopeError::Invalid)
    };
    assert_eq!(read(63, 64), Ok(None));
    let invalid = |why: &str| Err(NotationEnvelopeError::Invalid(why.to_owned()));
    assert_eq!(read(64, 1), invalid("it has more than 64 headers"));
    assert_eq!(read(1, 65), invalid("it has more than 64 critical headers"));
}
