//! Every field of the spec is either used, or rejected with an error that names it; which reference wins; whose
//! credentials are sent.

use serde_json::{Value, json};

use super::super::referenced_objects::OciSecretData;
use super::*;
use fake_cluster::spec_field_check;

const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";

fn object(more: &Value) -> OCIRepository {
    let mut spec = json!({"interval": "10m", "url": "oci://example.com/team/app"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap()
}

fn desired_of(
    more: &Value,
    resolved: OciRepositoryReferencedSecrets,
) -> Result<ValidatedSourceSpec<OciFetchSpec>, RunOutcome> {
    desired(&object(more), resolved)
}

fn data(keys: &[(&str, &str)]) -> OciSecretData {
    keys.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

fn docker(user: &str) -> OciSecretData {
    let config = json!({"auths": {"example.com": {"username": user, "password": "hunter2"}}});
    data(&[(".dockerconfigjson", &config.to_string())])
}

/// A value for every field of the schema that has no support, or not with that value.
fn refused_fields() -> [(&'static str, Value); 1] {
    [("provider", json!("gcp"))]
}

/// Fields of the schema that are used.
const USED: [&str; 13] = [
    "url",
    "ref",
    "layerSelector",
    "secretRef",
    "serviceAccountName",
    "certSecretRef",
    "proxySecretRef",
    "interval",
    "timeout",
    "ignore",
    "insecure",
    "suspend",
    "verify",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    for (field, value) in refused_fields() {
        let outcome = desired_of(&json!({field: value}), OciRepositoryReferencedSecrets::default())
            .err()
            .unwrap();
        spec_field_check::refuses(field, &outcome);
    }
    assert!(
        desired_of(&json!({"provider": "azure"}), OciRepositoryReferencedSecrets::default())
            .is_err()
    );
    for provider in ["aws", "generic"] {
        assert!(
            desired_of(&json!({"provider": provider}), OciRepositoryReferencedSecrets::default())
                .is_ok()
        );
    }
    // Its pull secrets and its own identity would both be meant.
    let both = json!({"provider": "aws", "serviceAccountName": "app"});
    let outcome = desired_of(&both, OciRepositoryReferencedSecrets::default()).err().unwrap();
    assert!(
        outcome.text().starts_with("spec.serviceAccountName with spec.provider `aws`"),
        "{outcome:?}"
    );
}

#[test]
fn every_field_of_the_schema_is_used_or_refused() {
    let refused = refused_fields().map(|(field, _)| field);
    spec_field_check::knows_every_field("OCIRepository", refused.into_iter().chain(USED));
}

#[test]
fn of_several_references_the_one_that_flux_takes_is_taken() {
    let mut given = json!({"digest": DIGEST, "semver": "1.x", "tag": "v1"});
    for (field, expected) in [
        ("digest", "One(Digest(sha256:"),
        ("semver", "Highest("),
        ("tag", "One(Tag(\"v1\"))"),
        ("none", "One(Tag(\"latest\"))"),
    ] {
        let desired = desired_of(&json!({"ref": given}), OciRepositoryReferencedSecrets::default())
            .ok()
            .unwrap();
        let wanted = format!("{:?}", desired.work.wanted);
        assert!(wanted.starts_with(expected), "{wanted}");
        given.as_object_mut().unwrap().remove(field);
    }
}

#[test]
fn only_a_change_of_spec_helps_against_what_is_malformed() {
    for (more, reason, text) in [
        (
            json!({"url": "oci://example.com/app:v1"}),
            "URLInvalid",
            "URL validation failed for 'oci://example.com/app:v1': URL must not contain a tag; remove ':v1'",
        ),
        (
            json!({"ref": {"digest": "sha256:1"}}),
            "OCIArtifactPullFailed",
            "failed to determine artifact digest",
        ),
        (
            json!({"ref": {"tag": "a/b"}}),
            "OCIArtifactPullFailed",
            "failed to determine artifact digest",
        ),
        (
            json!({"ref": {"semver": "latest"}}),
            "ReadOperationFailed",
            "failed to determine the artifact tag for 'oci://example.com/team/app'",
        ),
        (
            json!({"ref": {"semver": "1.x", "semverFilter": "("}}),
            "ReadOperationFailed",
            "failed to determine the artifact tag for 'oci://example.com/team/app'",
        ),
    ] {
        let outcome = desired_of(&more, OciRepositoryReferencedSecrets::default()).err().unwrap();
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        assert_eq!(outcome.reason().as_str(), reason);
        assert!(outcome.text().starts_with(text), "{}", outcome.text());
    }
}

#[test]
fn credentials_are_those_of_the_secret_and_then_of_the_service_account() {
    let user = |secret: Option<&str>, others: &[&str]| {
        let resolved = OciRepositoryReferencedSecrets {
            secret: secret.map(docker),
            pull_secrets: others.iter().map(|user| docker(user)).collect(),
            ..OciRepositoryReferencedSecrets::default()
        };
        match desired_of(&json!({}), resolved).ok().unwrap().work.remote.auth {
            RegistryAuth::Basic { username, .. } => username,
            _ => "anonymous".to_owned(),
        }
    };
    assert_eq!(user(None, &[]), "anonymous");
    assert_eq!(user(Some("a"), &["b"]), "a");
    assert_eq!(user(None, &["b", "c"]), "b");

    let other = || data(&[("username", "me"), ("password", "hunter2")]);
    let resolved = OciRepositoryReferencedSecrets {
        pull_secrets: vec![other()],
        ..OciRepositoryReferencedSecrets::default()
    };
    assert!(desired_of(&json!({}), resolved).is_ok());
    let resolved = OciRepositoryReferencedSecrets {
        secret: Some(other()),
        ..OciRepositoryReferencedSecrets::default()
    };
    let outcome = desired_of(&json!({}), resolved).err().unwrap();
    assert_eq!(outcome.reason().as_str(), "AuthenticationFailed");
    assert!(outcome.text().starts_with("failed to get credential: "), "{}", outcome.text());
}

#[test]
fn secrets_for_the_connection_are_checked_and_not_shown() {
    let certificates = Some(data(&[("tls.key", "hunter2")]));
    let outcome = desired_of(
        &json!({}),
        OciRepositoryReferencedSecrets {
            certificates,
            ..OciRepositoryReferencedSecrets::default()
        },
    )
    .err()
    .unwrap();
    let expected = "failed to generate transport for 'oci://example.com/team/app': ";
    assert!(
        outcome.text().starts_with(expected) && !outcome.text().contains("hunter2"),
        "{}",
        outcome.text()
    );
    let proxy = Some(data(&[("username", "hunter2")]));
    let outcome = desired_of(
        &json!({}),
        OciRepositoryReferencedSecrets { proxy, ..OciRepositoryReferencedSecrets::default() },
    )
    .err()
    .unwrap();
    let expected = "failed to get proxy address: ";
    assert!(
        outcome.text().starts_with(expected) && !outcome.text().contains("hunter2"),
        "{}",
        outcome.text()
    );
    let both = OciRepositoryReferencedSecrets {
        secret: Some(docker("me")),
        proxy: Some(data(&[("address", "http://me:hunter2@p:3128")])),
        ..OciRepositoryReferencedSecrets::default()
    };
    let remote =
        desired_of(&json!({"insecure": true, "timeout": "5s"}), both).ok().unwrap().work.remote;
    assert!(remote.insecure && remote.timeout == Duration::from_secs(5));
    assert!(!format!("{remote:?}").contains("hunter2"));
}

#[test]
fn a_chart_is_copied_and_its_tags_read_as_helm_writes_them() {
    let selector = json!({"mediaType": chart::CHART, "operation": "copy"});
    let more = json!({"layerSelector": selector, "ref": {"semver": "1.x"}});
    let work = desired_of(&more, OciRepositoryReferencedSecrets::default()).ok().unwrap().work;
    assert!(work.is_copied && work.media_type.as_deref() == Some(chart::CHART));
    let OciReferenceSelector::Highest(selection) = work.wanted else { unreachable!() };
    let tags = ["1.0.0_b".to_owned()];
    assert_eq!(selection.choose(&tags).unwrap(), ManifestReference::tag("1.0.0_b").unwrap());
}
