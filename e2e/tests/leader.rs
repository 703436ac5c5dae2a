//! Several windlasses on one namespace, of which one acts.
//!
//! Each has an identity, which is in its user agent, so that the API server's audit log says who wrote what.
//! Elsewhere: one windlass that is stopped and started (`restarts.rs`), several that divide the work (`shards.rs`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::harness::audit::Write;
use e2e::harness::flux::{SOON, Upstream, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, Target, Windlass};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use serde_json::json;

/// An election in which a leader that vanished is followed within seconds.
const SHORT: [&str; 3] = [
    "--leader-election-lease-duration=6s",
    "--leader-election-renew-deadline=4s",
    "--leader-election-retry-period=500ms",
];

/// One in which nobody is followed within a story, unless there is no need to wait.
const LONG: [&str; 3] = [
    "--leader-election-lease-duration=10m",
    "--leader-election-renew-deadline=5m",
    "--leader-election-retry-period=500ms",
];

async fn start(story: &Story, identity: &str, times: [&str; 3]) -> Result<Windlass> {
    let identity = format!("--leader-election-identity={identity}");
    let mut flags = vec!["--enable-leader-election", &identity];
    flags.extend(times);
    Windlass::start_for(story, &flags).await
}

async fn lease(story: &Story) -> Result<LeaseSpec> {
    let lease: Lease = story.get("windlass-leader-election").await?;
    lease.spec.context("a Lease without a spec")
}

async fn await_leader(story: &Story, identity: &str) -> Result<LeaseSpec> {
    story
        .await_until(&format!("{identity} to lead"), SOON, async || {
            let lease = lease(story).await?;
            Ok((lease.holder_identity.as_deref() == Some(identity)).then_some(lease))
        })
        .await
}

/// Waits until a process that leads has written something since, which shows that it works.
async fn await_write(story: &Story, identity: &str) -> Result<()> {
    let before = written_by(story, identity)?;
    let is_more = async || Ok((written_by(story, identity)? > before).then_some(()));
    story.await_until(&format!("a write of {identity}"), SOON, is_more).await
}

fn written_by(story: &Story, identity: &str) -> Result<usize> {
    Ok(story.writes()?.iter().filter(|write| write.by == identity).count())
}

/// Who wrote, in turn.
fn turns(writes: &[Write]) -> Vec<&str> {
    let mut turns: Vec<&str> = writes.iter().map(|write| &*write.by).collect();
    turns.dedup();
    turns
}

