//! Every field of the spec is either used, or rejected with an error that names it; which reference wins; what a proxy is for.

use serde_json::{Value, json};

use super::*;
use fake_cluster::spec_field_check;
use sources::source_condition_reasons::AUTHENTICATION_FAILED;
use windlass_runtime::git_remote_access::GitRemoteSecrets;

fn object(more: &Value) -> GitRepository {
    let mut spec = json!({"interval": "10m", "url": "https://example.com/app.git"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap()
}

fn desired_of(
    more: &Value,
    proxy: Option<&[(&str, &str)]>,
) -> Result<ValidatedSourceSpec<GitFetchSpec>, RunOutcome> {
    let data = |keys: &[(&str, &str)]| {
        keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
    };
    let keys = [("identity", "x"), ("known_hosts", "x")];
    let secret = data(&keys);
    let proxy = proxy.map(data);
    let keys = more.get("verify").map(|_| data(&[("a.asc", "x")]));
    let secrets = GitRemoteSecrets { secret, proxy };
    desired(&object(more), GitRepositoryReferencedObjects { secrets, keys, include: Vec::new() })
}

/// A value for every field of the schema that has no support.
fn refused_fields() -> [(&'static str, Value); 2] {
    [("provider", json!("github")), ("serviceAccountName", json!("x"))]
}

/// Fields of the schema that are used.
const USED: [&str; 12] = [
    "url",
    "secretRef",
    "interval",
    "timeout",
    "ref",
    "proxySecretRef",
    "ignore",
    "suspend",
    "recurseSubmodules",
    "include",
    "sparseCheckout",
    "verify",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    for (field, value) in refused_fields() {
        let outcome = desired_of(&json!({field: value}), None).err().unwrap();
        spec_field_check::refuses(field, &outcome);
    }
}

#[test]
fn every_field_of_the_schema_is_used_or_refused() {
    let refused = refused_fields().map(|(field, _)| field);
    spec_field_check::knows_every_field("GitRepository", refused.into_iter().chain(USED));
}

#[test]
fn of_several_references_the_one_that_flux_takes_is_taken() {
    let mut given = json!({
        "commit": "0123456789abcdef0123456789abcdef01234567", "name": "refs/pull/1/head",
        "tag": "v1", "semver": "1.x", "branch": "main",
    });
    for (field, expected) in [
        ("commit", "commit `0123456789abcdef0123456789abcdef01234567`"),
        ("name", "reference `refs/pull/1/head`"),
        ("tag", "tag `v1`"),
        ("semver", "tag in range `1.x`"),
        ("branch", "branch `main`"),
        ("none", "branch `master`"),
    ] {
        let desired = desired_of(&json!({"ref": given}), None).ok().unwrap();
        assert_eq!(desired.work.reference.to_string(), expected);
        given.as_object_mut().unwrap().remove(field);
    }
}

#[test]
fn only_a_change_of_spec_helps_against_a_range_or_a_folder_that_is_none() {
    for (more, reason) in [
        (json!({"ref": {"semver": "latest"}}), "GitOperationFailed"),
        (json!({"sparseCheckout": ["../x"]}), "InvalidPath"),
    ] {
        let outcome = desired_of(&more, None).err().unwrap();
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        assert_eq!(outcome.reason().as_str(), reason, "{}", outcome.text());
    }
}

#[test]
fn a_proxy_is_for_http_and_its_secret_is_not_shown() {
    let keys = [("address", "http://p:3128"), ("username", "me"), ("password", "hunter2")];
    let remote = desired_of(&json!({}), Some(&keys)).ok().unwrap().work.remote;
    assert_eq!(remote.proxy.as_ref().unwrap().to_string(), "http://p:3128");
    assert!(!format!("{remote:?}").contains("hunter2"));

    let outcome =
        desired_of(&json!({"url": "ssh://example.com/app.git"}), Some(&keys)).err().unwrap();
    assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
    assert!(outcome.text().starts_with("spec.proxySecretRef is not supported for ssh URLs"));

    let outcome = desired_of(&json!({}), Some(&keys[1..])).err().unwrap();
    assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
    assert!(outcome.text().contains("`address`") && !outcome.text().contains("hunter2"));
}

#[test]
fn other_keys_or_another_mode_make_another_artifact() {
    let shape = |mode: Option<&str>| {
        let verify = json!({"mode": mode, "secretRef": {"name": "x"}});
        desired_of(&json!({"verify": verify}), None).ok().unwrap().shape
    };
    assert_eq!(shape(None), shape(Some("HEAD")));
    assert_eq!(shape(None), shape(Some("head")));
    assert_ne!(shape(None), shape(Some("Tag")));
    assert_ne!(shape(None), desired_of(&json!({}), None).ok().unwrap().shape);
}
