//! What would become of an object of a cluster if it were applied: predicted by dry-runs of the API server, in the name of
//! the user. For `windlass diff`, and for `windlass plan --live`.
//!
//! Here: what is predicted, and what objects depend on. Below: the objects of a Kustomization
//! (`live_objects/kustomization.rs`) and of a release (`live_objects/helm_release.rs`), each as a run compares it of which
//! nothing is remembered. Elsewhere: which fields differ and what is shown of them (`plan::FieldChangeList`).
//!
//! # Guarantees
//! Nothing is written. That an object is absent is concluded from an answer about the object alone.

pub mod helm_release;
pub mod kustomization;

use std::collections::BTreeSet;

use objects::Object;
use serde_json::Value;

use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::is_definition;

/// What would become of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectPrediction {
    /// It does not exist, and is created.
    Created {
        /// As it is applied.
        object: Box<Object>,
        /// What a person has to know of it.
        note: Option<&'static str>,
    },
    /// Fields of it change.
    Changed(Box<ObjectUpdate>),
    /// It is deleted and created again.
    Recreated(Box<ObjectUpdate>),
    /// It stays as it is.
    Same(Box<Object>),
    /// An annotation or label excludes it from being applied; none if it does not exist.
    Skipped(Option<Box<Object>>),
}

/// An object before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectUpdate {
    /// As the cluster has it.
    pub live: Object,
    /// As the API server would store it.
    pub after: Object,
    /// What a person has to know of it.
    pub note: Option<&'static str>,
}

/// Why nothing is predicted of an object. Messages name the object, and have no values of Secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictionFailure {
    /// It cannot be read: whether it exists is not known.
    Unread(String),
    /// It was read, and cannot be applied.
    Refused(Box<RefusedApply>),
}

/// An object that was read and cannot be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedApply {
    /// As the cluster has it; none if it does not exist.
    pub live: Option<Object>,
    /// Whether the user lacks rights, which says nothing about the object.
    pub lacks_rights: bool,
    /// Why.
    pub text: String,
}

impl PredictionFailure {
    /// Why, for a person.
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

    /// What follows from an error of discovery: a kind that is not served has no objects.
    fn of_kind(error: &ClusterError, text: String) -> Self {
        match error {
            ClusterError::NoSuchKind { .. } => Self::refused(None, error, text),
            _ => Self::Unread(text),
        }
    }
}

/// Whether a refusal is about the rights of the user, and not about the object: policies and webhooks answer 403, too.
fn lacks_rights(error: &ClusterError) -> bool {
    let ClusterError::Refused(status) = error else { return false };
    let asked = [" cannot patch resource ", " cannot create resource ", " cannot update resource "];
    status.code == 403 && asked.iter().any(|it| status.message.contains(it))
}

/// What is said where fields of other tools are taken over.
const TAKEN_OVER: &str = "fields that other tools have set are taken over";

/// The same where the API server does not tell what becomes of the object.
const TAKEN_OVER_UNTRIED: &str =
    "fields that other tools have set are taken over; those that the manifest lacks go";

/// What an object becomes whose fields are taken over from other tools by a patch, and a note that says so; `dry` is what a
/// dry-run of the apply alone makes of it. What the API server fills in, and whether it takes the object, is tried by a
/// dry-run.
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

/// Kinds and namespaces that exist only once the first objects are written.
#[derive(Debug, Default, Clone)]
pub struct PlannedCrdsAndNamespaces {
    /// Group and kind.
    kinds: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
}

impl PlannedCrdsAndNamespaces {
    /// What comes with some objects.
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

    /// Whether a kind that is not served comes along.
    pub(crate) fn has_kind_of(&self, object: &Object) -> bool {
        let gvk = object.gvk();
        self.kinds.contains(&(gvk.group, gvk.kind))
    }

    /// Whether a namespace comes along.
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
