//! Approving or rejecting a Plan: what an applier would do, or deletions that are beyond its deletion budget.
//!
//! Elsewhere: what an approval is for (engine `apply`, `result_changes` and `deletion_budget`), who may approve (`deploy/policies/plans.yaml`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use apply::deletion_budget::kept_with_containers;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, helmfile_operator};
use crds::kustomize::Kustomization;
use crds::release::{Plan, PlanApproval, PlanChanges, PlanRejection, PlanStatus, PlanSubject};
use kube_core::ResourceExt as _;
use objects::ObjectId;
use serde_json::json;

use super::{ApproveArgs, ListedObjects, MAX_APPROVAL_ATTEMPTS};
use crate::command_scope::{CommandScope, say_left_out};
use crate::kind_argument;
use crate::suspend::MANAGER;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::table::clean;
use windlass_cluster::ClusterError;
use windlass_cluster::objects::AuthenticatedUser;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// Users with this prefix are ServiceAccounts, whose approvals do not count.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// How many groups of a user an approval has room for.
const MAX_GROUPS: usize = 256;

/// Whether a word names the kind of an object.
fn is_kind<K: kube_core::Resource<DynamicType = ()>>(word: &str) -> bool {
    let word = word.to_lowercase();
    let mut names = crds::names().filter(|it| it.group == K::group(&()) && it.kind == K::kind(&()));
    names.any(|it| kind_argument::words(it).any(|known| known == word))
}

/// Whether a word names a kind of objects that have Plans.
fn is_applier(word: &str) -> bool {
    is_kind::<Kustomization>(word)
        || is_kind::<HelmRelease>(word)
        || is_kind::<Helmfile>(word)
        || is_kind::<helmfile_operator::Helmfile>(word)
}

