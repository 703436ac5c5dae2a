//! Compares two versions of a CustomResourceDefinition and reports what the newer one drops. Existing objects are not
//! consulted.
//!
//! Elsewhere: reading a definition, and judging a change with live objects (`crdguard`).

use std::borrow::Cow;

use crdguard::CrdDefinition;
use objects::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change_plan::PlanObjectReference;

/// A CustomResourceDefinition that loses something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrdDefinitionChange {
    /// Which.
    pub object: PlanObjectReference,
    /// The parts that the definition loses.
    pub losses: Vec<CrdDefinitionFinding>,
}

/// A part that a definition loses, or a change that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "loss", rename_all = "camelCase")]
pub enum CrdDefinitionFinding {
    /// A version, which objects may be stored in.
    VersionRemoved {
        /// The name of the version, such as `v1beta1`.
        version: String,
    },
    /// The version in which objects are stored is removed. The API server rejects that.
    StorageVersionRemoved {
        /// The name of the version, such as `v1beta1`.
        version: String,
    },
    /// A version that clients can use.
    VersionUnserved {
        /// The name of the version, such as `v1beta1`.
        version: String,
    },
    /// An immutable field of the definition changes. The API server rejects that.
    IdentityChanged {
        /// The path of the field, such as `spec.scope`.
        field: Cow<'static, str>,
        /// Before.
        old: String,
        /// After.
        new: String,
    },
    /// One of both could not be read.
    Unreadable {
        /// The reason.
        message: String,
    },
}

impl CrdDefinitionFinding {
    /// Whether the API server rejects the change.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self, Self::StorageVersionRemoved { .. } | Self::IdentityChanged { .. })
    }

    /// The description of the loss in a message.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::VersionRemoved { version } => format!(
                "removes version {version}: the API server rejects that if objects may be stored in it"
            ),
            Self::StorageVersionRemoved { version } => format!(
                "removes version {version}, in which objects are stored: the API server rejects that"
            ),
            Self::VersionUnserved { version } => format!("no longer serves version {version}"),
            Self::IdentityChanged { field, old, new } => format!(
                "changes `{field}` from {old} to {new}: the API server rejects that, a new definition is needed"
            ),
            Self::Unreadable { message } => format!("cannot be compared: {message}"),
        }
    }
}

/// Whether an object is a CustomResourceDefinition.
fn is_definition(object: &Object) -> bool {
    let gvk = object.gvk();
    gvk.group == "apiextensions.k8s.io" && gvk.kind == "CustomResourceDefinition"
}

/// Compares two states of a CustomResourceDefinition. `None` if nothing is lost, or if the object is not a definition.
pub(crate) fn crd_definition_change(
    before: &Object,
    after: &Object,
) -> Option<CrdDefinitionChange> {
    if !is_definition(after) {
        return None;
    }
    let read = |object: &Object| CrdDefinition::read(&Value::Object(object.fields().clone()));
    let losses = match (read(before), read(after)) {
        (Ok(before), Ok(after)) => losses(&before, &after),
        (Err(error), _) | (_, Err(error)) => {
            vec![CrdDefinitionFinding::Unreadable { message: error.to_string() }]
        }
    };
    let object = PlanObjectReference::from(&after.id());
    (!losses.is_empty()).then_some(CrdDefinitionChange { object, losses })
}

fn losses(before: &CrdDefinition, after: &CrdDefinition) -> Vec<CrdDefinitionFinding> {
    let scope = |it: &CrdDefinition| if it.is_namespaced { "Namespaced" } else { "Cluster" };
    let fields = [
        ("spec.group", before.group.as_str(), after.group.as_str()),
        ("spec.names.kind", before.kind.as_str(), after.kind.as_str()),
        ("spec.names.plural", before.plural.as_str(), after.plural.as_str()),
        ("spec.names.listKind", before.list_kind.as_str(), after.list_kind.as_str()),
        ("spec.scope", scope(before), scope(after)),
    ];
    let identity =
        fields.into_iter().filter(|(_, old, new)| old != new).map(|(field, old, new)| {
            let field = Cow::Borrowed(field);
            CrdDefinitionFinding::IdentityChanged {
                field,
                old: old.to_owned(),
                new: new.to_owned(),
            }
        });
    let versions = before.versions.iter().filter_map(|old| {
        let version = old.name.clone();
        match after.version(&old.name) {
            None if old.is_storage => Some(CrdDefinitionFinding::StorageVersionRemoved { version }),
            None => Some(CrdDefinitionFinding::VersionRemoved { version }),
            Some(new) if old.is_served && !new.is_served => {
                Some(CrdDefinitionFinding::VersionUnserved { version })
            }
            Some(_) => None,
        }
    });
    identity.chain(versions).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(scope: &str, versions: &[(&str, bool, bool)]) -> Object {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, served, storage)| {
                json!({"name": name, "served": served, "storage": storage})
            })
            .collect();
        let spec = json!({"group": "example.com", "scope": scope, "versions": versions,
            "names": {"kind": "Widget", "plural": "widgets"}});
        Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": spec,
            "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}}))
        .unwrap()
    }

    fn losses_of(before: &Object, after: &Object) -> Vec<String> {
        let change = crd_definition_change(before, after);
        change.iter().flat_map(|it| &it.losses).map(CrdDefinitionFinding::text).collect()
    }

    #[test]
    fn versions_and_fields_that_a_definition_loses_are_named() {
        let old = definition(
            "Namespaced",
            &[("v1alpha1", true, false), ("v1beta1", true, true), ("v1", true, false)],
        );
        assert_eq!(losses_of(&old, &old), [""; 0]);
        let new = definition("Cluster", &[("v1", false, true)]);
        let expected = [
            "changes `spec.scope` from Namespaced to Cluster: the API server rejects that, a new definition is needed",
            "removes version v1alpha1: the API server rejects that if objects may be stored in it",
            "removes version v1beta1, in which objects are stored: the API server rejects that",
            "no longer serves version v1",
        ];
        assert_eq!(losses_of(&old, &new), expected);
    }

    #[test]
    fn a_definition_that_cannot_be_read_says_so_and_other_objects_are_none() {
        let old = definition("Namespaced", &[("v1", true, true)]);
        let mut new = old.clone();
        new.fields_mut().insert("spec".to_owned(), json!({}));
        assert_eq!(losses_of(&old, &new).len(), 1);
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}});
        let map = Object::new(map).unwrap();
        assert_eq!(crd_definition_change(&map, &map), None);
    }
}
