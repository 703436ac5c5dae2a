//! Detects drift: whether the objects in the cluster differ from the manifest of the deployed revision.
//!
//! Source of the semantics: helm-controller 1.6 `internal/action/diff.go`, fluxcd/pkg/ssa `jsondiff`.
//! Elsewhere: what a run does about drift (engine `release`), correcting it (`object_writes`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use apply::object_changes::masked;
use apply::object_contest::ObjectContest;
use apply::owner_labels_and_apply_annotations::has;
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use reconcile::{RunOutcome, Time};
use release::ReleaseRecord;
use release::journal::OperationKind;
use release::release_decision::ReleaseDrift;
use release::release_spec::DriftMode;
use sha2::{Digest as _, Sha256};

use super::executor::{DriftedObject, ReleaseExecutor};
use super::manifest_objects::ManifestObject;
use super::{MANAGER, ReleaseStatusOwner};
use windlass_cluster::ClusterError;
use windlass_cluster::object_watcher::WatchedObjectState;
use windlass_cluster::untyped_objects::DryRunMode;

/// The label or annotation that disables drift detection for an object, with the value `disabled`.
const SWITCH: &str = "helm.toolkit.fluxcd.io/driftDetection";

/// The most fields of an object that a message names.
const MAX_NAMED_FIELDS: usize = 8;

/// The result of comparing one object.
enum DriftComparisonResult {
    Same,
    /// The object is excluded from the comparison or from corrections.
    Excluded,
    Missing,
    Changed {
        payload: Object,
        paths: Vec<String>,
        counts: [usize; 3],
    },
}

