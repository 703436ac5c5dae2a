//! `cargo xtask cluster`, and programs that are tried on a control plane of their own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::cluster_with_operator::{ClusterWithOperator, OperatorsToStart};
use e2e::control_plane_command::{self, DEFAULT_NAME};
use testbed::{machine_requirements, progress};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct E2eArguments {
    #[command(subcommand)]
    command: E2eCommand,
}

#[derive(Debug, Subcommand)]
enum E2eCommand {
    /// Run a real control plane on this machine
    Cluster {
        #[command(subcommand)]
        command: ControlPlaneCommand,
    },
    /// Start a program on a control plane, and end when it is ready
    #[command(hide = true)]
    Try {
        /// A line for a shell, in which `$KUBECONFIG` names the cluster
        line: String,
    },
}

/// What is to be done with which control plane.
#[derive(Debug, Subcommand)]
enum ControlPlaneCommand {
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

fn run(command: E2eCommand) -> anyhow::Result<()> {
    match command {
        E2eCommand::Cluster { command: ControlPlaneCommand::Up { name } } => {
            machine_requirements::ensure()?;
            control_plane_command::up(&name)
        }
        E2eCommand::Cluster { command: ControlPlaneCommand::Down { name } } => {
            control_plane_command::down(&name)
        }
        E2eCommand::Cluster { command: ControlPlaneCommand::Status } => {
            control_plane_command::status()
        }
        E2eCommand::Cluster { command: ControlPlaneCommand::Env { name } } => {
            control_plane_command::env(&name)
        }
        E2eCommand::Try { line } => {
            let runtime = tokio::runtime::Runtime::new()?;
            let serving = OperatorsToStart::Programs(std::slice::from_ref(&line), &[]);
            ClusterWithOperator::start_with(&runtime, serving)?.await_ready()
        }
    }
}

fn main() -> ExitCode {
    progress::exit_code(run(E2eArguments::parse().command).map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// clap finds out that a command is put together wrongly only when that command is used.
    #[test]
    fn every_command_is_put_together_right() {
        super::E2eArguments::command().debug_assert();
    }
}
