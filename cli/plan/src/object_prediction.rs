//! Predicts what would happen to an object of a cluster if it were applied. The prediction uses dry-runs of the API server,
//! with the rights of the user. `windlass diff` and `windlass plan --live` use it.
//!
//! Here: the predictions, and the CRDs and namespaces that objects need. Below: objects of a Kustomization
//! (`object_prediction/kustomization.rs`) and of a release (`object_prediction/helm_release.rs`). Elsewhere: comparing fields
//! and masking (`plan::FieldChangeList`).
//!
//! # Guarantees
//! Nothing is written. An object counts as absent only after an answer of the API server about this object.

pub mod helm_release;
pub mod kustomization;

use std::collections::BTreeSet;

use objects::Object;
use serde_json::Value;

use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::is_definition;

/// The predicted change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectPrediction {
    /// The object does not exist, and would be created.
    Created {
        /// The object in the form that would be applied.
        object: Box<Object>,
        /// A remark for the user.
        note: Option<&'static str>,
    },
    /// Some fields of the object would change.
    Changed(Box<ObjectUpdate>),
    /// The object would be deleted and created again.
    Recreated(Box<ObjectUpdate>),
    /// The object would stay unchanged.
    Same(Box<Object>),
    /// An annotation or label excludes the object from being applied. `None` if it does not exist.
    Skipped(Option<Box<Object>>),
}

/// An object before and after the change.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectUpdate {
    /// The current object in the cluster.
    pub live: Object,
    /// The object as the API server would store it.
    pub after: Object,
    /// A remark for the user.
    pub note: Option<&'static str>,
}

/// Why there is no prediction for an object. The messages name the object and contain no Secret values.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictionFailure {
    /// The object cannot be read, so it is unknown whether it exists.
    Unread(String),
    /// The object was read but cannot be applied.
    Refused(Box<RefusedApply>),
}

/// An object that was read but cannot be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedApply {
    /// The current object in the cluster. `None` if it does not exist.
    pub live: Option<Object>,
    /// Whether the user lacks rights. In that case, the refusal says nothing about the object.
    pub lacks_rights: bool,
    /// The reason.
    pub text: String,
}

impl PredictionFailure {
    /// The reason as a message for the user.
    #[must_use]
    pub fn into_text(self) -> String {
        match self {
            Self::Unread(text) => text,
            Self::Refused(refused) => refused.text,
        }
    }

    fn refused(live: Option<Object>, error: &ClusterError, text: String) -> Self {
        Self::Refused(Box::new(RefusedApply { live, lacks_rights: lacks_rights(error), text }))
    }

    /// Makes the failure for an error of discovery. A kind that the cluster does not serve has no objects.
    fn of_kind(error: &ClusterError, text: String) -> Self {
        match error {
            ClusterError::NoSuchKind { .. } => Self::refused(None, error, text),
            _ => Self::Unread(text),
        }
    }
}

/// Whether a refusal is about the user's rights and not about the object. Policies and webhooks also answer with 403.
fn lacks_rights(error: &ClusterError) -> bool {
    let ClusterError::Refused(status) = error else { return false };
    let asked = [" cannot patch resource ", " cannot create resource ", " cannot update resource "];
    status.code == 403 && asked.iter().any(|it| status.message.contains(it))
}

/// The remark if windlass takes over fields that other tools have set.
const TAKEN_OVER: &str = "fields that other tools have set are taken over";

/// The same remark, if the API server did not predict the result.
const TAKEN_OVER_UNTRIED: &str =
    "fields that other tools have set are taken over; those that the manifest lacks go";

/// Predicts an object if a patch first takes over fields from other tools, and adds a remark about it. `dry` is the result of a
/// dry-run without this patch. A further dry-run finds out the defaults and whether the API server accepts the object.
async fn taken_over(
    cluster: &ClusterConnection,
    resource: &ApiResourceLocation,
    taken: Option<&Value>,
    dry: Object,
    manager: &str,
) -> (Object, Option<&'static str>) {
    let after = taken.and_then(|taken| apply::after_take_over(taken, &dry, manager));
    let Some(mut after) = after else { return (dry, None) };
    after.metadata_mut().remove("managedFields");
    let tried = format!("{manager}&dryRun=All");
    match cluster.replace_object(resource, &after, &tried).await {
        Ok(after) => (after, Some(TAKEN_OVER)),
        Err(_) => (dry, Some(TAKEN_OVER_UNTRIED)),
    }
}

/// The kinds and namespaces that the applied objects themselves create.
#[derive(Debug, Default, Clone)]
pub struct PlannedCrdsAndNamespaces {
    /// The API group and the kind.
    kinds: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
}

impl PlannedCrdsAndNamespaces {
    /// Collects the kinds and namespaces that some objects create.
    pub fn of<'o>(objects: impl Iterator<Item = &'o Object>) -> Self {
        let mut planned = Self::default();
        for object in objects {
            let spec = object.get("spec").filter(|_| is_definition(object));
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            planned.kinds.extend(spec.map(|it| (text(&it["group"]), text(&it["names"]["kind"]))));
            if (object.api_version(), object.kind()) == ("v1", "Namespace") {
                planned.namespaces.insert(object.name().to_owned());
            }
        }
        planned
    }

    /// Adds a namespace that is created before the objects.
    pub fn add_namespace(&mut self, name: &str) {
        self.namespaces.insert(name.to_owned());
    }

    /// Whether the applied objects create the kind of an object.
    pub(crate) fn has_kind_of(&self, object: &Object) -> bool {
        let gvk = object.gvk();
        self.kinds.contains(&(gvk.group, gvk.kind))
    }

    /// Whether the applied objects create a namespace.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_and_namespaces_may_come_with_the_objects() {
        let names = json!({"group": "example.com", "names": {"kind": "Widget"}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": "w"}, "spec": names});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        let all = [definition, namespace].map(|value| Object::new(value).unwrap());
        let planned = PlannedCrdsAndNamespaces::of(all.iter());
        let of = |version: &str| {
            let metadata = json!({"name": "w"});
            let value = json!({"apiVersion": version, "kind": "Widget", "metadata": metadata});
            planned.has_kind_of(&Object::new(value).unwrap())
        };
        assert!(of("example.com/v1") && !of("example.org/v1"));
        assert!(planned.has_namespace("a") && !planned.has_namespace("w"));
    }
}
