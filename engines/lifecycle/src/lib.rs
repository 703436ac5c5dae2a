//! Lifecycles: which of them hold an operation at a phase, in which order, and what the answers to their events mean.
//!
//! ```text
//!   lifecycles, bindings, subject ── select ── holds ─┐
//!                                                     ├─ judge ── pass, wait or fail
//!   an event with its status, the time ───────────────┘
//! ```
//!
//! Here: all that can be decided without a cluster. Elsewhere: where an operation is held (engine `release`), the objects
//! (`crds::lifecycle`), reading and writing them (the program).

mod check;
mod event;
mod event_request;
mod judge;
mod phase;
mod select;
mod variables;

pub use check::{Bounds, Finding, JobTask, job_task, measurement, pause, promoted};
pub use event::{Approval, Event, State};
pub use event_request::{Ask, DismissedEvent, Question, Revision, Stand, dismissed};
pub use judge::{EventAnswer, EventVerdict, PhaseOutcome, judge};
pub use phase::Phase;
pub use select::{
    Binding, Hold, HoldSubject, Lifecycle, OnTimeout, Requirement, SelectError, Selector,
    SubjectSelector, holds,
};
pub use variables::{LifecycleVariables, TextContext};
