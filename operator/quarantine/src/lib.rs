//! Quarantine objects: which of them count for an applier, and how they are written and deleted.
//!
//! A Quarantine still counts after the annotation of its applier was removed, so a user of the namespace cannot lift it that
//! way. Only a user whose name the admission policy has proved can lift it (`deploy/policies/quarantines.yaml`). Elsewhere:
//! the consequences of a failure (engine `quarantine`), the watch (`operator/kinds`), rollbacks (the appliers), and the
//! command (`cli/runtime`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::Artifact;
use crds::kustomize::Kustomization;
use crds::windlass_release::{
    Quarantine, QuarantineAction, QuarantineSpec, QuarantineSubject, QuarantinedResult,
};
use kube_core::{Resource as _, ResourceExt as _};
use objects::Gvk;
use quarantine::build_inputs_record::{BuildInputsRecord, is_of_same_source};
use quarantine::on_failure_annotation::{ON_FAILURE, OnFailurePolicy};
use quarantine::quarantine_name;
use quarantine::rollback_decision::{FailureConsequence, NoRollbackReason};
use reconcile::{ConditionReason, ObjectKey, RunOutcome, condition_reason};
use serde_json::json;

use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The reason of a condition: the artifact of the last good result no longer exists, and nothing can restore it.
pub const ARTIFACT_LOST: ConditionReason = ConditionReason::new("ArtifactLost");

/// The reason of a condition: the annotation about failures has an unknown value.
pub const INVALID_ON_FAILURE: ConditionReason = ConditionReason::new("InvalidOnFailure");

/// The field manager of Quarantines.
const MANAGER: &str = "windlass";

/// The prefix of the user names of ServiceAccounts, which may not lift a Quarantine. windlass applies objects as
/// ServiceAccounts, so a commit could otherwise lift its own Quarantine.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The most Quarantines of an applier that are kept.
const MAX_QUARANTINES: usize = 20;

/// The longest message and the longest cause in a Quarantine, in characters.
const MAX_MESSAGE_LENGTH: usize = 1024;
const MAX_CAUSE_LENGTH: usize = 512;

/// The longest revision in a Quarantine, in characters.
const MAX_REVISION_LENGTH: usize = 512;

/// The most causes in a Quarantine.
const MAX_CAUSES: usize = 8;

/// The most images of a result that are stored.
pub const MAX_IMAGES: usize = 64;

/// The longest image name in a Quarantine, in characters.
const MAX_IMAGE_LENGTH: usize = 512;

/// A failed result of an applier, with the consequence.
#[derive(Debug)]
pub struct FailedResult<'r> {
    /// The applier, as a node of the dependency graph.
    pub node: &'r ObjectKey,
    /// The uid of the applier.
    pub uid: &'r str,
    /// The inputs from which the result was built.
    pub facts: &'r BuildInputsRecord,
    /// The condition reason of the failure.
    pub reason: ConditionReason,
    /// The message about the failure, without values of Secrets.
    pub message: &'r str,
    /// The consequence of the failure.
    pub consequence: &'r FailureConsequence,
}

/// The consequence of failures that the annotation of an applier asks for.
///
/// # Errors
/// The outcome of a run whose annotation cannot be read.
pub fn on_failure<K: kube_core::Resource>(object: &K) -> Result<OnFailurePolicy, RunOutcome> {
    let annotation = object.annotations().get(ON_FAILURE).map(String::as_str);
    OnFailurePolicy::parse(annotation)
        .map_err(|error| RunOutcome::Stalled(INVALID_ON_FAILURE, error.to_string()))
}

/// The Quarantines of an applier among those of its namespace, in the order of their creation.
#[must_use]
pub fn of_applier(
    known: Vec<Arc<Quarantine>>,
    node: &ObjectKey,
    uid: &str,
) -> Vec<Arc<Quarantine>> {
    let is_its = |it: &Arc<Quarantine>| {
        let subject = &it.spec.subject;
        !uid.is_empty()
            && subject.uid == uid
            && (&subject.group, &subject.kind) == (&node.group, &node.kind)
    };
    let mut own: Vec<Arc<Quarantine>> = known.into_iter().filter(is_its).collect();
    own.sort_by_key(|it| it.metadata.creation_timestamp.as_ref().map(|at| at.0));
    own
}

