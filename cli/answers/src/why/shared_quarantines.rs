//! Quarantines of several appliers that are one cause: the same revision of the same source, and the same failure up to the
//! object that it names.
//!
//! If the user may not list Quarantines, each applier is a cause of its own. Elsewhere: grouping all causes (`unready_objects.rs`), the
//! Quarantine in effect of one applier (`applier_quarantines.rs`).

use std::collections::BTreeMap;

use cause::{CauseAdvice, CauseKind, FactAnswers, RootCause, StateExplanation, object_references};
use crds::windlass_release::Quarantine;
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};

use crate::applier_quarantines::{in_effect, is_quarantined};
use crate::command_scope::CommandScope;
use crate::kind_argument::ResourceArgument;
use crate::rolled_back_commit_warning;
use windlass_cli_runtime::quarantine_lift::is_lifted;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The Quarantine of an applier, without what is only about this applier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedQuarantine {
    /// The source of the applier.
    source: ObjectId,
    /// The quarantined revision of the source.
    revision: String,
    /// The reason of the condition `Ready` of the failure.
    reason: String,
    /// The message about the failure.
    message: String,
    /// The warning that a later commit applies the revision again.
    warning: Option<String>,
}

impl SharedQuarantine {
    /// The text that equal Quarantines have in common.
    pub(super) fn key(&self) -> String {
        let Self { source, revision, reason, message, warning: _ } = self;
        format!("{} {revision} {reason} {}", source.subject(), up_to_object(message))
    }

    /// The text of the cause, with the failure of one of the appliers.
    pub(super) fn line(&self, applier: &ObjectId) -> String {
        let Self { source, revision, message, .. } = self;
        let source = source.subject();
        format!("{source}: revision {revision} is quarantined: {}: {message}", applier.subject())
    }

    /// Advice for all of these appliers.
    pub(super) fn advice(&self) -> CauseAdvice {
        let correction = self.warning.as_deref().unwrap_or("commit a correction");
        let text = format!(
            "{correction}; `windlass why KIND/NAME` has the command that applies the quarantined revision again"
        );
        CauseAdvice { text, command: None }
    }
}

