//! `windlass rollback`: rolls a release back to an earlier revision, and keeps it there until it is resumed. It can also roll
//! back a change of a source (`rollback/change_rollback.rs`).
//!
//! The operator carries out the rollback, including hooks, waiting and audit. This command suspends the object and requests the
//! rollback with an annotation, in a single write.
//! So an operator that is not running does the rollback when it is back.
//! Below: what to commit (`rollback/commit_advice.rs`). Elsewhere: the annotation (`reconcile::ReleaseRollback`), one release
//! of a Helmfile (`helmfile_release_suspension.rs`).

mod change_rollback;
mod commit_advice;

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cause::condition;
use clap::Args as ClapArgs;
use objects::{Gvk, Object};
use reconcile::{
    ROLLBACK, ReleaseHistoryRevision, ReleaseRollback, ReleaseRollbackProgress, SUSPENDED_BY,
    SUSPENDED_REASON, SUSPENDED_UNTIL,
};
use serde_json::{Value, json};

use super::command_scope::{ClusterScope, CommandScope};
use super::helmfile_release_suspension::HelmfileReleaseSuspension;
use super::kind_argument::{self, ResourceArgument};
use super::operator_reaction_wait::OperatorReactionWait;
use super::suspend::{by, change};
use super::{complete, helmfile_release_suspension};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The flags of `windlass rollback`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct RollbackArgs {
    /// A HelmRelease, a Helmfile, or a change of a source: change/NAME
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Revision of the release, as `windlass history` prints it; by default the last one before that did not fail
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    to: Option<i64>,
    /// Release of a Helmfile: NAME, NAMESPACE/NAME or KUBECONTEXT/NAMESPACE/NAME
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Reason, shown to others
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who rolls back; by default the user of the kubeconfig
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass history hr/web -n apps               which revisions there are
  windlass rollback hr/web -n apps --reason incident-1234
  windlass rollback hr/web -n apps --to 3
  windlass rollback helmfile/all -n apps --release db --to 3
  windlass rollback change/fleet-17-1a2b3c4d -n flux-system --reason incident-1234

A release is suspended, too: otherwise the next reconciliation would undo the rollback. Afterwards, commit what the command
prints, then run windlass resume. What is requested while windlass does not run is carried out when it runs.

A change goes back as a whole: each Kustomization of the source in its namespace is pinned to what it had before, by a
Quarantine, until the source moves on or `windlass resume KIND/NAME --revision REV` lifts that. What they applied follows. It
requires the verb `rollback` on the ChangeSet, and the right to patch its status. ServiceAccounts cannot.

Exit status: 0; 2 if the release or a member of the change was not rolled back; 3 if the cluster cannot be reached.";

/// Parses a revision, with or without the `v` that tables print.
fn revision(text: &str) -> Result<i64, String> {
    let number = text.strip_prefix('v').unwrap_or(text).parse().ok();
    number.filter(|it| *it > 0).ok_or_else(|| format!("`{text}` is not a revision, such as 3"))
}

/// How often the command reads an object for which it waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A release, according to the status of its owner.
struct ReleaseToRollBack {
    owner: Object,
    /// The status row of the release, if the owner is a Helmfile.
    row: Option<Value>,
}

/// The user who requests a rollback, and the reason.
struct RollbackRequester {
    owner: String,
    reason: Option<String>,
}

/// The result of a requested rollback.
enum RollbackOutcome {
    Made(Box<CompletedRollback>),
    /// The rollback cannot begin. Contains the operator's reason.
    Refused(String),
    /// The request no longer exists, for example after the object was resumed.
    Withdrawn,
}

/// The result of a rollback.
struct CompletedRollback {
    /// The release after the rollback.
    done: ReleaseToRollBack,
    /// The new revision, as in the history.
    made: Value,
    /// The last request.
    asked: ReleaseRollback,
}

/// Rolls back.
///
/// # Errors
/// There is no such release or revision, or the rollback failed.
pub(super) fn run(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    // The message if the command ends after the suspension but without a successful rollback.
    let suspended: RefCell<Option<String>> = RefCell::new(None);
    let ended = args.place.run(async |site| roll_back(&site, args, &suspended).await);
    if !matches!(ended, Ok(ExitCode::Success))
        && let Some(text) = suspended.into_inner()
    {
        say(ProgressGlyph::Warning, &text);
    }
    ended
}

async fn roll_back(
    site: &CommandScope,
    args: &RollbackArgs,
    suspended: &RefCell<Option<String>>,
) -> anyhow::Result<ExitCode> {
    let target = kind_argument::one(&site.cluster, &args.what).await?;
    if change_rollback::is_change(&target) {
        ensure!(
            args.to.is_none() && args.release.is_none() && args.owner.is_none(),
            "--to, --release and --owner are for releases: a change goes back to what there was before, in the name of the user"
        );
        return change_rollback::roll_back(site, &target, args.reason.as_deref()).await;
    }
    let owner = match &args.owner {
        Some(owner) => owner.clone(),
        None => site.cluster.own_name().await.context("name who rolls back with --owner")?,
    };
    let found = read(site, &target, args.release.as_deref()).await?;
    // A rollback that is impossible is refused before anything is suspended.
    let asked = wanted(&found, args.to)?;
    let newest = newest_stored(site, &found, asked.to).await?;
    // The status lists the revision of an operation only after the operation has ended.
    let asked =
        ReleaseRollback { from: newest.map_or(asked.from, |it| it.max(asked.from)), ..asked };
    let requester = RollbackRequester { owner, reason: args.reason.clone() };
    request(site, &target, &found, asked, &requester).await?;
    let subject = clean(&found.owner.id().subject());
    let title = found.title();
    let resumption = found.resumption();
    let stays = format!("{title} stays suspended until `{resumption}`");
    *suspended.borrow_mut() = Some(clean(&format!("{stays}; {}", found.unfinished())));
    say(ProgressGlyph::Success, &clean(&format!("{title} is suspended")));
    say_requested(&subject, asked);
    let outcome = outcome(site, &target, &found, asked).await?;
    *suspended.borrow_mut() = Some(clean(&stays));
    let CompletedRollback { done, made, asked } = match outcome {
        RollbackOutcome::Made(revision) => *revision,
        RollbackOutcome::Refused(why) => bail!("{}", clean(&why)),
        RollbackOutcome::Withdrawn => {
            *suspended.borrow_mut() = None;
            bail!("the request for the rollback was withdrawn, so that {title} is not rolled back");
        }
    };
    let version = &made["version"];
    if made["status"] != "deployed" {
        let why = done.message().unwrap_or_else(|| "the status does not say why".to_owned());
        let text = format!("{subject}: revision {version}, the rollback, failed: {why}");
        say(ProgressGlyph::Failure, &clean(&text));
        return Ok(ExitCode::Failed);
    }
    let text = format!("{subject}: revision {version} has the contents of revision {}", asked.to);
    say(ProgressGlyph::Success, &text);
    let known = commit_advice::known(site, &found, asked).await;
    let text = commit_advice::advice(&done, &made, &found, asked, &known);
    print(&clean_lines(&text))?;
    Ok(ExitCode::Success)
}

fn say_requested(subject: &str, asked: ReleaseRollback) {
    let ReleaseRollback { from, to } = asked;
    let text = format!("{subject}: the rollback from revision {from} to {to} is requested");
    say(ProgressGlyph::Action, &text);
}

/// Removes control characters from every line.
fn clean_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", clean(line))).collect()
}

