//! The group `lifecycle.windlass.dev/v1alpha1`: who has to agree before, while and after a release changes.
//!
//! Here: one file per kind, and what they share. Elsewhere: which lifecycles hold an object and what an answer means
//! (`engines/lifecycle`), reading and writing these objects (`operator/runtime/src/lifecycle.rs`).

mod event_handler;
mod lifecycle_binding;
mod lifecycle_event;
mod lifecycle_spec;

use crate::string_enum::choice;

pub use event_handler::{
    HttpMethod, JobTemplate, LifecycleApprovalHandler, LifecycleEventHandlerSpec,
    LifecycleHttpCheckHandler, LifecycleJobHandler, LifecycleMetricsHandler, LifecyclePauseHandler,
    LifecycleWaitForHandler,
};
pub use lifecycle_binding::{
    LifecycleBinding, LifecycleBindingSpec, LifecycleSubject, SubjectKind,
};
pub use lifecycle_event::{
    LifecycleApproval, LifecycleEvent, LifecycleEventProgressStep, LifecycleEventSpec,
    LifecycleEventStatus, LifecycleEventSubject, LifecycleHelmRelease, LifecycleReleaseRevision,
    LifecycleState,
};
pub use lifecycle_spec::{Lifecycle, LifecycleRequirement, LifecycleSpec, OnTimeout};

/// The label of a LifecycleEvent that has the key of its Lifecycle.
pub const KEY_LABEL: &str = "lifecycle.windlass.dev/key";
/// The label of a LifecycleEvent that has the uid of its subject.
pub const SUBJECT_UID_LABEL: &str = "lifecycle.windlass.dev/subject-uid";

choice! {
    /// A moment of an operation.
    LifecyclePhase {
        /// Before anything of the first revision is written.
        #[default]
        PreInstall = "PreInstall",
        /// After the first revision is applied and healthy.
        PostInstall = "PostInstall",
        /// Before anything of another revision is written.
        PreUpgrade = "PreUpgrade",
        /// After another revision is applied and healthy.
        PostUpgrade = "PostUpgrade",
        /// Before a rollback.
        PreRollback = "PreRollback",
        /// After a rollback.
        PostRollback = "PostRollback",
        /// Before anything is deleted.
        PreDelete = "PreDelete",
        /// After everything was deleted.
        PostDelete = "PostDelete",
        /// After health and tests, before the object is ready.
        Promote = "Promote",
    }
}
