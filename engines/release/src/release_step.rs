//! The steps that the program performs for a release. Each is one change of the cluster, and contains only numbers, ids and
//! digests.
//!
//! Every step can be repeated after a crash that lost its end. The walk-through in the crate's documentation says which parts
//! must not happen twice, and how the step detects that.
//!
//! Elsewhere: when a step is due ([`crate::plan`]).

use lifecycle::{DismissedLifecycleEvent, LifecycleEventRequest};
use reconcile::RemovalPermit;

use crate::journal::{OperationKind, UninstallPropagation};
use crate::operation::RecordAndJournalWrite;
use crate::planned_operation::PlannedOperation;
use crate::record::HookDeletePolicy;
use crate::status::ReleaseReport;

/// One step of a plan: a change of the cluster, a record or the status.
#[derive(Debug, Clone, PartialEq)]
pub enum ReleaseStep {
    /// Writes the status of the HelmRelease, and then emits the events.
    Tell(Box<ReleaseReport>),
    /// Checks whether an operation may begin: its deletions must be within the deletion budget, and changes that need approval
    /// must be approved by a user. This comes before anything of the operation is written. If the operation may not begin, the
    /// run ends.
    JudgeOperation(PlannedOperation),
    /// Does all work that needs no record: CRDs by policy, capabilities, rendering, building objects, checking the owners of
    /// existing objects, the namespace. The result is kept for [`ReleaseStep::Open`].
    Prepare {
        /// [`OperationKind::Install`] or [`OperationKind::Upgrade`].
        action: OperationKind,
        /// The number of the new revision.
        version: i64,
        /// The digest of the desired state.
        inputs: String,
    },
    /// Deletes records that are too old, changes others, and creates the new record with its journal.
    ///
    /// An existing record is not changed. The next run determines to which operation it belongs.
    Open {
        /// Records that make room, oldest first.
        prune: Vec<i64>,
        /// The changes to write, without the record itself, which [`crate::operation::opened`] or
        /// [`crate::operation::rolled_back`] makes.
        write: Box<RecordAndJournalWrite>,
    },
    /// Writes records, and the journal on one of them.
    Write(Box<RecordAndJournalWrite>),
    /// Creates the event of a lifecycle. An existing event of this name is not changed.
    Ask(Box<LifecycleEventRequest>),
    /// Cancels events of lifecycles that are still open, and deletes them. A missing event is not an error.
    Dismiss(Vec<DismissedLifecycleEvent>),
    /// Deletes the object of a hook. A missing object is not an error.
    DeleteHook {
        /// The revision that contains the hook.
        version: i64,
        /// The hook's index in the record.
        hook: usize,
        /// The occasion.
        policy: HookDeletePolicy,
        /// The operation.
        operation: String,
    },
    /// Creates the object of a hook, annotated with the operation. An existing object with this annotation is not changed.
    CreateHook {
        /// The revision that contains the hook.
        version: i64,
        /// The hook's index in the record.
        hook: usize,
        /// The operation.
        operation: String,
    },
    /// Applies the manifest of the record in order. It creates missing objects, updates existing ones, and deletes objects that
    /// only `base` has.
    Apply {
        /// The revision.
        version: i64,
        /// The revision whose objects are replaced.
        base: Option<i64>,
        /// The operation.
        operation: String,
        /// The permission to delete objects that only `base` has.
        permit: RemovalPermit,
    },
    /// Deletes the objects of the record, except those to be kept ([`crate::removal_order`]).
    Delete {
        /// The revision.
        version: i64,
        /// How the deletion treats dependents of the objects.
        propagation: UninstallPropagation,
        /// The operation.
        operation: String,
        /// The permission of the gate to delete the objects.
        permit: RemovalPermit,
    },
    /// Deletes the objects that a failed operation created. A missing object is not an error.
    CleanUp {
        /// Inventory ids.
        created: Vec<String>,
        /// The operation.
        operation: String,
        /// The permission of the gate to delete the objects.
        permit: RemovalPermit,
    },
    /// Deletes records, in this order.
    Purge {
        /// The revisions of the records.
        versions: Vec<i64>,
    },
    /// Marks the record of an operation that another client left unfinished as failed, with this description.
    Unlock {
        /// The revision.
        version: i64,
        /// The description for users.
        description: String,
    },
    /// Corrects drift of the deployed revision's objects. An event with [`crate::status::DRIFT_CORRECTED`] lists the corrected
    /// objects, and the error of the outcome lists those that could not be corrected.
    CorrectDrift {
        /// The revision.
        version: i64,
        /// Identifies the drift.
        digest: String,
    },
}
