//! The owner of an applied object: the labels and annotations that name an owner other than the object that applied it.
//!
//! Here: the marks of one object. Elsewhere: which objects of an applier another owner has (`taken_over_objects.rs`),
//! advice (`advice/ownership.rs`), and the labels of each kind (`object_references.rs`).

use std::fmt;

use apply::ServerSideApplyPolicy;
use apply::owner_labels_and_apply_annotations::{RECONCILE, SSA};
use objects::{Object, ObjectId};
use serde_json::{Map, Value};

use crate::condition::text;
use crate::object_references::{self, OwnerLabels, labeled, owner_labels};

/// Annotation that names the Helm release of an object.
const RELEASE_NAME: &str = "meta.helm.sh/release-name";

/// Annotation that has the namespace of that release.
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// The owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectOwner {
    /// An object that applies others, such as a Kustomization.
    Applier(ObjectId),
    /// A Helm release for which no applier is known.
    Release {
        /// The name of the release.
        name: String,
        /// The namespace of the release.
        namespace: String,
    },
}

impl fmt::Display for ObjectOwner {
    /// Writes the owner as messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applier(id) => f.write_str(&id.subject()),
            Self::Release { name, namespace } => write!(f, "the Helm release {namespace}/{name}"),
        }
    }
}

/// An owner that an object names and that is not the object's applier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherOwner {
    /// The owner.
    pub owner: ObjectOwner,
    /// Whether the object still names the applier, too. Kinds with different field managers do not remove the labels of
    /// each other.
    pub is_beside: bool,
    /// Whether the labels are not enough, because they stay on an object that its owner has given up. The owner's
    /// inventory has to list the object, too.
    pub needs_inventory: bool,
}

impl OtherOwner {
    /// The applier that owns the object. `None` if only its release is known.
    pub fn applier(&self) -> Option<&ObjectId> {
        match &self.owner {
            ObjectOwner::Applier(id) => Some(id),
            ObjectOwner::Release { .. } => None,
        }
    }

    /// Whether the owner, whose object in the cluster is `owner`, really has the object `id`. True if no inventory is
    /// needed to show it.
    pub fn is_confirmed_by(&self, owner: &Object, id: &ObjectId) -> bool {
        let has_it = || object_references::versioned_inventory(owner).contains(id);
        !self.needs_inventory || (!object_references::is_elsewhere(owner) && has_it())
    }

    /// Says to whom the object belongs, as text for users.
    pub fn words(&self) -> String {
        let how = if self.is_beside { ", too" } else { " now" };
        format!("belongs to {}{how}", self.owner)
    }
}

/// The labels and annotations that the objects of an applier must have to name it as their owner.
#[derive(Debug, Clone)]
pub struct ExpectedOwnerMetadata {
    applier: ObjectId,
    labels: OwnerLabels,
    /// Namespace and name of each release of the applier. The list is empty if it has none, or they are not known.
    releases: Vec<[String; 2]>,
}

impl ExpectedOwnerMetadata {
    /// The owner metadata for the objects of an applier. `None` if its kind applies no objects, or applies them in
    /// another cluster.
    pub fn of(object: &Object) -> Option<Self> {
        let applier = object.id();
        let mut kinds = owner_labels();
        let labels = kinds.find(|it| it.group == applier.group && it.kind == applier.kind)?;
        let is_elsewhere = object_references::is_elsewhere(object);
        let releases = releases(object);
        (!is_elsewhere).then_some(Self { applier, labels, releases })
    }

    /// The other owners that an object of the inventory names. Owners of the applier's own kind come first.
    ///
    /// Objects that several appliers may share are left out: CustomResourceDefinitions, and objects whose annotations
    /// let an applier leave them to another one.
    pub fn others(&self, live: &Object) -> Vec<OtherOwner> {
        if !has_one_owner(live) {
            return Vec::new();
        }
        let own = labeled(live, &self.labels);
        let names_applier = own.as_ref() == Some(&self.applier);
        let mut others = Vec::new();
        for labels in owner_labels() {
            let is_same_kind = labels == self.labels;
            let named = labeled(live, &labels).filter(|id| *id != self.applier);
            // A Kustomization that applies itself has its own labels, which name no other owner.
            let named = named.filter(|id| *id != live.id());
            others.extend(named.map(|id| OtherOwner {
                owner: ObjectOwner::Applier(id),
                is_beside: names_applier,
                needs_inventory: !is_same_kind,
            }));
        }
        others.sort_by_key(|it| it.needs_inventory);
        if others.is_empty() {
            others.extend(self.other_release(live));
        }
        others
    }

    /// The release that the annotations of an object name as its owner. `None` if they name none or a release of the
    /// applier, or if the applier has no releases.
    fn other_release(&self, live: &Object) -> Option<OtherOwner> {
        let name = live.annotation(RELEASE_NAME)?.to_owned();
        let namespace = live.annotation(RELEASE_NAMESPACE)?.to_owned();
        let is_own = |own: &[String; 2]| own[0] == namespace && own[1] == name;
        if self.releases.is_empty() || self.releases.iter().any(is_own) {
            return None;
        }
        let owner = ObjectOwner::Release { name, namespace };
        Some(OtherOwner { owner, is_beside: false, needs_inventory: false })
    }
}

/// The releases of a HelmRelease or a Helmfile, according to its status.
fn releases(object: &Object) -> Vec<[String; 2]> {
    let list = match object.kind() {
        "HelmRelease" => "history",
        _ => "releases",
    };
    let rows = object.get("status").and_then(|it| it.get(list)).and_then(Value::as_array);
    let all = rows.into_iter().flatten();
    let names = all.map(|row| [text(row, "namespace").to_owned(), text(row, "name").to_owned()]);
    names.filter(|name| !name[1].is_empty()).collect()
}

/// Whether an object may have only one owner.
fn has_one_owner(live: &Object) -> bool {
    let switches = apply::switches(live);
    live.kind() != "CustomResourceDefinition"
        && switches.ssa == ServerSideApplyPolicy::Override
        && !switches.reconcile_disabled
}

/// The labels and annotations of an object that [`ExpectedOwnerMetadata::others`] reads, as fields of `metadata`.
pub fn marks(object: &Object) -> Map<String, Value> {
    let is_mark = |key: &str| {
        [RELEASE_NAME, RELEASE_NAMESPACE, SSA, RECONCILE].contains(&key)
            || owner_labels().any(|it| it.name == key || it.namespace == key)
    };
    let fields = ["labels", "annotations"].into_iter();
    let fields = fields.map(|field| {
        let all = object.meta(field).and_then(Value::as_object).into_iter().flatten();
        let kept = all.filter(|(key, _)| is_mark(key.as_str()));
        let kept: Map<String, Value> =
            kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        (field.to_owned(), Value::Object(kept))
    });
    fields.collect()
}
