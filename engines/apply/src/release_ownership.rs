//! The labels and annotations by which Helm marks the objects of a release, and what those of an object say.
//!
//! Elsewhere: which objects left a release (`prune_candidates`), and the owner of a definition that several releases have
//! (the program).

use objects::Object;

/// Label by which Helm marks the objects that it manages.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "Helm");
/// Annotation that names the release to which an object belongs.
pub const RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// Annotation that gives the namespace of that release.
pub const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// Annotation that keeps an object from deletion.
pub const POLICY: &str = "helm.sh/resource-policy";
/// The value of [`POLICY`] that keeps the object.
pub const POLICY_KEEP: &str = "keep";

/// Sets the label and the annotations that name the release of an object.
pub fn owned(object: &mut Object, name: &str, namespace: &str) {
    object.set_label(MANAGED_BY.0, MANAGED_BY.1);
    object.set_annotation(RELEASE_NAME, name);
    object.set_annotation(RELEASE_NAMESPACE, namespace);
}

/// Whether an annotation of a live object keeps it in the cluster when its release does not have it any more.
pub fn is_kept(live: &Object) -> bool {
    live.annotation(POLICY) == Some(POLICY_KEEP)
}

/// Whether the annotations of a live object name another release as its owner.
pub fn is_of_another(live: &Object, name: &str, namespace: &str) -> bool {
    let is_other = |key: &str, ours: &str| live.annotation(key).is_some_and(|it| it != ours);
    is_other(RELEASE_NAME, name) || is_other(RELEASE_NAMESPACE, namespace)
}

/// Why an existing object cannot become part of a release, in Helm's words. `None` if its marks name that release.
pub fn ownership_fault(live: &Object, name: &str, namespace: &str) -> Option<String> {
    let label = mark_fault("label", MANAGED_BY.0, live.label(MANAGED_BY.0), MANAGED_BY.1);
    let annotations = [(RELEASE_NAME, name), (RELEASE_NAMESPACE, namespace)]
        .map(|(key, wanted)| mark_fault("annotation", key, live.annotation(key), wanted));
    let faults: Vec<String> = [label].into_iter().chain(annotations).flatten().collect();
    if faults.is_empty() {
        return None;
    }
    let kind = live.kind();
    let shown = live.name();
    let at = live.namespace();
    let place = if at.is_empty() { String::new() } else { format!(" in namespace \"{at}\"") };
    Some(format!(
        "{kind} \"{shown}\"{place} exists and cannot be imported into the current release: invalid ownership \
         metadata; {}",
        faults.join("; ")
    ))
}

fn mark_fault(what: &str, key: &str, found: Option<&str>, wanted: &str) -> Option<String> {
    match found {
        Some(found) if found == wanted => None,
        Some(found) => Some(format!(
            "{what} validation error: key \"{key}\" must equal \"{wanted}\": current value is \"{found}\""
        )),
        None => Some(format!(
            "{what} validation error: missing key \"{key}\": must be set to \"{wanted}\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map() -> Object {
        let metadata = json!({"name": "a", "namespace": "shop"});
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    }

    #[test]
    fn the_marks_of_a_release_are_its_own_and_those_of_another_are_named() {
        let mut object = map();
        let unmarked = ownership_fault(&object, "web", "shop").unwrap();
        assert!(unmarked.starts_with("ConfigMap \"a\" in namespace \"shop\" exists"), "{unmarked}");
        assert_eq!(unmarked.matches("validation error: missing key").count(), 3, "{unmarked}");
        assert!(!is_of_another(&object, "web", "shop"), "no release is named");
        owned(&mut object, "web", "shop");
        assert_eq!(ownership_fault(&object, "web", "shop"), None);
        assert!(is_of_another(&object, "db", "shop") && is_of_another(&object, "web", "other"));
        let other = ownership_fault(&object, "db", "shop").unwrap();
        assert!(other.ends_with("must equal \"db\": current value is \"web\""), "{other}");
    }

    #[test]
    fn an_object_is_kept_by_one_value_of_its_annotation() {
        let mut object = map();
        assert!(!is_kept(&object));
        object.set_annotation(POLICY, "delete");
        assert!(!is_kept(&object));
        object.set_annotation(POLICY, POLICY_KEEP);
        assert!(is_kept(&object));
    }
}
