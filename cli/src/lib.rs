//! The command line of windlass: parsing arguments, running commands, and the commands about objects, with one file for each.
//!
//! Elsewhere: commands for charts and helmfiles (`windlass-cli-helm`), for windlass itself (`windlass-cli-installation`), and
//! for changes of repositories (`windlass-cli-plan`).
//! Also elsewhere: code that commands share, and exit codes (`windlass-cli-runtime`); data about objects (`windlass-answers`).

mod alert_sample_event;
mod approve;
mod build;
mod command_scope;
mod complete;
mod completion_and_man;
mod crd;
mod describe;
mod diff;
mod events;
mod export;
mod flux_and_kubectl_syntax;
mod freeze_bypass;
mod get;
#[cfg(test)]
mod golden_file_comparison;
mod helm_release_values;
mod helmfile_release_suspension;
mod history;
mod image_plan;
mod incident_row;
mod incidents;
mod logs;
mod operator_reaction_wait;
mod output;
mod reconcile;
#[cfg(test)]
mod reference_page;
mod release_audits;
mod resume;
mod rollback;
mod serve;
mod silence;
mod source_change_results;
mod stats;
mod suspend;
mod trace;
mod tree;
mod ui;
mod version;
mod why;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use windlass_answers::{cause_facts, kind_argument, object_row, render};
use windlass_cli_helm::{helmfile, helmfile_bundle, template};
use windlass_cli_installation::{bootstrap, check, install, migrate, uninstall};
use windlass_cli_plan as plan;
use windlass_cli_runtime::exit_code::{CommandError, ExitCode};
use windlass_cluster::error::plain;
use windlass_serve::settings::OperatorSettings;

/// A command whose flags are declared only when the user names it. Declaring the flags of `serve` alone takes as long as a
/// small build.
macro_rules! declared {
    ($name:literal, $about:expr, $flags:ty) => {
        Command::new($name)
            .about($about)
            .defer(|it| <$flags>::augment_args(it).about($about).long_about(None))
    };
    ($name:literal, $about:expr, $flags:ty, $examples:expr) => {
        Command::new($name).about($about).defer(|it| {
            <$flags>::augment_args(it).about($about).long_about(None).after_help($examples)
        })
    };
}

