//! Results that failed: they are quarantined, and the last good one is applied until the source moves on or a user lifts that.
//!
//! Which result is quarantined is known by the digest of its build, so the artifact of the source is built once in each process;
//! then it is remembered. The way back is a run as any other: it asks the same gates, and writes the same audit.
//! Differs(flux): kustomize-controller applies a revision that fails again at each retry interval.
//!
//! Here: recording a failure, and going back. Elsewhere: what follows from a failure (engine `quarantine`), Quarantines as objects
//! (`windlass_quarantine`), what the way back does not delete (`executor`).

use std::sync::Arc;

use apply::ApplyDesiredState;
use artifacts::store::NeededArtifact;
use crds::kustomize::{Kustomization, KustomizationSpec};
use crds::windlass_release::{AuditCause, AuditCauseKind, Quarantine, QuarantineAction};
use crds::{Artifact, GoDuration};
use kube_core::{Resource as _, ResourceExt as _};
use objects::container_images::images_of;
use quarantine::build_inputs_record::{BuildInputsRecord, known_images};
use quarantine::on_failure_annotation::OnFailurePolicy;
use quarantine::rollback_decision::consequence;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, condition_reason};
use release::status::LIFECYCLE_FAILED;
use sha2::{Digest as _, Sha256};

use super::build::BuildOutcome;
use super::build_inputs::KustomizationInputs;
use super::last_attempts::BuildIdentity;
use super::report::QuarantinedRevision;
use super::validated_spec::{DesiredKustomization, KustomizationTimeouts};
use super::{KustomizationController, KustomizationRunReport, KustomizationSession, early, report};
use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_quarantine::{
    ARTIFACT_LOST, FailedResult, MAX_IMAGES, artifact_of_result, on_failure,
};
use windlass_runtime::applier_run::ApplierKind as _;
use windlass_runtime::approval_plan::change_approval::digest_key;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;

/// The artifact that a run applies, and the reason for it.
#[derive(Clone, Copy)]
pub(super) struct ArtifactToApply<'a> {
    /// The artifact.
    pub(super) artifact: &'a Artifact,
    /// Whether the artifact is the one of the last good result, and not the one of the source.
    pub(super) is_way_back: bool,
}

/// An artifact whose build is known to be quarantined.
pub(super) struct QuarantinedBuild {
    artifact: String,
    generation: i64,
    /// The digest of the inputs besides files.
    inputs: String,
    /// The name of the Quarantine.
    quarantine: String,
}

/// Whether a result that fails is rolled back, so that objects that left the manifests are deleted only after it is healthy.
pub(super) fn rolls_back(object: &Kustomization) -> bool {
    on_failure(object) == Ok(OnFailurePolicy::RollBack)
}

/// The desired state of a build. Objects that only a quarantined result has are deleted before health is proven. No other
/// object needs them, and one of them, such as a NetworkPolicy, may keep the others from being healthy.
pub(super) fn desired(built: &Arc<ApplyDesiredState>, is_way_back: bool) -> Arc<ApplyDesiredState> {
    match is_way_back && built.prunes_after_health {
        true => {
            let desired = ApplyDesiredState::clone(built);
            Arc::new(ApplyDesiredState { prunes_after_health: false, ..desired })
        }
        false => built.clone(),
    }
}

