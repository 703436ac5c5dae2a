//! What holds for every kind of source alike, whatever its protocol: one module a promise, each tested with all kinds; and
//! what is made of sources (`artifact_generator`).
//!
//! In a process of its own, because each story here has a windlass of its own. Elsewhere: what is particular to a kind
//! (`stories`, `bucket`, `charts.rs`, `oci.rs`), the run that all sources share (`operator/source/src/source.rs`).

mod access;
mod artifact_generator;
mod crash_during_fetch;
mod hostile_servers;
mod lost_artifacts;
mod rate_limits;
pub(crate) mod upstream;
