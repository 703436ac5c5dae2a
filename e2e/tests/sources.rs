//! Guarantees of every kind of source, whatever its protocol. Each module tests one guarantee with all kinds. Also artifacts
//! that are made from sources (`artifact_generator`).
//!
//! The stories have their own process, because each has its own windlass. Elsewhere: details of each kind (`stories`, `bucket`,
//! `charts.rs`, `oci.rs`), the reconciliation that all sources share (`operator/source/src/source.rs`).

mod access;
mod artifact_generator;
mod crash_during_fetch;
mod hostile_servers;
mod lost_artifacts;
mod rate_limits;
pub(crate) mod remote_servers;
