//! Releases that failed as often as their spec allows: they are quarantined, and not attempted again before what they are made
//! from changes or a user lifts that.
//!
//! The remediation of the spec comes first; a Quarantine means that its result stays, also across restarts and other changes of
//! the spec. A rollback of Helm brings back chart and values alike, so it does not matter which of them is the cause.
//! Differs(flux): helm-controller forgets failures whenever the spec changes, and releases the same again.
//!
//! Here: what owners of releases have in common. Elsewhere: what is decided (engine `release`, `failure_policy`), Quarantines as
//! objects (`windlass_quarantine`), the owners (`helm_release`, and the crate `helmfile-controller`).

use std::sync::Arc;

use crds::helm::HelmReleaseStatus;
use crds::windlass_release::{Quarantine, QuarantineAction};
use kube_core::ResourceExt as _;
use objects::container_images::images_of;
use quarantine::build_inputs_record::{BuildInputsRecord, known_images};
use quarantine::on_failure_annotation::{ON_FAILURE, OnFailurePolicy};
use quarantine::rollback_decision::{FailureConsequence, NoRollbackReason};
use reconcile::{ConditionStatus, NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};
use release::failure_policy::{FailurePolicy, ReleaseQuarantine};
use release::release_spec::{FailureStrategy, RemediationSettings};
use release::status::{HelmReleaseStatusFields, MISSING_ROLLBACK_TARGET, RETRIES_EXCEEDED};
use release::{ReleaseDesiredState, ReleaseRevision, ReleaseSnapshot, ReleaseSpec};
use sha2::{Digest as _, Sha256};

use super::executor::ReleaseExecutor;
use super::release_run::ReleaseRunnerReport;
use super::{DesiredRelease, ReleaseStatusOwner, manifest_objects};
use windlass_cluster::ClusterError;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_quarantine::{FailedResult, INVALID_ON_FAILURE, MAX_IMAGES};
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

/// Facts from the records of a release that has failed as often as it may.
#[derive(Debug, Default)]
pub(crate) struct FailedReleaseRecords {
    /// Whether the same release was good before.
    was_good: bool,
    /// The images of the failed release. Empty if they are not known.
    failed_images: Vec<String>,
    /// The images of the last good release.
    good_images: Vec<String>,
}

/// The Quarantines of an owner of releases, and the requests in its annotation.
pub struct OwnerQuarantines {
    asked: OnFailurePolicy,
    own: Vec<Arc<Quarantine>>,
    /// The outcome if nothing may begin, because the annotation or the Quarantines are not known.
    unknown: Option<RunOutcome>,
}

/// The inputs for judging a run of a release by Quarantines.
#[derive(Clone, Copy)]
pub struct ReleaseQuarantineInputs<'r> {
    /// The context of the run.
    pub context: &'r RunContext,
    /// The owner.
    pub node: &'r ObjectKey,
    /// The name of the release among the releases of its owner. Empty if the owner has only one.
    pub name: &'r str,
    /// The desired release.
    pub desired_release: &'r DesiredRelease,
}

/// Allows the releases of an owner only one attempt, whatever the spec says, since a failed release is quarantined. `undoes`
/// is whether a failed installation is undone, too. A failed upgrade is undone if the owner asks for a rollback.
pub fn attempt_once(spec: &mut ReleaseSpec, undoes: bool) {
    spec.install.strategy = FailureStrategy::RemediateOnFailure;
    spec.upgrade.strategy = FailureStrategy::RemediateOnFailure;
    for remediation in [&mut spec.install.remediation, &mut spec.upgrade.remediation] {
        *remediation = once(*remediation, undoes);
    }
}

/// The remediation settings of a release that gets no second attempt. `undoes` says whether its failure is remediated.
fn once(remediation: RemediationSettings, undoes: bool) -> RemediationSettings {
    let remediate_last_failure = undoes.then_some(true);
    RemediationSettings { retries: 0, remediate_last_failure, ..remediation }
}

/// The digest that identifies the result of a release: all inputs of its rendering, and its target.
fn result_digest(desired: &ReleaseDesiredState) -> String {
    match desired.kube_context.as_str() {
        "" => desired.inputs.clone(),
        context => {
            let text = format!("{}\n{context}", desired.inputs);
            format!("sha256:{}", hex::encode(Sha256::digest(text)))
        }
    }
}

