//! What the recorded answers do not show: bounds of what a Receiver may ask for, and what it may name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    AcceptedHookRequest, AnnotationTarget, MOST_RESOURCES, Receiver, ReceiverClusterReader,
    ReceiverControllerSettings, ReceiverRequestStep, ReceiverSelection, ReceiverSpecError,
    ReceiverWebhookRequest, WebhookAuthentication, check,
};
use crate::api_objects::SecretData;

/// A cluster in which every object of every name is.
struct EveryObjectCluster(Arc<Vec<Value>>);

impl ReceiverClusterReader for EveryObjectCluster {
    fn object(&self, target: &AnnotationTarget) -> Option<Value> {
        Some(json!({"metadata": {"name": target.name, "namespace": target.namespace}}))
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Arc<Vec<Value>> {
        self.0.clone()
    }
}

fn receiver(filter: &str, resources: &[Value]) -> Receiver {
    Receiver::new(&json!({
        "metadata": {"name": "r", "namespace": "apps"},
        "spec": {"type": "generic", "secretRef": {"name": "t"}, "resourceFilter": filter,
            "resources": resources},
    }))
    .unwrap()
}

fn select(receiver: &Receiver, body: &Value, objects: Vec<Value>) -> ReceiverSelection {
    let accepted =
        AcceptedHookRequest { body: body.to_string().into_bytes(), is_json: true, claims: None };
    accepted.select(
        receiver,
        &EveryObjectCluster(Arc::new(objects)),
        ReceiverControllerSettings::default(),
    )
}

fn checked(receiver: &Receiver) -> Result<String, ReceiverSpecError> {
    let data = [("token".to_owned(), b"t".to_vec())].into();
    check(receiver, Some(&SecretData { name: "apps/t".to_owned(), data }))
}

fn objects(count: usize) -> Vec<Value> {
    (0..count)
        .map(|at| json!({"metadata": {"name": at.to_string(), "labels": {"a": "b"}}}))
        .collect()
}

const ALL: fn() -> Value =
    || json!({"kind": "GitRepository", "name": "*", "matchLabels": {"a": "b"}});

#[test]
fn the_filters_of_a_request_share_what_they_may_use_up() {
    let body = json!({"list": (0..10_000).collect::<Vec<_>>()});
    let receiver = receiver("req.list.all(it, it < 20000.0)", &vec![ALL(); 20]);
    assert!(checked(&receiver).is_ok());
    let few = select(&receiver, &body, objects(1));
    assert_eq!((few.status, few.targets.len()), (200, 1), "{:?}", few.errors);
    let many = select(&receiver, &body, objects(5_000));
    assert_eq!((many.status, many.errors.len()), (500, 20));
    assert!(many.targets.len() < 1_000, "{}", many.targets.len());
}

#[test]
fn objects_that_no_filter_is_asked_about_count_as_well() {
    let receiver = receiver("", &vec![ALL(); MOST_RESOURCES]);
    let all = select(&receiver, &json!({}), objects(20_000));
    assert_eq!((all.status, all.targets.len()), (500, 20_000));
    assert!(all.errors[0].contains("names too many objects"), "{}", all.errors[0]);
}

#[test]
fn long_filters_are_refused_together_and_so_are_many_entries() {
    let long = format!("req.a == '{}'", "x".repeat(9_000));
    let entry = |filter: &str| json!({"kind": "GitRepository", "name": "a", "filter": filter});
    assert!(checked(&receiver("", &vec![entry(&long); 10])).is_ok());
    let too_long = receiver("", &vec![entry(&long); MOST_RESOURCES]);
    let Err(ReceiverSpecError::Terminal(reason, text)) = checked(&too_long) else {
        panic!("it is accepted")
    };
    assert!(reason == "InvalidCELExpression" && text.contains("too long together"), "{text}");
    assert_eq!(select(&too_long, &json!({}), Vec::new()).status, 500);

    assert!(checked(&receiver("", &vec![entry(""); MOST_RESOURCES])).is_ok());
    let many = receiver("", &vec![entry(""); MOST_RESOURCES + 1]);
    let Err(ReceiverSpecError::Terminal(_, text)) = checked(&many) else {
        panic!("it is accepted")
    };
    assert!(text.contains("65 entries"), "{text}");
    let selection = select(&many, &json!({}), Vec::new());
    assert_eq!((selection.status, selection.targets.len()), (500, 0));
}

#[test]
fn only_objects_of_flux_and_windlass_are_within_reach() {
    for (version, is_within) in [
        ("", true),
        ("source.toolkit.fluxcd.io/v1", true),
        ("source.extensions.fluxcd.io/v1beta1", true),
        ("helmfile.windlass.dev/v1alpha1", true),
        ("v1", false),
        ("apps/v1", false),
        ("toolkit.fluxcd.io.example.com/v1", false),
        ("rbac.authorization.k8s.io/v1", false),
    ] {
        let resource = json!({"apiVersion": version, "kind": "Bucket", "name": "a"});
        let receiver = receiver("", &[resource]);
        let selection = select(&receiver, &json!({}), Vec::new());
        assert_eq!(selection.status == 200, is_within, "{version}: {:?}", selection.errors);
        assert_eq!(selection.targets.len(), usize::from(is_within), "{version}");
        assert_eq!(checked(&receiver).is_ok(), is_within, "{version}");
    }
}

/// Every type that has a token.
const WITH_TOKEN: [&str; 13] = [
    "generic",
    "generic-hmac",
    "github",
    "gitlab",
    "bitbucket",
    "harbor",
    "dockerhub",
    "quay",
    "gcr",
    "nexus",
    "acr",
    "cdevents",
    "something-else",
];

fn received(kind: &str, token: &[u8]) -> (Result<String, ReceiverSpecError>, ReceiverRequestStep) {
    let mut receiver = receiver("", &[json!({"kind": "GitRepository", "name": "app"})]);
    kind.clone_into(&mut receiver.spec.r#type);
    receiver.is_ready = true;
    let data = [("token", token), ("email", b"a@b.c"), ("audience", b"x")];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_vec())).into();
    let secret = SecretData { name: "apps/t".to_owned(), data };
    // What a sender would send who knows that the token is empty.
    let signature = "sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad";
    let headers = [
        ("X-Signature", signature),
        ("X-Hub-Signature", signature),
        ("X-Nexus-Webhook-Signature", "fbdb1d1b18aa6c08324b7d64b71fb76370690e1d"),
        ("Content-Type", "application/json"),
        ("Ce-Type", "x"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let hook = ReceiverWebhookRequest { headers, body: Vec::new() };
    let (_, gate) = WebhookAuthentication::start(
        hook,
        &receiver,
        Some(&secret),
        ReceiverControllerSettings::default(),
    );
    (check(&receiver, Some(&secret)), gate)
}

#[test]
fn a_token_that_is_empty_is_none() {
    for kind in WITH_TOKEN {
        for token in [&b""[..], b"\n", b" \t\r\n"] {
            let (checked, gate) = received(kind, token);
            let text = "invalid 'apps/t' secret data: field 'token' is empty".to_owned();
            assert_eq!(checked, Err(ReceiverSpecError::TokenNotFound(text)), "{kind}");
            let ReceiverRequestStep::Refused(400, reason) = gate else {
                panic!("{kind}: {gate:?}")
            };
            assert!(reason.contains("field 'token' is empty"), "{kind}: {reason}");
        }
        assert!(received(kind, b"x").0.is_ok(), "{kind}");
    }
    assert!(matches!(received("generic", b"x").1, ReceiverRequestStep::Accepted(_)));
}

#[test]
fn a_cdevent_is_as_the_schema_of_its_type_wants_it() {
    // More of them are recorded (`hook/cdevents/content-…`).
    let checked = |kind: &str, subject: &Value, more: &Value| {
        let mut event =
            json!({"context": {"id": "i", "source": "/e", "type": kind}, "subject": {"id": "s"}});
        for (part, members) in [("subject", subject), ("context", more)] {
            for (name, value) in members.as_object().unwrap() {
                event[part][name] = value.clone();
            }
        }
        super::cdevents::check(event.to_string().as_bytes()).is_ok()
    };
    let content = |kind: &str, content: Value| {
        checked(&format!("dev.cdevents.{kind}"), &json!({"content": content}), &json!({}))
    };
    let of = json!({"id": "r"});
    for (kind, good, bad) in [
        ("artifact.packaged.0.2.0", json!({"change": of}), json!({})),
        ("artifact.packaged.0.2.0", json!({"change": of, "other": 1}), json!({"change": {}})),
        ("artifact.signed.0.2.0", json!({"SIGNATURE": "x"}), json!({"signature": ""})),
        ("artifact.published.0.2.0", json!({"user": ""}), json!({"user": 5})),
        ("change.merged.0.2.0", Value::Null, json!([1])),
        (
            "service.deployed.0.2.0",
            json!({"environment": of, "artifactId": "pkg:golang/x/y@v1"}),
            json!({"environment": of, "artifactId": "y"}),
        ),
        (
            "testcaserun.finished.0.2.0",
            json!({"environment": of, "outcome": "pass", "severity": ""}),
            json!({"environment": of, "outcome": "passed"}),
        ),
        (
            "ticket.created.0.1.0",
            json!({"uri": "/t", "creator": "c", "labels": [null, "a"]}),
            json!({"uri": "/t", "creator": "c", "labels": "a"}),
        ),
    ] {
        assert!(content(kind, good), "{kind}");
        assert!(!content(kind, bad), "{kind}");
    }
    let merged = "dev.cdevents.change.merged.0.2.0";
    assert!(checked(merged, &json!({"type": "change"}), &json!({})));
    assert!(!checked(merged, &json!({"type": "artifact"}), &json!({})));
    assert!(!checked(merged, &json!({}), &json!({"source": ""})));
    let custom = "dev.cdeventsx.tool-thing.made.0.1.0";
    assert!(checked(custom, &json!({"type": "tool-thing", "content": {}}), &json!({})));
    assert!(!checked(custom, &json!({"type": "tool-thing"}), &json!({})));
    assert!(!checked(custom, &json!({"type": "thing", "content": {}}), &json!({})));
}