/// Whether a Quarantine is in force because no user has lifted it. A ServiceAccount cannot lift it, even if no admission
/// policy refuses that.
#[must_use]
pub fn is_in_force(quarantine: &Quarantine) -> bool {
    let lift = quarantine.status.as_ref().and_then(|status| status.lift.as_ref());
    lift.is_none_or(|it| it.user.is_empty() || it.user.starts_with(SERVICE_ACCOUNT_PREFIX))
}

/// The Quarantine in force for a result. `None` if the result may be applied.
#[must_use]
pub fn of_result<'q>(own: &'q [Arc<Quarantine>], digest: &str) -> Option<&'q Arc<Quarantine>> {
    own.iter().find(|it| it.spec.result.digest == digest && is_in_force(it))
}

/// Whether a result is the last one that a Kustomization applied to its end, and no other result failed since. The applied
/// revision alone does not say it, because it stays in the status while a later revision fails.
#[must_use]
pub fn has_applied_last(object: &Kustomization, result: &QuarantinedResult) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    let is_newest = status.history.first().is_some_and(|it| {
        it.digest == result.digest
            && it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str()
    });
    is_newest && status.last_applied_revision.as_ref() == Some(&result.revision)
}

/// The results to which the Quarantines in force among these roll back.
pub fn rollback_results(own: &[Arc<Quarantine>]) -> impl Iterator<Item = &QuarantinedResult> {
    let roll_back =
        own.iter().filter(|it| is_in_force(it) && it.spec.action == QuarantineAction::RollBack);
    roll_back.filter_map(|it| it.spec.last_good.as_ref())
}

/// Whether a Kustomization has the last good result in place of a quarantined one. `own` are its Quarantines. One that could
/// change nothing has the quarantined result still, although its condition `Ready` has the same reason.
#[must_use]
pub fn has_gone_back(object: &Kustomization, own: &[Arc<Quarantine>]) -> bool {
    rollback_results(own).any(|good| has_applied_last(object, good))
}

/// The last good result in the newest Quarantine that names one. The history in a status is short, so many failures in a row
/// would push a good result out of it. `None` if no Quarantine names one.
#[must_use]
pub fn last_good(own: &[Arc<Quarantine>]) -> Option<BuildInputsRecord> {
    let named = own.iter().rev().find_map(|it| it.spec.last_good.as_ref());
    named.map(facts)
}

/// The inputs of a result, from a Quarantine.
#[must_use]
pub fn facts(result: &QuarantinedResult) -> BuildInputsRecord {
    BuildInputsRecord {
        digest: result.digest.clone(),
        revision: result.revision.clone(),
        artifact_digest: result.artifact_digest.clone(),
        artifact_path: result.artifact_path.clone(),
        spec: result.spec_digest.clone(),
        inputs: result.inputs_digest.clone(),
        images: result.images.clone(),
    }
}

/// The artifact of an earlier result, stored beside the newest artifact of its source. `None` if the recorded path belongs to
/// another source.
#[must_use]
pub fn artifact_of_result(current: &Artifact, good: &BuildInputsRecord) -> Option<Artifact> {
    if !is_of_same_source(&good.artifact_path, &current.path) {
        return None;
    }
    // If another process has the source's artifacts, it serves this one beside the newest.
    let url = current.url.strip_suffix(current.path.as_str());
    Some(Artifact {
        digest: good.artifact_digest.clone(),
        path: good.artifact_path.clone(),
        revision: good.revision.clone(),
        url: url.map(|server| format!("{server}{}", good.artifact_path)).unwrap_or_default(),
        size: None,
        metadata: BTreeMap::new(),
        last_update_time: current.last_update_time.clone(),
    })
}

/// The Quarantine of a result that a user has lifted, if the result was not attempted since. `None` if there is none.
#[must_use]
pub fn to_attempt<'q>(own: &'q [Arc<Quarantine>], digest: &str) -> Option<&'q Arc<Quarantine>> {
    let is_new = |it: &Arc<Quarantine>| {
        it.status.as_ref().is_some_and(|status| status.attempted_at.is_none())
    };
    own.iter().find(|it| it.spec.result.digest == digest && !is_in_force(it) && is_new(it))
}

