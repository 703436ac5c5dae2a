//! Fields of built-in kinds that the API server does not allow to change.
//!
//! Here: the table of these fields, and which of them change between two manifests. Elsewhere: immutable fields of definitions
//! (`crd_definition_change.rs`), the API server's message when it rejects a change (`apply::dry_run_refusal`).
//!
//! If a manifest lacks a field, the cluster may have any value in it, unless the default is known. Such a field is reported
//! only if its change is certain.
//!
//! Source of the semantics: Kubernetes 1.34, the functions `Validate…Update` of each group.

use std::borrow::Cow;

use objects::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change_plan::PlanObjectReference;

/// A field that cannot be changed, and does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImmutableFieldChange {
    /// The object.
    pub object: PlanObjectReference,
    /// A JSON pointer.
    pub path: Cow<'static, str>,
    /// Why the field cannot be changed.
    pub rule: String,
    /// The consequence of the change.
    pub consequence: ImmutableFieldConsequence,
}

/// The consequence of changing an immutable field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImmutableFieldConsequence {
    /// The API server rejects the object, and its applier fails.
    Rejected,
    /// The applier deletes the object and creates it again, because its `force` is set.
    Recreated,
}

impl ImmutableFieldConsequence {
    /// The consequence as a text for users.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Rejected => "the API server rejects it, unless the applier has `force`",
            Self::Recreated => "the object is deleted and created again",
        }
    }
}

/// Under which condition a change of a field counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImmutableFieldChangeCondition {
    /// The field changes whenever the values differ. An absent value means this default.
    Always(&'static str),
    /// The field changes only if both manifests have it, because otherwise the API server or a controller fills it in.
    SetInBoth,
    /// If the object was marked immutable before.
    MarkedImmutable,
    /// If the completion mode of the Job is not `Indexed`.
    NotIndexed,
    /// The address of a Service.
    ClusterAddress,
    /// The claims of a StatefulSet, which have defaults within.
    ClaimTemplates,
}

/// A field of a kind that cannot be changed.
struct ImmutableField {
    group: &'static str,
    kind: &'static str,
    /// A JSON pointer.
    path: &'static str,
    condition: ImmutableFieldChangeCondition,
}

const fn field(group: &'static str, kind: &'static str, path: &'static str) -> ImmutableField {
    ImmutableField { group, kind, path, condition: ImmutableFieldChangeCondition::Always("") }
}

impl ImmutableField {
    const fn defaulting(self, default: &'static str) -> Self {
        Self { condition: ImmutableFieldChangeCondition::Always(default), ..self }
    }

