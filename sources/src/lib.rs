//! Fetches remote files for artifacts, charts and builds.
//!
//! Here: the remotes ([`bucket`], [`charts`], [`http_archive`], [`oci`]), remote bases of builds ([`remote_bases`]), this
//! machine's folders for builds ([`workstation_build_files`]), go-getter addresses ([`go_getter`]), services that decrypt
//! keys ([`kms`]), whether a source has to be fetched ([`fetch_plan`]).
//! Elsewhere: Git ([`git`]), the HTTP client that all share ([`http_client`]), archives and the store of artifacts
//! ([`artifacts`]), choosing a version ([`golang::highest_version_selection`]), custom resources and Secrets as the cluster
//! has them (the program's `controllers` room), what a tree of files is (`tree`).
//!
//! Git and all access to the disk block, so the callers use tokio's blocking pool. Requests to buckets, registries and web
//! servers are async.

pub mod bucket;
pub mod charts;
pub mod cloud_tokens;
pub mod fetch_plan;
pub mod go_getter;
pub mod http_archive;
pub mod kms;
pub mod oci;
pub mod remote_bases;
pub mod source_condition_reasons;
pub mod workstation_build_files;

/// An error and all that are behind it, separated by colons.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}
