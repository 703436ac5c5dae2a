//! `cargo xtask crash`, `soak`, `fuzz` and `replay` try to break windlass, or to find a wrong prediction.
//!
//! This module has the command line. The submodules kill windlass at every write (`crash`), run random operations
//! (`soak`), change inputs at random (`fuzz`) and replay commits of public repositories (`replay`). `inventory_ownership`
//! checks that every live object is in an inventory.
#![expect(
    clippy::print_stderr,
    reason = "commands for people; results that are data go to standard output"
)]

mod crash;
mod fuzz;
mod inventory_ownership;
mod plan_replay;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::rusage;
use testbed::progress;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct StressArguments {
    #[command(subcommand)]
    command: StressCommand,
}

#[derive(Debug, Subcommand)]
enum StressCommand {
    /// Kill windlass at every write and see whether anything is lost
    Crash(crash::CrashTestOptions),
    /// Run random operations, API server failures and kills, and verify that windlass converges
    Soak(soak::SoakOptions),
    /// Plan and apply the last commits of a GitOps repository, and compare both
    Replay(plan_replay::PlanReplayOptions),
    /// Change what tenants write at random and see whether windlass survives it
    Fuzz {
        /// What
        #[command(subcommand)]
        command: fuzz::FuzzCommand,
    },
    /// Run a command and report its peak of memory: for other commands
    #[command(hide = true)]
    Measured(rusage::RusageOptions),
}

fn main() -> ExitCode {
    let outcome = match StressArguments::parse().command {
        StressCommand::Crash(options) => crash::run(&options).map(|()| ExitCode::SUCCESS),
        StressCommand::Soak(options) => soak::run(&options).map(|()| ExitCode::SUCCESS),
        StressCommand::Replay(options) => plan_replay::run(&options).map(|()| ExitCode::SUCCESS),
        StressCommand::Fuzz { command } => fuzz::run(&command),
        StressCommand::Measured(options) => rusage::run(&options),
    };
    progress::exit_code(outcome)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// clap reports a faulty definition of a command only when that command is used. This test uses every command.
    #[test]
    fn every_command_is_put_together_right() {
        super::StressArguments::command().debug_assert();
    }
}
