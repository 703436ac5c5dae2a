//! The kinds of notifications: Alert, Provider, Receiver and Incident.
//!
//! Here: delivering events to services ([`delivery`]), by Alerts ([`alert_controller`]) and Providers ([`provider_controller`]), webhooks that
//! request reconciliations ([`receiver`]), failures that are kept as objects, with notifications when they begin and end
//! ([`incident`]), objects that annotations name ([`object_selection_annotations`]).
//! Elsewhere: the decisions (engines `notify` and `cause`), how any kind is run (crate `windlass-runtime`), the events (crate
//! `windlass-cluster`), the list of kinds (crate `windlass-kinds`).

pub mod alert_controller;
pub mod delivery;
pub mod incident;
pub mod object_selection_annotations;
pub mod provider_controller;
pub mod receiver;
