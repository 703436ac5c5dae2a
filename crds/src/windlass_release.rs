//! The group `release.windlass.dev/v1alpha1`: what was done to releases and to applied revisions, which changes and
//! deletions wait for approval, when nothing begins, which results are not applied again, what became of one change of a
//! source, and in which waves it is applied.
//!
//! Here: one file per kind. Elsewhere: what an audit says of an operation (`engines/release/src/audit.rs`), writing and
//! deleting audits (`operator/runtime/src/audit.rs`), the deletion budget (`engines/apply/src/deletion_budget.rs`), writing
//! and deleting Plans (`operator/runtime/src/approval_plan.rs`), what Freezes hold (`operator/runtime/src/freeze.rs`),
//! what follows from a result that failed (`engines/quarantine`), writing Quarantines (`operator/quarantine`), verdicts about
//! changes (`engines/changes`), writing ChangeSets (`operator/changes`), which applier may take a revision
//! (`engines/rollout`), waves (`operator/rollout`).

mod change_set;
mod freeze;
mod freeze_bypass;
mod plan;
mod plan_policy;
mod quarantine;
mod release_audit;
mod staged_rollout;

pub use change_set::{
    ChangeSet, ChangeSetCommit, ChangeSetCounts, ChangeSetRollbackRequest, ChangeSetSource,
    ChangeSetSpec, ChangeSetStatus, ChangeSetVerdict,
};
pub use freeze::{
    Freeze, FreezeCalendarSource, FreezeCalendarStatus, FreezeConfigMapKey, FreezeDriftCorrection,
    FreezeKind, FreezePeriod, FreezeSchedule, FreezeSpec, FreezeStatus,
};
pub use freeze_bypass::{
    BypassedFreeze, FreezeBypass, FreezeBypassSpec, FreezeBypassStatus, FreezeBypassSubject,
};
pub use plan::{
    Plan, PlanAction, PlanApproval, PlanApprovingPullRequest, PlanChange, PlanChanges,
    PlanDeletionBudget, PlanRejection, PlanSpec, PlanStatus, PlanSubject,
};
pub use plan_policy::{
    DeletionBudgetSpec, DeletionExemption, ForgeProvider, PlanMode, PlanPolicy, PlanPolicySpec,
    ProtectedKind, PullRequestApprovalSpec,
};
pub use quarantine::{
    Quarantine, QuarantineAction, QuarantineLift, QuarantineSpec, QuarantineStatus,
    QuarantineSubject, QuarantinedResult,
};
pub use release_audit::{
    AuditApproval, AuditCause, AuditCauseKind, AuditChange, AuditChangeKind, AuditChanges,
    AuditFreezeBypass, AuditHelmRelease, AuditLifecycleAnswer, AuditOperation, AuditOutcome,
    AuditRevision, AuditStep, AuditSubject, ReleaseAudit, ReleaseAuditSpec,
};
pub use staged_rollout::{
    ClusterStagedRollout, ClusterStagedRolloutSpec, OfflineClusterPolicy,
    RolloutOfflineClusterRules, RolloutSourceStatus, RolloutWave, RolloutWaveStatus, StagedRollout,
    StagedRolloutSpec, StagedRolloutStatus,
};
