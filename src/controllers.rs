//! Kinds and their runs: what a spec references, what should be, what happened.
//!
//! Here: the list of kinds ([`kinds`]), what a kind says about itself ([`kind`]), how any kind is run ([`run`]), what all
//! sources share ([`source`]) and what all appliers do ([`applier`]), and a folder for each kind with the same files:
//! `resolve` (what the spec references), `validated_spec` (what should be), `executor` (observe and act), `report` (say so; that of
//! sources is shared). ARCHITECTURE.md lists the other modules in the order in which they use each other.
//! Elsewhere: decisions (engines `reconcile`, `apply` and `release`, `sources::plan`), the client (`cluster`).

pub(crate) mod alert;
pub(crate) mod applier;
pub(crate) mod artifact;
pub(crate) mod audit;
pub(crate) mod bucket;
pub(crate) mod catalog;
pub(crate) mod context;
pub(crate) mod crd_guard;
mod crd_watch;
pub(crate) mod delivery;
mod dependencies;
pub(crate) mod egress;
pub(crate) mod expressions;
pub(crate) mod external_artifact;
mod field_conflict;
pub(crate) mod gate;
pub(crate) mod git_repository;
pub(crate) mod helm_chart;
pub(crate) mod helm_release;
pub(crate) mod helm_repository;
pub(crate) mod helmfile;
pub(crate) mod hold;
pub(crate) mod hold_conditions;
pub(crate) mod http_archive;
mod http_clients;
pub(crate) mod http_request;
mod ignore_rules;
pub(crate) mod image_trust;
pub(crate) mod incident;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod kustomization;
pub(crate) mod lifecycle;
pub(crate) mod login;
mod namespaces;
mod object_store;
pub(crate) mod object_watcher;
pub(crate) mod oci_repository;
mod own_kinds;
pub(crate) mod permit;
mod progress;
pub(crate) mod provider;
pub(crate) mod receiver;
pub(crate) mod record;
pub(crate) mod reference;
pub(crate) mod release_runner;
mod rights_watch;
pub(crate) mod run;
mod run_error;
pub(crate) mod source;
pub(crate) mod target;
mod unsupported;
pub(crate) mod window;
pub(crate) mod work_queue;