/// A digest of the spec's fields that decide the result and its health. Fields about the time of applying do not count.
fn spec_digest(spec: &KustomizationSpec) -> String {
    let spec = KustomizationSpec {
        suspend: false,
        interval: GoDuration::default(),
        retry_interval: None,
        depends_on: Vec::new(),
        ..spec.clone()
    };
    // A spec that was read can be written.
    let text = serde_json::to_string(&spec).unwrap_or_default();
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

/// The Secrets and ConfigMaps that a build reads beside the artifact, for people.
fn read_objects(object: &Kustomization) -> Vec<String> {
    let namespace = object.namespace().unwrap_or_default();
    let variables = object.spec.post_build.iter().flat_map(|it| &it.substitute_from);
    let variables = variables.map(|it| format!("{}/{namespace}/{}", it.kind, it.name));
    let keys = object.spec.decryption.iter().filter_map(|it| it.secret_ref.as_ref());
    let keys = keys.map(|it| format!("Secret/{namespace}/{}", it.name));
    variables.chain(keys).collect()
}

/// The images of the objects of a build.
fn images(built: &ApplyDesiredState) -> Vec<String> {
    let objects = built.stages.iter().flat_map(|stage| &stage.objects);
    known_images(images_of(objects.map(|manifest| &manifest.object), MAX_IMAGES))
}

/// Whether a run ended because its applied objects failed, and not before it applied them.
fn has_failed(ended: &KustomizationRunReport) -> bool {
    let is_failure = matches!(&ended.outcome, RunOutcome::Failed(why, ..)
        if [condition_reason::HEALTH_CHECK_FAILED, LIFECYCLE_FAILED].contains(why));
    is_failure && ended.came.digest.is_some()
}

impl KustomizationSession<'_> {
    /// The Quarantines of a Kustomization.
    ///
    /// # Errors
    /// The outcome of a run that does not know its Quarantines, and could therefore apply a quarantined build again.
    pub(super) async fn own_quarantines(
        &self,
        object: &Kustomization,
    ) -> Result<Vec<Arc<Quarantine>>, RunOutcome> {
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let known = known_quarantines::of_namespace(&self.context, &self.node, retry_at).await?;
        let uid = object.uid().unwrap_or_default();
        Ok(windlass_quarantine::of_applier(known, &self.node, &uid))
    }

    /// Whether no object of an artifact would be applied, because its build is quarantined and the status reports that.
    pub(super) fn is_held_back(&self, object: &Kustomization, artifact: &Artifact) -> bool {
        let own = self.seen_quarantines(&self.node, object);
        report::is_quarantined(object)
            && self.known_quarantine(object, artifact, &own, None).is_some()
    }

    /// Whether the applied build is quarantined now, as after the rollback of a change that was healthy.
    pub(super) fn is_settled_in_quarantine(&self, own: &[Arc<Quarantine>]) -> bool {
        let memory = self.memory();
        let settled = memory.settled.as_ref();
        settled.is_some_and(|it| windlass_quarantine::of_result(own, &it.digest).is_some())
    }

    /// The revision that is applied in place of an artifact. `None` if this is not known without a build.
    pub(super) fn way_back_revision(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
    ) -> Option<String> {
        let own = self.seen_quarantines(&self.node, object);
        let known = self.known_quarantine(object, artifact, &own, None)?;
        rolled_back_to(&known).map(|good| good.revision)
    }

    /// The Quarantines of a Kustomization, as the watch saw them last.
    pub(super) fn seen_quarantines(
        &self,
        node: &ObjectKey,
        object: &Kustomization,
    ) -> Vec<Arc<Quarantine>> {
        let table = self.context.shared::<WatchedObjectCache<Quarantine>>();
        let uid = object.uid().unwrap_or_default();
        windlass_quarantine::of_applier(table.of(&node.namespace), node, &uid)
    }

    /// The causes of an attempt at a build: a user lifted its Quarantine, or it is applied in place of a failed result.
    pub(super) fn causes_with_quarantines(
        &self,
        object: &Kustomization,
        of: &BuildIdentity,
        mut causes: Vec<AuditCause>,
    ) -> Vec<AuditCause> {
        for quarantine in self.seen_quarantines(&self.node, object) {
            let is_in_force = windlass_quarantine::is_in_force(&quarantine);
            // A later revision of the source has the same build.
            let is_back =
                |good: BuildInputsRecord| good.digest == of.digest && good.revision == of.revision;
            if quarantine.spec.result.digest == of.digest && !is_in_force {
                causes.extend(lifted(&quarantine));
            } else if is_in_force && rolled_back_to(&quarantine).is_some_and(is_back) {
                return vec![AuditCause {
                    object: Some(named(&quarantine)),
                    version: Some(quarantine.spec.result.revision.clone()),
                    type_: AuditCauseKind::Failure,
                    ..AuditCause::default()
                }];
            }
        }
        causes
    }

    /// The Quarantine in force of an artifact that was built before with this spec, and with these inputs if they are known.
    /// `None` if this process knows no such build, or if its result is not quarantined.
    pub(super) fn known_quarantine(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        own: &[Arc<Quarantine>],
        inputs: Option<&str>,
    ) -> Option<Arc<Quarantine>> {
        let memory = self.memory();
        let known = memory.quarantined.as_ref()?;
        let is_same = Some(known.generation) == object.meta().generation
            && known.artifact == artifact.digest
            && inputs.is_none_or(|inputs| inputs == known.inputs);
        let mut in_force = own.iter().filter(|it| windlass_quarantine::is_in_force(it));
        in_force.find(|it| is_same && it.name_any() == known.quarantine).cloned()
    }

    /// Remembers that the build of an artifact with these inputs is quarantined.
    pub(super) fn remember_quarantine(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        inputs: &str,
        quarantine: &Quarantine,
    ) {
        self.memory().quarantined = Some(QuarantinedBuild {
            artifact: artifact.digest.clone(),
            generation: object.meta().generation.unwrap_or_default(),
            inputs: inputs.to_owned(),
            quarantine: quarantine.name_any(),
        });
    }

    /// The facts from which a result is made.
    ///
    /// # Errors
    /// The key of the digests cannot be read.
    async fn build_provenance(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        digest: &str,
        inputs: &str,
        images: Vec<String>,
    ) -> Result<BuildInputsRecord, ClusterError> {
        let inputs = match inputs {
            "" => String::new(),
            inputs => digest_key(&self.context).await?.keyed(inputs),
        };
        Ok(BuildInputsRecord {
            digest: digest.to_owned(),
            revision: artifact.revision.clone(),
            artifact_digest: artifact.digest.clone(),
            artifact_path: artifact.path.clone(),
            spec: spec_digest(&object.spec),
            inputs,
            images,
        })
    }

    /// Writes the build facts of a good result to the status, if a later result may be rolled back to it.
    pub(super) async fn record_facts(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        inputs: &str,
        ended: &mut KustomizationRunReport,
    ) {
        let quarantines = on_failure(object).is_ok_and(OnFailurePolicy::quarantines);
        // A rollout pins a waiting Kustomization to its last good result, so it needs the facts, too.
        let is_asked = quarantines
            || windlass_rollout::is_selected(&self.context, &self.node.namespace, object.labels());
        let is_new = ended.came.facts.is_none() && ended.outcome.is_settled();
        let digest = ended.came.digest.clone().filter(|_| is_new && is_asked);
        if let Some(digest) = digest {
            // Images of objects that this run did not build are known from the former build.
            let images = ended.came.images.take();
            let images = images.unwrap_or_else(|| report::images_of_build(object, &digest));
            // Without the facts, a later failure is held.
            let facts = self.build_provenance(object, artifact, &digest, inputs, images).await;
            ended.came.facts = facts.ok();
        }
    }

    /// Applies a build of the source that is not quarantined. If it fails, windlass quarantines it.
    pub(super) async fn apply_new(
        &self,
        object: &Arc<Kustomization>,
        timeouts: KustomizationTimeouts,
        artifact: &Artifact,
        desired_kustomization: &Arc<DesiredKustomization>,
        target: &Arc<ClusterTarget>,
        own: &[Arc<Quarantine>],
    ) -> KustomizationRunReport {
        let judged = BuildIdentity {
            generation: object.meta().generation.unwrap_or_default(),
            digest: desired_kustomization.digest.clone(),
            revision: artifact.revision.clone(),
        };
        // A result that was good before has failed for another reason. The history knows that also after a restart, another
        // failure or another spec.
        let was_good = self.is_applied(object, &judged) || report::was_good(object, &judged.digest);
        let applied = ArtifactToApply { artifact, is_way_back: false };
        let mut ended = self.apply(object, timeouts, applied, desired_kustomization, target).await;
        self.keep_comparison(object, &ended, desired_kustomization, target);
        let is_asked = on_failure(&**object).is_ok_and(OnFailurePolicy::quarantines);
        ended.came.images = is_asked.then(|| images(&desired_kustomization.desired));
        if is_asked && !was_good && has_failed(&ended) {
            let inputs = &desired_kustomization.inputs;
            self.quarantine_failure(object, artifact, inputs, own, &mut ended).await;
        }
        ended
    }

    /// Quarantines the result of a run that failed. The next run begins at once and goes back.
    async fn quarantine_failure(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        inputs: &str,
        own: &[Arc<Quarantine>],
        ended: &mut KustomizationRunReport,
    ) {
        let recorded = self.record_quarantine(object, artifact, inputs, own, ended).await;
        let RunOutcome::Failed(_, text, wake) = &mut ended.outcome else { return };
        match recorded {
            Ok(recorded) => {
                // If a user lifts the Quarantine, the result is attempted again with the full wait for its health.
                let mut memory = self.memory();
                (memory.failed_wait, memory.waiting, memory.healthy) = (None, None, None);
                drop(memory);
                *text = windlass_quarantine::text(&recorded);
                *wake = NextRunTrigger::at(self.began);
            }
            Err(error) => *text = format!("{text}; it cannot be quarantined: {error}"),
        }
    }

    async fn record_quarantine(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        inputs: &str,
        own: &[Arc<Quarantine>],
        ended: &KustomizationRunReport,
    ) -> Result<Arc<Quarantine>, ClusterError> {
        let digest = ended.came.digest.as_deref().unwrap_or_default();
        let images = ended.came.images.clone().unwrap_or_default();
        let facts = self.build_provenance(object, artifact, digest, inputs, images).await?;
        let last_good = match report::last_applied_build(object) {
            Some(_) => report::last_good(object),
            // Failures in a row have pushed it out of the history.
            None => windlass_quarantine::last_good(own),
        };
        let asked = on_failure(object).unwrap_or_default();
        let consequence = consequence(asked, &facts, last_good.as_ref(), &read_objects(object));
        let uid = object.uid().unwrap_or_default();
        let failed = FailedResult {
            node: &self.node,
            uid: &uid,
            facts: &facts,
            reason: ended.outcome.reason(),
            message: ended.outcome.text(),
            consequence: &consequence,
        };
        let mut quarantine = windlass_quarantine::quarantine(&failed);
        quarantine.metadata.owner_references = object.owner_ref(&()).map(|owner| vec![owner]);
        let cluster = &self.context.cluster;
        let written = windlass_quarantine::record(cluster, quarantine, own).await?;
        known_quarantines::insert_written(&self.context, written.clone());
        self.remember_quarantine(object, artifact, inputs, &written);
        // A Quarantine that cannot be deleted now is deleted after the next failure.
        let name = written.name_any();
        let deleted = windlass_quarantine::delete_oldest(cluster, own, &name).await;
        for gone in deleted.unwrap_or_default() {
            known_quarantines::remove_deleted(&self.context, &self.node.namespace, &gone);
        }
        Ok(Arc::new(written))
    }

    /// Runs a Kustomization whose source has a quarantined result. It applies the last good result, or nothing.
    pub(super) async fn go_back(
        &self,
        object: &Arc<Kustomization>,
        timeouts: KustomizationTimeouts,
        artifact: &Artifact,
        target: &Arc<ClusterTarget>,
        inputs: KustomizationInputs,
        quarantine: &Quarantine,
    ) -> KustomizationRunReport {
        let text = windlass_quarantine::text(quarantine);
        let stays = |why: &str| {
            let text = match why {
                "" => text.clone(),
                why => format!("{text}; nothing is changed: {why}"),
            };
            early(
                object,
                &artifact.revision,
                RunOutcome::Stalled(condition_reason::QUARANTINED, text),
            )
        };
        let Some(good) = rolled_back_to(quarantine) else {
            self.dismiss_events(object, None).await;
            return stays("");
        };
        if self.is_verified_only() {
            self.dismiss_events(object, None).await;
            return stays(
                "the namespace requires verified sources, and only the newest artifact is proved to be verified",
            );
        }
        let Some(old) = artifact_of_result(artifact, &good) else {
            self.dismiss_events(object, None).await;
            return stays("the artifact of the last good revision is not one of this source");
        };
        let built = self.build(object, timeouts, &old, target, inputs).await;
        if built.is_ok() {
            self.memory().has_woken_source = false;
        }
        let built = match built {
            Ok(BuildOutcome::DesiredKustomization(built)) => built,
            Ok(BuildOutcome::Unchanged(ended)) => {
                self.dismiss_events(object, None).await;
                return back(*ended, quarantine, good);
            }
            // A store that cannot be reached may have the artifact.
            Err(outcome @ RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, ..)) => {
                self.have_fetched_again(object);
                return early(object, &artifact.revision, lost(&text, &good, outcome));
            }
            Err(outcome) => return early(object, &good.revision, outcome),
        };
        if built.digest != good.digest {
            self.dismiss_events(object, None).await;
            return stays(
                "the last good revision builds other objects with the present spec, Secrets and ConfigMaps",
            );
        }
        let built = match self.scoped(built, target).await {
            Ok(built) => built,
            Err(outcome) => return early(object, &good.revision, outcome),
        };
        let applied = ArtifactToApply { artifact: &old, is_way_back: true };
        back(self.apply(object, timeouts, applied, &built, target).await, quarantine, good)
    }
}

