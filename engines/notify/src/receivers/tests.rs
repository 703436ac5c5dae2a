//! What the recorded answers do not show: bounds of what a Receiver may ask for, and what it may name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Accepted, MOST_RESOURCES, Misfit, Receiver, Selection, Settings, Target, Targets, check,
};
use crate::objects::Secret;

/// A cluster in which every object of every name is.
struct Everything(Arc<Vec<Value>>);

impl Targets for Everything {
    fn object(&self, target: &Target) -> Option<Value> {
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

fn select(receiver: &Receiver, body: &Value, objects: Vec<Value>) -> Selection {
    let accepted = Accepted { body: body.to_string().into_bytes(), is_json: true, claims: None };
    accepted.select(receiver, &Everything(Arc::new(objects)), Settings::default())
}

fn checked(receiver: &Receiver) -> Result<String, Misfit> {
    let data = [("token".to_owned(), b"t".to_vec())].into();
    check(receiver, Some(&Secret { name: "apps/t".to_owned(), data }))
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
    let receiver = receiver("", &vec![ALL(); 1_000]);
    let all = select(&receiver, &json!({}), objects(20_000));
    assert_eq!((all.status, all.targets.len()), (500, 20_000));
    assert!(all.errors[0].contains("names too many objects"), "{}", all.errors[0]);
}

#[test]
fn long_filters_are_refused_together_and_so_are_many_entries() {
    let long = format!("req.a == '{}'", "x".repeat(9_000));
    let entry = |filter: &str| json!({"kind": "GitRepository", "name": "a", "filter": filter});
    assert!(checked(&receiver("", &vec![entry(&long); 10])).is_ok());
    let too_long = receiver("", &vec![entry(&long); 100]);
    let Err(Misfit::Terminal(reason, text)) = checked(&too_long) else { panic!("it is accepted") };
    assert!(reason == "InvalidCELExpression" && text.contains("too long together"), "{text}");
    assert_eq!(select(&too_long, &json!({}), Vec::new()).status, 500);

    assert!(checked(&receiver("", &vec![entry(""); MOST_RESOURCES])).is_ok());
    let many = receiver("", &vec![entry(""); MOST_RESOURCES + 1]);
    let Err(Misfit::Terminal(_, text)) = checked(&many) else { panic!("it is accepted") };
    assert!(text.contains("1001 entries"), "{text}");
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
