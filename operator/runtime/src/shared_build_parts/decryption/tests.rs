//! Tests of secret values in decrypted files, and of values that a checked MAC covers.

use serde_json::json;
use sops::NoDataKeyServices;

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
    let yaml = revealed_in_file(SopsFormat::Yaml, b"a: ENC[x]\nb: shown\n", b"a: one\nb: shown\n");
    assert_eq!(text(&yaml), ["one"]);
    let env = revealed_in_file(SopsFormat::Dotenv, b"A=ENC[x]\n", b"A=one\nB=two\n");
    assert_eq!(text(&env), ["A=one\nB=two\n"]);
    let several = revealed_in_file(SopsFormat::Yaml, b"a: ENC[x]\n", b"a: one\n---\na: two\n");
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

fn encrypted(value: &str) -> Object {
    let fields = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "stringData": {"a": value}, "sops": {"mac": "ENC[mac]"},
    });
    Object::new(fields).unwrap()
}

#[test]
fn an_encrypted_value_that_no_mac_covers_is_refused() {
    let keys = DecryptionKeys::default();
    let known = BTreeSet::from([b"ENC[one]".to_vec(), b"ENC[mac]".to_vec()]);
    let objects = ObjectDecryptor { decryptor: SopsDecryptor::new(&keys), checked: Some(known) };
    let decrypt = |value: &str| objects.decrypt(encrypted(value)).unwrap_err();
    assert!(decrypt("ENC[two]").contains("that no MAC of"), "{}", decrypt("ENC[two]"));
    // The other value fails only because its key is missing.
    assert!(!decrypt("ENC[one]").contains("that no MAC of"), "{}", decrypt("ENC[one]"));
}

#[test]
fn a_file_that_does_not_look_encrypted_has_no_value_that_a_mac_covers() {
    let keys = DecryptionKeys::default();
    let stop = StopSignal::default();
    let decryption = BuildDecryptionKeys { keys, mac: MacPolicy::Require, digest: String::new() };
    for mac in ["mac: 'ENC[mac]'", "mac:  ENC[mac]", "\"mac\":\"ENC[mac]\""] {
        let file = format!("stringData: {{a: 'ENC[one]'}}\nsops: {{{mac}}}\n");
        let files = tree::MemoryTree::from_files([("a.yaml", file.as_str())]).unwrap();
        let recorder = tree::TreeRecorder::new(&files);
        recorder.read(&RelPath::parse("a.yaml").unwrap()).unwrap();
        let decrypting = decryption.with(&NoDataKeyServices, &stop);
        let objects = decrypting.objects(&files, &recorder.seen()).unwrap();
        let why = objects.decrypt(encrypted("ENC[one]")).unwrap_err();
        assert!(why.contains("that no MAC of"), "{why}");
    }
}
