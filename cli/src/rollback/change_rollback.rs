//! Rolls back a change. All members of the change go back to their previous revision.
//!
//! The operator pins each member. This command requests the rollback and prints the result.
//! Elsewhere: the request (`windlass_answers::actions::change_rollback`), carrying it out (`windlass_changes`), reading changes
//! (`windlass_answers::change_sets`).

use std::time::Duration;

use anyhow::ensure;
use crds::windlass_release::ChangeSet;
use kube_core::ResourceExt as _;
use windlass_answers::actions::change_rollback::ChangeRollbackRequest;
use windlass_answers::change_sets::{find, newer};
use windlass_answers::rolled_back_commit_warning;

use crate::command_scope::CommandScope;
use crate::kind_argument::{self, ResourceArgument};
use crate::source_change_results::details;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, clean};
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// How often the command reads an object for which it waits.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Whether an argument names a change.
pub(super) fn is_change(target: &ResourceArgument) -> bool {
    target.resource.gvk == resource::<ChangeSet>().gvk
}

/// Requests the rollback of a change, and waits until it is carried out.
///
/// # Errors
/// There is no such change, it is not the newest of its source, the user is a ServiceAccount, or the API server refuses.
pub(super) async fn roll_back(
    site: &CommandScope,
    target: &ResourceArgument,
    reason: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let change = read(site, target).await?;
    let namespace = site.namespace_of(target).to_owned();
    let place = CommandScope { cluster: site.cluster.clone(), namespace: namespace.clone() };
    cluster_operators::say_doubt(&site.cluster).await;
    let request = ChangeRollbackRequest { change: &change, reason, is_of_version: false };
    request.make(site).await?;
    let name = change.name_any();
    say(ProgressGlyph::Action, &clean(&format!("the rollback of change {name} is requested")));
    loop {
        let change = read(site, target).await?;
        // The verdict is not enough, because a member may have gone back by itself before.
        if change.status.as_ref().is_some_and(|it| it.rolled_back_at.is_some()) {
            return say_outcome(site, &change).await;
        }
        ensure!(
            change.status.as_ref().is_some_and(|it| it.rollback.is_some()),
            "the request for the rollback was withdrawn"
        );
        // A change that already had a verdict keeps it.
        let known = find(&place, "").await?.changes;
        ensure!(
            newer(&known, &change).is_none(),
            "the source moved on meanwhile: roll back the newest change, see `windlass changes -n {}`",
            clean(&namespace)
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn read(site: &CommandScope, target: &ResourceArgument) -> anyhow::Result<ChangeSet> {
    let object = kind_argument::read(site, target).await?;
    Ok(serde_json::from_value(object.into_value())?)
}

/// Prints the result of a rollback.
async fn say_outcome(site: &CommandScope, change: &ChangeSet) -> anyhow::Result<ExitCode> {
    let warning = rolled_back_commit_warning::of_change(site, change, &[]).await;
    print(&details(change, &[], warning.as_deref(), TerminalScreen::of_stdout()))?;
    let left = change.status.as_ref().map_or(0, |it| it.not_rolled_back.len());
    if left > 0 {
        let text = "some members were not rolled back: what is said of each is above";
        say(ProgressGlyph::Warning, text);
        return Ok(ExitCode::Failed);
    }
    say(
        ProgressGlyph::Success,
        "all Kustomizations of the change are pinned to what they had before: Ready is False with the reason Quarantined until the \
         source has a new revision, which is applied as usual",
    );
    Ok(ExitCode::Success)
}
