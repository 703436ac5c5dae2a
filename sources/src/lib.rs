//! Fetches what is declared remotely and keeps it as artifacts.
//!
//! Here: the remotes ([`git`]), the HTTP client that they share ([`http`]), the canonical archive ([`archive`]),
//! what is left out of it ([`ignore`]), which of many versions is taken ([`versions`]), the place where artifacts are
//! kept ([`store`]), and those of other stores
//! ([`artifact`]), this machine's folders for builds ([`disk`]), what builds name elsewhere ([`bases`]).
//! Elsewhere: custom resources and Secrets as the cluster has them (the program's `controllers` room), what a tree of files is (`tree`).
//!
//! Everything blocks: callers are on tokio's blocking pool.

pub mod archive;
pub mod artifact;
pub mod bases;
pub mod disk;
pub mod git;
pub mod http;
pub mod ignore;
pub mod plan;
pub mod reason;
pub mod store;
pub mod versions;