/// The images of the failed result that its last good result does not have, while the Quarantine is in force. If the images of
/// the last good result are not known, there are none, because each image may be one that always worked.
pub fn quarantined_images(quarantine: &Quarantine) -> impl Iterator<Item = &str> {
    let spec = &quarantine.spec;
    let good = spec.last_good.as_ref().filter(|good| !good.images.is_empty());
    let good = good.filter(|_| is_in_force(quarantine)).map(|good| &good.images);
    let failed = good.map(|_| &spec.result.images).into_iter().flatten();
    let is_new = move |image: &&String| good.is_some_and(|good| !good.contains(image));
    failed.filter(is_new).map(String::as_str)
}

/// The text about a result that is not applied: which result it is, what stays in its place, and how to lift the Quarantine.
#[must_use]
pub fn text(quarantine: &Quarantine) -> String {
    let good = quarantine.spec.last_good.as_ref();
    text_with(quarantine, good.map(|good| format!("revision {}", good.revision)).as_deref())
}

/// As [`text`], with the result that is now applied in its place, which may be another one by now.
#[must_use]
pub fn text_with(quarantine: &Quarantine, in_place: Option<&str>) -> String {
    let QuarantineSpec { subject, result, message, action, causes, .. } = &quarantine.spec;
    let name = quarantine.name_any();
    let namespace = quarantine.namespace().unwrap_or_default();
    let stays = match (action, in_place) {
        (QuarantineAction::RollBack, Some(good)) => format!("{good} is applied in its place"),
        (QuarantineAction::RollBack | QuarantineAction::Hold, _) => {
            let why = match causes.is_empty() {
                true => String::new(),
                false => format!(": {}", causes.join("; ")),
            };
            format!("nothing is rolled back{why}")
        }
    };
    let revision = &result.revision;
    format!(
        "revision {revision} is quarantined (Quarantine {name}), and {stays}; a new revision is applied as usual; to apply the \
         quarantined one again, run `windlass resume {}/{} -n {namespace} --revision {revision}`; reason: {message}",
        subject.kind.to_lowercase(),
        subject.name
    )
}

fn cut(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}

fn result(facts: &BuildInputsRecord) -> QuarantinedResult {
    QuarantinedResult {
        digest: facts.digest.clone(),
        // The version of a chart may have any length.
        revision: cut(&facts.revision, MAX_REVISION_LENGTH),
        artifact_digest: facts.artifact_digest.clone(),
        artifact_path: facts.artifact_path.clone(),
        spec_digest: facts.spec.clone(),
        inputs_digest: facts.inputs.clone(),
        images: {
            let fitting = facts.images.iter().filter(|it| it.len() <= MAX_IMAGE_LENGTH);
            fitting.take(MAX_IMAGES).cloned().collect()
        },
    }
}

/// A new Quarantine for a failed result. The caller adds the owner reference.
#[must_use]
pub fn quarantine(failed: &FailedResult<'_>) -> Quarantine {
    let FailedResult { node, uid, facts, reason, message, consequence } = failed;
    let causes = match consequence {
        FailureConsequence::RollBack(_) => Vec::new(),
        FailureConsequence::Hold(causes) => {
            let messages = causes.iter().map(NoRollbackReason::text);
            messages.take(MAX_CAUSES).map(|it| cut(&it, MAX_CAUSE_LENGTH)).collect()
        }
    };
    let last_good = match consequence {
        FailureConsequence::RollBack(good) => Some(result(good)),
        FailureConsequence::Hold(_) => None,
    };
    let action = match last_good {
        Some(_) => QuarantineAction::RollBack,
        None => QuarantineAction::Hold,
    };
    let spec = QuarantineSpec {
        subject: QuarantineSubject {
            group: node.group.clone(),
            kind: node.kind.clone(),
            name: node.name.clone(),
            uid: (*uid).to_owned(),
        },
        result: result(facts),
        reason: reason.as_str().to_owned(),
        message: cut(message, MAX_MESSAGE_LENGTH),
        action,
        causes,
        last_good,
    };
    let mut quarantine = Quarantine::new(&quarantine_name(&node.name, uid, &facts.digest), spec);
    quarantine.metadata.namespace = Some(node.namespace.clone());
    quarantine
}

