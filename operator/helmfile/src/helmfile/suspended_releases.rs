//! The releases that `spec.suspendedReleases` suspends, and their outcome.
//!
//! Windlass does not change or uninstall a suspended release, also if the helmfile drops it or the Helmfile is deleted.
//! Elsewhere: a Helmfile that is suspended as a whole (`windlass_runtime::applier_run`), which release an entry names
//! (`windlass_runtime::object_hold`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helmfile::{HelmfileReleaseStatus, HelmfileSpec, ReleaseState, SuspendedRelease};
use helmfile::ReleaseOperationSettings;
use reconcile::{
    RemovalCause, RemovalGate, RemovalPermit, RemovalRefusal, RunOutcome, Time,
    condition_reason::SUSPENDED,
};

use super::HelmfileSession;
use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::ReleaseKey;
use super::release_reconciler::{HelmfileRun, ReleaseGoal, ReleaseProgress, ReleaseRunState};
use super::{release_specification, report};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::object_hold;

/// The suspensions of releases that are in force, by the names of releases.
pub struct ReleaseSuspensions<'s>(BTreeMap<&'s str, Vec<&'s SuspendedRelease>>);

impl<'s> ReleaseSuspensions<'s> {
    /// The suspensions of a spec that are in force at this time.
    pub fn new(spec: &'s HelmfileSpec, now: Time) -> Self {
        let mut all = BTreeMap::<&str, Vec<&SuspendedRelease>>::new();
        let entries = spec.suspended_releases.iter();
        for entry in entries.filter(|entry| object_hold::is_in_force(entry, now)) {
            all.entry(&entry.name).or_default().push(entry);
        }
        Self(all)
    }

    /// The entry that suspends a release. `None` if no entry does.
    pub fn of(&self, key: &ReleaseKey) -> Option<&'s SuspendedRelease> {
        let release = (key.name.as_str(), key.namespace.as_str(), key.context.as_str());
        let entries = self.0.get(key.name.as_str())?;
        entries.iter().find(|entry| object_hold::names_release(entry, release)).copied()
    }
}

/// The time at which the next suspension of a release ends. `None` if no suspension ends later than now.
pub(super) fn next_end(spec: &HelmfileSpec, now: Time) -> Option<Time> {
    let ends = spec.suspended_releases.iter().filter_map(|entry| Some(entry.until.as_ref()?.0));
    ends.filter(|end| *end > now).min()
}

/// A release that may be uninstalled.
pub(super) struct PermittedUninstall {
    pub(super) key: ReleaseKey,
    /// The permit that the removal gate gave for the release.
    pub(super) permit: RemovalPermit,
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// Whether the uninstallation of a release may begin, or go on if it has begun.
    ///
    /// # Errors
    /// The reason why the release may not be uninstalled.
    pub(super) fn permit_removal(
        &self,
        run: &HelmfileRun<'_, K>,
        row: &HelmfileReleaseStatus,
        cause: RemovalCause,
    ) -> Result<PermittedUninstall, RemovalRefusal> {
        let key = ReleaseKey::of(row);
        let now = jiff::Timestamp::now();
        let is_under_way = self.may_be_under_way(row);
        let gate = RemovalGate {
            cause,
            is_owner_suspended: object_hold::is_suspended(&**run.object, now),
            is_suspended: run.suspensions.of(&key).is_some(),
            closes: self.gates(run.object).closes.filter(|_| !is_under_way),
            is_frozen: run.freeze.is_some() && !is_under_way,
        };
        gate.permit(now).map(|permit| PermittedUninstall { key, permit })
    }

    /// Whether an operation on the release of a row may be under way. If this process does not know it, the row decides.
    pub(super) fn may_be_under_way(&self, row: &HelmfileReleaseStatus) -> bool {
        let memory = self.memory();
        let known = memory.releases.get(&ReleaseKey::of(row)).and_then(|it| it.drive.under_way());
        known.unwrap_or_else(|| report::is_under_way(row))
    }

