//! `cargo xtask`: everything that a developer runs.
//!
//! Here: the commands. Elsewhere: the control plane and the harness (`e2e`).
#![expect(
    clippy::print_stderr,
    reason = "commands for people; results that are data go to standard output"
)]

mod bench;
mod cluster;
mod compare;
mod conformance;
mod corpus;
mod crash;
mod crds;
mod demo;
mod dist;
mod fuzz;
mod image;
mod installation;
mod measured;
mod oracle;
mod ownership;
mod progress;
mod rights;
mod setup;
mod soak;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Everything that a developer of windlass runs")]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show windlass at work: control plane, repository, a commit that becomes objects
    Demo(demo::Options),
    /// Check everything: format, lints, unit, golden, loopback and cluster tests
    Test(test::Options),
    /// Run a real control plane on this machine
    Cluster {
        #[command(subcommand)]
        command: cluster::Command,
    },
    /// Replay recorded answers of the reference implementations
    Conformance {
        /// Folders in the layout of `e2e/conformance`, which is the default
        folders: Vec<PathBuf>,
    },
    /// Build a program whose answers are right by definition, and print where it is
    Oracle {
        /// Which
        #[command(subcommand)]
        which: oracle::Which,
    },
    /// Render charts or build overlays with windlass and with the real program and show where they differ
    Compare {
        /// With which
        #[command(subcommand)]
        command: compare::Command,
    },
    /// Change what tenants write at random and see whether windlass survives it
    Fuzz {
        /// What
        #[command(subcommand)]
        command: fuzz::Command,
    },
    /// Write `deploy/chart/files/crds` from the Rust types
    Crds {
        /// Fail when a file is stale instead of writing it
        #[arg(long)]
        check: bool,
    },
    /// Make the files of a release for this platform: archive, manifests, chart, list of components, checksums
    Dist(dist::Options),
    /// Make the container image of windlass without a container engine, with the list of what it is made of
    Image(image::Options),
    /// Compare the rights of an installation with requests that stories recorded (`$WINDLASS_REQUESTS`)
    Rights {
        /// The folder of the records
        folder: std::path::PathBuf,
    },
    /// Kill windlass at every write and see whether anything is lost
    Crash(crash::Options),
    /// Let everything happen at random for a while and see whether all comes right
    Soak(soak::Options),
    /// Run a command and report its peak of memory: for measurements by other commands
    #[command(hide = true)]
    Measured(measured::Options),
    /// Measure
    Bench {
        #[command(subcommand)]
        command: bench::Command,
    },
}

/// Root of the checkout.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}

fn main() -> ExitCode {
    let outcome = match Xtask::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Cluster { command } => cluster::run(&command),
        Command::Conformance { folders } => conformance::run(&folders),
        Command::Oracle { which } => oracle::run(which),
        Command::Compare { command } => compare::run(&command),
        Command::Fuzz { command } => return ended(fuzz::run(&command)),
        Command::Crds { check } => crds::run(check),
        Command::Dist(options) => dist::run(&options),
        Command::Image(options) => image::run(&options),
        Command::Rights { folder } => rights::check(&folder),
        Command::Crash(options) => crash::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Bench { command } => bench::run(&command),
        Command::Measured(options) => return ended(measured::run(&options)),
    };
    ended(outcome.map(|()| ExitCode::SUCCESS))
}

fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{} {error:#}", progress::red("error:"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Xtask;

    /// clap finds out that a command is put together wrongly only when that command is used.
    #[test]
    fn every_command_is_put_together_right() {
        Xtask::command().debug_assert();
    }
}
