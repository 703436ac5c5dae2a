//! Suspension, windows and Freezes keep a HelmRelease from beginning an operation. An operation that is under way goes on to
//! its end, or to the next place at which nothing is half done.
//!
//! Elsewhere: whether a hold or window is in force (`hold`, `window`), where an operation may stop (engine `release`).

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject as _;
use crds::helm::HelmRelease;
use golang::value::GoMap;
use kube_core::{Resource as _, ResourceExt as _};
use objects::SecretMasking;
use reconcile::{
    FreezeHold, ROLLBACK, ReleaseRollback, ReleaseRollbackProgress, RunOutcome, condition_reason,
};
use release::ReleaseDesiredState;
use release::gated_release_change::ReleaseChangeGates;
use release::helm_release_planner::is_under_way;
use release::release_snapshot::{ReleaseSnapshot, latest};
use release::status::{HelmReleaseStatusFields, RELEASED};

use super::{HelmReleaseRunReport, HelmReleaseSession, chart_source, status, validated_spec};
use crate::release_runner::storage::ReleaseStorage;
use crate::release_runner::validated_spec::ReleaseInputs;
use crate::release_runner::{DesiredRelease, target_of};
use windlass_cluster::ClusterError;
use windlass_runtime::applier_run::PendingChanges;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::{change_window, object_hold};

/// The rollback that a user requested for a release, if it is still to be performed or has succeeded. `None` if it failed,
/// another operation came first, or the history does not tell.
pub(super) fn rollback(object: &HelmRelease) -> Option<ReleaseRollback> {
    let asked = validated_spec::requests(object).rollback?;
    let history = status::read(object).history;
    let is_wanted = match asked.progress(history.iter().map(ReleaseSnapshot::made)) {
        ReleaseRollbackProgress::Succeeded => true,
        // A revision that does not exist yet counts as requested, too.
        ReleaseRollbackProgress::Requested => history.iter().any(|it| it.version == asked.from),
        ReleaseRollbackProgress::Failed
        | ReleaseRollbackProgress::Overtaken
        | ReleaseRollbackProgress::Unknown => false,
    };
    is_wanted.then_some(asked)
}

impl HelmReleaseSession<'_> {
    /// The changes that a run would make if no window held it.
    pub(super) fn pending(&self, object: &HelmRelease) -> PendingChanges {
        let is_ready = object.condition("Ready").is_some_and(|it| it.status == "True")
            && object.observed_generation() == object.meta().generation;
        let source = chart_source::source(&self.context, object, self.began).ok();
        let is_known = source.is_none_or(|source| {
            self.memory().source.as_ref().is_none_or(|known| *known == source.key())
        });
        match (is_ready, is_known) {
            (true, true) => PendingChanges::Nothing,
            (true, false) => PendingChanges::Change("the chart's new version".to_owned()),
            (false, _) => PendingChanges::Change("the changed spec".to_owned()),
        }
    }

    /// The windows and Freezes that hold the release at its phases.
    pub(super) fn gates(
        &self,
        object: &HelmRelease,
        freeze: Option<Arc<FreezeHold>>,
    ) -> ReleaseChangeGates {
        ReleaseChangeGates {
            closes: change_window::closes(object, self.began),
            freeze,
            ..ReleaseChangeGates::default()
        }
    }

    /// Whether an operation is under way, by the journal beside the newest record. The run of the operation may have been
    /// lost. A process reads the journal once, and only for an object whose status has no final outcome.
    pub(super) async fn is_under_way(&self, object: &HelmRelease) -> Result<bool, ClusterError> {
        if self.is_to_roll_back(object) {
            return Ok(true);
        }
        if !status::is_reconciling(object) {
            return Ok(false);
        }
        let memory = self.memory().release.clone();
        if let Some(known) = memory.under_way() {
            return Ok(known);
        }
        let Ok(target) = self.target(object).await else { return Ok(false) };
        let known = status::read(object);
        let (Some(of), false) = (latest(&known.history), known.storage_namespace.is_empty()) else {
            return self.is_first_under_way(object, &target).await;
        };
        self.has_open_journal(object, &target, &known.storage_namespace, &of.name).await
    }

    /// Whether a user requests the rollback of a suspended release, and the rollback is not known to be done or over. It is
    /// carried out, or the status reports why not.
    fn is_to_roll_back(&self, object: &HelmRelease) -> bool {
        let Some(asked) = validated_spec::requests(object).rollback else { return false };
        let progress =
            asked.progress(status::read(object).history.iter().map(ReleaseSnapshot::made));
        matches!(progress, ReleaseRollbackProgress::Requested | ReleaseRollbackProgress::Overtaken)
            && object_hold::is_suspended(object, self.began)
    }

    /// The same check if nothing was released before.
    async fn is_first_under_way(
        &self,
        object: &HelmRelease,
        target: &Arc<ClusterTarget>,
    ) -> Result<bool, ClusterError> {
        let wanted = target_of(object);
        self.has_open_journal(object, target, &wanted.storage_namespace, &wanted.name).await
    }

    async fn has_open_journal(
        &self,
        object: &HelmRelease,
        target: &Arc<ClusterTarget>,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let owner = object.uid().unwrap_or_default();
        let storage = ReleaseStorage::new(&target.cluster, namespace, name, &owner).await;
        let storage = storage.map_err(|it| it.into_cluster())?;
        let revisions = storage.revisions().await.map_err(|it| it.into_cluster())?;
        let is_open = is_under_way(&owner, "", &status::read(object), &revisions);
        self.memory().release.set_under_way(is_open);
        Ok(is_open)
    }

    /// Runs an operation that is under way to the next place at which nothing is half done. It does not read other changes of
    /// the spec.
    pub(super) async fn stop(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        let Ok(target) = self.target(object).await else {
            return self.finish_suspended(object).await;
        };
        let requested = object.annotations().get(ROLLBACK).map(String::as_str);
        let freeze = self.frozen(object, requested.filter(|_| self.is_to_roll_back(object))).await;
        let gates = ReleaseChangeGates { freeze, ..ReleaseChangeGates::default() };
        let desired_release = self.without_chart(object, true, gates);
        let spec = desired_release.spec.clone();
        let Some(ended) = self.drive(object, desired_release, &target, None).await else {
            return Ok(Some(Duration::ZERO));
        };
        match &ended.outcome {
            RunOutcome::Blocked(why, ..) if *why == condition_reason::SUSPENDED => {
                self.finish_suspended(&ended.object).await
            }
            _ => self.finish(ended, Some(spec)).await,
        }
    }

    /// The desired state of a release that changes nothing, which is the state of the existing release.
    pub(super) fn without_chart(
        &self,
        object: &HelmRelease,
        is_suspended: bool,
        gates: ReleaseChangeGates,
    ) -> Arc<DesiredRelease> {
        let known = status::read(object);
        let spec = validated_spec::read_without_chart(object, &self.context.settings);
        let desired = self.desired(object, &spec, released_parts(&known, is_suspended));
        let mut desired = ReleaseDesiredState { suspended: is_suspended, gates, ..desired };
        if self.is_verified_only() {
            desired.requests.keep_known(&known);
        }
        Arc::new(DesiredRelease {
            desired,
            spec: Arc::new(spec),
            values: GoMap::default(),
            chart: None,
            expressions: self.expressions.clone(),
            secrets: SecretMasking::default(),
            preparing: self.preparing.clone(),
        })
    }
}

