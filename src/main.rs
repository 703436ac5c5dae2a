//! The program: talks to the cluster and to people.
//!
//! Here: the start and the exit status. Elsewhere: commands (`cli`), kinds (`controllers`), the Kubernetes client
//! (`cluster`), HTTP (`serve`), flags (`settings`), metrics (`metrics`), logs (`telemetry`).

mod cli;
mod cluster;
mod controllers;
mod metrics;
mod serve;
mod settings;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