    /// Handles a release with its own suspension. An operation that is under way stops at the next place at which nothing is
    /// half done. `None` if the Helmfile changed meanwhile.
    pub(super) async fn suspend_one(
        &self,
        key: &ReleaseKey,
        operation: &ReleaseOperationSettings,
        entry: &SuspendedRelease,
        remembered: &ReleaseRunState,
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseProgress> {
        let row = run.book.row(key);
        let is_under_way = row.as_ref().is_some_and(|row| self.may_be_under_way(row));
        if (is_under_way || release_specification::rolls_back(&**run.object, key, row.as_ref()))
            && let Some(outcome) = self.stop_one(key, operation, remembered, run).await?
        {
            return Some(ReleaseProgress::Unfinished(outcome));
        }
        remembered.target().watcher().release_objects(remembered.node());
        remembered.changes();
        remembered.drive.end_contests();
        run.book.update(key, |row| {
            row.state = ReleaseState::Suspended;
            row.message = Some(suspension_text(entry));
        });
        let is_there = row.is_some_and(|row| row.digest.is_some());
        Some(ReleaseProgress::Suspended { is_there })
    }

    /// Runs an operation on a release to the next place at which nothing is half done. The inner `Option` is the outcome if the
    /// operation is not there yet. The outer one is `None` if the Helmfile changed meanwhile, because then nothing is done.
    pub(super) async fn stop_one(
        &self,
        key: &ReleaseKey,
        operation: &ReleaseOperationSettings,
        remembered: &ReleaseRunState,
        run: &HelmfileRun<'_, K>,
    ) -> Option<Option<RunOutcome>> {
        let row = run.book.row(key);
        let made = self.desired_release(run, key, operation, ReleaseGoal::Stopped, row.as_ref());
        let desired_release = match made {
            Ok(desired_release) => desired_release,
            Err(outcome) => {
                self.unfinished(run, key, outcome.clone());
                return Some(Some(outcome));
            }
        };
        let owner = Arc::new(self.owner(run, key));
        let outcome = self.drive(run, &owner, &desired_release, remembered).await?;
        let is_stopped = matches!(&outcome, RunOutcome::Blocked(why, ..) if *why == SUSPENDED);
        Some((!is_stopped).then_some(outcome))
    }

    /// Like [`Self::stop_one`] for a release that is not in a plan, with the same result. It does nothing if no operation on
    /// the release can be under way.
    pub(super) async fn stop_unplanned(
        &self,
        row: &HelmfileReleaseStatus,
        target: &Arc<ClusterTarget>,
        run: &HelmfileRun<'_, K>,
    ) -> Option<Option<RunOutcome>> {
        if !self.may_be_under_way(row) {
            return Some(None);
        }
        let key = ReleaseKey::of(row);
        let remembered = self.remembered(&key, target);
        self.stop_one(&key, &release_specification::unplanned(), &remembered, run).await
    }
}

/// The text of a release's suspension, for its row.
fn suspension_text(entry: &SuspendedRelease) -> String {
    let mut text = "suspended by spec.suspendedReleases".to_owned();
    if let Some(until) = &entry.until {
        text.push_str(&format!(" until {}", until.0.strftime("%Y-%m-%dT%H:%M:%SZ")));
    }
    if let Some(reason) = &entry.reason {
        text.push_str(&format!(": {reason}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(entries: serde_json::Value) -> HelmfileSpec {
        let spec = serde_json::json!({"interval": "1m", "suspendedReleases": entries});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_suspension_is_of_a_name_a_namespace_and_a_context() {
        let key = |context: &str| ReleaseKey {
            context: context.to_owned(),
            namespace: "n".to_owned(),
            name: "db".to_owned(),
        };
        let suspended = |entry: serde_json::Value| {
            let spec = spec(serde_json::json!([{"name": "other"}, entry]));
            let suspensions = ReleaseSuspensions::new(&spec, Time::UNIX_EPOCH);
            ["", "east"].map(|context| suspensions.of(&key(context)).is_some())
        };
        assert_eq!(suspended(serde_json::json!({"name": "db"})), [true, true]);
        let of =
            |context: &str| suspended(serde_json::json!({"name": "db", "kubeContext": context}));
        assert_eq!(of("east"), [false, true]);
        assert_eq!(of(""), [true, false]);
        assert_eq!(of("west"), [false, false]);
        let elsewhere = serde_json::json!({"name": "db", "namespace": "m", "kubeContext": "east"});
        assert_eq!(suspended(elsewhere), [false, false]);
    }

    #[test]
    fn a_suspension_that_has_ended_suspends_nothing() {
        let until = "1970-01-01T00:00:01Z";
        let spec = spec(serde_json::json!([{"name": "db", "until": until}]));
        let key = super::super::testing::key("db");
        let is_suspended = |second| {
            let now = Time::from_second(second).unwrap();
            ReleaseSuspensions::new(&spec, now).of(&key).is_some()
        };
        assert_eq!([0, 1].map(is_suspended), [true, false]);
        assert_eq!(next_end(&spec, Time::UNIX_EPOCH), Time::from_second(1).ok());
        assert_eq!(next_end(&spec, Time::from_second(1).unwrap()), None);
    }
}
