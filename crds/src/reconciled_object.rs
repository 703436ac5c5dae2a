//! What the kinds have in common, for code that handles any of them.
//!
//! Here: the traits, and macros by which the file of a kind says which of them it has, and how.

use std::fmt::Debug;

use serde::Serialize;

use crate::condition::Condition;
use crate::{
    Artifact, CustomHealthCheck, DependencyReference, KubeConfigReference, ResourceInventory,
};

/// What a controller reports about an object.
pub trait ObjectStatus:
    Clone + Debug + Default + PartialEq + Serialize + Send + Sync + 'static
{
    /// The conditions, in the order in which they stand there.
    fn conditions(&self) -> &[Condition];

    /// Replaces the conditions.
    fn set_conditions(&mut self, conditions: Vec<Condition>);

    /// The generation that the status speaks of: -1 before the first run, `None` if the kind does not say.
    fn observed_generation(&self) -> Option<i64>;

    /// Says which generation the status speaks of, if the kind says it.
    fn set_observed_generation(&mut self, generation: i64);

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    fn last_handled_reconcile_at(&self) -> Option<&str>;

    /// Says which request was handled, if the kind says it.
    fn set_last_handled_reconcile_at(&mut self, request: &str);

    /// The objects that the kind's objects own.
    fn inventory(&self) -> Option<&ResourceInventory> {
        None
    }
}

/// The status of a kind that yields artifacts.
pub trait SourceStatus: ObjectStatus {
    /// The artifact that consumers should use now.
    fn artifact(&self) -> Option<&Artifact>;

    /// Replaces the artifact.
    fn set_artifact(&mut self, artifact: Artifact);

    /// Promises no artifact any more: takes away everything that leads to it.
    fn take_artifact_away(&mut self);
}

/// An object that a controller works on and reports about.
pub trait ReconciledObject {
    /// What is reported.
    type Status: ObjectStatus;

    /// Name of the controller that works on the objects, Flux's where Flux has one: the field manager of statuses has it,
    /// and events report it.
    const CONTROLLER: &'static str;

    /// The finalizer of the objects: Flux's, so that either may finish what the other began.
    const FINALIZER: &'static str = "finalizers.fluxcd.io";

    /// Whether it applies objects, so that windows and `windlass.dev/depends-on` are about it.
    const APPLIES: bool = false;

    /// Whether the object is suspended.
    fn is_suspended(&self) -> bool;

    /// What was reported; nothing before the first run.
    fn status(&self) -> Option<&Self::Status>;

    /// Replaces what was reported.
    fn set_status(&mut self, status: Self::Status);

    /// The conditions of the status, in the order in which they stand there.
    fn conditions(&self) -> &[Condition] {
        self.status().map_or(&[], ObjectStatus::conditions)
    }

    /// The generation that the status speaks of: -1 before the first run.
    fn observed_generation(&self) -> Option<i64> {
        self.status().and_then(ObjectStatus::observed_generation)
    }

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    fn last_handled_reconcile_at(&self) -> Option<&str> {
        self.status().and_then(ObjectStatus::last_handled_reconcile_at)
    }

    /// The condition of this type.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions().iter().find(|condition| condition.type_ == type_)
    }
}

/// A kind that yields artifacts.
pub trait ArtifactSource: ReconciledObject<Status: SourceStatus> {
    /// The artifact that consumers should use now.
    fn artifact(&self) -> Option<&Artifact> {
        self.status().and_then(SourceStatus::artifact)
    }
}

/// A kind that applies objects.
pub trait Applier: ReconciledObject {
    /// What has to exist or to be ready before.
    fn depends_on(&self) -> &[DependencyReference];

    /// Expressions that judge the health of objects in place of the usual rules.
    fn health_check_exprs(&self) -> &[CustomHealthCheck];

    /// The cluster; that of the controller if none is named.
    fn kube_config(&self) -> Option<&KubeConfigReference>;

    /// The ServiceAccount as which objects are applied.
    fn service_account_name(&self) -> Option<&str>;
}

