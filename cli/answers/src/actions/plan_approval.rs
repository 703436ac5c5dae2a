//! Approves or rejects a Plan. A Plan contains the changes of an applier, or deletions beyond its deletion budget.
//!
//! Elsewhere: the effect of an approval (engine `apply`, `planned_changes` and `deletion_budget`), the policy that decides who
//! may approve (`deploy/policies/plans.yaml`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use apply::deletion_budget::kept_with_containers;
use crds::windlass_release::{
    Plan, PlanApproval, PlanChanges, PlanRejection, PlanStatus, PlanSubject,
};
use kube_core::ResourceExt as _;
use objects::ObjectId;
use serde_json::json;

use super::{ApprovalAnswer, MANAGER, SERVICE_ACCOUNT_PREFIX};
use crate::command_scope::CommandScope;
use windlass_cluster::ClusterError;
use windlass_cluster::untyped_objects::AuthenticatedUser;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The maximum number of the user's groups in an approval.
const MAX_GROUPS: usize = 256;

/// Approves or rejects a Plan if the Plan has not changed since it was read. Returns the message for the user.
///
/// # Errors
/// The Plan cannot be approved or rejected, or was changed meanwhile, or the API server refuses or does not respond.
pub async fn answer(
    site: &CommandScope,
    plan: &Plan,
    user: &AuthenticatedUser,
    answer: &ApprovalAnswer<'_>,
) -> anyhow::Result<String> {
    let ApprovalAnswer { comment, keep, is_rejection } = *answer;
    check(plan, is_rejection, &user.name)?;
    let keep = kept_objects(plan, keep)?;
    let status = plan.status.clone().unwrap_or_default();
    let changed = match is_rejection {
        true => with_rejection(status, &user.name, comment),
        false => with_approval(status, user, comment, &keep),
    };
    write(site, plan, changed.as_ref()).await?;
    Ok(match is_rejection {
        true => rejected(plan, &user.name),
        false => said(plan, &user.name, keep.len()),
    })
}

/// Checks from the content of the Plan whether a user can approve or reject it.
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

/// Finds the objects that the user named by kind, namespace and name. Returns them as the Plan lists them.
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

/// The rejection of a Plan by a user, from the Plan's status. `None` if no user has rejected the Plan.
fn rejection(plan: &Plan) -> Option<&PlanRejection> {
    plan.status.as_ref()?.rejection.as_ref()
}

/// The message about a rejection.
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

/// The message about an approval, which may keep some objects. windlass may already have carried out an earlier approval.
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

/// Writes the status of a Plan if it changes, and only if the Plan has not changed since it was read.
async fn write(
    site: &CommandScope,
    plan: &Plan,
    changed: Option<&PlanStatus>,
) -> Result<(), ClusterError> {
    let Some(changed) = changed else { return Ok(()) };
    let version = plan.resource_version();
    // The API server normally drops fields that an older CustomResourceDefinition does not have. Without the field `keep`,
    // windlass would delete all objects. Therefore this request asks for strict field validation.
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

/// The status with the approval of a user, who may keep some objects. `None` if the status already contains the same approval.
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
        // A user may repeat an approval that did not count because the user joined a group later.
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

/// Adds a user's rejection of a Plan to the status of that Plan. The result is never `None`.
fn with_rejection(mut status: PlanStatus, user: &str, comment: &str) -> Option<PlanStatus> {
    let comment = said_comment(comment);
    status.rejection = Some(PlanRejection { user: user.to_owned(), at: seconds_now(), comment });
    Some(status)
}

fn said_comment(comment: &str) -> Option<String> {
    Some(comment.to_owned()).filter(|it| !it.is_empty())
}

/// The current time in whole seconds, as the Kubernetes API stores times. `None` only if this clock shows an impossible time.
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

    #[test]
    fn what_a_plan_is_of_names_the_release_if_it_is_of_one() {
        let mut one = plan("one", "apps");
        assert_eq!(subject(&one), "Kustomization/apps");
        one.spec.subject.release = "apps/web".to_owned();
        assert_eq!(subject(&one), "Kustomization/apps, release apps/web");
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
