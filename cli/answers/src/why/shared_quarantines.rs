//! Quarantines of several appliers that are one cause: the same revision of the same source, and the same failure up to the
//! object that it names. What windlass did about the failure may differ, so the advice has a part for each.
//!
//! If the Quarantines of a namespace are not known, each of its appliers is a cause of its own. Elsewhere: listing
//! them (`listed_quarantines.rs`), grouping all causes (`unready_objects.rs`), the Quarantine in effect of one applier
//! (`applier_quarantines.rs`).

use std::collections::{BTreeMap, BTreeSet};

use cause::{CauseAdvice, CauseKind, FactAnswers, RootCause, StateExplanation, object_references};
use crds::windlass_release::{Quarantine, QuarantineAction, QuarantineSpec};
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};

use super::listed_quarantines::{ApplierUid, ListedQuarantines};
use crate::applier_quarantines::{in_effect, is_quarantined};
use crate::cause_facts::AT_ONCE;
use crate::command_scope::CommandScope;
use crate::rolled_back_commit_warning::correction_of_quarantine;
use crate::source_correction::{self, read_source};
use windlass_cluster::ClusterConnection;

/// The maximum number of parts of one advice, and of appliers that a part names.
const MOST_NAMED: usize = 4;

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
    reaction: QuarantineReaction,
}

/// What windlass did about a failure, and what a user does about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct QuarantineReaction {
    done: String,
    to_do: String,
}

impl SharedQuarantine {
    /// The text that equal Quarantines have in common.
    pub(super) fn key(&self) -> String {
        let Self { source, revision, reason, message, reaction: _ } = self;
        format!("{} {revision} {reason} {}", source.subject(), up_to_object(message))
    }
}

/// The appliers of a group of causes, by what windlass did about their failure.
pub(super) struct SharedQuarantineGroup<'q> {
    /// One of the appliers.
    first: &'q ObjectId,
    /// Its Quarantine.
    quarantine: &'q SharedQuarantine,
    parts: BTreeMap<&'q QuarantineReaction, BTreeSet<&'q ObjectId>>,
}

impl SharedQuarantineGroup<'_> {
    /// The text of the cause, with the failure of one of the appliers.
    pub(super) fn line(&self) -> String {
        let SharedQuarantine { source, revision, message, .. } = self.quarantine;
        let source = source.subject();
        format!("{source}: revision {revision} is quarantined: {}: {message}", self.first.subject())
    }

    /// Advice for all of these appliers: a part for each reaction, which names its appliers if there are several parts.
    pub(super) fn advice(&self) -> CauseAdvice {
        let is_one = self.parts.len() == 1;
        let shown = self.parts.iter().take(MOST_NAMED);
        let mut parts: Vec<String> = shown
            .map(|(reaction, appliers)| {
                let QuarantineReaction { done, to_do } = reaction;
                match is_one {
                    true => format!("{done}; {to_do}"),
                    false => format!("{}: {done}; {to_do}", named(appliers)),
                }
            })
            .collect();
        let others = self.parts.values().skip(MOST_NAMED).map(BTreeSet::len).sum::<usize>();
        if others > 0 {
            parts.push(format!("for {others} more, `windlass why KIND/NAME` has the advice"));
        }
        let text = format!(
            "{}; `windlass why KIND/NAME` has the command that applies the quarantined revision again",
            parts.join(". ")
        );
        CauseAdvice { text, command: None }
    }
}

