//! Kustomizations that wait for each other report the cycle instead of waiting forever.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

fn depends_on(name: &str, on: &[&str]) -> Value {
    let on: Vec<Value> = on.iter().map(|name| json!({"name": name})).collect();
    json!({"path": name, "dependsOn": on})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_is_named_and_opening_it_lets_everyone_go_on() -> Result<()> {
    let story = Story::with_windlass("cycle").await?;
    let files = [
        ("one/a.yaml", config_map("one", "1")),
        ("two/a.yaml", config_map("two", "1")),
        ("after/a.yaml", config_map("after", "1")),
    ];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("one", "app", depends_on("one", &["two"])).await?;
    story.kustomization("two", "app", depends_on("two", &["one"])).await?;
    story.kustomization("after", "app", depends_on("after", &["two"])).await?;
    for name in ["one", "two"] {
        let target = StoryObject::kustomization(name);
        let object =
            story.await_condition(&target, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
        let stalled = condition(&object, "Stalled");
        let message = stalled["message"].as_str().unwrap_or_default();
        ensure!(stalled["reason"] == "DependencyCycle", "{stalled}");
        ensure!(message.contains("one") && message.contains("two"), "{message}");
    }
    let after = StoryObject::kustomization("after");
    let message = story.await_failure(&after, "DependencyNotReady").await?;
    ensure!(message.contains("two"), "{message}");
    let object = story.expect(&after).await?;
    ensure!(condition(&object, "Stalled")["status"] != "True", "it is not part of the cycle");

    story.kustomization("one", "app", depends_on("one", &[])).await?;
    for name in ["one", "two", "after"] {
        let object = story.await_ready(&StoryObject::kustomization(name)).await?;
        ensure!(condition(&object, "Stalled")["status"] != "True", "{:?}", object.data["status"]);
    }
    story.end().await
}