/// The digest of the last good result. It stays the same after another rollback to the same result, which makes another
/// revision.
fn good_digest(snapshot: &ReleaseSnapshot) -> String {
    let text = format!("{}\n{}", snapshot.versioned_chart(), snapshot.config_digest);
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Facts from the records of a release that has failed as often as it may. Empty for other outcomes.
    pub(super) fn failed_records(&self, outcome: &RunOutcome) -> FailedReleaseRecords {
        let desired = self.desired();
        if !(desired.failures.quarantines && has_failed(outcome)) {
            return FailedReleaseRecords::default();
        }
        let revisions = self.revisions();
        let is_failed = |it: &&ReleaseRevision| {
            let journal = it.journal.as_ref();
            journal.is_some_and(|it| it.action.is_release() && it.inputs == desired.inputs)
        };
        let failed = revisions.all().iter().rev().find(is_failed);
        let status = self.owner.status();
        let good = desired.stays_in_place(&status).and_then(|it| revisions.get(it.version));
        FailedReleaseRecords {
            was_good: desired.was_good(&status, &revisions),
            failed_images: failed.map(images_of_revision).unwrap_or_default(),
            good_images: good.map(images_of_revision).unwrap_or_default(),
        }
    }
}

/// The images of a revision.
fn images_of_revision(revision: &ReleaseRevision) -> Vec<String> {
    let objects = manifest_objects::read(&revision.record.manifest).unwrap_or_default();
    known_images(images_of(&objects, MAX_IMAGES))
}

/// Whether a run ended because a release failed as often as it may.
fn has_failed(outcome: &RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Stalled(RETRIES_EXCEEDED | MISSING_ROLLBACK_TARGET, _))
}

/// A status that has forgotten failures.
#[must_use]
pub fn without_failures(status: &HelmReleaseStatus) -> HelmReleaseStatus {
    HelmReleaseStatus { failures: 0, install_failures: 0, upgrade_failures: 0, ..status.clone() }
}

impl OwnerQuarantines {
    /// Reads the Quarantines of an owner, and the requests in its annotation. If they cannot be read, the run tries again at
    /// `retry_at` at the latest.
    pub async fn read<K: WindlassKind>(
        context: &RunContext,
        node: &ObjectKey,
        object: &K,
        retry_at: Time,
    ) -> Self {
        let asked = windlass_quarantine::on_failure(object);
        let known = known_quarantines::of_namespace(context, node, retry_at).await;
        let uid = object.uid().unwrap_or_default();
        let (known, unread) = match known {
            Ok(known) => (known, None),
            Err(outcome) => (Vec::new(), Some(outcome)),
        };
        let (asked, refused) = match asked {
            Ok(asked) => (asked, None),
            Err(outcome) => (OnFailurePolicy::Never, Some(outcome)),
        };
        let own = windlass_quarantine::of_applier(known, node, &uid);
        Self { asked, own, unknown: refused.or(unread) }
    }

    /// The outcome of a run that begins nothing, because the Quarantines or the annotation are not known. `None` if they are
    /// known.
    #[must_use]
    pub(crate) fn unknown(&self) -> Option<&RunOutcome> {
        self.unknown.as_ref()
    }

    /// Whether releases that fail are quarantined.
    #[must_use]
    pub fn quarantines(&self) -> bool {
        self.asked.quarantines()
    }

    /// Checks that a spec does not contradict the annotation. A release with an unlimited number of attempts would never end
    /// in a Quarantine.
    ///
    /// # Errors
    /// The outcome that reports the contradiction.
    pub(crate) fn check(&self, spec: &ReleaseSpec) -> Result<(), RunOutcome> {
        let is_endless = |strategy: FailureStrategy, remediation: RemediationSettings| {
            strategy.retry().is_some() || remediation.retries < 0
        };
        let fields = [
            ("install", is_endless(spec.install.strategy, spec.install.remediation)),
            ("upgrade", is_endless(spec.upgrade.strategy, spec.upgrade.remediation)),
        ];
        let endless = fields.into_iter().find(|(_, is_endless)| *is_endless);
        let Some((field, _)) = endless.filter(|_| self.quarantines()) else { return Ok(()) };
        let text = format!(
            "annotation {ON_FAILURE} has no effect, because a failed {field} is repeated without end; set \
             spec.{field}.strategy.name to RemediateOnFailure, and spec.{field}.remediation.retries to 0 or more"
        );
        Err(RunOutcome::Stalled(INVALID_ON_FAILURE, text))
    }

