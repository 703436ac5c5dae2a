//! Every field of the spec is used; what a Secret must have; what stalls.

use serde_json::{Value, json};

use super::*;
use fake_cluster::spec_field_check;

fn object(more: &Value) -> HTTPArchive {
    let mut spec = json!({"interval": "10m", "url": "https://example.com/app.tar.gz"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.windlass.dev/v1alpha1", "kind": "HTTPArchive",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap()
}

fn data(keys: &[(&str, &str)]) -> Option<HttpArchiveSecretData> {
    Some(keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect())
}

fn refused(more: &Value, resolved: &HttpArchiveReferencedSecrets) -> RunOutcome {
    desired(&object(more), resolved).err().unwrap()
}

#[test]
fn every_field_of_the_schema_is_used() {
    let used = [
        "certSecretRef",
        "digest",
        "ignore",
        "interval",
        "proxySecretRef",
        "secretRef",
        "suspend",
        "timeout",
        "url",
    ];
    spec_field_check::knows_every_field("HTTPArchive", used);
}

#[test]
fn a_spec_says_what_is_asked_and_what_the_artifact_is_made_with() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let resolved = HttpArchiveReferencedSecrets {
        secret: data(&[("username", "me"), ("password", "hunter2")]),
        certificates: None,
        proxy: data(&[("address", "http://p:3128"), ("username", "me"), ("password", "hunter2")]),
    };
    let more = json!({"digest": digest, "timeout": "5s", "ignore": "*.md"});
    let desired = desired(&object(&more), &resolved).ok().unwrap();
    let remote = &desired.work.remote;
    assert_eq!(remote.limits.time, Duration::from_secs(5));
    assert_eq!(remote.digest.as_ref(), Some(&digest));
    assert!(matches!(&remote.auth, GitAuth::Basic { username, .. } if username == "me"));
    assert!(!format!("{remote:?}").contains("hunter2"));
    let shape = ArtifactInputs::default()
        .with("url", "https://example.com/app.tar.gz")
        .with("digest", digest)
        .with("ignore", "*.md");
    assert_eq!(desired.shape, shape);
}

#[test]
fn only_a_change_of_spec_helps_against_these() {
    for (more, reason) in [
        (json!({"url": "https://me:hunter2@example.com/a"}), "URLInvalid"),
        (json!({"url": "file:///etc/passwd"}), "URLInvalid"),
        (json!({"digest": "sha256:1"}), "URLInvalid"),
        (json!({"timeout": "soon"}), "InvalidDuration"),
        (json!({"interval": "soon"}), "InvalidDuration"),
    ] {
        let outcome = refused(&more, &HttpArchiveReferencedSecrets::default());
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        assert_eq!(outcome.reason().as_str(), reason, "{}", outcome.text());
        assert!(!outcome.text().contains("hunter2"));
    }
}

#[test]
fn a_secret_without_entries_is_reported_by_its_field() {
    let nothing = data(&[("other", "hunter2")]);
    for (resolved, expected) in [
        (
            HttpArchiveReferencedSecrets {
                secret: nothing.clone(),
                ..HttpArchiveReferencedSecrets::default()
            },
            "spec.secretRef",
        ),
        (
            HttpArchiveReferencedSecrets {
                certificates: nothing.clone(),
                ..HttpArchiveReferencedSecrets::default()
            },
            "spec.certSecretRef",
        ),
        (
            HttpArchiveReferencedSecrets {
                proxy: nothing,
                ..HttpArchiveReferencedSecrets::default()
            },
            "`address`",
        ),
        (
            HttpArchiveReferencedSecrets {
                certificates: data(&[("tls.crt", "x")]),
                ..HttpArchiveReferencedSecrets::default()
            },
            "`tls.crt` requires `tls.key`",
        ),
        // Certificates of the one Secret are not those of the other.
        (
            HttpArchiveReferencedSecrets {
                secret: data(&[("ca.crt", "x")]),
                ..HttpArchiveReferencedSecrets::default()
            },
            "spec.secretRef",
        ),
    ] {
        let outcome = refused(&json!({}), &resolved);
        assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
        assert!(
            outcome.text().contains(expected) && !outcome.text().contains("hunter2"),
            "{}",
            outcome.text()
        );
    }
}
