//! Every field of the spec is either used, or rejected with an error that names it; which addresses are those of a repository.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sources::charts::ChartRepository;
use sources::charts::repository::ChartRepositoryClients;
use sources::source_condition_reasons::AUTHENTICATION_FAILED;

use super::*;
use fake_cluster::spec_field_check;

fn object(more: &Value) -> HelmRepository {
    let mut spec = json!({"url": "https://example.com/charts"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap()
}

fn desired_of(more: &Value, secret: &[(&str, &str)]) -> Result<ChartRepository, RunOutcome> {
    let object = object(more);
    check(&object)?;
    let data: BTreeMap<_, _> =
        secret.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
    let secret = Some(data).filter(|it| !it.is_empty());
    let secrets = HelmRepositorySecrets { secret, certificates: None };
    repository(&ChartRepositoryClients::default(), &object, &secrets)
}

/// A value for every field of the schema that has no support, or not with that value.
fn refused_fields() -> [(&'static str, Value); 1] {
    [("provider", json!("gcp"))]
}

/// Fields of the schema that are used, or without meaning in Flux too.
const USED: [&str; 10] = [
    "url",
    "secretRef",
    "certSecretRef",
    "passCredentials",
    "interval",
    "insecure",
    "timeout",
    "suspend",
    "accessFrom",
    "type",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    for (field, value) in refused_fields() {
        let outcome = desired_of(&json!({field: value}), &[]).unwrap_err();
        spec_field_check::refuses(field, &outcome);
    }
    for provider in ["generic", "aws"] {
        assert!(desired_of(&json!({"provider": provider, "insecure": true}), &[]).is_ok());
    }
}

#[test]
fn every_field_of_the_schema_is_used_or_refused() {
    let refused = refused_fields().map(|(field, _)| field);
    spec_field_check::knows_every_field("HelmRepository", refused.into_iter().chain(USED));
}

#[test]
fn an_address_that_is_none_stalls_and_a_secret_that_cannot_be_used_is_tried_again() {
    for (more, reason, begins) in [
        (
            json!({"url": "oci://x/y"}),
            "URLInvalid",
            "invalid Helm repository URL: 'oci' URL scheme",
        ),
        (json!({"url": "http://"}), "URLInvalid", "invalid Helm repository URL: "),
        (json!({"url": "s3://bucket?x=1"}), "URLInvalid", "invalid Helm repository URL: "),
        (json!({"interval": "x"}), "InvalidDuration", "spec.interval: "),
        (json!({"timeout": "x"}), "InvalidDuration", "spec.timeout: "),
    ] {
        let outcome = desired_of(&more, &[]).unwrap_err();
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        assert_eq!(outcome.reason().as_str(), reason);
        assert!(outcome.text().starts_with(begins), "{}", outcome.text());
    }
    let in_bucket = json!({"url": "s3://charts/stable"});
    for (more, secret) in [
        (json!({}), vec![("password", "hunter2")]),
        (json!({}), vec![("caFile", "hunter2")]),
        (in_bucket.clone(), vec![("accesskey", "hunter2")]),
        (in_bucket, vec![("accesskey", "a"), ("secretkey", "hunter2"), ("endpoint", "https://b")]),
    ] {
        let outcome = desired_of(&more, &secret).unwrap_err();
        assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
        assert!(!outcome.text().contains("hunter2"), "{}", outcome.text());
    }
}
