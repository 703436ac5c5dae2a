//! Several windlass processes in one namespace, of which one is the leader.
//!
//! Each process has its own identity in its user agent, so the audit log of the API server shows which process wrote what.
//! Below: the output of commands while no operator is active (`leader/without_operator.rs`). Elsewhere: stopping and starting
//! one windlass (`restarts.rs`), dividing the work (`shards.rs`).

mod without_operator;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::harness::audited_writes::AuditedWriteRequest;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use serde_json::json;

/// Election settings with which another process replaces a lost leader within seconds.
const SHORT: [&str; 3] = [
    "--leader-election-lease-duration=12s",
    "--leader-election-renew-deadline=10s",
    "--leader-election-retry-period=500ms",
];

/// Election settings with which no process replaces a lost leader during a story, unless the leader releases its Lease.
const LONG: [&str; 3] = [
    "--leader-election-lease-duration=10m",
    "--leader-election-renew-deadline=5m",
    "--leader-election-retry-period=500ms",
];

async fn start(story: &Story, identity: &str, times: [&str; 3]) -> Result<WindlassProcess> {
    let identity = format!("--leader-election-identity={identity}");
    let mut flags = vec!["--enable-leader-election", &identity];
    flags.extend(times);
    WindlassProcess::start_for(story, &flags).await
}

async fn lease(story: &Story) -> Result<LeaseSpec> {
    let lease: Lease = story.get("windlass-leader-election").await?;
    lease.spec.context("a Lease without a spec")
}

async fn await_leader(story: &Story, identity: &str) -> Result<LeaseSpec> {
    story
        .await_until(&format!("{identity} to lead"), DEFAULT_WAIT_TIMEOUT, async || {
            let lease = lease(story).await?;
            Ok((lease.holder_identity.as_deref() == Some(identity)).then_some(lease))
        })
        .await
}

/// Waits until a leading process has written something, which shows that it works.
async fn await_write(story: &Story, identity: &str) -> Result<()> {
    let before = written_by(story, identity)?;
    let is_more = async || Ok((written_by(story, identity)? > before).then_some(()));
    story.await_until(&format!("a write of {identity}"), DEFAULT_WAIT_TIMEOUT, is_more).await
}

fn written_by(story: &Story, identity: &str) -> Result<usize> {
    Ok(story.writes()?.iter().filter(|write| write.by == identity).count())
}

/// The processes that wrote, in their order.
fn turns(writes: &[AuditedWriteRequest]) -> Vec<&str> {
    let mut turns: Vec<&str> = writes.iter().map(|write| &*write.by).collect();
    turns.dedup();
    turns
}

