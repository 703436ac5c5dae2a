//! The program: talks to the cluster and to people.
//!
//! Here: the start and the exit status. Elsewhere: commands (`cli`), kinds (`controllers`); notifications (crate
//! `notification-controller`); tags of images (crate `image-controller`); what any kind needs to be run (crate
//! `windlass-runtime`); sources (crate `source-controller`); HTTP, flags and logs (crate `windlass-serve`); the
//! Kubernetes client, events and metrics (crate `windlass-cluster`).

mod cli;
mod controllers;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
