//! Hooks of helmfiles that apply manifests: around the operation on their release, in the name of the account.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::release::CONFIG;
use e2e::harness::{Story, Target};
use kube::api::{DynamicObject, ResourceExt as _};
use serde_json::json;

use crate::helmfiles::{CHART, applied, keep, states};

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
        let object = story.expect(&Target::config_map(name)).await?;
        versions.push(version(&object)?);
        let managers: Vec<_> =
            object.managed_fields().iter().filter_map(|it| it.manager.clone()).collect();
        let wanted = if name == "app-config" { "helm-controller" } else { "helmfile-hooks" };
        ensure!(managers == [wanted], "{name}: {managers:?}");
    }
    ensure!(versions.is_sorted(), "{versions:?}");

    // What they name is applied again where it changes, and makes no revision.
    let revision = upstream.push(&[("hooks/app.yaml", config_map("before", "2"))]).await?;
    applied(&story, &shop, &revision).await?;
    story.await_value("before", "2").await?;
    ensure!(story.history("app")?.len() == 1, "the release was upgraded");

    // Programs and events that belong to no operation are refused by name.
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
        story.await_object(&shop, SOON, is_refused).await?;
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
    // The account may create no namespaces.
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
    let is_there = story.read(&Target::config_map("app-config")).await?.is_some();
    ensure!(!is_there, "the release was installed without its hook");
    story.apply(&role("[secrets, configmaps, services]")).await?;
    let revision = upstream.push(&[("note.txt", "rights were given".to_owned())]).await?;
    story.request(&shop).await?;
    applied(&story, &shop, &revision).await?;
    story.expect(&Target::new("v1", "Service", "door")).await?;
    story.expect(&Target::config_map("after-all")).await?;
    story.end().await
}