impl KustomizationSession<'_> {
    /// Wakes the source, so that it fetches lost artifacts again if its kind supports that. Each process wakes it once, since
    /// the source repeats failed fetches itself. After a restart, the source's first run may come before the needed artifacts
    /// are known.
    fn have_fetched_again(&self, object: &Kustomization) {
        let is_asked = std::mem::replace(&mut self.memory().has_woken_source, true);
        let source = KustomizationController::source(object).filter(|_| !is_asked);
        if let Some(source) = source {
            self.context.work_queue.wake(&source, WakeReason::Waiting);
        }
    }
}

/// The result to which a Quarantine rolls back. `None` if there is no rollback.
pub(super) fn rolled_back_to(quarantine: &Quarantine) -> Option<BuildInputsRecord> {
    let is_back = quarantine.spec.action == QuarantineAction::RollBack;
    let good = quarantine.spec.last_good.as_ref().filter(|_| is_back)?;
    Some(windlass_quarantine::facts(good))
}

/// The artifact that is applied in place of a quarantined result. `None` if no artifact is.
pub(crate) fn rolled_back_artifact(quarantine: &Quarantine) -> Option<NeededArtifact> {
    let is_in_force = windlass_quarantine::is_in_force(quarantine);
    rolled_back_to(quarantine).filter(|_| is_in_force).and_then(needed)
}