    const fn under(self, condition: ImmutableFieldChangeCondition) -> Self {
        Self { condition, ..self }
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const STORAGE_GROUP: &str = "storage.k8s.io";
const CLAIM_KIND: &str = "PersistentVolumeClaim";
const VOLUME_KIND: &str = "PersistentVolume";

/// The fields that cannot be changed.
const IMMUTABLE_FIELDS: &[ImmutableField] = &[
    field("apps", "Deployment", "/spec/selector"),
    field("apps", "DaemonSet", "/spec/selector"),
    field("apps", "ReplicaSet", "/spec/selector"),
    field("apps", "StatefulSet", "/spec/selector"),
    field("apps", "StatefulSet", "/spec/serviceName"),
    field("apps", "StatefulSet", "/spec/podManagementPolicy").defaulting("OrderedReady"),
    field("apps", "StatefulSet", "/spec/volumeClaimTemplates")
        .under(ImmutableFieldChangeCondition::ClaimTemplates),
    field("batch", "Job", "/spec/template"),
    field("batch", "Job", "/spec/selector").under(ImmutableFieldChangeCondition::SetInBoth),
    field("batch", "Job", "/spec/completions").under(ImmutableFieldChangeCondition::NotIndexed),
    field("batch", "Job", "/spec/completionMode").defaulting("NonIndexed"),
    field("batch", "Job", "/spec/podFailurePolicy"),
    field("batch", "Job", "/spec/successPolicy"),
    field("batch", "Job", "/spec/backoffLimitPerIndex"),
    field("batch", "Job", "/spec/managedBy"),
    field("", "Service", "/spec/clusterIP").under(ImmutableFieldChangeCondition::ClusterAddress),
    field("", "ConfigMap", "/data").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "ConfigMap", "/binaryData").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "ConfigMap", "/immutable").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "Secret", "/data").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "Secret", "/stringData").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "Secret", "/immutable").under(ImmutableFieldChangeCondition::MarkedImmutable),
    field("", "Secret", "/type").defaulting("Opaque"),
    field("", "ResourceQuota", "/spec/scopes"),
    field("", CLAIM_KIND, "/spec/accessModes"),
    field("", CLAIM_KIND, "/spec/selector"),
    field("", CLAIM_KIND, "/spec/resources/limits"),
    field("", CLAIM_KIND, "/spec/volumeName").under(ImmutableFieldChangeCondition::SetInBoth),
    field("", CLAIM_KIND, "/spec/storageClassName").under(ImmutableFieldChangeCondition::SetInBoth),
    field("", CLAIM_KIND, "/spec/volumeMode").defaulting("Filesystem"),
    field("", CLAIM_KIND, "/spec/dataSource").under(ImmutableFieldChangeCondition::SetInBoth),
    field("", CLAIM_KIND, "/spec/dataSourceRef").under(ImmutableFieldChangeCondition::SetInBoth),
    field("", VOLUME_KIND, "/spec/volumeMode").defaulting("Filesystem"),
    field("", VOLUME_KIND, "/spec/nodeAffinity").under(ImmutableFieldChangeCondition::SetInBoth),
    field("", VOLUME_KIND, "/spec/awsElasticBlockStore"),
    field("", VOLUME_KIND, "/spec/azureDisk"),
    field("", VOLUME_KIND, "/spec/azureFile"),
    field("", VOLUME_KIND, "/spec/cephfs"),
    field("", VOLUME_KIND, "/spec/cinder"),
    field("", VOLUME_KIND, "/spec/csi"),
    field("", VOLUME_KIND, "/spec/fc"),
    field("", VOLUME_KIND, "/spec/flexVolume"),
    field("", VOLUME_KIND, "/spec/gcePersistentDisk"),
    field("", VOLUME_KIND, "/spec/glusterfs"),
    field("", VOLUME_KIND, "/spec/hostPath"),
    field("", VOLUME_KIND, "/spec/iscsi"),
    field("", VOLUME_KIND, "/spec/local"),
    field("", VOLUME_KIND, "/spec/nfs"),
    field("", VOLUME_KIND, "/spec/portworxVolume"),
    field("", VOLUME_KIND, "/spec/rbd"),
    field("", VOLUME_KIND, "/spec/vsphereVolume"),
    field(RBAC_GROUP, "RoleBinding", "/roleRef"),
    field(RBAC_GROUP, "ClusterRoleBinding", "/roleRef"),
    field(STORAGE_GROUP, "StorageClass", "/provisioner"),
    field(STORAGE_GROUP, "StorageClass", "/parameters"),
    field(STORAGE_GROUP, "StorageClass", "/reclaimPolicy").defaulting("Delete"),
    field(STORAGE_GROUP, "StorageClass", "/volumeBindingMode").defaulting("Immediate"),
    field(STORAGE_GROUP, "VolumeAttributesClass", "/driverName"),
    field(STORAGE_GROUP, "VolumeAttributesClass", "/parameters"),
    field(STORAGE_GROUP, "CSIDriver", "/spec/attachRequired")
        .under(ImmutableFieldChangeCondition::SetInBoth),
    field(STORAGE_GROUP, "CSIDriver", "/spec/volumeLifecycleModes")
        .under(ImmutableFieldChangeCondition::SetInBoth),
    field("networking.k8s.io", "IngressClass", "/spec/controller"),
    field("scheduling.k8s.io", "PriorityClass", "/value"),
    field("scheduling.k8s.io", "PriorityClass", "/preemptionPolicy")
        .defaulting("PreemptLowerPriority"),
    field("node.k8s.io", "RuntimeClass", "/handler"),
    field("discovery.k8s.io", "EndpointSlice", "/addressType"),
];

