//! `windlass resume`: ends suspensions.

use std::process::ExitCode;

use ::reconcile::{SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL};
use cause::related;
use clap::Args as ClapArgs;
use serde_json::json;

use super::connection::{Mark, say};
use super::reconcile::{self, Awaited};
use super::row::Row;
use super::suspend::{Chosen, change, each};
use super::table::clean;

/// The flags of `windlass resume`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Wait until each is reconciled
    #[arg(long)]
    wait: bool,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass resume ks/app -n apps --wait
  windlass resume appliers --all -A -l team=web

Exit status: 0; 2 if an object was not resumed, or is not ready with --wait; 3 if the cluster cannot be reached.";

/// Resumes objects.
///
/// # Errors
/// Nothing is resumed, because something is wrong.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let annotations = json!({SUSPENDED_BY: null, SUSPENDED_REASON: null, SUSPENDED_UNTIL: null});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": false}});
    args.chosen.scope.place.run(async |site| {
        each(&site, &args.chosen, async |target, object| {
            let subject = clean(&object.id().subject());
            let is_switched_on = object.get("spec").is_none_or(|spec| spec["suspend"] != true);
            let is_free = is_switched_on && cause::hold(object).is_none();
            if is_free && !Row::of(object, jiff::Timestamp::now()).is_suspended() {
                say(Mark::Success, &format!("{subject} is not suspended"));
                return Ok(());
            }
            let changed = change(&site, target, object, &patch).await?;
            say(Mark::Success, &format!("{subject} is resumed"));
            match args.wait && !related::has_no_runs(&changed) {
                true => reconcile::await_run(&site, target, &changed, Awaited::Generation).await,
                false => Ok(()),
            }
        })
        .await
    })
}