/// The command line.
fn command() -> Command {
    let commands = [
        declared!("alerts", ALERTS, alert_sample_event::AlertsArgs),
        declared!("approve", APPROVE, approve::ApproveArgs, approve::EXAMPLES),
        declared!("audit", AUDIT, release_audits::AuditArgs, release_audits::EXAMPLES),
        declared!("bootstrap", BOOTSTRAP, bootstrap::BootstrapArgs),
        declared!("build", BUILD, build::BuildArgs, build::EXAMPLES),
        declared!("bundle", BUNDLE, helmfile_bundle::BundleArgs, helmfile_bundle::EXAMPLES),
        declared!("bypass", BYPASS, freeze_bypass::BypassArgs, freeze_bypass::EXAMPLES),
        declared!(
            "changes",
            CHANGES,
            source_change_results::ChangesArgs,
            source_change_results::EXAMPLES
        ),
        declared!("check", CHECK, check::CheckArgs, check::EXAMPLES),
        declared!("completion", COMPLETION, completion_and_man::CompletionArgs),
        declared!("crd", CRD, crd::CrdArgs, crd::EXAMPLES),
        declared!("describe", DESCRIBE, describe::DescribeArgs, describe::EXAMPLES),
        declared!("diff", DIFF, diff::DiffArgs, diff::EXAMPLES),
        declared!("events", EVENTS, events::EventsArgs, events::EXAMPLES),
        declared!("export", EXPORT, export::ExportArgs, export::EXAMPLES),
        declared!("get", GET, get::GetArgs, get::EXAMPLES),
        Command::new("helmfile").about(HELMFILE).defer(helmfile::HelmfileFlags::augment_args),
        declared!("history", HISTORY, history::HistoryArgs, history::EXAMPLES),
        declared!("image", IMAGE, image_plan::ImageArgs),
        declared!("incidents", INCIDENTS, incidents::IncidentsArgs, incidents::EXAMPLES),
        declared!("install", INSTALL, install::InstallArgs),
        declared!("logs", LOGS, logs::LogsArgs, logs::EXAMPLES),
        declared!("man", MAN, completion_and_man::ManPageArgs),
        declared!("migrate", MIGRATE, migrate::MigrateArgs),
        declared!("plan", PLAN, plan::PlanArgs, plan::EXAMPLES),
        declared!("reconcile", RECONCILE, reconcile::ReconcileArgs, reconcile::EXAMPLES),
        declared!("resume", RESUME, resume::ResumeArgs, resume::EXAMPLES),
        declared!("rollback", ROLLBACK, rollback::RollbackArgs, rollback::EXAMPLES),
        declared!("serve", SERVE, OperatorSettings),
        declared!("silence", SILENCE, silence::SilenceArgs, silence::EXAMPLES),
        declared!("stats", STATS, stats::StatsArgs, stats::EXAMPLES),
        declared!("suspend", SUSPEND, suspend::SuspendArgs, suspend::EXAMPLES),
        Command::new("template").about(TEMPLATE).defer(template::HelmTemplateFlags::augment_args),
        declared!("trace", TRACE, trace::TraceArgs, trace::EXAMPLES),
        declared!("tree", TREE, tree::TreeArgs, tree::EXAMPLES),
        declared!("ui", UI, ui::UiArgs, ui::EXAMPLES),
        declared!("uninstall", UNINSTALL, uninstall::UninstallArgs),
        declared!("values", VALUES, helm_release_values::ValuesArgs, helm_release_values::EXAMPLES),
        declared!("version", VERSION, version::VersionArgs),
        declared!("why", WHY, why::WhyArgs, why::EXAMPLES),
    ];
    Command::new("windlass")
        .about("Keep Kubernetes clusters equal to what is declared in Git")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(FIRST)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
}

/// The first advice for a user who has never seen the program.
const FIRST: &str = "When something does not work:
  windlass why -A                                  what is not ready in all namespaces, by its cause
  windlass why ks/app -n apps                      why one object is not ready, and what would help
  windlass tree ks/app -n apps                     what it applied, with health, down to Pods
  windlass logs ks/app -n apps --since 1h          what windlass logged about it

Each command has examples: windlass why --help";

const ALERTS: &str = "Send a sample notification, and show what the service answers";
const APPROVE: &str = "Approve an operation that waits for it, or reject it";
const AUDIT: &str = "List what was done to releases and Kustomizations, and why";
const BOOTSTRAP: &str = "Install windlass from a repository, which it follows from then on";
const BUILD: &str =
    "Build a kustomization as `kustomize build` does, or what windlass applies for an object";
const BUNDLE: &str = "Pack a helmfile with all charts that it names into one archive";
const BYPASS: &str = "Let one operation begin although a Freeze denies";
const CHANGES: &str = "Show what became of a commit, and of all appliers that it changes";
const CHECK: &str = "Check whether windlass can be installed, or is installed and works";
const COMPLETION: &str =
    "Print a script by which a shell completes commands, flags, and names of the cluster";
const DESCRIBE: &str = "Describe an object: conditions, sources, what it applied, events";
const DIFF: &str =
    "Predict what the next reconciliation, a folder or a chart would change, by field";
const EVENTS: &str = "Print what happened to objects and their sources";
const EXPORT: &str = "Print objects as manifests";
const GET: &str = "Print objects of any kinds in one table";
const CRD: &str =
    "Show who uses a CustomResourceDefinition, and what another definition would do to its objects";
