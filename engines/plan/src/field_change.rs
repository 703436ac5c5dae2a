//! The fields of an object that change, each with its old and new value. Values of Secrets are never included.
//!
//! Elsewhere: which paths differ (`apply::diff_paths`), printing them (`table.rs`, `markdown.rs`; for `windlass diff` the
//! program).

use apply::diff_paths;
use objects::{Object, SecretMasking};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::plan_json::JsonShape;

/// The text that replaces a value of a Secret.
const MASK: &str = "****";

/// Fields of a Secret that hold nothing secret.
const PLAIN_SECRET_FIELDS: [&str; 4] = ["/apiVersion", "/metadata/labels", "/type", "/immutable"];

/// Fields of a Secret whose keys may be shown, because they are only names.
const KEYED_SECRET_FIELDS: [&str; 3] = ["/data", "/stringData", "/metadata/annotations"];

/// The prefix of SOPS's ciphertext.
const CIPHERTEXT_PREFIX: &str = "ENC[AES256_GCM,data:";

/// How many digits of a digest are shown for a ciphertext.
const CIPHERTEXT_DIGEST_DIGITS: usize = 12;

/// The most fields of an object that are counted. Fewer of them are listed.
const MAX_COUNTED_FIELDS: usize = 10_000;

/// The largest value, as JSON, that is shown if values are cut. A larger value is left out, because masking it would take too
/// long, and a part of it may belong to a Secret.
const MAX_SHOWN_VALUE_BYTES: usize = 16 << 10;

/// If values are cut, the longest value as JSON that is shown in full.
const MAX_WHOLE_VALUE_BYTES: usize = 512;

/// The deepest nesting of a value that is shown as JSON if values are cut. A deeper value is shown as text, because JSON
/// parsers that read the plan again have a limit.
const MAX_VALUE_DEPTH: usize = 64;

/// The longest text other than a value, such as an error, that is shown. A longer text is left out.
const MAX_MASKED_TEXT_BYTES: usize = 256 << 10;

/// The longest text that is shown in full. A longer one is cut after masking.
const MAX_SHOWN_TEXT_BYTES: usize = 2048;

/// If values are cut, the longest path that is shown in full.
const MAX_PATH_BYTES: usize = 1024;

/// Limits the listed changes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldChangeLimits {
    /// How many fields are listed. Further fields are only counted.
    pub max_listed_fields: usize,
    /// Whether long values and paths are cut, and values over 16 KiB are left out. Without that, a list may be as large as both
    /// states, and masking may take equally long.
    pub cuts_values: bool,
}

impl FieldChangeLimits {
    /// A value in the form in which it is listed.
    fn listed_value(self, value: Value) -> Value {
        if self.cuts_values { cut(value) } else { value }
    }

    /// A path in the form in which it is listed.
    fn listed_path(self, path: &str, secrets: &SecretMasking) -> String {
        if self.cuts_values { shown_path(path, secrets) } else { secrets.mask(path) }
    }

    /// The most bytes of a value, as JSON, that is masked and shown.
    fn max_shown_value_bytes(self) -> usize {
        if self.cuts_values { MAX_SHOWN_VALUE_BYTES } else { usize::MAX }
    }
}

/// The fields in which two states of an object differ.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChangeList {
    /// The first changed fields, in the order of the document.
    pub fields: Vec<FieldChange>,
    /// How many further fields change. At most 10000 are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_fields: usize,
}

/// A field of an object that changes, with its old and new value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// A JSON pointer.
    pub path: String,
    /// The value before the change; none if the field is new. A cut value is a string that ends with `…` and the full length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The value after the change; none if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// For serde: leaves out a count of 0.