impl ReleaseToRollBack {
    /// The full name of the release among several releases of its owner. `None` if the owner has only one release.
    fn release(&self) -> Option<String> {
        self.row.as_ref().map(helmfile_release_suspension::full_name)
    }

    fn title(&self) -> String {
        let subject = self.owner.id().subject();
        self.release().map_or_else(|| subject.clone(), |it| format!("release {it} of {subject}"))
    }

    /// The object and its namespace, as command arguments.
    fn arguments(&self) -> String {
        let id = self.owner.id();
        format!("{}/{} -n {}", id.kind.to_lowercase(), id.name, id.namespace)
    }

    /// The command that resumes the object.
    fn resumption(&self) -> String {
        let release = self.release().map(|it| format!(" --release {it}")).unwrap_or_default();
        format!("windlass resume {}{release}", self.arguments())
    }

    /// The message about a requested rollback whose end the command did not see.
    fn unfinished(&self) -> String {
        let arguments = self.arguments();
        let command = match self.release() {
            Some(release) => format!("windlass history {arguments} --release {release}"),
            None => format!("windlass why {arguments}"),
        };
        format!(
            "the rollback is requested and not yet done: windlass carries it out when it runs, unless the release is resumed \
             before, and `{command}` shows whether it is done"
        )
    }