    /// The policy for failures of a release.
    #[must_use]
    pub fn policy(
        &self,
        desired: &ReleaseDesiredState,
        status: &HelmReleaseStatusFields,
    ) -> FailurePolicy {
        let unknown = self.unknown.as_ref().map(|outcome| ReleaseQuarantine {
            text: outcome.text().to_owned(),
            keeps_last_good: false,
        });
        let in_force = windlass_quarantine::of_result(&self.own, &result_digest(desired));
        let quarantine = in_force.map(|it| {
            let good =
                desired.last_good(status).map(|good| format!("chart {}", good.versioned_chart()));
            ReleaseQuarantine {
                text: windlass_quarantine::text_with(it, good.as_deref()),
                keeps_last_good: it.spec.action == QuarantineAction::RollBack,
            }
        });
        FailurePolicy {
            quarantines: self.quarantines(),
            rolls_back: self.asked == OnFailurePolicy::RollBack,
            quarantine: unknown.or(quarantine),
        }
    }

    /// The Quarantine of a release that a user lifted, and whose failures still count. `None` if there is none, or if the
    /// Quarantines are not known.
    #[must_use]
    pub fn to_attempt(&self, desired: &ReleaseDesiredState) -> Option<&Arc<Quarantine>> {
        let known = self.unknown.is_none();
        windlass_quarantine::to_attempt(&self.own, &result_digest(desired)).filter(|_| known)
    }

    /// Decides the outcome of a run of a release, by the request in the annotation, and records a failure as a Quarantine.
    /// `status` is the one that the run decided.
    pub async fn conclude<K: WindlassKind>(
        &self,
        release: ReleaseQuarantineInputs<'_>,
        object: &K,
        status: &HelmReleaseStatusFields,
        ended: ReleaseRunnerReport,
    ) -> ReleaseRunnerReport {
        let desired = &release.desired_release.desired;
        let is_held =
            matches!(ended.outcome, RunOutcome::Stalled(condition_reason::QUARANTINED, _));
        if let Some(unknown) = self.unknown.clone().filter(|_| is_held) {
            return ReleaseRunnerReport { outcome: unknown, ..ended };
        }
        let is_new = desired.failures.quarantine.is_none() && !ended.records.was_good;
        if !(self.quarantines() && has_failed(&ended.outcome) && is_new) {
            return ended;
        }
        let outcome = match self.record(release, object, status, &ended).await {
            Ok(recorded) => {
                let good = desired.stays_in_place(status);
                let good = good.map(|good| format!("chart {}", good.versioned_chart()));
                let text = windlass_quarantine::text_with(&recorded, good.as_deref());
                RunOutcome::Stalled(condition_reason::QUARANTINED, text)
            }
            Err(error) => {
                let text = format!("{}; it cannot be quarantined: {error}", ended.outcome.text());
                let now = jiff::Timestamp::now();
                let again = now.saturating_add(desired.retry).unwrap_or(Time::MAX);
                RunOutcome::Failed(RETRIES_EXCEEDED, text, NextRunTrigger::at(again))
            }
        };
        ReleaseRunnerReport { outcome, ..ended }
    }

