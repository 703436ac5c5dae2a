//! Finds the Plan that the user approves or rejects. A Plan contains the changes of an applier, or deletions beyond its
//! deletion budget.
//!
//! Elsewhere: writing the answer (`windlass_answers::actions::plan_approval`).

use anyhow::{Context as _, bail, ensure};
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, mumoshu_helmfile};
use crds::kustomize::Kustomization;
use crds::windlass_release::{Plan, PlanSubject};
use kube_core::ResourceExt as _;

use super::{ApproveArgs, ListedObjects, MAX_APPROVAL_ATTEMPTS};
use crate::command_scope::{CommandScope, say_left_out};
use crate::kind_argument;
use windlass_answers::actions::plan_approval::answer;
use windlass_answers::command_scope::is_absent_kind;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::table::clean;
use windlass_cluster::ClusterError;
use windlass_cluster::untyped_objects::AuthenticatedUser;

/// Whether a word names this kind.
fn is_kind<K: kube_core::Resource<DynamicType = ()>>(word: &str) -> bool {
    let word = word.to_lowercase();
    let mut names = crds::names().filter(|it| it.group == K::group(&()) && it.kind == K::kind(&()));
    names.any(|it| kind_argument::words(it).any(|known| known == word))
}

/// Whether a word names a kind whose objects have Plans.
fn is_applier(word: &str) -> bool {
    is_kind::<Kustomization>(word)
        || is_kind::<HelmRelease>(word)
        || is_kind::<Helmfile>(word)
        || is_kind::<mumoshu_helmfile::Helmfile>(word)
}

