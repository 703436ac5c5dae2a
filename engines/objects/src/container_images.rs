//! The images of the containers of workloads.
//!
//! Elsewhere: images that change (engine `plan`), names of images (engine `image`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Object;

/// The lists of containers in the spec of a Pod.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The longest name of an image that is counted, in bytes.
const MAX_IMAGE_LENGTH: usize = 512;

/// The images of a built-in workload, by container name. `volume NAME` stands for a volume that is an image. The result is
/// empty for other kinds.
#[must_use]
pub fn images_by_container(object: &Object) -> BTreeMap<String, &str> {
    let Some(spec) = pod_spec(object) else { return BTreeMap::new() };
    let list = move |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
    let containers = CONTAINER_LISTS.into_iter().flat_map(list).filter_map(|container| {
        let name = container.get("name")?.as_str()?;
        Some((name.to_owned(), container.get("image")?.as_str()?))
    });
    let volumes = list("volumes").filter_map(|volume| {
        let name = volume.get("name")?.as_str()?;
        Some((format!("volume {name}"), volume.pointer("/image/reference")?.as_str()?))
    });
    containers.chain(volumes).collect()
}

/// The images of several objects, each once, in order. If there are more than `limit`, the result is empty, because a part of
/// the images would look like all of them.
#[must_use]
pub fn images_of<'o>(objects: impl IntoIterator<Item = &'o Object>, limit: usize) -> Vec<String> {
    let mut all = BTreeSet::new();
    for object in objects {
        let images = images_by_container(object).into_values();
        all.extend(images.filter(|image| image.len() <= MAX_IMAGE_LENGTH));
        if all.len() > limit {
            return Vec::new();
        }
    }
    all.into_iter().map(str::to_owned).collect()
}

/// The spec of the Pods of a built-in workload. `None` if the object is no such workload or has no such spec.
fn pod_spec(object: &Object) -> Option<&Value> {
    let gvk = object.gvk();
    let below = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => "",
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => "/template/spec",
        ("batch", "CronJob") => "/jobTemplate/spec/template/spec",
        _ => return None,
    };
    object.get("spec")?.pointer(below)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, images: &[&str]) -> Object {
        let container =
            |(at, image): (usize, &&str)| json!({"name": at.to_string(), "image": image});
        let containers: Vec<Value> = images.iter().enumerate().map(container).collect();
        Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "apps"},
            "spec": {"template": {"spec": {"containers": containers}}}}))
        .unwrap()
    }

    #[test]
    fn an_image_that_several_objects_have_is_listed_once() {
        let objects = [deployment("a", &["x:1", "y:1"]), deployment("b", &["x:1"])];
        assert_eq!(images_of(&objects, 9), ["x:1", "y:1"]);
        assert_eq!(images_of(&objects, 1), [""; 0], "half a list would look like a whole one");
    }

    #[test]
    fn a_name_that_no_image_has_is_left_out() {
        let long = "x".repeat(MAX_IMAGE_LENGTH + 1);
        assert!(images_of(&[deployment("a", &[&long])], 9).is_empty());
    }
}
