//! The runtime: everything that a run of any kind of object needs.
//!
//! Runs: running a kind ([`object_run`]), the trait of a kind ([`controller_kind`]), and the context of a run
//! ([`run_context`]). Objects and tools: known objects ([`object_store`]), blocking work ([`blocking_task`]), and clusters
//! with users ([`cluster_target`]).
//!
//! Remotes: sources ([`source_catalog`]) and their files ([`artifact_files`]), GitRepositories ([`git_remote`]) and
//! HelmRepositories ([`chart_repository`]). Also cloud logins ([`registry_login`]), HTTP clients ([`http_clients`]), and
//! forges ([`pull_request`]).
//!
//! Whether a run may begin: [`dependency_gate`], `dependency_lookup`, `dropped_dependency_fields`, [`object_hold`],
//! [`change_window`], [`freeze`] and [`lifecycle`]. What it may change, and the order of deletions: [`deletion_plan`],
//! [`pull_request_approval`] and [`deletion_order`]. Reports: [`run_report`], [`object_status`], [`progress_status`],
//! [`hold_conditions`] and [`audit`].
//!
//! Appliers: their common run ([`applier`]), sources of files ([`source_reference`]), builds ([`build`], [`time_limit`],
//! [`random_bytes`]), the guard of CRDs ([`crd_guard`]), and Pods behind a failure ([`workload_pods`]).
//!
//! Elsewhere: the kinds (crates `source-controller`, `kustomize-controller`, `helm-controller`, `helmfile-controller` and
//! `notification-controller`), and decisions (engines `reconcile`, `apply` and `release`). The Kubernetes client, work queue,
//! permits and watches are in `windlass-cluster`, and flags in `windlass-serve`.

pub mod applier;
pub mod artifact_files;
pub mod audit;
pub mod blocking_task;
pub mod build;
pub mod change_window;
pub mod chart_repository;
pub mod cluster_target;
pub mod controller_kind;
pub mod crd_guard;
pub mod deletion_order;
pub mod deletion_plan;
pub mod dependency_gate;
mod dependency_lookup;
pub mod depends_on_annotation;
mod dropped_dependency_fields;
pub mod egress_policy;
pub mod freeze;
pub mod git_remote;
pub mod hold_conditions;
pub mod http_clients;
pub mod http_request;
pub mod ignore_rules;
pub mod lifecycle;
pub mod object_hold;
pub mod object_run;
pub mod object_status;
pub mod object_store;
pub mod progress_status;
pub mod provider_secret_masking;
pub mod pull_request;
pub mod pull_request_approval;
pub mod random_bytes;
pub mod registry_login;
pub mod run_context;
pub mod run_error;
pub mod run_report;
pub mod source_catalog;
pub mod source_reference;
pub mod time_limit;
pub mod unsupported_fields;
pub mod workload_pods;
