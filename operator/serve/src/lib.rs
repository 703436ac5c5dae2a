//! What the operator is started with and serves: flags, logs, HTTP.
//!
//! Here: the flags of `windlass serve` ([`settings`]), log lines ([`logging_setup`]), artifacts, events, health and metrics over
//! HTTP ([`server`]). Elsewhere: the Kubernetes client, events and metrics themselves (crate `windlass-cluster`), webhooks
//! (`notification_controller::receiver`).

pub mod logging_setup;
pub mod server;
pub mod settings;
