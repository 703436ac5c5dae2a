//! The program: talks to the cluster and to people.
//!
//! Here: the start and the exit status. Elsewhere: commands (`cli`), kinds (`controllers`), the Kubernetes client
//! (`cluster`), who is told what happened (`events`), HTTP (`serve`), flags (`settings`), metrics (`metrics`), logs (`telemetry`), the time that
//! renders and builds may take (`time_limit`).

mod cli;
mod cluster;
mod controllers;
mod events;
mod metrics;
mod random;
mod serve;
mod settings;
mod telemetry;
mod time_limit;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