/// The fields that cannot be changed and that two manifests of an object differ in.
pub(crate) fn immutable_field_changes(
    before: &Object,
    after: &Object,
    consequence: ImmutableFieldConsequence,
) -> Vec<ImmutableFieldChange> {
    let gvk = after.gvk();
    let fields = IMMUTABLE_FIELDS.iter().filter(|it| it.group == gvk.group && it.kind == gvk.kind);
    let changed = fields.filter(|it| it.is_changed(before, after));
    let change = |it: &ImmutableField| {
        let rule = match it.condition {
            ImmutableFieldChangeCondition::MarkedImmutable => {
                format!("the {} is marked `immutable`", it.kind)
            }
            _ => format!("`{}` of a {} is immutable", dotted(it.path), it.kind),
        };
        let object = PlanObjectReference::from(&after.id());
        let path = Cow::Borrowed(it.path);
        ImmutableFieldChange { object, path, rule, consequence }
    };
    changed.map(change).collect()
}

impl ImmutableField {
    fn is_changed(&self, before: &Object, after: &Object) -> bool {
        let old = value_at(before, self.path);
        let new = value_at(after, self.path);
        let differ = old != new;
        match self.condition {
            ImmutableFieldChangeCondition::Always(default) => {
                differ && !(is_default(old, default) && is_default(new, default))
            }
            ImmutableFieldChangeCondition::SetInBoth => differ && old.is_some() && new.is_some(),
            ImmutableFieldChangeCondition::MarkedImmutable => {
                differ && value_at(before, "/immutable") == Some(&Value::Bool(true))
            }
            ImmutableFieldChangeCondition::NotIndexed => {
                let mode = value_at(after, "/spec/completionMode").and_then(Value::as_str);
                differ && mode != Some("Indexed") && old.is_some() && new.is_some()
            }
            ImmutableFieldChangeCondition::ClusterAddress => {
                let is_external = |object| {
                    let of_type = value_at(object, "/spec/type").and_then(Value::as_str);
                    of_type == Some("ExternalName")
                };
                // The API server gave an address to a Service whose manifest has none. The address cannot be removed.
                let becomes_headless = new.and_then(Value::as_str) == Some("None");
                let is_known = new.is_some() && (old.is_some() || becomes_headless);
                differ && is_known && !is_external(before) && !is_external(after)
            }
            ImmutableFieldChangeCondition::ClaimTemplates => differ && claims(old) != claims(new),
        }
    }
}

/// The value in an object at a JSON pointer. `None` if the value is missing or empty, because the API server treats an
/// empty value as absent.
fn value_at<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.find('/').map_or((path, ""), |at| path.split_at(at));
    object.get(first)?.pointer(rest).filter(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    })
}

/// Whether a value is absent or equals the default.
fn is_default(value: Option<&Value>, default: &str) -> bool {
    value.is_none_or(|value| value.as_str() == Some(default))
}

/// The volume claims of a StatefulSet with their defaults, and without the fields that the API server writes.
fn claims(templates: Option<&Value>) -> Vec<Value> {
    let mut templates = templates.and_then(Value::as_array).cloned().unwrap_or_default();
    for claim in templates.iter_mut().filter_map(Value::as_object_mut) {
        for written in ["apiVersion", "kind", "status"] {
            claim.remove(written);
        }
        if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("volumeMode").or_insert_with(|| "Filesystem".into());
        }
    }
    templates
}

