//! The runtime: everything that a run of any kind of object needs.
//!
//! Runs: running a kind ([`object_run`]), the trait of a kind ([`controller_kind`]), and the context of a run
//! ([`run_context`]). Tools: blocking work ([`blocking_task`]), and clusters with users ([`cluster_target`]).
//!
//! Remotes: sources ([`source_catalog`]) and their files ([`artifact_files`]), GitRepositories ([`git_remote_access`]) and
//! HelmRepositories ([`chart_repository_access`]). Also cloud logins ([`registry_login`]), HTTP clients ([`http_clients`]), and
//! forges ([`pull_request_proposal`]).
//!
//! Whether a run may begin: [`dependency_gate`], `cross_kind_dependencies`, `dropped_dependency_fields`, [`object_hold`],
//! [`change_window`], [`freeze`] and [`lifecycle`]. What it may change, and the order of deletions: [`approval_plan`],
//! [`pull_request_approval_cache`] and [`deletion_order`]. Reports: [`run_report`], [`object_status`], [`progress_status`],
//! [`hold_conditions`] and [`audit`].
//!
//! Appliers: their common run ([`applier_run`]), sources of files ([`source_reference`]), builds ([`shared_build_parts`],
//! [`time_limit`], [`random_bytes`]), and the guard of CRDs ([`crd_guard`]).
//!
//! Elsewhere: the kinds (crates `source-controller`, `kustomize-controller`, `helm-controller`, `helmfile-controller` and
//! `notification-controller`), and decisions (engines `reconcile`, `apply` and `release`). The Kubernetes client, known
//! objects, work queue, permits and watches are in `windlass-cluster`, and flags in `windlass-serve`.

pub mod applier_run;
pub mod approval_plan;
pub mod artifact_files;
pub mod audit;
pub mod blocking_task;
pub mod change_window;
pub mod chart_repository_access;
pub mod cluster_target;
pub mod controller_kind;
pub mod crd_guard;
mod cross_kind_dependencies;
pub mod deletion_order;
pub mod dependency_gate;
pub mod depends_on_annotation;
pub mod drift_ignore_rules;
mod dropped_dependency_fields;
pub mod egress_policy;
pub mod freeze;
pub mod git_remote_access;
pub mod hold_conditions;
pub mod http_clients;
pub mod http_request;
pub mod lifecycle;
pub mod object_hold;
pub mod object_run;
pub mod object_status;
pub mod progress_status;
pub mod provider_secret_masking;
pub mod pull_request_approval_cache;
pub mod pull_request_proposal;
pub mod random_bytes;
pub mod registry_login;
pub mod run_context;
pub mod run_error;
pub mod run_report;
pub mod shared_build_parts;
pub mod source_catalog;
pub mod source_reference;
pub mod time_limit;
pub mod unsupported_fields;
