//! Code that all commands share: the cluster connection, printing, exit codes, and common flags.
//!
//! Elsewhere: the commands (`windlass-cli`, `windlass-cli-helm`, `windlass-cli-installation`), the client of the API server
//! (`windlass-cluster`).

pub mod connection;
pub mod exit_code;
pub mod incidents;
pub mod quarantine_lift;
pub mod status_request;
pub mod table;
pub mod time_limit;
pub mod trailing_serve_flags;