/// The names of appliers, the first ones in full.
fn named(appliers: &BTreeSet<&ObjectId>) -> String {
    let shown: Vec<String> = appliers.iter().take(MOST_NAMED).map(|it| it.subject()).collect();
    match appliers.len().saturating_sub(MOST_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
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
pub(super) struct SharedQuarantines {
    by_applier: BTreeMap<ObjectId, SharedQuarantine>,
    /// A message for each namespace whose Quarantines are not known.
    pub(super) not_known: Vec<String>,
}

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
        let appliers: BTreeMap<ApplierUid, &Object> = appliers
            .filter(|applier| is_quarantined(applier))
            .map(|applier| (ApplierUid::of(applier), applier))
            .collect();
        // One Quarantine has nothing in common with another.
        if appliers.len() < 2 {
            return Self::default();
        }
        let wanted: BTreeSet<ApplierUid> = appliers.keys().cloned().collect();
        let ListedQuarantines { in_force, not_known } =
            ListedQuarantines::read(&site.cluster, &wanted).await;
        let of_sources: BTreeSet<ObjectId> =
            appliers.values().filter_map(|applier| source_of(applier)).collect();
        let sources = read_sources(&site.cluster, of_sources).await;
        let found = in_force.iter().filter_map(|(uid, own)| {
            let applier = appliers.get(uid)?;
            let id = source_of(applier)?;
            let source = sources.get(&id)?.as_ref();
            let quarantine = in_effect(own, source.ok())?;
            let source = source.map_err(String::as_str);
            Some((applier.id(), shared(applier, id, source, quarantine)))
        });
        let by_applier = found.collect();
        let not_known = not_known.into_iter().map(|(namespace, error)| {
            format!(
                "the Quarantines of namespace {namespace} are not known, so its appliers are not grouped by them: {error}"
            )
        });
        Self { by_applier, not_known: not_known.collect() }
    }

    /// The Quarantine of the applier that is this root cause. `None` if its cause is not a Quarantine.
    pub(super) fn of_cause(&self, cause: &RootCause) -> Option<&SharedQuarantine> {
        let found = self.by_applier.get(&cause.object);
        // A user may have suspended the applier, which is another cause.
        found.filter(|_| cause.problem == CauseKind::Health)
    }

    /// The Quarantines that several appliers of a group share. `None` if the group has another cause, or the Quarantine of only
    /// one applier.
    pub(super) fn of_several<'q>(
        &'q self,
        group: &'q [StateExplanation],
    ) -> Option<SharedQuarantineGroup<'q>> {
        let causes = group.iter().filter_map(|why| why.cause.as_ref());
        let mut quarantined =
            causes.filter_map(|cause| Some((&cause.object, self.of_cause(cause)?))).peekable();
        let (first, quarantine) = *quarantined.peek()?;
        let mut parts: BTreeMap<&QuarantineReaction, BTreeSet<&ObjectId>> = BTreeMap::new();
        for (applier, quarantine) in quarantined {
            parts.entry(&quarantine.reaction).or_default().insert(applier);
        }
        let appliers = parts.values().map(BTreeSet::len).sum::<usize>();
        (appliers > 1).then_some(SharedQuarantineGroup { first, quarantine, parts })
    }
}

/// The source of an applier. `None` if it has none.
fn source_of(applier: &Object) -> Option<ObjectId> {
    object_references::sources(applier).into_iter().next()
}

