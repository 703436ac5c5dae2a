//! What people type: one file per command, and the exit status.

mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keep Kubernetes clusters equal to what is declared in Git
#[derive(Debug, Parser)]
#[command(name = "windlass", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator
    Serve(Box<crate::settings::Settings>),
}

/// Parses the command line and runs what it says.
pub(crate) fn run() -> ExitCode {
    let Cli { command } = Cli::parse();
    let outcome = match command {
        Command::Serve(settings) => serve::run(*settings),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(
                clippy::print_stderr,
                reason = "the one place where a failed command is told to a person"
            )]
            {
                eprintln!("windlass: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
