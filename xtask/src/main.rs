//! `cargo xtask` has all commands that developers and CI run.
//!
//! This module has the list of commands. Small commands are part of this program. Large ones are programs in `tools/`
//! and `e2e`, which `tool` compiles when the developer calls them. `testbed` says which programs a machine has to
//! have.
#![expect(
    clippy::print_stderr,
    reason = "commands for people; results that are data go to standard output"
)]

mod demo;
mod developer_tool;
mod dist;
mod image;
mod rbac_rights;
mod test;
mod tidy;
mod upstream_programs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use developer_tool::{
    BENCH, CONFORMANCE, CRD_MANIFESTS, DeveloperTool, E2E, STRESS, ToolArguments, with_name,
};
use testbed::progress;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Everything that a developer of windlass runs")]
struct Xtask {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Show windlass at work: control plane, repository, a commit that becomes objects
    Demo(ToolArguments),
    /// Check everything: format, lints, unit, golden, loopback and cluster tests
    Test(test::TestOptions),
    /// Run a real control plane on this machine
    Cluster(ToolArguments),
    /// Replay recorded answers of the original programs
    Conformance(ToolArguments),
    /// Build a program whose answers are right by definition, and print where it is
    Oracle {
        /// Which
        #[command(subcommand)]
        which: upstream_programs::UpstreamProgramChoice,
    },
    /// Render charts or build overlays with windlass and with the original program and show where they differ
    Compare(ToolArguments),
    /// Judge the rules of the health library by the test data of Argo CD's, of which a checkout is given
    Health(ToolArguments),
    /// Change what tenants write at random and see whether windlass survives it
    Fuzz(ToolArguments),
    /// Write `deploy/chart/files/crds` from the Rust types
    Crds(ToolArguments),
    /// Make the files of a release for this platform: archive, manifests, chart, list of components, checksums
    Dist(dist::DistOptions),
    /// Make the container image of windlass without a container engine, with the list of what it is made of
    Image(image::ImageOptions),
    /// Compare the rights of an installation with requests that stories recorded (`$WINDLASS_REQUESTS`)
    Rights {
        /// The folder of the records
        folder: std::path::PathBuf,
        /// The thorough stories were recorded, too
        #[arg(long)]
        thorough: bool,
    },
    /// Kill windlass at every write and see whether anything is lost
    Crash(ToolArguments),
    /// Run random operations, API server failures and kills, and verify that windlass converges
    Soak(ToolArguments),
    /// Plan and apply the last commits of a GitOps repository, and compare both
    Replay(ToolArguments),
    /// Measure
    Bench(ToolArguments),
}

fn main() -> ExitCode {
    let named = |tool: DeveloperTool, name, arguments: &ToolArguments| {
        tool.run(&with_name(name, arguments))
    };
    let outcome = match Xtask::parse().command {
        XtaskCommand::Demo(arguments) => demo::run(&arguments),
        XtaskCommand::Test(options) => test::run(&options),
        XtaskCommand::Cluster(arguments) => named(E2E, "cluster", &arguments),
        XtaskCommand::Conformance(arguments) => named(CONFORMANCE, "conformance", &arguments),
        XtaskCommand::Oracle { which } => upstream_programs::run(which),
        XtaskCommand::Compare(arguments) => named(CONFORMANCE, "compare", &arguments),
        XtaskCommand::Health(arguments) => named(CONFORMANCE, "health", &arguments),
        XtaskCommand::Fuzz(arguments) => named(STRESS, "fuzz", &arguments),
        XtaskCommand::Crds(arguments) => CRD_MANIFESTS.run(arguments.as_slice()),
        XtaskCommand::Dist(options) => dist::run(&options),
        XtaskCommand::Image(options) => image::run(&options),
        XtaskCommand::Rights { folder, thorough } => rbac_rights::check(&folder, thorough),
        XtaskCommand::Crash(arguments) => named(STRESS, "crash", &arguments),
        XtaskCommand::Soak(arguments) => named(STRESS, "soak", &arguments),
        XtaskCommand::Replay(arguments) => named(STRESS, "replay", &arguments),
        XtaskCommand::Bench(arguments) => named(BENCH, "bench", &arguments),
    };
    progress::exit_code(outcome.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Xtask;

    /// clap reports a faulty definition of a command only when that command is used. This test uses every command.
    #[test]
    fn every_command_is_put_together_right() {
        Xtask::command().debug_assert();
    }

    #[test]
    fn stories_are_repeated_on_a_control_plane_only() {
        let is_accepted = |arguments: &[&str]| {
            let all = ["cargo xtask", "test"].into_iter().chain(arguments.iter().copied());
            Xtask::try_parse_from(all).is_ok()
        };
        assert!(is_accepted(&["--no-cluster"]) && is_accepted(&["--repeat", "2"]));
        assert!(!is_accepted(&["--repeat", "2", "--no-cluster"]));
    }
}
