//! windlass releases with the rights of the ServiceAccount in the spec. The condition names the ServiceAccount and the missing
//! right.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Gives the ServiceAccount `tenant` all rights for these resources in the story's namespace.
pub(crate) async fn allow(story: &Story, resources: &[&str]) -> Result<()> {
    allow_in(story, "", resources).await
}

/// Gives the ServiceAccount `tenant` all rights for these resources of an API group, with a separate Role.
pub(crate) async fn allow_in(story: &Story, group: &str, resources: &[&str]) -> Result<()> {
    let name = format!("tenant{group}");
    let rules = json!([{"apiGroups": [group], "resources": resources, "verbs": ["*"]}]);
    let role =
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules});
    story.apply_value(role).await?;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let subject = json!({"kind": "ServiceAccount", "name": "tenant", "namespace": story.namespace});
    let binding = json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": reference, "subjects": [subject]});
    story.apply_value(binding).await.map(drop)
}

pub(crate) async fn account(story: &Story) -> Result<()> {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    story.apply_value(account).await.map(drop)
}

fn as_tenant(more: Value) -> Value {
    let strategy = json!({"strategy": {"name": "RetryOnFailure", "retryInterval": "1s"}});
    let mut spec =
        json!({"serviceAccountName": "tenant", "install": strategy, "upgrade": strategy});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_of_the_account_is_reported_and_a_new_right_is_enough() -> Result<()> {
    let story = Story::with_windlass("release-tenant").await?;
    let charts = StoryChartRepository::of(&story).await?;
    account(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", as_tenant(json!({}))).await?;
    let user = format!("system:serviceaccount:{}:tenant", story.namespace);
    let text = story.await_message(&app, &user).await?;
    ensure!(text.contains("secrets is forbidden"), "{text}");
    allow(&story, &["secrets"]).await?;
    let text = story.await_message(&app, "app-config").await?;
    ensure!(text.contains(&user) && text.contains("forbidden"), "{text}");
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    allow(&story, &["secrets", "configmaps"]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    // The ServiceAccount that installed the release also removes it. Without the ServiceAccount, the removal fails.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    let app = charts.release("app", as_tenant(json!({}))).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&StoryObject::new("v1", "ServiceAccount", "tenant")).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.await_event("HelmRelease", "app", "ServiceAccount 'tenant' not found").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_cannot_release_into_the_namespace_of_another() -> Result<()> {
    let story = Story::with_windlass("release-tenant-a").await?;
    let other = Story::begin("release-tenant-b").await?;
    let charts = StoryChartRepository::of(&story).await?;
    account(&story).await?;
    allow(&story, &["secrets", "configmaps"]).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let more = json!({"targetNamespace": other.namespace, "releaseName": "app"});
    let app = charts.release("app", as_tenant(more)).await?;
    let text = story.await_message(&app, "app-config").await?;
    ensure!(text.contains("forbidden") && text.contains(":tenant"), "{text}");
    ensure!(other.read(&StoryObject::config_map("app-config")).await?.is_none());
    // A template may not read in another namespace either.
    let peeks = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: peeked}\ndata:\n  \
                 found: {{ (lookup \"v1\" \"ConfigMap\" .Values.there \"kube-root-ca.crt\") | toJson | quote }}\n";
    charts.publish("1.1.0", &[("templates/a.yaml", peeks)]).await?;
    let more = json!({"values": {"there": other.namespace}});
    let peek = charts.release("peek", as_tenant(more)).await?;
    let text = story.await_message(&peek, "kube-root-ca.crt").await?;
    ensure!(text.contains("forbidden") && text.contains(":tenant"), "{text}");
    ensure!(story.read(&StoryObject::config_map("peeked")).await?.is_none());
    other.end().await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_is_used_and_one_that_runs_programs_is_refused() -> Result<()> {
    let story = Story::with_windlass("release-kubeconfig").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let more = json!({"kubeConfig": {"secretRef": {"name": "remote"}}});
    let app = charts.release("app", more).await?;
    story.await_message(&app, "not found").await?;
    let secret = async |text: &str| {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "remote"},
            "stringData": {"value": text}});
        story.apply_value(object).await.map(drop)
    };
    let exec = "{apiVersion: v1, kind: Config, current-context: c, \
        contexts: [{name: c, context: {cluster: a, user: u}}], \
        clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}], \
        users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, \
        args: [x], interactiveMode: Never}}}]}";
    secret(exec).await?;
    let text = story.await_message(&app, "not allowed").await?;
    ensure!(text.contains("exec"), "{text}");
    secret(&std::fs::read_to_string(story.bed.operator_kubeconfig())?).await?;
    story.await_revision(&app, 1).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_fails_that_may_not_delete_what_left_the_chart() -> Result<()> {
    let story = Story::with_windlass("release-tenant-leaving").await?;
    let charts = StoryChartRepository::of(&story).await?;
    account(&story).await?;
    allow(&story, &["secrets", "configmaps"]).await?;
    let other = CONFIG.replace("-config", "-other");
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/b.yaml", &other)]).await?;
    let app = charts.release("app", as_tenant(json!({}))).await?;
    story.await_revision(&app, 1).await?;
    let mut rules = Vec::new();
    rules.push(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}));
    let verbs = ["get", "list", "create", "update", "patch"];
    rules.push(json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}));
    let role =
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "tenant"}, "rules": rules});
    story.apply_value(role).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let text = story.await_message(&app, "failed to delete resource").await?;
    ensure!(text.starts_with("UpgradeFailed: ") && text.contains("app-other"), "{text}");
    story.await_event("HelmRelease", "app", "failed to delete resource").await?;
    let left = StoryObject::config_map("app-other");
    story.expect(&left).await?;
    let object = story.expect(&app).await?;
    let id = format!("{}_app-other__ConfigMap", story.namespace);
    let known = e2e::harness::flux_objects::inventory(&object);
    ensure!(known.contains(&id.as_str()), "what is left stays in the inventory: {known:?}");
    allow(&story, &["secrets", "configmaps"]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&left).await?.is_none());
    story.end().await
}
