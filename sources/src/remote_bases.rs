//! Fetches the remote resources of kustomizations: files on web servers, and folders in Git repositories.
//!
//! Here: the two ways to fetch them. [`WorkstationBuildFiles`](crate::workstation_build_files::LocalDisk) is for a person's command and runs the `git`
//! program, as kustomize does (`git_program`); [`RemoteBuildFiles`] is for a service and runs nothing.
//! Elsewhere: which addresses are files and which are repositories (`kustomize`).

mod commit_worktree;
pub(crate) mod git_program;
mod remote_files;
pub(crate) mod web_files;

pub use remote_files::{RemoteBaseLimits, RemoteBuildFiles, ResolvedRemoteBase};
pub use web_files::without_credentials;
