//! HelmReleases with a windlass of their own, since it has other flags than the one that stories share, or is not alone:
//! one module a topic.
//!
//! Elsewhere: what HelmReleases do for their users (`tests/releases`).

mod audits;
mod deep_values;
mod dependency_matrix;
mod faults;
mod flux;
mod freeze_matrix;
mod gates;
mod lifecycle_matrix;
mod plan_matrix;
mod remote;
mod watchdog;
