//! The core that the reconcilers of all kinds share. It has no clock, no client and no executor.
//!
//! ```text
//!   gate ── resolve ── gate ── drive( observe → plan → perform )* ── Outcome ── conditions
//!    │                                                                │
//!  Facts                                        Wake: a time, or nodes of the Graph
//! ```
//!
//! Here: how a run ends ([`RunOutcome`]) and what triggers the next one ([`NextRunTrigger`]), the loop ([`drive`]),
//! [`StatusConditions`], how often drift is corrected ([`CorrectionBudget`]), when refused requests are repeated
//! ([`RefusedAttempts`]), which objects depend on which ([`DependencyGraph`]), in which order they are deleted
//! ([`deletion_order`]), the gate, durations and intervals, [`SnapshotHistory`], and requests of users outside of the spec:
//! [`ChangeWindows`], [`ReconcileSchedule`], [`ObjectHold`], [`FreezeCalendar`] with the events of an [`ICalendar`], and
//! whether something may be removed ([`RemovalGate`]). Elsewhere: the decision of each kind (its engine's plan), reading and
//! changing a cluster, timers, events and metrics (the program).

mod change_window;
pub mod condition_reason;
mod conditions;
mod correction_budget;
mod cron;
pub mod deletion_order;
mod dependency_graph;
mod duration;
mod freeze_calendar;
mod icalendar;
pub mod object_dependency;
mod object_hold;
mod object_key;
mod reconcile_loop;
mod reconcile_schedule;
mod refusal_retries;
mod removal_gate;
mod requested_rollback;
mod requeue_delay;
mod run_gate;
mod run_outcome;
mod snapshot_history;
mod time;
pub mod time_json;

pub use change_window::{
    BREAK_GLASS, ChangeWindowError, ChangeWindowState, ChangeWindows, WINDOW_ANNOTATION, WindowEnd,
};
pub use condition_reason::ConditionReason;
pub use conditions::{
    AnnotationCondition, ConditionStatus, DELETION_HELD, FREEZE, HOLD, MARKERS_IGNORED, READY,
    RECONCILING, SCHEDULE, STALLED, StatusCondition, StatusConditions, WARNINGS, WAVE, WINDOW,
};
pub use correction_budget::{CorrectionBudget, contested_pause};
pub use cron::{CronError, CronExpression};
pub use dependency_graph::{DependencyEdge, DependencyGraph};
pub use duration::{DurationError, format_duration, parse_duration};
pub use freeze_calendar::{
    FreezeCalendar, FreezeCalendarError, FreezeHold, FreezePeriodText, FreezeScheduleText,
};
pub use icalendar::{ICalendar, ICalendarError};
pub use object_hold::{
    ManagerOwnedFields, ObjectHold, SUSPEND_FIELD, SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL,
    may_end_suspension,
};
pub use object_key::ObjectKey;
pub use reconcile_loop::{AppliedObjectAction, Executor, PlannerDecision, ReconcilePlanner, drive};
pub use reconcile_schedule::{ReconcileSchedule, ReconcileScheduleError};
pub use refusal_retries::RefusedAttempts;
pub use removal_gate::{RemovalCause, RemovalGate, RemovalPermit, RemovalRefusal};
pub use requested_rollback::{
    REQUESTED_BY, REQUESTED_REASON, ROLLBACK, ReleaseHistoryRevision, ReleaseRollback,
    ReleaseRollbackProgress,
};
pub use requeue_delay::{SHORTEST_INTERVAL, backoff, jittered, kustomization_timeout, seed};
pub use run_gate::{
    DependencyState, DependsOnEntry, RunGate, RunGateFacts, after_resolve, before_resolve,
};
pub use run_outcome::{NextRunTrigger, RunOutcome};
pub use snapshot_history::{ReconcileSnapshot, SnapshotHistory};
pub use time::Time;
