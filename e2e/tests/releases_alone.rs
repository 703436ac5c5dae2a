//! HelmReleases with their own windlass, because it needs other flags or does not run alone. Each module is one topic.
//!
//! Elsewhere: what HelmReleases do for users (`tests/releases`).

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