/// The chart and values from which the existing release was made, by the newest revision of its history. If its owner
/// `is_suspended`, the version of the chart is the one of the last attempt, if there was one.
pub fn released_parts(known: &HelmReleaseStatusFields, is_suspended: bool) -> ReleaseInputs {
    let of = latest(&known.history);
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let attempted = Some(&known.last_attempted_revision).filter(|it| !it.is_empty());
    let version = of.map(|it| &it.chart_version);
    ReleaseInputs {
        chart_name: text(of.map(|it| &it.chart_name)),
        chart_version: text(attempted.filter(|_| is_suspended).or(version)),
        app_version: text(of.map(|it| &it.app_version)),
        oci_digest: text(of.map(|it| &it.oci_digest)),
        config_digest: text(of.map(|it| &it.config_digest)),
        artifact_digest: String::new(),
    }
}

/// The place at which a release stopped when its object was suspended.
pub(super) fn where_stopped(object: &HelmRelease) -> String {
    match object.condition(RELEASED) {
        Some(released) => {
            let before = &released.message;
            format!("suspended before the next action; last action: {before}")
        }
        None => "suspended before the first install".to_owned(),
    }
}

/// The report of a run that ended an operation outside of its windows. It names the time until which the run waits. `None` if
/// the windows are open again by now.
pub(super) fn outside(ended: HelmReleaseRunReport) -> Option<HelmReleaseRunReport> {
    let what = match &ended.outcome {
        RunOutcome::Blocked(why, what, _) if *why == condition_reason::WINDOW_CLOSED => {
            what.clone()
        }
        _ => return Some(ended),
    };
    let state = change_window::state(&*ended.object, jiff::Timestamp::now())?;
    let outcome = state.outcome(&what)?;
    Some(HelmReleaseRunReport { outcome, ..ended })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_rollback_is_wanted_as_long_as_the_history_has_its_revision_or_its_outcome() {
        let made = |version: i64, status: &str, action: &str| {
            json!({"digest": "sha256:0", "name": "a", "namespace": "b", "version": version, "status": status,
                "action": action, "chartName": "c", "chartVersion": "1.0.0", "configDigest": "d",
                "firstDeployed": "2026-11-01T00:00:00Z", "lastDeployed": "2026-11-01T00:00:00Z"})
        };
        let wanted = |annotation: &str, history: &[Value]| {
            let object = json!({
                "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": "app", "namespace": "apps", "annotations": {ROLLBACK: annotation}},
                "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}},
                "status": {"history": history},
            });
            rollback(&serde_json::from_value(object).unwrap())
        };
        let newest = made(5, "deployed", "upgrade");
        let done = made(6, "deployed", "rollback");
        let failed = made(6, "failed", "rollback");
        let other = made(6, "deployed", "upgrade");
        let asked = Some(ReleaseRollback { from: 5, to: 3 });
        assert_eq!(wanted("5->3", std::slice::from_ref(&newest)), asked);
        assert_eq!(wanted("5->3", &[done]), asked);
        assert_eq!(wanted("5->3", &[failed]), None);
        assert_eq!(wanted("5->3", &[other]), None);
        assert_eq!(wanted("9->3", &[newest]), None, "there is no revision 9");
        assert_eq!(wanted("5->3", &[]), None);
    }
}
