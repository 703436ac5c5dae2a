//! Takes out of a manifest what a server-side apply must not say.
//!
//! Here: the few fields that would make an apply fail or never come to rest.
//! Elsewhere: owner labels ([`crate::meta`]), typed defaults (the API server's business).

use objects::Object;
use serde_json::{Map, Value};

/// Fields of `metadata` that belong to the API server.
const SERVER_OWNED: [&str; 6] =
    ["creationTimestamp", "managedFields", "uid", "resourceVersion", "generation", "selfLink"];

/// Removes the server's own metadata and the status, and turns a Secret's `stringData` into `data`.
///
/// A CustomResourceDefinition keeps its status, without which its health could not be judged.
/// A `stringData` with anything but texts is left for the API server to refuse.
pub fn normalize(object: &mut Object) {
    let (api, kind) = (object.api_version().to_owned(), object.kind().to_ascii_lowercase());
    for field in SERVER_OWNED {
        object.metadata_mut().remove(field);
    }
    if !(kind == "customresourcedefinition" && api.starts_with("apiextensions.k8s.io/")) {
        object.fields_mut().remove("status");
    }
    if kind == "secret" && api == "v1" {
        encode_string_data(object.fields_mut());
    }
}

fn encode_string_data(secret: &mut Map<String, Value>) {
    let encoded: Option<Vec<(String, Value)>> = match secret.get("stringData") {
        Some(Value::Object(texts)) => texts
            .iter()
            .map(|(key, text)| Some((key.clone(), base64(text.as_str()?.as_bytes()).into())))
            .collect(),
        Some(Value::Null) => Some(Vec::new()),
        _ => None,
    };
    let data_is_usable = matches!(secret.get("data"), None | Some(Value::Null | Value::Object(_)));
    let (Some(encoded), true) = (encoded, data_is_usable) else { return };
    secret.remove("stringData");
    if encoded.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Value::Object(data) = data {
        data.extend(encoded);
    }
}

/// Standard Base64 with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let sextet = (bits >> (18 - 6 * i)) & 63;
            text.push(if i <= chunk.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(object: Value, want: Value) {
        let mut object = Object::new(object).unwrap();
        normalize(&mut object);
        assert_eq!(object.into_value(), want);
    }

    #[test]
    fn base64_pads_as_the_rfc_says() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, want) in cases {
            assert_eq!(base64(text.as_bytes()), want);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn string_data_of_a_secret_wins_over_data() {
        let meta = json!({"name": "s"});
        check(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": "new", "b": "é"}, "data": {"a": "b2xk", "c": "eA=="}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"a": "bmV3", "b": "w6k=", "c": "eA=="}}),
        );
        let odd =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": 5}});
        check(odd.clone(), odd);
    }

    #[test]
    fn what_the_server_owns_is_removed_except_the_status_of_a_definition() {
        let meta = json!({"name": "x", "uid": "u", "generation": 2, "creationTimestamp": null, "managedFields": []});
        check(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "status": {"replicas": 1}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}),
        );
        check(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "status": {}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}, "status": {}}),
        );
    }
}
