//! One side of a comparison: everything that a repository declares at a revision, rendered.
//!
//! Elsewhere: comparing two of them (`comparison.rs`); reading the repository and rendering (the program).

use std::collections::BTreeMap;

use objects::{Object, ObjectId};
use serde::{Deserialize, Serialize};

use crate::change_plan::PlanObjectReference;

/// What a repository declares at a revision, from an entry point down.
#[derive(Debug, Clone, Default)]
pub struct RepositoryRendering {
    /// The revision, as people read it: a commit.
    pub revision: String,
    /// The appliers that were found, by the objects that declare them. All of them are objects of one cluster.
    pub appliers: BTreeMap<ObjectId, RenderedApplier>,
    /// Why there may be appliers that were not found, such as a limit that the search reached. No applier counts as absent
    /// from such a side.
    pub incomplete: Option<String>,
    /// Whether it is what a cluster has. An applier that failed there was not read, so it is not known whether it exists.
    pub is_cluster: bool,
}

/// A Kustomization, a HelmRelease, a Helmfile or one of its releases, and the objects that it applies.
#[derive(Debug, Clone, Default)]
pub struct RenderedApplier {
    /// The revision of its source: a commit, or the version of a chart.
    pub source_revision: String,
    /// The cluster that it applies to; empty for the one that it lives in. Objects of different clusters are different
    /// objects, whatever their names are.
    pub target_cluster: String,
    /// The file in the repository that declares it, where that is known: a path with `/`, from the root of the repository.
    pub file: Option<String>,
    /// The applier that applies it; none for the entry point.
    pub parent: Option<ObjectId>,
    /// Whether it is no object of its own but a part of its parent, as a release is of its Helmfile: the parent deletes it when
    /// it has it no more.
    pub is_part_of_parent: bool,
    /// The release of Helm that it is; none for other appliers.
    pub helm_release: Option<HelmReleaseTarget>,
    /// What it applies, with the namespaces that the objects will have. Of two objects of one name the last one counts.
    pub objects: Vec<Object>,
    /// The digest of all that (see [`crate::blind_digest()`]); none where it could not be rendered, or values that only a cluster
    /// has are part of it.
    pub blind_digest: Option<String>,
    /// What could not be known when it was rendered.
    pub unknown_values: Vec<UnknownValue>,
    /// Whether some of these are drawn at random or taken from the time, and masked in the objects.
    pub has_drawn_values: bool,
    /// Sources whose files are taken from the repository, although the cluster takes them from another place than before.
    pub moved_sources: Vec<UnknownValue>,
    /// Of a base that is a cluster: what is not known of objects there, such as those that the user may not read. They are not
    /// among the objects of either side.
    pub unread_objects: Vec<UnknownValue>,
    /// Of a base that is a cluster: how many objects the applier has recorded that it applied. Its budget of deletions is a
    /// part of them. If there is none, it is a part of its objects.
    pub recorded_objects: Option<usize>,
    /// ConfigMaps and Secrets that it needs and the cluster does not have.
    pub missing_references: Vec<MissingReference>,
    /// Why it could not be rendered; the objects mean nothing then.
    pub failure: Option<String>,
    /// Of a failure: whether it is only that files or a chart are needed which were not fetched, because their host is not
    /// allowed or their source is another one. Nothing is wrong with the applier then; its objects are not known.
    pub is_not_fetched: bool,
    /// Of a failure: whether it says nothing about the applier, because a server did not deliver, or a limit of the command
    /// was reached.
    pub is_interrupted: bool,
    /// Of a failure: identifies all that the revision has of the applier, such as its spec and the files of its source. Empty
    /// if that is not known; it counts as changed then.
    pub declaration_digest: String,
    /// Whether it is suspended: nothing is applied or deleted.
    pub is_suspended: bool,
    /// Whether it deletes objects that it no longer has: `spec.prune` of a Kustomization; true for releases of Helm.
    pub prunes: bool,
    /// Whether its objects are deleted when it is deleted itself, as `spec.prune` and `spec.deletionPolicy` of a
    /// Kustomization say; true for releases of Helm.
    pub deletes_with_itself: bool,
    /// Whether it recreates an object whose immutable field changes: `spec.force` of a Kustomization, `upgrade.force` of a
    /// HelmRelease.
    pub forces: bool,
}

impl RenderedApplier {
    /// Whether it cannot be rendered in a cluster either, so that its objects stay there as they are.
    fn is_broken(&self) -> bool {
        self.failure.is_some() && !self.is_not_fetched && !self.is_interrupted
    }

    /// Whether it cannot be rendered on an earlier side either, and both sides have just the same of it.
    pub(crate) fn fails_alike(&self, earlier: &Self) -> bool {
        let is_same = self.declaration_digest == earlier.declaration_digest;
        let fails = self.failure.is_some() && earlier.failure.is_some();
        fails && is_same && !self.declaration_digest.is_empty()
    }

    /// Whether it failed on an earlier side, too: both are broken, or both sides have the same of it. What is only not known
    /// on both sides may have changed.
    pub(crate) fn fails_as_in(&self, earlier: &Self) -> bool {
        self.fails_alike(earlier) || (self.is_broken() && earlier.is_broken())
    }

    /// Whether it has a failure that says nothing about what it applies in a cluster.
    pub(crate) fn is_unread(&self) -> bool {
        self.failure.is_some() && !self.is_broken()
    }
}

/// A release of Helm, by what decides whether it is upgraded, or uninstalled and installed anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelmReleaseTarget {
    /// `namespace/name`. Objects belong to releases by it, whichever applier has the release.
    pub name: String,
    /// The namespace of its records.
    pub storage_namespace: String,
    /// The name of its chart; empty where the chart was not rendered.
    pub chart: String,
    /// Whether it is upgraded to a chart of another name, and not installed anew.
    pub keeps_with_other_chart: bool,
}

impl HelmReleaseTarget {
    /// Whether its applier upgrades it to a later target.
    pub(crate) fn is_upgraded_to(&self, later: &Self) -> bool {
        let is_same_chart =
            self.chart == later.chart || self.chart.is_empty() || later.chart.is_empty();
        self.name == later.name
            && self.storage_namespace == later.storage_namespace
            && (is_same_chart || later.keeps_with_other_chart)
    }
}

/// A ConfigMap or Secret that an applier needs, that the repository does not declare, and that the cluster is known not to
/// have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingReference {
    /// Which.
    pub object: PlanObjectReference,
    /// The field of the applier that names it, such as `spec.valuesFrom`.
    pub field: String,
}

impl MissingReference {
    /// What is wrong with it.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} needs it, the repository does not declare it, and by its facts the cluster does not have it",
            self.field
        )
    }
}

/// Something that is known in the cluster only, and was replaced or left out when an applier was rendered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownValue {
    /// What is not known, such as `Secret/apps/database, key password`, never a value.
    pub what: String,
    /// Why, such as `spec.valuesFrom names it, and it is not in the repository`.
    pub reason: String,
}
