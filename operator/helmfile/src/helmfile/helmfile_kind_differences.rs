//! The one difference between the two kinds of Helmfile, which is how their specs are written. Everything else is the same for
//! both kinds.
//!
//! Elsewhere: the kind of helmfile-operator (`helmfile_operator_resource.rs`).

use std::borrow::Cow;

use crds::ReconciledObject;
use crds::helmfile::{Helmfile, HelmfileSpec, HelmfileStatus};
use quarantine::on_failure_annotation::ON_FAILURE;
use reconcile::{ROLLBACK, RunOutcome};

use super::{HelmfileController, OWNERSHIP, report, validated_spec};
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::PLAN_MODE;
use windlass_runtime::depends_on_annotation::DependableKind;
use windlass_runtime::shared_build_parts::decryption::MAC;

impl<K: HelmfileCustomResource> DependableKind for HelmfileController<K> {
    type Object = K;

    fn release_not_ready(object: &K, release: &str) -> Option<String> {
        report::release_not_ready(object, release)
    }

    fn leaves_objects(object: &K) -> bool {
        let has_releases = object.status().is_some_and(|status| !status.releases.is_empty());
        !has_releases || !validated_spec::uninstalls(&object.asked())
    }
}

/// A kind whose objects keep the releases of a helmfile.
pub trait HelmfileCustomResource:
    WindlassKind + crds::Applier + ReconciledObject<Status = HelmfileStatus>
{
    /// The marks on the objects of its releases.
    const OWNERSHIP: OwnershipMarks;

    /// Annotations that only change runs of this kind. A change of one wakes the object.
    const ANNOTATIONS: &'static [&'static str];

    /// Fields that the object has and this version does not support.
    fn unsupported(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The spec in the form of windlass's Helmfile.
    fn asked(&self) -> Cow<'_, HelmfileSpec>;

    /// The outcome of a run whose spec contradicts itself. `None` if the spec has no contradiction.
    fn fault(&self) -> Option<RunOutcome> {
        None
    }

    /// Fields that have no effect, with the reason.
    fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

impl HelmfileCustomResource for Helmfile {
    const OWNERSHIP: OwnershipMarks = OWNERSHIP;
    const ANNOTATIONS: &'static [&'static str] =
        &[DELETION_BUDGET, MAC, ON_FAILURE, PLAN_MODE, ROLLBACK];

    fn unsupported(&self) -> Vec<&'static str> {
        validated_spec::unsupported(&self.spec)
    }

    fn asked(&self) -> Cow<'_, HelmfileSpec> {
        Cow::Borrowed(&self.spec)
    }
}

/// The group of a kind, as the prefix of the metadata keys in events about its objects.
pub(super) fn group<K: HelmfileCustomResource>() -> String {
    K::group(&()).into_owned()
}