/// A kind of whose spec all of [`Applier`] is a part.
macro_rules! applier {
    ($kind:ident) => {
        impl $crate::Applier for $kind {
            fn depends_on(&self) -> &[$crate::DependencyReference] {
                &self.spec.depends_on
            }

            fn health_check_exprs(&self) -> &[$crate::CustomHealthCheck] {
                &self.spec.health_check_exprs
            }

            fn kube_config(&self) -> Option<&$crate::KubeConfigReference> {
                self.spec.kube_config.as_ref()
            }

            fn service_account_name(&self) -> Option<&str> {
                self.spec.service_account_name.as_deref()
            }
        }
    };
}

/// A kind that can be suspended, and has a status; with the name of its controller. `applies = true` if it applies objects.
macro_rules! reported {
    ($kind:ident $status:ident $controller:literal $(applies = $applies:literal)?) => {
        impl $crate::ReconciledObject for $kind {
            type Status = $status;

            const CONTROLLER: &'static str = $controller;
            $(const APPLIES: bool = $applies;)?

            fn is_suspended(&self) -> bool {
                self.spec.suspend
            }

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn set_status(&mut self, status: $status) {
                self.status = Some(status);
            }
        }
    };
}

/// [`reported!`] with a status of the kind's own, which has all fields of [`ObjectStatus`]: `observed_generation`,
/// `conditions`, `last_handled_reconcile_at`. `inventory = FIELD` names the field with the objects that an object owns.
macro_rules! reconciled {
    ($kind:ident $status:ident $controller:literal $(applies = $applies:literal)? $(inventory = $inventory:ident)?) => {
        $crate::reconciled_object::reported!($kind $status $controller $(applies = $applies)?);

        impl $crate::ObjectStatus for $status {
            fn conditions(&self) -> &[$crate::Condition] {
                &self.conditions
            }

            fn set_conditions(&mut self, conditions: Vec<$crate::Condition>) {
                self.conditions = conditions;
            }

            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }

            fn set_observed_generation(&mut self, generation: i64) {
                self.observed_generation = Some(generation);
            }

            fn last_handled_reconcile_at(&self) -> Option<&str> {
                self.last_handled_reconcile_at.as_deref()
            }

            fn set_last_handled_reconcile_at(&mut self, request: &str) {
                self.last_handled_reconcile_at = Some(request.to_owned());
            }

            $(fn inventory(&self) -> Option<&$crate::ResourceInventory> {
                self.$inventory.as_ref()
            })?
        }
    };
}

/// What a kind without a status reports: nothing.
impl ObjectStatus for () {
    fn conditions(&self) -> &[Condition] {
        &[]
    }

    fn set_conditions(&mut self, _: Vec<Condition>) {}

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn set_observed_generation(&mut self, _: i64) {}

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        None
    }

    fn set_last_handled_reconcile_at(&mut self, _: &str) {}
}

/// A kind that can be suspended, and has no status.
macro_rules! without_status {
    ($kind:ident $controller:literal) => {
        impl $crate::ReconciledObject for $kind {
            type Status = ();

            const CONTROLLER: &'static str = $controller;

            fn is_suspended(&self) -> bool {
                self.spec.suspend
            }

            fn status(&self) -> Option<&()> {
                None
            }

            fn set_status(&mut self, (): ()) {}
        }
    };
}

/// A kind that yields artifacts, and what of its status besides leads to one.
macro_rules! source {
    ($kind:ident $status:ident [$($leads:ident)*]) => {
        impl $crate::ArtifactSource for $kind {}

        impl $crate::SourceStatus for $status {
            fn artifact(&self) -> Option<&$crate::Artifact> {
                self.artifact.as_ref()
            }

            fn set_artifact(&mut self, artifact: $crate::Artifact) {
                self.artifact = Some(artifact);
            }

            fn take_artifact_away(&mut self) {
                self.artifact = None;
                $(self.$leads = Default::default();)*
            }
        }
    };
}

pub(crate) use {applier, reconciled, reported, source, without_status};
