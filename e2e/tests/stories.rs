//! What windlass does for its users, on a real control plane. Each module is one user story.
//!
//! All stories share one control plane and one windlass, and each has its own namespace.
//! Elsewhere: stories that stop and restart windlass (`tests/restarts.rs`), stories about the bed itself (`tests/test_bed.rs`),
//! the helpers of stories (`e2e::harness`).

mod apply_and_prune;
mod bad_input;
mod bucket;
mod change_sets;
mod change_windows;
mod chart_repositories;
mod commit_during_failing_rollout;
mod crd_and_objects_in_one_folder;
mod crd_guard;
mod crd_schemas;
pub(crate) mod decryption;
mod deleted_objects;
mod deletion_budget;
mod deletion_policies;
mod dependencies;
mod dependency_cycle;
mod drift;
mod expressions;
mod field_conflicts;
mod flux_reconcile_requests;
mod force_immutable;
mod freeze_calendars;
mod freeze_triggers;
mod freezes;
mod git_connections;
mod git_references;
mod git_sources;
mod git_submodules_and_includes;
mod health;
mod helm_chart;
mod helmfile_diff;
mod http_archive;
mod ignored_fields;
pub(crate) mod image_signatures;
mod kubectl_takeover;
mod kubectl_wait;
mod kustomize_overlays;
mod lifecycles;
mod oci_repository;
mod on_call_rollback;
mod plan_approval_rights;
mod plans;
mod quarantine;
mod reconcile_triggers;
mod remote_bases;
mod reverse_deletion;
mod signed_commits;
mod signing_and_encryption;
mod staged_rollouts;
mod substitution;
mod suspend_resume;
mod suspension_owner_and_expiry;
mod unsupported_field;
mod verification_keys;
mod verified_charts;
mod verified_sources_required_by_namespace;
