//! What people type: one file per command, and the exit status.

mod build;
mod serve;
mod template;
mod time_limit;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

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
    let command = match parse() {
        Ok(command) => command,
        Err(error) => return wrong_usage(&error),
    };
    let outcome = match command {
        // Its errors are worded as kustomize words them, so that scripts see no difference.
        // Leaked, as the process ends with it.
        Command::Build(args) => return build::run(Box::leak(args)),
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

/// Parses the command line.
///
/// The flags of `serve` alone take as long to declare as a small build takes, so that other commands get only their
/// own. What is wrong and what asks for help is left to the whole, which knows all messages.
fn parse() -> Result<Command, clap::Error> {
    let named = std::env::args_os().nth(1).unwrap_or_default();
    let quick = match named.to_str() {
        Some("build") => build::Args::of_paths(std::env::args_os().skip(2))
            .or_else(|| alone("build"))
            .map(|args| Command::Build(Box::new(args))),
        Some("template") => alone("template").map(|flags| Command::Template(Box::new(flags))),
        _ => None,
    };
    quick.map_or_else(|| Cli::try_parse().map(|cli| cli.command), Ok)
}

/// The arguments of one command, if they are right.
fn alone<A: Args>(name: &'static str) -> Option<A> {
    let command = A::augment_args(clap::Command::new(name));
    let matches = command.try_get_matches_from(std::env::args_os().skip(1)).ok()?;
    A::from_arg_matches(&matches).ok()
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