    /// The status of the release.
    fn status(&self) -> Value {
        let row = self.row.as_ref().map(|row| row["status"].clone());
        row.or_else(|| self.owner.get("status").cloned()).unwrap_or_default()
    }

    /// Whether the release is in another cluster.
    fn is_remote(&self) -> bool {
        let context = self.row.as_ref().and_then(|row| row["kubeContext"].as_str());
        cause::object_references::is_elsewhere(&self.owner)
            || context.is_some_and(|it| !it.is_empty())
    }

    /// The revisions in the status, the newest first.
    fn history(&self) -> Vec<Value> {
        let mut all = self.status()["history"].as_array().cloned().unwrap_or_default();
        all.sort_by_key(|it| std::cmp::Reverse(it["version"].as_i64()));
        all
    }

    /// The entry of a revision in the release's history. `None` if the status does not contain that revision.
    fn revision(&self, version: i64) -> Option<Value> {
        self.history().into_iter().find(|it| it["version"].as_i64() == Some(version))
    }

    /// The progress of a rollback.
    fn progress(&self, asked: ReleaseRollback) -> ReleaseRollbackProgress {
        asked.progress(ReleaseHistoryRevision::listed(self.status().get("history")))
    }

    /// The condition that says that a rollback failed or cannot begin. `None` if no rollback failed.
    fn failure(&self) -> Option<Value> {
        remediated(&self.status()).filter(|it| it["reason"] == "RollbackFailed")
    }

    /// Whether no operation is running.
    fn is_idle(&self) -> bool {
        match &self.row {
            Some(row) => row["state"] == "Suspended",
            None => condition(&self.owner, "Reconciling").is_none_or(|it| it.status != "True"),
        }
    }

    /// The message of the status about the release. `None` if the status has no message.
    fn message(&self) -> Option<String> {
        let text = match &self.row {
            Some(row) => {
                let said = remediated(&row["status"]);
                let said = said.and_then(|it| it["message"].as_str().map(str::to_owned));
                said.or_else(|| row["message"].as_str().map(str::to_owned))
            }
            None => condition(&self.owner, "Ready").map(|it| it.message.to_owned()),
        };
        text.filter(|text| !text.is_empty())
    }
}

/// The condition `Remediated` in a status, which says how a rollback ended. `None` if there is no such condition.
fn remediated(status: &Value) -> Option<Value> {
    let all = status["conditions"].as_array()?;
    all.iter().find(|it| it["type"] == "Remediated").cloned()
}

async fn read(
    site: &CommandScope,
    target: &ResourceArgument,
    name: Option<&str>,
) -> anyhow::Result<ReleaseToRollBack> {
    let owner = kind_argument::read(site, target).await?;
    let row = match (owner.kind(), name) {
        ("HelmRelease", None) => None,
        ("Helmfile", Some(name)) => Some(helmfile_release_suspension::named(&owner, name)?),
        ("Helmfile", None) => {
            let rows = owner.get("status").and_then(|it| it["releases"].as_array()).cloned();
            let rows = rows.unwrap_or_default();
            let row = helmfile_release_suspension::row(&owner, &rows, None)?;
            Some(row.context("it has no release yet")?.clone())
        }
        ("HelmRelease", Some(_)) => bail!("--release names a release of a Helmfile"),
        (kind, _) => {
            bail!("objects of kind {kind} have no releases: name a HelmRelease or a Helmfile")
        }
    };
    Ok(ReleaseToRollBack { owner, row })
}

