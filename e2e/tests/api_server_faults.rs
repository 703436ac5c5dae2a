//! The API server is unreachable, slow, refuses requests, or loses its history. windlass recovers by itself.
//!
//! The stories have their own process, because each has its own windlass behind its own proxy.
//! Elsewhere: killing windlass (`restarts.rs`, `cargo xtask crash`), random combinations (`cargo xtask soak`).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crds::windlass_release::AuditOperation;
use e2e::api_server_fault_proxy::{ApiFault, ApiServerFaultProxy, ConnectionCutMoment};
use e2e::harness::flux_objects::{FollowedGitRepository, condition, inventory};
use e2e::harness::freezes::calendar_of_days;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchEvent,
    WatchParams,
};
use serde_json::json;

/// How long an outage lasts. Every running request and watch is affected, including its first retries.
const OUTAGE: Duration = Duration::from_secs(10);

/// How long the recovery may take after a fault.
const RECOVERY: Duration = Duration::from_secs(40);

/// The number of applied objects.
const COUNT: usize = 40;

fn config_maps(value: &str) -> Vec<(String, String)> {
    (0..COUNT)
        .map(|at| (format!("{at:03}.yaml"), config_map(&format!("map-{at:03}"), value)))
        .collect()
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (&**path, text.clone())).collect()
}

/// windlass behind a proxy, with all objects applied before the faults.
struct FaultTestSetup<'a> {
    story: &'a Story,
    proxy: ApiServerFaultProxy,
    windlass: WindlassProcess,
    upstream: FollowedGitRepository<'a>,
    uids: BTreeMap<String, String>,
}

impl<'a> FaultTestSetup<'a> {
    async fn set(story: &'a Story) -> Result<Self> {
        let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
        let windlass = WindlassProcess::start_for(story, &[&proxy.flag()]).await?;
        let upstream = story.follow("app", &borrowed(&config_maps("1"))).await?;
        story.kustomization("app", "app", json!({})).await?;
        story.await_ready(&StoryObject::kustomization("app")).await?;
        let uids = owned(story).await?;
        ensure!(uids.len() == COUNT, "{} objects", uids.len());
        Ok(Self { story, proxy, windlass, upstream, uids })
    }

    /// Waits until a revision is applied with this value in every object. Checks that no object was replaced, and that the
    /// watches work again.
    async fn ensure_well(&mut self, revision: &str, value: &str) -> Result<()> {
        let story = self.story;
        let app = story.await_applied_within("app", revision, RECOVERY).await?;
        ensure!(inventory(&app).len() == COUNT, "{} in the inventory", inventory(&app).len());
        story.await_value("map-000", value).await?;
        ensure!(owned(story).await? == self.uids, "objects were replaced: {:?}", self.uids);
        self.ensure_corrects_drift(value).await?;
        ensure!(self.windlass.operator.is_running()?, "windlass ended");
        Ok(())
    }

    /// windlass corrects an edit and a deletion by a user. Only a working watch can notice them.
    async fn ensure_corrects_drift(&mut self, value: &str) -> Result<()> {
        let story = self.story;
        story
            .merge(&StoryObject::config_map("map-001"), json!({"data": {"value": "edited"}}))
            .await?;
        story.delete(&StoryObject::config_map("map-002")).await?;
        let old = self.uids.get("map-002").cloned();
        story.await_value("map-001", value).await?;
        let is_back = async || {
            let now = story.read(&StoryObject::config_map("map-002")).await?;
            Ok(now.and_then(|it| it.uid()).filter(|uid| Some(uid) != old.as_ref()))
        };
        let new = story.await_until("map-002 to be created again", RECOVERY, is_back).await?;
        self.uids.insert("map-002".to_owned(), new);
        Ok(())
    }

