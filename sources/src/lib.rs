//! Fetches what is declared remotely and keeps it as artifacts.
//!
//! Here: the remotes ([`git`], [`bucket`], [`charts`], [`http_archive`], [`oci`]), the HTTP client that they share ([`http`]), the canonical archive ([`archive`]),
//! what is left out of it ([`ignore`]), which of many versions is taken ([`version_choice`]), the place where artifacts
//! are kept ([`store`]), and those of other stores
//! ([`artifact`]), this machine's folders for builds ([`local_disk`]), what builds name elsewhere ([`remote_bases`]),
//! what addresses of go-getter name ([`go_getter`]), services that decrypt keys ([`kms`]).
//! Elsewhere: custom resources and Secrets as the cluster has them (the program's `controllers` room), what a tree of files is (`tree`).
//!
//! Git and all access to the disk block, and are called from tokio's blocking pool; buckets, registries and web servers
//! are asked and fetched on its other threads.

pub mod archive;
pub mod artifact;
pub mod bucket;
pub mod charts;
pub mod cloud_tokens;
pub mod fetch_plan;
pub mod git;
pub mod go_getter;
pub mod http;
pub mod http_archive;
pub mod ignore;
pub mod kms;
pub mod local_disk;
pub mod oci;
pub mod remote_bases;
pub mod source_reasons;
pub mod store;
pub mod version_choice;

/// An error and all that are behind it, separated by colons.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}
