//! The rollback of a change: all its members go back to what they had before.
//!
//! The operator pins each of them; this command asks for it in the status of the ChangeSet, in the name of the user, which the
//! policy that comes with windlass compares (`deploy/policies/change-sets.yaml`), and shows what became of it.
//! Elsewhere: carrying it out (`windlass_changes`), what a change is (`windlass_answers::changes`).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use crds::release::ChangeSet;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};
use windlass_answers::changes::{find, newer};

use crate::changes::details;
use crate::command_scope::CommandScope;
use crate::kind_argument::{self, ResourceArgument};
use crate::suspend::MANAGER;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, clean};
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// Users with this prefix are ServiceAccounts, which roll back nothing.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// How often is read what is waited for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a target is a change.
pub(super) fn is_change(target: &ResourceArgument) -> bool {
    target.resource.gvk == resource::<ChangeSet>().gvk
}

/// Asks for the rollback of a change, and waits until it is carried out.
///
/// # Errors
/// There is no such change, it is not the newest of its source, the user is a ServiceAccount, or the API server refuses.
pub(super) async fn roll_back(
    site: &CommandScope,
    target: &ResourceArgument,
    reason: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let user = site.cluster.own_name().await.context("cannot tell who rolls back")?;
    ensure!(!user.is_empty(), "the API server does not name this user");
    ensure!(
        !user.starts_with(SERVICE_ACCOUNT_PREFIX),
        "{user} is a ServiceAccount, which cannot roll back a change"
    );
    let change = read(site, target).await?;
    let namespace = site.namespace_of(target).to_owned();
    let place = CommandScope { cluster: site.cluster.clone(), namespace: namespace.clone() };
    check(&change, &find(&place, "").await?.changes)?;
    cluster_operators::say_doubt(&site.cluster).await;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = patch(&change, &user, &now, reason);
    let name = change.name_any();
    let resource = resource::<ChangeSet>();
    site.cluster.merge_patch_status(&resource, &namespace, &name, &patch, MANAGER).await?;
    say(ProgressGlyph::Action, &clean(&format!("the rollback of change {name} is requested")));
    loop {
        let change = read(site, target).await?;
        // The verdict does not say it: a member may have gone back by itself before.
        if change.status.as_ref().is_some_and(|it| it.rolled_back_at.is_some()) {
            return say_outcome(&change);
        }
        ensure!(
            change.status.as_ref().is_some_and(|it| it.rollback.is_some()),
            "the request for the rollback was withdrawn"
        );
        // A change that had a verdict keeps it then.
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

/// Checks that a change can be rolled back. `known` are those of its namespace.
fn check(change: &ChangeSet, known: &[ChangeSet]) -> anyhow::Result<()> {
    let name = change.name_any();
    if let Some(newer) = newer(known, change) {
        anyhow::bail!(
            "{} is newer than change {} of the same source, and applied: roll that back, or push what you want",
            clean(&newer.name_any()),
            clean(&name)
        );
    }
    let status = change.status.as_ref();
    ensure!(status.is_some(), "change {} has just begun: try again", clean(&name));
    let asked = status.and_then(|it| it.rollback.as_ref());
    if let Some(asked) = asked {
        anyhow::bail!(
            "{} has asked for the rollback of change {} already",
            clean(&asked.user),
            clean(&name)
        );
    }
    Ok(())
}

/// What is written, only to the object that was read.
fn patch(change: &ChangeSet, user: &str, now: &str, reason: Option<&str>) -> Value {
    let mut rollback = json!({"user": user, "at": now});
    if let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) {
        rollback["reason"] = reason.into();
    }
    json!({"metadata": {"uid": change.uid()}, "status": {"rollback": rollback}})
}

/// Says what became of a rollback.
fn say_outcome(change: &ChangeSet) -> anyhow::Result<ExitCode> {
    print(&details(change, &[], TerminalScreen::of_stdout()))?;
    let left = change.status.as_ref().map_or(0, |it| it.not_rolled_back.len());
    if left > 0 {
        let text = "some members were not rolled back: what is said of each is above";
        say(ProgressGlyph::Warning, text);
        return Ok(ExitCode::Failed);
    }
    say(
        ProgressGlyph::Success,
        "all Kustomizations of the change are pinned to what they had before, until the source moves on",
    );
    Ok(ExitCode::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, sequence: i64, status: &Value) -> ChangeSet {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop", "uid": "c"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:1", "digest": "d", "sequence": sequence},
            "status": status}))
        .unwrap()
    }

    #[test]
    fn only_the_newest_change_of_a_source_is_rolled_back_and_once() {
        let old = change("a", 1, &json!({"verdict": "Failed"}));
        let new = change("b", 2, &json!({"verdict": "Failed"}));
        let known = [new.clone(), old.clone()];
        assert!(check(&new, &known).is_ok());
        let text = check(&old, &known).unwrap_err().to_string();
        assert!(text.contains("b is newer than change a"), "{text}");
        let asked = change("b", 2, &json!({"rollback": {"user": "bob"}}));
        let text = check(&asked, &known).unwrap_err().to_string();
        assert!(text.starts_with("bob has asked for the rollback"), "{text}");
    }

    #[test]
    fn the_request_names_the_user_and_the_object() {
        let patch = patch(&change("b", 2, &json!({})), "alice", "2026-11-30T09:00:00Z", Some(" "));
        let expected = json!({"metadata": {"uid": "c"},
            "status": {"rollback": {"user": "alice", "at": "2026-11-30T09:00:00Z"}}});
        assert_eq!(patch, expected);
    }
}
