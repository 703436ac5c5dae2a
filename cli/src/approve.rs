//! `windlass approve`: approves or rejects an operation, a Plan or deletions that wait for approval.
//!
//! The API server decides who may approve. The request contains the user's name, and the included admission policy verifies
//! that name.
//! Here: finding the LifecycleEvent. Below: finding the Plan (`plan_approval`). Elsewhere: writing the answer
//! (`windlass_answers::actions`), the effect of approvals (engine `lifecycle`).

mod plan_approval;

use anyhow::{Context as _, bail, ensure};
use clap::Args as ClapArgs;
use crds::operation_lifecycle::LifecycleEvent;
use kube_core::ResourceExt;

use super::command_scope::{ClusterScope, CommandScope, say_left_out};
use super::kind_argument::{self, ResourceArgument};
use windlass_answers::actions::ApprovalAnswer;
use windlass_answers::actions::lifecycle_approval::{answer, check, is_open};
use windlass_answers::command_scope::is_absent_kind;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_runtime::lifecycle::watched_object_cache::{WatchCachedKind, resource};

/// How many times an approval is tried if the event changes at the same moment.
const MAX_APPROVAL_ATTEMPTS: usize = 5;

/// The flags of `windlass approve`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ApproveArgs {
    /// Name of a LifecycleEvent, plan/NAME of a Plan, or KIND/NAME of the object that is held
    #[arg(value_name = "EVENT|plan/NAME|KIND/NAME")]
    what: String,
    #[command(flatten)]
    place: ClusterScope,
    /// Reason, which the audit of an operation has as well
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    comment: String,
    /// Object of the Plan to leave in the cluster and give up; may be repeated
    #[arg(long, value_name = "KIND/NAMESPACE/NAME", conflicts_with = "reject")]
    keep: Vec<String>,
    /// Reject: the operation fails, or nothing of the Plan is carried out
    #[arg(long)]
    reject: bool,
}

impl ApproveArgs {
    fn answer(&self) -> ApprovalAnswer<'_> {
        ApprovalAnswer { comment: &self.comment, keep: &self.keep, is_rejection: self.reject }
    }
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass approve hr/shop -n shop --comment \"tested in staging\"
  windlass approve shop-preupgrade-4b1f0c27a9d35e68 -n shop
  windlass approve hr/shop -n shop --reject --comment \"not before Monday\"
  windlass approve ks/apps -n shop --comment \"the shop moves\"
  windlass approve plan/shop-4b1f0c27a9d35e68 -n shop
  windlass approve plan/shop-4b1f0c27a9d35e68 -n shop --keep StatefulSet/shop/db
  windlass approve plan/shop-4b1f0c27a9d35e68 -n shop --reject --comment \"the database is still in use\"

`windlass get lifecycleevents -A` and `windlass get plans -A` show what waits, `windlass plan show` what a Plan would do. Approving requires the verb `approve` on the Lifecycle, and rights to list LifecycleEvents and to patch their status; for a Plan, the verb `approve` on its PlanPolicies, or on the PlanPolicy `default` if it names none, and the same rights on Plans. Rejecting requires the same and is final: another revision has another Plan.

Exit status: 0; 2 if nothing waits, or the approval was refused; 3 if the cluster cannot be reached.";