/// A JSON pointer as documents of Kubernetes write a field.
fn dotted(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(api: &str, kind: &str, before: &Value, after: &Value) -> Vec<String> {
        let object = |fields: &Value| {
            let mut value = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}});
            for (key, field) in fields.as_object().unwrap() {
                value[key] = field.clone();
            }
            Object::new(value).unwrap()
        };
        let consequence = ImmutableFieldConsequence::Rejected;
        let changes = immutable_field_changes(&object(before), &object(after), consequence);
        changes.iter().map(|it| it.path.to_string()).collect()
    }

    fn changed_spec(api: &str, kind: &str, before: Value, after: Value) -> Vec<String> {
        changed(api, kind, &json!({"spec": before}), &json!({"spec": after}))
    }

    #[test]
    fn a_field_that_cannot_be_changed_is_found_with_its_rule() {
        let spec = |app: &str| json!({"selector": {"matchLabels": {"app": app}}, "replicas": app});
        let found = changed_spec("apps/v1", "Deployment", spec("a"), spec("b"));
        assert_eq!(found, ["/spec/selector"]);
        assert_eq!(changed_spec("example.com/v1", "Deployment", spec("a"), spec("b")), [""; 0]);
        let role = |name: &str| json!({"roleRef": {"name": name}, "subjects": [name]});
        let found = changed("rbac.authorization.k8s.io/v1", "RoleBinding", &role("a"), &role("b"));
        assert_eq!(found, ["/roleRef"]);
        let object = |app: &str| {
            Object::new(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"name": "a"}, "spec": spec(app)}))
            .unwrap()
        };
        let recreated = ImmutableFieldConsequence::Recreated;
        let found = immutable_field_changes(&object("a"), &object("b"), recreated);
        assert_eq!(found[0].rule, "`spec.selector` of a DaemonSet is immutable");
        assert_eq!(found[0].consequence, recreated);
    }

    #[test]
    fn a_default_that_is_written_down_is_no_change() {
        let policy = |policy: &str| json!({"podManagementPolicy": policy});
        let sets = |before, after| changed_spec("apps/v1", "StatefulSet", before, after);
        assert_eq!(sets(json!({}), policy("OrderedReady")), [""; 0]);
        assert_eq!(sets(json!({}), policy("Parallel")), ["/spec/podManagementPolicy"]);
        let claim = |spec: Value| json!({"volumeClaimTemplates": [{"spec": spec}]});
        let plain = claim(json!({"storageClassName": "a"}));
        let written = claim(json!({"storageClassName": "a", "volumeMode": "Filesystem"}));
        assert_eq!(sets(plain.clone(), written), [""; 0]);
        let other = claim(json!({"storageClassName": "b"}));
        assert_eq!(sets(plain, other), ["/spec/volumeClaimTemplates"]);
        assert_eq!(sets(json!({"minReadySeconds": 1}), json!({"ordinals": {"start": 1}})), [""; 0]);
    }

    #[test]
    fn what_the_cluster_fills_in_counts_where_both_manifests_have_it() {
        let address = |ip: &str| json!({"clusterIP": ip});
        let services = |before, after| changed_spec("v1", "Service", before, after);
        assert_eq!(services(address("10.0.0.1"), address("10.0.0.2")), ["/spec/clusterIP"]);
        assert_eq!(services(json!({}), address("10.0.0.2")), [""; 0]);
        assert_eq!(services(json!({}), address("None")), ["/spec/clusterIP"]);
        assert_eq!(services(address("None"), json!({})), [""; 0]);
        assert_eq!(services(json!({"type": "ExternalName"}), address("None")), [""; 0]);
        let class = |name: &str| json!({"storageClassName": name, "accessModes": ["a"]});
        let claims = |before, after| changed_spec("v1", CLAIM_KIND, before, after);
        assert_eq!(claims(class("a"), class("b")), ["/spec/storageClassName"]);
        assert_eq!(claims(class("a"), json!({"accessModes": ["a"]})), [""; 0]);
        let size = |size: &str| json!({"resources": {"requests": {"storage": size}}});
        assert_eq!(claims(size("1Gi"), size("2Gi")), [""; 0]);
    }

    #[test]
    fn what_is_marked_immutable_before_stays_so() {
        let map = |value: &str, marked: bool| json!({"data": {"a": value}, "immutable": marked});
        let maps = |before, after| changed("v1", "ConfigMap", &before, &after);
        assert_eq!(maps(map("1", true), map("2", true)), ["/data"]);
        assert_eq!(maps(map("1", true), map("1", false)), ["/immutable"]);
        assert_eq!(maps(map("1", false), map("2", true)), [""; 0]);
        let jobs = |mode: &str, before: u8, after: u8| {
            let spec = |count: u8| json!({"completions": count, "completionMode": mode});
            changed_spec("batch/v1", "Job", spec(before), spec(after))
        };
        assert_eq!(jobs("NonIndexed", 1, 2), ["/spec/completions"]);
        assert_eq!(jobs("Indexed", 1, 2), [""; 0]);
    }
}
