//! What kustomizations name that is elsewhere: files on web servers, folders in Git repositories.
//!
//! Here: the two ways to get at them. [`Disk`](crate::disk::Disk) is for a person's command and runs the `git` program, as
//! kustomize does (`program`); [`Remotes`] is for a service and runs nothing.
//! Elsewhere: which addresses are files and which are repositories (`kustomize`).

pub(crate) mod program;
mod remotes;
pub(crate) mod web;
mod worktree;

pub use remotes::{RemoteBaseLimits, Remotes};
pub use web::without_credentials;