/// Approves or rejects.
///
/// # Errors
/// No operation waits for an approval, several do, or the API server refuses.
pub(super) fn run(args: &ApproveArgs) -> anyhow::Result<ExitCode> {
    args.place.run(async |site| {
        let user = site.cluster.own_user().await.context("cannot tell who approves")?;
        ensure!(!user.name.is_empty(), "the API server does not name this user");
        if plan_approval::answered(&site, args, &user).await? {
            return Ok(ExitCode::Success);
        }
        let what = &args.what;
        ensure!(
            args.keep.is_empty(),
            "no Plan of {what} waits for an approval, and --keep is for objects of one"
        );
        for attempt in 1.. {
            let event = chosen(&site, &args.what).await?;
            match answer(&site, &event, &user.name, &args.answer()).await {
                Ok(said) => {
                    say(ProgressGlyph::Success, &clean(&said));
                    break;
                }
                Err(error) if error.is_conflict() && attempt < MAX_APPROVAL_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ExitCode::Success)
    })
}

/// The LifecycleEvent that the user named.
async fn chosen(site: &CommandScope, what: &str) -> anyhow::Result<LifecycleEvent> {
    let ListedObjects { found, left_out } = listed(site).await?;
    say_left_out(&left_out);
    ensure!(left_out.is_empty(), "LifecycleEvents cannot be listed");
    meant(found, what)
}

/// The names of an object's LifecycleEvents that wait for approval. Events that the user may not list are missing. The user
/// could not approve them anyway.
async fn waiting_names(site: &CommandScope, what: &str) -> anyhow::Result<Vec<String>> {
    let Some((kind, name)) = what.split_once('/') else { return Ok(Vec::new()) };
    let found = match listed::<LifecycleEvent>(site).await {
        Ok(ListedObjects { found, .. }) => found,
        Err(error) if is_absent_kind(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(waiting(found, kind, name).iter().map(ResourceExt::name_any).collect())
}

/// The objects of a kind, and a message about objects that the user may not list.
struct ListedObjects<K> {
    found: Vec<K>,
    left_out: Vec<String>,
}

/// The objects of a kind in the namespace.
async fn listed<K: WatchCachedKind>(site: &CommandScope) -> anyhow::Result<ListedObjects<K>> {
    let target = ResourceArgument { resource: resource::<K>(), namespace: None, name: None };
    let mut found = Vec::new();
    let left_out = site.list(&target, "", |objects| {
        for object in objects {
            found.push(serde_json::from_value(object.into_value())?);
        }
        Ok(())
    });
    let left_out = left_out.await?;
    Ok(ListedObjects { found, left_out })
}

/// Finds the LifecycleEvent by its own name, or by the object that waits for approval.
fn meant(found: Vec<LifecycleEvent>, what: &str) -> anyhow::Result<LifecycleEvent> {
    let Some((kind, name)) = what.split_once('/') else {
        let event = found.into_iter().find(|it| it.name_any() == what);
        let event = event.with_context(|| format!("LifecycleEvent {what} does not exist"))?;
        check(&event)?;
        return Ok(event);
    };
    let mut waiting = waiting(found, kind, name);
    match (waiting.pop(), waiting.as_slice()) {
        (Some(event), []) => Ok(event),
        (Some(event), more) => {
            let names = more.iter().chain([&event]).map(ResourceExt::name_any);
            let names: Vec<String> = names.collect();
            bail!(
                "several LifecycleEvents of {what} wait for an approval: name one of {}",
                names.join(", ")
            )
        }
        (None, _) => bail!("no LifecycleEvent of {what} waits for an approval"),
    }
}

/// The LifecycleEvents of an object that wait for approval.
fn waiting(found: Vec<LifecycleEvent>, kind: &str, name: &str) -> Vec<LifecycleEvent> {
    let word = kind.to_lowercase();
    let is_kind = |event: &LifecycleEvent| {
        let ApprovalSubjectKind { group, kind } = ApprovalSubjectKind::of(event);
        let mut names = crds::names().filter(|it| it.group == group && it.kind == kind);
        names.any(|it| kind_argument::words(it).any(|known| known == word))
    };
    let is_its = |event: &LifecycleEvent| event.spec.subject.name == name && is_kind(event);
    found.into_iter().filter(|it| is_its(it) && it.spec.approvals > 0 && is_open(it)).collect()
}

/// The API group and kind of an object that waits for approval.
struct ApprovalSubjectKind<'e> {
    group: &'e str,
    kind: &'e str,
}

impl<'e> ApprovalSubjectKind<'e> {
    fn of(event: &'e LifecycleEvent) -> Self {
        Self { group: &event.spec.subject.group, kind: &event.spec.subject.kind }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, subject: &str, approvals: i64, phase: Option<&str>) -> LifecycleEvent {
        let subject =
            json!({"group": "helm.toolkit.fluxcd.io", "kind": "HelmRelease", "name": subject});
        let mut object = json!({"metadata": {"name": name},
            "spec": {"subject": subject, "approvals": approvals, "lifecycle": "l"}});
        if let Some(phase) = phase {
            object["status"] = json!({"phase": phase});
        }
        serde_json::from_value(object).unwrap()
    }

    fn found(what: &str) -> String {
        let all = vec![
            event("one", "web", 1, None),
            event("two", "db", 1, None),
            event("three", "db", 2, Some("Running")),
            event("by-controller", "web", 0, None),
            event("over", "web", 1, Some("Failed")),
        ];
        meant(all, what).map_or_else(|error| error.to_string(), |it| it.name_any())
    }

    #[test]
    fn an_event_is_meant_by_its_name_or_by_what_waits() {
        assert_eq!(found("one"), "one");
        assert_eq!(found("hr/web"), "one");
        assert_eq!(found("HelmRelease/web"), "one");
        assert!(found("hr/db").ends_with("name one of two, three"), "{}", found("hr/db"));
        assert_eq!(found("ks/web"), "no LifecycleEvent of ks/web waits for an approval");
        assert_eq!(found("none"), "LifecycleEvent none does not exist");
        assert_eq!(
            found("by-controller"),
            "by-controller: lifecycle l is answered by a controller"
        );
        assert_eq!(found("over"), "over was answered already");
    }
}
