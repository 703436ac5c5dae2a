//! The kinds of sources. They make artifacts from remote Git repositories, buckets, charts, registries and archives.
//!
//! Here: the run that all of them share ([`source`]), a folder for each kind with the same files (`resolve`: what the spec
//! references, `validated_spec`: what should be, `executor`: observe and act), artifacts made from other artifacts
//! ([`artifact_generator`]), artifacts of other controllers ([`external_artifact`]), required signatures (`image_trust`),
//! whether the commit of a GitRepository was reviewed ([`pull_request_approval`]), the iCalendar files of Freezes
//! ([`freeze_calendar`]).
//! Elsewhere: how any kind is run, and how the remotes of GitRepositories and HelmRepositories are reached (crate
//! `windlass-runtime`), protocols, the store and the decision whether to fetch (crate `sources`), the list of kinds (crate
//! `windlass-kinds`).

pub mod artifact_generator;
mod bucket;
pub mod external_artifact;
pub mod freeze_calendar;
mod git_repository;
mod helm_chart;
mod helm_repository;
mod http_archive;
mod image_trust;
mod oci_repository;
pub mod pull_request_approval;
pub mod source;
#[cfg(test)]
mod temporary_artifact_store;
