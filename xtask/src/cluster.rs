//! `cargo xtask cluster`: control planes that outlive the command.
//!
//! Here: the command line. Elsewhere: what each command does and prints (`e2e::cluster_command`).

use clap::Subcommand;
use e2e::cluster_command::{self, DEFAULT_NAME};

/// What is to be done with which control plane.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start one; fine if it runs already
    Up {
        /// Its name
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
    },
    /// End one and remove all it had
    Down {
        /// Its name
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
    },
    /// List them
    Status,
    /// Print shell commands that make kubectl use one, for `eval`
    Env {
        /// Its name
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
    },
}

/// Does it.
///
/// # Errors
/// What kept the control plane from starting, ending or being found.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Up { name } => {
            crate::setup::ensure()?;
            cluster_command::up(name)
        }
        Command::Down { name } => cluster_command::down(name),
        Command::Status => cluster_command::status(),
        Command::Env { name } => cluster_command::env(name),
    }
}
