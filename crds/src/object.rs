//! What the kinds have in common, for code that handles any of them.

use crate::Artifact;
use crate::condition::Condition;
use crate::helm::HelmRelease;
use crate::kustomize::Kustomization;
use crate::source::{
    Bucket, ExternalArtifact, GitRepository, HelmChart, HelmRepository, OCIRepository,
};
use crate::windlass::HTTPArchive;

/// An object that a controller works on and reports about.
pub trait Reconciled {
    /// Whether the object is suspended.
    fn is_suspended(&self) -> bool;

    /// The conditions of the status, in the order in which they stand there.
    fn conditions(&self) -> &[Condition];

    /// The generation that the status speaks of: -1 before the first run.
    fn observed_generation(&self) -> Option<i64>;

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    fn last_handled_reconcile_at(&self) -> Option<&str>;

    /// The condition of this type.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions().iter().find(|condition| condition.type_ == type_)
    }
}

/// A kind that yields artifacts.
pub trait Source: Reconciled {
    /// The artifact that consumers should use now.
    fn artifact(&self) -> Option<&Artifact>;
}

macro_rules! reconciled {
    ($($kind:ident),+) => {$(
        impl Reconciled for $kind {
            fn is_suspended(&self) -> bool {
                self.spec.suspend
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }

            fn observed_generation(&self) -> Option<i64> {
                self.status.as_ref()?.observed_generation
            }

            fn last_handled_reconcile_at(&self) -> Option<&str> {
                self.status.as_ref()?.last_handled_reconcile_at.as_deref()
            }
        }
    )+};
}

reconciled!(
    Bucket,
    GitRepository,
    HTTPArchive,
    HelmChart,
    HelmRelease,
    HelmRepository,
    Kustomization,
    OCIRepository
);

/// An ExternalArtifact belongs to another controller: nothing here runs for it.
impl Reconciled for ExternalArtifact {
    fn is_suspended(&self) -> bool {
        false
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        None
    }
}

macro_rules! source {
    ($($kind:ident),+) => {$(
        impl Source for $kind {
            fn artifact(&self) -> Option<&Artifact> {
                self.status.as_ref()?.artifact.as_ref()
            }
        }
    )+};
}

source!(
    Bucket,
    ExternalArtifact,
    GitRepository,
    HTTPArchive,
    HelmChart,
    HelmRepository,
    OCIRepository
);
