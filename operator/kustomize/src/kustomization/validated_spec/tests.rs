//! Every field of the spec is either used, or rejected with an error that names it.

use serde_json::{Value, json};

use super::*;
use fake_cluster::spec_field_check;
use windlass_serve::settings::OperatorSettings;

fn spec(more: &Value) -> KustomizationSpec {
    let mut spec = json!({"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// Fields of the schema that are used.
const USED: [&str; 27] = [
    "buildMetadata",
    "commonMetadata",
    "components",
    "decryption",
    "dependsOn",
    "interval",
    "retryInterval",
    "namePrefix",
    "nameSuffix",
    "patches",
    "path",
    "postBuild",
    "prune",
    "deletionPolicy",
    "healthChecks",
    "healthCheckExprs",
    "ignore",
    "ignoreMissingComponents",
    "images",
    "kubeConfig",
    "serviceAccountName",
    "sourceRef",
    "suspend",
    "targetNamespace",
    "timeout",
    "force",
    "wait",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    let account = json!({"provider": "sops", "serviceAccountName": "keys"});
    let outcome = check(&spec(&json!({"decryption": account}))).unwrap_err();
    assert!(matches!(outcome, RunOutcome::Stalled(..)));
    let text = outcome.text();
    assert!(text.starts_with("spec.decryption.serviceAccountName is not supported"), "{text}");
    assert!(check(&spec(&json!({"decryption": {"provider": "sops"}}))).is_ok());
    for kind in ["Bucket", "ExternalArtifact", "GitRepository", "OCIRepository"] {
        assert!(check(&spec(&json!({"sourceRef": {"kind": kind, "name": "b"}}))).is_ok(), "{kind}");
    }
}

#[test]
fn every_field_of_the_schema_is_used() {
    spec_field_check::knows_every_field("Kustomization", USED);
}

#[test]
fn a_timeout_is_the_interval_less_half_a_minute_unless_given() {
    assert_eq!(check(&spec(&json!({}))).unwrap().timeout, Duration::from_secs(570));
    assert_eq!(check(&spec(&json!({"timeout": "45s"}))).unwrap().timeout, Duration::from_secs(45));
    assert_eq!(check(&spec(&json!({"timeout": "5s"}))).unwrap().timeout, Duration::from_secs(30));
    assert_eq!(
        check(&spec(&json!({"retryInterval": "1m"}))).unwrap().retry,
        Duration::from_secs(60)
    );
}

#[test]
fn an_empty_build_is_applied_unless_the_annotation_or_the_flag_says_no() {
    let allowed = |flag: &[&str], says: Option<&str>| {
        let settings = OperatorSettings::from_flags(flag).unwrap();
        let mut object = Kustomization::new("app", spec(&json!({})));
        if let Some(says) = says {
            object.annotations_mut().insert(ALLOW_EMPTY.to_owned(), says.to_owned());
        }
        may_be_empty(&object, &settings)
    };
    assert!(allowed(&[], None) && allowed(&[], Some("true")));
    for says in ["false", "", "no", "TRUE?"] {
        assert!(!allowed(&[], Some(says)), "{says:?}");
    }
    for says in [None, Some("true"), Some("false")] {
        assert!(!allowed(&["--no-empty-builds"], says), "{says:?} weakens the flag");
    }
}