/// The artifact of the last good result of a Kustomization that goes back to it after a failure. `None` if the Kustomization
/// does not go back, or if it has no such result.
pub(crate) fn last_good_artifact(object: &Kustomization) -> Option<NeededArtifact> {
    rolls_back(object).then(|| report::last_good(object))?.and_then(needed)
}

/// The artifact from which a result was made. `None` if the record of the result lacks its path.
pub(super) fn needed(good: BuildInputsRecord) -> Option<NeededArtifact> {
    let BuildInputsRecord { artifact_path, artifact_digest, revision, .. } = good;
    let artifact = NeededArtifact { path: artifact_path, digest: artifact_digest, revision };
    (!artifact.path.is_empty()).then_some(artifact)
}

/// A Quarantine as audits name objects.
fn named(quarantine: &Quarantine) -> String {
    let namespace = quarantine.namespace().unwrap_or_default();
    format!("Quarantine/{namespace}/{}", quarantine.name_any())
}

/// The audit cause that a user lifted a Quarantine. `None` if no user has lifted it.
fn lifted(quarantine: &Quarantine) -> Option<AuditCause> {
    let lift = quarantine.status.as_ref()?.lift.as_ref()?;
    Some(AuditCause {
        type_: AuditCauseKind::Request,
        object: Some(named(quarantine)),
        claimed_user: Some(lift.user.clone()),
        reason: lift.reason.clone(),
        ..AuditCause::default()
    })
}

