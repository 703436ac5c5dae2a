//! Each operation has one audit. The audit names the cause and the changes, and contains no Secret values. Tenants can read it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use crds::windlass_release::{
    AuditCauseKind, AuditChangeKind, AuditOperation, AuditOutcome, AuditRevision, ReleaseAudit,
};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::flux_objects::{self, DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::release_audits::{audits, await_audits};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-secret}\n\
    stringData:\n  {{ .Values.key | default \"k\" }}: {{ .Values.password | default \"none\" | quote }}\n";

fn operations(audits: &[ReleaseAudit]) -> Vec<AuditOperation> {
    audits.iter().map(|it| it.spec.operation).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_on_a_release_has_one_audit() -> Result<()> {
    let story = Story::with_windlass("audit-release").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let before = hook("before", "pre-install", 0, "hook-succeeded", PodBehavior::Ready);
    let files = [
        ("templates/a.yaml", CONFIG),
        ("templates/s.yaml", SECRET),
        ("templates/h.yaml", &*before),
    ];
    charts.publish("1.0.0", &files).await?;
    let values = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "values"},
        "stringData": {"values.yaml": "password: hunter2-hunter2\nkey: key-of-hunters\n"}});
    story.apply_value(values.clone()).await?;
    let from = json!({"valuesFrom": [{"kind": "Secret", "name": "values"}]});
    let app = charts.release("app", from).await?;
    story.await_revision(&app, 1).await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(
        install.operation == AuditOperation::Install && install.outcome == AuditOutcome::Succeeded
    );
    ensure!(install.causes[0].type_ == AuditCauseKind::Spec, "{:?}", install.causes);
    ensure!(install.causes[0].manager.as_deref() == Some("story"), "{:?}", install.causes);
    ensure!(
        install.changes.added == 2 && install.changes.objects.len() == 2,
        "{:?}",
        install.changes
    );
    let names: Vec<&str> = install.steps.iter().map(|it| it.name.as_str()).collect();
    ensure!(names == ["pre-install", "Apply", "Wait"], "{:?}", install.steps);
    ensure!(install.steps.iter().all(|it| it.ended.is_some() && !it.failed), "{:?}", install.steps);

    // The Secret is replaced. The audit names it but contains none of its values.
    let mut changed = values;
    changed["stringData"]["values.yaml"] = "password: hunter3-hunter3\nkey: key-of-others\n".into();
    let secret = story.apply_value(changed).await?;
    story.await_revision(&app, 2).await?;
    let upgrade = await_audits(&story, 2).await?.remove(1).spec;
    ensure!(upgrade.operation == AuditOperation::Upgrade, "{:?}", upgrade.operation);
    let [cause] = &upgrade.causes[..] else { bail!("{:?}", upgrade.causes) };
    let object = format!("Secret/{}/values", story.namespace);
    ensure!(cause.object.as_deref() == Some(&*object), "{cause:?}");
    ensure!(cause.version == secret.metadata.resource_version, "{cause:?}");
    ensure!(upgrade.changes.changed == 1 && upgrade.changes.added == 0, "{:?}", upgrade.changes);
    ensure!(upgrade.changes.objects[0].fields == ["/stringData"], "{:?}", upgrade.changes);
    let text = serde_json::to_string(&audits(&story).await?)?;
    ensure!(!text.contains("hunter") && !text.contains("key-of"), "{text}");

    // The chart changes.
    charts.publish("1.1.0", &files).await?;
    story.await_revision(&app, 3).await?;
    let upgrade = await_audits(&story, 3).await?.remove(2).spec;
    ensure!(upgrade.causes[0].type_ == AuditCauseKind::Source, "{:?}", upgrade.causes);
    ensure!(upgrade.changes.objects[0].kind == "ConfigMap", "{:?}", upgrade.changes);
    ensure!(upgrade.changes.objects[0].fields == ["/data/chart"], "{:?}", upgrade.changes);
    let versions = |of: &Option<AuditRevision>| of.as_ref().and_then(|it| it.chart_version.clone());
    let from = versions(&upgrade.from);
    let to = versions(&upgrade.to);
    ensure!(from.as_deref() == Some("1.0.0") && to.as_deref() == Some("1.1.0"), "{from:?} {to:?}");

    // No user can change an audit, and it stays when its object is deleted.
    let name = audits(&story).await?[0].metadata.name.clone().context("it has a name")?;
    let target = StoryObject::of::<ReleaseAudit>(&name);
    let refused = story.merge(&target, json!({"spec": {"message": "forged"}})).await;
    let refused = format!("{:#}", refused.err().context("an audit was changed")?);
    ensure!(refused.contains("written once"), "{refused}");
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    let uninstall = await_audits(&story, 4).await?.remove(3).spec;
    ensure!(uninstall.operation == AuditOperation::Uninstall, "{:?}", uninstall.operation);
    ensure!(uninstall.changes.removed == 2 && uninstall.to.is_none(), "{:?}", uninstall.changes);
    ensure!(uninstall.causes[0].type_ == AuditCauseKind::Deletion, "{:?}", uninstall.causes);
    let listed =
        story.windlass_says(&["audit", "-n", &story.namespace, "hr/app", "-o", "jsonl"], true)?;
    ensure!(listed.lines().count() == 4, "{listed}");
    let table = story.windlass_says(&["audit", "-n", &story.namespace], true)?;
    ensure!(table.contains("HelmRelease/app") && table.contains("1:app@1.0.0"), "{table}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_its_rollback_are_two_audits() -> Result<()> {
    let story = Story::with_windlass("audit-rollback").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let good = deployment("web", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/d.yaml", &good)]).await?;
    let upgrade =
        json!({"timeout": "3s", "remediation": {"retries": 0, "remediateLastFailure": true}});
    let app = charts.release("app", json!({"upgrade": upgrade})).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::CrashLoop).replace("app:1", "app:2");
    charts.publish("1.1.0", &[("templates/d.yaml", &bad)]).await?;
    let is_undone =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "RollbackSucceeded";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    let all = await_audits(&story, 3).await?;
    let wanted = [AuditOperation::Install, AuditOperation::Upgrade, AuditOperation::Rollback];
    ensure!(operations(&all) == wanted, "{:?}", operations(&all));
    let failed = &all[1].spec;
    let undone = &all[2].spec;
    ensure!(failed.outcome == AuditOutcome::Failed && failed.message.is_some(), "{failed:?}");
    ensure!(
        failed.steps.last().is_some_and(|it| it.name == "Wait" && it.failed),
        "{:?}",
        failed.steps
    );
    ensure!(undone.outcome == AuditOutcome::Succeeded, "{undone:?}");
    ensure!(undone.causes[0].type_ == AuditCauseKind::Failure, "{:?}", undone.causes);
    ensure!(undone.changes.changed == 1, "{:?}", undone.changes);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn corrections_of_drift_are_one_audit() -> Result<()> {
    let story = Story::with_windlass("audit-drift").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts
        .release("app", json!({"driftDetection": {"mode": "enabled"}, "values": {"value": "v"}}))
        .await?;
    story.await_revision(&app, 1).await?;
    for edited in ["one", "two"] {
        story
            .merge(&StoryObject::config_map("app-config"), json!({"data": {"value": edited}}))
            .await?;
        story.await_value("app-config", "v").await?;
    }
    let all = story
        .await_until("an audit of a correction", DEFAULT_WAIT_TIMEOUT, async || {
            let found = audits(&story).await?;
            Ok((found.len() >= 2).then_some(found))
        })
        .await?;
    let corrections: Vec<_> =
        all.iter().filter(|it| it.spec.operation == AuditOperation::CorrectDrift).collect();
    for correction in &corrections {
        let fields = &correction.spec.changes.objects[0].fields;
        ensure!(*fields == ["/data/value"], "{fields:?}");
    }
    // There is one audit for each ten minutes, and the story may span two such periods.
    let stretch = |it: &&ReleaseAudit| it.spec.started.as_ref().map(|it| it.0.as_second() / 600);
    let stretches: BTreeSet<_> = corrections.iter().map(stretch).collect();
    ensure!(stretches.len() == corrections.len(), "{} corrections", corrections.len());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_of_a_kustomization_are_audited_where_they_change_something() -> Result<()> {
    let story = Story::with_windlass("audit-kustomization").await?;
    let upstream = story.follow("apps", &[("apps/a.yaml", config_map("a", "one"))]).await?;
    story.kustomization("apps", "apps", json!({"path": "./apps"})).await?;
    let apps = StoryObject::kustomization("apps");
    story.await_ready(&apps).await?;
    let applied = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(
        applied.operation == AuditOperation::Apply && applied.changes.added == 1,
        "{applied:?}"
    );
    let revision = upstream.push(&[("apps/a.yaml", config_map("a", "two"))]).await?;
    story.await_value("a", "two").await?;
    let applied = await_audits(&story, 2).await?.remove(1).spec;
    ensure!(applied.changes.objects[0].change == AuditChangeKind::Changed, "{applied:?}");
    ensure!(applied.to.and_then(|it| it.revision).as_deref() == Some(&*revision));
    ensure!(applied.causes[0].type_ == AuditCauseKind::Source, "{:?}", applied.causes);
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("a", "two").await?;
    let corrected = await_audits(&story, 3).await?.remove(2).spec;
    ensure!(corrected.operation == AuditOperation::CorrectDrift, "{corrected:?}");
    ensure!(corrected.changes.objects[0].fields == ["/data/value"], "{:?}", corrected.changes);
    story.delete(&apps).await?;
    story.await_gone(&apps, DEFAULT_WAIT_TIMEOUT).await?;
    let removed = await_audits(&story, 4).await?.remove(3).spec;
    ensure!(
        removed.operation == AuditOperation::Delete && removed.changes.removed == 1,
        "{removed:?}"
    );
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_another_one_a_suspension_or_the_deletion_stops_has_an_audit() -> Result<()>
{
    let story = Story::with_windlass("audit-stopped").await?;
    let web = ("web.yaml", deployment("web", PodBehavior::Unready));
    let upstream = story.follow("apps", &[("a.yaml", config_map("a", "one")), web]).await?;
    let spec = json!({"wait": true, "timeout": "10m"});
    story.kustomization("apps", "apps", spec).await?;
    let apps = StoryObject::kustomization("apps");
    let first = flux_objects::revision(&upstream.repository.hash("main")?);
    story.await_waiting("apps", &first).await?;
    ensure!(audits(&story).await?.is_empty(), "it waits");

    // A new revision arrives before this one is healthy.
    let second = upstream.push(&[("a.yaml", config_map("a", "two"))]).await?;
    story.await_waiting("apps", &second).await?;
    let audit = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(audit.operation == AuditOperation::Apply, "{audit:?}");
    ensure!(audit.outcome == AuditOutcome::Stopped && audit.changes.partial, "{audit:?}");
    ensure!(audit.changes.added == 2, "{:?}", audit.changes);
    let revision = |of: &Option<AuditRevision>| of.as_ref().and_then(|it| it.revision.clone());
    ensure!(revision(&audit.to).as_deref() == Some(&*first), "{:?}", audit.to);
    let text = audit.message.unwrap_or_default();
    ensure!(text.contains("superseded by") && text.contains(&second), "{text}");

    // The user suspends the Kustomization.
    story.merge(&apps, json!({"spec": {"suspend": true}})).await?;
    let audit = await_audits(&story, 2).await?.remove(1).spec;
    ensure!(audit.outcome == AuditOutcome::Stopped, "{audit:?}");
    ensure!(audit.changes.changed == 1 && audit.changes.added == 0, "{:?}", audit.changes);
    ensure!(revision(&audit.to).as_deref() == Some(&*second), "{:?}", audit.to);
    let text = audit.message.unwrap_or_default();
    ensure!(text.contains("suspended"), "{text}");

    // The deletion has its own audit.
    story.merge(&apps, json!({"spec": {"suspend": false}})).await?;
    let third = upstream.push(&[("a.yaml", config_map("a", "three"))]).await?;
    story.await_waiting("apps", &third).await?;
    story.delete(&apps).await?;
    story.await_gone(&apps, DEFAULT_WAIT_TIMEOUT).await?;
    let all = await_audits(&story, 4).await?;
    let stopped = &all[2].spec;
    let deleted = &all[3].spec;
    ensure!(stopped.outcome == AuditOutcome::Stopped, "{stopped:?}");
    ensure!(revision(&stopped.to).as_deref() == Some(&*third), "{:?}", stopped.to);
    let text = stopped.message.as_deref().unwrap_or_default();
    ensure!(text.contains("is being deleted"), "{text}");
    ensure!(deleted.operation == AuditOperation::Delete, "{deleted:?}");
    ensure!(deleted.outcome == AuditOutcome::Succeeded, "{deleted:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_whose_name_another_has_taken_is_reported() -> Result<()> {
    let story = Story::with_windlass("audit-forged").await?;
    let _upstream = story.follow("apps", &[("a.yaml", config_map("a", "one"))]).await?;
    story.kustomization("apps", "apps", json!({})).await?;
    let apps = StoryObject::kustomization("apps");
    story.await_ready(&apps).await?;
    await_audits(&story, 1).await?;
    // The name of the deletion's audit is derived from the status of the object.
    let object = story.expect(&apps).await?;
    let uid = object.metadata.uid;
    let last = &object.data["status"]["history"][0];
    let text = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
    let at: jiff::Timestamp = text("lastReconciled").parse()?;
    let key = format!(
        "{}\ndelete after {} {at} {}",
        uid.context("it has a uid")?,
        text("digest"),
        last["totalReconciliations"]
    );
    let digest = Sha256::digest(key);
    let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("apps-delete-{digits}");
    let api = Api::<ReleaseAudit>::namespaced(story.client.clone(), &story.namespace);
    let forged = ReleaseAudit::new(&name, Default::default());
    api.create(&PostParams::default(), &forged).await?;
    story.delete(&apps).await?;
    story.await_gone(&apps, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("Kustomization", "apps", &name).await?;
    let events = story.events("Kustomization", "apps").await?;
    ensure!(events.iter().any(|it| it.starts_with("Warning AuditFailed")), "{events:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reads_audits_and_neither_creates_nor_deletes_one() -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let story = Story::with_windlass("audit-tenant").await?;
    let policies = include_str!("../../../deploy/policies/release-audits.yaml");
    let made = story.enforce(policies).await?;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    story.apply_value(account).await?;
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    story.apply_value(json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "tenant"}, "rules": rules})).await?;
    let subject = json!({"kind": "ServiceAccount", "name": "tenant", "namespace": story.namespace});
    story
        .apply_value(
            json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [subject]}),
        )
        .await?;
    story.get::<ServiceAccount>("tenant").await?;
    let kubeconfig = story.bed.account_kubeconfig(&story.namespace, "tenant").await?;
    let client = e2e::control_plane::client(&kubeconfig).await?;
    let as_tenant = Api::<ReleaseAudit>::namespaced(client, &story.namespace);
    // A policy comes into force some time after its creation.
    let forged = ReleaseAudit::new("forged", Default::default());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let request = async || as_tenant.create(&dry_run, &forged).await;
    story.await_refusal("only windlass creates", request).await?;
    // windlass can still write audits.
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let written = await_audits(&story, 1).await?;
    let name = written[0].metadata.name.clone().unwrap_or_default();
    ensure!(as_tenant.get(&name).await?.spec == written[0].spec, "a tenant reads its own");
    let refused = as_tenant.delete(&name, &DeleteParams::default()).await;
    let refused = refused.err().context("a tenant deleted an audit")?.to_string();
    ensure!(refused.contains("only windlass creates"), "{refused}");
    for target in made {
        story.delete(&target).await?;
    }
    story.end().await
}
