//! windlass replaces Flux in a cluster, and Flux is restored. The managed objects are not written.
//!
//! The stories have their own process, because CRDs and ClusterRoles are cluster-scoped. Here, Flux consists of its
//! Deployments, whose Pods run no processes.
//! Elsewhere: which operators may run together (`leader.rs`), the real helm-controller (`releases_with_own_windlass`).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::installed_windlass::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const CONTROLLERS: [&str; 3] = ["source-controller", "kustomize-controller", "helm-controller"];
const TEMPLATE: (&str, &str) = (
    "templates/a.yaml",
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: of-release}, data: {a: b}}\n",
);

fn controller(name: &str) -> StoryObject {
    StoryObject::new("apps/v1", "Deployment", name)
}

fn service() -> StoryObject {
    StoryObject::new("v1", "Service", "source-controller")
}

fn record() -> StoryObject {
    StoryObject::new("v1", "ConfigMap", "windlass-migration")
}

/// Creates Flux's Deployments and the Service for its artifacts.
async fn flux(story: &Story) -> Result<()> {
    let labels = json!({"app.kubernetes.io/part-of": "flux"});
    for name in CONTROLLERS {
        let app = json!({"app": name});
        let containers = json!([{"name": "manager", "image": format!("{name}:v1")}]);
        let replicas = if name == "source-controller" { 2 } else { 1 };
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": app},
                "template": {"metadata": {"labels": app}, "spec": {"containers": containers}},
            },
        });
        story.apply_value(object).await?;
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "source-controller", "labels": labels},
        "spec": {"selector": {"app": "source-controller"}, "ports": [{"name": "http", "port": 80}]},
    });
    story.apply_value(object).await?;
    await_flux(story, [2, 1, 1]).await
}

async fn await_flux(story: &Story, replicas: [i64; 3]) -> Result<()> {
    for (name, wanted) in CONTROLLERS.iter().zip(replicas) {
        let has = |object: &DynamicObject| {
            let ready = object.data["status"]["readyReplicas"].as_i64().unwrap_or(0);
            object.data["spec"]["replicas"] == wanted && ready == wanted
        };
        story.await_object(&controller(name), DEFAULT_WAIT_TIMEOUT, has).await?;
    }
    Ok(())
}

/// Creates a Kustomization that applies Flux, as `flux bootstrap` does.
async fn bootstrap(story: &Story) -> Result<StoryObject> {
    story
        .kustomization("flux-system", "app", json!({"suspend": true, "path": "./clusters/one"}))
        .await?;
    let target = StoryObject::kustomization("flux-system");
    let entries: Vec<Value> = CONTROLLERS
        .iter()
        .map(|name| json!({"id": format!("{}_{name}_apps_Deployment", story.namespace), "v": "v1"}))
        .collect();
    story.merge_status(&target, json!({"status": {"inventory": {"entries": entries}}})).await?;
    story.merge(&target, json!({"spec": {"suspend": false}})).await?;
    Ok(target)
}

/// The fields of an object that must not change.
async fn identity(story: &Story, target: &StoryObject) -> Result<(Option<String>, Option<String>)> {
    let object = story.expect(target).await?;
    Ok((object.metadata.uid, object.metadata.resource_version))
}

/// Runs `windlass migrate` in the namespace of the story.
fn migrate(story: &Story, direction: &str, more: &[&str], is_success: bool) -> Result<String> {
    let here = ["migrate", direction, "-n", story.namespace.as_str()];
    story.windlass_says(&[&here, more].concat(), is_success)
}