/// The report of a run that went back.
fn back(
    mut ended: KustomizationRunReport,
    quarantine: &Quarantine,
    good: BuildInputsRecord,
) -> KustomizationRunReport {
    if let RunOutcome::Failed(_, text, _) = &mut ended.outcome {
        let failed = &quarantine.spec.result.revision;
        *text =
            format!("{text}; it is applied in place of revision {failed}, which is quarantined");
    }
    if !ended.outcome.is_settled() {
        return ended;
    }
    ended.came.quarantine = Some(QuarantinedRevision {
        revision: quarantine.spec.result.revision.clone(),
        text: windlass_quarantine::text(quarantine),
    });
    // The entry of the history is written again. A result to which a user rolled back may have no facts.
    ended.came.facts = Some(good).filter(|good| !good.spec.is_empty());
    ended
}

/// The outcome of a run that cannot go back, because the artifact is gone.
fn lost(text: &str, good: &BuildInputsRecord, outcome: RunOutcome) -> RunOutcome {
    let text = format!(
        "{text}; nothing is changed, because the artifact of revision {} is lost: {}; a GitRepository or \
         OCIRepository fetches it again, if its server still has it; otherwise push a revision that works",
        good.revision,
        outcome.text()
    );
    let wake = outcome.wake().cloned().unwrap_or_default();
    RunOutcome::Failed(ARTIFACT_LOST, text, wake)
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use quarantine::on_failure_annotation::ON_FAILURE;
    use serde_json::{Value, json};
    use windlass_quarantine::INVALID_ON_FAILURE;

    use super::*;
    use crate::kustomization::validated_spec;

    #[test]
    fn the_spec_of_a_quarantine_is_known() {
        let used = ["subject", "result", "reason", "message", "action", "causes", "lastGood"];
        spec_field_check::knows_every_field("Quarantine", used);
    }

    fn kustomization(annotation: Option<&str>, spec: &Value) -> Kustomization {
        let mut object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}}});
        if let (Some(to), Some(from)) = (object["spec"].as_object_mut(), spec.as_object()) {
            to.extend(from.clone());
        }
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({ON_FAILURE: annotation});
        }
        serde_json::from_value(object).unwrap()
    }

    fn good(path: &str) -> BuildInputsRecord {
        BuildInputsRecord {
            digest: "sha256:b1".to_owned(),
            revision: "main@sha1:1".to_owned(),
            artifact_digest: "sha256:1".to_owned(),
            artifact_path: path.to_owned(),
            ..BuildInputsRecord::default()
        }
    }

    #[test]
    fn a_result_is_rolled_back_only_if_the_annotation_asks_for_it() {
        let rolls_back = |annotation| rolls_back(&kustomization(annotation, &json!({})));
        assert!(rolls_back(Some("RollBack")));
        assert!(!rolls_back(Some("Hold")) && !rolls_back(Some("rollback")) && !rolls_back(None));
        let wrong = on_failure(&kustomization(Some("rollback"), &json!({}))).unwrap_err();
        assert!(matches!(wrong, RunOutcome::Stalled(INVALID_ON_FAILURE, _)), "{wrong:?}");
    }

    #[test]
    fn what_only_the_quarantined_result_has_goes_before_health_is_proven() {
        let object = kustomization(Some("RollBack"), &json!({}));
        let timeouts = validated_spec::check(&object.spec).unwrap();
        let built = ApplyDesiredState {
            prunes_after_health: true,
            ..validated_spec::finalize(&object, timeouts)
        };
        let built = Arc::new(built);
        assert!(desired(&built, false).prunes_after_health);
        assert!(!desired(&built, true).prunes_after_health);
    }

    #[test]
    fn what_says_when_a_result_is_applied_does_not_make_another_spec() {
        let digest = |spec: Value| spec_digest(&kustomization(None, &spec).spec);
        let own = digest(json!({}));
        for same in [
            json!({"interval": "5m"}),
            json!({"retryInterval": "1m"}),
            json!({"suspend": true}),
            json!({"dependsOn": [{"name": "a"}]}),
        ] {
            assert_eq!(digest(same.clone()), own, "{same}");
        }
        for other in [json!({"path": "./b"}), json!({"timeout": "1s"}), json!({"wait": true})] {
            assert_ne!(digest(other.clone()), own, "{other}");
        }
    }

    #[test]
    fn secrets_and_config_maps_that_a_build_reads_are_named() {
        let spec = json!({
            "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}, {"kind": "Secret", "name": "more"}]},
            "decryption": {"provider": "sops", "secretRef": {"name": "keys"}},
        });
        let read = read_objects(&kustomization(None, &spec));
        assert_eq!(read, ["ConfigMap/shop/vars", "Secret/shop/more", "Secret/shop/keys"]);
        assert!(read_objects(&kustomization(None, &json!({}))).is_empty());
    }

    #[test]
    fn a_lost_artifact_changes_nothing_and_says_so() {
        let missing = RunOutcome::Blocked(
            condition_reason::ARTIFACT_FAILED,
            "not found in storage".to_owned(),
            NextRunTrigger::default(),
        );
        let outcome = lost("revision main@sha1:2 is quarantined", &good("a/b"), missing);
        assert_eq!(outcome.reason(), ARTIFACT_LOST);
        assert!(outcome.text().contains("the artifact of revision main@sha1:1 is lost"));
    }

    #[test]
    fn a_failure_on_the_way_back_names_the_revision_that_is_quarantined() {
        let quarantine = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "q", "namespace": "shop"}, "spec": {"result": {"revision": "main@sha1:2"}}});
        let quarantine: Quarantine = serde_json::from_value(quarantine).unwrap();
        let object = Arc::new(kustomization(Some("RollBack"), &json!({})));
        let outcome = RunOutcome::Failed(
            condition_reason::HEALTH_CHECK_FAILED,
            "timeout".to_owned(),
            NextRunTrigger::default(),
        );
        let ended = back(early(&object, "main@sha1:1", outcome), &quarantine, good("a/b"));
        let text = ended.outcome.text();
        assert!(text.contains("in place of revision main@sha1:2, which is quarantined"), "{text}");
        assert!(ended.came.quarantine.is_none() && ended.came.facts.is_none());
    }

    #[test]
    fn only_what_was_applied_can_fail() {
        let object = Arc::new(kustomization(Some("RollBack"), &json!({})));
        let ended = |why, digest: Option<&str>| {
            let outcome = RunOutcome::Failed(why, String::new(), NextRunTrigger::default());
            let mut ended = early(&object, "main@sha1:2", outcome);
            ended.came.digest = digest.map(str::to_owned);
            ended
        };
        assert!(has_failed(&ended(condition_reason::HEALTH_CHECK_FAILED, Some("sha256:2"))));
        assert!(has_failed(&ended(LIFECYCLE_FAILED, Some("sha256:2"))));
        assert!(!has_failed(&ended(LIFECYCLE_FAILED, None)), "a lifecycle did not let it begin");
        for why in [
            condition_reason::RECONCILIATION_FAILED,
            condition_reason::BUILD_FAILED,
            condition_reason::CONTESTED,
        ] {
            assert!(!has_failed(&ended(why, Some("sha256:2"))), "{why}");
        }
    }
}
