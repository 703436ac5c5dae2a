//! The flags and the logging of the operator.
//!
//! Here: the flags of `windlass serve` ([`settings`]), and log lines ([`logging_setup`]). Elsewhere: the leader elections that
//! the flags require (`windlass_kinds::lease_elections`), HTTP (crate `windlass-http-server`), and the Kubernetes client,
//! events and metrics (crate `windlass-cluster`).

pub mod logging_setup;
pub mod settings;
