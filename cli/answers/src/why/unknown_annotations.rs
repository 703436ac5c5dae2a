//! Finds annotations with the prefix of windlass that windlass does not know, for example because of a typing error. They have
//! no effect.
//!
//! Here: the known names. A tidy test (`xtask/src/tidy/annotations_known_to_why.rs`) compares them with the constants of the
//! program. Elsewhere: unknown kinds (`kind_argument.rs`).

use objects::Object;
use serde_json::Value;

use crate::kind_argument::nearest;

/// The prefix of windlass's annotations.
const ANNOTATION_PREFIX: &str = "windlass.dev/";

/// The maximum number of unknown annotations that are named.
const MAX_NAMED_ANNOTATIONS: usize = 8;

/// The names after [`ANNOTATION_PREFIX`] that windlass reads or writes.
const KNOWN_ANNOTATIONS: [&str; 49] = [
    "allow-downgrade",
    "allow-empty",
    "break-glass",
    "bundle",
    "change-sets",
    "crd-export",
    "crd-export-digest",
    "crd-export-objects",
    "crd-export-parts",
    "crd-export-tenant",
    "crd-export-time",
    "crd-name",
    "crd-policy",
    "crd-removal",
    "deletion-budget",
    "deletion-overdue",
    "depends-on",
    "event-sources",
    "incident-after",
    "incident-reminder",
    "incidents",
    "installation",
    "min-age",
    "on-failure",
    "plan",
    "pull-request",
    "release-digest",
    "release-journal",
    "release-operation",
    "release-owner",
    "release-part-of",
    "release-parts",
    "requested-by",
    "requested-reason",
    "require-verified",
    "required-platforms",
    "resources",
    "rollback",
    "schedule",
    "shard",
    "skip-order",
    "sops-mac",
    "storage-address",
    "suspended-by",
    "suspended-reason",
    "suspended-until",
    "verify-images",
    "verify-provenance",
    "window",
];

/// A remark for each annotation of an object that has the prefix of windlass but an unknown name.
pub(super) fn remarks(object: &Object) -> Vec<String> {
    let annotations = object.meta("annotations").and_then(Value::as_object);
    let all = annotations.into_iter().flatten();
    let names = all.filter_map(|(name, _)| name.strip_prefix(ANNOTATION_PREFIX));
    let unknown = names.filter(|name| !KNOWN_ANNOTATIONS.contains(name));
    let remark = |name: &str| {
        let text = format!("annotation `{ANNOTATION_PREFIX}{name}` is unknown and has no effect");
        match nearest(name, KNOWN_ANNOTATIONS.into_iter()) {
            Some(nearest) => format!("{text}: did you mean `{ANNOTATION_PREFIX}{nearest}`?"),
            None => text,
        }
    };
    unknown.take(MAX_NAMED_ANNOTATIONS).map(remark).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_annotation_of_windlass_is_named_with_the_nearest_known_one() {
        let object = |annotations: Value| {
            Object::new(
                json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "app", "annotations": annotations}}),
            )
            .unwrap()
        };
        let known = json!({"windlass.dev/window": "a", "team": "web", "reconcile.fluxcd.io/requestedAt": "now",
            "release.windlass.dev/requires": "b"});
        assert!(remarks(&object(known)).is_empty());
        let unknown = json!({"windlass.dev/windw": "a", "windlass.dev/zzzz": "b"});
        assert_eq!(
            remarks(&object(unknown)),
            [
                "annotation `windlass.dev/windw` is unknown and has no effect: did you mean `windlass.dev/window`?",
                "annotation `windlass.dev/zzzz` is unknown and has no effect",
            ]
        );
        let many: serde_json::Map<String, Value> =
            (0..20).map(|at| (format!("windlass.dev/{at}"), Value::Null)).collect();
        assert_eq!(remarks(&object(many.into())).len(), MAX_NAMED_ANNOTATIONS);
    }
}
