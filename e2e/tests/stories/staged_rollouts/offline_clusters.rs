//! Clusters that do not respond while a revision is rolled out.
//!
//! A cluster is a Secret with a kubeconfig. Here each kubeconfig is for the control plane of the stories, until a story
//! replaces its server by a port on which nothing listens.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{applied, await_reason, await_waiting, create_rollout, rollout};

/// The clusters of the first wave. The Kustomization and the ConfigMap of a cluster have the same name.
const CLUSTERS: [&str; 2] = ["east", "west"];

/// A server that refuses connections.
const CLOSED_PORT: &str = "https://127.0.0.1:9";

fn files(value: &str) -> [(&'static str, String); 3] {
    [
        ("east/map.yaml", config_map("east", value)),
        ("west/map.yaml", config_map("west", value)),
        ("home/map.yaml", config_map("home", value)),
    ]
}

/// The same kubeconfig with another server.
fn with_server(kubeconfig: &str, server: &str) -> String {
    let line = |line: &str| match line.split_once("server: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}server: {server}\n"),
        _ => format!("{line}\n"),
    };
    kubeconfig.lines().map(line).collect()
}

/// Writes the kubeconfig of a cluster.
async fn set_cluster(story: &Story, name: &str, responds: bool) -> Result<()> {
    let good = std::fs::read_to_string(story.bed.operator_kubeconfig())?;
    let text = if responds { good } else { with_server(&good, CLOSED_PORT) };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"value": text}});
    story.apply_value(secret).await.map(drop)
}

/// Writes the rollout with a policy for offline clusters. Waits until windlass has decided by it, and returns the rollout.
async fn set_policy(story: &Story, policy: Value) -> Result<DynamicObject> {
    let spec = json!({"selector": {}, "offlineClusters": policy, "waves": [
        {"name": "canary", "values": ["canary"], "maxUnavailable": "100%"},
        {"name": "production"},
    ]});
    create_rollout(story, "fleet", spec).await?;
    let is_decided = |object: &DynamicObject| {
        let observed = object.data["status"]["observedGeneration"].as_i64();
        observed.is_some() && observed == object.metadata.generation
    };
    story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, is_decided).await
}

/// Checks that the second wave has not begun, also not by a request.
async fn ensure_home_waits(story: &Story, first: &str) -> Result<()> {
    await_waiting(story, "home").await?;
    story.rerun(&StoryObject::kustomization("home")).await?;
    ensure!(applied(story, "home").await? == first, "the second wave has begun");
    story.await_value("home", "1").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offline_cluster_stops_the_rollout_is_waited_for_or_is_skipped_up_to_a_limit()
-> Result<()> {
    let story = Story::with_windlass("rollout-offline").await?;
    let upstream = story.follow("app", &files("1")).await?;
    story.kustomization("home", "app", json!({"path": "./home"})).await?;
    for cluster in CLUSTERS {
        set_cluster(&story, cluster, true).await?;
        let kube_config = json!({"secretRef": {"name": cluster}});
        let more = json!({"path": format!("./{cluster}"), "kubeConfig": kube_config,
            "retryInterval": "2s"});
        story.kustomization(cluster, "app", more).await?;
        let canary = json!({"metadata": {"labels": {"windlass.dev/wave": "canary"}}});
        story.merge(&StoryObject::kustomization(cluster), canary).await?;
    }
    for name in ["home", "east", "west"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    set_policy(&story, json!({"policy": "Fail", "after": "1s"})).await?;
    await_reason(&story, "fleet", "Succeeded").await?;
    // A run after the rollout was created records the artifact to which the Kustomization can be pinned.
    story.rerun(&StoryObject::kustomization("home")).await?;
    let first = applied(&story, "home").await?;

    for cluster in CLUSTERS {
        set_cluster(&story, cluster, false).await?;
        let kustomization = StoryObject::kustomization(cluster);
        story.request(&kustomization).await?;
        let limit = 2 * DEFAULT_WAIT_TIMEOUT;
        story.await_condition(&kustomization, "Ready", "False", limit).await?;
    }
    // The clusters may have stopped the rollout of the first revision before, because their appliers failed.
    let second = upstream.push(&files("2")).await?;
    let stops = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == "ClustersOffline" && message.contains(&second)
    };
    let stopped = story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, stops).await?;
    let message = condition(&stopped, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains("wave 1 of 2 (canary): 0 of 2 updated"), "{message}");
    let is_named = |cluster: &&str| message.contains(&format!("{}/{cluster}", story.namespace));
    ensure!(CLUSTERS.iter().any(is_named), "{message}");
    ensure_home_waits(&story, &first).await?;

    // Both clusters are known to be offline, and one of them may be skipped.
    let one = set_policy(&story, json!({"policy": "Skip", "maxSkipped": 1, "after": "1s"})).await?;
    ensure!(condition(&one, "Ready")["reason"] != "ClustersOffline", "{:?}", one.data["status"]);
    ensure_home_waits(&story, &first).await?;
    let wait = set_policy(&story, json!({"policy": "Wait", "after": "1s"})).await?;
    ensure!(condition(&wait, "Ready")["reason"] != "ClustersOffline", "{:?}", wait.data["status"]);
    ensure_home_waits(&story, &first).await?;

    set_policy(&story, json!({"policy": "Skip", "maxSkipped": 2, "after": "1s"})).await?;
    story.await_value("home", "2").await?;
    let skips =
        |object: &DynamicObject| object.data["status"]["sources"][0]["waves"][0]["skipped"] == 2;
    story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, skips).await?;
    for cluster in CLUSTERS {
        ensure!(applied(&story, cluster).await? == first, "{cluster} was not offline");
    }

    // They take the revision as soon as they respond.
    for cluster in CLUSTERS {
        set_cluster(&story, cluster, true).await?;
        story.await_value(cluster, "2").await?;
    }
    let is_updated =
        |object: &DynamicObject| object.data["status"]["sources"][0]["waves"][0]["updated"] == 2;
    story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, is_updated).await?;
    story.end().await
}