/// Pushes commits without a pause, each of which changes every object.
async fn load(upstream: &Upstream<'_>, count: &AtomicU32) -> Result<()> {
    loop {
        let value = count.fetch_add(1, Ordering::Relaxed).to_string();
        let files: Vec<(String, String)> = (0..20)
            .map(|at| (format!("{at}.yaml"), config_map(&format!("map-{at}"), &value)))
            .collect();
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (&**path, text.clone())).collect();
        upstream.push(&files).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The leader hangs, is killed, is asked to stop; each time the other goes on.
async fn hand_over(story: &Story, a: &mut Windlass, b: &mut Windlass) -> Result<()> {
    await_write(story, "pod-a").await?;
    a.operator.freeze()?;
    await_leader(story, "pod-b").await?;
    await_write(story, "pod-b").await?;
    a.operator.thaw()?;
    let status = a.operator.await_end(SOON)?;
    ensure!(!status.success(), "it ended with {status}");
    let log = a.operator.log()?;
    ensure!(log.contains("could not be renewed for 4s"), "{}", a.operator.tail(10));
    await_write(story, "pod-b").await?;

    a.resume().await?;
    b.operator.kill()?;
    await_leader(story, "pod-a").await?;
    await_write(story, "pod-a").await?;

    b.resume().await?;
    let status = a.operator.stop(Duration::from_secs(8))?;
    ensure!(status.success(), "it ended with {status}");
    await_leader(story, "pod-b").await?;
    await_write(story, "pod-b").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hangs_dies_or_goes_is_followed_and_never_do_two_write() -> Result<()> {
    let story = Story::begin("hand-over").await?;
    let mut a = start(&story, "pod-a", SHORT).await?;
    await_leader(&story, "pod-a").await?;
    let mut b = start(&story, "pod-b", SHORT).await?;
    let upstream = story.follow("app", &[("0.yaml", config_map("map-0", "first"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let count = AtomicU32::new(0);
    tokio::select! {
        ended = load(&upstream, &count) => ended?,
        done = hand_over(&story, &mut a, &mut b) => done?,
    }
    let last = upstream.push(&[("0.yaml", config_map("map-0", "last"))]).await?;
    story.await_applied("app", &last).await?;
    story.await_value("map-0", "last").await?;
    let writes = story.writes()?;
    ensure!(turns(&writes) == ["pod-a", "pod-b", "pod-a", "pod-b"], "{:?}", turns(&writes));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_well_and_neither_writes_nor_serves_artifacts() -> Result<()> {
    let story = Story::begin("standby").await?;
    let a = start(&story, "pod-a", LONG).await?;
    await_leader(&story, "pod-a").await?;
    // Starting means to wait for its readiness.
    let b = start(&story, "pod-b", LONG).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&Target::kustomization("app")).await?;
    for (windlass, status, gauge) in
        [(&a, 200, "windlass_leader 1"), (&b, 503, "windlass_leader 0")]
    {
        let answer = reqwest::get(windlass.artifacts()).await?;
        ensure!(answer.status().as_u16() == status, "{answer:?}");
        // Events are taken on the same address, by whoever is asked.
        let answer = reqwest::Client::new().post(windlass.artifacts()).body("{}").send().await?;
        ensure!(answer.status().as_u16() == 202, "{answer:?}");
        let metrics = windlass.metrics().await?;
        ensure!(metrics.contains(gauge), "{metrics}");
    }
    let writes = story.writes()?;
    ensure!(turns(&writes) == ["pod-a"], "{writes:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_comes_back_goes_on_at_once_and_one_that_goes_leaves_the_lease() -> Result<()>
{
    let story = Story::begin("comes-back").await?;
    let mut a = start(&story, "pod-a", LONG).await?;
    let before = await_leader(&story, "pod-a").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&Target::kustomization("app")).await?;
    let b = start(&story, "pod-b", LONG).await?;
    a.operator.kill()?;
    let sha = upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    a.resume().await?;
    story.request(&Target::git_repository("app")).await?;
    story.await_applied("app", &revision(&sha)).await?;
    let after = lease(&story).await?;
    ensure!(after.acquire_time == before.acquire_time, "{before:?} and {after:?}");
    ensure!(after.lease_transitions == before.lease_transitions, "{before:?} and {after:?}");
    let writes = story.writes()?;
    ensure!(turns(&writes) == ["pod-a"], "{writes:?}");

    let status = a.operator.stop(Duration::from_secs(8))?;
    ensure!(status.success(), "it ended with {status}");
    // Ten minutes are not waited for: the Lease was given up.
    let followed = await_leader(&story, "pod-b").await?;
    ensure!(followed.lease_transitions > before.lease_transitions, "{followed:?}");
    let last = upstream.push(&[("a.yaml", config_map("a", "3"))]).await?;
    story.await_applied("app", &last).await?;
    drop(b);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_with_the_same_identity_the_older_one_ends() -> Result<()> {
    let story = Story::begin("namesakes").await?;
    let mut first = start(&story, "pod-a", LONG).await?;
    await_leader(&story, "pod-a").await?;
    let mut second = start(&story, "pod-a", LONG).await?;
    let status = first.operator.await_end(SOON)?;
    ensure!(!status.success(), "it ended with {status}");
    let log = first.operator.log()?;
    ensure!(log.contains("--leader-election-identity"), "{}", first.operator.tail(10));
    ensure!(second.operator.is_running()?, "{}", second.operator.tail(10));
    story.end().await
}