/// The field with the paths that other managers may set.
const IGNORE: &str = "spec.driftDetection.ignore";

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Compares the objects of a revision with the cluster, and remembers the objects that drifted for a correction.
    pub(super) async fn drift(&self, record: &ReleaseRecord) -> Result<ReleaseDrift, RunOutcome> {
        let members = match self.members(record).await {
            Ok(members) => members,
            Err(error) => {
                return Ok(ReleaseDrift::Error(self.desired_release.masked(&error.text()?)));
            }
        };
        let manifests: BTreeMap<&ObjectId, &Object> =
            members.iter().map(|member| (&member.id, &member.object)).collect();
        let rules = &self.desired_release.spec.ignore;
        self.contests().retain_applied(|id| manifests.get(id).copied(), rules);
        self.unanswered().retain(|id| manifests.contains_key(id));
        // Objects that left the release count as changed no more.
        self.target.watcher().release_unwanted(&self.node, |id| manifests.contains_key(id));
        let action = self.journal(record.version).map(|it| it.action);
        let is_rollback = action == Some(OperationKind::Rollback);
        let observations: Vec<_> =
            members.iter().map(|member| self.compared(member, is_rollback)).collect();
        let width = usize::from(self.context.settings.concurrent_ssa);
        let found: Vec<Result<DriftComparisonResult, ClusterError>> =
            stream::iter(observations).buffered(width).collect().await;
        self.report_answered_late(record).await;
        let mut drifted = Vec::new();
        let mut text = String::new();
        let mut faults = Vec::new();
        for (member, found) in members.iter().zip(found) {
            let subject = member.id.subject();
            match found {
                Ok(DriftComparisonResult::Same | DriftComparisonResult::Excluded) => {}
                Ok(DriftComparisonResult::Missing | DriftComparisonResult::Changed { .. })
                    if !self.is_within_measure(member) => {}
                Ok(DriftComparisonResult::Missing) => {
                    line(&mut text, &format!("{subject} removed"));
                    let payload = member.object.clone();
                    drifted.push(DriftedObject { member: member.clone(), payload, fields: None });
                }
                Ok(DriftComparisonResult::Changed {
                    payload,
                    paths,
                    counts: [added, changed, removed],
                }) => {
                    // Differs(flux): it says how many fields, but not which.
                    let named = paths.join(", ");
                    line(
                        &mut text,
                        &format!(
                            "{subject} changed ({added} additions, {changed} changes, {removed} removals): {named}"
                        ),
                    );
                    let fields = Some(masked(&member.id, paths));
                    drifted.push(DriftedObject { member: member.clone(), payload, fields });
                }
                Err(error) if error.is_of_server() => return Err(self.no_answer(&error)),
                Err(error) => {
                    self.target.watcher().comparison_failed(&self.node, &member.id);
                    self.note_refusal(&error, &member.id);
                    faults.push(format!("{subject}: {error}"));
                }
            }
        }
        if drifted.is_empty() {
            return Ok(match faults.is_empty() {
                true => ReleaseDrift::None,
                false => ReleaseDrift::Error(self.desired_release.masked(&faults.join("; "))),
            });
        }
        // Differs(flux): an object that cannot be compared does not keep others from being corrected; the run after
        // that reports it.
        for fault in faults {
            line(&mut text, &self.desired_release.masked(&format!("{fault} (comparison failed)")));
        }
        self.known().drifted = drifted;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&text)));
        Ok(ReleaseDrift::Found { digest, text })
    }

    /// Whether windlass corrects drift of an object now. It does not do so without end if another manager undoes each
    /// correction.
    fn is_within_measure(&self, member: &ManifestObject) -> bool {
        let id = &member.id;
        let watcher = self.target.watcher();
        let digest = self.manifest_digest(&member.object);
        let rival = self.known().rivals.remove(id);
        if self.desired().spec.drift != DriftMode::Enabled {
            // No run is planned for the end of a pause, so each further change has to wake the owner.
            watcher.end_hush(&self.node, id);
            return true;
        }
        let pause = self.contested_pause();
        let now = jiff::Timestamp::now();
        if !self.is_counted(id, &digest) {
            self.contests().corrected(id, now, pause);
            return true;
        }
        let contest =
            || rival.unwrap_or_else(|| ObjectContest::new(id, None, MANAGER, IGNORE, pause));
        let is_allowed = self.contests().allows(id, &digest, now, pause, contest);
        if !is_allowed {
            watcher.hush(&self.node, id);
        }
        is_allowed
    }

    /// Whether a correction of an object counts. A run corrects drift once. The next run handles and counts drift that is
    /// found after that.
    fn is_counted(&self, id: &ObjectId, digest: &str) -> bool {
        let is_asked = self.owner.is_asked();
        let is_corrected = self.desired().spec.drift == DriftMode::Enabled && !is_asked;
        let has_corrected = self.known().ran.corrected;
        is_corrected && !has_corrected && self.target.watcher().had_applied(&self.node, id, digest)
    }

    /// The digest that identifies an applied object. It differs if other fields of the object are ignored.
    pub(super) fn manifest_digest(&self, object: &Object) -> String {
        self.desired_release.spec.ignore.digest(object, &apply::drift_comparison::digest(object))
    }

    /// How long windlass does not correct a contested object: until the release is observed again, to the second.
    pub(super) fn contested_pause(&self) -> Duration {
        let interval = Duration::from_secs(self.desired().interval.as_secs());
        reconcile::contested_pause(interval)
    }

    /// The message about contested objects, and the time until which windlass leaves them alone. `None` if windlass does not
    /// correct drift of the release, which ends all contests.
    pub(super) fn contested(&self) -> Option<(String, Time)> {
        let desired = self.desired();
        if desired.spec.drift != DriftMode::Enabled || desired.deleted || desired.suspended {
            self.contests().end_all();
            return None;
        }
        let standing = self.contests().standing(jiff::Timestamp::now());
        let until = standing.values().map(|(_, until)| *until).min()?;
        let strings: Vec<String> = standing.into_values().map(|(text, _)| text).collect();
        Some((self.desired_release.masked(&strings.join("; ")), until))
    }

    /// Compares an object with the cluster. An excluded object is not contested.
    async fn compared(
        &self,
        member: &ManifestObject,
        is_rollback: bool,
    ) -> Result<DriftComparisonResult, ClusterError> {
        let found = self.compared_with_live(member, is_rollback).await?;
        if matches!(found, DriftComparisonResult::Excluded) {
            self.contests().end(&member.id);
        }
        Ok(found)
    }

    async fn compared_with_live(
        &self,
        member: &ManifestObject,
        is_rollback: bool,
    ) -> Result<DriftComparisonResult, ClusterError> {
        let ManifestObject { id, object, resource } = member;
        if has(object, SWITCH, "disabled") {
            return Ok(DriftComparisonResult::Excluded);
        }
        if self.guard().skips(object) {
            self.known().is_partly_compared = true;
            return Ok(DriftComparisonResult::Excluded);
        }
        let watcher = self.target.watcher();
        let digest = self.manifest_digest(object);
        let knowledge = watcher.knowledge(&self.node, id, &digest);
        let is_asked = self.owner.is_asked();
        if !is_asked
            && matches!(knowledge, WatchedObjectState::Applied | WatchedObjectState::Unmoved)
        {
            return Ok(DriftComparisonResult::Same);
        }
        let since = watcher.now();
        let cluster = &self.target.cluster;
        let Some(live) = cluster.get(resource, &id.namespace, &id.name).await? else {
            self.unanswered().forget(id);
            return Ok(DriftComparisonResult::Missing);
        };
        if has(&live, SWITCH, "disabled") {
            watcher.released(&self.node, id);
            self.known().is_partly_compared = true;
            return Ok(DriftComparisonResult::Excluded);
        }
        let rules = &self.desired_release.spec.ignore;
        let payload = match rules.leave_alone(object) {
            true => object.clone(),
            false => rules.payload(object, &live, MANAGER),
        };
        let dry = cluster.apply(resource, &payload, MANAGER, DryRunMode::DryRun).await?;
        if !rules.have_drifted(&live, &dry) {
            let write = self.unanswered().take_applied(id, &digest);
            self.known().answered_late.extend(write.map(|write| (id.clone(), write)));
            // Another client set what the manifest says, or may set what it set. A watch may not have seen that yet.
            if watcher.is_changed_since_applied(&self.node, &live) {
                self.contests().end(id);
            }
            watcher.applied(&self.node, resource, &digest, &live, since);
            return Ok(DriftComparisonResult::Same);
        }
        self.unanswered().forget(id);
        if is_rollback && self.is_left_alone(&payload).await? {
            self.known().is_partly_compared = true;
            return Ok(DriftComparisonResult::Excluded);
        }
        let pause = self.contested_pause();
        let now = jiff::Timestamp::now();
        let is_contested = self.is_counted(id, &digest)
            && self.contests().would_be_contested(id, &digest, now, pause);
        if is_contested {
            let contest = ObjectContest::new(id, Some((&live, &dry)), MANAGER, IGNORE, pause);
            self.known().rivals.insert(id.clone(), contest);
        }
        let paths = apply::drift_comparison::diff_paths(&live, &dry, usize::MAX);
        let counts = apply::drift_comparison::change_counts(&live, &dry, &paths);
        let paths = paths.into_iter().take(MAX_NAMED_FIELDS).collect();
        Ok(DriftComparisonResult::Changed { payload, paths, counts })
    }
}

fn line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    // Writing to a text cannot fail.
    let _ = write!(text, "{line}");
}