/// A message up to the first object that it names. Words that begin with a number are left out, such as how long a wait took.
fn up_to_object(message: &str) -> String {
    let words = message.split_whitespace().take_while(|word| !word.contains('/'));
    let words = words.filter(|word| !word.starts_with(|letter: char| letter.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// The Quarantines in effect, by their appliers.
#[derive(Debug, Default)]
pub(super) struct SharedQuarantines(BTreeMap<ObjectId, SharedQuarantine>);

impl SharedQuarantines {
    /// Lists the Quarantines of the appliers among the causes.
    pub(super) async fn read(
        site: &CommandScope,
        whys: &[StateExplanation],
        known: &FactAnswers,
    ) -> Self {
        let causes = whys
            .iter()
            .flat_map(|why| why.cause.iter().chain(why.second.iter().map(|second| &second.cause)));
        let appliers = causes.filter_map(|cause| known.object(&cause.object));
        // A uid is unique, but users may write any uid into a Quarantine of another namespace.
        let appliers: BTreeMap<[String; 2], &Object> = appliers
            .filter(|applier| is_quarantined(applier))
            .map(|applier| ([applier.namespace(), applier.uid()].map(str::to_owned), applier))
            .collect();
        // One Quarantine has nothing in common with another.
        if appliers.len() < 2 {
            return Self::default();
        }
        let target =
            ResourceArgument { resource: resource::<Quarantine>(), namespace: None, name: None };
        let mut in_force: BTreeMap<[String; 2], Vec<Quarantine>> = BTreeMap::new();
        let listed = site.list(&target, "", |objects| {
            for object in objects {
                let quarantine: Quarantine = serde_json::from_value(object.into_value())?;
                let uid = quarantine.spec.subject.uid.clone();
                let place = [quarantine.namespace().unwrap_or_default(), uid];
                if appliers.contains_key(&place) && !is_lifted(&quarantine) {
                    in_force.entry(place).or_default().push(quarantine);
                }
            }
            Ok(())
        });
        // Without the kind, or if a newer windlass wrote one of them, each applier is a cause of its own.
        if listed.await.is_err() {
            return Self::default();
        }
        let found = in_force.iter().filter_map(|(place, own)| {
            let applier = appliers.get(place)?;
            Some((applier.id(), shared(applier, in_effect(own, applier, known)?)?))
        });
        Self(found.collect())
    }

    /// The Quarantine that is a cause.
    pub(super) fn of_cause(&self, cause: &RootCause) -> Option<&SharedQuarantine> {
        let found = self.0.get(&cause.object);
        // A user may have suspended the applier, which is another cause.
        found.filter(|_| cause.problem == CauseKind::Health)
    }

    /// The Quarantine that several appliers of a group share. `None` if the group has another cause, or the Quarantine of only
    /// one applier.
    pub(super) fn of_several(&self, group: &[StateExplanation]) -> Option<&SharedQuarantine> {
        let mut causes = group.iter().filter_map(|why| why.cause.as_ref());
        let first = causes.next()?;
        let is_shared = causes.any(|other| other.object != first.object);
        self.of_cause(first).filter(|_| is_shared)
    }
}

/// The Quarantine of an applier. `None` if the applier has no source.
fn shared(applier: &Object, quarantine: &Quarantine) -> Option<SharedQuarantine> {
    let spec = &quarantine.spec;
    Some(SharedQuarantine {
        source: object_references::sources(applier).into_iter().next()?,
        revision: spec.result.revision.clone(),
        reason: spec.reason.clone(),
        message: spec.message.split_whitespace().collect::<Vec<_>>().join(" "),
        warning: rolled_back_commit_warning::of_quarantine(quarantine),
    })
}

#[cfg(test)]
mod tests {
    use cause::{ExaminedObjectState, FactAnswer, FactQuery};
    use fake_cluster::examples::explanation;
    use serde_json::{Value, json};

    use super::*;
    use crate::why::unready_objects::UnreadyObjectsOverview;

    const REVISION: &str = "main@sha1:5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c";

    fn applier(name: &str, reason: &str) -> Object {
        let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": "it"});
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "apps", "uid": name},
            "spec": {"sourceRef": {"kind": "GitRepository", "name": "fleet"}},
            "status": {"conditions": [ready]}}))
        .unwrap()
    }

    fn quarantine(name: &str, revision: &str, message: &str) -> Value {
        json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": format!("{name}-1"), "namespace": "apps", "uid": format!("q-{name}")},
            "spec": {"subject": {"kind": "Kustomization", "name": name, "uid": name},
                "result": {"digest": "b", "revision": revision},
                "lastGood": {"digest": "a", "revision": "main@sha1:0"},
                "reason": "HealthCheckFailed", "message": message, "action": "RollBack"}})
    }

    fn failure(name: &str, seconds: u32) -> String {
        format!(
            "health check failed after {seconds}s: timeout waiting for: [Deployment/apps/{name} status: 'InProgress']"
        )
    }

    /// An explanation whose cause is the message of an applier about its Quarantine.
    fn why(subject: &Object, cause: &Object) -> StateExplanation {
        let text = format!("revision {REVISION} is quarantined (Quarantine {})", cause.name());
        let found = Some((cause.id(), CauseKind::Health, text.as_str()));
        explanation(subject.id(), ExaminedObjectState::NotReady, found)
    }

    async fn overview(
        quarantines: Vec<Value>,
        appliers: &[Object],
        whys: Vec<StateExplanation>,
    ) -> UnreadyObjectsOverview {
        let mut known = FactAnswers::default();
        for object in appliers {
            let answer = FactAnswer::Objects(vec![object.clone()]);
            known.insert(FactQuery::Object(object.id()), answer);
        }
        let (cluster, _) = fake_cluster::with_objects(quarantines).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let quarantines = SharedQuarantines::read(&site, &whys, &known).await;
        UnreadyObjectsOverview::with_quarantines(appliers.len(), whys, quarantines)
    }

    #[tokio::test]
    async fn appliers_that_one_commit_broke_in_the_same_way_are_one_cause() {
        let appliers: Vec<Object> =
            (0..12).map(|at| applier(&format!("app-{at:02}"), "Quarantined")).collect();
        let quarantines = appliers.iter().zip(15..);
        let quarantines = quarantines
            .map(|(it, took)| quarantine(it.name(), REVISION, &failure(it.name(), took)))
            .collect();
        let mut whys: Vec<StateExplanation> = appliers.iter().map(|it| why(it, it)).collect();
        // What depends on one of them has the same cause.
        let dependent = applier("dependent", "DependencyNotReady");
        whys.push(why(&dependent, &appliers[0]));
        let overview = overview(quarantines, &appliers, whys).await;
        assert_eq!(overview.causes.len(), 1, "{overview:?}");
        let group = &overview.causes[0];
        assert_eq!(group.objects.len(), 13);
        let line = format!(
            "GitRepository/apps/fleet: revision {REVISION} is quarantined: Kustomization/apps/app-00: {}",
            failure("app-00", 15)
        );
        assert_eq!(group.cause, line);
        let advice = group.advice.as_ref().map(|it| it.text.as_str()).unwrap_or_default();
        assert!(
            advice.contains("git revert 5f0c9d0c") && advice.contains("windlass why"),
            "{advice}"
        );
    }

    #[tokio::test]
    async fn another_revision_or_another_failure_is_another_cause() {
        let appliers = ["a", "b", "c", "d", "e"].map(|name| applier(name, "Quarantined"));
        let quarantines = vec![
            quarantine("a", REVISION, &failure("a", 15)),
            quarantine("b", REVISION, &failure("b", 15)),
            quarantine("c", "main@sha1:1111111", &failure("c", 15)),
            quarantine("d", REVISION, "lifecycle tests failed: Job/apps/d"),
        ];
        let whys = appliers.iter().map(|it| why(it, it)).collect();
        let overview = overview(quarantines, &appliers, whys).await;
        let objects: Vec<&[String]> = overview.causes.iter().map(|it| &it.objects[..]).collect();
        let named = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("Kustomization/apps/{name}")).collect()
        };
        assert_eq!(objects.len(), 4, "{objects:?}");
        assert_eq!(objects[0], named(&["a", "b"]));
        for alone in ["c", "d", "e"] {
            assert!(objects.contains(&&named(&[alone])[..]), "{alone}: {objects:?}");
        }
    }

    #[tokio::test]
    async fn without_quarantines_that_may_be_listed_each_applier_is_a_cause() {
        let appliers = ["a", "b"].map(|name| applier(name, "Quarantined"));
        let whys = || appliers.iter().map(|it| why(it, it)).collect::<Vec<_>>();
        let none = overview(Vec::new(), &appliers, whys()).await;
        assert_eq!(none.causes.len(), 2, "the kind is not served");
        // A user of another namespace wrote these.
        let mut forged = ["a", "b"].map(|name| quarantine(name, REVISION, &failure(name, 15)));
        for quarantine in &mut forged {
            quarantine["metadata"]["namespace"] = json!("other");
        }
        let ignored = overview(forged.to_vec(), &appliers, whys()).await;
        assert_eq!(ignored.causes.len(), 2);
    }

    #[test]
    fn a_suspension_of_a_quarantined_applier_is_another_cause() {
        let object = applier("a", "Quarantined");
        let quarantine =
            serde_json::from_value(quarantine("a", REVISION, &failure("a", 15))).unwrap();
        let known = shared(&object, &quarantine).map(|it| (object.id(), it));
        let quarantines = SharedQuarantines(known.into_iter().collect());
        let mut cause = why(&object, &object).cause.unwrap();
        assert!(quarantines.of_cause(&cause).is_some());
        cause.problem = CauseKind::Suspension;
        assert!(quarantines.of_cause(&cause).is_none());
    }
}