pub(crate) fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl FieldChangeList {
    /// The fields in which two states of an object differ.
    ///
    /// # Guarantees
    /// Values of an object that was or is a Secret are never included, and text in `secrets` is masked. A value encrypted by
    /// SOPS appears as a digest of its ciphertext. Other changes by SOPS appear only as `/sops`, and only if nothing else
    /// changes.
    pub fn between(
        before: &Object,
        after: &Object,
        secrets: &SecretMasking,
        limits: FieldChangeLimits,
    ) -> Self {
        let mut paths = diff_paths(before, after, MAX_COUNTED_FIELDS);
        let is_encrypted = is_encrypted(before) || is_encrypted(after);
        if is_encrypted {
            without_sops(&mut paths);
        }
        let is_secret = is_secret(before) || is_secret(after);
        if is_secret {
            paths.iter_mut().for_each(cut_secret_path);
            paths.dedup();
        }
        let count = paths.len();
        paths.truncate(limits.max_listed_fields);
        let field = |path: String| {
            let values = [before, after].map(|object| {
                let value = value_at(object, &path).filter(|value| !value.is_null());
                value.map(|value| FieldValue {
                    value,
                    is_encrypted: is_encrypted_value(object, value),
                })
            });
            let values = match is_secret && !is_plain(&path) {
                true => values.map(|value| value.map(|value| value.hidden(&path))),
                false => shown(values, secrets, limits.max_shown_value_bytes()),
            };
            let [old, new] = values.map(|value| value.map(|value| limits.listed_value(value)));
            // A key may have been substituted.
            FieldChange { path: limits.listed_path(&path, secrets), old, new }
        };
        let omitted_fields = count - paths.len();
        Self { fields: paths.into_iter().map(field).collect(), omitted_fields }
    }

    /// Whether the two states of the object do not differ.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.omitted_fields == 0
    }
}

/// Whether an object is a Secret of any API version.
fn is_secret(object: &Object) -> bool {
    let gvk = object.gvk();
    gvk.group.is_empty() && gvk.kind == "Secret"
}

/// Whether SOPS encrypted an object.
pub(crate) fn is_encrypted(object: &Object) -> bool {
    object.get("sops").is_some_and(|sops| sops.get("mac").is_some_and(Value::is_string))
}

/// Whether a value of an object is ciphertext or the metadata of SOPS.
fn is_encrypted_value(object: &Object, value: &Value) -> bool {
    let is_ciphertext = match value {
        Value::String(text) => text.starts_with(CIPHERTEXT_PREFIX) && text.ends_with(']'),
        other => object.get("sops").is_some_and(|sops| std::ptr::eq(sops, other)),
    };
    is_ciphertext && is_encrypted(object)
}

/// Removes the paths of SOPS's metadata, because it changes with every encryption. If no other path remains, `/sops` is kept.
fn without_sops(paths: &mut Vec<String>) {
    let is_of_sops = |path: &str| path == "/sops" || path.starts_with("/sops/");
    let count = paths.len();
    paths.retain(|path| !is_of_sops(path));
    if paths.is_empty() && count > 0 {
        paths.push("/sops".to_owned());
    }
}

/// Cuts a path in a Secret after the key of its data, label or annotation. Deeper parts of the path might not be mere names.
fn cut_secret_path(path: &mut String) {
    let parts = if path.starts_with("/metadata/") { 3 } else { 2 };
    if let Some((end, _)) = path.match_indices('/').nth(parts) {
        path.truncate(end);
    }
}

