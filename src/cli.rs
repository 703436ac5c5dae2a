//! What people type: one file per command, and the exit status.

mod build;
mod serve;
mod template;

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
    /// Print what a kustomization builds, as `kustomize build` does
    Build(Box<build::Args>),
    /// Run the operator
    Serve(Box<crate::settings::Settings>),
    Template(Box<template::Flags>),
}

/// Parses the command line and runs what it says.
pub(crate) fn run() -> ExitCode {
    let Cli { command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    let outcome = match command {
        // Its errors are worded as kustomize words them, so that scripts see no difference.
        Command::Build(args) => return build::run(&args),
        Command::Serve(settings) => serve::run(*settings),
        Command::Template(flags) => return template::run(*flags),
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

/// Says what is wrong with a command line: as Helm does of `template`, so that scripts see what they know.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let is_template = std::env::args_os().nth(1).is_some_and(|command| command == "template");
    let Some(text) = is_template.then(|| template::explain_usage(error)).flatten() else {
        error.exit();
    };
    #[expect(clippy::print_stderr, reason = "a command line that is wrong is told to a person")]
    {
        eprintln!("Error: {text}");
    }
    ExitCode::FAILURE
}
