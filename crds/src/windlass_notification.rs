//! The group `notification.windlass.dev/v1alpha1`: failures that are notified as incidents.
//!
//! Here: its one kind. Elsewhere: which failures are one incident (`engines/cause/src/incident.rs`), writing the objects
//! (`operator/notification/src/incident.rs`).

mod incident;

pub use incident::{
    Incident, IncidentAffectedObjects, IncidentCause, IncidentNotification, IncidentSilence,
    IncidentSpec, IncidentState, IncidentStatus, IncidentStep, IncidentSubject,
};
