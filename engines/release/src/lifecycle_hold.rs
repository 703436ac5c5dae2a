//! Lifecycles that hold a release at the phases of its operations: the events to create, and how answers affect the operation.
//!
//! The phases before an installation or upgrade come before it has a record, so nothing is written during them. Their events
//! keep the answers until the journal has them. All other phases are tasks of the operation ([`crate::operation`]).
//!
//! Elsewhere: which lifecycles exist and how events are judged (engine `lifecycle`), the objects (the program).

use std::collections::BTreeSet;

use lifecycle::{HoldingLifecycle, LifecycleHoldPhase, ReleaseOrSourceRevision};
use reconcile::{ConditionReason, ObjectKey};
use sha2::{Digest as _, Sha256};

use crate::journal::OperationKind;
use crate::record::ReleaseRecord;
use crate::release_spec::ReleaseDesiredState;
use crate::status::HelmReleaseStatusFields;

/// The condition reason while a release waits for a lifecycle.
pub const LIFECYCLE_PENDING: ConditionReason = ConditionReason::new("LifecyclePending");
/// The condition reason while it is unknown which lifecycles hold a release.
pub const LIFECYCLES_UNKNOWN: ConditionReason = ConditionReason::new("LifecyclesUnknown");

/// The lifecycles of a release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseLifecycles {
    /// The lifecycles that hold the release, in order.
    pub holds: Vec<HoldingLifecycle>,
    /// Whether break-glass is in force.
    pub glass: bool,
    /// Why it is unknown which lifecycles hold the release. Then only operations that undo a failure may begin.
    pub unknown: Option<String>,
    /// The objects whose change triggers a run again if the lifecycles were unknown; empty if they are known.
    pub known_on: BTreeSet<ObjectKey>,
}

impl ReleaseLifecycles {
    /// The holds at the tasks of an action. `promotes` says whether the action is the last one before the release is ready.
    pub(crate) fn of(&self, action: OperationKind, promotes: bool) -> Vec<HoldingLifecycle> {
        let its: &[LifecycleHoldPhase] = match action {
            OperationKind::Install => &[LifecycleHoldPhase::PostInstall],
            OperationKind::Upgrade => &[LifecycleHoldPhase::PostUpgrade],
            OperationKind::Rollback => {
                &[LifecycleHoldPhase::PreRollback, LifecycleHoldPhase::PostRollback]
            }
            OperationKind::Uninstall => {
                &[LifecycleHoldPhase::PreDelete, LifecycleHoldPhase::PostDelete]
            }
            OperationKind::Test | OperationKind::UninstallRemediation => &[],
        };
        let is_its = |phase: &LifecycleHoldPhase| {
            its.contains(phase) || (promotes && *phase == LifecycleHoldPhase::Promote)
        };
        let narrowed = self.holds.iter().map(|hold| HoldingLifecycle {
            phases: hold.phases.iter().copied().filter(is_its).collect(),
            ..hold.clone()
        });
        narrowed.filter(|hold| !hold.phases.is_empty()).collect()
    }

    /// The phase and the lifecycles that hold an installation or upgrade before its beginning. `None` if no lifecycle
    /// holds it.
    pub(crate) fn before(
        &self,
        action: OperationKind,
    ) -> Option<(LifecycleHoldPhase, Vec<&HoldingLifecycle>)> {
        let phase = match action {
            OperationKind::Install => LifecycleHoldPhase::PreInstall,
            OperationKind::Upgrade => LifecycleHoldPhase::PreUpgrade,
            _ => return None,
        };
        let holds: Vec<&HoldingLifecycle> =
            self.holds.iter().filter(|it| it.phases.contains(&phase)).collect();
        (!holds.is_empty()).then_some((phase, holds))
    }
}

/// A revision as events name it.
pub(crate) fn revision_of(record: &ReleaseRecord) -> ReleaseOrSourceRevision {
    let metadata = record.metadata().cloned().unwrap_or_default();
    ReleaseOrSourceRevision {
        revision: record.version.to_string(),
        chart_name: metadata.name,
        chart_version: metadata.version,
    }
}

/// The name of an installation or upgrade that a lifecycle holds before it begins. The name stays the same until the desired
/// state changes, an attempt fails, or a user requests the operation again.
pub(crate) fn held_operation(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    action: OperationKind,
    version: i64,
) -> String {
    let requests = &desired.requests;
    let mut hash = Sha256::new();
    for part in [
        action.as_str(),
        &desired.inputs,
        &desired.kube_context,
        &desired.spec.target.storage_namespace,
        &status.failures_of(action).to_string(),
        requests.force.as_deref().unwrap_or_default(),
        requests.reset.as_deref().unwrap_or_default(),
    ] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hex::encode(hash.finalize());
    format!("{}.v{version}.{}", desired.spec.target.name, &digest[..12])
}