/// Whether a field of a Secret holds nothing secret.
fn is_plain(path: &str) -> bool {
    PLAIN_SECRET_FIELDS.iter().any(|plain| {
        path.strip_prefix(plain).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The value in an object at a JSON pointer (RFC 6901). `None` if the pointer leads nowhere.
fn value_at<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.find('/').map_or((path, ""), |at| path.split_at(at));
    object.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// A value of a field.
#[derive(Debug, Clone, Copy)]
struct FieldValue<'o> {
    value: &'o Value,
    /// Whether the value is ciphertext.
    is_encrypted: bool,
}

impl FieldValue<'_> {
    /// The replacement for a value of a Secret. The keys of its data and annotations stay; all values are masked.
    fn hidden(self, path: &str) -> Value {
        match self.value {
            _ if self.is_encrypted => encrypted(self.value),
            Value::Object(entries) if KEYED_SECRET_FIELDS.contains(&path) => {
                let masked = entries.keys().map(|key| (key.clone(), MASK.into()));
                Value::Object(masked.collect::<Map<_, _>>())
            }
            _ => MASK.into(),
        }
    }

    /// The value with masked secrets. If the value has more than `max_bytes` as JSON, only its length.
    fn masked(self, secrets: &SecretMasking, max_bytes: usize) -> MaskedValue {
        if self.is_encrypted {
            return MaskedValue { value: encrypted(self.value), is_masked: false };
        }
        let text = self.value.to_string();
        if text.len() > max_bytes {
            let value = format!("… ({} bytes)", text.len()).into();
            return MaskedValue { value, is_masked: false };
        }
        let masked = secrets.mask(&text);
        if masked == text {
            return MaskedValue { value: self.value.clone(), is_masked: false };
        }
        let value = serde_json::from_str(&masked).unwrap_or(Value::String(masked));
        MaskedValue { value, is_masked: true }
    }
}

/// A value for display, in which secret parts are masked.
#[derive(Debug, Clone)]
struct MaskedValue {
    value: Value,
    /// Whether a part of the value was masked.
    is_masked: bool,
}

/// Both values of a field, for display. If one of them came from a Secret, the other one is masked, too.
fn shown(
    values: [Option<FieldValue<'_>>; 2],
    secrets: &SecretMasking,
    max_bytes: usize,
) -> [Option<Value>; 2] {
    let values = values.map(|value| value.map(|value| value.masked(secrets, max_bytes)));
    let is_any_masked = values.iter().flatten().any(|it| it.is_masked);
    values.map(|value| {
        let value = value?;
        Some(if is_any_masked && !value.is_masked { MASK.into() } else { value.value })
    })
}

/// The replacement for ciphertext: a digest, which changes whenever the ciphertext does.
fn encrypted(value: &Value) -> Value {
    let digest = hex::encode(Sha256::digest(value.to_string()));
    let digits = digest.get(..CIPHERTEXT_DIGEST_DIGITS).unwrap_or(&digest);
    format!("encrypted, sha256:{digits}").into()
}

/// A value as it is, or the beginning of a long one.
fn cut(value: Value) -> Value {
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.len() <= MAX_WHOLE_VALUE_BYTES {
        let is_deep = !value.is_string() && JsonShape::of(text.as_bytes()).depth > MAX_VALUE_DEPTH;
        return if is_deep { text.into() } else { value };
    }
    let length = text.len();
    format!("{} ({length} bytes)", cut_text(text, MAX_WHOLE_VALUE_BYTES)).into()
}

/// A text, or the beginning of a long one with `…`.
fn cut_text(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// The path of a field with masked secrets, cut if it is long.
fn shown_path(path: &str, secrets: &SecretMasking) -> String {
    cut_text(secrets.mask(&cut_text(path.to_owned(), MAX_MASKED_TEXT_BYTES)), MAX_PATH_BYTES)
}

/// A text for display, such as an image or an error, with masked secrets and cut if it is long.
pub(crate) fn shown_text(text: &str, secrets: &SecretMasking) -> String {
    if text.len() > MAX_MASKED_TEXT_BYTES {
        return format!("… ({} bytes)", text.len());
    }
    cut_text(secrets.mask(text), MAX_SHOWN_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, more: &Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    const LIMITS: FieldChangeLimits =
        FieldChangeLimits { max_listed_fields: 10, cuts_values: true };

    fn between(kind: &str, before: &Value, after: &Value, secrets: &SecretMasking) -> Value {
        let list =
            FieldChangeList::between(&object(kind, before), &object(kind, after), secrets, LIMITS);
        serde_json::to_value(list).unwrap()["fields"].clone()
    }

    #[test]
    fn fields_have_their_values_before_and_after() {
        let before = json!({"data": {"a": "1", "gone": "x"}, "list": [1, {"b/c": 2}]});
        let after = json!({"data": {"a": "2", "new": "y"}, "list": [1, {"b/c": 3}]});
        let expected = json!([
            {"path": "/data/a", "old": "1", "new": "2"},
            {"path": "/data/gone", "old": "x"},
            {"path": "/data/new", "new": "y"},
            {"path": "/list/1/b~1c", "old": 2, "new": 3},
        ]);
        assert_eq!(between("ConfigMap", &before, &after, &SecretMasking::default()), expected);
    }

    #[test]
    fn of_a_secret_only_keys_are_shown_and_nothing_below_them() {
        let last = json!({"name": "a", "annotations": {"last-applied": "aHVudGVyMg=="}});
        let before = json!({"data": {"password": "aHVudGVyMg==", "deep": {"hunter": "1"}}});
        let after = json!({"data": {"password": "b3RoZXI=", "deep": {"hunter": "2"}}, "type": "x",
            "stringData": {"token": "hunter3"}, "metadata": last});
        let expected = json!([
            {"path": "/data/deep", "old": MASK, "new": MASK},
            {"path": "/data/password", "old": MASK, "new": MASK},
            {"path": "/metadata/annotations", "new": {"last-applied": MASK}},
            {"path": "/stringData", "new": {"token": MASK}},
            {"path": "/type", "new": "x"},
        ]);
        assert_eq!(between("Secret", &before, &after, &SecretMasking::default()), expected);
    }

    #[test]
    fn of_an_object_that_was_or_is_a_secret_no_value_is_shown() {
        let secret = object("Secret", &json!({"data": {"password": "aHVudGVyMg=="}}));
        let map = object("ConfigMap", &json!({"data": {"password": "plain"}}));
        for [before, after] in [[&secret, &map], [&map, &secret]] {
            let list = FieldChangeList::between(before, after, &SecretMasking::default(), LIMITS);
            let field = list.fields.iter().find(|it| it.path == "/data/password").unwrap();
            let masked = Some(Value::from(MASK));
            assert_eq!([&field.old, &field.new], [&masked, &masked]);
        }
    }

    #[test]
    fn what_came_from_a_secret_is_masked_in_other_objects() {
        let secrets = SecretMasking::new([b"hunter2-and-more".to_vec()]);
        let before = json!({"data": {"a": "was what it held before", "b": "other"}});
        let after = json!({"data": {"a": "is hunter2-and-more", "b": "plain"}});
        let expected = json!([{"path": "/data/a", "old": MASK, "new": "is ****"},
            {"path": "/data/b", "old": "other", "new": "plain"}]);
        assert_eq!(between("ConfigMap", &before, &after, &secrets), expected);
        let expected = json!([{"path": "/data", "new": {"a": "is ****", "b": "plain"}}]);
        assert_eq!(between("ConfigMap", &json!({}), &after, &secrets), expected);
        let expected = json!([{"path": "/data/a", "old": "is ****", "new": MASK}]);
        let number = json!({"data": {"a": 3, "b": "plain"}});
        assert_eq!(between("ConfigMap", &after, &number, &secrets), expected);
        let keyed = json!({"data": {"key-hunter2-and-more": "1"}});
        let fields = between("ConfigMap", &json!({"data": {"a": "1"}}), &keyed, &secrets);
        assert_eq!(fields[1]["path"], "/data/key-****");
        assert_eq!(shown_text("no hunter2-and-more here", &secrets), "no **** here");
    }

    #[test]
    fn ciphertext_is_named_by_its_digest_and_what_sops_writes_besides_is_not_listed() {
        let encrypted = |text: &str, mac: &str| {
            json!({"data": {"password": format!("ENC[AES256_GCM,data:{text},type:str]")},
                "sops": {"mac": mac, "lastmodified": mac}})
        };
        let none = SecretMasking::default();
        let fields = between("Secret", &encrypted("a", "1"), &encrypted("b", "2"), &none);
        assert_eq!(fields.as_array().unwrap().len(), 1, "{fields}");
        assert_eq!(fields[0]["path"], "/data/password");
        assert_ne!(fields[0]["old"], fields[0]["new"]);
        assert!(fields[0]["new"].as_str().unwrap().starts_with("encrypted, sha256:"));
        let fields = between("Secret", &encrypted("a", "1"), &encrypted("a", "2"), &none);
        assert_eq!(fields[0]["path"], "/sops");
        // A Secret that says so without being encrypted has no digest: it could be guessed.
        let plain = json!({"data": {"password": "ENC[AES256_GCM,data:x]"}});
        let fields = between("Secret", &json!({"data": {"password": "x"}}), &plain, &none);
        assert_eq!(fields[0]["new"], MASK);
    }

    #[test]
    fn long_values_and_long_lists_are_cut_and_counted() {
        let long = |text: &str, times: usize| json!({"data": {"a": text.repeat(times)}});
        let none = SecretMasking::default();
        let fields = between("ConfigMap", &long("é", 600), &long("x", 20_000), &none);
        assert!(fields[0]["old"].as_str().unwrap().ends_with("é… (1200 bytes)"), "{fields}");
        assert_eq!(fields[0]["new"], "… (20002 bytes)");
        let nested = |levels: usize| {
            let value = (0..levels).fold(json!(1), |value, _| json!([value]));
            between("ConfigMap", &json!({}), &json!({"data": value}), &none)[0]["new"].clone()
        };
        assert!(nested(MAX_VALUE_DEPTH).is_array());
        assert_eq!(nested(100), format!("{}1{}", "[".repeat(100), "]".repeat(100)));
        let many = |value: usize| {
            let data = (0..100).map(|at| (format!("k{at:03}"), Value::from(value.to_string())));
            object("ConfigMap", &json!({"data": data.collect::<Map<_, _>>()}))
        };
        let list = FieldChangeList::between(&many(1), &many(2), &none, LIMITS);
        assert_eq!((list.fields.len(), list.omitted_fields), (10, 90));
        assert!(FieldChangeList::between(&many(1), &many(1), &none, LIMITS).is_empty());
        let limits = FieldChangeLimits { max_listed_fields: 0, ..LIMITS };
        assert!(!FieldChangeList::between(&many(1), &many(2), &none, limits).is_empty());
    }

    #[test]
    fn long_values_stay_whole_if_they_are_not_to_be_cut() {
        let key = "k".repeat(MAX_PATH_BYTES);
        let map = |value: &str| object("ConfigMap", &json!({"data": {&key: value.repeat(5000)}}));
        let limits = FieldChangeLimits { cuts_values: false, ..LIMITS };
        let secrets = SecretMasking::new([b"hunter2-and-more".to_vec()]);
        let list =
            FieldChangeList::between(&map("long"), &map("hunter2-and-more,"), &secrets, limits);
        let expected =
            json!([{"path": format!("/data/{key}"), "old": MASK, "new": "****,".repeat(5000)}]);
        assert_eq!(serde_json::to_value(&list).unwrap()["fields"], expected);
        let list = FieldChangeList::between(&map("long"), &map("short"), &secrets, limits);
        assert_eq!(list.fields[0].old, Some(Value::from("long".repeat(5000))));
        let secret = |keys: usize| {
            let data = (0..keys).map(|at| (format!("k{at:03}"), Value::from("x")));
            object("Secret", &json!({"stringData": data.collect::<Map<_, _>>()}))
        };
        let before = object("Secret", &json!({}));
        let list = FieldChangeList::between(&before, &secret(100), &secrets, limits);
        let keys = list.fields[0].new.as_ref().and_then(Value::as_object).map(Map::len);
        assert_eq!(keys, Some(100));
    }
}
