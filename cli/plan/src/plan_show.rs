//! `windlass plan show`: prints a Plan of a cluster as a table.
//!
//! Elsewhere: creating a Plan (`windlass_runtime::approval_plan`), approving it (`windlass approve`).

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args as ClapArgs;
use crds::windlass_release::{
    Plan, PlanAction, PlanChange, PlanChanges, PlanRejection, PlanSubject,
};
use objects::ObjectId;
use windlass_cli_runtime::connection::{ClusterAccessFlags, block_on, print};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_runtime::lifecycle::watched_object_cache::resource;
use windlass_serve::settings::parse_duration;

/// The flags of `windlass plan show`.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PlanShowArgs {
    /// Name of the Plan; plan/NAME is the same
    #[arg(value_name = "NAME")]
    name: String,
    /// Its namespace
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Cluster")]
    namespace: String,
    #[command(flatten)]
    access: ClusterAccessFlags,
    /// How long the command may take
    #[arg(
        long,
        default_value = "1m",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = "Cluster"
    )]
    timeout: Duration,
}

/// Examples at the end of the command's help.
pub(crate) const EXAMPLES: &str = "Examples:
  windlass plan show shop-4b1f0c27a9d35e68 -n shop
  windlass plan show plan/shop-4b1f0c27a9d35e68 -n shop

`windlass get plans -A` lists the Plans that wait, `windlass approve plan/NAME` approves one. Values of objects are not part of
a Plan: `windlass diff` shows them.

Exit status: 0; 2 if the Plan cannot be read; 3 if the cluster cannot be reached.";

/// Prints a Plan.
///
/// # Errors
/// The Plan does not exist or cannot be read.
pub(crate) fn run(args: &PlanShowArgs) -> anyhow::Result<ExitCode> {
    let name = args.name.strip_prefix("plan/").unwrap_or(&args.name);
    let plan = block_on(async {
        let read = async {
            let cluster = args.access.open().await?.0;
            let plan = cluster.get(&resource::<Plan>(), &args.namespace, name).await?;
            Ok::<_, anyhow::Error>(plan)
        };
        let read = tokio::time::timeout(args.timeout, read).await;
        read.map_err(|_| anyhow!("the API server did not respond in time"))?
    })?;
    let plan = plan.with_context(|| format!("Plan {}/{name} does not exist", args.namespace))?;
    let plan: Plan = serde_json::from_value(plan.into_value())?;
    print(&text_of(&plan))?;
    Ok(ExitCode::Success)
}

fn text_of(plan: &Plan) -> String {
    let PlanSubject { kind, name, release, .. } = &plan.spec.subject;
    let release = match release.is_empty() {
        true => String::new(),
        false => format!(", release {release}"),
    };
    let mut lines = vec![
        format!("Plan of {kind}/{name}{release}, revision {}", plan.spec.revision),
        approvals(plan),
    ];
    if !plan.spec.policies.is_empty() {
        lines.push(format!("PlanPolicies: {}", plan.spec.policies.join(", ")));
    }
    if !plan.spec.rules.is_empty() {
        lines.push(format!("Deletion budget: {}", plan.spec.rules.join("; ")));
    }
    lines.push(String::new());
    match &plan.spec.changes {
        Some(changes) => lines.extend(change_lines(changes)),
        None => {
            lines.extend(plan.spec.objects.iter().map(|id| format!("Removed    {}", subject(id))));
            lines.extend(more(plan.spec.count.saturating_sub(count_of(&plan.spec.objects))));
        }
    }
    if plan.spec.following > 0 {
        let count = plan.spec.following;
        lines.push(format!("{count} objects more are deleted, because some of these apply them"));
    }
    lines.extend(cut_lines(plan));
    lines.iter().map(|line| format!("{}\n", clean(line))).collect()
}

/// Who has approved or rejected the Plan, or how to do so.
fn approvals(plan: &Plan) -> String {
    let rejection = plan.status.as_ref().and_then(|status| status.rejection.as_ref());
    if let Some(PlanRejection { user, comment, .. }) = rejection {
        let comment = comment.iter().map(|text| format!(": {text}")).collect::<String>();
        return format!("Rejected by {user}{comment}");
    }
    let approvals = plan.status.iter().flat_map(|status| &status.approvals);
    let users: Vec<&str> = approvals.map(|it| it.user.as_str()).collect();
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let command = format!("windlass approve plan/{name} -n {namespace}");
    match (users.is_empty(), plan.spec.approvals) {
        (true, ..=1) => format!("Waits for approval: {command}"),
        (true, needed) => format!("Waits for {needed} approvals: {command}"),
        (false, ..=1) => format!("Approved by {}", users.join(", ")),
        (false, needed) => {
            format!("Approved by {}, {} of {needed} approvals", users.join(", "), users.len())
        }
    }
}

