//! The labels and annotations on managed objects: the owner of an object, and the switches of its author.
//!
//! Here: reading and writing them. Elsewhere: acting on them ([`crate::plan`], the program's object watcher).

use objects::Object;

/// Label that names the Kustomization that applied an object.
pub const OWNER_NAME: &str = "kustomize.toolkit.fluxcd.io/name";
/// Label that gives the namespace of that Kustomization.
pub const OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// Label or annotation `disabled`: the object is neither applied nor deleted.
pub const RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
/// Label or annotation with one of the values of [`ServerSideApplyPolicy`].
pub const SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";
/// Label or annotation `enabled`: recreate the object when an immutable field changes.
pub(crate) const FORCE: &str = "kustomize.toolkit.fluxcd.io/force";
/// Label or annotation `disabled`: the object stays when its manifest or its Kustomization is removed.
pub const PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";

/// How an object is applied. The later variants write less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ServerSideApplyPolicy {
    /// Windlass applies the object, and takes over fields that other tools set.
    #[default]
    Override,
    /// Windlass applies the object, but leaves fields of other managers to them.
    Merge,
    /// Windlass creates the object, and never changes it after that.
    IfNotPresent,
    /// Windlass never writes the object.
    Ignore,
}

/// The switches that an object's author set in its labels and annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectApplySwitches {
    /// How the object is applied.
    pub ssa: ServerSideApplyPolicy,
    /// Whether the object is recreated when an immutable field changes.
    pub force: bool,
    /// Whether the object is kept when it leaves the manifests.
    pub prune_disabled: bool,
    /// Whether the object is neither applied nor deleted.
    pub reconcile_disabled: bool,
}

impl ObjectApplySwitches {
    /// Whether an apply must not write the object. `exists` says whether it is in the cluster.
    pub fn skips_apply(&self, exists: bool) -> bool {
        self.reconcile_disabled
            || self.ssa == ServerSideApplyPolicy::Ignore
            || (self.ssa == ServerSideApplyPolicy::IfNotPresent && exists)
    }

    /// Whether pruning must not delete the object. These have to be the switches of the live object.
    pub fn skips_prune(&self) -> bool {
        self.prune_disabled || self.reconcile_disabled || self.ssa == ServerSideApplyPolicy::Ignore
    }
}

/// Whether an object has a label or an annotation with this key and value.
///
/// Values are compared without regard to ASCII case, and keys exactly. A missing key never matches, not even an empty
/// value (source: `AnyInMetadata` of fluxcd/pkg/ssa).
pub fn has(object: &Object, key: &str, value: &str) -> bool {
    [object.label(key), object.annotation(key)]
        .into_iter()
        .flatten()
        .any(|found| !found.is_empty() && found.eq_ignore_ascii_case(value))
}

/// Reads the switches of one object: a manifest or a live one.
pub fn switches(object: &Object) -> ObjectApplySwitches {
    // If a label and an annotation disagree, the value that writes less decides. Flux applies its selectors one after
    // the other.
    let ssa = [
        (ServerSideApplyPolicy::Ignore, "Ignore"),
        (ServerSideApplyPolicy::IfNotPresent, "IfNotPresent"),
        (ServerSideApplyPolicy::Merge, "Merge"),
    ]
    .into_iter()
    .find(|(_, value)| has(object, SSA, value))
    .map_or(ServerSideApplyPolicy::Override, |(ssa, _)| ssa);
    ObjectApplySwitches {
        ssa,
        force: has(object, FORCE, "enabled"),
        prune_disabled: has(object, PRUNE, "disabled"),
        reconcile_disabled: has(object, RECONCILE, "disabled"),
    }
}

/// The switches that decide how a manifest is applied over a live object.
///
/// Both the manifest and the live object may set a switch. Only the manifest may have `IfNotPresent` (source:
/// fluxcd/pkg/ssa).
pub fn switches_for_apply(manifest: &Object, live: Option<&Object>) -> ObjectApplySwitches {
    let wanted = switches(manifest);
    let Some(found) = live.map(switches) else { return wanted };
    let ssa = match found.ssa {
        ServerSideApplyPolicy::Ignore | ServerSideApplyPolicy::Merge => wanted.ssa.max(found.ssa),
        ServerSideApplyPolicy::Override | ServerSideApplyPolicy::IfNotPresent => wanted.ssa,
    };
    ObjectApplySwitches {
        ssa,
        force: wanted.force || found.force,
        prune_disabled: wanted.prune_disabled || found.prune_disabled,
        reconcile_disabled: wanted.reconcile_disabled || found.reconcile_disabled,
    }
}

/// Whether both owner labels of an object name this Kustomization.
pub fn is_owned(object: &Object, name: &str, namespace: &str) -> bool {
    object.label(OWNER_NAME) == Some(name) && object.label(OWNER_NAMESPACE) == Some(namespace)
}

