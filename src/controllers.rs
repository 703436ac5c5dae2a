//! Kinds and their runs: what a spec points at, what it wishes, what happened.
//!
//! Here: the one list of kinds ([`kinds`]), how any kind is run ([`run`]), who wakes whom ([`hub`]), what may run
//! ([`gate`]) and when ([`window`], [`hold`], [`marks`]), what is said meanwhile (`progress`), the files of an artifact ([`artifact`]), what a spec names
//! ([`reference`]), its expressions ([`expressions`]), where and as whom ([`target`]), drift and waits ([`watcher`]), what all kinds of source share ([`source`]), and a folder for
//! each kind with the same files: `resolve` (what does the spec point at), `wish` (what should be), `world` (look and
//! act), `report` (say so; that of sources is shared).
//! Elsewhere: decisions (engines `reconcile` and `apply`, `sources::plan`), the client (`cluster`).

pub(crate) mod applier;
pub(crate) mod artifact;
pub(crate) mod bucket;
pub(crate) mod catalog;
mod contest;
pub(crate) mod context;
mod crd_watch;
pub(crate) mod egress;
pub(crate) mod expressions;
pub(crate) mod external_artifact;
pub(crate) mod gate;
pub(crate) mod git_repository;
pub(crate) mod helm_chart;
pub(crate) mod helm_release;
pub(crate) mod helm_repository;
pub(crate) mod hold;
pub(crate) mod http_archive;
pub(crate) mod hub;
mod ignore_rules;
mod kept;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod kustomization;
pub(crate) mod login;
pub(crate) mod marks;
pub(crate) mod object_watcher;
pub(crate) mod oci_repository;
pub(crate) mod permit;
mod progress;
pub(crate) mod record;
pub(crate) mod reference;
mod remotes;
pub(crate) mod run;
pub(crate) mod source;
pub(crate) mod target;
mod unsupported;
pub(crate) mod window;