/// Approves or rejects a Plan if that is what the user names: by its own name, or by the object that waits. False if the user
/// does not name a Plan, and none of that object waits, or an operation of it is to be rejected.
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
        check(&plan, args.reject, &user.name)?;
        let keep = kept_objects(&plan, &args.keep)?;
        let status = plan.status.clone().unwrap_or_default();
        let changed = match args.reject {
            true => with_rejection(status, &user.name, &args.comment),
            false => with_approval(status, user, &args.comment, &keep),
        };
        let text = match args.reject {
            true => rejected(&plan, &user.name),
            false => said(&plan, &user.name, keep.len()),
        };
        match write(site, &plan, changed.as_ref()).await {
            Ok(()) => {
                say(ProgressGlyph::Success, &clean(&text));
                break;
            }
            Err(error) if error.is_conflict() && attempt < MAX_APPROVAL_ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// The Plans of the namespace; none if the kind is not installed, or the user may not list them and did not name one.
async fn plans(site: &CommandScope, is_named: bool) -> anyhow::Result<Vec<Plan>> {
    match super::listed(site).await {
        Ok(ListedObjects { found, left_out }) => {
            // Who names an applier may mean its LifecycleEvent, and needs no rights on Plans.
            if is_named {
                say_left_out(&left_out);
                ensure!(left_out.is_empty(), "Plans cannot be listed");
            }
            Ok(found)
        }
        Err(error) if super::is_absent_kind(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether the Plan of an object is meant although LifecycleEvents of it may wait for an approval, too. Who approves an
/// operation does not approve deletions with it.
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

/// Whether a word names the kind of the object that a Plan is about.
fn is_of(word: &str, subject: &PlanSubject) -> bool {
    let word = word.to_lowercase();
    let mut names = crds::names().filter(|it| it.group == subject.group && it.kind == subject.kind);
    names.any(|it| kind_argument::words(it).any(|known| known == word))
}

/// The Plan that the user names; `None` if it is named by an object that has none.
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
    // While one replaces another, both are there for a moment; and a Helmfile has one for each release.
    if plans.len() > 1 {
        let names: Vec<String> = plans.iter().map(|it| format!("plan/{}", it.name_any())).collect();
        bail!("several Plans of {what} wait for approval: name one of {}", names.join(", "));
    }
    Ok(plans.pop())
}

/// Whether a user can approve or reject a Plan, as far as the Plan tells.
fn check(plan: &Plan, is_rejection: bool, user: &str) -> anyhow::Result<()> {
    let name = plan.name_any();
    ensure!(
        !user.starts_with(SERVICE_ACCOUNT_PREFIX),
        "approvals of ServiceAccounts do not count: windlass applies objects as {user} or others, which could approve their own \
         deletions"
    );
    if let Some(PlanRejection { user, .. }) = rejection(plan) {
        bail!(
            "Plan {name} is rejected by {user}, which is final; another revision has another Plan"
        );
    }
    if is_rejection {
        return Ok(());
    }
    let now = jiff::Timestamp::now();
    let is_expired = plan.spec.expires.as_ref().is_some_and(|at| at.0 <= now);
    ensure!(!is_expired, "Plan {name} is expired; reconcile {} for a new one", subject(plan));
    Ok(())
}

/// The objects of a Plan that the user names by kind, namespace and name, as the Plan lists them.
fn kept_objects(plan: &Plan, names: &[String]) -> anyhow::Result<Vec<String>> {
    ensure!(
        names.is_empty() || plan.spec.changes.is_none(),
        "Plan {} is of everything that its revision changes, so that --keep cannot leave out a part of it; to keep objects that \
         it would delete, have them in the manifests again",
        plan.name_any()
    );
    let mut listed: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for text in &plan.spec.objects {
        listed.entry(text.clone()).or_default().push(text);
        if let Ok(id) = text.parse::<ObjectId>() {
            listed.entry(id.subject()).or_default().push(text);
            ids.insert(id);
        }
    }
    let mut kept = BTreeSet::new();
    for name in names {
        match listed.get(name).map(Vec::as_slice).unwrap_or_default() {
            [] => bail!(
                "Plan {} does not list {name}: name an object as KIND/NAMESPACE/NAME, or KIND/NAME if it has no namespace",
                plan.name_any()
            ),
            [one] => kept.insert((*one).clone()),
            several => {
                let ids: Vec<&str> = several.iter().map(|id| id.as_str()).collect();
                bail!("several objects are {name}: name one of {}", ids.join(", "))
            }
        };
    }
    let kept_ids: BTreeSet<ObjectId> = kept.iter().filter_map(|id| id.parse().ok()).collect();
    let needed = kept_with_containers(kept_ids.clone(), &ids);
    if let Some(container) = needed.difference(&kept_ids).next() {
        let container = container.subject();
        bail!(
            "the deletion of {container} may delete objects that are to be kept: keep it as well, with --keep {container}"
        );
    }
    Ok(kept.into_iter().collect())
}

fn subject(plan: &Plan) -> String {
    let PlanSubject { kind, name, release, .. } = &plan.spec.subject;
    match release.is_empty() {
        true => format!("{kind}/{name}"),
        false => format!("{kind}/{name}, release {release}"),
    }
}

/// The rejection of a Plan.
fn rejection(plan: &Plan) -> Option<&PlanRejection> {
    plan.status.as_ref()?.rejection.as_ref()
}

/// What is said of a rejection.
fn rejected(plan: &Plan, user: &str) -> String {
    let subject = subject(plan);
    let what = match plan.spec.changes {
        Some(_) => "nothing of it is changed",
        None => "the objects stay",
    };
    format!(
        "the Plan of {subject} is rejected by {user}: {what} before another revision, which has another Plan"
    )
}

/// What is said of an approval, which may keep some objects. An earlier one may be carried out already.
fn said(plan: &Plan, user: &str, kept: usize) -> String {
    let approvals = plan.status.iter().flat_map(|status| &status.approvals);
    let others = approvals.filter(|it| it.user != user).count();
    let is_begun = plan.status.iter().any(|it| !it.approvals.is_empty());
    let counted = match plan.spec.approvals {
        ..=1 => String::new(),
        needed => format!(", {} of {needed} approvals", others.saturating_add(1)),
    };
    if let Some(changes) = &plan.spec.changes {
        let PlanChanges { added, changed, removed, recreated, .. } = changes;
        let all =
            format!("{removed} removed, {recreated} recreated, {changed} changed, {added} added");
        return format!("the Plan of {} ({all}) is approved by {user}{counted}", subject(plan));
    }
    let objects = match plan.spec.count {
        1 => "1 object".to_owned(),
        count => format!("{count} objects"),
    };
    let except = match (kept, is_begun) {
        (0, _) => String::new(),
        (count, false) => format!(", except for {count} that stay in the cluster"),
        (count, true) => format!(
            ", except for {count} that stay in the cluster if the deletion, which was approved before, has not begun"
        ),
    };
    let following = match plan.spec.following {
        0 => String::new(),
        count => format!(", with {count} that they applied"),
    };
    let by = subject(plan);
    format!("the deletion of {objects}{following} by {by} is approved by {user}{counted}{except}")
}

/// Writes the status of a Plan if it changes, only if the Plan is still as it was read.
async fn write(
    site: &CommandScope,
    plan: &Plan,
    changed: Option<&PlanStatus>,
) -> Result<(), ClusterError> {
    let Some(changed) = changed else { return Ok(()) };
    let version = plan.resource_version();
    // The API server drops what the CustomResourceDefinition of an older windlass does not have, unless fields are checked:
    // without `keep`, all objects would be deleted.
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/status", "value": changed},
    ]);
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let plans = resource::<Plan>();
    let name = plan.name_any();
    let written = site.cluster.json_patch_status(&plans, namespace, &name, &operations, MANAGER);
    written.await.map(drop)
}

/// The status with the approval of a user, which keeps some objects; `None` if it has that already.
fn with_approval(
    mut status: PlanStatus,
    user: &AuthenticatedUser,
    comment: &str,
    keep: &[String],
) -> Option<PlanStatus> {
    let AuthenticatedUser { name, groups } = user;
    let groups: Vec<String> = groups.iter().take(MAX_GROUPS).cloned().collect();
    if let Some(own) = status.approvals.iter_mut().find(|it| it.user == *name) {
        let is_new = |id: &&String| !own.keep.contains(*id);
        let new: Vec<String> = keep.iter().filter(is_new).cloned().collect();
        // An approval that did not count, because the user came into a group later, can be repeated.
        let is_changed = !new.is_empty() || own.groups != groups;
        own.keep.extend(new);
        own.groups = groups;
        return is_changed.then_some(status);
    }
    let comment = said_comment(comment);
    status.approvals.push(PlanApproval {
        user: name.clone(),
        groups,
        at: seconds_now(),
        comment,
        keep: keep.to_vec(),
    });
    Some(status)
}

/// The status with the rejection of a user.
fn with_rejection(mut status: PlanStatus, user: &str, comment: &str) -> Option<PlanStatus> {
    let comment = said_comment(comment);
    status.rejection = Some(PlanRejection { user: user.to_owned(), at: seconds_now(), comment });
    Some(status)
}

fn said_comment(comment: &str) -> Option<String> {
    Some(comment.to_owned()).filter(|it| !it.is_empty())
}

/// Now, in whole seconds, as the API has times.
fn seconds_now() -> Option<crds::Time> {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).ok().map(crds::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, subject: &str) -> Plan {
        let subject = json!({"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": subject});
        let spec = json!({"subject": subject, "count": 12, "following": 30});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn user(name: &str) -> AuthenticatedUser {
        let groups = vec!["system:authenticated".to_owned()];
        AuthenticatedUser { name: name.to_owned(), groups }
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
        assert_eq!(subject(&all[1]), "Helmfile/shop, release apps/web");
        assert_eq!(subject(&all[0]), "HelmRelease/shop");
    }

    #[test]
    fn who_approves_an_operation_of_a_kustomization_does_not_approve_its_deletions() {
        let mut waiting = plan("one", "apps");
        let events = ["apps-preupgrade-0123".to_owned()];
        assert!(is_meant_beside(&waiting, &[], "ks/apps").unwrap());
        let refused = is_meant_beside(&waiting, &events, "ks/apps").unwrap_err().to_string();
        assert!(refused.ends_with("name plan/one or apps-preupgrade-0123"), "{refused}");
        waiting.status = with_approval(PlanStatus::default(), &user("alice"), "", &[]);
        assert!(!is_meant_beside(&waiting, &events, "ks/apps").unwrap(), "it was approved before");
    }

    #[test]
    fn an_approval_is_of_a_user_and_says_what_is_deleted() {
        let mut one = plan("one", "apps");
        assert!(check(&one, false, "alice").is_ok());
        let robot = check(&one, false, "system:serviceaccount:shop:deployer");
        assert!(robot.unwrap_err().to_string().contains("ServiceAccounts do not count"));
        let text = "the deletion of 12 objects, with 30 that they applied by Kustomization/apps is approved by alice";
        assert_eq!(said(&one, "alice", 0), text);
        let except = format!("{text}, except for 2 that stay in the cluster");
        assert_eq!(said(&one, "alice", 2), except);
        one.status = with_approval(PlanStatus::default(), &user("bob"), "", &[]);
        assert!(said(&one, "alice", 2).starts_with(&except));
        assert!(said(&one, "alice", 2).ends_with("has not begun"));
        let mut result = one;
        result.spec.changes =
            Some(PlanChanges { changed: 3, removed: 1, ..PlanChanges::default() });
        let text = "the Plan of Kustomization/apps (1 removed, 0 recreated, 3 changed, 0 added) is approved by alice";
        assert_eq!(said(&result, "alice", 0), text);
        result.spec.approvals = 3;
        assert_eq!(said(&result, "alice", 0), format!("{text}, 2 of 3 approvals"));
        assert_eq!(
            said(&result, "bob", 0),
            format!("{} bob, 1 of 3 approvals", &text[..text.len() - 6])
        );
        let alice = user("alice");
        let status = with_approval(PlanStatus::default(), &alice, "planned", &[]).unwrap();
        assert_eq!(status.approvals[0].comment.as_deref(), Some("planned"));
        assert_eq!(status.approvals[0].groups, ["system:authenticated"]);
        let keep = ["shop_a__ConfigMap".to_owned()];
        assert!(with_approval(status.clone(), &alice, "", &[]).is_none(), "approved before");
        let in_group = AuthenticatedUser { groups: vec!["ops".to_owned()], ..alice.clone() };
        let again = with_approval(status.clone(), &in_group, "", &[]).unwrap();
        assert_eq!((again.approvals.len(), again.approvals[0].groups.len()), (1, 1));
        let keeping = with_approval(status, &alice, "", &keep).unwrap();
        assert_eq!((keeping.approvals.len(), keeping.approvals[0].keep.as_slice()), (1, &keep[..]));
        assert!(with_approval(keeping, &alice, "", &keep).is_none(), "kept before");
    }

    #[test]
    fn a_rejection_is_of_a_user_and_final() {
        let mut one = plan("one", "apps");
        assert!(check(&one, true, "alice").is_ok());
        assert!(check(&one, true, "system:serviceaccount:shop:deployer").is_err());
        let text = rejected(&one, "alice");
        assert!(
            text.starts_with("the Plan of Kustomization/apps is rejected by alice: the objects")
        );
        one.status = with_rejection(PlanStatus::default(), "alice", "still in use");
        assert_eq!(rejection(&one).unwrap().comment.as_deref(), Some("still in use"));
        for is_rejection in [true, false] {
            let refused = check(&one, is_rejection, "bob").unwrap_err().to_string();
            assert!(
                refused.starts_with("Plan one is rejected by alice, which is final"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_kept_is_named_as_people_read_it_and_is_of_the_plan() {
        let mut plan = plan("one", "apps");
        plan.spec.objects = [
            "_shop__Namespace",
            "shop_a__ConfigMap",
            "shop_web_gateway.example.com_Route",
            "shop_web_networking.example.com_Route",
        ]
        .map(str::to_owned)
        .to_vec();
        let kept = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
            kept_objects(&plan, &names).map_err(|error| error.to_string())
        };
        let both = kept(&["Namespace/shop", "ConfigMap/shop/a", "shop_a__ConfigMap"]).unwrap();
        assert_eq!(both, ["_shop__Namespace", "shop_a__ConfigMap"]);
        assert!(kept(&[]).unwrap().is_empty());
        let ambiguous = kept(&["Route/shop/web"]).unwrap_err();
        assert!(
            ambiguous.contains("name one of shop_web_gateway.example.com_Route, "),
            "{ambiguous}"
        );
        let one = ["shop_web_gateway.example.com_Route", "Namespace/shop"];
        assert_eq!(kept(&one).unwrap().len(), 2);
        let alone = kept(&one[..1]).unwrap_err();
        assert!(alone.ends_with("keep it as well, with --keep Namespace/shop"), "{alone}");
        assert!(
            kept(&["ConfigMap/shop/b"]).unwrap_err().contains("does not list ConfigMap/shop/b")
        );
        let mut result = plan.clone();
        result.spec.changes = Some(PlanChanges::default());
        let refused = kept_objects(&result, &["Namespace/shop".to_owned()]).unwrap_err();
        assert!(refused.to_string().contains("--keep cannot"), "{refused}");
        assert!(kept_objects(&result, &[]).unwrap().is_empty());
    }
}
