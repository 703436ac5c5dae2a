//! Replays operations on releases against a cluster that executes and records every request.
//!
//! The cluster reports every object as present before its deletion, like a client that only records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::helm::chart::{Chart, ChartFile, ChartMetadata};
use ::helm::manifests::{self, ManifestOrder};
use ::helm::render::{ReleaseToRender, RenderMode};
use ::helm::template::{RenderRequest, RenderedRelease};
use ::release::journal::{OperationJournal, OperationPlan, ReleaseWaitPolicy};
use ::release::operation::{
    NewRevisionInputs, ObservationScope, ObservedHealth, ObservedHookObject, ObservedLiveObjects,
    OperationNextStep, RecordAndJournalWrite, RemainingReleaseRemoval, StepOutcome, error, next,
    opened, place, removal, rolled_back, scope, started,
};
use ::release::record::{RecordContentChange, ReleaseRecord, RevisionStatus};
use ::release::removal_order::removed;
use ::release::{OperationKind, ReleaseRevision, ReleaseRevisions, ReleaseStep};
use golang::value::GoMap;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::case::{Case, CaseFailure, CaseJudgement};
use super::super::helm::render::env;
use super::mismatch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseOperationsCase {
    steps: Vec<ReleaseOperationStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
struct ReleaseOperationStep {
    #[serde(rename = "do")]
    action: String,
    templates: BTreeMap<String, String>,
    fail: BTreeSet<String>,
    keep_history: bool,
    disable_hooks: bool,
    wait_for_jobs: bool,
    cleanup_on_fail: bool,
    rollback_on_failure: bool,
    version: i64,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    let ReleaseOperationsCase { steps } = case.inputs()?;
    let mut cluster = FakeReleaseCluster::default();
    let mut out = Vec::new();
    for given in &steps {
        cluster.events.clear();
        cluster.fail.clone_from(&given.fail);
        let error = cluster.act(given)?;
        let mut report = json!({"events": cluster.events, "releases": cluster.releases()});
        if let Some(error) = error {
            report["err"] = error.into();
        }
        out.push(report);
    }
    case.judge(Ok(Json::Array(out)))
}

/// The storage of release records, and the recorded requests.
#[derive(Default)]
struct FakeReleaseCluster {
    records: BTreeMap<i64, ReleaseRecord>,
    fail: BTreeSet<String>,
    events: Vec<String>,
    /// The object of the present hook, if it exists.
    hook: Option<ObservedHookObject>,
}

impl FakeReleaseCluster {
    /// Performs an operation. `Some` is its error.
    fn act(&mut self, given: &ReleaseOperationStep) -> Result<Option<String>, CaseFailure> {
        let action = match given.action.as_str() {
            "install" => OperationKind::Install,
            "upgrade" => OperationKind::Upgrade,
            "rollback" => OperationKind::Rollback,
            "test" => OperationKind::Test,
            "uninstall" => OperationKind::Uninstall,
            other => return Err(CaseFailure::NotRun(format!("unknown operation `{other}`"))),
        };
        let plan = OperationPlan {
            hooks: !given.disable_hooks,
            wait: match given.wait_for_jobs {
                true => ReleaseWaitPolicy::ObjectsAndJobs,
                false => ReleaseWaitPolicy::Objects,
            },
            cleanup: given.cleanup_on_fail,
            keep_history: given.keep_history,
            ..OperationPlan::default()
        };
        let revisions = self.revisions();
        let last = revisions.last().map(|last| Arc::clone(&last.record));
        let (record, journal) = match (action, last) {
            (OperationKind::Install | OperationKind::Upgrade, _) => {
                let place = match place(action, "r", &revisions, false, 0) {
                    Ok(place) => place,
                    Err(error) => return Ok(Some(error)),
                };
                let journal = OperationJournal { base: place.base, ..journal(action, plan) };
                let base = place.base.and_then(|base| self.records.get(&base));
                (new_record(&given.templates, &journal, place.version, base)?, journal)
            }
            (OperationKind::Rollback, Some(last)) => {
                let target = if given.version == 0 { last.version - 1 } else { given.version };
                let base = Some(last.version);
                let journal =
                    OperationJournal { base, target: Some(target), ..journal(action, plan) };
                let Some(target) = self.records.get(&target) else {
                    return Ok(Some(format!("release has no {target} version")));
                };
                (rolled_back(&last, target, false, now()), journal)
            }
            (OperationKind::Test, Some(last)) => {
                (ReleaseRecord::clone(&last), journal(action, plan))
            }
            _ => {
                let last = match removal("r", &revisions, given.keep_history) {
                    Ok(RemainingReleaseRemoval::Run) => {
                        revisions.last().map(|last| ReleaseRecord::clone(&last.record))
                    }
                    Ok(RemainingReleaseRemoval::Purge(_)) => None,
                    Err(error) => return Ok(Some(error)),
                };
                let last = last.ok_or_else(|| mismatch("a release", &"none"))?;
                (last, journal(action, plan))
            }
        };
        let version = record.version;
        self.records.insert(version, record);
        let error = self.play(version, journal)?;
        match error {
            Some(error) if given.rollback_on_failure && action == OperationKind::Upgrade => {
                let wait = if given.wait_for_jobs {
                    ReleaseWaitPolicy::ObjectsAndJobs
                } else {
                    ReleaseWaitPolicy::Objects
                };
                let plan =
                    OperationPlan { hooks: !given.disable_hooks, wait, ..OperationPlan::default() };
                self.roll_back(plan, &error).map(Some)
            }
            Some(error) if given.rollback_on_failure => {
                let plan =
                    OperationPlan { wait: ReleaseWaitPolicy::Objects, ..OperationPlan::default() };
                self.play(version, journal_of_removal(plan))?;
                Ok(Some(format!(
                    "release r failed, and has been uninstalled due to rollback-on-failure being set: {error}"
                )))
            }
            other => Ok(other),
        }
    }

    /// Rolls back to the newest successful revision after a failed upgrade.
    fn roll_back(&mut self, plan: OperationPlan, error: &str) -> Result<String, CaseFailure> {
        let is_good = |it: &&ReleaseRecord| {
            matches!(it.info.status, RevisionStatus::Superseded | RevisionStatus::Deployed)
        };
        let Some(target) = self.records.values().rev().find(is_good).cloned() else {
            return Ok(format!(
                "unable to find a previously successful release when attempting to rollback. original upgrade error: {error}"
            ));
        };
        let last = self.records.values().next_back().cloned();
        let last = last.ok_or_else(|| mismatch("a release", &"none"))?;
        let base = Some(last.version);
        let to = Some(target.version);
        let journal =
            OperationJournal { base, target: to, ..journal(OperationKind::Rollback, plan) };
        let record = rolled_back(&last, &target, false, now());
        let version = record.version;
        self.records.insert(version, record);
        Ok(match self.play(version, journal)? {
            None => format!(
                "release r failed, and has been rolled back due to rollback-on-failure being set: {error}"
            ),
            Some(rollback) => format!(
                "an error occurred while rolling back the release. original upgrade error: {error}: {rollback}"
            ),
        })
    }

    /// Performs an operation to its end. It reads the journal anew before every step.
    fn play(
        &mut self,
        version: i64,
        journal: OperationJournal,
    ) -> Result<Option<String>, CaseFailure> {
        let record = self.record(version)?;
        let mut write = started(&record, journal, &[], now());
        let mut last: Option<StepOutcome> = None;
        for _ in 0..1000 {
            self.write(&write);
            let journal = OperationJournal::parse(&write.journal.text());
            let journal = journal.map_err(|error| mismatch("a journal", &error))?;
            let record = self.record(version)?;
            if !journal.is_open() {
                return Ok(error(&journal, &record));
            }
            loop {
                let live = self.observe(&journal, &record, last.as_ref());
                let revisions = self.revisions();
                match next(&journal, &record, &revisions, &live, last.as_ref(), None, now()) {
                    OperationNextStep::Do(ReleaseStep::Write(due)) => {
                        (write, last) = (*due, None);
                        break;
                    }
                    OperationNextStep::Do(ReleaseStep::Purge { .. }) => {
                        self.records.clear();
                        return Ok(error(&journal, &record));
                    }
                    OperationNextStep::Do(step) => last = Some(self.perform(step, &record)?),
                    other => return Err(mismatch("a step", &format!("{other:?}"))),
                }
            }
        }
        Err(mismatch("an end", &"a thousand steps"))
    }

    fn record(&self, version: i64) -> Result<ReleaseRecord, CaseFailure> {
        self.records.get(&version).cloned().ok_or_else(|| mismatch("a record", &version))
    }

    fn write(&mut self, write: &RecordAndJournalWrite) {
        for (version, change) in &write.others {
            if let Some(record) = self.records.get_mut(version) {
                record.apply(change);
            }
        }
        // A record that is deleted is first stored with a status that says so.
        let changes = write.changes.iter();
        if let Some(record) = self.records.get_mut(&write.version) {
            changes.for_each(|change: &RecordContentChange| record.apply(change));
        }
    }

    /// Records an event of the operation. Returns the text with which the cluster rejects it, or `None` if the cluster accepts
    /// it.
    fn tell(&mut self, event: String, kind: &str) -> Option<String> {
        let refused = if self.fail.contains(&event) {
            Some(event.clone())
        } else {
            self.fail.get(kind).cloned()
        };
        self.events.push(event);
        refused.map(|event| format!("refused: {event}"))
    }

    fn observe(
        &mut self,
        journal: &OperationJournal,
        record: &ReleaseRecord,
        last: Option<&StepOutcome>,
    ) -> ObservedLiveObjects {
        let ids = ids(record);
        match scope(journal, record) {
            ObservationScope::Nothing => ObservedLiveObjects::default(),
            ObservationScope::Hook(hook) | ObservationScope::Run(hook) => {
                let hook = record.hooks.get(hook).map(|it| format!("{}/{}", it.kind, it.name));
                let name = hook.unwrap_or_default();
                let object = match (&self.hook, &journal.hook_uid, last.map(|last| &last.step)) {
                    (_, Some(uid), _) => {
                        let refused = self.tell(format!("watch {name}"), "watch");
                        self.hook = None;
                        let health = refused.map_or(ObservedHealth::Done, ObservedHealth::Failed);
                        ObservedHookObject::Ours { uid: uid.clone(), health }
                    }
                    (_, None, Some(ReleaseStep::DeleteHook { .. })) => {
                        self.tell(format!("wait-for-delete {name}"), "wait-for-delete");
                        ObservedHookObject::Missing
                    }
                    (Some(object), None, _) => object.clone(),
                    (None, None, _) if is_clear(journal, record) => ObservedHookObject::Theirs,
                    (None, None, _) => ObservedHookObject::Missing,
                };
                ObservedLiveObjects { hook: Some(object), ..ObservedLiveObjects::default() }
            }
            ObservationScope::Ready { .. } | ObservationScope::Gone if ids.is_empty() => {
                ObservedLiveObjects {
                    objects: Some(ObservedHealth::Done),
                    ..ObservedLiveObjects::default()
                }
            }
            ObservationScope::Ready { jobs } => {
                let word = if jobs { "wait-with-jobs" } else { "wait" };
                let refused = self.tell(format!("{word} {}", ids.join(" ")), word);
                let health = refused.map_or(ObservedHealth::Done, ObservedHealth::Failed);
                ObservedLiveObjects { objects: Some(health), ..ObservedLiveObjects::default() }
            }
            ObservationScope::Gone => {
                let gone = removed_ids(record);
                let refused = self.tell(format!("wait-for-delete {}", gone.join(" ")), "");
                let health = refused.map_or(ObservedHealth::Done, ObservedHealth::Failed);
                ObservedLiveObjects { objects: Some(health), ..ObservedLiveObjects::default() }
            }
        }
    }

    fn perform(
        &mut self,
        step: ReleaseStep,
        record: &ReleaseRecord,
    ) -> Result<StepOutcome, CaseFailure> {
        let hook = |hook: &usize| {
            record.hooks.get(*hook).map(|it| format!("{}/{}", it.kind, it.name)).unwrap_or_default()
        };
        let mut created = Vec::new();
        let error = match &step {
            ReleaseStep::DeleteHook { hook: place, .. } => {
                self.hook = None;
                self.tell(format!("delete(Background) {}", hook(place)), "")
            }
            ReleaseStep::CreateHook { hook: place, .. } => {
                let error = self.tell(format!("create {}", hook(place)), "create");
                let health = ObservedHealth::Pending(Vec::new());
                let object = ObservedHookObject::Ours { uid: "uid".to_owned(), health };
                self.hook = error.is_none().then_some(object);
                error
            }
            ReleaseStep::Apply { base, .. } => {
                let ids = ids(record);
                match base.and_then(|base| self.records.get(&base)).map(self::ids) {
                    None if ids.is_empty() => None,
                    None => self.tell(format!("create {}", ids.join(" ")), "create"),
                    Some(base) => {
                        created = ids.iter().filter(|id| !base.contains(id)).cloned().collect();
                        let event = format!("update [{}] to [{}]", base.join(" "), ids.join(" "));
                        self.tell(event, "update")
                    }
                }
            }
            ReleaseStep::Delete { propagation, .. } => {
                let ids = removed_ids(record);
                let event = format!("delete({}) {}", propagation.as_str(), ids.join(" "));
                if ids.is_empty() { None } else { self.tell(event, "") }
            }
            ReleaseStep::CleanUp { created, .. } => {
                self.tell(format!("delete(Background) {}", created.join(" ")), "")
            }
            other => return Err(mismatch("a step of an operation", &format!("{other:?}"))),
        };
        Ok(StepOutcome { created, error, ..StepOutcome::of(&step) })
    }

    fn revisions(&self) -> ReleaseRevisions {
        let known = self
            .records
            .values()
            .map(|record| ReleaseRevision { record: Arc::new(record.clone()), journal: None });
        ReleaseRevisions::new(known.collect(), Vec::new())
    }

    fn releases(&self) -> Vec<Json> {
        let list = self.records.values().map(|record| {
            let hooks: Vec<Json> = record
                .hooks
                .iter()
                .map(|hook| {
                    json!({
                        "name": hook.name,
                        "phase": hook.last_run.phase,
                        "deletePolicies": hook.delete_policies,
                    })
                })
                .collect();
            json!({
                "version": record.version,
                "status": record.info.status.as_str(),
                "description": record.info.description,
                "hooks": hooks,
            })
        });
        list.collect()
    }
}

/// Whether the next task is the deletion of a hook's object.
fn is_clear(journal: &OperationJournal, record: &ReleaseRecord) -> bool {
    use ::release::operation::{OperationTask, present};
    matches!(present(journal, record), Some(OperationTask::Clear { .. }))
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn journal(action: OperationKind, plan: OperationPlan) -> OperationJournal {
    OperationJournal {
        plan,
        ..OperationJournal::begin("r.v1.0".to_owned(), String::new(), action, now())
    }
}

fn journal_of_removal(plan: OperationPlan) -> OperationJournal {
    journal(OperationKind::Uninstall, plan)
}

/// A release record of a chart with these templates.
fn new_record(
    templates: &BTreeMap<String, String>,
    journal: &OperationJournal,
    version: i64,
    base: Option<&ReleaseRecord>,
) -> Result<ReleaseRecord, CaseFailure> {
    let metadata = ChartMetadata {
        name: "c".to_owned(),
        version: "0.1.0".to_owned(),
        api_version: "v2".to_owned(),
        ..ChartMetadata::default()
    };
    let templates = templates.iter().map(|(name, text)| ChartFile {
        name: format!("templates/{name}"),
        data: text.clone().into_bytes().into(),
    });
    let chart = Chart { metadata, templates: templates.collect(), ..Chart::default() };
    let rendered = rendered(chart, version)?;
    let config = GoMap::default();
    let opening =
        NewRevisionInputs { name: "r", namespace: "ns", config: &config, server_side: false, base };
    Ok(opened(&opening, &rendered, journal, version))
}

fn rendered(chart: Chart, revision: i64) -> Result<RenderedRelease, CaseFailure> {
    let release = ReleaseToRender {
        name: "r".to_owned(),
        namespace: "ns".to_owned(),
        revision,
        is_upgrade: revision > 1,
    };
    let request = RenderRequest {
        chart,
        values: &GoMap::default(),
        release,
        mode: RenderMode::default(),
        skip_schema: false,
        sub_notes: false,
        templates: None,
        post_render: None,
    };
    ::helm::template::render(request, &env(), &mut Vec::new())
        .map_err(|error| mismatch("a release", &error))
}

/// The ids of a record's objects, in the order of its manifest.
fn ids(record: &ReleaseRecord) -> Vec<String> {
    let documents = manifests::split(record.manifest.as_bytes()).into_iter().enumerate();
    let ids = documents.filter_map(|(place, text)| {
        let files = BTreeMap::from([(place.to_string(), text.to_vec())]);
        let sorted = manifests::sort(&files, ManifestOrder::Install).ok()?;
        let head = &sorted.manifests.first()?.head;
        Some(format!("{}/{}", head.kind, head.name))
    });
    ids.collect()
}

fn removed_ids(record: &ReleaseRecord) -> Vec<String> {
    let removed = removed(record).unwrap_or_default();
    let ids = removed.deleted.iter().map(|it| format!("{}/{}", it.head.kind, it.head.name));
    ids.collect()
}
