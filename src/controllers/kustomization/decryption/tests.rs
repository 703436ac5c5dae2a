//! What is hidden, and what is known of files whose MAC was checked.

use serde_json::json;

use super::*;

fn text(values: &[Vec<u8>]) -> Vec<String> {
    values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

#[test]
fn only_what_was_encrypted_is_hidden() {
    let before = json!({
        "kind": "ConfigMap",
        "data": {"user": "ENC[AES256_GCM,data:a]", "plain": "shown"},
        "list": ["ENC[x]", "shown", {"n": "ENC[y]"}],
    });
    let after = json!({
        "kind": "ConfigMap",
        "data": {"user": "ada", "plain": "shown"},
        "list": ["first", "shown", {"n": 7}],
    });
    let mut hidden = text(&revealed(&before, &after));
    hidden.sort();
    assert_eq!(hidden, ["7", "ada", "first"]);
}

#[test]
fn of_a_file_that_is_no_map_all_is_hidden() {
    let path = |text: &str| RelPath::parse(text).unwrap();
    let yaml = revealed_in_file(&path("p.yaml"), b"a: ENC[x]\nb: shown\n", b"a: one\nb: shown\n");
    assert_eq!(text(&yaml), ["one"]);
    let env = revealed_in_file(&path("app.env"), b"A=ENC[x]\n", b"A=one\nB=two\n");
    assert_eq!(text(&env), ["A=one\nB=two\n"]);
    let several = revealed_in_file(&path("p.yaml"), b"a: ENC[x]\n", b"a: one\n---\na: two\n");
    assert_eq!(text(&several), ["a: one\n---\na: two\n"]);
}

#[test]
fn an_object_is_encrypted_unless_it_is_to_be_applied_so() {
    let object = |annotations: &Value| {
        let metadata = json!({"name": "a", "annotations": annotations});
        let sops = json!({"mac": "ENC[x]"});
        let fields =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "sops": sops});
        Object::new(fields).unwrap()
    };
    assert!(is_still_encrypted(&object(&json!({}))));
    assert!(is_still_encrypted(&object(&json!({SWITCH: "enabled"}))));
    assert!(!is_still_encrypted(&object(&json!({SWITCH: "Disabled"}))));
}

#[test]
fn an_encrypted_value_of_no_checked_file_is_refused() {
    let keys = Keys::default();
    let known: BTreeSet<Vec<u8>> =
        encrypted_values(b"a: ENC[one]\nmac: ENC[mac] ENC[open").collect();
    assert_eq!(known, [b"ENC[one]".to_vec(), b"ENC[mac]".to_vec()].into());
    let objects = Objects { decryptor: Decryptor::new(&keys), checked: Some(known) };
    let decrypt = |value: &str| {
        let fields = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "stringData": {"a": value}, "sops": {"mac": "ENC[mac]"},
        });
        objects.decrypt(Object::new(fields).unwrap()).unwrap_err()
    };
    assert!(decrypt("ENC[two]").contains("in no file of the artifact"), "{}", decrypt("ENC[two]"));
    // The other is refused for want of keys only.
    assert!(!decrypt("ENC[one]").contains("in no file of the artifact"), "{}", decrypt("ENC[one]"));
}
