//! What the two kinds of Helmfile differ in: how their specs are written. Everything else is the same for both.
//!
//! Elsewhere: the kind of helmfile-operator (`operator.rs`).

use std::borrow::Cow;

use crds::ReconciledObject;
use crds::helmfile::{Helmfile, HelmfileSpec, HelmfileStatus};
use reconcile::Rest;

use super::{OWNERSHIP, report};
use crate::controllers::applier;
use crate::controllers::dependencies::DependencyTarget;
use crate::controllers::kind::ControllerKind;
use crate::controllers::object_watcher::Ownership;

impl<K: Model> DependencyTarget for K {
    fn release_not_ready(&self, release: &str) -> Option<String> {
        report::release_not_ready(self, release)
    }
}

/// A kind whose objects keep the releases of a helmfile.
pub(crate) trait Model:
    ControllerKind<ControllerState = applier::ApplierState<Self>>
    + crds::Applier
    + ReconciledObject<Status = HelmfileStatus>
{
    /// The marks on the objects of its releases.
    const OWNERSHIP: Ownership;

    /// What it asks for.
    fn asked(&self) -> Cow<'_, HelmfileSpec>;

    /// What of the spec contradicts itself.
    fn fault(&self) -> Option<Rest> {
        None
    }

    /// Fields that have no effect, with the reason.
    fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

impl Model for Helmfile {
    const OWNERSHIP: Ownership = OWNERSHIP;

    fn asked(&self) -> Cow<'_, HelmfileSpec> {
        Cow::Borrowed(&self.spec)
    }
}

/// The group of a kind, as prefix of what is told of its objects.
pub(super) fn group<K: Model>() -> String {
    K::group(&()).into_owned()
}
