//! The repository, the Kustomizations and windlass behind a proxy.
//!
//! This module performs operations on them, and compares them with the model. `super::operations` chooses the
//! operations, and `super::soak_model` has the desired state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use e2e::api_server_fault_proxy::{ApiFault, ApiServerFaultProxy};
use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use e2e::harness::flux_objects::{condition, inventory, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::process_usage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::json;

use super::audits::{AuditExcuses, AuditTally, AuditViolation, ObjectWrite, judge};
use super::chaos::ChaosFault;
use super::not_ready_statuses::UnreadyObjects;
use super::operations::{CommitChange, SoakOperation};
use super::soak_model::{KustomizationState, SoakModel};
use crate::inventory_ownership::{OWNER_NAME, kustomizations};

/// The GitRepository of all Kustomizations.
const SOURCE: &str = "fleet";

/// The beginning of the API path of ChangeSets.
const CHANGE_SETS: &str = "/apis/release.windlass.dev/v1alpha1/namespaces/";

/// A flag that keeps all audits during the test.
const ALL_AUDITS: &str = "--audit-retention-records=1000000";

/// A request that was sent within this time before connections end may have no response.
const SOON_BEFORE: Duration = Duration::from_secs(2);

/// How much later a slow API server answers.
const SLOW_ANSWER_DELAY: Duration = Duration::from_secs(5);

/// How many seconds are between two compactions.
const COMPACTION_SECONDS: u64 = 5;

/// How many lines of the log a failure prints.
const LOG_LINES: usize = 60;

/// How many log lines about an object a failure prints if a write to it is in no audit.
const MAX_LOG_LINES_PER_OBJECT: usize = 200;

/// How many writes a failure prints that are not in exactly one audit.
const MAX_SHOWN_VIOLATIONS: usize = 5;

/// The servers, windlass and the state of the test.
pub(super) struct SoakEnvironment {
    story: Story,
    server: GitServer,
    repository: StoryGitRepository,
    proxy: ApiServerFaultProxy,
    windlass: WindlassProcess,
    /// The program that runs after the next kill.
    other: Option<PathBuf>,
    /// The newest commit.
    revision: String,
    /// When the present fault ends.
    fault_until: Option<Instant>,
    /// How many of windlass's writes were already checked.
    judged: usize,
    /// The events that excuse writes without an audit.
    excuses: AuditExcuses,
}

fn path(folder: &str, object: &str) -> String {
    format!("{folder}/{object}.yaml")
}

impl SoakEnvironment {
    /// Starts everything and makes what the model contains.
    pub(super) async fn begin(model: &SoakModel, other: Option<PathBuf>) -> anyhow::Result<Self> {
        let story = Story::begin("soak").await?;
        let server = GitServer::start(GitReadAccess::Open)?;
        let repository = server.repository(SOURCE)?;
        let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
        let windlass = WindlassProcess::start_for(&story, &[&proxy.flag(), ALL_AUDITS]).await?;
        // The operations delete more objects in an hour than the budget allows without approval. The other program
        // may not know a flag for that.
        story.without_deletion_budget().await?;
        let files: Vec<(String, String)> = model
            .objects()
            .iter()
            .map(|(object, (folder, value))| (path(folder, object), config_map(object, value)))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
        let first = revision(&repository.commit(&files, "the first files")?);
        story.git_repository(SOURCE, &server.url(&repository), json!({})).await?;
        let environment = Self {
            story,
            server,
            repository,
            proxy,
            windlass,
            other,
            revision: first,
            fault_until: None,
            judged: 0,
            excuses: AuditExcuses::default(),
        };
        for name in model.folders.keys() {
            environment.create(name, model).await?;
        }
        Ok(environment)
    }

    async fn create(&self, name: &str, model: &SoakModel) -> anyhow::Result<()> {
        let depends_on = model.folders.get(name).and_then(|folder| folder.depends_on.as_ref());
        let depends_on = depends_on.map(|it| json!([{"name": it}]));
        let more = json!({"path": format!("./{name}"), "dependsOn": depends_on});
        self.story.kustomization(name, SOURCE, more).await
    }

    /// Performs an operation, and changes the model in the same way.
    pub(super) async fn perform(
        &mut self,
        operation: &SoakOperation,
        model: &mut SoakModel,
    ) -> anyhow::Result<()> {
        match operation {
            SoakOperation::Push(folder, change) => self.push(folder, change, model).await,
            SoakOperation::Edit(object) => {
                let edit = json!({"data": {"value": "edited by hand"}});
                tolerate_absence(
                    self.story.merge(&StoryObject::config_map(object), edit).await.map(drop),
                )
            }
            SoakOperation::Delete(object) => {
                tolerate_absence(self.story.delete(&StoryObject::config_map(object)).await)
            }
            SoakOperation::Suspend(name) => {
                model.put(name, KustomizationState::Suspended);
                self.suspend(name, true).await
            }
            SoakOperation::Resume(name) => {
                model.put(name, KustomizationState::Active);
                self.suspend(name, false).await
            }
            SoakOperation::Remove(name) => {
                model.put(name, KustomizationState::Deleted);
                self.story.delete(&StoryObject::kustomization(name)).await
            }
            SoakOperation::Recreate(name) => {
                // The Kustomization cannot be created while the old one is still being deleted.
                if self.story.read(&StoryObject::kustomization(name)).await?.is_none() {
                    model.put(name, KustomizationState::Active);
                    self.create(name, model).await?;
                }
                Ok(())
            }
            SoakOperation::Fault(fault, lasts) => {
                self.begin_fault(fault.clone(), *lasts);
                Ok(())
            }
            SoakOperation::Compact => {
                let newest = self.config_maps().await?.metadata.resource_version;
                let newest = newest.context("a list has a version")?.parse()?;
                self.begin_fault(ApiFault::Compacted(newest), Duration::from_secs(2));
                Ok(())
            }
            SoakOperation::EndWatches => {
                self.proxy.end_watches();
                Ok(())
            }
            SoakOperation::Disconnect => {
                let now = Timestamp::now();
                self.excuses.faults.push((now.saturating_sub(SOON_BEFORE)?, now));
                self.proxy.drop_connections();
                Ok(())
            }
            SoakOperation::Kill => {
                self.windlass.operator.kill()?;
                self.excuses.kills.push(Timestamp::now());
                self.heal();
                if let Some(other) = &mut self.other {
                    self.windlass.operator.exchange(other);
                }
                self.windlass.resume().await
            }
        }
    }

    /// Makes or keeps up a fault, in this second since its begin.
    pub(super) async fn disturb(&mut self, fault: ChaosFault, second: u64) -> anyhow::Result<()> {
        match fault {
            ChaosFault::Throttled => {
                self.proxy.begin(ApiFault::Refusing { status: 429, percent: 100 });
            }
            ChaosFault::ConnectionsClosed => self.proxy.drop_connections(),
            ChaosFault::WatchesLost => self.proxy.end_watches(),
            ChaosFault::Slow => self.proxy.begin(ApiFault::Slow(SLOW_ANSWER_DELAY)),
            ChaosFault::Compacted if second.is_multiple_of(COMPACTION_SECONDS) => {
                let newest = self.config_maps().await?.metadata.resource_version;
                let newest = newest.context("a list has a version")?.parse()?;
                self.proxy.begin(ApiFault::Compacted(newest));
            }
            ChaosFault::Compacted => {}
        }
        Ok(())
    }

    /// Notes from now on which objects are not ready.
    ///
    /// # Errors
    /// The watch does not open.
    pub(super) async fn watch_unready(&self) -> anyhow::Result<UnreadyObjects> {
        UnreadyObjects::watch(&self.story.client, &self.story.namespace).await
    }

    /// The memory of windlass that no file backs, in MiB.
    pub(super) fn anonymous_mebibytes(&self) -> anyhow::Result<f64> {
        let id = self.windlass.operator.id().context("windlass is not running")?;
        process_usage::anonymous_mebibytes(id)
    }

    async fn push(
        &mut self,
        folder: &str,
        change: &CommitChange,
        model: &mut SoakModel,
    ) -> anyhow::Result<()> {
        let (object, is_gone) = match change {
            CommitChange::Value(object) => {
                model.change(folder, object);
                (object.clone(), false)
            }
            CommitChange::More => (model.add(folder), false),
            CommitChange::Less(object) => {
                model.remove(folder, object);
                (object.clone(), true)
            }
        };
        let path = path(folder, &object);
        let sha = if is_gone {
            self.repository.delete(&[&path], "less")?
        } else {
            let value = model.folders.get(folder).and_then(|it| it.objects.get(&object));
            let text = config_map(&object, value.map_or("", String::as_str));
            self.repository.commit(&[(&path, &text)], "a change")?
        };
        self.revision = revision(&sha);
        self.story.request(&StoryObject::git_repository(SOURCE)).await.map(drop)
    }

    /// Suspends or resumes a Kustomization.
    pub(super) async fn suspend(&self, name: &str, is_suspended: bool) -> anyhow::Result<()> {
        let spec = json!({"spec": {"suspend": is_suspended}});
        self.story.merge(&StoryObject::kustomization(name), spec).await.map(drop)
    }

    fn begin_fault(&mut self, fault: ApiFault, lasts: Duration) {
        self.proxy.begin(fault);
        let now = Timestamp::now();
        let until = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
        self.excuses.faults.push((now, until));
        self.fault_until = Some(Instant::now() + lasts);
    }

    /// Ends the present fault if its time is over.
    pub(super) fn end_fault_in_time(&mut self) {
        if self.fault_until.is_some_and(|until| Instant::now() >= until) {
            self.heal();
        }
    }

    /// Ends the present fault of the API server.
    pub(super) fn heal(&mut self) {
        self.fault_until = None;
        self.proxy.heal();
    }

    async fn config_maps(&self) -> anyhow::Result<kube::api::ObjectList<ConfigMap>> {
        let api = Api::<ConfigMap>::namespaced(self.story.client.clone(), &self.story.namespace);
        Ok(api.list(&ListParams::default().labels(OWNER_NAME)).await?)
    }

    /// The differences from the model, one a line.
    pub(super) async fn differences(&mut self, model: &SoakModel) -> anyhow::Result<Vec<String>> {
        ensure!(
            self.windlass.operator.is_running()?,
            "windlass has ended by itself\n{}",
            self.log()
        );
        let mut wrong = self.wrong_kustomizations(model).await?;
        let mut live: BTreeMap<String, ConfigMap> =
            self.config_maps().await?.items.into_iter().map(|it| (it.name_any(), it)).collect();
        for (name, (owner, value)) in model.objects() {
            let Some(object) = live.remove(&name) else {
                wrong.push(format!("ConfigMap {name} is missing"));
                continue;
            };
            let is = object.data.as_ref().and_then(|data| data.get("value"));
            if is != Some(&value) {
                wrong.push(format!("ConfigMap {name} holds {is:?} and should hold {value}"));
            }
            if object.labels().get(OWNER_NAME) != Some(&owner) {
                wrong.push(format!("ConfigMap {name} does not belong to {owner}"));
            }
        }
        wrong.extend(live.keys().map(|name| format!("ConfigMap {name} should not be there")));
        Ok(wrong)
    }

    async fn wrong_kustomizations(&self, model: &SoakModel) -> anyhow::Result<Vec<String>> {
        let client = self.story.client.clone();
        let namespace = &self.story.namespace;
        let api = Api::<DynamicObject>::namespaced_with(client, namespace, &kustomizations());
        let listed = api.list(&ListParams::default()).await?.items;
        let listed: BTreeMap<String, DynamicObject> =
            listed.into_iter().map(|it| (it.name_any(), it)).collect();
        let mut wrong = Vec::new();
        for (name, folder) in &model.folders {
            let is_wanted = folder.state != KustomizationState::Deleted;
            match listed.get(name) {
                None if is_wanted => wrong.push(format!("Kustomization {name} is missing")),
                Some(_) if !is_wanted => {
                    wrong.push(format!("Kustomization {name} should not be there"));
                }
                None => {}
                Some(object) => {
                    let mut expected: Vec<String> = folder
                        .objects
                        .keys()
                        .map(|object| format!("{namespace}_{object}__ConfigMap"))
                        .collect();
                    expected.sort();
                    wrong.extend(self.wrong_status(name, object, &expected));
                }
            }
        }
        Ok(wrong)
    }

    fn wrong_status(
        &self,
        name: &str,
        object: &DynamicObject,
        expected: &[String],
    ) -> Option<String> {
        let status = &object.data["status"];
        let ready = condition(object, "Ready");
        let mut recorded = inventory(object);
        recorded.sort_unstable();
        let is_current = status["observedGeneration"].as_i64() == object.metadata.generation;
        if ready["status"] != "True" || !is_current {
            let generation = object.metadata.generation.unwrap_or_default();
            return Some(format!("Kustomization {name} of generation {generation} is {ready}"));
        }
        if status["lastAppliedRevision"] != self.revision {
            let applied = &status["lastAppliedRevision"];
            return Some(format!(
                "Kustomization {name} is at {applied} and not at {}",
                self.revision
            ));
        }
        (recorded != expected)
            .then(|| format!("Kustomization {name} has {recorded:?} and should have {expected:?}"))
    }

    /// Fails if windlass requested the deletion of an object that no operation ever removed.
    pub(super) fn judge_deletions(&mut self, model: &SoakModel) -> anyhow::Result<()> {
        let writes = self.proxy.writes();
        for write in writes.iter().skip(self.judged) {
            let Some(path) = write.strip_prefix("DELETE ") else { continue };
            // windlass deletes the oldest ChangeSets of a source by itself.
            if path.starts_with(CHANGE_SETS) && path.contains("/changesets/") {
                continue;
            }
            let name = path.rsplit('/').next().unwrap_or_default();
            if !model.removed.contains(name) {
                bail!("windlass sent {write}, and it should live");
            }
        }
        self.judged = writes.len();
        Ok(())
    }

    /// Fails if a write to a managed object is not in exactly one audit.
    pub(super) async fn judge_audits(&self) -> anyhow::Result<AuditTally> {
        let writes = self.story.timed_changes()?;
        let writes = writes.iter().map(|(at, change)| ObjectWrite::of(at, change));
        let writes: Vec<Option<ObjectWrite>> = writes.collect::<anyhow::Result<_>>()?;
        let writes: Vec<ObjectWrite> = writes.into_iter().flatten().collect();
        let judged = judge(&writes, &audits(&self.story).await?, &self.excuses);
        judged.map_err(|wrong| self.unaudited(&wrong, writes.len()))
    }

    /// An error about writes that are not audited. It has the log lines about their objects, and the times of kills
    /// and faults.
    fn unaudited(&self, wrong: &[AuditViolation], writes: usize) -> anyhow::Error {
        let log = self.windlass.operator.log().unwrap_or_else(|error| error.to_string());
        let mut text = format!("{} of {writes} writes are not in exactly one audit", wrong.len());
        for AuditViolation { name, text: what } in wrong.iter().take(MAX_SHOWN_VIOLATIONS) {
            // The name of an object is the name of its Kustomization with a number.
            let owner = name.rsplit_once('-').map_or(name.as_str(), |(owner, _)| owner);
            let lines = log.lines().filter(|line| line.contains(owner));
            let lines: Vec<&str> = lines.take(MAX_LOG_LINES_PER_OBJECT).collect();
            text = format!("{text}\n{what}; the log about {owner}:\n{}", lines.join("\n"));
        }
        let AuditExcuses { kills, faults } = &self.excuses;
        let kills: Vec<String> =
            kills.iter().map(|at| format!("\nwindlass was killed at {at}")).collect();
        let faults =
            faults.iter().map(|(from, to)| format!("\nthe API server failed from {from} to {to}"));
        let faults: Vec<String> = faults.collect();
        anyhow!("{text}{}{}", kills.concat(), faults.concat())
    }

    /// The resident memory of windlass in KiB.
    pub(super) fn memory_kib(&self) -> anyhow::Result<u64> {
        let id = self.windlass.operator.id().context("windlass is not running")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|it| it.split_whitespace().next()).context("no VmRSS")?;
        Ok(number.parse()?)
    }

    /// The last lines of windlass's log.
    pub(super) fn log(&self) -> String {
        format!("the log of windlass ends:\n{}", self.windlass.operator.tail(LOG_LINES))
    }

    /// Stops windlass, its servers and the story.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        drop((self.windlass, self.proxy, self.server));
        self.story.end().await
    }
}

/// An edit of an object may fail because the object does not exist yet, or no longer exists.
fn tolerate_absence(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}