/// Approves or rejects a Plan, if the user named a Plan or an object with a waiting Plan. Returns false if there is no such
/// Plan, or if the user rejects an operation of the object.
///
/// # Errors
/// The Plan cannot be approved or rejected, an operation of the object waits as well, or the API server refuses.
pub(super) async fn answered(
    site: &CommandScope,
    args: &ApproveArgs,
    user: &AuthenticatedUser,
) -> anyhow::Result<bool> {
    let Some((kind, _)) = args.what.split_once('/') else { return Ok(false) };
    let is_named = is_kind::<Plan>(kind);
    if !is_named && !is_applier(kind) {
        return Ok(false);
    }
    for attempt in 1.. {
        let found = plans(site, is_named).await?;
        let Some(plan) = meant(found, &args.what)? else { return Ok(false) };
        if !is_named {
            let events = super::waiting_names(site, &args.what).await?;
            let is_of_event = args.reject && !events.is_empty();
            if is_of_event || !is_meant_beside(&plan, &events, &args.what)? {
                return Ok(false);
            }
        }
        match answer(site, &plan, user, &args.answer()).await {
            Ok(text) => {
                say(ProgressGlyph::Success, &clean(&text));
                break;
            }
            Err(error) if is_conflict(&error) && attempt < MAX_APPROVAL_ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_conflict(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ClusterError>().is_some_and(ClusterError::is_conflict)
}

/// The Plans of the namespace. Empty if the kind is not installed. Also empty if the user may not list Plans and did not name
/// one.
async fn plans(site: &CommandScope, is_named: bool) -> anyhow::Result<Vec<Plan>> {
    match super::listed(site).await {
        Ok(ListedObjects { found, left_out }) => {
            // A user who names an applier may mean its LifecycleEvent, and needs no rights for Plans.
            if is_named {
                say_left_out(&left_out);
                ensure!(left_out.is_empty(), "Plans cannot be listed");
            }
            Ok(found)
        }
        Err(error) if is_absent_kind(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether the user means the Plan of an object, although LifecycleEvents of the object may also wait. Approving an operation
/// must not also approve deletions.
fn is_meant_beside(plan: &Plan, events: &[String], what: &str) -> anyhow::Result<bool> {
    if events.is_empty() {
        return Ok(true);
    }
    let is_approved = plan.status.as_ref().is_some_and(|status| !status.approvals.is_empty());
    ensure!(
        is_approved,
        "a Plan and an operation of {what} wait for an approval: name plan/{} or {}",
        plan.name_any(),
        events.join(", ")
    );
    Ok(false)
}

/// Whether a word names the kind of a Plan's subject.
fn is_of(word: &str, subject: &PlanSubject) -> bool {
    let word = word.to_lowercase();
    let mut names = crds::names().filter(|it| it.group == subject.group && it.kind == subject.kind);
    names.any(|it| kind_argument::words(it).any(|known| known == word))
}

/// Finds the Plan that the user named. Returns `None` if the user named an object without a Plan.
fn meant(found: Vec<Plan>, what: &str) -> anyhow::Result<Option<Plan>> {
    let (kind, name) = what.split_once('/').unwrap_or_default();
    if is_kind::<Plan>(kind) {
        let plan = found.into_iter().find(|it| it.name_any() == name);
        return plan.map(Some).with_context(|| {
            format!("Plan {name} does not exist; `windlass get plans` shows those that wait")
        });
    }
    let is_its = |plan: &Plan| {
        let subject = &plan.spec.subject;
        subject.name == name && is_of(kind, subject)
    };
    let mut plans: Vec<Plan> = found.into_iter().filter(is_its).collect();
    // There may be two Plans for a moment while one replaces the other. A Helmfile has one Plan for each release.
    if plans.len() > 1 {
        let names: Vec<String> = plans.iter().map(|it| format!("plan/{}", it.name_any())).collect();
        bail!("several Plans of {what} wait for approval: name one of {}", names.join(", "));
    }
    Ok(plans.pop())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(name: &str, subject: &str) -> Plan {
        let subject = json!({"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": subject});
        let spec = json!({"subject": subject, "count": 12, "following": 30});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn found(what: &str) -> String {
        let all = vec![plan("one", "apps"), plan("two", "infra"), plan("three", "infra")];
        match meant(all, what) {
            Ok(plan) => plan.map(|it| it.name_any()).unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_plan_is_meant_by_its_name_or_by_its_kustomization() {
        assert_eq!(found("plan/two"), "two");
        assert_eq!(found("plans/two"), "two");
        assert_eq!(found("ks/apps"), "one");
        assert_eq!(found("Kustomization/apps"), "one");
        assert_eq!(found("ks/other"), "");
        assert!(found("plan/other").starts_with("Plan other does not exist"));
        assert!(found("ks/infra").ends_with("name one of plan/two, plan/three"));
    }

    #[test]
    fn a_plan_of_a_release_is_meant_by_its_owner_unless_that_has_several() {
        let plan = |name: &str, kind: [&str; 2], of: &str, release: &str| {
            let subject =
                json!({"group": kind[0], "kind": kind[1], "name": of, "release": release});
            let spec = json!({"subject": subject, "count": 12});
            serde_json::from_value::<Plan>(json!({"metadata": {"name": name}, "spec": spec}))
                .unwrap()
        };
        let helm = ["helm.toolkit.fluxcd.io", "HelmRelease"];
        let helmfile = ["helmfile.windlass.dev", "Helmfile"];
        let all = vec![
            plan("one", helm, "shop", ""),
            plan("two", helmfile, "shop", "apps/web"),
            plan("three", helmfile, "all", "apps/web"),
            plan("four", helmfile, "all", "apps/db"),
        ];
        let found = |what: &str| match meant(all.clone(), what) {
            Ok(plan) => plan.map(|it| it.name_any()).unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found("hr/shop"), "one");
        assert_eq!(found("helmfile/shop"), "two");
        assert!(found("helmfile/all").ends_with("name one of plan/three, plan/four"));
        assert_eq!(found("ks/shop"), "");
    }

    #[test]
    fn who_approves_an_operation_of_a_kustomization_does_not_approve_its_deletions() {
        let mut waiting = plan("one", "apps");
        let events = ["apps-preupgrade-0123".to_owned()];
        assert!(is_meant_beside(&waiting, &[], "ks/apps").unwrap());
        let refused = is_meant_beside(&waiting, &events, "ks/apps").unwrap_err().to_string();
        assert!(refused.ends_with("name plan/one or apps-preupgrade-0123"), "{refused}");
        let approved = json!({"approvals": [{"user": "alice"}]});
        waiting.status = Some(serde_json::from_value(approved).unwrap());
        assert!(!is_meant_beside(&waiting, &events, "ks/apps").unwrap(), "it was approved before");
    }
}