/// windlass names the obstacles, and changes nothing, also in a dry-run.
async fn obstacles(story: &Story) -> Result<()> {
    // A field that windlass does not support is an obstacle, and nothing is changed.
    story
        .kustomization(
            "sealed",
            "app",
            json!({"decryption": {"provider": "sops", "serviceAccountName": "keys"}, "suspend": true}),
        )
        .await?;
    let text = migrate(story, "from-flux", &[], false)?;
    let obstacle =
        format!("Kustomization/{}/sealed uses spec.decryption.serviceAccountName", story.namespace);
    ensure!(text.contains(&obstacle), "{text}");
    ensure!(text.contains("nothing was changed"), "{text}");
    story.delete(&StoryObject::kustomization("sealed")).await?;
    story
        .await_gone(&StoryObject::kustomization("sealed"), DEFAULT_WAIT_TIMEOUT)
        .await
        .or_else(|_| anyhow::Ok(()))?;
    // windlass lists the deletions that the deletion budget would hold.
    story.kustomization("data", "app", json!({"suspend": true})).await?;
    let data = StoryObject::kustomization("data");
    let claim = json!([{"id": "shop_data__PersistentVolumeClaim", "v": "v1"}]);
    story.merge_status(&data, json!({"status": {"inventory": {"entries": claim}}})).await?;
    let text = migrate(story, "from-flux", &["--dry-run"], true)?;
    ensure!(text.contains("1  PersistentVolumeClaim/shop/data\n"), "{text}");
    story.delete(&data).await?;
    ensure!(text.contains("helm-controller would be scaled to zero"), "{text}");
    led_outside(story).await?;
    await_flux(story, [2, 1, 1]).await?;
    ensure!(story.read(&deployment(&story.namespace)).await?.is_none(), "something was installed");

    Ok(())
}

/// A process outside of the cluster is an obstacle if the Pods of windlass would wait for it. A dry-run says so.
async fn led_outside(story: &Story) -> Result<()> {
    let now = jiff::Timestamp::now();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "windlass-leader-election"},
        "spec": {"holderIdentity": "laptop", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")}});
    story.apply_value(lease).await?;
    for more in [&["--dry-run"][..], &[]] {
        let text = migrate(story, "from-flux", more, false)?;
        ensure!(text.contains("'laptop' holds Lease "), "{text}");
        ensure!(text.contains("nothing was changed") && !text.contains("would be"), "{text}");
    }
    let lease = "windlass-leader-election";
    let lease = StoryObject::new("coordination.k8s.io/v1", "Lease", lease);
    story.delete(&lease).await
}

/// A migration that fails is undone.
async fn undone(story: &Story, system: &StoryObject) -> Result<()> {
    // Replicas with volumes never become ready here, so the migration is undone.
    let failing = &["--profile=high-availability", "--timeout=8s"];
    let text = migrate(story, "from-flux", failing, false)?;
    ensure!(text.contains("not ready in time") && text.contains("Flux is as it was"), "{text}");
    let workload = format!("StatefulSet/{}/windlass-controller", story.namespace);
    ensure!(text.contains("objects of windlass stay") && text.contains(&workload), "{text}");
    ensure!(text.contains("CRD(s) of Flux's kinds stay"), "{text}");
    await_flux(story, [2, 1, 1]).await?;
    let found = story.expect(&service()).await?;
    ensure!(found.data["spec"]["selector"] == json!({"app": "source-controller"}), "{found:?}");
    ensure!(story.expect(system).await?.data["spec"]["suspend"] != true, "it is still suspended");
    ensure!(story.read(&record()).await?.is_none(), "the record is still there");
    story.windlass_says(&["uninstall", "--silent", "-n", &story.namespace], true)?;
    Ok(())
}

