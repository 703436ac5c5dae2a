//! The largest Helmfiles that are accepted: whatever they cost, liveness probes are answered meanwhile, and their status fits.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::flux::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::release::CONFIG;
use e2e::harness::{Story, StoryTarget, Windlass};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

/// How late an answer to a probe may be: the Deployment gives it a second.
const LATEST: Duration = Duration::from_secs(1);

/// How many releases each of two files has.
const EACH: usize = 600;

fn names(prefix: &str, number: usize) -> Vec<String> {
    (0..number).map(|at| format!("{prefix}{at}")).collect()
}

fn file(names: &[String]) -> String {
    let release = |name: &String| format!("- {{name: {name}, chart: ../app}}\n");
    format!("releases:\n{}", names.iter().map(release).collect::<String>())
}

async fn create(story: &Story, more: Value) -> Result<StoryTarget> {
    let mut spec = json!({"interval": NEVER, "prune": true,
        "sourceRef": {"kind": "GitRepository", "name": "shop"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "shop"}, "spec": spec});
    story.apply_value(object).await?;
    Ok(StoryTarget::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop"))
}

/// How many rows have a state.
fn in_state(object: &DynamicObject, state: &str) -> usize {
    let rows = object.data["status"]["releases"].as_array();
    rows.into_iter().flatten().filter(|row| row["state"] == state).count()
}

/// How late the latest answer to a probe is until something has come about.
async fn latest_until(
    windlass: &Windlass,
    done: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let mut done = std::pin::pin!(done);
    let mut latest = Duration::ZERO;
    loop {
        latest = latest.max(windlass.liveness().await?);
        let pause = tokio::time::timeout(Duration::from_millis(50), &mut done);
        if let Ok(done) = pause.await {
            done?;
            return Ok(latest);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_while_a_helmfile_of_many_suspended_releases_is_reconciled()
-> Result<()> {
    let story = Story::begin("watchdog-helmfile").await?;
    let windlass = Windlass::start_for(&story, &[]).await?;
    let first = names("a", EACH);
    let second = names("b", EACH);
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.d/1.yaml", file(&first)),
        ("helmfile.d/2.yaml", file(&second)),
    ];
    let _upstream = story.follow("shop", &files).await?;
    let suspended: Vec<Value> = first.iter().chain(&second).map(|it| json!({"name": it})).collect();
    let shop = create(&story, json!({"suspendedReleases": suspended})).await?;
    let is_suspended = |object: &DynamicObject| {
        // Those of the second file wait for those of the first one, which are not there.
        in_state(object, "Suspended") == EACH && in_state(object, "Waiting") == EACH
    };
    let done =
        async { story.await_object(&shop, 4 * DEFAULT_WAIT_TIMEOUT, is_suspended).await.map(drop) };
    let latest = latest_until(&windlass, done).await?;
    ensure!(latest < LATEST, "an answer to a probe took {latest:?}");
    // All of them leave at once.
    story.delete(&shop).await?;
    let latest = latest_until(&windlass, story.await_gone(&shop, 4 * DEFAULT_WAIT_TIMEOUT)).await?;
    ensure!(latest < LATEST, "an answer to a probe took {latest:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_many_refused_and_waiting_releases_is_taken_by_the_api_server() -> Result<()>
{
    const NUMBER: usize = 130;
    let story = Story::begin("watchdog-status").await?;
    let windlass = Windlass::start_for(&story, &[]).await?;
    let refused = names(&format!("refused-{}-", "x".repeat(35)), NUMBER);
    let waiting = names(&format!("waiting-{}-", "x".repeat(35)), NUMBER);
    let needs = serde_json::to_string(&refused)?;
    let refused = refused.iter().map(|name| format!("- {{name: {name}, chart: ./app}}\n"));
    let waiting =
        waiting.iter().map(|name| format!("- {{name: {name}, chart: ./app, needs: {needs}}}\n"));
    let all: String = refused.chain(waiting).collect();
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", "{{ fail (repeat 4000 \"no \") }}\n".to_owned()),
        ("helmfile.yaml", format!("releases:\n{all}")),
    ];
    let _upstream = story.follow("shop", &files).await?;
    let shop = create(&story, json!({})).await?;
    let is_told = |object: &DynamicObject| {
        in_state(object, "Failed") == NUMBER && in_state(object, "Waiting") == NUMBER
    };
    let done =
        async { story.await_object(&shop, 4 * DEFAULT_WAIT_TIMEOUT, is_told).await.map(drop) };
    let latest = latest_until(&windlass, done).await?;
    ensure!(latest < LATEST, "an answer to a probe took {latest:?}");
    let object = story.expect(&shop).await?;
    let rows = object.data["status"]["releases"].as_array().cloned().unwrap_or_default();
    let messages: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row["state"] == "Waiting")
        .filter_map(|row| row["message"].as_str())
        .collect();
    // What does not fit is cut, and says so.
    let is_bounded = |it: &&str| it.ends_with("and 127 more") || it.ends_with('…');
    ensure!(!messages.is_empty() && messages.iter().all(is_bounded), "{messages:?}");
    story.end().await
}
