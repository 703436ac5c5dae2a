//! What commands share: the connection to a cluster, what is printed and how, exit codes, flags that several of them have.
//!
//! Elsewhere: the commands (`windlass-cli`, `windlass-cli-helm`, `windlass-cli-installation`), the client of the API server
//! (`windlass-cluster`).

pub mod connection;
pub mod exit_code;
pub mod incidents;
pub mod quarantine_lift;
pub mod serve_flags;
pub mod table;
pub mod time_limit;