const HELMFILE: &str = "Print what a helmfile says and render its releases, as `helmfile` does";
const HISTORY: &str = "Print what was applied or released, and when";
const IMAGE: &str = "Show what automations of images would commit";
const INCIDENTS: &str = "List failures that are open, what they affect, and where they were sent";
const INSTALL: &str = "Install or upgrade windlass in a cluster";
const LOGS: &str = "Print what windlass logged about objects, or what their Pods print";
const MAN: &str = "Write the manual pages of all commands";
const MIGRATE: &str =
    "Take a cluster over from Flux, or give it back; convert objects of other tools";
const PLAN: &str = "Show what a change of a Git repository would change, without a cluster";
const RECONCILE: &str = "Reconcile objects now, and follow what happens";
const RESUME: &str = "Resume objects that are suspended";
const ROLLBACK: &str =
    "Roll a release back to an earlier revision, and suspend it; or take a change back as a whole";
const SERVE: &str = "Run the operator";
const SILENCE: &str = "Send nothing but the end of an incident for some time";
const STATS: &str = "Count objects that are ready, failing and suspended";
const SUSPEND: &str = "Suspend objects, with an owner, a reason and an end";
const TEMPLATE: &str = "Render the templates of a chart, as `helm template` does";
const TRACE: &str = "Trace an object of the cluster back to the revision that it comes from";
const TREE: &str = "Print what an object applied, down to Pods, with health";
const UI: &str = "Show objects on pages in a browser, on this machine only";
const UNINSTALL: &str = "Remove windlass from a cluster, and keep what it manages";
const VALUES: &str = "Print the values of a HelmRelease, and which source sets each";
const VERSION: &str = "Print the version of windlass, and those of what it reproduces";
const WHY: &str = "Explain why an object is not ready and how to fix it";

/// Parses the command line and runs the command.
pub fn run() -> std::process::ExitCode {
    // If a shell asks for completions, the process ends here.
    clap_complete::CompleteEnv::with_factory(command).var(completion_and_man::VARIABLE).complete();
    let line = flux_and_kubectl_syntax::understood(std::env::args_os().collect());
    let matches = command().try_get_matches_from(&line).map_err(CommandError::Usage);
    let code = match matches.and_then(|matches| run_named(&matches)) {
        Ok(code) => code,
        Err(CommandError::Usage(error)) => wrong_usage(&error, &line),
        Err(CommandError::Failure(error)) => report_failure(&error),
    };
    code.into()
}

/// Runs the command that the user named.
fn run_named(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    // clap accepts only lines with a declared command, so this never happens.
    let undeclared = || clap::Error::new(ErrorKind::InvalidSubcommand);
    let (name, given) = matches.subcommand().ok_or_else(undeclared)?;
    Ok(match name {
        "alerts" => alert_sample_event::run(&flags(given)?)?,
        "approve" => approve::run(&flags(given)?)?,
        "audit" => release_audits::run(&flags(given)?)?,
        "bootstrap" => bootstrap::run(&flags(given)?)?.into(),
        "build" => build::run(&mut flags(given)?)?,
        "bundle" => helmfile_bundle::run(&flags(given)?)?.into(),
        "bypass" => freeze_bypass::run(&flags(given)?)?,
        "changes" => source_change_results::run(&flags(given)?)?,
        "check" => check::run(&flags(given)?)?,
        "completion" => completion_and_man::complete(flags(given)?)?.into(),
        "crd" => crd::run(&flags(given)?)?,
        "describe" => describe::run(&flags(given)?)?,
        "diff" => diff::run(&flags(given)?)?,
        "events" => events::run(&flags(given)?)?,
        "export" => export::run(&flags(given)?)?,
        "get" => get::run(&flags(given)?)?,
        "helmfile" => helmfile::run(flags(given)?),
        "history" => history::run(&flags(given)?)?,
        "image" => image_plan::run(&flags(given)?)?,
        "incidents" => incidents::run(&flags(given)?)?,
        "install" => install::run(&flags(given)?)?.into(),
        "logs" => logs::run(&flags(given)?)?,
        "man" => completion_and_man::man(&flags(given)?, command())?.into(),
        "migrate" => migrate::run(&flags(given)?)?.into(),
        "plan" => plan::run(&flags(given)?)?,
        "reconcile" => reconcile::run(&flags(given)?)?,
        "resume" => resume::run(&flags(given)?)?,
        "rollback" => rollback::run(&flags(given)?)?,
        "serve" => serve::run(flags(given)?)?.into(),
        "silence" => silence::run(&flags(given)?)?,
        "stats" => stats::run(&flags(given)?)?,
        "suspend" => suspend::run(&flags(given)?)?,
        "template" => template::run(flags(given)?),
        "trace" => trace::run(&flags(given)?)?,
        "tree" => tree::run(&flags(given)?)?,
        "ui" => ui::run(&flags(given)?)?,
        "uninstall" => uninstall::run(&flags(given)?)?.into(),
        "values" => helm_release_values::run(&flags(given)?)?,
        "version" => version::run(flags(given)?)?.into(),
        "why" => why::run(&flags(given)?)?,
        _ => return Err(undeclared().into()),
    })
}