    /// Waits for the length of an outage. If the API server only throttles requests, neither the source nor the Kustomization
    /// fails.
    async fn outage(&self, status: u16) -> Result<()> {
        let end = tokio::time::Instant::now() + OUTAGE;
        while tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await;
            for target in [StoryObject::kustomization("app"), StoryObject::git_repository("app")] {
                let object = self.story.read(&target).await?;
                let object = object.with_context(|| format!("{target} is gone"))?;
                let ready = condition(&object, "Ready");
                let has_failed = ready["status"] == "False";
                ensure!(status != 429 || !has_failed, "{target} has failed: {ready}");
            }
        }
        Ok(())
    }

    async fn push(&self, value: &str) -> Result<String> {
        self.upstream.push(&borrowed(&config_maps(value))).await
    }

    /// Waits until some objects have a value, so an apply is running.
    async fn await_begun(&self, value: &str) -> Result<()> {
        self.story.await_value("map-000", value).await.map(drop)
    }
}

/// The ConfigMaps that windlass owns, by name, with their UIDs.
async fn owned(story: &Story) -> Result<BTreeMap<String, String>> {
    let api = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let list = api.list(&ListParams::default().labels("kustomize.toolkit.fluxcd.io/name")).await?;
    Ok(list.items.iter().map(|it| (it.name_any(), it.uid().unwrap_or_default())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_goes_during_an_apply_finds_it_finished_afterwards() -> Result<()> {
    let story = Story::begin("gone").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    let revision = stage.push("2").await?;
    stage.await_begun("2").await?;
    stage.proxy.begin(ApiFault::Gone);
    tokio::time::sleep(OUTAGE).await;
    ensure!(stage.windlass.operator.is_running()?, "windlass ended");
    stage.proxy.heal();
    stage.ensure_well(&revision, "2").await?;
    // windlass handles a commit and a drift that happen while the API server is unreachable.
    stage.proxy.begin(ApiFault::Gone);
    let revision = stage.push("3").await?;
    story.merge(&StoryObject::config_map("map-003"), json!({"data": {"value": "edited"}})).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.proxy.heal();
    stage.ensure_well(&revision, "3").await?;
    story.await_value("map-003", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_api_server_is_waited_for() -> Result<()> {
    let story = Story::begin("slow").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    stage.proxy.begin(ApiFault::Slow(Duration::from_secs(1)));
    let revision = stage.push("2").await?;
    stage.await_begun("2").await?;
    // There are forty objects, four at once, and each request takes a second.
    story.await_applied_within("app", &revision, Duration::from_secs(90)).await?;
    stage.proxy.heal();
    stage.ensure_well(&revision, "2").await?;
    story.end().await
}

/// Some requests are refused during one apply, and all requests for a while during another.
async fn refuse(name: &str, status: u16) -> Result<()> {
    let story = Story::begin(name).await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    // The source reads the Secret in each requested reconciliation. The server accepts every client.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git"},
        "stringData": {"username": "story", "password": "story"},
    });
    story.apply_value(secret).await?;
    let source = StoryObject::git_repository("app");
    story.merge(&source, json!({"spec": {"secretRef": {"name": "git"}}})).await?;
    story.await_ready(&source).await?;
    stage.proxy.begin(ApiFault::Refusing { status, percent: 40 });
    let revision = stage.push("2").await?;
    stage.outage(status).await?;
    stage.proxy.heal();
    stage.ensure_well(&revision, "2").await?;
    let revision = stage.push("3").await?;
    stage.await_begun("3").await?;
    stage.proxy.begin(ApiFault::Refusing { status, percent: 100 });
    stage.proxy.end_watches();
    stage.outage(status).await?;
    stage.proxy.heal();
    stage.ensure_well(&revision, "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_has_too_many_requests_is_asked_again() -> Result<()> {
    refuse("too-many", 429).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_unavailable_is_asked_again() -> Result<()> {
    refuse("unavailable", 503).await
}

/// How many Kustomizations are created while the API server takes few requests at once.
const CROWDED_KUSTOMIZATIONS: usize = 100;

/// How long they may take. Requests that the API server puts off are repeated after pauses.
const CROWDED_TIME: Duration = Duration::from_secs(90);

/// Waits until `Ready` of a Kustomization is False, and returns the object as text. Returns `None` if the watch ends before.
async fn first_failure(api: Api<DynamicObject>) -> Result<Option<String>> {
    let version = api.list(&ListParams::default()).await?.metadata.resource_version;
    let version = version.context("a list has a version")?;
    let mut events = api.watch(&WatchParams::default().timeout(290), &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        let object = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
        };
        let ready = condition(&object, "Ready");
        if ready["status"] == "False" {
            return Ok(Some(format!("{}: {ready}", object.name_any())));
        }
    }
    Ok(None)
}

/// How many requests windlass may have in flight.
async fn request_limit(windlass: &WindlassProcess) -> Result<usize> {
    let metrics = windlass.metrics().await?;
    let limit = metrics.lines().find_map(|line| {
        line.strip_prefix("windlass_api_request_limit{cluster=\"\"} ")?.parse().ok()
    });
    limit.with_context(|| format!("there is no limit in\n{metrics}"))
}

/// The API server takes few requests at once and puts off all others. windlass sends fewer, and nothing fails.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_takes_few_requests_at_once_gets_fewer_and_nothing_fails() -> Result<()>
{
    let story = Story::begin("crowded").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let mut windlass = WindlassProcess::start_for(&story, &[&proxy.flag()]).await?;
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${name}\ndata:\n  value: ${value}\n";
    let upstream = story.follow("app", &[("a.yaml", map.to_owned())]).await?;
    story.await_ready(&StoryObject::git_repository("app")).await?;
    let gvk = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
    let kind = ApiResource::from_gvk(&gvk);
    let api = Api::<DynamicObject>::namespaced_with(story.client.clone(), &story.namespace, &kind);
    let failure = tokio::spawn(first_failure(api.clone()));
    let before = request_limit(&windlass).await?;
    proxy.begin(ApiFault::Crowded { at_once: 10, delay: Duration::from_millis(50) });
    for at in 0..CROWDED_KUSTOMIZATIONS {
        let name = format!("app-{at:03}");
        let variables = json!({"name": format!("{name}-map"), "value": "one"});
        story.kustomization(&name, "app", json!({"postBuild": {"substitute": variables}})).await?;
    }
    let mut lowest = before;
    let are_ready = async || {
        lowest = lowest.min(request_limit(&windlass).await?);
        let listed = api.list(&ListParams::default()).await?.items;
        let ready = listed.iter().filter(|it| condition(it, "Ready")["status"] == "True").count();
        Ok((ready == CROWDED_KUSTOMIZATIONS || failure.is_finished()).then_some(()))
    };
    story.await_until("all Kustomizations to be ready", CROWDED_TIME, are_ready).await?;
    if failure.is_finished() {
        let failure = failure.await??;
        anyhow::bail!("a Kustomization has failed, or the watch ended: {failure:?}");
    }
    failure.abort();
    ensure!(lowest < before, "the limit of requests was {before} all the time");
    for at in 0..CROWDED_KUSTOMIZATIONS {
        story.await_value(&format!("app-{at:03}-map"), "one").await?;
    }
    // With good answers, windlass sends more requests again.
    proxy.heal();
    let labelled = map.replace("\ndata:", "\n  labels:\n    round: second\ndata:");
    upstream.push(&[("a.yaml", labelled)]).await?;
    let is_back = async || Ok((request_limit(&windlass).await? > lowest).then_some(()));
    story.await_until("the limit of requests to rise", RECOVERY, is_back).await?;
    ensure!(windlass.operator.is_running()?, "windlass ended");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_begin_again_and_miss_nothing() -> Result<()> {
    let story = Story::begin("watches").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    for round in 0..5 {
        stage.proxy.end_watches();
        let edit = json!({"data": {"value": format!("edited {round}")}});
        story.merge(&StoryObject::config_map("map-004"), edit).await?;
        stage.proxy.drop_connections();
        story.await_value("map-004", "1").await?;
    }
    let revision = stage.push("2").await?;
    stage.proxy.end_watches();
    stage.ensure_well(&revision, "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_was_compacted_is_listed_anew() -> Result<()> {
    let story = Story::begin("compacted").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    // No watch delivers these changes, because the watches end before and cannot resume.
    stage.proxy.begin(ApiFault::Gone);
    story.merge(&StoryObject::config_map("map-005"), json!({"data": {"value": "edited"}})).await?;
    story.delete(&StoryObject::config_map("map-006")).await?;
    stage.uids.remove("map-006");
    let revision = stage.push("2").await?;
    let newest = Api::<Namespace>::all(story.client.clone()).list(&ListParams::default()).await?;
    let newest = newest.metadata.resource_version.context("a list has a version")?;
    stage.proxy.begin(ApiFault::Compacted(newest.parse()?));
    story.await_value("map-005", "2").await?;
    let back = story.await_value("map-006", "2").await?;
    stage.uids.insert("map-006".to_owned(), back.uid().context("a uid")?);
    stage.ensure_well(&revision, "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_not_accepted_for_a_while_loses_nothing() -> Result<()> {
    let story = Story::begin("unauthorized").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    let revision = stage.push("2").await?;
    stage.await_begun("2").await?;
    stage.proxy.begin(ApiFault::Unauthorized);
    stage.proxy.end_watches();
    tokio::time::sleep(OUTAGE).await;
    stage.proxy.heal();
    stage.ensure_well(&revision, "2").await?;
    story.end().await
}

async fn token(story: &Story) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(story.client.clone(), "flux-system");
    let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() };
    let request = TokenRequest { spec: Some(spec), ..Default::default() };
    let answer = accounts
        .create_token_request("windlass-controller", &PostParams::default(), &request)
        .await?;
    answer.status.and_then(|it| it.token).context("the API server sent no token")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_was_replaced_is_read_again() -> Result<()> {
    let story = Story::begin("token").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    let first = token(&story).await?;
    std::fs::write(&file, &first)?;
    let kubeconfig = proxy.kubeconfig_of(&json!({"tokenFile": file}))?;
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let mut windlass = WindlassProcess::start_for(&story, &[&flag]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    // A kubelet does the same: it first writes the new token, and the old one stays valid for a while.
    let second = token(&story).await?;
    ensure!(first != second, "the API server issued the same token twice");
    std::fs::write(&file, &second)?;
    proxy.begin(ApiFault::Revoked(first));
    proxy.end_watches();
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    // windlass reads the token again once a minute.
    story.await_applied_within("app", &revision, Duration::from_secs(100)).await?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("a", "2").await?;
    ensure!(windlass.operator.is_running()?, "windlass ended");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_that_is_removed_under_a_running_watch_comes_back_with_its_objects() -> Result<()> {
    let story = Story::begin("definition").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let group = format!("{}.example.com", story.namespace);
    let files = [("definition.yaml", widget_crd(&group)), ("widget.yaml", widget(&group, "one"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let kind = format!("{group}/v1");
    let one = StoryObject::new(&kind, "Widget", "one");
    let crd = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    );
    for round in 0..2 {
        let old = [story.expect(&crd).await?, story.expect(&one).await?].map(|it| it.uid());
        story.delete(&crd).await?;
        let are_new = async || {
            let [Some(crd), Some(one)] = [story.read(&crd).await?, story.read(&one).await?] else {
                return Ok(None);
            };
            let is_stable = crd.metadata.deletion_timestamp.is_none();
            let are_new = crd.uid() != old[0] && one.uid() != old[1];
            Ok((is_stable && are_new).then_some(()))
        };
        let what = format!("CRD and object to be back, round {round}");
        story.await_until(&what, RECOVERY, are_new).await?;
        story.await_ready(&StoryObject::kustomization("app")).await?;
        // The watch of the kind works again.
        story.merge(&one, json!({"spec": {"size": 7}})).await?;
        let is_back = |object: &kube::api::DynamicObject| object.data["spec"]["size"] == 1;
        story.await_object(&one, RECOVERY, is_back).await?;
        story.delete(&one).await?;
        story.await_object(&one, RECOVERY, |_| true).await?;
    }
    ensure!(windlass.operator.is_running()?, "windlass ended");
    story.end().await
}

/// The watch reports the deletion of the object before the answer to the apply arrives.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_deleted_before_its_apply_is_answered_comes_back() -> Result<()> {
    let story = Story::begin("overtaken").await?;
    let stage = FaultTestSetup::set(&story).await?;
    stage.proxy.begin(ApiFault::Slow(Duration::from_secs(3)));
    let revision = stage.push("2").await?;
    stage.await_begun("2").await?;
    let old = story.expect(&StoryObject::config_map("map-000")).await?.uid();
    story.delete(&StoryObject::config_map("map-000")).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    stage.proxy.heal();
    story.await_applied_within("app", &revision, RECOVERY).await?;
    let map = story.await_value("map-000", "2").await?;
    ensure!(map.uid() != old, "it is the one that was deleted");
    story.end().await
}

/// The API server carries out writes without answering. The next reconciliation finds them done, and they are in its audit.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_audited_once() -> Result<()> {
    let story = Story::begin("unanswered").await?;
    let stage = FaultTestSetup::set(&story).await?;
    // By now, statuses were written and the objects are being applied.
    let mut cut = stage.proxy.cut_at(COUNT / 2, ConnectionCutMoment::After);
    let revision = stage.push("2").await?;
    let lost = cut.wait().await.context("another cut was ordered")?;
    ensure!(lost.contains("/configmaps/"), "{lost}");
    // Waits until windlass has repeated the request without success.
    tokio::time::sleep(OUTAGE).await;
    stage.proxy.heal();
    story.await_applied_within("app", &revision, RECOVERY).await?;
    let count = i64::try_from(COUNT)?;
    let are_audited = async || {
        let all = audits(&story).await?;
        let applied = all.iter().filter(|it| it.spec.operation == AuditOperation::Apply);
        let changed: i64 = applied.map(|it| it.spec.changes.changed).sum();
        ensure!(changed <= count, "{changed} changes are in audits");
        Ok((changed == count).then_some(()))
    };
    story.await_until("all changes to be in audits", RECOVERY, are_audited).await?;
    story.end().await
}

/// windlass asks the gate for removals before each object, because many deletions take a long time.
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_is_suspended_midway_deletes_no_further_object() -> Result<()> {
    let story = Story::begin("prune-suspended").await?;
    let policy = story.without_deletion_budget().await?;
    let stage = FaultTestSetup::set(&story).await?;
    let app = StoryObject::kustomization("app");
    // Each deletion takes a second.
    stage.proxy.begin(ApiFault::Slow(Duration::from_secs(1)));
    let files = config_maps("1");
    let leaving: Vec<&str> = files.iter().skip(1).map(|(path, _)| path.as_str()).collect();
    let revision = stage.upstream.remove(&leaving).await?;
    let has_begun = async || Ok((owned(&story).await?.len() < COUNT).then_some(()));
    story.await_until("the prune to begin", RECOVERY, has_begun).await?;
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    let is_stopped =
        |object: &kube::api::DynamicObject| condition(object, "Ready")["reason"] == "Suspended";
    let object = story.await_object(&app, RECOVERY, is_stopped).await?;
    let left = owned(&story).await?.len();
    ensure!(left > 1, "it was pruned to its end");
    ensure!(inventory(&object).len() >= left, "{left} are left: {:?}", inventory(&object));
    stage.proxy.heal();
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    story.await_applied_within("app", &revision, RECOVERY).await?;
    let left: Vec<String> = owned(&story).await?.into_keys().collect();
    ensure!(left == ["map-000"], "{left:?}");
    story.delete(&policy).await?;
    story.end().await
}

/// More watches than an API server allows for one connection (100).
const CROWD: usize = 120;

#[tokio::test(flavor = "multi_thread")]
async fn more_secrets_than_a_connection_has_watches_are_all_noticed() -> Result<()> {
    let story = Story::begin("crowd").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let names: Vec<String> = (0..CROWD).map(|at| format!("app-{at:03}")).collect();
    let secret = async |name: &str, value: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"name": format!("{name}-map"), "value": value}});
        story.apply_value(secret).await.map(drop)
    };
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${name}\ndata:\n  value: ${value}\n";
    let _upstream = story.follow("app", &[("a.yaml", map.to_owned())]).await?;
    for name in &names {
        secret(name, "one").await?;
        let from = json!({"substituteFrom": [{"kind": "Secret", "name": name}]});
        story.kustomization(name, "app", json!({"postBuild": from})).await?;
    }
    for name in &names {
        story.await_value(&format!("{name}-map"), "one").await?;
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    for name in &names {
        secret(name, "two").await?;
    }
    for name in &names {
        story.await_value(&format!("{name}-map"), "two").await?;
    }
    // windlass also notices changes of specs, because watches of its own kinds do not wait for others.
    for name in &names {
        let from = json!({"substituteFrom": null, "substitute": {"name": format!("{name}-map"), "value": "three"}});
        story
            .merge(&StoryObject::kustomization(name), json!({"spec": {"postBuild": from}}))
            .await?;
    }
    for name in &names {
        story.await_value(&format!("{name}-map"), "three").await?;
    }
    let metrics = windlass.metrics().await?;
    let watches = metrics.lines().find_map(|line| {
        line.strip_prefix("windlass_api_requests_total{verb=\"watch\"} ")?.parse::<usize>().ok()
    });
    ensure!(watches.is_some_and(|watches| watches < CROWD), "{watches:?} watches\n{metrics}");
    story.end().await
}

/// The CRD of Freezes, which all stories here share. Deleting it deletes all Freezes.
static FREEZE_DEFINITION: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn while_the_watch_of_freezes_is_interrupted_nothing_begins() -> Result<()> {
    let _definition = FREEZE_DEFINITION.lock().await;
    let story = Story::begin("freezes-unknown").await?;
    let stage = FaultTestSetup::set(&story).await?;
    let app = StoryObject::kustomization("app");
    stage.proxy.begin(ApiFault::Unavailable("/freezes".to_owned()));
    stage.push("2").await?;
    let message = story.await_failure(&app, "FreezesUnknown").await?;
    ensure!(message.contains("it is not known which Freezes deny"), "{message}");
    story.await_value("map-000", "1").await?;
    // A Freeze that is created meanwhile counts as soon as the watch works.
    let freeze = story.freeze(json!({})).await?;
    stage.proxy.heal();
    story.await_failure(&app, "Frozen").await?;
    story.await_value("map-000", "1").await?;

    // Deletions by users do not wait for a Freeze.
    stage.proxy.begin(ApiFault::Unavailable("/freezes".to_owned()));
    story.delete(&app).await?;
    story.await_gone(&app, RECOVERY).await?;
    stage.proxy.heal();
    story.delete(&freeze).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_definition_of_freezes_there_are_none_and_with_it_they_hold_again() -> Result<()>
{
    let _definition = FREEZE_DEFINITION.lock().await;
    let story = Story::begin("freezes-undefined").await?;
    let mut stage = FaultTestSetup::set(&story).await?;
    let app = StoryObject::kustomization("app");
    story.freeze(json!({})).await?;
    let second = stage.push("2").await?;
    story.await_failure(&app, "Frozen").await?;
    let definition = "freezes.release.windlass.dev";
    let target =
        StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition);
    story.delete(&target).await?;
    stage.ensure_well(&second, "2").await?;

    let all = crds::all();
    let is_it = |name: Option<&str>| name == Some(definition);
    let found = all.iter().find(|(_, crd)| is_it(crd.metadata.name.as_deref()));
    let (_, crd) = found.context("the definition of Freezes")?;
    story
        .await_until("the definition to be there again", RECOVERY, async || {
            Ok(story.apply_value(serde_json::to_value(crd)?).await.ok())
        })
        .await?;
    story.write_calendar(&calendar_of_days(-1, 2)?).await?;
    let freeze = story
        .await_until("a Freeze to be created", RECOVERY, async || {
            Ok(story.freeze_by_calendar().await.ok())
        })
        .await?;
    // The status shows that windlass knows the Freeze.
    let is_known = |object: &DynamicObject| object.data["status"]["calendar"].is_object();
    story.await_object(&freeze, RECOVERY, is_known).await?;
    let third = stage.push("3").await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("map-000", "2").await?;
    story.delete(&freeze).await?;
    stage.ensure_well(&third, "3").await?;
    story.end().await
}