/// Reads sources. Of a source that cannot be read, the result has the reason.
async fn read_sources(
    cluster: &ClusterConnection,
    sources: BTreeSet<ObjectId>,
) -> BTreeMap<ObjectId, Result<Object, String>> {
    let asked = sources.into_iter().map(|id| async move {
        let found = read_source(cluster, &id).await;
        (id, found)
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
}

/// The Quarantine of an applier. `source` is its source, or why that is not known.
fn shared(
    applier: &Object,
    id: ObjectId,
    source: Result<&Object, &str>,
    quarantine: &Quarantine,
) -> SharedQuarantine {
    let QuarantineSpec { result, reason, message, action, causes, last_good, .. } =
        &quarantine.spec;
    let correction = source_correction::of_revision(source, Some(applier), &result.revision);
    let done = match (action, last_good) {
        (QuarantineAction::RollBack, Some(_)) => {
            "the last good result is applied in its place".to_owned()
        }
        (QuarantineAction::RollBack | QuarantineAction::Hold, _) => {
            let why = if causes.is_empty() { "" } else { ": " };
            let causes = causes.join("; ");
            format!("nothing is rolled back, what the failed result changed stays{why}{causes}")
        }
    };
    SharedQuarantine {
        source: id,
        revision: result.revision.clone(),
        reason: reason.clone(),
        message: message.split_whitespace().collect::<Vec<_>>().join(" "),
        reaction: QuarantineReaction {
            done,
            to_do: correction_of_quarantine(quarantine, &correction),
        },
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use cause::{ExaminedObjectState, FactAnswer, FactQuery};
    use fake_cluster::answer_examples::explanation;
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
    async fn appliers_that_went_back_and_appliers_that_were_held_are_advised_in_their_own_part() {
        let appliers = ["back", "held"].map(|name| applier(name, "Quarantined"));
        let mut held = quarantine("held", REVISION, &failure("held", 15));
        held["spec"]["action"] = json!("Hold");
        held["spec"]["lastGood"] = Value::Null;
        held["spec"]["causes"] = json!(["annotation windlass.dev/on-failure says Hold"]);
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "apps"}, "spec": {"ref": {"branch": "main"}}});
        let objects = vec![quarantine("back", REVISION, &failure("back", 15)), held, source];
        let whys = appliers.iter().map(|it| why(it, it)).collect();
        let overview = overview(objects, &appliers, whys).await;
        assert_eq!(overview.causes.len(), 1, "{overview:?}");
        let advice = overview.causes[0].advice.as_ref().map(|it| it.text.as_str());
        let (held, back) = advice.unwrap_or_default().split_once(". ").unwrap();
        assert!(
            held.starts_with("Kustomization/apps/held: nothing is rolled back")
                && held.contains("stays: annotation windlass.dev/on-failure says Hold; run `git"),
            "{held}"
        );
        assert!(!held.contains("applies it again"), "it is applied: {held}");
        assert!(
            back.starts_with(
                "Kustomization/apps/back: the last good result is applied in its place"
            ) && back.contains("branch `main`, so the next commit"),
            "{back}"
        );
    }

    /// An API server that refuses to list the Quarantines of all namespaces and those of `refused`, and has no other kind.
    async fn refusing(quarantines: Vec<Value>) -> CommandScope {
        let cluster = fake_cluster::answering(move |(request, _)| {
            let path = request.split_once('?').map_or(request.as_str(), |(path, _)| path);
            let Some(place) = path.strip_suffix("/quarantines") else {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 404, "reason": "NotFound", "message": "not found"});
                return (404, Body::from(status.to_string()));
            };
            let (_, namespace) = place.split_once("/namespaces/").unwrap_or_default();
            if matches!(namespace, "" | "refused") {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 403, "reason": "Forbidden", "message": "it is forbidden"});
                return (403, Body::from(status.to_string()));
            }
            let items: Vec<&Value> =
                quarantines.iter().filter(|it| it["metadata"]["namespace"] == namespace).collect();
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            (200, Body::from(list.to_string()))
        });
        CommandScope { cluster: cluster.await, namespace: String::new() }
    }

    #[tokio::test]
    async fn a_namespace_whose_quarantines_are_not_known_is_named_and_the_others_are_grouped() {
        let in_namespace = |namespace: &str, name: &str| {
            let mut object = applier(name, "Quarantined").into_value();
            object["metadata"]["namespace"] = json!(namespace);
            Object::new(object).unwrap()
        };
        let places = [("apps", "a"), ("apps", "b"), ("refused", "c"), ("newer", "d")];
        let appliers = places.map(|(namespace, name)| in_namespace(namespace, name));
        let mut quarantines: Vec<Value> = Vec::new();
        for (namespace, name) in places {
            let mut object = quarantine(name, REVISION, &failure(name, 15));
            object["metadata"]["namespace"] = json!(namespace);
            if namespace == "newer" {
                object["spec"]["action"] = json!("ActionOfANewerVersion");
            }
            quarantines.push(object);
        }
        let mut known = FactAnswers::default();
        for object in &appliers {
            let answer = FactAnswer::Objects(vec![object.clone()]);
            known.insert(FactQuery::Object(object.id()), answer);
        }
        let whys: Vec<StateExplanation> = appliers.iter().map(|it| why(it, it)).collect();
        let site = refusing(quarantines).await;
        let found = SharedQuarantines::read(&site, &whys, &known).await;
        let grouped: Vec<String> = found.by_applier.keys().map(ObjectId::subject).collect();
        assert_eq!(grouped, ["Kustomization/apps/a", "Kustomization/apps/b"]);
        let said = found.not_known.join("\n");
        assert_eq!(found.not_known.len(), 2, "{said}");
        for part in ["namespace newer", "cannot be read", "namespace refused", "it is forbidden"] {
            assert!(said.contains(part), "{part}: {said}");
        }
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
        let id = source_of(&object).unwrap();
        let shared = shared(&object, id, Err("not read"), &quarantine);
        let quarantines = SharedQuarantines {
            by_applier: BTreeMap::from([(object.id(), shared)]),
            ..SharedQuarantines::default()
        };
        let mut cause = why(&object, &object).cause.unwrap();
        assert!(quarantines.of_cause(&cause).is_some());
        cause.problem = CauseKind::Suspension;
        assert!(quarantines.of_cause(&cause).is_none());
    }
}
