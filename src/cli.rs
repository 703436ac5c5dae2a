//! What people type: one file per command, and the exit status.

mod bootstrap;
mod build;
mod bundle;
mod check;
mod connection;
mod helmfile;
mod install;
mod migrate;
mod serve;
mod shell;
mod template;
mod time_limit;
mod uninstall;
mod version;

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::settings::Settings;

/// The command line. The flags of a command are declared once it is named: those of `serve` alone take as long to declare
/// as a small build takes.
fn command() -> Command {
    let of = |name, about| Command::new(name).about(about);
    Command::new("windlass")
        .about("Keep Kubernetes clusters equal to what is declared in Git")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            of("bootstrap", BOOTSTRAP)
                .defer(|it| bootstrap::Args::augment_args(it).about(BOOTSTRAP).long_about(None)),
        )
        .subcommand(
            of("build", BUILD)
                .defer(|it| build::Args::augment_args(it).about(BUILD).long_about(None)),
        )
        .subcommand(
            of("bundle", BUNDLE)
                .defer(|it| bundle::Args::augment_args(it).about(BUNDLE).long_about(None)),
        )
        .subcommand(
            of("check", CHECK)
                .defer(|it| check::Args::augment_args(it).about(CHECK).long_about(None)),
        )
        .subcommand(
            of("completion", COMPLETION)
                .defer(|it| shell::Completion::augment_args(it).about(COMPLETION).long_about(None)),
        )
        .subcommand(of("helmfile", HELMFILE).defer(helmfile::Flags::augment_args))
        .subcommand(
            of("install", INSTALL)
                .defer(|it| install::Args::augment_args(it).about(INSTALL).long_about(None)),
        )
        .subcommand(
            of("man", MAN).defer(|it| shell::Man::augment_args(it).about(MAN).long_about(None)),
        )
        .subcommand(
            of("migrate", MIGRATE)
                .defer(|it| migrate::Args::augment_args(it).about(MIGRATE).long_about(None)),
        )
        .subcommand(
            of("serve", SERVE).defer(|it| Settings::augment_args(it).about(SERVE).long_about(None)),
        )
        .subcommand(of("template", TEMPLATE).defer(template::Flags::augment_args))
        .subcommand(
            of("uninstall", UNINSTALL)
                .defer(|it| uninstall::Args::augment_args(it).about(UNINSTALL).long_about(None)),
        )
        .subcommand(
            of("version", VERSION)
                .defer(|it| version::Args::augment_args(it).about(VERSION).long_about(None)),
        )
}

const BOOTSTRAP: &str = "Install windlass from a repository, which it follows from then on";
const BUILD: &str = "Build a kustomization, as `kustomize build` does";
const BUNDLE: &str = "Pack a helmfile with all charts that it names into one archive";
const CHECK: &str = "Check whether windlass can be installed, or is installed and works";
const COMPLETION: &str = "Print a script by which a shell completes commands and flags";
const HELMFILE: &str = "Print what a helmfile says and render its releases, as `helmfile` does";
const INSTALL: &str = "Install or upgrade windlass in a cluster";
const MAN: &str = "Write the manual pages of all commands";
const MIGRATE: &str = "Take a cluster over from Flux, or give it back; convert objects of others";
const SERVE: &str = "Run the operator";
const TEMPLATE: &str = "Render the templates of a chart, as `helm template` does";
const UNINSTALL: &str = "Remove windlass from a cluster, and keep what it manages";
const VERSION: &str = "Print the version of windlass, and those of what it reproduces";

/// Parses the command line and runs what it says.
pub(crate) fn run() -> ExitCode {
    let outcome = match command().try_get_matches().and_then(|matches| run_named(&matches)) {
        Ok(outcome) => outcome,
        Err(error) => return wrong_usage(&error),
    };
    match outcome {
        Ok(status) => status,
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

/// Runs the command that was named; the outer error is that of its flags.
fn run_named(matches: &ArgMatches) -> Result<anyhow::Result<ExitCode>, clap::Error> {
    Ok(match matches.subcommand() {
        Some(("bootstrap", given)) => bootstrap::run(&flags(given)?).map(|()| ExitCode::SUCCESS),
        // Its errors are worded as kustomize words them, so that scripts see no difference.
        Some(("build", given)) => Ok(build::run(&mut flags(given)?)),
        Some(("bundle", given)) => bundle::run(&flags(given)?).map(|()| ExitCode::SUCCESS),
        Some(("check", given)) => check::run(&flags(given)?),
        Some(("completion", given)) => {
            shell::complete(flags(given)?, command()).map(|()| ExitCode::SUCCESS)
        }
        Some(("install", given)) => install::run(&flags(given)?).map(|()| ExitCode::SUCCESS),
        Some(("helmfile", given)) => Ok(helmfile::run(flags(given)?)),
        Some(("man", given)) => shell::man(&flags(given)?, command()).map(|()| ExitCode::SUCCESS),
        Some(("migrate", given)) => migrate::run(&flags(given)?).map(|()| ExitCode::SUCCESS),
        Some(("serve", given)) => serve::run(flags(given)?).map(|()| ExitCode::SUCCESS),
        Some(("uninstall", given)) => uninstall::run(&flags(given)?).map(|()| ExitCode::SUCCESS),
        Some(("version", given)) => version::run(flags(given)?).map(|()| ExitCode::SUCCESS),
        Some((_, given)) => Ok(template::run(flags(given)?)),
        None => Ok(ExitCode::FAILURE),
    })
}

fn flags<F: FromArgMatches>(given: &ArgMatches) -> Result<F, clap::Error> {
    F::from_arg_matches(given)
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

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn every_command_can_be_declared() {
        for name in command().get_subcommands().map(Command::get_name) {
            let asked = command().try_get_matches_from(["windlass", name, "--help"]);
            assert_eq!(asked.unwrap_err().kind(), ErrorKind::DisplayHelp, "{name}");
        }
    }
}
