//! `cargo xtask bench`: measurements on a real control plane, judged against the limits that we promise.
//!
//! Here: the command line. Elsewhere: what is measured (`wake`), what the numbers come to (`samples`).

mod samples;
mod wake;

use clap::Subcommand;

/// What is measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How soon a change is acted on when every interval is ten minutes: dependencies, drift, commits
    Wake(wake::Options),
}

/// Measures, and prints a table.
///
/// # Errors
/// When something did not happen at all, or was slower than its limit.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Wake(options) => wake::run(options),
    }
}
