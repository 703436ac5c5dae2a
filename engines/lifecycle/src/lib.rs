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

mod event_request;
mod event_verdict;
mod handler_check;
mod handler_variables;
mod lifecycle_event;
mod lifecycle_hold_phase;
mod lifecycle_selection;

pub use event_request::{
    DismissedLifecycleEvent, EventRevision, LifecycleEventRequest, LifecycleQuestion,
    OperationHoldState, dismissed,
};
pub use event_verdict::{
    LifecycleEventAnswer, LifecycleEventVerdict, LifecyclePhaseOutcome, judge,
};
pub use handler_check::{
    EventJobStep, HandlerCheckResult, MetricBounds, job_task, measurement, pause, promoted,
};
pub use handler_variables::{LifecycleHandlerVariables, VariableTextContext};
pub use lifecycle_event::{LifecycleApproval, LifecycleEventState, ObservedLifecycleEvent};
pub use lifecycle_hold_phase::LifecycleHoldPhase;
pub use lifecycle_selection::{
    HoldSubject, HoldingLifecycle, LabelRequirement, Lifecycle, LifecycleSelectError,
    LifecycleTimeoutPolicy, ObservedLifecycleBinding, SubjectLabelSelector, SubjectSelector, holds,
};