/// Pushes commits without a pause. Each commit changes every object.
async fn load(upstream: &FollowedGitRepository<'_>, count: &AtomicU32) -> Result<()> {
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

/// The leader hangs, is killed, or is asked to stop. Each time, the other process takes over.
async fn hand_over(story: &Story, a: &mut WindlassProcess, b: &mut WindlassProcess) -> Result<()> {
    await_write(story, "pod-a").await?;
    a.operator.freeze()?;
    await_leader(story, "pod-b").await?;
    await_write(story, "pod-b").await?;
    a.operator.thaw()?;
    let status = a.operator.await_end(DEFAULT_WAIT_TIMEOUT)?;
    ensure!(!status.success(), "it ended with {status}");
    let log = a.operator.log()?;
    ensure!(log.contains("could not be renewed for 10s"), "{}", a.operator.tail(10));
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
    // Starting waits until the process is ready.
    let b = start(&story, "pod-b", LONG).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for (windlass, status, gauge) in
        [(&a, 200, "windlass_leader 1"), (&b, 503, "windlass_leader 0")]
    {
        let answer = reqwest::get(windlass.artifacts()).await?;
        ensure!(answer.status().as_u16() == status, "{answer:?}");
        // Every process accepts events, on the same address as artifacts.
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
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let b = start(&story, "pod-b", LONG).await?;
    a.operator.kill()?;
    let sha = upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    a.resume().await?;
    story.request(&StoryObject::git_repository("app")).await?;
    story.await_applied("app", &revision(&sha)).await?;
    let after = lease(&story).await?;
    ensure!(after.acquire_time == before.acquire_time, "{before:?} and {after:?}");
    ensure!(after.lease_transitions == before.lease_transitions, "{before:?} and {after:?}");
    let writes = story.writes()?;
    ensure!(turns(&writes) == ["pod-a"], "{writes:?}");

    let status = a.operator.stop(Duration::from_secs(8))?;
    ensure!(status.success(), "it ended with {status}");
    // The other process does not wait ten minutes, because the Lease was released.
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
    let status = first.operator.await_end(DEFAULT_WAIT_TIMEOUT)?;
    ensure!(!status.success(), "it ended with {status}");
    let log = first.operator.log()?;
    ensure!(log.contains("--leader-election-identity"), "{}", first.operator.tail(10));
    ensure!(second.operator.is_running()?, "{}", second.operator.tail(10));
    story.end().await
}

/// Waits until windlass says why it is not ready.
async fn await_excluded(story: &Story, windlass: &WindlassProcess, by: &str) -> Result<()> {
    let is_excluded = async || {
        let (status, text) = windlass.readiness().await?;
        Ok((status == 503 && text.contains(by)).then_some(()))
    };
    story
        .await_until(&format!("windlass to be excluded: {by}"), DEFAULT_WAIT_TIMEOUT, is_excluded)
        .await?;
    let metrics = windlass.metrics().await?;
    ensure!(metrics.contains("windlass_excluded 1"), "{metrics}");
    ensure!(metrics.contains("windlass_leader 0"), "{metrics}");
    Ok(())
}

/// Checks that windlass wrote nothing while it was excluded, and that it works afterwards.
async fn await_work(story: &Story, windlass: &WindlassProcess, before: usize) -> Result<()> {
    story.await_ready(&StoryObject::kustomization("app")).await?;
    ensure!(story.writes()?.len() > before, "{:?}", story.writes()?);
    ensure!(windlass.metrics().await?.contains("windlass_excluded 0"));
    ensure!(windlass.readiness().await?.0 == 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_controller_of_flux_holds_its_lease_nothing_is_written() -> Result<()> {
    let story = Story::begin("excluded-by-lease").await?;
    let mut a = start(&story, "pod-a", SHORT).await?;
    await_leader(&story, "pod-a").await?;
    for controller in [
        "source-controller",
        "kustomize-controller",
        "helm-controller",
        "image-automation-controller",
        "image-reflector-controller",
        "notification-controller",
        "source-watcher",
    ] {
        let theirs = StoryObject::of::<Lease>(&format!("{controller}-leader-election"));
        let is_held = async || {
            let lease = story.read(&theirs).await?;
            let holder = lease.map(|lease| lease.data["spec"]["holderIdentity"].clone());
            Ok((holder == Some(json!("pod-a"))).then_some(()))
        };
        story
            .await_until(
                &format!("pod-a to hold the Lease of {controller}"),
                DEFAULT_WAIT_TIMEOUT,
                is_held,
            )
            .await?;
    }
    a.operator.kill()?;
    let theirs = StoryObject::of::<Lease>("kustomize-controller-leader-election");
    let held = |by: &str| json!({"spec": {"holderIdentity": by, "leaseDurationSeconds": 600}});
    story.merge(&theirs, held("kustomize-controller-7d9f")).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_log().await?;
    let before = story.writes()?.len();
    a.operator.resume()?;
    let by = format!(
        "Lease {}/kustomize-controller-leader-election is held by 'kustomize-controller-7d9f'",
        story.namespace
    );
    await_excluded(&story, &a, &by).await?;
    // Waits for several rounds of the election.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(story.writes()?.len() == before, "{:?}", story.writes()?);
    story.merge(&theirs, held("")).await?;
    await_work(&story, &a, before).await?;

    // A leader that loses one of its Leases stops.
    story.merge(&theirs, held("kustomize-controller-7d9f")).await?;
    let status = a.operator.await_end(DEFAULT_WAIT_TIMEOUT)?;
    ensure!(!status.success(), "it ended with {status}");
    let log = a.operator.log()?;
    ensure!(log.contains("was acquired by 'kustomize-controller-7d9f'"), "{}", a.operator.tail(10));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_deployment_of_flux_nothing_is_written_until_it_is_scaled_to_zero() -> Result<()> {
    let story = Story::begin("excluded-by-deployment").await?;
    let labels = json!({"app": "source-controller"});
    let containers = json!([{"name": "manager", "image": "source-controller:v1.9.0"}]);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "source-controller",
            "namespace": story.namespace,
            "labels": {"app.kubernetes.io/part-of": "flux"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    windlass.operator.kill()?;
    story.apply_value(deployment).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_log().await?;
    let before = story.writes()?.len();
    windlass.operator.resume()?;
    let by = format!("Deployment {}/source-controller has 1 replica(s)", story.namespace);
    await_excluded(&story, &windlass, &by).await?;
    ensure!(story.writes()?.len() == before, "{:?}", story.writes()?);
    let target = StoryObject::new("apps/v1", "Deployment", "source-controller");
    story.merge(&target, json!({"spec": {"replicas": 0}})).await?;
    await_work(&story, &windlass, before).await?;
    story.end().await
}