/// windlass reads objects of Argo CD from the cluster and from files, and writes nothing.
async fn converted(story: &Story) -> Result<()> {
    let text = story.windlass_says(&["migrate", "from-argocd"], false)?;
    ensure!(text.contains("there is no object of kind Application"), "{text}");
    let group = "argoproj.io";
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1alpha1", "served": true, "storage": true, "schema": schema});
    story
        .apply_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("applications.{group}")},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": "Application", "plural": "applications", "singular": "application"},
                "versions": [version],
            },
        }))
        .await?;
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "guestbook", "namespace": story.namespace},
        "spec": {
            "source": {"repoURL": "https://example.com/apps.git", "path": "guestbook", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "guestbook"},
        },
    });
    let crd = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("applications.{group}"),
    );
    story.await_condition(&crd, "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply_value(application.clone()).await?;
    let of_cluster = story.windlass_says(&["migrate", "from-argocd"], true)?;
    ensure!(of_cluster.contains("path: ./guestbook\n"), "{of_cluster}");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), application.to_string())?;
    let path = file.path().display().to_string();
    let of_file = story.windlass_says(&["migrate", "from-argocd", "-f", &path], true)?;
    ensure!(of_cluster == of_file, "{of_file}");
    story.delete(&crd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_taken_over_from_flux_and_given_back() -> Result<()> {
    let story = Story::begin("migration").await?;
    converted(&story).await?;
    let namespace = story.namespace.clone();
    // The objects that Flux would have applied, and the statuses that it would have written.
    let mut before = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "0"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[TEMPLATE]).await?;
    let release = charts.release("web", json!({})).await?;
    story.await_revision(&release, 1).await?;
    before.operator.stop(DEFAULT_WAIT_TIMEOUT)?;

    let text = migrate(&story, "from-flux", &[], false)?;
    ensure!(text.contains(&format!("no controller of Flux is in namespace {namespace}")), "{text}");
    flux(&story).await?;
    let system = bootstrap(&story).await?;
    let managed = [StoryObject::config_map("map"), StoryObject::config_map("of-release")];
    let mut known = Vec::new();
    for target in &managed {
        known.push(identity(&story, target).await?);
    }

    obstacles(&story).await?;
    undone(&story, &system).await?;

    let take_over = ["migrate", "from-flux", "-n", &namespace, "--observe=1s"];
    let (text, mut windlass) = story.windlass_installs(&take_over, &deployment(&namespace)).await?;
    ensure!(text.contains("windlass acts: 'windlass-controller-"), "{text}");
    ensure!(text.contains("nothing was written to what is managed"), "{text}");
    ensure!(text.contains("clusters/one/") && text.contains("gotk-components.yaml"), "{text}");
    await_flux(&story, [0, 0, 0]).await?;
    let found = story.expect(&service()).await?;
    ensure!(found.data["spec"]["selector"] == json!({"app": "windlass-controller"}), "{found:?}");
    ensure!(story.expect(&system).await?.data["spec"]["suspend"] == true, "it is not suspended");

    let revision = upstream.push(&[("other.yaml", config_map("other", "1"))]).await?;
    story.await_applied("app", &revision).await?;
    story.await_value("other", "1").await?;
    for (target, known) in managed.iter().zip(&known) {
        ensure!(identity(&story, target).await? == *known, "{target:?} was written");
    }
    let found = story.expect(&release).await?;
    ensure!(newest(&found)["version"] == 1, "{:?}", found.data["status"]["history"]);
    ensure!(condition(&found, "Ready")["status"] == "True", "{:?}", found.data["status"]);
    windlass.operator.stop(Duration::from_secs(10))?;

    let text = migrate(&story, "to-flux", &[], true)?;
    ensure!(text.contains("Flux has taken over"), "{text}");
    await_flux(&story, [2, 1, 1]).await?;
    let found = story.expect(&service()).await?;
    ensure!(found.data["spec"]["selector"] == json!({"app": "source-controller"}), "{found:?}");
    ensure!(story.expect(&deployment(&namespace)).await?.data["spec"]["replicas"] == 0, "it runs");
    ensure!(story.expect(&system).await?.data["spec"]["suspend"] != true, "it is still suspended");
    let text = migrate(&story, "to-flux", &[], false)?;
    ensure!(text.contains("windlass did not take over from Flux"), "{text}");
    Ok(())
}
