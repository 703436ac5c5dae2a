//! The command line of `cargo xtask conformance`, `compare` and `health`.
//!
//! `replay` replays recorded answers, `compare` compares with the original programs, and `health_cases` judges rules
//! of health.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use conformance::{compare, health_cases, replay};
use testbed::progress;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: ConformanceCommand,
}

#[derive(Debug, Subcommand)]
enum ConformanceCommand {
    /// Replay recorded answers of the original programs
    Conformance {
        /// Folders in the layout of `e2e/conformance`, which is the default
        folders: Vec<PathBuf>,
    },
    /// Render charts or build overlays with windlass and with the original program and show where they differ
    Compare {
        /// With which
        #[command(subcommand)]
        command: compare::CompareCommand,
    },
    /// Judge the rules of the health library by the test data of Argo CD's
    Health {
        /// A checkout of Argo CD
        checkout: PathBuf,
    },
    /// Compare our own charts and overlays with what is recorded of them
    #[command(hide = true)]
    Recorded,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        ConformanceCommand::Conformance { folders } => replay::run(&folders),
        ConformanceCommand::Compare { command } => compare::run(&command),
        ConformanceCommand::Health { checkout } => health_cases::run(&checkout),
        ConformanceCommand::Recorded => compare::recorded(),
    };
    progress::exit_code(outcome.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// clap reports a faulty definition of a command only when that command is used. This test uses every command.
    #[test]
    fn every_command_is_put_together_right() {
        super::Arguments::command().debug_assert();
    }
}
