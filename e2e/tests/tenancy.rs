//! Tenants: windlass applies objects with the rights of the ServiceAccount in the spec and in the namespace of the spec, and
//! nowhere else.
//!
//! The stories have their own process, because each has a windlass with its own flags that watches only the story's
//! namespace. Elsewhere: stories that share one windlass (`stories.rs`).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::control_plane::{self, ControlPlane};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition, inventory};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess, await_until};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stories::image_signatures::ImageSigner;

/// Gives a ServiceAccount of the story's namespace all rights for ConfigMaps there.
async fn allow_config_maps(story: &Story, account: &str) -> Result<()> {
    let name = "config-maps";
    let namespace = &story.namespace;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name}, "rules": rules});
    story.apply_value(role).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]});
    story.apply_value(binding).await.map(drop)
}

async fn account(story: &Story, name: &str) -> Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    story.apply_value(account).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_without_rights_is_refused_and_goes_on_when_it_has_them() -> Result<()> {
    let story = Story::begin("tenant").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    account(&story, "tenant").await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    let spec = json!({"serviceAccountName": "tenant", "retryInterval": NEVER});
    story.kustomization("app", "app", spec).await?;

    let app = StoryObject::kustomization("app");
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    let user = format!("system:serviceaccount:{}:tenant", story.namespace);
    ensure!(text.contains(&user) && text.contains("forbidden"), "{text}");
    ensure!(
        story.read(&StoryObject::config_map("map")).await?.is_none(),
        "it was applied all the same"
    );

    // The change of the rights wakes the object, long before its retry.
    allow_config_maps(&story, "tenant").await?;
    story.await_ready(&app).await?;
    story.await_value("map", "1").await?;
    // windlass's own watch notices drift, and windlass corrects it with the rights of the tenant.
    story.merge(&StoryObject::config_map("map"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("map", "1").await?;

    // An object that the tenant may not write keeps the whole stage from being written.
    let revision = upstream
        .push(&[
            ("map.yaml", config_map("map", "2")),
            (
                "secret.yaml",
                "{apiVersion: v1, kind: Secret, metadata: {name: not-mine}}".to_owned(),
            ),
        ])
        .await?;
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(text.contains("not-mine") && text.contains("forbidden"), "{revision}: {text}");
    story.await_value("map", "1").await?;
    ensure!(story.read(&StoryObject::new("v1", "Secret", "not-mine")).await?.is_none());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_s_bases_come_from_public_servers_unless_a_flag_says_otherwise() -> Result<()> {
    let story = Story::begin("tenant-bases").await?;
    account(&story, "tenant").await?;
    allow_config_maps(&story, "tenant").await?;
    let far = GitServer::start(GitReadAccess::Open)?;
    let repository = far.repository("bases")?;
    repository.commit(
        &[("kustomization.yaml", "resources: [map.yaml]"), ("map.yaml", &config_map("map", "1"))],
        "a base",
    )?;
    let overlay = format!("resources: [\"{}\"]\n", far.url(&repository));
    let app = StoryObject::kustomization("app");
    // This creates the CustomResourceDefinitions.
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("app", &[("kustomization.yaml", overlay)]).await?;
    {
        let _windlass = windlass;
        let spec = json!({"serviceAccountName": "tenant", "retryInterval": "1s"});
        story.kustomization("app", "app", spec).await?;
        let text = story.await_failure(&app, "BuildFailed").await?;
        ensure!(text.contains("does not resolve to a public address"), "{text}");
        ensure!(far.requests().is_empty(), "it was asked: {:?}", far.requests());
        // With its own rights, windlass may apply it.
        story.merge(&app, json!({"spec": {"serviceAccountName": null}})).await?;
        story.await_ready(&app).await?;
        story.merge(&app, json!({"spec": {"serviceAccountName": "tenant"}})).await?;
        story.await_failure(&app, "BuildFailed").await?;
    }
    for (flag, is_had) in [("--no-remote-bases", false), ("--insecure-remote-bases", true)] {
        let _windlass = WindlassProcess::start_for(&story, &[flag]).await?;
        if is_had {
            story.await_ready(&app).await?;
        } else {
            let refused = |object: &DynamicObject| {
                condition(object, "Ready")["message"].to_string().contains("--no-remote-bases")
            };
            story.await_object(&app, DEFAULT_WAIT_TIMEOUT, refused).await?;
        }
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_repository_that_a_file_may_not_name_fails_its_releases_alone() -> Result<()> {
    let story = Story::begin("refused-charts").await?;
    let _windlass = WindlassProcess::start_for(&story, &["--no-remote-bases"]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/map.yaml", CONFIG)]).await?;
    let closed = ChartServer::start(None)?;
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    closed.publish(&[("Chart.yaml", chart), ("templates/map.yaml", CONFIG)])?;
    let text = format!(
        "repositories: [{{name: open, url: '{}'}}, {{name: closed, url: '{}'}}]\nreleases:\n\
         - {{name: a, chart: open/app, values: [{{value: '1', name: a}}]}}\n\
         - {{name: b, chart: closed/app, values: [{{value: '1', name: b}}]}}\n\
         - {{name: c, chart: open/app, needs: [b], values: [{{value: '1', name: c}}]}}\n",
        charts.server.url(),
        closed.url()
    );
    let _upstream = story.follow("shop", &[("helmfile.yaml", text)]).await?;
    let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "shop"}, "spec": {"interval": NEVER, "prune": true, "retryInterval": "2s",
            "sourceRef": {"kind": "GitRepository", "name": "shop"}}});
    story.apply_value(object).await?;
    let target = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let states = |object: &DynamicObject| -> Vec<String> {
        let rows = object.data["status"]["releases"].as_array().into_iter().flatten();
        rows.filter_map(|row| Some(format!("{} {}", row["name"].as_str()?, row["state"].as_str()?)))
            .collect()
    };
    let is_alone = |object: &DynamicObject| states(object) == ["a Ready", "b Failed", "c Waiting"];
    let object = story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_alone).await?;
    let ready = condition(&object, "Ready");
    let message = ready["message"].to_string();
    ensure!(ready["status"] == "False" && message.contains("--no-remote-bases"), "{ready}");
    ensure!(message.contains("create a HelmRepository with this URL"), "{ready}");

    let repository = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": {"name": "closed"}, "spec": {"interval": NEVER, "url": closed.url()}});
    story.apply_value(repository).await?;
    let is_well = |object: &DynamicObject| states(object) == ["a Ready", "b Ready", "c Ready"];
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_well).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_write_into_the_namespace_of_another() -> Result<()> {
    let story = Story::begin("tenant-a").await?;
    let other = Story::begin("tenant-b").await?;
    let _windlass =
        WindlassProcess::start_for(&story, &["--default-service-account=tenant"]).await?;
    account(&story, "tenant").await?;
    allow_config_maps(&story, "tenant").await?;
    let file = config_map("intruder", "1");
    let _upstream = story.follow("app", &[("map.yaml", file)]).await?;
    let spec = json!({"targetNamespace": other.namespace});
    story.kustomization("app", "app", spec).await?;
    let app = StoryObject::kustomization("app");
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(text.contains("forbidden"), "{text}");
    ensure!(other.read(&StoryObject::config_map("intruder")).await?.is_none());

    // The tenant may not read there either, so the health of another tenant's object is not reported.
    let check = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt",
        "namespace": other.namespace});
    story.kustomization("app", "app", json!({"healthChecks": [check]})).await?;
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(text.contains("forbidden"), "{text}");
    other.end().await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn under_lockdown_no_object_acts_as_windlass_and_no_reference_leaves_the_namespace()
-> Result<()> {
    let story = Story::begin("lockdown").await?;
    let flags = ["--default-service-account=default", "--no-cross-namespace-refs=true"];
    let _windlass = WindlassProcess::start_for(&story, &flags).await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("bare", "app", json!({})).await?;
    let text =
        story.await_failure(&StoryObject::kustomization("bare"), "ReconciliationFailed").await?;
    ensure!(text.contains(&format!("system:serviceaccount:{}:default", story.namespace)), "{text}");

    let elsewhere = json!({"kind": "GitRepository", "name": "app", "namespace": "flux-system"});
    story.kustomization("foreign", "app", json!({"sourceRef": elsewhere})).await?;
    let text = story.await_failure(&StoryObject::kustomization("foreign"), "AccessDenied").await?;
    ensure!(text.contains("cross-namespace references have been blocked"), "{text}");

    // An invalid name cannot become part of another user's name.
    let spec = json!({"serviceAccountName": "a:b"});
    story.kustomization("odd", "app", spec).await?;
    let text =
        story.await_failure(&StoryObject::kustomization("odd"), "ReconciliationFailed").await?;
    ensure!(text.contains("is not the name of a ServiceAccount"), "{text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_verified_with_the_keys_of_the_platform_whatever_a_tenant_annotates()
-> Result<()> {
    let story = Story::begin("verified-images").await?;
    let flags = [
        "--verify-images-namespaces=windlass.dev/story=verified-images",
        "--verify-images-secret=platform",
    ];
    let _windlass = WindlassProcess::start_for(&story, &flags).await?;
    let registry = RegistryServer::start().await?;
    let platform = ImageSigner::new()?;
    let tenant = ImageSigner::new()?;
    platform.publish(&story, "platform").await?;
    tenant.publish(&story, "tenant").await?;
    let files = [("a.yaml", "1")];
    let digest = registry.push_files("app", "1.0.0", &files, json!({})).await?;
    tenant.sign(&registry, "app", &digest, &digest).await?;
    let image = format!("{}/app", registry.host());
    let api = "image.toolkit.fluxcd.io/v1";
    let object = json!({"apiVersion": api, "kind": "ImageRepository", "metadata": {"name": "app"},
        "spec": {"interval": "1h", "image": image}});
    story.apply_value(object).await?;
    let object = json!({"apiVersion": api, "kind": "ImagePolicy",
        "metadata": {"name": "app", "annotations": {"windlass.dev/verify-images": "tenant"}},
        "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}},
            "digestReflectionPolicy": "IfNotPresent"}});
    story.apply_value(object).await?;
    let target = StoryObject::new(api, "ImagePolicy", "app");
    let message = story.await_failure(&target, "VerificationError").await?;
    let place = format!("not signed with a key of secret '{}/platform'", story.namespace);
    ensure!(message.contains(&place), "{message}");

    platform.bundle(&registry, "app", &digest).await?;
    story.request(&target).await?;
    let object = story.await_ready(&target).await?;
    let latest = &object.data["status"]["latestRef"];
    ensure!(*latest == json!({"name": image, "tag": "1.0.0", "digest": digest}), "{latest}");
    let verified = condition(&object, "ImageVerified");
    ensure!(verified["status"] == "True", "{verified}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_account_is_gone_a_deleted_kustomization_leaves_its_objects_and_says_so()
-> Result<()> {
    let story = Story::begin("account-gone").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    account(&story, "tenant").await?;
    allow_config_maps(&story, "tenant").await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({"serviceAccountName": "tenant"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.delete(&StoryObject::new("v1", "ServiceAccount", "tenant")).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("Kustomization", "app", "unable to prune objects").await?;
    story.expect(&StoryObject::config_map("map")).await?;
    story.end().await
}

/// Creates a Secret with a kubeconfig under `value`.
async fn kubeconfig_secret(story: &Story, name: &str, kubeconfig: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"value": kubeconfig}});
    story.apply_value(secret).await.map(drop)
}

fn by_kubeconfig(secret: &str, namespace: &str) -> Value {
    json!({"kubeConfig": {"secretRef": {"name": secret}}, "targetNamespace": namespace, "retryInterval": "2s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_cluster_is_kept_equal_through_a_kubeconfig_secret() -> Result<()> {
    const THERE: &str = "there";
    let story = Story::begin("remote").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let namespace = Namespace {
        metadata: kube::core::ObjectMeta { name: Some(THERE.into()), ..Default::default() },
        ..Namespace::default()
    };
    Api::<Namespace>::all(remote.clone()).create(&PostParams::default(), &namespace).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), THERE);
    let holds = async |value: &str| {
        await_until("the ConfigMap in the remote cluster", DEFAULT_WAIT_TIMEOUT, async || {
            let map = maps.get_opt("map").await?;
            let found = map.and_then(|m| m.data?.get("value").cloned());
            Ok((found.as_deref() == Some(value)).then_some(()))
        })
        .await
    };

    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", by_kubeconfig("remote", THERE)).await?;
    let app = StoryObject::kustomization("app");
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(text.contains("not found"), "{text}");

    let text = std::fs::read_to_string(plane.operator_kubeconfig())?;
    kubeconfig_secret(&story, "remote", &text).await?;
    let ready = story.await_ready(&app).await?;
    holds("1").await?;
    ensure!(inventory(&ready).len() == 1);
    ensure!(
        story
            .read(&StoryObject::config_map("map").in_namespace(THERE))
            .await
            .is_ok_and(|m| m.is_none())
    );

    // windlass notices drift in the other cluster at once, although every interval is ten minutes.
    let edit = json!({"data": {"value": "edited"}});
    maps.patch("map", &PatchParams::default(), &Patch::Merge(edit)).await?;
    holds("1").await?;
    let revision = upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    story.await_applied("app", &revision).await?;
    holds("2").await?;

    // If the Secret changes to unusable content, the reconciliation stops and deletes nothing.
    let secrets = Api::<Secret>::namespaced(story.client.clone(), &story.namespace);
    kubeconfig_secret(&story, "remote", "users: [").await?;
    let text = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(text.contains("is not a kubeconfig"), "{text}");
    ensure!(maps.get_opt("map").await?.is_some());
    secrets.delete("remote", &DeleteParams::default()).await?;
    kubeconfig_secret(&story, "remote", &text_of(&plane)?).await?;
    story.await_applied("app", &revision).await?;

    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(maps.get_opt("map").await?.is_none(), "it is still in the remote cluster");
    story.end().await
}

fn text_of(plane: &ControlPlane) -> Result<String> {
    Ok(std::fs::read_to_string(plane.operator_kubeconfig())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_runs_no_program_and_a_dead_cluster_delays_no_other_object() -> Result<()> {
    let story = Story::begin("kubeconfigs").await?;
    let windlass = WindlassProcess::start_for(&story, &["--concurrent-kustomize=1"]).await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    let mark = windlass.operator.folder().join("was-run");
    let kubeconfig = |user: &str| {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: a, user: u}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:9'}}}}], \
             users: [{{name: u, user: {user}}}]}}"
        )
    };
    let mark_text = mark.display();
    for (name, user, what) in [
        (
            "exec",
            format!(
                "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{mark_text}'], interactiveMode: Never}}}}"
            ),
            "exec",
        ),
        (
            "plugin",
            "{auth-provider: {name: gcp, config: {cmd-path: touch}}}".to_owned(),
            "auth-provider",
        ),
        ("file", "{tokenFile: /etc/hostname}".to_owned(), "tokenFile"),
        (
            "certificate",
            "{client-certificate: /etc/hostname, client-key: /etc/hostname}".to_owned(),
            "client-certificate",
        ),
    ] {
        kubeconfig_secret(&story, name, &kubeconfig(&user)).await?;
        story.kustomization(name, "app", by_kubeconfig(name, "x")).await?;
        let text =
            story.await_failure(&StoryObject::kustomization(name), "ReconciliationFailed").await?;
        ensure!(text.contains(what) && text.contains("not allowed"), "{name}: {text}");
    }
    ensure!(!mark.exists(), "a program of a kubeconfig was run");

    // 192.0.2.0/24 is reserved for documentation, so no server answers there.
    let dead = kubeconfig("{token: t}").replace("127.0.0.1:9", "192.0.2.1:6443");
    kubeconfig_secret(&story, "dead", &dead).await?;
    for at in 0..24 {
        story.kustomization(&format!("dead-{at}"), "app", by_kubeconfig("dead", "x")).await?;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    story.kustomization("alive", "app", json!({})).await?;
    let alive = StoryObject::kustomization("alive");
    story.await_condition(&alive, "Ready", "True", Duration::from_secs(20)).await?;
    story.end().await
}
