//! Settings of the spec: how objects are merged, how much history is kept, what windlass waits for, and what it cleans up.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, VALUES, hook};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn where_the_server_does_not_merge_we_do() -> Result<()> {
    let story = Story::with_windlass("release-merged").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let more = format!("{CONFIG}{{{{ if .Values.extra }}}}  extra: x\n{{{{ end }}}}");
    charts.publish("1.0.0", &[("templates/a.yaml", &more)]).await?;
    let spec = json!({"install": {"serverSideApply": false}, "values": {"extra": true}});
    let app = charts.release("app", spec).await?;
    story.await_revision(&app, 1).await?;
    let metadata = story.helm_says(&["get", "metadata", "app"])?;
    ensure!(metadata.contains("client-side apply"), "{metadata}");
    let config = StoryObject::config_map("app-config");
    let live = story.expect(&config).await?;
    ensure!(live.data["data"]["extra"] == "x", "{:?}", live.data);
    let is_update = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        it.operation.as_deref() == Some("Update")
    };
    ensure!(live.metadata.managed_fields.iter().flatten().all(is_update), "the server merged");
    story.merge(&config, json!({"data": {"theirs": "y"}})).await?;
    // By default, an upgrade merges in the same way as the installation.
    story.merge(&app, json!({"spec": {"values": {"extra": false, "value": "z"}}})).await?;
    story.await_revision(&app, 2).await?;
    let live = story.expect(&config).await?;
    let wanted = json!({"chart": "1.0.0", "theirs": "y", "value": "z"});
    ensure!(live.data["data"] == wanted, "{:?}", live.data);
    ensure!(live.metadata.managed_fields.iter().flatten().all(is_update), "the server merged");
    // The API server now merges, and still knows which fields belong to windlass.
    let spec = json!({"upgrade": {"serverSideApply": "enabled"}, "values": {"extra": true}});
    story.merge(&app, json!({"spec": spec})).await?;
    story.await_revision(&app, 3).await?;
    let metadata = story.helm_says(&["get", "metadata", "app"])?;
    ensure!(metadata.contains("server-side apply"), "{metadata}");
    story.merge(&app, json!({"spec": {"values": {"extra": false}}})).await?;
    story.await_revision(&app, 4).await?;
    let live = story.expect(&config).await?;
    ensure!(
        live.data["data"]["extra"].is_null() && live.data["data"]["theirs"] == "y",
        "{:?}",
        live.data
    );
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upgrade_cleans_up_what_it_created_where_that_is_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-cleaned").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app =
        charts.release("app", json!({"upgrade": {"timeout": "2s", "cleanupOnFail": true}})).await?;
    story.await_revision(&app, 1).await?;
    let new = CONFIG.replace("-config", "-new");
    let web = deployment("web", PodBehavior::Unready);
    let files =
        [("templates/a.yaml", CONFIG), ("templates/b.yaml", &new), ("templates/d.yaml", &web)];
    charts.publish("1.1.0", &files).await?;
    story.await_failure(&app, "UpgradeFailed").await?;
    story.await_gone(&StoryObject::config_map("app-new"), DEFAULT_WAIT_TIMEOUT).await?;
    story
        .await_gone(&StoryObject::new("apps/v1", "Deployment", "web"), DEFAULT_WAIT_TIMEOUT)
        .await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    // Without that setting, the objects stay.
    story
        .merge(&app, json!({"spec": {"upgrade": {"timeout": "2s", "cleanupOnFail": false}}}))
        .await?;
    story
        .await_until("a second failure", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((story.history("app")?.len() == 3).then_some(()))
        })
        .await?;
    story.await_failure(&app, "UpgradeFailed").await?;
    story.expect(&StoryObject::config_map("app-new")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_waited_for_and_no_more_is_kept_than_the_spec_says() -> Result<()> {
    let story = Story::with_windlass("release-kept").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = deployment("web", PodBehavior::Unready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &web)]).await?;
    let spec = json!({"maxHistory": 2, "install": {"disableWait": true},
        "upgrade": {"disableWait": true}, "uninstall": {"keepHistory": true}});
    let app = charts.release("app", spec.clone()).await?;
    story.await_revision(&app, 1).await?;
    for revision in 2..=4 {
        story.merge(&app, json!({"spec": {"values": {"value": format!("v{revision}")}}})).await?;
        story.await_revision(&app, revision).await?;
    }
    ensure!(
        story.history("app")?
            == [
                "3 | superseded | app-1.0.0 | Upgrade complete",
                "4 | deployed | app-1.0.0 | Upgrade complete",
            ]
    );
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("app-config"), DEFAULT_WAIT_TIMEOUT).await?;
    let history = story.history("app")?;
    ensure!(history.last().is_some_and(|it| it.starts_with("4 | uninstalled")), "{history:?}");

    // The kept history is no longer a release, so a new release is installed over it.
    let app = charts.release("app", spec).await?;
    story.await_revision(&app, 5).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_kept_hooks_left_out_and_schemas_passed_over_where_the_spec_says_so()
