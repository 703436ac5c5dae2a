//! Lifecycles: which of them hold an operation at a phase and in which order, and how the answers to their events are judged.
//!
//! ```text
//!   lifecycles, bindings, subject ── select ── holds ─┐
//!                                                     ├─ judge ── pass, wait or fail
//!   an event with its status, the time ───────────────┘
//! ```
//!
//! Here: all decisions that need no cluster. Elsewhere: where an operation is held (engine `release`), the objects
//! (`crds::lifecycle`), reading and writing them (the program).

mod handler_outcome;
mod handler_variables;
mod lifecycle_event;
mod lifecycle_hold_phase;
mod lifecycle_selection;
mod operation_verdict;
mod required_lifecycle_events;

pub use handler_outcome::{
    EventJobStep, HandlerOutcome, MetricBounds, job_task, measurement, pause, promoted,
};
pub use handler_variables::{LifecycleHandlerVariables, VariableEscapingContext};
pub use lifecycle_event::{LifecycleApproval, LifecycleEventState, ObservedLifecycleEvent};
pub use lifecycle_hold_phase::LifecycleHoldPhase;
pub use lifecycle_selection::{
    HoldSubject, HoldingLifecycle, LabelRequirement, Lifecycle, LifecycleSelectError,
    LifecycleTimeoutPolicy, ObservedLifecycleBinding, SubjectLabelSelector, SubjectSelector, holds,
};
pub use operation_verdict::{
    LifecycleEventAnswer, LifecycleEventVerdict, LifecyclePhaseOutcome, judge,
};
pub use required_lifecycle_events::{
    DismissedLifecycleEvent, LifecycleEventRequest, LifecycleHoldContext, OperationHoldState,
    ReleaseOrSourceRevision, dismissed,
};
