//! `windlass resume`: ends suspensions, and lifts Quarantines.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;

use anyhow::{bail, ensure};
use cause::object_references;
use clap::Args as ClapArgs;
use objects::Object;

use super::diff;
use super::helmfile_release_suspension;
use super::kind_argument::ResourceArgument;
use super::output::ReportFormat;
use super::reconcile::{self, AwaitedReconciliation, FollowedObject};
use super::render::BuildableKind;
use super::suspend::{ObjectSelectionArgs, each, to_change};
use windlass_answers::actions::MANAGER;
use windlass_answers::actions::suspension::{self, is_suspended};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, agrees, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::quarantine_lift::{self, QuarantineLiftRequest};
use windlass_cli_runtime::table::clean;
use windlass_cli_runtime::trailing_serve_flags;
use windlass_serve::settings::OperatorSettings;

/// The flags of `windlass resume`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    chosen: ObjectSelectionArgs,
    /// Reason, kept in the audit
    #[arg(long, value_name = "TEXT", conflicts_with = "release")]
    reason: Option<String>,
    /// Lift the Quarantine of this revision, so that it is applied again; suspensions stay
    #[arg(long, value_name = "REV", conflicts_with_all = ["release", "plan", "wait"])]
    revision: Option<String>,
    /// Wait until each is reconciled
    #[arg(long)]
    wait: bool,
    /// First print what would change, as `windlass diff` does, and ask
    #[arg(long, conflicts_with = "release")]
    plan: bool,
    /// Ask nothing after --plan
    #[arg(short, long, requires = "plan")]
    silent: bool,
    /// Flags with which `windlass serve` runs in the cluster, for --plan; by default none
    #[arg(last = true, value_name = "FLAG", requires = "plan")]
    flags: Vec<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass resume ks/app -n apps --wait
  windlass resume hr/web -n apps --plan         what would change; then it asks
  windlass resume appliers --all -A -l team=web
  windlass resume helmfile/all -n apps --release db
  windlass resume ks/shop -n shop --revision 5f0c9d0 --reason \"the database is back\"

--revision names a revision that failed and is quarantined, in full or by the beginning of its commit, or the Quarantine itself:
`windlass get quarantines`. It requires the verb `lift` on the Quarantine, and rights to list Quarantines and to patch their
status. ServiceAccounts cannot.

--plan compares with the artifact that the source has now; what the next artifact of a source brings is not known. Without
a terminal, it resumes nothing unless --silent is given; `windlass diff --help` says what is not predicted.

Exit status: 0; 1 if --plan found changes and nothing was resumed; 2 if an object was not resumed, cannot be predicted, or
is not ready with --wait; 3 if the cluster cannot be reached.";

/// Resumes objects.
///
/// # Errors
/// Something is wrong, and no object was resumed.
pub(super) fn run(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    if let Some(revision) = &args.revision {
        return lift(args, revision);
    }
    if args.plan {
        let found = plan(args)?;
        if found == ExitCode::Failed {
            bail!("nothing was resumed");
        }
        if !args.silent {
            if !std::io::stdin().is_terminal() {
                say(ProgressGlyph::Action, "nothing was resumed; --silent resumes without asking");
                return Ok(found);
            }
            ensure!(agrees("Resume?")?, "nothing was resumed");
        }
    }
    resume(args)
}

/// Prints the predicted changes. Returns the exit code, which says whether there are any.
fn plan(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    let settings = trailing_serve_flags::settings(&args.flags)?;
    let found = Cell::new(ExitCode::Success);
    let ended = args.chosen.scope.place.run(async |site| {
        each(&site, &args.chosen, async |_, object| {
            let subject = clean(&object.id().subject());
            if !is_suspended(object) {
                let text = format!(
                    "{subject} is not suspended; `windlass diff` predicts its next reconciliation"
                );
                say(ProgressGlyph::Action, &text);
                return Ok(());
            }
            if BuildableKind::of(object).is_err() {
                let text =
                    format!("{subject}: it is not known what its next reconciliation changes");
                say(ProgressGlyph::Warning, &text);
                return Ok(());
            }
            let settings: OperatorSettings = settings.clone();
            let difference = diff::predict(&site, object.clone(), None, settings).await?;
            print(&format!("{subject}:\n"))?;
            // For the exit code, a failure counts more than a change.
            found.set(found.get().max(diff::tell(&difference, ReportFormat::Text)?));
            Ok(())
        })
        .await
    })?;
    Ok(found.get().max(ended))
}

/// Lifts the Quarantines of a revision.
fn lift(args: &ResumeArgs, revision: &str) -> anyhow::Result<ExitCode> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    args.chosen.scope.place.run(async |site| {
        each(&site, &args.chosen, async |_, object| {
            let reason = args.reason.as_deref();
            let request =
                QuarantineLiftRequest { object, revision, reason, now: &now, manager: MANAGER };
            let full = quarantine_lift::lift(&site.cluster, &request).await?;
            let subject = object.id().subject();
            let text = format!("revision {full} of {subject} may be applied again");
            say(ProgressGlyph::Success, &clean(&text));
            Ok(())
        })
        .await
    })
}

fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    args.chosen.scope.place.run(async |site| {
        // With `--wait`, the command reports each object that does not react.
        if !args.wait {
            cluster_operators::say_doubt(&site.cluster).await;
        }
        // The command follows the objects after all are resumed, because one may depend on another.
        let runs: RefCell<Vec<FollowedObject>> = RefCell::new(Vec::new());
        let follow = |target: &ResourceArgument, object: Object| {
            if args.wait && !object_references::has_no_runs(&object) {
                let awaited = AwaitedReconciliation::Generation;
                let target = target.clone();
                let run =
                    FollowedObject { target, object, awaited, release: None, with_source: false };
                runs.borrow_mut().push(run);
            }
        };
        let ended = each(&site, &args.chosen, async |target, object| {
            let subject = clean(&object.id().subject());
            if let Some(name) = &args.chosen.release {
                let row = helmfile_release_suspension::named(object, name)?;
                let release = clean(&helmfile_release_suspension::full_name(&row));
                let changed =
                    helmfile_release_suspension::resume(&site, target, object, &row).await?;
                let effect = if changed.is_some() {
                    "is resumed"
                } else {
                    "is not listed in spec.suspendedReleases"
                };
                say(ProgressGlyph::Success, &format!("release {release} of {subject} {effect}"));
                if let Some(changed) = changed {
                    follow(target, changed);
                }
                return Ok(());
            }
            if !is_suspended(object) {
                say(ProgressGlyph::Success, &format!("{subject} is not suspended"));
                return Ok(());
            }
            let of = to_change(&site, target, object);
            let changed = suspension::resume(&of, args.reason.as_deref()).await?;
            say(ProgressGlyph::Success, &format!("{subject} is resumed"));
            follow(target, changed);
            Ok(())
        });
        let ended = ended.await?;
        let all_ready = reconcile::follow(&site, &runs.into_inner()).await?;
        Ok(if all_ready { ended } else { ExitCode::Failed })
    })
}
