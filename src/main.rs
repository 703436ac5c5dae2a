//! The program: talks to the cluster and to people.
//!
//! Here: the start and the exit status. Elsewhere: commands (`cli`), the list of kinds (`controllers`), the kinds (crates
//! `source-controller`, `kustomize-controller`, `helm-controller`, `image-controller`, `notification-controller`), what any
//! kind needs to be run (crate `windlass-runtime`), HTTP, flags and logs (crate `windlass-serve`), the Kubernetes client,
//! events and metrics (crate `windlass-cluster`).

mod cli;
mod controllers;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
