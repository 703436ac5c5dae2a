//! What HelmReleases do for users, on a real control plane with the standard `helm`. Each module is one user story.
//!
//! Elsewhere: stories that need their own windlass (`tests/releases_alone`), stories about other kinds (`tests/stories`), the
//! helpers of stories (`e2e::harness`).

mod adoption;
mod approvals;
mod audits;
mod bad_input;
mod bundle;
mod chart_sources;
mod crd_disasters;
mod crd_guard;
mod crds;
mod deletion_budget;
mod depends_on;
mod drift;
mod flux_cli;
mod freezes;
mod helmfile_hooks;
mod helmfile_levels;
mod helmfile_lifecycles;
mod helmfile_operator;
mod helmfile_removals;
mod helmfile_secrets;
mod helmfiles;
mod hooks;
mod install_and_upgrade;
mod interop;
mod lifecycle_checks;
mod lifecycle_handlers;
mod lifecycles;
mod merges;
mod plans;
mod post_renderers;
mod quarantines;
mod readiness;
mod records;
mod release_moves;
mod remediation;
mod remedies;
mod requests;
mod requires;
mod settings;
mod suspension;
mod tenants;
mod tests;
mod values_from;
mod webhooks;
