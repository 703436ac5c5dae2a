//! What HelmReleases do for users, on a real control plane with the standard `helm`. Each module is one user story.
//!
//! Elsewhere: stories that need their own windlass (`tests/releases_with_own_windlass`), stories about other kinds (`tests/stories`), the
//! helpers of stories (`e2e::harness`).

mod admission_webhooks;
mod adoption;
mod approvals;
mod audits;
mod bad_input;
mod chart_sources;
mod client_side_merges;
mod crd_data_loss_with_helm;
mod crd_guard;
mod crds;
mod deletion_budget;
mod depends_on;
mod drift;
mod flux_cli;
mod freezes;
mod helm_interoperability;
mod helm_tests;
mod helmfile_bundle;
mod helmfile_hooks;
mod helmfile_levels;
mod helmfile_lifecycles;
mod helmfile_operator;
mod helmfile_removals;
mod helmfile_secrets;
mod helmfiles;
mod hooks;
mod install_and_upgrade;
mod large_release_records;
mod lifecycle_checks;
mod lifecycle_handlers;
mod lifecycles;
mod plans;
mod post_renderers;
mod quarantines;
mod readiness;
mod reconcile_requests_and_dependencies;
mod release_moves;
mod remediation;
mod remediation_rollbacks;
mod required_releases;
mod settings;
mod suspension;
mod tenants;
mod values_from;