/// The revision before the rollback, and the revision to roll back to.
fn wanted(found: &ReleaseToRollBack, to: Option<i64>) -> anyhow::Result<ReleaseRollback> {
    let history = found.history();
    let newest = history.first().and_then(|it| it["version"].as_i64());
    let from = newest.with_context(|| format!("{} was not released yet", found.title()))?;
    ensure!(from > 1, "{} has no revision before {from}", found.title());
    let to = match to {
        Some(to) => to,
        None => {
            let is_good =
                |it: &&Value| matches!(it["status"].as_str(), Some("deployed" | "superseded"));
            let good = history.iter().skip(1).find(is_good).and_then(|it| it["version"].as_i64());
            good.with_context(|| {
                format!("the status of {} names no earlier revision that did not fail: name one with --to", found.title())
            })?
        }
    };
    ensure!(to < from, "revision {to} is not before the newest one, {from}");
    Ok(ReleaseRollback { from, to })
}

/// The revisions of Helm's release records, read from their labels. The records themselves may be large.
async fn stored_revisions(
    cluster: &ClusterConnection,
    namespace: &str,
    selector: &str,
) -> Result<Vec<i64>, ClusterError> {
    let secrets = cluster.resource(&Gvk::new("v1", "Secret")).await?;
    let mut pages = cluster.metadata_pages(&secrets, namespace, selector)?;
    let mut stored = Vec::new();
    while let Some(page) = pages.next().await? {
        let versions = page.iter().filter_map(|DepthPrunedObject(it)| {
            it["metadata"]["labels"]["version"].as_str()?.parse::<i64>().ok()
        });
        stored.extend(versions);
    }
    Ok(stored)
}

/// The newest revision among Helm's release records, if the user may read them.
///
/// # Errors
/// The requested revision has no record. The error names the existing ones.
async fn newest_stored(
    site: &CommandScope,
    found: &ReleaseToRollBack,
    to: i64,
) -> anyhow::Result<Option<i64>> {
    let status = found.status();
    let history = found.history();
    let place =
        status["storageNamespace"].as_str().zip(history.first().and_then(|it| it["name"].as_str()));
    let Some((namespace, name)) = place.filter(|_| !found.is_remote()) else { return Ok(None) };
    let selector = format!("owner=helm,name={name}");
    // The operator reads the records in any case.
    let stored = stored_revisions(&site.cluster, namespace, &selector).await;
    let Ok(mut stored) = stored else { return Ok(None) };
    stored.sort_unstable();
    let all: Vec<String> = stored.iter().map(i64::to_string).collect();
    ensure!(
        stored.contains(&to),
        "Helm has no revision {to} of release {namespace}/{name}: it has {}",
        all.join(", ")
    );
    Ok(stored.last().copied())
}

/// Suspends a release and requests its rollback, in a single write.
async fn request(
    site: &CommandScope,
    target: &ResourceArgument,
    found: &ReleaseToRollBack,
    asked: ReleaseRollback,
    requester: &RollbackRequester,
) -> anyhow::Result<()> {
    let RollbackRequester { owner, reason } = requester;
    // The suspension is visible from now on, whether the rollback succeeds or not.
    let reason = match reason {
        Some(reason) => format!("{}: {reason}", asked.suspension_reason()),
        None => asked.suspension_reason(),
    };
    let annotation = asked.annotation(found.release().as_deref());
    if let Some(row) = &found.row {
        let reason = by(owner, Some(reason.as_str()));
        let rollback = Some(annotation.as_str());
        let suspension = HelmfileReleaseSuspension { reason: &reason, until: None, rollback };
        return helmfile_release_suspension::suspend(site, target, &found.owner, row, &suspension)
            .await
            .map(drop);
    }
    let annotations = json!({SUSPENDED_BY: owner, SUSPENDED_REASON: reason, SUSPENDED_UNTIL: null,
        ROLLBACK: annotation});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": true}});
    change(site, target, &found.owner, &patch).await.map(drop)
}

