//! One side of a comparison: everything that a repository declares at a revision, rendered.
//! Elsewhere: comparing two renderings (`rendering_comparison.rs`), reading the repository and rendering (the program).

use std::collections::BTreeMap;

use objects::{Object, ObjectId};
use serde::{Deserialize, Serialize};

use crate::change_plan::PlanObjectReference;

/// Everything that a repository declares at a revision, found from one entry point.
#[derive(Debug, Clone, Default)]
pub struct RepositoryRendering {
    /// The revision in the form for users: a commit.
    pub revision: String,
    /// All appliers that were found, by their declaring objects. These objects are all in one cluster.
    pub appliers: BTreeMap<ObjectId, RenderedApplier>,
    /// Why some appliers may not have been found, such as a limit that the search reached. Then no applier counts as absent
    /// from this side.
    pub incomplete: Option<String>,
    /// Whether this side was read from a cluster. An applier that failed there could not be read, so its existence is unknown.
    pub is_cluster: bool,
}

/// A Kustomization, a HelmRelease, a Helmfile or one of its releases, and the objects that it applies.
#[derive(Debug, Clone, Default)]
pub struct RenderedApplier {
    /// The revision of its source: a commit, or the version of a chart.
    pub source_revision: String,
    /// The cluster that the applier applies to; empty for its own cluster. Objects in different clusters are different objects,
    /// even if they have the same name.
    pub target_cluster: String,
    /// The file in the repository that declares the applier, if it is known. The path uses `/` and begins at the repository's
    /// root.
    pub file: Option<String>,
    /// The applier that applies this one; none for the entry point.
    pub parent: Option<ObjectId>,
    /// Whether the applier is a part of its parent instead of an object, like a release of a Helmfile. The parent deletes such
    /// a part when it no longer has it.
    pub is_part_of_parent: bool,
    /// The Helm release that the applier installs; none for other appliers.
    pub helm_release: Option<HelmReleaseTarget>,
    /// The objects that it applies, with their final namespaces. If two objects have the same name, the last one counts.
    pub objects: Vec<Object>,
    /// The digest of this data (see [`crate::blind_digest()`]); none if the rendering failed or needs values that only a
    /// cluster has.
    pub blind_digest: Option<String>,
    /// The values that were unknown during rendering.
    pub unknown_values: Vec<UnknownValue>,
    /// Whether some unknown values are random or taken from the time, and masked in the objects.
    pub has_drawn_values: bool,
    /// Sources whose files were read from the repository, although their location in the cluster changes.
    pub moved_sources: Vec<UnknownValue>,
    /// For a base that is a cluster: objects that could not be read there, for example for lack of permission. Neither side
    /// contains them.
    pub unread_objects: Vec<UnknownValue>,
    /// For a base that is a cluster: how many objects the applier has recorded as applied. The deletion budget is a share of
    /// this number. Without it, the budget is a share of the applier's objects.
    pub recorded_objects: Option<usize>,
    /// ConfigMaps and Secrets that the applier needs and the cluster does not have.
    pub missing_references: Vec<MissingReference>,
    /// Why the rendering failed. The objects have no meaning then.
    pub failure: Option<String>,
    /// For a failure: whether the only reason is that files or a chart were not fetched, because their host is not allowed or
    /// they belong to another source. The applier itself may be correct, but its objects are unknown.
    pub is_not_fetched: bool,
    /// For a failure: whether the cause lies outside of the applier, because a server did not respond or a limit of the command
    /// was reached.
    pub is_interrupted: bool,
    /// For a failure: identifies the spec of the applier and the files of its source. If it is empty, it is unknown and the
    /// applier counts as changed.
    pub declaration_digest: String,
    /// Whether the applier is suspended. A suspended applier applies and deletes nothing.
    pub is_suspended: bool,
    /// Whether the applier deletes objects that it no longer has: `spec.prune` of a Kustomization, and always for Helm
    /// releases.
    pub prunes: bool,
    /// Whether deleting the applier deletes its objects: by `spec.prune` and `spec.deletionPolicy` for a Kustomization, and
    /// always for Helm releases.
    pub deletes_with_itself: bool,
    /// Whether the applier recreates an object whose immutable field changes: `spec.force` of a Kustomization, `upgrade.force`
    /// of a HelmRelease.
    pub forces: bool,
}

impl RenderedApplier {
    /// Whether rendering would fail in a cluster, too, so that the objects there stay as they are.
    fn is_broken(&self) -> bool {
        self.failure.is_some() && !self.is_not_fetched && !self.is_interrupted
    }

    /// Whether the applier also fails on the earlier side, and both sides declare exactly the same.
    pub(crate) fn fails_alike(&self, earlier: &Self) -> bool {
        let is_same = self.declaration_digest == earlier.declaration_digest;
        let fails = self.failure.is_some() && earlier.failure.is_some();
        fails && is_same && !self.declaration_digest.is_empty()
    }

    /// Whether the applier failed on the earlier side, too. Either both sides are broken, or both declare exactly the same. If
    /// its objects were merely not fetched, they may have changed.
    pub(crate) fn fails_as_in(&self, earlier: &Self) -> bool {
        self.fails_alike(earlier) || (self.is_broken() && earlier.is_broken())
    }

    /// Whether the applier has a failure that leaves open what it applies in a cluster.
    pub(crate) fn is_unread(&self) -> bool {
        self.failure.is_some() && !self.is_broken()
    }
}

/// The identity of a Helm release. It decides whether the release is upgraded, or uninstalled and installed again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelmReleaseTarget {
    /// The release as `namespace/name`. It identifies the owner of an object, whichever applier has the release.
    pub name: String,
    /// The namespace of its records.
    pub storage_namespace: String,
    /// The name of the chart; empty if the chart was not rendered.
    pub chart: String,
    /// Whether the release is upgraded to a chart of another name, instead of being installed again.
    pub keeps_with_other_chart: bool,
}

impl HelmReleaseTarget {
    /// Whether the applier upgrades this release to a later target.
    pub(crate) fn is_upgraded_to(&self, later: &Self) -> bool {
        let is_same_chart =
            self.chart == later.chart || self.chart.is_empty() || later.chart.is_empty();
        self.name == later.name
            && self.storage_namespace == later.storage_namespace
            && (is_same_chart || later.keeps_with_other_chart)
    }
}

/// A ConfigMap or Secret that an applier needs. The repository does not declare it, and the cluster is known not to have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingReference {
    /// Which.
    pub object: PlanObjectReference,
    /// The field of the applier that names the ConfigMap or Secret, such as `spec.valuesFrom`.
    pub field: String,
}

impl MissingReference {
    /// The message about the missing object.
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
    /// The name of the unknown value, such as `Secret/apps/database, key password`, but never the value.
    pub what: String,
    /// Why the value is unknown, such as `spec.valuesFrom names it, and it is not in the repository`.
    pub reason: String,
}
