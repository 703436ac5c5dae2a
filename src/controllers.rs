//! Kinds and their runs: what a spec references, what should be, what happened.
//!
//! Here: the list of kinds ([`kinds`]), what all sources share ([`source`]) and what all appliers do ([`applier`]), and a
//! folder for each kind with the same files:
//! `resolve` (what the spec references), `validated_spec` (what should be), `executor` (observe and act), `report` (say so; that of
//! sources is shared). ARCHITECTURE.md lists the other modules in the order in which they use each other.
//! Elsewhere: how any kind is run, and what it needs (crate `windlass-runtime`), notifications (crate
//! `notification-controller`), decisions (engines `reconcile`, `apply` and `release`, `sources::plan`), the client (`cluster`).

pub(crate) mod applier;
pub(crate) mod bucket;
pub(crate) mod crd_guard;
pub(crate) mod external_artifact;
pub(crate) mod git_repository;
pub(crate) mod helm_chart;
pub(crate) mod helm_release;
pub(crate) mod helm_repository;
pub(crate) mod helmfile;
pub(crate) mod http_archive;
pub(crate) mod image_trust;
pub(crate) mod kinds;
pub(crate) mod kustomization;
pub(crate) mod login;
pub(crate) mod oci_repository;
#[cfg(test)]
mod promise;
pub(crate) mod release_runner;
pub(crate) mod source;
