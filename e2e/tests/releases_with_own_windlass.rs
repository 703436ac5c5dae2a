//! HelmReleases with their own windlass, because it needs other flags or does not run alone. Each module is one topic.
//!
//! Elsewhere: what HelmReleases do for users (`tests/releases`).

mod api_server_refusals;
mod audit_retention;
mod deeply_nested_values;
mod dependency_matrix;
mod freeze_matrix;
mod helm_controller_feature_gates;
mod helm_controller_handover;
mod largest_objects;
mod lifecycle_matrix;
mod plan_matrix;
mod remote_cluster;
