//! Container images that change between two states of an object.
//! Elsewhere: other fields (`field_change.rs`), the images of an object (`objects::container_images`).

use std::collections::BTreeSet;

use objects::container_images::images_by_container;
use objects::{Object, SecretMasking};
use serde::{Deserialize, Serialize};

use crate::change_plan::PlanObjectReference;
use crate::field_change::shown_text;

/// An image that changes, or is new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageChange {
    /// The object whose Pods have the container.
    pub object: PlanObjectReference,
    /// The name of the container, or `volume NAME` for a volume that is an image.
    pub container: String,
    /// The image before the change; none for a new container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The image after the change; none for a removed container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// The images in which two states of an object differ. Without an earlier state, all images of the object.
pub(crate) fn image_changes(
    before: Option<&Object>,
    after: &Object,
    secrets: &SecretMasking,
) -> Vec<ImageChange> {
    let old = before.map(images_by_container).unwrap_or_default();
    let new = images_by_container(after);
    let object = PlanObjectReference::from(&after.id());
    let shown = |image: Option<&&str>| image.map(|image| shown_text(image, secrets));
    let containers: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = containers.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let change = |name: &String| ImageChange {
        object: object.clone(),
        container: shown_text(name, secrets),
        old: shown(old.get(name)),
        new: shown(new.get(name)),
    };
    changed.map(change).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn changes(api: &str, kind: &str, before: Option<Value>, after: Value) -> Vec<String> {
        let object = |spec: Value| {
            let metadata = json!({"name": "web", "namespace": "apps"});
            Object::new(
                json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}),
            )
            .unwrap()
        };
        let before = before.map(object);
        let changes = image_changes(before.as_ref(), &object(after), &SecretMasking::default());
        let line = |it: &ImageChange| format!("{} {:?} {:?}", it.container, it.old, it.new);
        changes.iter().map(line).collect()
    }

    #[test]
    fn images_of_all_containers_of_all_workloads_are_compared_by_name() {
        let spec = |main: &str| {
            json!({"initContainers": [{"name": "setup", "image": "busybox"}],
                "containers": [{"name": "main", "image": main}, {"name": "none"}]})
        };
        let template = |main: &str| json!({"template": {"spec": spec(main)}});
        let job = |main: &str| json!({"jobTemplate": {"spec": template(main)}});
        let expected = [r#"main Some("a:1") Some("a:2")"#];
        assert_eq!(changes("v1", "Pod", Some(spec("a:1")), spec("a:2")), expected);
        for (api, kind) in [("apps/v1", "Deployment"), ("batch/v1", "Job")] {
            assert_eq!(changes(api, kind, Some(template("a:1")), template("a:2")), expected);
        }
        assert_eq!(changes("batch/v1", "CronJob", Some(job("a:1")), job("a:2")), expected);
        assert_eq!(changes("example.com/v1", "Job", None, template("a:1")), [""; 0]);
    }

    #[test]
    fn new_and_removed_containers_have_one_image() {
        let spec = |name: &str| json!({"containers": [{"name": name, "image": "a"}]});
        let expected = [r#"a Some("a") None"#, r#"b None Some("a")"#];
        assert_eq!(changes("v1", "Pod", Some(spec("a")), spec("b")), expected);
        assert_eq!(changes("v1", "Pod", None, spec("b")), expected[1..]);
        let volume = json!({"volumes": [{"name": "model", "image": {"reference": "m:1"}}]});
        assert_eq!(changes("v1", "Pod", None, volume), [r#"volume model None Some("m:1")"#]);
    }
}