/// Writes a Quarantine, and returns it as the API server stored it. `own` are the Quarantines of the applier. If a user had
/// lifted it, it is in force again, because the result failed again.
///
/// # Errors
/// The API server refuses a request or does not respond.
pub async fn record(
    cluster: &ClusterConnection,
    quarantine: Quarantine,
    own: &[Arc<Quarantine>],
) -> Result<Quarantine, ClusterError> {
    let name = quarantine.name_any();
    let Some(known) = own.iter().find(|it| it.name_any() == name) else {
        return cluster.create(&quarantine, MANAGER).await;
    };
    // The Quarantine now goes back to another result, or to none.
    let is_another = known.spec.action != quarantine.spec.action
        || known.spec.last_good != quarantine.spec.last_good;
    if is_another {
        delete(cluster, known).await?;
        return cluster.create(&quarantine, MANAGER).await;
    }
    let repeated = known.status.as_ref().map_or(0, |status| status.repeated).saturating_add(1);
    let status = json!({"repeated": repeated, "lift": null, "attemptedAt": null});
    let version = known.resource_version();
    match cluster.write_status(&**known, MANAGER, &status, version.as_deref()).await? {
        Some(written) => Ok(written),
        None => cluster.create(&quarantine, MANAGER).await,
    }
}

/// Notes that a result is attempted again after a user lifted its Quarantine. Returns the Quarantine. `None` if it is gone.
///
/// # Errors
/// The API server refuses the request or does not respond.
pub async fn note_attempt(
    cluster: &ClusterConnection,
    quarantine: &Quarantine,
    now: &str,
) -> Result<Option<Quarantine>, ClusterError> {
    let version = quarantine.resource_version();
    let status = json!({"attemptedAt": now});
    cluster.write_status(quarantine, MANAGER, &status, version.as_deref()).await
}

/// Deletes the surplus Quarantines of an applier, and returns them. `newest` names the one that was written last. It may be an
/// old object whose result failed again.
///
/// # Errors
/// The API server refuses a request or does not respond.
pub async fn delete_oldest(
    cluster: &ClusterConnection,
    own: &[Arc<Quarantine>],
    newest: &str,
) -> Result<Vec<Arc<Quarantine>>, ClusterError> {
    let mut deleted = Vec::new();
    for quarantine in surplus(own, newest) {
        delete(cluster, quarantine).await?;
        deleted.push(quarantine.clone());
    }
    Ok(deleted)
}

/// The surplus Quarantines besides the newest one. Lifted ones come first, then the oldest.
fn surplus<'q>(own: &'q [Arc<Quarantine>], newest: &str) -> Vec<&'q Arc<Quarantine>> {
    let mut others: Vec<&Arc<Quarantine>> =
        own.iter().filter(|it| it.name_any() != newest).collect();
    let surplus = others.len().saturating_sub(MAX_QUARANTINES - 1);
    others.sort_by_key(|it| is_in_force(it));
    others.truncate(surplus);
    others
}