/// Waits until the status contains the revision that the rollback made. A running operation may have made another revision
/// first. In that case, the rollback is requested again, starting from that revision.
///
/// # Errors
/// The release cannot be read or changed.
async fn outcome(
    site: &CommandScope,
    target: &ResourceArgument,
    before: &ReleaseToRollBack,
    first: ReleaseRollback,
) -> anyhow::Result<RollbackOutcome> {
    let name = before.release();
    let failure = before.failure();
    let mut asked = first;
    let mut patience = OperatorReactionWait::with(&before.owner);
    loop {
        let found = read(site, target, name.as_deref()).await?;
        patience.look(&site.cluster, &found.owner).await;
        if found.is_idle() {
            let annotation = asked.annotation(name.as_deref());
            let is_requested = found.owner.annotation(ROLLBACK) == Some(annotation.as_str());
            match found.progress(asked) {
                ReleaseRollbackProgress::Succeeded | ReleaseRollbackProgress::Failed => {
                    let made = found.revision(asked.from.saturating_add(1)).unwrap_or_default();
                    let revision = CompletedRollback { done: found, made, asked };
                    return Ok(RollbackOutcome::Made(Box::new(revision)));
                }
                _ if !is_requested => return Ok(RollbackOutcome::Withdrawn),
                // After a further request, the status may still describe the first one.
                ReleaseRollbackProgress::Requested if asked != first => {}
                ReleaseRollbackProgress::Requested => {
                    let said = found.failure().filter(|it| Some(it) != failure.as_ref());
                    if let Some(why) = said.as_ref().and_then(|it| it["message"].as_str()) {
                        return Ok(RollbackOutcome::Refused(why.to_owned()));
                    }
                }
                ReleaseRollbackProgress::Overtaken | ReleaseRollbackProgress::Unknown => {
                    asked = wanted(&found, Some(asked.to))?;
                    let annotation = asked.annotation(name.as_deref());
                    let patch = json!({"metadata": {"annotations": {ROLLBACK: annotation}}});
                    change(site, target, &found.owner, &patch).await?;
                    say_requested(&clean(&found.owner.id().subject()), asked);
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn revision(version: i64, status: &str, chart: &str, values: &str) -> Value {
        json!({"version": version, "status": status, "chartName": "shop", "chartVersion": chart,
            "configDigest": values, "name": "web", "namespace": "apps"})
    }

    pub(super) fn release(spec: &Value, history: &[Value]) -> ReleaseToRollBack {
        let owner = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps"}, "spec": spec,
            "status": {"history": history, "storageNamespace": "apps"}});
        ReleaseToRollBack { owner: Object::new(owner).unwrap(), row: None }
    }

    #[test]
    fn what_was_requested_and_not_awaited_is_not_reported_as_done() {
        let found = release(&json!({}), &[revision(5, "deployed", "2.0.0", "b")]);
        assert_eq!(
            found.unfinished(),
            "the rollback is requested and not yet done: windlass carries it out when it runs, unless the release is resumed \
             before, and `windlass why helmrelease/web -n apps` shows whether it is done"
        );
        assert_eq!(found.resumption(), "windlass resume helmrelease/web -n apps");
        let asked = ReleaseRollback { from: 5, to: 4 };
        assert_eq!(found.progress(asked), ReleaseRollbackProgress::Requested);
        let mut made = revision(6, "deployed", "1.0.0", "a");
        made["action"] = json!("rollback");
        let done = release(&json!({}), &[made]);
        assert_eq!(done.progress(asked), ReleaseRollbackProgress::Succeeded);
    }

    #[test]
    fn the_revision_before_is_the_last_one_that_did_not_fail() {
        let history = [
            revision(5, "failed", "2.0.0", "b"),
            revision(4, "failed", "1.0.0", "a"),
            revision(3, "superseded", "1.0.0", "a"),
        ];
        let found = release(&json!({}), &history);
        assert_eq!(wanted(&found, None).unwrap(), ReleaseRollback { from: 5, to: 3 });
        assert_eq!(wanted(&found, Some(4)).unwrap(), ReleaseRollback { from: 5, to: 4 });
        assert!(wanted(&found, Some(5)).unwrap_err().to_string().contains("not before the newest"));
        let first = release(&json!({}), &[revision(1, "deployed", "1.0.0", "a")]);
        assert!(wanted(&first, None).unwrap_err().to_string().contains("no revision before 1"));
        assert_eq!(super::revision("v3"), Ok(3));
        assert!(super::revision("v0").is_err() && super::revision("-1").is_err());
        let only = release(&json!({}), &history[..1]);
        assert!(wanted(&only, None).unwrap_err().to_string().contains("name one with --to"));
        let none = release(&json!({}), &[]);
        assert!(wanted(&none, None).unwrap_err().to_string().contains("was not released yet"));
    }
}
