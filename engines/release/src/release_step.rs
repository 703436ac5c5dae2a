//! What the program does for a release: one change of the cluster each, by numbers, ids and digests.
//!
//! Every step can be done again after a crash that lost its end: the walk-through in the crate's documentation
//! describes what each of them must not do twice and how it sees that.
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
    /// Finds out whether an operation may begin: whether what it would delete is within the deletion budget, and whether all
    /// that it would do needs an approval, or a user gave it. Nothing of the operation was written before. Where it may not,
    /// the run ends here.
    JudgeOperation(PlannedOperation),
    /// Does all that comes before a record: CRDs by policy, capabilities, rendering, building objects, checking
    /// whose they are, the namespace. The result is kept for [`ReleaseStep::Open`].
    Prepare {
        /// [`OperationKind::Install`] or [`OperationKind::Upgrade`].
        action: OperationKind,
        /// The revision that it will be.
        version: i64,
        /// The digest of the desired state.
        inputs: String,
    },
    /// Deletes records that are too old, changes others, and creates the record with its journal.
    ///
    /// An existing record is left as it is: the next run finds out which operation it belongs to.
    Open {
        /// Records that make room, oldest first.
        prune: Vec<i64>,
        /// What is written, but for the record: [`crate::operation::opened`] or
        /// [`crate::operation::rolled_back`] makes it.
        write: Box<RecordAndJournalWrite>,
    },
    /// Writes records and the journal that stands beside one.
    Write(Box<RecordAndJournalWrite>),
    /// Creates the event of a lifecycle; one of its name that is there already is left as it is.
    Ask(Box<LifecycleEventRequest>),
    /// Cancels events of lifecycles that are still open, and deletes them; not there is well, too.
    Dismiss(Vec<DismissedLifecycleEvent>),
    /// Deletes the object of a hook; nothing there is well, too.
    DeleteHook {
        /// The revision whose hook it is.
        version: i64,
        /// Its place in the record.
        hook: usize,
        /// The occasion.
        policy: HookDeletePolicy,
        /// The operation.
        operation: String,
    },
    /// Creates the object of a hook, annotated with the operation; one that has this annotation is not touched.
    CreateHook {
        /// The revision whose hook it is.
        version: i64,
        /// Its place in the record.
        hook: usize,
        /// The operation.
        operation: String,
    },
    /// Applies the manifest of the record, in its order: creates what is missing, updates what exists, deletes what
    /// only `base` has.
    Apply {
        /// The revision.
        version: i64,
        /// The revision whose objects it replaces.
        base: Option<i64>,
        /// The operation.
        operation: String,
        /// For what only `base` has.
        permit: RemovalPermit,
    },
    /// Deletes the objects of the record but those that are to be kept ([`crate::removal_order`]).
    Delete {
        /// The revision.
        version: i64,
        /// How what they own goes.
        propagation: UninstallPropagation,
        /// The operation.
        operation: String,
        /// What the gate gave for them.
        permit: RemovalPermit,
    },
    /// Deletes what an operation created that failed; not there is well, too.
    CleanUp {
        /// Inventory ids.
        created: Vec<String>,
        /// The operation.
        operation: String,
        /// What the gate gave for them.
        permit: RemovalPermit,
    },
    /// Deletes records, in this order.
    Purge {
        /// Their revisions.
        versions: Vec<i64>,
    },
    /// Marks the record of an operation that another client left unfinished as failed, with this description.
    Unlock {
        /// The revision.
        version: i64,
        /// For people.
        description: String,
    },
    /// Corrects drift of the objects of the deployed revision. An event with [`crate::status::DRIFT_CORRECTED`] lists
    /// what was changed; the error of the outcome, what could not be.
    CorrectDrift {
        /// The revision.
        version: i64,
        /// Names what was found.
        digest: String,
    },
}