async fn delete(cluster: &ClusterConnection, quarantine: &Quarantine) -> Result<(), ClusterError> {
    let resource = ApiResourceLocation {
        gvk: Gvk::new(&Quarantine::api_version(&()), &Quarantine::kind(&())),
        plural: Quarantine::plural(&()).into_owned(),
        namespaced: true,
        watchable: true,
    };
    let namespace = quarantine.namespace().unwrap_or_default();
    let uid = quarantine.uid().unwrap_or_default();
    cluster.delete_unmanaged(&resource, &namespace, &quarantine.name_any(), &uid).await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node() -> ObjectKey {
        ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "apps", "shop")
    }

    fn result_of(of: &str) -> BuildInputsRecord {
        BuildInputsRecord {
            digest: format!("sha256:{of}"),
            revision: format!("main@sha1:{of}"),
            artifact_digest: format!("sha256:artifact-{of}"),
            artifact_path: format!("gitrepository/apps/shop/{of}.tar.gz"),
            spec: "sha256:spec".to_owned(),
            inputs: String::new(),
            images: vec![format!("app:{of}"), "proxy:1".to_owned()],
        }
    }

    #[test]
    fn an_earlier_artifact_is_served_beside_the_current_one() {
        let path = "gitrepository/shop/shop/2.tar.gz";
        let current: Artifact = serde_json::from_value(
            json!({"digest": "sha256:2", "lastUpdateTime": "2026-11-30T09:00:00Z", "path": path,
            "revision": "main@sha1:2", "size": 7, "url": format!("http://source/{path}")}),
        )
        .unwrap();
        let good = |path: &str| BuildInputsRecord {
            revision: "main@sha1:1".to_owned(),
            artifact_digest: "sha256:1".to_owned(),
            artifact_path: path.to_owned(),
            ..BuildInputsRecord::default()
        };
        let old = artifact_of_result(&current, &good("gitrepository/shop/shop/1.tar.gz")).unwrap();
        assert_eq!(old.url, "http://source/gitrepository/shop/shop/1.tar.gz");
        assert_eq!([old.digest.as_str(), old.revision.as_str()], ["sha256:1", "main@sha1:1"]);
        assert_eq!(old.size, None);
        for other in
            ["gitrepository/shop/other/1.tar.gz", "gitrepository/shop/shop/../x/1.tar.gz", ""]
        {
            assert_eq!(artifact_of_result(&current, &good(other)), None, "{other}");
        }
    }

    #[test]
    fn images_that_the_last_good_result_has_too_are_not_quarantined() {
        let back = made(&FailureConsequence::RollBack(result_of("1")));
        assert_eq!(quarantined_images(&back).collect::<Vec<_>>(), ["app:2"]);
        let none: [&str; 0] = [];
        let unknown = BuildInputsRecord { images: Vec::new(), ..result_of("1") };
        let back = made(&FailureConsequence::RollBack(unknown));
        assert_eq!(quarantined_images(&back).collect::<Vec<_>>(), none);
        let held = made(&FailureConsequence::Hold(vec![NoRollbackReason::NoLastGood]));
        assert_eq!(quarantined_images(&held).collect::<Vec<_>>(), none);
        let lifted = lifted(&json!({"user": "alice"}));
        assert_eq!(quarantined_images(&lifted).collect::<Vec<_>>(), none);
    }

    #[test]
    fn what_a_user_lifted_is_attempted_anew_once() {
        let attempted = |at: Value| {
            let mut quarantine = lifted(&json!({"user": "alice"}));
            let status = json!({"lift": {"user": "alice"}, "attemptedAt": at});
            quarantine.status = serde_json::from_value(status).unwrap();
            vec![Arc::new(quarantine)]
        };
        assert!(to_attempt(&attempted(Value::Null), "sha256:2").is_some());
        assert!(to_attempt(&attempted(json!("2026-11-30T09:00:00Z")), "sha256:2").is_none());
        assert!(to_attempt(&attempted(Value::Null), "sha256:3").is_none());
        let in_force = Arc::new(made(&FailureConsequence::RollBack(result_of("1"))));
        assert!(to_attempt(&[in_force], "sha256:2").is_none());
    }

    fn made(consequence: &FailureConsequence) -> Quarantine {
        let node = node();
        quarantine(&FailedResult {
            node: &node,
            uid: "u",
            facts: &result_of("2"),
            reason: ConditionReason::new("HealthCheckFailed"),
            message: &"x".repeat(5000),
            consequence,
        })
    }

    fn lifted(by: &Value) -> Quarantine {
        let mut quarantine = made(&FailureConsequence::RollBack(result_of("1")));
        quarantine.status = serde_json::from_value(json!({"lift": by})).unwrap();
        quarantine
    }

    #[test]
    fn what_has_gone_back_applied_the_earlier_result_last() {
        let object = |applied: &str, newest: &str, status: &str| -> Kustomization {
            let entry = json!({"digest": format!("sha256:{newest}"),
                "firstReconciled": "2026-11-30T09:00:00Z", "lastReconciled": "2026-11-30T09:00:00Z",
                "lastReconciledDuration": "1s", "lastReconciledStatus": status,
                "totalReconciliations": 1});
            let source = json!({"kind": "GitRepository", "name": "shop"});
            serde_json::from_value(json!({"metadata": {"name": "shop"},
                "spec": {"interval": "1h", "prune": true, "sourceRef": source},
                "status": {"lastAppliedRevision": format!("main@sha1:{applied}"),
                    "history": [entry]}}))
            .unwrap()
        };
        let own = [Arc::new(made(&FailureConsequence::RollBack(result_of("1"))))];
        let succeeded = "ReconciliationSucceeded";
        assert!(has_gone_back(&object("1", "1", succeeded), &own));
        assert!(!has_gone_back(&object("2", "2", succeeded), &own), "nothing is changed");
        assert!(!has_gone_back(&object("1", "2", "HealthCheckFailed"), &own), "it begins");
        let lifted = [Arc::new(lifted(&json!({"user": "alice"})))];
        assert!(!has_gone_back(&object("1", "1", succeeded), &lifted));
        let held = made(&FailureConsequence::Hold(vec![NoRollbackReason::Spec]));
        assert!(!has_gone_back(&object("1", "1", succeeded), &[Arc::new(held)]));
    }

    #[test]
    fn a_quarantine_names_the_result_and_what_is_applied_in_its_place() {
        let back = made(&FailureConsequence::RollBack(result_of("1")));
        assert_eq!(back.spec.action, QuarantineAction::RollBack);
        assert_eq!(back.spec.result.digest, "sha256:2");
        assert_eq!(back.spec.last_good.as_ref().map(|it| it.digest.as_str()), Some("sha256:1"));
        assert_eq!(back.spec.message.len(), MAX_MESSAGE_LENGTH);
        let said = text(&back);
        assert!(said.contains("revision main@sha1:1 is applied in its place"), "{said}");
        let command = "`windlass resume kustomization/shop -n apps --revision main@sha1:2`";
        assert!(said.contains(command), "{said}");
        assert!(said.ends_with(&format!("reason: {}", "x".repeat(MAX_MESSAGE_LENGTH))));
        let held = made(&FailureConsequence::Hold(vec![
            NoRollbackReason::Spec,
            NoRollbackReason::NoLastGood,
        ]));
        assert_eq!((held.spec.action, held.spec.causes.len()), (QuarantineAction::Hold, 2));
        assert!(
            text(&held).contains("nothing is rolled back: the spec differs"),
            "{}",
            text(&held)
        );
        assert_eq!(back.name_any(), held.name_any(), "the result is the same");
    }

    #[test]
    fn a_user_lifts_a_quarantine_and_a_service_account_does_not() {
        assert!(is_in_force(&made(&FailureConsequence::Hold(Vec::new()))));
        assert!(!is_in_force(&lifted(&json!({"user": "alice"}))));
        assert!(is_in_force(&lifted(&json!({"user": ""}))));
        assert!(is_in_force(&lifted(&json!({"user": "system:serviceaccount:apps:robot"}))));
        assert!(is_in_force(&lifted(&Value::Null)));
    }

    #[test]
    fn only_quarantines_in_force_of_the_same_applier_and_result_count() {
        let back = Arc::new(made(&FailureConsequence::RollBack(result_of("1"))));
        let own = of_applier(vec![back.clone()], &node(), "u");
        assert!(of_result(&own, "sha256:2").is_some());
        assert!(of_result(&own, "sha256:3").is_none());
        assert!(of_applier(vec![back.clone()], &node(), "other").is_empty());
        let release = ObjectKey::new("helm.toolkit.fluxcd.io", "HelmRelease", "apps", "shop");
        assert!(of_applier(vec![back], &release, "u").is_empty());
        let alice = Arc::new(lifted(&json!({"user": "alice"})));
        assert!(of_result(&[alice], "sha256:2").is_none());
    }

    #[test]
    fn of_too_many_quarantines_the_newest_stays_and_lifted_ones_go_first() {
        let named = |at: usize, by: &Value| {
            let mut quarantine = lifted(by);
            quarantine.metadata.name = Some(format!("q{at}"));
            Arc::new(quarantine)
        };
        let mut own: Vec<_> = (0..MAX_QUARANTINES).map(|at| named(at, &Value::Null)).collect();
        let names = |own: &[Arc<Quarantine>], newest: &str| -> Vec<String> {
            surplus(own, newest).into_iter().map(|it| it.name_any()).collect()
        };
        assert_eq!(names(&own, "new"), ["q0"], "the new one is not among them yet");
        assert!(names(&own, "q0").is_empty(), "it failed again");
        own.push(named(20, &json!({"user": "alice"})));
        assert_eq!(names(&own, "q0"), ["q20"]);
        assert_eq!(names(&own, "new"), ["q20", "q0"]);
    }

    #[test]
    fn the_last_good_result_is_that_of_the_newest_quarantine_that_names_one() {
        let back = Arc::new(made(&FailureConsequence::RollBack(result_of("1"))));
        let held = Arc::new(made(&FailureConsequence::Hold(vec![NoRollbackReason::Spec])));
        let good = last_good(&[back, held.clone()]).unwrap();
        assert_eq!(good, result_of("1"));
        assert_eq!(last_good(&[held]), None);
    }
}
