//! Lifecycles: which of them hold an operation at a phase and in which order, and how the answers to their events are judged.
//!
//! ```text
//!   lifecycles, bindings, subject ── select ── holds ─┐
//!                                                     ├─ judge ── pass, wait or fail
//!   an event with its status, the time ───────────────┘
//! ```
//!
//! Here: all decisions that need no cluster. Elsewhere: where an operation is held (engine `release`), the objects
//! (`crds::operation_lifecycle`), reading and writing them (the program).

mod handler_outcome;
mod handler_variables;
mod lifecycle_events_to_create_and_dismiss;
mod lifecycle_hold_phase;
mod lifecycle_selection;
mod observed_lifecycle_event;
mod operation_verdict;

pub use handler_outcome::{
    EventJobStep, HandlerOutcome, MetricBounds, job_task, measurement, pause, promoted,
};
pub use handler_variables::{LifecycleHandlerVariables, VariableEscapingContext};
pub use lifecycle_events_to_create_and_dismiss::{
    DismissedLifecycleEvent, LifecycleEventRequest, LifecycleHoldContext, OperationHoldState,
    ReleaseOrSourceRevision, dismissed,
};
pub use lifecycle_hold_phase::LifecycleHoldPhase;
pub use lifecycle_selection::{
    HoldSubject, HoldingLifecycle, LabelRequirement, Lifecycle, LifecycleSelectError,
    LifecycleTimeoutPolicy, ObservedLifecycleBinding, SubjectLabelSelector, SubjectSelector, holds,
};
pub use observed_lifecycle_event::{
    LifecycleApproval, LifecycleEventState, ObservedLifecycleEvent,
};
pub use operation_verdict::{
    LifecycleEventAnswer, LifecycleEventVerdict, LifecyclePhaseOutcome, judge,
};
