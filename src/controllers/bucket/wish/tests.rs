//! Every field of the spec is either used or refused by its name; as whom the server is asked.

use serde_json::{Value, json};

use super::*;

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

fn data(keys: &[(&str, &str)]) -> Data {
    keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
}

fn wished(more: &Value, resolved: Resolved) -> Result<Work, Rest> {
    wish(&object(more), resolved).map(|wished| wished.work)
}

fn refused(more: &Value, resolved: Resolved) -> Rest {
    wished(more, resolved).err().unwrap()
}

/// A value for every field of the schema that has no support.
fn refused_fields() -> [(&'static str, Value); 3] {
    [
        ("provider", json!("gcp")),
        ("serviceAccountName", json!("x")),
        ("sts", json!({"provider": "ldap", "endpoint": "https://x"})),
    ]
}

/// Fields of the schema that are used; of `provider` and `sts` only some values are refused.
const USED: [&str; 12] = [
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
        let rest = refused(&json!({field: value}), Resolved::default());
        assert!(matches!(rest, Rest::Stalled(reason::UNSUPPORTED_FIELD, _)), "{field}");
        let text = rest.text();
        assert!(text.starts_with(&format!("spec.{field}")), "{text}");
        assert!(text.contains("is not supported"), "{text}");
    }
}

#[test]
fn every_field_of_the_schema_is_used_or_refused() {
    let definitions = crds::all();
    let (_, definition) = definitions.iter().find(|(_, d)| d.spec.names.kind == "Bucket").unwrap();
    let value = serde_json::to_value(definition).unwrap();
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = value.pointer(fields).and_then(Value::as_object).unwrap();
    let refused = refused_fields().map(|(field, _)| field);
    let known: Vec<&str> = refused.into_iter().chain(USED).collect();
    let forgotten = fields.keys().filter(|field| !known.contains(&field.as_str()));
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(fields.len(), known.len());
}

#[test]
fn a_secret_goes_before_the_environment_which_is_for_aws_only() {
    let named = json!({"secretRef": {"name": "s"}});
    let keys = |access, secret| Resolved {
        secret: Some(data(&[("accesskey", access), ("secretkey", secret)])),
        ..Resolved::default()
    };
    let identity =
        |more: &Value, resolved| wished(more, resolved).ok().unwrap().remote.server.identity;
    assert!(matches!(identity(&json!({}), Resolved::default()), Identity::Anonymous));
    assert!(matches!(
        identity(&json!({"provider": "aws"}), Resolved::default()),
        Identity::Environment { sts: None }
    ));
    assert!(matches!(identity(&named, keys("", "")), Identity::Anonymous));
    let given =
        identity(&json!({"provider": "aws", "secretRef": {"name": "s"}}), keys("a", "hunter2"));
    assert!(matches!(&given, Identity::Keys { access, .. } if access == "a"), "{given:?}");
    assert!(!format!("{given:?}").contains("hunter2"));

    for resolved in [
        keys("a", ""),
        Resolved { secret: Some(data(&[("accesskey", "hunter2")])), ..Resolved::default() },
    ] {
        let rest = refused(&named, resolved);
        assert!(matches!(rest, Rest::Failed(AUTHENTICATION_FAILED, ..)), "{rest:?}");
        assert!(rest.text().starts_with("invalid 's' secret data: "), "{}", rest.text());
        assert!(!rest.text().contains("hunter2"));
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
        assert!(wished(&sts(endpoint), Resolved::default()).is_ok(), "{endpoint}");
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
        let rest = refused(&sts(endpoint), Resolved::default());
        assert!(
            matches!(rest, Rest::Stalled(INVALID_STS_CONFIGURATION, _)),
            "{endpoint}: {rest:?}"
        );
    }
}

#[test]
fn only_a_change_of_spec_helps_against_what_cannot_be_meant() {
    for (more, reason) in [
        (json!({"endpoint": "https://s3.example.com"}), "URLInvalid"),
        (json!({"endpoint": "169.254.169.254"}), "URLInvalid"),
        (json!({"annotations": {"windlass.dev/bundle": "a.yaml"}}), "InvalidPath"),
        (
            json!({"prefix": "a/", "annotations": {"windlass.dev/bundle": "a.zip"}}),
            "UnsupportedField",
        ),
    ] {
        let rest = refused(&more, Resolved::default());
        assert!(matches!(rest, Rest::Stalled(..)), "{rest:?}");
        assert_eq!(rest.reason().as_str(), reason, "{}", rest.text());
    }
    let bundle = json!({"annotations": {"windlass.dev/bundle": "a/b.zip"}});
    assert_eq!(
        wished(&bundle, Resolved::default()).ok().unwrap().bundle.as_deref(),
        Some("a/b.zip")
    );
}

#[test]
fn certificates_that_cannot_be_used_are_told_by_their_secret() {
    let more = json!({"certSecretRef": {"name": "c"}});
    for keys in [&[("ca.crt", "hunter2")][..], &[("tls.crt", "hunter2")], &[("other", "hunter2")]] {
        let resolved = Resolved { certificates: Some(data(keys)), ..Resolved::default() };
        let rest = refused(&more, resolved);
        assert!(matches!(rest, Rest::Failed(AUTHENTICATION_FAILED, ..)), "{rest:?}");
        assert!(!rest.text().contains("hunter2"), "{}", rest.text());
    }
}