fn flags<F: FromArgMatches>(given: &ArgMatches) -> Result<F, clap::Error> {
    F::from_arg_matches(given)
}

/// Prints why a command failed, unless the reader of its output has closed it.
fn report_failure(error: &anyhow::Error) -> ExitCode {
    let code = ExitCode::of_failure(error);
    if code == ExitCode::Success {
        return code;
    }
    #[expect(
        clippy::print_stderr,
        reason = "the one place where a failed command is told to a person"
    )]
    {
        eprintln!("windlass: {}", plain(&format!("{error:#}")));
    }
    code
}

/// Prints what is wrong with a command line. For `template`, the text is Helm's, because scripts may expect it.
fn wrong_usage(error: &clap::Error, line: &[std::ffi::OsString]) -> ExitCode {
    let is_template = line.get(1).is_some_and(|command| command == "template");
    if error.use_stderr()
        && let Some(text) = flux_and_kubectl_syntax::answer(line)
    {
        #[expect(
            clippy::print_stderr,
            reason = "an invalid command line is reported on standard error"
        )]
        {
            eprintln!("windlass: {text}");
        }
        return ExitCode::Failed;
    }
    let Some(text) = is_template.then(|| template::explain_usage(error)).flatten() else {
        // A closed stream does not change the exit code.
        drop(error.print());
        return ExitCode::of_usage(error);
    };
    #[expect(
        clippy::print_stderr,
        reason = "an invalid command line is reported on standard error"
    )]
    {
        eprintln!("Error: {text}");
    }
    ExitCode::UpstreamError
}

/// The help of a command.
#[cfg(test)]
fn help(name: &str) -> String {
    let asked = command().try_get_matches_from(["windlass", name, "--help"]);
    asked.map_or_else(|error| error.to_string(), |_| String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_a_flag_of_the_program_alone() {
        let kind = |line: &[&str]| {
            let line = [&["windlass"], line].concat();
            command().try_get_matches_from(line).map_err(|error| error.kind()).err()
        };
        assert_eq!(kind(&["-V"]), Some(ErrorKind::DisplayVersion));
        let unknown = Some(ErrorKind::UnknownArgument);
        assert_eq!(kind(&["install", "--export", "--version", "v2"]), unknown);
        assert_eq!(kind(&["get", "-V"]), unknown);
    }

    #[test]
    fn flags_of_flux_and_kubectl_are_understood() {
        for line in [
            "windlass events --for Kustomization/app",
            "windlass trace web --kind Deployment --api-version apps/v1",
            "windlass export kustomization --all",
            "windlass version --client",
        ] {
            let refused = command().try_get_matches_from(line.split(' ')).err();
            assert_eq!(refused.map(|error| error.to_string()), None, "{line}");
        }
    }

    #[test]
    fn every_command_can_be_declared() {
        for name in command().get_subcommands().map(Command::get_name) {
            let asked = command().try_get_matches_from(["windlass", name, "--help"]);
            assert_eq!(asked.unwrap_err().kind(), ErrorKind::DisplayHelp, "{name}");
        }
    }
}