-> Result<()> {
    let story = Story::with_windlass("release-ways").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let broken = hook("migrate", "pre-install,pre-upgrade,pre-delete", 0, "", PodBehavior::Fail);
    let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\nbogus: 1\n";
    let files = [
        ("templates/a.yaml", VALUES),
        ("templates/h.yaml", broken.as_str()),
        ("templates/o.yaml", odd),
    ];
    charts.publish("1.0.0", &files).await?;
    // If the API server merges, it refuses unknown fields itself.
    let without =
        json!({"disableHooks": true, "disableOpenAPIValidation": true, "serverSideApply": false});
    let install = json!({"disableHooks": true, "serverSideApply": false});
    let spec = json!({"values": {"a": 1}, "install": install, "uninstall": {"disableHooks": true}});
    let app = charts.release("app", spec).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains("odd") && text.contains("unknown field \"bogus\""), "{text}");
    let upgrade =
        json!({"disableHooks": true, "disableOpenAPIValidation": true, "preserveValues": true});
    let spec = json!({"install": without, "upgrade": upgrade});
    story.merge(&app, json!({"spec": spec})).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.merge(&app, json!({"spec": {"values": {"a": null, "b": 2}}})).await?;
    let both = |it: &kube::api::DynamicObject| it.data["data"]["all"] == r#"{"a":1,"b":2}"#;
    story.await_object(&StoryObject::config_map("app-values"), DEFAULT_WAIT_TIMEOUT, both).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::new("batch/v1", "Job", "migrate")).await?.is_none());
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::config_map("app-values")).await?.is_none());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_leaves_what_is_to_stay_and_orphans_where_that_is_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-orphans").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let kept = CONFIG.replace(
        "{name: {{ .Release.Name }}-config}",
        "{name: kept, annotations: {helm.sh/resource-policy: keep}}",
    );
    let web = deployment("web", PodBehavior::Ready);
    let files =
        [("templates/a.yaml", CONFIG), ("templates/k.yaml", &kept), ("templates/d.yaml", &web)];
    charts.publish("1.0.0", &files).await?;
    let app =
        charts.release("app", json!({"uninstall": {"deletionPropagation": "orphan"}})).await?;
    story.await_revision(&app, 1).await?;
    let sets = async || {
        let api = kube::Api::<k8s_openapi::api::apps::v1::ReplicaSet>::namespaced(
            story.client.clone(),
            &story.namespace,
        );
        anyhow::Ok(api.list(&kube::api::ListParams::default()).await?.items.len())
    };
    ensure!(sets().await? == 1);
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::new("apps/v1", "Deployment", "web")).await?.is_none());
    ensure!(sets().await? == 1, "what the Deployment owned went with it");
    story.expect(&StoryObject::config_map("kept")).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_server_does_not_merge_objects_are_replaced_if_the_spec_says_so() -> Result<()> {
    let story = Story::with_windlass("release-replaced").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let spec = json!({"install": {"serverSideApply": false}, "upgrade": {"force": true}});
    let app = charts.release("app", spec).await?;
    story.await_revision(&app, 1).await?;
    let config = StoryObject::config_map("app-config");
    let first = story.merge(&config, json!({"data": {"theirs": "y"}})).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "z"}}})).await?;
    story.await_revision(&app, 2).await?;
    let live = story.expect(&config).await?;
    let wanted = json!({"chart": "1.0.0", "value": "z"});
    ensure!(live.data["data"] == wanted, "what others wrote stayed: {:?}", live.data);
    ensure!(live.metadata.uid == first.metadata.uid, "it was created anew");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_created_is_reported_as_helm_reports_it() -> Result<()> {
    let story = Story::with_windlass("release-no-create").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                   spec: {type: {{ .Values.type }}, ports: [{port: 80}]}\n";
    charts.publish("1.0.0", &[("templates/s.yaml", service)]).await?;
    let merged = json!({"serverSideApply": false});
    let spec = json!({"install": merged, "values": {"type": "Odd"}});
    let app = charts.release("app", spec).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains("failed to create resource: Service \"web\" is invalid"), "{text}");
    story.merge(&app, json!({"spec": {"values": {"type": "ClusterIP"}}})).await?;
    story.await_revision(&app, 2).await?;
    story.merge(&app, json!({"spec": {"values": {"type": "Odd"}}})).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(text.contains("cannot patch \"web\" with kind Service"), "{text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_what_its_objects_own_where_that_is_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-foreground").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = deployment("web", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/d.yaml", &web)]).await?;
    let uninstall = json!({"deletionPropagation": "foreground", "timeout": "10m"});
    let app = charts.release("app", json!({"uninstall": uninstall})).await?;
    story.await_revision(&app, 1).await?;
    let sets = kube::Api::<k8s_openapi::api::apps::v1::ReplicaSet>::namespaced(
        story.client.clone(),
        &story.namespace,
    );
    let set = sets.list(&kube::api::ListParams::default()).await?.items.pop();
    let set = set.and_then(|it| it.metadata.name).context("the Deployment has no ReplicaSet")?;
    let set = StoryObject::new("apps/v1", "ReplicaSet", &set);
    story.merge(&set, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await?;
    story.delete(&app).await?;
    let deployment = StoryObject::new("apps/v1", "Deployment", "web");
    story
        .await_object(&deployment, DEFAULT_WAIT_TIMEOUT, |it| {
            let finalizers = it.metadata.finalizers.as_deref().unwrap_or_default();
            it.metadata.deletion_timestamp.is_some()
                && finalizers.iter().any(|it| it == "foregroundDeletion")
        })
        .await?;
    story.expect(&app).await?;
    story.merge(&set, json!({"metadata": {"finalizers": null}})).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    for gone in [&deployment, &set] {
        ensure!(story.read(gone).await?.is_none(), "{gone} is still there");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_get_owner_references_where_they_are_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-owned").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, \
                metadata: {name: '{{ .Release.Namespace }}'}}";
    let templates = [("templates/a.yaml", CONFIG), ("templates/b.yaml", role)];
    charts.publish("1.0.0", &templates).await?;
    let app = charts.release("app", json!({"driftDetection": {"mode": "enabled"}})).await?;
    story.await_revision(&app, 1).await?;
    let config = StoryObject::config_map("app-config");
    let owners =
        |it: &kube::api::DynamicObject| it.metadata.owner_references.clone().unwrap_or_default();
    ensure!(owners(&story.expect(&config).await?).is_empty());
    let asked = json!({"release.windlass.dev/owner-references": "true"});
    story.merge(&app, json!({"metadata": {"annotations": asked}})).await?;
    charts.publish("1.1.0", &templates).await?;
    let object = story.await_revision(&app, 2).await?;
    let owned = owners(&story.expect(&config).await?);
    ensure!(
        owned.len() == 1 && owned[0].uid == object.metadata.uid.unwrap_or_default(),
        "{owned:?}"
    );
    ensure!(owned[0].kind == "HelmRelease" && owned[0].controller.is_none(), "{owned:?}");
    let role = StoryObject::of::<ClusterRole>(&story.namespace);
    ensure!(owners(&story.expect(&role).await?).is_empty(), "owner references cross no namespaces");
    // Owner references are no drift, and the garbage collector follows them.
    story.rerun(&app).await?;
    ensure!(story.history("app")?.len() == 2);
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    story.delete(&app).await?;
    // The garbage collector learns of new kinds only from time to time.
    story.await_gone(&config, DEFAULT_WAIT_TIMEOUT * 2).await?;
    story.delete(&role).await?;
    story.end().await
}
