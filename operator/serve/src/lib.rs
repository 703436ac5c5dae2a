//! What the operator is started with: flags and logs.
//!
//! Here: the flags of `windlass serve` ([`settings`]), log lines ([`logging_setup`]). Elsewhere: the elections that flags require
//! (`windlass_kinds::lease_elections`), HTTP (crate `windlass-http-server`), the Kubernetes client, events and metrics (crate
//! `windlass-cluster`).

pub mod logging_setup;
pub mod settings;
