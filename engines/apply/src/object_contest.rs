//! A contest: windlass and another client change the same fields of an object in turn.
//!
//! Here: the fields that are contested, and whether windlass still applies one of them. Elsewhere: finding the fields and
//! the message about them ([`crate::field_conflict`]), and when a contest begins
//! ([`crate::contested_object_corrections`]).

use std::time::Duration;

use objects::{Object, ObjectId};
use serde_json::Value;

use crate::drift_ignore_rules::DriftIgnoreRules;
use crate::field_conflict::{contested_text, taken_paths};
use crate::managed_fields_path::ManagedFieldsPathElement;

/// What windlass and another client change in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectContest {
    /// The message about it.
    pub(crate) text: String,
    /// The contested fields, as paths in the notation of `managedFields`. It is empty if the other client deletes the
    /// object, if no manager is on record for the fields, and if they are too many to be kept.
    pub(crate) fields: Vec<Vec<String>>,
}

impl ObjectContest {
    /// The contest about an object.
    ///
    /// `ignore` is the field of the spec that lists fields which others may set. `found` has the live object and the answer
    /// to the dry-run of its manifest. It is `None` if the other client deleted the object.
    pub fn new(
        id: &ObjectId,
        found: Option<(&Object, &Object)>,
        manager: &str,
        ignore: &str,
        pause: Duration,
    ) -> Self {
        let text = contested_text(id, found, manager, ignore, pause);
        let fields = found.and_then(|(live, dry_run)| taken_paths(live, dry_run, manager));
        Self { text, fields: fields.unwrap_or_default() }
    }

    /// Whether windlass applies none of the contested fields any more, because the manifest does not have them or the rules
    /// leave them to other clients. It is `false` if the fields are not known.
    pub(crate) fn has_ended(&self, manifest: &Object, rules: &DriftIgnoreRules) -> bool {
        if self.fields.is_empty() {
            return false;
        }
        let value = Value::Object(manifest.fields().clone());
        let is_applied = |path: &Vec<String>| {
            segments(&value, path).is_some_and(|segments| {
                let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
                !rules.ignores(manifest, &segments)
            })
        };
        !self.fields.iter().any(is_applied)
    }
}

/// The parts of the JSON pointer to a field of a manifest. `path` is in the notation of `managedFields`. `None` if the
/// manifest does not have the field.
fn segments(manifest: &Value, path: &[String]) -> Option<Vec<String>> {
    let mut value = manifest;
    let mut segments = Vec::with_capacity(path.len());
    for key in path {
        let part = ManagedFieldsPathElement::in_manifest(value, key)?;
        value = part.child(value)?;
        segments.push(match part {
            ManagedFieldsPathElement::Field(name) => name.to_owned(),
            ManagedFieldsPathElement::Item(at) => at.to_string(),
        });
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::drift_ignore_rules::DriftIgnoreTarget;

    const OURS: &str = "kustomize-controller";

    fn deployment(spec: &Value, managed: Value) -> Object {
        Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
            "metadata": {"name": "web", "namespace": "shop", "managedFields": managed}}))
        .unwrap()
    }

    fn manifest(spec: Value) -> Object {
        deployment(&spec, json!([]))
    }

    fn rules(paths: &[&str]) -> DriftIgnoreRules {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        DriftIgnoreRules::new(&[(DriftIgnoreTarget::default(), paths)]).unwrap()
    }

    /// The contest about an object whose replicas and one of whose ports another client set.
    fn contest() -> ObjectContest {
        let ports =
            json!({r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}, "f:port": {}}});
        let ours = json!({"f:spec": {"f:replicas": {}, "f:paused": {}, "f:ports": ports}});
        let port = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {"f:name": {}}});
        let theirs = json!({"f:spec": {"f:replicas": {}, "f:ports": port}});
        let rest_port = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}}});
        let rest = json!({"f:spec": {"f:paused": {}, "f:ports": rest_port}});
        let spec = json!({"replicas": 3, "paused": false,
            "ports": [{"name": "b", "port": 80, "protocol": "TCP"}]});
        let dry =
            deployment(&spec, json!([{"manager": OURS, "operation": "Apply", "fieldsV1": ours}]));
        let live = deployment(
            &spec,
            json!([{"manager": OURS, "operation": "Apply", "fieldsV1": rest},
                {"manager": "scaler", "operation": "Update", "fieldsV1": theirs}]),
        );
        let pause = Duration::from_secs(60);
        ObjectContest::new(&live.id(), Some((&live, &dry)), OURS, "spec.ignore", pause)
    }

    #[test]
    fn a_contest_ends_when_its_fields_are_removed_or_ignored_and_not_with_other_fields() {
        let port = json!({"name": "a", "port": 80});
        let both = manifest(json!({"replicas": 2, "paused": false, "ports": [port]}));
        let contest = contest();
        assert!(!contest.has_ended(&both, &DriftIgnoreRules::default()));
        assert!(!contest.has_ended(&both, &rules(&["/spec/replicas"])), "one field is left");
        assert!(!contest.has_ended(&both, &rules(&["/spec/paused", "/spec/ports/0/port"])));
        assert!(contest.has_ended(&both, &rules(&["/spec/replicas", "/spec/ports/0/name"])));
        assert!(contest.has_ended(&both, &rules(&["/spec/replicas", "/spec/ports"])));
        let without = manifest(json!({"ports": [port]}));
        assert!(!contest.has_ended(&without, &DriftIgnoreRules::default()));
        assert!(contest.has_ended(&without, &rules(&["/spec/ports"])), "removed and ignored");
        let other = manifest(json!({"paused": true, "ports": [{"name": "a", "port": 81}]}));
        assert!(contest.has_ended(&other, &DriftIgnoreRules::default()));
    }

    #[test]
    fn a_contest_without_known_fields_does_not_end_by_them() {
        let found = manifest(json!({}));
        let pause = Duration::from_secs(60);
        let contest = ObjectContest::new(&found.id(), None, OURS, "spec.ignore", pause);
        assert!(!contest.has_ended(&found, &rules(&["/spec"])));
    }
}
