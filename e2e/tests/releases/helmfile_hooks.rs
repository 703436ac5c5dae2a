//! Hooks of helmfiles that apply manifests. They run around the operation on their release, with the rights of the
//! ServiceAccount.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, by_value};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject};
use kube::api::{DynamicObject, ResourceExt as _};
use serde_json::json;

use crate::releases::helmfiles::{CHART, applied, keep, row, states};

/// One hook before the release, named by a template, and one after it that is a kustomization.
const HOOKS: &str = "releases:\n- name: app\n  chart: ./app\n  values: [{value: one}]\n  hooks:\n  \
    - events: [presync]\n    kubectlApply: {filename: 'hooks/{{ .Release.Name }}.yaml'}\n  \
    - name: after\n    events: [postsync]\n    kubectlApply: {kustomize: hooks/after}\n";

fn version(object: &DynamicObject) -> Result<u64> {
    Ok(object.resource_version().context("it has a version")?.parse()?)
}

fn files(before: &str) -> Vec<(&'static str, String)> {
    vec![
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("hooks/app.yaml", config_map("before", before)),
        ("hooks/after/kustomization.yaml", "nameSuffix: -all\nresources: [map.yaml]\n".to_owned()),
        ("hooks/after/map.yaml", config_map("after", "1")),
        ("helmfile.yaml", HOOKS.to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_hooks_are_applied_before_and_after_their_release() -> Result<()> {
    let story = Story::with_windlass("helmfile-hooks").await?;
    let upstream = story.follow("shop", &files("1")).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(states(&object) == ["app Ready"], "{:?}", states(&object));
    let mut versions = Vec::new();
    for name in ["before", "app-config", "after-all"] {
        let object = story.expect(&StoryObject::config_map(name)).await?;
        versions.push(version(&object)?);
        let managers: Vec<_> =
            object.managed_fields().iter().filter_map(|it| it.manager.clone()).collect();
        let wanted = if name == "app-config" { "helm-controller" } else { "helmfile-hooks" };
        ensure!(managers == [wanted], "{name}: {managers:?}");
    }
    ensure!(versions.is_sorted(), "{versions:?}");

    // A changed manifest of a hook is applied again, without a new release revision.
    let revision = upstream.push(&[("hooks/app.yaml", config_map("before", "2"))]).await?;
    applied(&story, &shop, &revision).await?;
    story.await_value("before", "2").await?;
    ensure!(story.history("app")?.len() == 1, "the release was upgraded");

    // windlass refuses programs and events that belong to no operation, and names them.
    for (hook, parts) in [
        (
            "{name: sweep, events: [presync], command: rm, args: [-rf]}",
            ["`sweep`", "runs a program"],
        ),
        ("{events: [prepare], kubectlApply: {filename: hooks/app.yaml}}", ["`prepare`", "presync"]),
    ] {
        let text = format!("releases:\n- {{name: app, chart: ./app, hooks: [{hook}]}}\n");
        upstream.push(&[("helmfile.yaml", text)]).await?;
        let is_refused = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            let text = ready["message"].as_str().unwrap_or_default();
            ready["reason"] == "HelmfileError" && parts.iter().all(|part| text.contains(part))
        };
        story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_refused).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_is_applied_in_the_name_of_the_account_of_its_helmfile() -> Result<()> {
    let story = Story::with_windlass("helmfile-hooks-account").await?;
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: door}\nspec: {ports: [{port: 80}]}\n";
    let mut files = files("1");
    files.push(("hooks/app.yaml", service.to_owned()));
    files.remove(2);
    // The ServiceAccount may create no namespaces.
    let helmfile = format!("helmDefaults: {{createNamespace: false}}\n{HOOKS}");
    files.retain(|(path, _)| *path != "helmfile.yaml");
    files.push(("helmfile.yaml", helmfile));
    let upstream = story.follow("shop", &files).await?;
    let role = |resources: &str| {
        format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: tenant}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: tenant}}\n\
             rules: [{{apiGroups: [''], resources: {resources}, verbs: ['*']}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: tenant}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}\n\
             subjects: [{{kind: ServiceAccount, name: tenant, namespace: {}}}]\n",
            story.namespace
        )
    };
    story.apply(&role("[secrets, configmaps]")).await?;
    let shop = keep(&story, "shop", json!({"serviceAccountName": "tenant"})).await?;
    let text = story.await_failure(&shop, "ReleaseFailed").await?;
    let user = format!("system:serviceaccount:{}:tenant", story.namespace);
    ensure!(text.contains("hook `kubectlApply`") && text.contains(&user), "{text}");
    let is_there = story.read(&StoryObject::config_map("app-config")).await?.is_some();
    ensure!(!is_there, "the release was installed without its hook");
    story.apply(&role("[secrets, configmaps, services]")).await?;
    let revision = upstream.push(&[("note.txt", "rights were given".to_owned())]).await?;
    story.request(&shop).await?;
    applied(&story, &shop, &revision).await?;
    story.expect(&StoryObject::new("v1", "Service", "door")).await?;
    story.expect(&StoryObject::config_map("after-all")).await?;
    story.end().await
}

