//! Every field of the spec is either used, or rejected with an error that names it; with which identity the server is asked.

use serde_json::{Value, json};

use super::*;
use fake_cluster::spec_field_check;

fn object(more: &Value) -> Bucket {
    let mut spec = json!({"interval": "10m", "endpoint": "s3.example.com", "bucketName": "app"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let annotations = spec["annotations"].take();
    spec.as_object_mut().unwrap().remove("annotations");
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
        "metadata": {"name": "app", "namespace": "shop", "annotations": annotations}, "spec": spec,
    }))
    .unwrap()
}

fn data(keys: &[(&str, &str)]) -> BucketSecretData {
    keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
}

fn desired_of(
    more: &Value,
    resolved: BucketReferencedSecrets,
) -> Result<BucketFetchSpec, RunOutcome> {
    desired(&object(more), resolved).map(|desired| desired.work)
}

fn refused(more: &Value, resolved: BucketReferencedSecrets) -> RunOutcome {
    desired_of(more, resolved).err().unwrap()
}

/// A value for every field of the schema that has no support.
fn refused_fields() -> [(&'static str, Value); 1] {
    [("serviceAccountName", json!("x"))]
}

/// Fields of the schema that are used.
const USED: [&str; 14] = [
    "provider",
    "sts",
    "bucketName",
    "endpoint",
    "insecure",
    "region",
    "prefix",
    "secretRef",
    "certSecretRef",
    "proxySecretRef",
    "interval",
    "timeout",
    "ignore",
    "suspend",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    for (field, value) in refused_fields() {
        let outcome = refused(&json!({field: value}), BucketReferencedSecrets::default());
        spec_field_check::refuses(field, &outcome);
    }
}

#[test]
fn every_field_of_the_schema_is_used_or_refused() {
    let refused = refused_fields().map(|(field, _)| field);
    spec_field_check::knows_every_field("Bucket", refused.into_iter().chain(USED));
}

#[test]
fn a_secret_goes_before_the_environment_which_is_for_aws_only() {
    let named = json!({"secretRef": {"name": "s"}});
    let keys = |access, secret| BucketReferencedSecrets {
        secret: Some(data(&[("accesskey", access), ("secretkey", secret)])),
        ..BucketReferencedSecrets::default()
    };
    let identity =
        |more: &Value, resolved| desired_of(more, resolved).ok().unwrap().remote.server.identity;
    assert!(matches!(
        identity(&json!({}), BucketReferencedSecrets::default()),
        BucketCredentialSource::Anonymous
    ));
    assert!(matches!(
        identity(&json!({"provider": "aws"}), BucketReferencedSecrets::default()),
        BucketCredentialSource::Environment { sts: None }
    ));
    assert!(matches!(identity(&named, keys("", "")), BucketCredentialSource::Anonymous));
    let given =
        identity(&json!({"provider": "aws", "secretRef": {"name": "s"}}), keys("a", "hunter2"));
    assert!(
        matches!(&given, BucketCredentialSource::Keys { access, .. } if access == "a"),
        "{given:?}"
    );
    assert!(!format!("{given:?}").contains("hunter2"));

    for resolved in [
        keys("a", ""),
        BucketReferencedSecrets {
            secret: Some(data(&[("accesskey", "hunter2")])),
            ..BucketReferencedSecrets::default()
        },
    ] {
        let outcome = refused(&named, resolved);
        assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
        assert!(outcome.text().starts_with("invalid 's' secret data: "), "{}", outcome.text());
        assert!(!outcome.text().contains("hunter2"));
    }
}

fn cloud(
    provider: &str,
    endpoint: &str,
    secret: &[(&str, &str)],
) -> Result<BucketCredentialSource, RunOutcome> {
    let mut more = json!({"provider": provider, "endpoint": endpoint});
    let mut resolved = BucketReferencedSecrets::default();
    if !secret.is_empty() {
        more["secretRef"] = json!({"name": "s"});
        resolved.secret = Some(data(secret));
    }
    desired_of(&more, resolved).map(|work| work.remote.server.identity)
}

#[test]
fn the_credentials_of_the_machine_go_to_the_clouds_own_hosts_only() {
    use sources::bucket::{azure, google};
    for (endpoint, is_theirs) in [
        ("storage.googleapis.com", true),
        ("https://storage.googleapis.com", true),
        ("evil.example", false),
    ] {
        let found = cloud("gcp", endpoint, &[]).unwrap();
        let BucketCredentialSource::Google(found) = found else { panic!("{found:?}") };
        assert_eq!(
            matches!(found, google::GoogleCredentialSource::Environment),
            is_theirs,
            "{endpoint}"
        );
    }
    for (endpoint, is_theirs) in [
        ("https://a.blob.core.windows.net", true),
        ("https://a.blob.core.windows.net.evil.example", false),
    ] {
        let found = cloud("azure", endpoint, &[]).unwrap();
        let BucketCredentialSource::Azure(found) = found else { panic!("{found:?}") };
        assert_eq!(
            matches!(found, azure::AzureCredentialSource::Environment { .. }),
            is_theirs,
            "{endpoint}"
        );
        let named = cloud("azure", endpoint, &[("clientId", "c")]);
        assert_eq!(named.is_ok(), is_theirs, "{endpoint}");
    }
}

#[test]
fn a_secret_of_a_cloud_is_read_as_flux_reads_it() {
    use sources::bucket::{azure, google};
    let key = cloud("gcp", "storage.googleapis.com", &[("serviceaccount", "{}")]).unwrap();
    assert!(
        matches!(
            key,
            BucketCredentialSource::Google(google::GoogleCredentialSource::ServiceAccount(_))
        ),
        "{key:?}"
    );

    let account = "https://shop.blob.core.windows.net";
    let all = [
        ("sasKey", "hunter2"),
        ("accountKey", "hunter2"),
        ("clientId", "c"),
        ("tenantId", "t"),
        ("clientSecret", "hunter2"),
    ];
    let kind = |keys: &[(&str, &str)]| {
        let found = cloud("azure", account, keys).unwrap();
        assert!(!format!("{found:?}").contains("hunter2"));
        match found {
            BucketCredentialSource::Azure(azure::AzureCredentialSource::Signature(_)) => {
                "signature".to_owned()
            }
            BucketCredentialSource::Azure(azure::AzureCredentialSource::Key {
                account, ..
            }) => account,
            BucketCredentialSource::Azure(azure::AzureCredentialSource::Environment { client }) => {
                client.unwrap_or_default()
            }
            BucketCredentialSource::Azure(azure::AzureCredentialSource::Application {
                tenant,
                ..
            }) => tenant,
            other => panic!("{other:?}"),
        }
    };
    let kinds: Vec<String> = [1, 2, 3, 5].map(|n| kind(&all[..n])).to_vec();
    assert_eq!(kinds, ["signature", "shop", "c", "t"]);
    assert_eq!(kind(&[("accountKey", "hunter2"), ("accountName", "other")]), "other");

    for (provider, endpoint, keys, says) in [
        ("gcp", "storage.googleapis.com", &[("accesskey", "hunter2")][..], "'serviceaccount'"),
        ("azure", account, &[("accesskey", "hunter2")], "requires a 'clientId'"),
        (
            "azure",
            account,
            &[("tenantId", "t"), ("clientId", "c"), ("clientCertificate", "hunter2")],
            "'clientCertificate' is not supported",
        ),
        ("azure", "http://127.0.0.1:10000", &[("accountKey", "hunter2")], "'accountName'"),
    ] {
        let outcome = cloud(provider, endpoint, keys).unwrap_err();
        assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
        assert!(outcome.text().starts_with("invalid 's' secret data: "), "{}", outcome.text());
        assert!(outcome.text().contains(says), "{}", outcome.text());
        assert!(!outcome.text().contains("hunter2"), "{}", outcome.text());
    }
}

#[test]
fn the_token_of_windlass_goes_to_services_of_aws_only() {
    let sts = |endpoint: &str| json!({"provider": "aws", "sts": {"provider": "aws", "endpoint": endpoint}});
    for endpoint in [
        "https://sts.amazonaws.com",
        "https://sts.eu-west-1.amazonaws.com/",
        "https://sts-fips.us-east-1.amazonaws.com",
        "https://vpce-1.sts.eu-west-1.vpce.amazonaws.com",
        "https://sts.cn-north-1.amazonaws.com.cn",
    ] {
        assert!(
            desired_of(&sts(endpoint), BucketReferencedSecrets::default()).is_ok(),
            "{endpoint}"
        );
    }
    for endpoint in [
        "http://sts.amazonaws.com",
        "https://sts.amazonaws.com.evil.example",
        "https://evil.example/sts.amazonaws.com",
        "https://evil-sts.amazonaws.com",
        "https://sts.amazonaws.com@evil.example",
        "https://s3.amazonaws.com",
        "https://127.0.0.1",
    ] {
        let outcome = refused(&sts(endpoint), BucketReferencedSecrets::default());
        assert!(
            matches!(outcome, RunOutcome::Stalled(INVALID_STS_CONFIGURATION, _)),
            "{endpoint}: {outcome:?}"
        );
    }
}

#[test]
fn a_user_of_a_directory_is_given_keys_for_generic_buckets_only() {
    let ldap = |more: &Value| {
        let mut sts = json!({"provider": "ldap", "endpoint": "https://minio.example.com/sts"});
        for (key, value) in more.as_object().into_iter().flatten() {
            sts[key] = value.clone();
        }
        sts
    };
    let named = ldap(&json!({"secretRef": {"name": "u"}}));
    let user = || BucketReferencedSecrets {
        sts_secret: Some(data(&[("username", "me"), ("password", "hunter2")])),
        ..BucketReferencedSecrets::default()
    };
    let identity = desired_of(&json!({"sts": named}), user()).ok().unwrap().remote.server.identity;
    let BucketCredentialSource::Ldap(given) = &identity else { panic!("{identity:?}") };
    assert_eq!((given.username.as_str(), given.endpoint.path()), ("me", "/sts"));
    assert!(!format!("{identity:?}").contains("hunter2"));
    for (more, expected) in [
        (json!({"sts": named, "provider": "aws"}), "for the 'generic' bucket provider only"),
        (
            json!({"sts": named, "secretRef": {"name": "s"}}),
            "cannot be combined with spec.secretRef",
        ),
        (json!({"sts": ldap(&json!({}))}), "requires spec.sts.secretRef"),
        (
            json!({"sts": ldap(&json!({"secretRef": {"name": "u"}, "endpoint": "https://a:hunter2@b"}))}),
            "without credentials",
        ),
    ] {
        let outcome = refused(&more, user());
        assert!(
            matches!(outcome, RunOutcome::Stalled(INVALID_STS_CONFIGURATION, _)),
            "{outcome:?}"
        );
        assert!(
            outcome.text().contains(expected) && !outcome.text().contains("hunter2"),
            "{outcome:?}"
        );
    }
    let half = BucketReferencedSecrets {
        sts_secret: Some(data(&[("username", "me")])),
        ..BucketReferencedSecrets::default()
    };
    let outcome = refused(&json!({"sts": named}), half);
    let expected =
        "invalid 'u' secret data for 'ldap' STS provider: required fields username, password";
    assert_eq!(outcome.text(), expected);
}

#[test]
fn only_a_change_of_spec_helps_against_what_cannot_be_meant() {
    for (more, reason) in [
        (json!({"endpoint": "https://s3.example.com"}), "URLInvalid"),
        (json!({"endpoint": "169.254.169.254"}), "URLInvalid"),
        (json!({"provider": "azure"}), "URLInvalid"),
        (json!({"provider": "azure", "endpoint": "https://a.example/?sig=x"}), "URLInvalid"),
        (json!({"provider": "gcp", "endpoint": "http://storage.googleapis.com"}), "URLInvalid"),
        (json!({"annotations": {"windlass.dev/bundle": "a.yaml"}}), "InvalidPath"),
        (
            json!({"prefix": "a/", "annotations": {"windlass.dev/bundle": "a.zip"}}),
            "UnsupportedField",
        ),
    ] {
        let outcome = refused(&more, BucketReferencedSecrets::default());
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        assert_eq!(outcome.reason().as_str(), reason, "{}", outcome.text());
    }
    let bundle = json!({"annotations": {"windlass.dev/bundle": "a/b.zip"}});
    assert_eq!(
        desired_of(&bundle, BucketReferencedSecrets::default()).ok().unwrap().bundle.as_deref(),
        Some("a/b.zip")
    );
}

#[test]
fn certificates_that_cannot_be_used_are_reported_by_their_secret() {
    let more = json!({"certSecretRef": {"name": "c"}});
    for keys in [&[("ca.crt", "hunter2")][..], &[("tls.crt", "hunter2")], &[("other", "hunter2")]] {
        let resolved = BucketReferencedSecrets {
            certificates: Some(data(keys)),
            ..BucketReferencedSecrets::default()
        };
        let outcome = refused(&more, resolved);
        assert!(matches!(outcome, RunOutcome::Failed(AUTHENTICATION_FAILED, ..)), "{outcome:?}");
        assert!(!outcome.text().contains("hunter2"), "{}", outcome.text());
    }
}