/// Explains what an approval of a shortened list covers. This command cannot compute the digest of the Plan. Only windlass has
/// the key, and it builds or renders with the rights of the subject.
fn cut_lines(plan: &Plan) -> Vec<String> {
    let PlanSubject { kind, name, .. } = &plan.spec.subject;
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let digest = match &plan.spec.changes {
        Some(changes) if changes.omitted > 0 => &changes.digest,
        Some(_) => return Vec::new(),
        None if plan.spec.count > count_of(&plan.spec.objects) => &plan.spec.digest,
        None => return Vec::new(),
    };
    let mut lines = vec![
        String::new(),
        format!(
            "The list is cut. An approval is for all of it, as digest {digest} names it, which cannot be computed anew without \
             the key of windlass: approve only what was read elsewhere."
        ),
    ];
    // There is no command that predicts a Helmfile of a cluster.
    if kind != "Helmfile" {
        let kind = kind.to_lowercase();
        lines.push(format!("The whole list: windlass diff {kind}/{name} -n {namespace}"));
    }
    lines
}

fn count_of<T>(list: &[T]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

fn change_lines(changes: &PlanChanges) -> Vec<String> {
    let mut lines: Vec<String> = changes.objects.iter().map(change_line).collect();
    lines.extend(more(changes.omitted));
    lines.extend(changes.hooks.iter().map(|hook| format!("Hook       {hook}")));
    lines.extend(changes.tests.iter().map(|test| format!("Test       {test}")));
    lines
}

fn change_line(change: &PlanChange) -> String {
    let PlanChange { id, action, fields, unverified } = change;
    let action = match action {
        PlanAction::Removed => "Removed",
        PlanAction::Recreated => "Recreated",
        PlanAction::Changed => "Changed",
        PlanAction::Added => "Added",
    };
    let fields = match fields.is_empty() {
        true => String::new(),
        false => format!("  {}", fields.join(", ")),
    };
    let unverified = if *unverified { "  unverified" } else { "" };
    format!("{action:<10} {}{fields}{unverified}", subject(id))
}

/// The name of the object with an id, for people.
fn subject(id: &str) -> String {
    id.parse::<ObjectId>().map_or_else(|_| id.to_owned(), |id| id.subject())
}

fn more(count: i64) -> Option<String> {
    (count > 0).then(|| format!("{count} objects more are not listed"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_is_shown_object_by_object() {
        let plan = json!({"metadata": {"name": "apps-1", "namespace": "shop"}, "spec": {
        "subject": {"kind": "Kustomization", "name": "apps"}, "revision": "main@sha1:1",
        "policies": ["production"], "count": 1, "following": 3,
        "approvals": 2, "changes": {"omitted": 2, "digest": "hmac-sha256:1", "hooks": ["pre-upgrade: Job/migrate"], "objects": [
            {"id": "shop_old__ConfigMap", "action": "Removed"},
            {"id": "shop_web_apps_Deployment", "action": "Changed", "fields": ["/spec/replicas"]},
            {"id": "_new__Namespace", "action": "Added", "unverified": true},
        ]}}});
        let plan: Plan = serde_json::from_value(plan).unwrap();
        expect![[r#"
            Plan of Kustomization/apps, revision main@sha1:1
            Waits for 2 approvals: windlass approve plan/apps-1 -n shop
            PlanPolicies: production

            Removed    ConfigMap/shop/old
            Changed    Deployment/shop/web  /spec/replicas
            Added      Namespace/new  unverified
            2 objects more are not listed
            Hook       pre-upgrade: Job/migrate
            3 objects more are deleted, because some of these apply them

            The list is cut. An approval is for all of it, as digest hmac-sha256:1 names it, which cannot be computed anew without the key of windlass: approve only what was read elsewhere.
            The whole list: windlass diff kustomization/apps -n shop
        "#]]
        .assert_eq(&text_of(&plan));
    }

    #[test]
    fn a_plan_of_deletions_says_who_approved_it_and_what_is_exceeded() {
        let plan = json!({"metadata": {"name": "apps-1", "namespace": "shop"}, "spec": {
            "subject": {"kind": "Helmfile", "name": "all", "release": "shop/web"}, "revision": "c@1",
            "rules": ["more than 10 objects"], "count": 1, "objects": ["shop_old__ConfigMap"]},
            "status": {"approvals": [{"user": "alice"}]}});
        let mut plan: Plan = serde_json::from_value(plan).unwrap();
        expect![[r#"
            Plan of Helmfile/all, release shop/web, revision c@1
            Approved by alice
            Deletion budget: more than 10 objects

            Removed    ConfigMap/shop/old
        "#]]
        .assert_eq(&text_of(&plan));
        plan.spec.count = 12;
        plan.spec.digest = "sha256:1".to_owned();
        let cut = text_of(&plan);
        assert!(cut.contains("11 objects more are not listed\n\nThe list is cut. "), "{cut}");
        assert!(cut.contains("digest sha256:1 names it"), "{cut}");
        assert_eq!(approvals(&plan), "Approved by alice");
        let rejection = json!({"rejection": {"user": "bob", "comment": "still in use"}});
        plan.status = Some(serde_json::from_value(rejection).unwrap());
        assert_eq!(approvals(&plan), "Rejected by bob: still in use");
    }
}
