//! The reconcile core: what every kind shares, without a clock, a client or an executor.
//!
//! ```text
//!   gate ── resolve ── gate ── drive( observe → plan → perform )* ── Outcome ── conditions
//!    │                                                                │
//!  Facts                                        Wake: a time, or nodes of the Graph
//! ```
//!
//! Here: where a run ends ([`Outcome`]) and what wakes the next one ([`Wake`]), the loop ([`drive`]), [`Conditions`],
//! how often drift is corrected ([`Corrections`]), when refused requests are repeated ([`Retries`]), which objects
//! depend on which ([`Graph`]), the gate, durations and intervals, [`History`], and what people ask for besides the
//! spec: [`Windows`], [`ScheduleTimes`], [`Hold`]; whether something may be removed ([`RemovalGate`]).
//! Elsewhere: the decision of each kind (its engine's plan), reading and changing a cluster,
//! timers, events and metrics (the program).

mod conditions;
mod corrections;
mod cron;
pub mod depends_on;
mod drive;
mod duration;
mod gate;
mod graph;
mod history;
mod hold;
pub mod instant;
mod object_key;
mod outcome;
pub mod reason;
mod removal;
mod retries;
mod rollback;
mod schedule;
mod schedule_times;
mod time;
mod window;

pub use conditions::{
    Condition, ConditionStatus, Conditions, HOLD, Mark, READY, RECONCILING, SCHEDULE, STALLED,
    WARNINGS, WINDOW,
};
pub use corrections::{Corrections, contested_pause};
pub use cron::{Cron, CronError};
pub use drive::{Executor, ObjectOutcome, PlanVerdict, ReconciledKind, drive};
pub use duration::{DurationError, format_duration, parse_duration};
pub use gate::{Dependency, DependencyState, Facts, Gate, after_resolve, before_resolve};
pub use graph::{Edge, Graph};
pub use history::{History, Snapshot};
pub use hold::{
    Hold, OwnedFields, SUSPEND_FIELD, SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL,
    may_end_suspension,
};
pub use object_key::ObjectKey;
pub use outcome::{Outcome, Wake};
pub use reason::Reason;
pub use removal::{RemovalCause, RemovalGate, RemovalPermit, RemovalRefused};
pub use retries::Retries;
pub use rollback::{
    MadeRevision, REQUESTED_BY, REQUESTED_REASON, ROLLBACK, Rollback, RollbackProgress,
};
pub use schedule::{SHORTEST_INTERVAL, backoff, jittered, kustomization_timeout, seed};
pub use schedule_times::{ScheduleTimes, ScheduleTimesError};
pub use time::Time;
pub use window::{BREAK_GLASS, Until, WINDOW_ANNOTATION, WindowError, WindowState, Windows};