    async fn record<K: WindlassKind>(
        &self,
        release: ReleaseQuarantineInputs<'_>,
        object: &K,
        status: &HelmReleaseStatusFields,
        ended: &ReleaseRunnerReport,
    ) -> Result<Quarantine, ClusterError> {
        let ReleaseQuarantineInputs { context, node, name, desired_release } = release;
        let desired = &desired_release.desired;
        let masked = |images: &[String]| -> Vec<String> {
            images.iter().map(|image| desired_release.masked(image)).collect()
        };
        // The remediation of the failure is not the failed release.
        let conditions = [&status.released, &status.tested];
        let mut conditions = conditions.into_iter().flatten();
        let said = conditions.find(|said| said.status == ConditionStatus::False);
        let (reason, message) = match said {
            Some(said) => (said.reason, said.text.as_str()),
            None => (ended.outcome.reason(), ended.outcome.text()),
        };
        let message = desired_release.masked(message);
        let revision = |version: &str| match name {
            "" => version.to_owned(),
            name => format!("{name}@{version}"),
        };
        let facts = BuildInputsRecord {
            digest: result_digest(desired),
            revision: revision(&desired.chart_version),
            images: masked(&ended.records.failed_images),
            ..BuildInputsRecord::default()
        };
        let consequence = match desired.stays_in_place(status) {
            Some(good) => FailureConsequence::RollBack(BuildInputsRecord {
                digest: good_digest(good),
                revision: revision(&good.chart_version),
                images: masked(&ended.records.good_images),
                ..BuildInputsRecord::default()
            }),
            None if self.asked == OnFailurePolicy::Hold => {
                FailureConsequence::Hold(vec![NoRollbackReason::Requested])
            }
            None if desired.last_good(status).is_none() => {
                FailureConsequence::Hold(vec![NoRollbackReason::NoLastGood])
            }
            None => FailureConsequence::Hold(vec![NoRollbackReason::NotUndone]),
        };
        let uid = object.uid().unwrap_or_default();
        let failed = FailedResult {
            node,
            uid: &uid,
            facts: &facts,
            reason,
            message: &message,
            consequence: &consequence,
        };
        let mut quarantine = windlass_quarantine::quarantine(&failed);
        quarantine.metadata.owner_references = object.owner_ref(&()).map(|owner| vec![owner]);
        let table = context.shared::<WatchedObjectCache<Quarantine>>();
        // A lift was noted since the run began, or another release of the owner failed.
        let own = windlass_quarantine::of_applier(table.of(&node.namespace), node, &uid);
        let cluster = &context.cluster;
        let written = windlass_quarantine::record(cluster, quarantine, &own).await?;
        known_quarantines::insert_written(context, written.clone());
        // A Quarantine that cannot be deleted now is deleted after the next failure. Quarantines of other releases of the
        // owner stay. Otherwise the next run of such a release would write its Quarantine again and delete this one.
        let newest = written.name_any();
        let of_release = own.iter().filter(|it| is_of_release(&it.spec.result.revision, name));
        let of_release: Vec<_> = of_release.cloned().collect();
        let deleted = windlass_quarantine::delete_oldest(cluster, &of_release, &newest).await;
        for gone in deleted.unwrap_or_default() {
            known_quarantines::remove_deleted(context, &node.namespace, &gone);
        }
        Ok(written)
    }
}

/// Whether a Quarantine with this revision belongs to the release. A Helmfile puts the name of the release before the chart version
/// (`NAMESPACE/NAME@VERSION`). A HelmRelease has only one release, whose name is empty here, so each of its Quarantines matches.
fn is_of_release(revision: &str, name: &str) -> bool {
    name.is_empty() || revision.strip_prefix(name).is_some_and(|version| version.starts_with('@'))
}

/// Notes that the failures of a release are forgotten, because a user lifted its Quarantine. The status without the failures
/// is written before this note. After a crash between the two, both are written again, and nothing was attempted meanwhile.
///
/// # Errors
/// The outcome of a run that cannot write the note.
pub async fn note_attempt(
    context: &RunContext,
    quarantine: &Quarantine,
    retry_at: Time,
) -> Result<(), RunOutcome> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let noted = windlass_quarantine::note_attempt(&context.cluster, quarantine, &now).await;
    let noted = noted.map_err(|error| {
        let text =
            format!("the lift of Quarantine {} cannot be noted: {error}", quarantine.name_any());
        RunOutcome::Failed(
            condition_reason::RECONCILIATION_FAILED,
            text,
            NextRunTrigger::at(retry_at),
        )
    })?;
    if let Some(noted) = noted {
        known_quarantines::insert_written(context, noted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantines_of_one_release_of_a_helmfile_are_distinguished_from_those_of_others() {
        assert!(is_of_release("shop/web@1.0.0", "shop/web"));
        assert!(!is_of_release("shop/web-2@1.0.0", "shop/web"));
        assert!(!is_of_release("shop/api@1.0.0", "shop/web"));
        assert!(is_of_release("1.0.0", ""));
    }

    #[test]
    fn what_is_attempted_once_is_undone_where_its_owner_wants_that() {
        let known = RemediationSettings { retries: 5, ..RemediationSettings::default() };
        assert_eq!(once(known, true).remediate_last_failure, Some(true));
        assert_eq!(once(known, false), RemediationSettings::default());
    }
}
