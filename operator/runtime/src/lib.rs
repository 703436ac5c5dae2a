//! What an object of any kind needs to be run.
//!
//! Here: how a kind is run ([`object_run`]) and what it says of that ([`controller_kind`]); what every run may use
//! ([`run_context`]): objects as last seen ([`object_store`]), work that blocks ([`blocking_task`]), sources
//! ([`source_catalog`]) and their files ([`artifact_files`]), the remotes of GitRepositories ([`git_remote`]) and
//! HelmRepositories ([`chart_repository`]), logins to registries of clouds ([`registry_login`]), clusters and users
//! ([`cluster_target`]), servers ([`http_clients`]), forges ([`pull_request`]);
//! whether a run may begin ([`dependency_gate`], `dependency_lookup` for objects of other kinds, `dropped_dependency_fields`,
//! [`object_hold`], [`change_window`], [`freeze`], [`lifecycle`]), and what it may change and delete ([`deletion_plan`],
//! [`pull_request_approval`]), and in which order ([`deletion_order`]); and what is said
//! of it ([`run_report`], [`object_status`], [`progress_status`], [`hold_conditions`], [`audit`]). What appliers share: their run
//! ([`applier`]), how they name the source of their files ([`source_reference`]), what builds of files take ([`build`],
//! [`time_limit`], [`random_bytes`]), the guard of definitions ([`crd_guard`]),
//! and the Pods behind a failure ([`workload_pods`]). Elsewhere: sources (crate
//! `source-controller`), Kustomizations (crate `kustomize-controller`), HelmReleases (crate
//! `helm-controller`), Helmfiles (crate `helmfile-controller`), notifications (crate `notification-controller`), the Kubernetes
//! client, the queue of objects to run, permits, watches of applied objects and of Namespaces, what specs name (crate
//! `windlass-cluster`), flags (crate `windlass-serve`), decisions (engines `reconcile`, `apply` and `release`).

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
