//! What an object of any kind needs to be run.
//!
//! Here: how a kind is run ([`run`]) and what it says of that ([`kind`]); what every run may use ([`context`]): the
//! queue ([`work_queue`]), objects as last seen ([`object_store`]), permits ([`permit`]), work that blocks
//! ([`blocking_task`]), sources ([`catalog`]) and their files ([`artifact`]), what specs name ([`reference`]), the
//! remotes of GitRepositories ([`git_remote`]), clusters and users ([`target`]), applied objects ([`object_watcher`]),
//! servers ([`http_clients`]), forges ([`pull_request`]); whether a run may begin ([`gate`], [`hold`], [`window`],
//! [`lifecycle`]); and what is said of it ([`record`], [`progress`], [`hold_conditions`], [`audit`]).
//! What appliers share: their run ([`applier`]), how they name the source of their files ([`source_reference`]), what
//! builds of files take ([`build`], [`time_limit`], [`random`]), the guard of definitions ([`crd_guard`]), writes that may
//! have been done ([`unanswered_writes`]), and the Pods behind a failure ([`workload_pods`]).
//! Elsewhere: sources (crate `source-controller`), Kustomizations (crate `kustomize-controller`), HelmReleases and
//! Helmfiles (crate `helm-controller`), notifications (crate `notification-controller`), the Kubernetes client (crate
//! `windlass-cluster`), flags (crate `windlass-serve`), decisions (engines `reconcile`, `apply` and `release`).

pub mod applier;
pub mod artifact;
pub mod audit;
pub mod blocking_task;
pub mod build;
pub mod catalog;
pub mod context;
pub mod crd_guard;
pub mod crd_watch;
pub mod dependencies;
pub mod egress;
pub mod expressions;
pub mod field_conflict;
pub mod gate;
pub mod git_remote;
pub mod hold;
pub mod hold_conditions;
pub mod http_clients;
pub mod http_request;
pub mod ignore_rules;
pub mod kind;
pub mod lifecycle;
pub mod namespaces;
pub mod object_store;
pub mod object_watcher;
pub mod own_kinds;
pub mod permit;
pub mod progress;
pub mod provider_secrets;
pub mod pull_request;
pub mod random;
pub mod record;
pub mod reference;
pub mod rights_watch;
pub mod run;
pub mod run_error;
pub mod source_reference;
pub mod target;
pub mod time_limit;
pub mod unanswered_writes;
pub mod unsupported;
pub mod window;
pub mod work_queue;
pub mod workload_pods;