fn crd(group: &str) -> StoryObject {
    StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_a_definition_of_a_hook_comes_when_its_kind_is_served() -> Result<()> {
    let story = Story::with_windlass("helmfile-hooks-crds").await?;
    let group = format!("{}.example.com", story.namespace);
    // The objects are in the same hook, in the next one, and in the chart.
    let first = format!("{}---\n{}", widget_crd(&group), widget(&group, "first"));
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/widget.yaml", widget(&group, "third")),
        ("hooks/app.yaml", first),
        ("hooks/second.yaml", widget(&group, "second")),
        (
            "helmfile.yaml",
            "releases:\n- name: app\n  chart: ./app\n  hooks:\n  \
             - {events: [presync], kubectlApply: {filename: hooks/app.yaml}}\n  \
             - {events: [presync], kubectlApply: {filename: hooks/second.yaml}}\n"
                .to_owned(),
        ),
    ];
    let _upstream = story.follow("shop", &files).await?;
    let shop = keep(&story, "shop", json!({"retryInterval": "10m"})).await?;
    story.await_ready(&shop).await?;
    for name in ["first", "second", "third"] {
        story.expect(&StoryObject::new(&format!("{group}/v1"), "Widget", name)).await?;
    }
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    let events = story.events("Helmfile", "shop").await?;
    ensure!(!events.iter().any(|it| it.contains("failed")), "{events:#?}");
    // The changes of hooks have their own audit, before that of the release.
    let audits = audits(&story).await?;
    let summaries: Vec<String> = audits
        .iter()
        .map(|it| format!("{} +{} {}", it.spec.operation, it.spec.changes.added, it.spec.outcome))
        .collect();
    ensure!(summaries == ["Apply +3 Succeeded", "Install +1 Succeeded"], "{summaries:?}");
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_have_limits_of_time_and_objects_and_wait_for_windows() -> Result<()> {
    let story = Story::with_windlass("helmfile-hooks-limits").await?;
    let many: Vec<String> = (0..501).map(|at| config_map(&format!("many-{at}"), "1")).collect();
    let release = |hook: &str, more: &str| {
        format!(
            "releases:\n- {{name: app, chart: ./app, hooks: [{{events: [presync], kubectlApply: \
             {{filename: hooks/{hook}.yaml}}}}]}}\n{more}"
        )
    };
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("slow/Chart.yaml", CHART.replace("app", "slow")),
        ("slow/templates/web.yaml", by_value()),
        ("hooks/many.yaml", many.join("---\n")),
        ("hooks/app.yaml", config_map("before", "1")),
        ("helmfile.yaml", release("many", "")),
    ];
    let upstream = story.follow("shop", &files).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let text = story.await_failure(&shop, "ReleaseFailed").await?;
    ensure!(text.contains("may apply 500 objects"), "{text}");
    story.merge(&shop, json!({"spec": {"timeout": "0s"}})).await?;
    upstream.push(&[("helmfile.yaml", release("app", ""))]).await?;
    let is_late = |object: &DynamicObject| {
        condition(object, "Ready")["message"].as_str().is_some_and(|it| it.contains("timed out"))
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_late).await?;
    ensure!(
        story.read(&StoryObject::config_map("app-config")).await?.is_none(),
        "it was installed"
    );

    story.merge(&shop, json!({"spec": {"timeout": null}})).await?;

    // While a release is being processed, a closed window holds changes that only hooks would make.
    let slow = "- {name: slow, chart: ./slow, wait: true, values: [{pods: unready}]}\n";
    upstream.push(&[("helmfile.yaml", release("app", slow))]).await?;
    let is_under_way = |object: &DynamicObject| {
        let mut found = states(object);
        found.sort();
        found == ["app Ready", "slow Progressing"]
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_under_way).await?;
    let opened = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(3);
    let closed = format!("{} 1h", opened.strftime("%M %H * * *"));
    let annotations = json!({"windlass.dev/window": closed});
    story.merge(&shop, json!({"metadata": {"annotations": annotations}})).await?;
    upstream.push(&[("hooks/app.yaml", config_map("before", "2"))]).await?;
    let waits = |object: &DynamicObject| {
        let row = row(object, "app").ok();
        row.and_then(|row| row["message"].as_str()).is_some_and(|it| it.contains("until a window"))
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, waits).await?;
    story.await_value("before", "1").await?;
    let annotations = json!({"windlass.dev/window": null});
    story.merge(&shop, json!({"metadata": {"annotations": annotations}})).await?;
    story.await_value("before", "2").await?;
    story.end().await
}