/// Sets the owner labels, and replaces existing values.
pub fn set_owner(object: &mut Object, name: &str, namespace: &str) {
    object.set_label(OWNER_NAME, name);
    object.set_label(OWNER_NAMESPACE, namespace);
}

/// Whether the cluster deletes the object when it has ended: a Job with `ttlSecondsAfterFinished`.
///
/// If such an object is absent during a wait for health, that means success, not failure.
pub fn expires(object: &Object) -> bool {
    object.kind() == "Job"
        && object.api_version().starts_with("batch/")
        && object
            .get("spec")
            .and_then(|spec| spec.get("ttlSecondsAfterFinished"))
            .is_some_and(serde_json::Value::is_i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(labels: Value, annotations: Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "labels": labels, "annotations": annotations}}))
        .unwrap()
    }

    #[test]
    fn switches_are_read_from_labels_and_annotations_in_any_case() {
        let plain = object(json!({}), json!({}));
        assert_eq!(switches(&plain), ObjectApplySwitches::default());
        let cases = [
            (
                json!({RECONCILE: "Disabled"}),
                json!({}),
                (ServerSideApplyPolicy::Override, false, false, true),
            ),
            (
                json!({}),
                json!({PRUNE: "DISABLED"}),
                (ServerSideApplyPolicy::Override, false, true, false),
            ),
            (
                json!({FORCE: "Enabled"}),
                json!({}),
                (ServerSideApplyPolicy::Override, true, false, false),
            ),
            (
                json!({FORCE: "true"}),
                json!({}),
                (ServerSideApplyPolicy::Override, false, false, false),
            ),
            (json!({SSA: "merge"}), json!({}), (ServerSideApplyPolicy::Merge, false, false, false)),
            (
                json!({}),
                json!({SSA: "ifnotpresent"}),
                (ServerSideApplyPolicy::IfNotPresent, false, false, false),
            ),
            (
                json!({SSA: "Merge"}),
                json!({SSA: "Ignore"}),
                (ServerSideApplyPolicy::Ignore, false, false, false),
            ),
            (
                json!({SSA: "Override"}),
                json!({}),
                (ServerSideApplyPolicy::Override, false, false, false),
            ),
        ];
        for (labels, annotations, (ssa, force, prune_disabled, reconcile_disabled)) in cases {
            let found = switches(&object(labels.clone(), annotations.clone()));
            let want = ObjectApplySwitches { ssa, force, prune_disabled, reconcile_disabled };
            assert_eq!(found, want, "{labels} {annotations}");
        }
    }

    #[test]
    fn only_what_may_be_touched_is_touched() {
        let with = |key: &str, value: &str| switches(&object(json!({key: value}), json!({})));
        assert!(!with(SSA, "IfNotPresent").skips_apply(false));
        assert!(with(SSA, "IfNotPresent").skips_apply(true));
        assert!(!with(SSA, "IfNotPresent").skips_prune());
        assert!(with(SSA, "Ignore").skips_apply(false) && with(SSA, "Ignore").skips_prune());
        assert!(with(RECONCILE, "disabled").skips_apply(true));
        assert!(with(PRUNE, "disabled").skips_prune());
        assert!(!with(PRUNE, "disabled").skips_apply(true));
    }

    #[test]
    fn the_live_object_may_switch_off_but_not_say_if_not_present() {
        let manifest = object(json!({}), json!({}));
        let live = object(json!({SSA: "IfNotPresent"}), json!({}));
        assert_eq!(switches_for_apply(&manifest, Some(&live)).ssa, ServerSideApplyPolicy::Override);
        let live = object(json!({SSA: "Ignore"}), json!({}));
        assert_eq!(switches_for_apply(&manifest, Some(&live)).ssa, ServerSideApplyPolicy::Ignore);
        assert_eq!(switches_for_apply(&manifest, None).ssa, ServerSideApplyPolicy::Override);
    }

    #[test]
    fn an_object_is_ours_only_by_both_labels() {
        let mut mine = object(json!({}), json!({}));
        assert!(!is_owned(&mine, "apps", "flux"));
        mine.set_label(OWNER_NAME, "apps");
        assert!(!is_owned(&mine, "apps", "flux"));
        set_owner(&mut mine, "apps", "flux");
        assert!(is_owned(&mine, "apps", "flux"));
        assert!(!is_owned(&mine, "apps", "other") && !is_owned(&mine, "other", "flux"));
    }

    #[test]
    fn a_job_expires_when_it_says_so_even_at_once() {
        let job = |spec: Value| {
            Object::new(json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "j"}, "spec": spec}))
            .unwrap()
        };
        assert!(expires(&job(json!({"ttlSecondsAfterFinished": 0}))));
        assert!(!expires(&job(json!({}))));
    }
}
