//! Finds everything that is not ready, grouped by cause. It includes ready objects whose applied objects fail.
//!
//! Elsewhere: one object (`why.rs`), the walk to the cause (engine `cause`), the applied objects (`applied_object_health.rs`),
//! Quarantines that are one cause (`shared_quarantines.rs`).

use std::collections::{BTreeMap, BTreeSet};

use cause::incident::first_of_cycles;
use cause::{
    CauseAdvice, CauseKind, ExaminedObjectState, FactAnswers, RootCause, StateExplanation,
    condition, object_references,
};
use jiff::SignedDuration;
use objects::{Object, ObjectId};
use reconcile::Time;
use serde::{Serialize, Serializer};

use super::shared_quarantines::{SharedQuarantine, SharedQuarantines};
use crate::applied_object_health::{AlreadyReportedObjects, AppliedObjects};
use crate::cause_facts::ClusterFactReader;
use crate::command_scope::CommandScope;
use crate::failed_change_hints;
use crate::kind_argument::{self, ResourceArgument};
use windlass_changes::failed_change_advice::advice as rollback_advice;
use windlass_cli_installation::cluster_operators;

/// The scope text for all namespaces.
const EVERYWHERE: &str = "in all namespaces";

/// The maximum number of objects that are explained.
const MOST_EXPLAINED: usize = 500;

/// The maximum number of objects that a line names.
const MOST_NAMED: usize = 8;

/// How many minutes the first reconciliation of an object may take to begin.
const MINUTES_TO_BEGIN: i64 = 1;

/// The maximum number of printed warnings about objects that were left out.
const MOST_WARNINGS: usize = 20;

/// Objects that are not ready for the same cause.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CauseGroup {
    /// The cause, with the object where it occurs.
    pub cause: String,
    /// Since when the first of the objects fails.
    #[serde(serialize_with = "moment")]
    pub since: Option<Time>,
    /// The objects, as `Kind/namespace/name`.
    pub objects: Vec<String>,
    /// Advice against the cause.
    pub advice: Option<CauseAdvice>,
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn moment<S: Serializer>(at: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
    at.map(|at| format!("{at:.0}")).serialize(to)
}

/// The overview of everything that was found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadyObjectsOverview {
    /// How many objects were read.
    pub objects: usize,
    /// How many of their applied objects were examined.
    pub applied: usize,
    /// How many objects are not ready, or have applied objects that fail.
    pub not_ready: usize,
    /// How many of these objects report that they are ready.
    pub degraded: usize,
    /// How many objects are in progress, which needs no cause.
    pub in_progress: usize,
    /// How many objects are suspended.
    pub suspended: usize,
    /// How many objects that are not ready were not explained.
    pub unexplained: usize,
    /// The causes. The cause of the most objects comes first.
    pub causes: Vec<CauseGroup>,
    /// Further remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Messages about objects that this user may not list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The overview, and whether it is certain that no operator is running.
pub struct UnreadyObjectsResult {
    /// The overview.
    pub overview: UnreadyObjectsOverview,
    /// Whether no operator is running, so nothing is reconciled.
    pub is_unattended: bool,
}

/// Explains the objects of some kinds with matching labels.
///
/// # Errors
/// The API server did not respond.
pub async fn find(
    site: &CommandScope,
    targets: &[ResourceArgument],
    labels: &str,
) -> anyhow::Result<UnreadyObjectsResult> {
    let now = jiff::Timestamp::now();
    let mut facts = ClusterFactReader::new(&site.cluster);
    let mut overview = UnreadyObjectsOverview::default();
    let mut listed = UnreadyObjectCandidates::default();
    for target in targets {
        let refused = site.list(target, labels, |objects| {
            for object in objects {
                overview.objects += 1;
                match listed.add(&object, now) {
                    true => facts.knows(&target.resource, object),
                    false => facts.knows_well(object.id()),
                }
            }
            Ok(())
        });
        let refused = refused.await?;
        overview.left_out.extend(refused);
    }
    overview.remarks.extend(listed.behind_suspended_sources());
    let UnreadyObjectCandidates {
        mut suspects,
        suspended,
        unfinished_rollbacks,
        applied,
        warnings,
        ..
    } = listed;
    let reported = AlreadyReportedObjects::of(site, targets, labels);
    let live = applied.examine(&mut facts, site, &reported).await?;
    // An object that is already suspected is explained in any case.
    let known: BTreeSet<ObjectId> = suspects.iter().cloned().collect();
    suspects.extend(live.suspects.difference(&known).cloned());
    let all: BTreeSet<&ObjectId> = suspects.iter().collect();
    overview.suspended = suspended.iter().filter(|id| !all.contains(id)).count();
    overview.unexplained = suspects.len().saturating_sub(MOST_EXPLAINED);
    overview.applied = live.examined;
    overview.left_out.extend(live.left_out);
    overview.remarks.extend(live.remarks);
    overview.warn(&warnings);
    let changes = failed_change_hints::newest(site, None).await;
    overview
        .remarks
        .extend(failed_change_hints::first_of(changes.iter().filter_map(rollback_advice)));
    let mut whys = Vec::new();
    for id in suspects.iter().take(MOST_EXPLAINED) {
        whys.push(facts.explain(id).await?);
    }
    let mut quarantines = SharedQuarantines::read(site, &whys, facts.known()).await;
    overview.warn(&std::mem::take(&mut quarantines.not_known));
    let doubt = cluster_operators::doubt(&site.cluster, now).await;
    let is_unattended = doubt.as_ref().is_some_and(|doubt| doubt.is_absent);
    // If no operator has ever run, no reconciliation is about to begin.
    let mut causes = whys.iter().filter_map(|why| why.cause.as_ref());
    let is_awaited = causes.any(|cause| cause.problem == CauseKind::NotReconciled);
    let unseen = match doubt.is_none() && !listed.has_reports && is_awaited {
        true => cluster_operators::unseen(&site.cluster).await,
        false => None,
    };
    let new_since = now.checked_sub(SignedDuration::from_mins(MINUTES_TO_BEGIN)).ok();
    let new_since = new_since.filter(|_| !is_unattended && unseen.is_none());
    overview.remarks.extend(doubt.map(|doubt| doubt.text).or(unseen));
    let facts = CauseGroupFacts {
        rolling_out: live.rolling_out,
        unfinished_rollbacks,
        first_of_cycle: cycles(&whys, facts.known()),
        quarantines,
        new_since,
    };
    overview.take(whys, &facts);
    Ok(UnreadyObjectsResult { overview, is_unattended })
}

/// The listed objects, and the facts for their examination.
#[derive(Default)]
struct UnreadyObjectCandidates {
    /// Objects that may differ from their specs.
    suspects: Vec<ObjectId>,
    suspended: Vec<ObjectId>,
    /// Suspended objects with a requested rollback that is not finished.
    unfinished_rollbacks: BTreeSet<ObjectId>,
    /// The objects that are not suspended, by each source that they name.
    consumers: BTreeMap<ObjectId, Vec<String>>,
    applied: AppliedObjects,
    /// Messages about applied objects that were left out.
    warnings: Vec<String>,
    /// Whether an object has the condition `Ready`. Then an operator has reconciled it.
    has_reports: bool,
}

impl UnreadyObjectCandidates {
    /// Adds an object. Returns whether it is a suspect.
    fn add(&mut self, object: &Object, now: Time) -> bool {
        let id = object.id();
        let subject = id.subject();
        self.applied.add(object);
        self.has_reports |= condition(object, "Ready").is_some();
        self.warnings.extend(cause::warnings(object).map(|line| format!("{subject}: {line}")));
        let is_suspended = cause::suspension(object, now).is_some();
        let is_suspect = match is_suspended {
            true => {
                self.unfinished_rollbacks
                    .extend(cause::unfinished_rollback(object).map(|_| object.id()));
                condition(object, "Ready").is_some_and(|said| said.status == "False")
                    || self.unfinished_rollbacks.contains(&id)
            }
            false => is_suspect(object),
        };
        if is_suspended {
            self.suspended.push(id.clone());
        } else {
            for source in object_references::sources(object) {
                self.consumers.entry(source).or_default().push(subject.clone());
            }
        }
        if is_suspect {
            self.suspects.push(id);
        }
        is_suspect
    }

    /// A line for each suspended source, with the objects that receive no newer revisions.
    fn behind_suspended_sources(&self) -> Vec<String> {
        let all = self.suspended.iter();
        let behind = all.filter_map(|source| Some((source, self.consumers.get(source)?)));
        let lines = behind.map(|(source, objects)| {
            let named = objects.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = objects.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("newer revisions do not reach {named}{more}: {} is suspended", source.subject())
        });
        lines.take(MOST_WARNINGS).collect()
    }
}

/// Facts in addition to the explanations that decide which objects form a group.
#[derive(Debug, Default)]
struct CauseGroupFacts {
    /// Deployments during a rollout.
    rolling_out: BTreeSet<ObjectId>,
    /// Suspended objects with a requested rollback that is not finished.
    unfinished_rollbacks: BTreeSet<ObjectId>,
    /// For each object in a dependency cycle, the first object of the cycle.
    first_of_cycle: BTreeMap<ObjectId, ObjectId>,
    /// The Quarantines of appliers, of which several may be one cause.
    quarantines: SharedQuarantines,
    /// Objects changed after this time are so new that their first reconciliation is about to begin. `None` if no operator is
    /// running.
    new_since: Option<Time>,
}

impl CauseGroupFacts {
    /// Whether the explanation says only that something is in progress.
    fn is_in_progress(&self, why: &StateExplanation) -> bool {
        let is_rolling_out = |cause: &RootCause| {
            cause.problem == CauseKind::Health
                && cause.event.is_none()
                && self.rolling_out.contains(&cause.object)
        };
        match (why.state, &why.cause) {
            (ExaminedObjectState::Progressing, None) => true,
            (ExaminedObjectState::Progressing, Some(cause))
                if cause.problem == CauseKind::NotReconciled =>
            {
                let times = self.new_since.zip(cause.since);
                times.is_some_and(|(new, since)| since > new)
            }
            (ExaminedObjectState::Degraded, Some(cause)) => {
                why.second.is_none() && is_rolling_out(cause)
            }
            _ => false,
        }
    }
}

/// For each object in a dependency cycle, the first object of the cycle.
fn cycles(whys: &[StateExplanation], known: &FactAnswers) -> BTreeMap<ObjectId, ObjectId> {
    let causes = whys.iter().filter_map(|why| why.cause.as_ref());
    let members = causes.filter(|cause| cause.problem == CauseKind::Cycle).map(|it| &it.object);
    let depends: BTreeMap<ObjectId, Vec<ObjectId>> = members
        .filter_map(|id| {
            let object = known.object(id)?;
            let to = object_references::dependencies(object).into_iter().map(|it| it.object);
            Some((id.clone(), to.chain(object_references::sources(object)).collect()))
        })
        .collect();
    first_of_cycles(&depends)
}

/// Whether an object may differ from its spec. Only an object that reports success for its newest spec is not a suspect.
fn is_suspect(object: &Object) -> bool {
    match condition(object, "Ready") {
        None => !matches!(object.kind(), "ExternalArtifact"),
        Some(said) => {
            let observed = object.get("status").and_then(|it| it["observedGeneration"].as_i64());
            let seen = said.generation.or(observed);
            said.status != "True" || seen.is_some_and(|seen| seen < object.generation())
        }
    }
}

impl UnreadyObjectsOverview {
    /// Makes the overview of explained objects. `objects` is the number of objects that were read. It uses no facts about
    /// rollouts and cycles.
    pub fn of(objects: usize, whys: Vec<StateExplanation>) -> Self {
        let mut overview = Self { objects, ..Self::default() };
        overview.take(whys, &CauseGroupFacts::default());
        overview
    }

    /// As [`Self::of`], with the Quarantines of appliers.
    #[cfg(test)]
    pub(super) fn with_quarantines(
        objects: usize,
        whys: Vec<StateExplanation>,
        quarantines: SharedQuarantines,
    ) -> Self {
        let mut overview = Self { objects, ..Self::default() };
        overview.take(whys, &CauseGroupFacts { quarantines, ..CauseGroupFacts::default() });
        overview
    }

    /// Groups the explanations.
    fn take(&mut self, whys: Vec<StateExplanation>, facts: &CauseGroupFacts) {
        let mut groups: BTreeMap<(Option<CauseKind>, String), Vec<StateExplanation>> =
            BTreeMap::new();
        let shared = shared(&whys);
        for why in whys {
            self.suspended += usize::from(why.state == ExaminedObjectState::Suspended);
            match why.state {
                // A suspended object does not count as failing, unless it failed before the suspension.
                ExaminedObjectState::Suspended
                    if why.second.is_none()
                        && !facts.unfinished_rollbacks.contains(&why.object) => {}
                // The object was deleted after it was listed.
                ExaminedObjectState::Missing => {}
                ExaminedObjectState::Ready if why.cause.is_none() => {}
                _ if facts.is_in_progress(&why) => self.in_progress += 1,
                _ => {
                    self.not_ready += 1;
                    self.degraded += usize::from(why.state == ExaminedObjectState::Degraded);
                    let first = key(&why, &shared, facts);
                    if let Some(why) = by_second_cause(&why) {
                        let second = key(&why, &shared, facts);
                        let other = Some(why).filter(|_| second != first);
                        groups.entry(second).or_default().extend(other);
                    }
                    groups.entry(first).or_default().push(why);
                }
            }
        }
        let mut causes: Vec<CauseGroup> =
            groups.into_values().filter_map(|whys| group(whys, facts)).collect();
        causes.sort_by_key(|it| std::cmp::Reverse(it.objects.len()));
        self.causes = causes;
    }

    /// Adds warnings about objects that were left out.
    fn warn(&mut self, warnings: &[String]) {
        self.remarks.extend(warnings.iter().take(MOST_WARNINGS).cloned());
        if let Some(more) = warnings.len().checked_sub(MOST_WARNINGS).filter(|more| *more > 0) {
            self.remarks.push(format!("{more} more warnings; `windlass why KIND/NAME` shows them"));
        }
    }

    /// The summary in one line, which begins with a symbol. It claims only what was read. `place` comes from [`in_words`].
    pub fn sum(&self, place: &str) -> String {
        let is_whole = self.left_out.is_empty();
        if self.objects == 0 {
            return match is_whole {
                true if place == EVERYWHERE => format!("► there are no such objects {place}"),
                true => format!("► there are no such objects {place}; -A looks in all namespaces"),
                false => {
                    format!("⚠ nothing is known of the objects {place}: they may not be listed")
                }
            };
        }
        let place = match is_whole {
            true => place.to_owned(),
            false => format!("{place} that may be listed"),
        };
        let glyph = match () {
            () if !is_whole || !self.remarks.is_empty() => "⚠",
            () if self.in_progress > 0 => "◎",
            () => "✔",
        };
        let counts = self.counts();
        let objects = counted(self.objects);
        let failing = self.not_ready + self.unexplained;
        let [is, are] = match self.degraded {
            0 => ["is not ready", "are not ready"],
            _ => [
                "is not ready, or what it applied is not",
                "are not ready, or what they applied is not",
            ],
        };
        let applied = match self.applied {
            0 => String::new(),
            count => format!("; of {} that they applied none is missing or fails", counted(count)),
        };
        match failing {
            0 => format!(
                "{glyph} none of {objects} {place} reports that it is not ready{applied}{counts}"
            ),
            1 => format!("► 1 of {objects} {place} {is}{counts}"),
            _ => format!("► {failing} of {objects} {place} {are}{counts}"),
        }
    }

    /// Further counts, in parentheses.
    fn counts(&self) -> String {
        let mut counts = Vec::new();
        if self.not_ready + self.unexplained > 0 {
            counts.push(format!("causes: {}", self.causes.len()));
        }
        if self.in_progress > 0 {
            counts.push(format!("in progress: {}", self.in_progress));
        }
        if self.suspended > 0 {
            counts.push(format!("suspended: {}", self.suspended));
        }
        if self.unexplained > 0 {
            let count = self.unexplained;
            counts.push(format!("not examined: {count}; name a namespace or a kind"));
        }
        if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
    }
}

/// The scope for a sentence: a namespace, or all namespaces if it is empty.
pub fn in_words(namespace: &str) -> String {
    match namespace {
        "" => EVERYWHERE.to_owned(),
        namespace => format!("in namespace {namespace}"),
    }
}

fn counted(objects: usize) -> String {
    format!("{objects} {}", if objects == 1 { "object" } else { "objects" })
}

/// The same object with its second cause, because the object is not ready until both causes are fixed. A suspended object has
/// one row for both causes.
fn by_second_cause(why: &StateExplanation) -> Option<StateExplanation> {
    let second = why.second.as_ref().filter(|_| why.state != ExaminedObjectState::Suspended)?;
    Some(StateExplanation {
        cause: Some(second.cause.clone()),
        advice: second.advice.clone(),
        second: None,
        ..why.clone()
    })
}

/// The objects that are also the cause for other objects.
fn shared(whys: &[StateExplanation]) -> BTreeSet<ObjectId> {
    let causes = whys.iter().flat_map(|it| {
        let second = it.second.iter().map(|second| &second.cause);
        it.cause.iter().chain(second).map(move |cause| (&it.object, &cause.object))
    });
    causes.filter(|(subject, cause)| subject != cause).map(|(_, cause)| cause.clone()).collect()
}

/// The key of a group. Explanations with the same problem and the same text belong together. The text names the object where
/// the cause occurs, if it is another one.
fn key(
    why: &StateExplanation,
    shared: &BTreeSet<ObjectId>,
    facts: &CauseGroupFacts,
) -> (Option<CauseKind>, String) {
    match &why.cause {
        // Suspended objects may fail for different causes, so each is its own group.
        Some(cause) if why.state == ExaminedObjectState::Suspended => {
            (Some(cause.problem), why.object.subject())
        }
        Some(cause) if facts.first_of_cycle.contains_key(&cause.object) => {
            let first = facts.first_of_cycle.get(&cause.object);
            (Some(cause.problem), first.map(ObjectId::subject).unwrap_or_default())
        }
        Some(cause) => {
            let quarantine = facts.quarantines.of_cause(cause).map(SharedQuarantine::key);
            let text = quarantine.unwrap_or_else(|| match shared.contains(&cause.object) {
                true => format!("{}: {}", cause.object.subject(), cause.text),
                false => bare(cause, &why.object),
            });
            (Some(cause.problem), text)
        }
        None => (None, why.message.clone()),
    }
}

/// The text of a cause without the name of the explained object, so that equal causes of different objects match.
fn bare(cause: &RootCause, subject: &ObjectId) -> String {
    match cause.object == *subject {
        true => {
            let named = subject.subject();
            let text = cause.text.strip_prefix(&format!("{named}: ")).unwrap_or(&cause.text);
            text.replace(&named, "it")
        }
        false => format!("{}: {}", cause.object.subject(), cause.text),
    }
}

fn group(whys: Vec<StateExplanation>, facts: &CauseGroupFacts) -> Option<CauseGroup> {
    let mut objects: Vec<String> = whys.iter().map(|it| it.object.subject()).collect();
    objects.sort();
    let since = whys.iter().filter_map(|it| it.cause.as_ref()?.since).min();
    if let Some(quarantine) = facts.quarantines.of_several(&whys) {
        let text = quarantine.line();
        return Some(CauseGroup { cause: text, since, objects, advice: Some(quarantine.advice()) });
    }
    let first = whys.into_iter().next()?;
    let text = cause_text(&first, objects.len());
    Some(CauseGroup { cause: text, since, objects, advice: advice(first) })
}

/// The text of a cause, with the object where it occurs. `first` is the first explanation of the group, which has as many
/// `objects`.
fn cause_text(first: &StateExplanation, objects: usize) -> String {
    match &first.cause {
        Some(cause) if cause.problem == CauseKind::Suspension => {
            let failing =
                first.second.as_ref().filter(|_| first.state == ExaminedObjectState::Suspended);
            let failing = failing.map(|second| second.cause.line(&first.object));
            let failing = failing.map(|line| format!(", and failing: {line}")).unwrap_or_default();
            format!("{} is {}{failing}", cause.object.subject(), cause.text)
        }
        // Each member of a cycle describes the cycle, starting with itself.
        Some(cause) if cause.problem == CauseKind::Cycle => cause.text.clone(),
        // The line names the object exactly once, even if the text of the cause already contains the name.
        Some(cause) if objects == 1 || cause.object != first.object => {
            let named = cause.object.subject();
            match cause.text.contains(&named) {
                true => cause.text.clone(),
                false => format!("{named}: {}", cause.text),
            }
        }
        Some(cause) => bare(cause, &first.object),
        None if first.message.is_empty() => first.line(),
        None => first.message.clone(),
    }
}

/// The advice. A suspended object should first be fixed and then resumed.
fn advice(why: StateExplanation) -> Option<CauseAdvice> {
    let StateExplanation { state, advice, second, .. } = why;
    let mending =
        second.and_then(|second| second.advice).filter(|_| state == ExaminedObjectState::Suspended);
    match (mending, advice) {
        (Some(mending), Some(resuming)) => {
            let text = format!("{}; {}", mending.text, resuming.text);
            Some(CauseAdvice { text, ..resuming })
        }
        (_, advice) => advice,
    }
}

/// The kinds that are examined if the user names no object.
///
/// # Errors
/// There is no such kind.
pub async fn targets(
    site: &CommandScope,
    words: &[String],
) -> anyhow::Result<Option<Vec<ResourceArgument>>> {
    let all = ["all".to_owned()];
    let words = if words.is_empty() { all.as_slice() } else { words };
    let targets = kind_argument::targets(&site.cluster, words).await?;
    let is_named = targets.iter().any(|it| it.name.is_some());
    Ok((!is_named).then_some(targets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::answer_examples::explanation as why;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", kind)
    }

    #[test]
    fn a_cycle_is_one_cause() {
        let member = |name: &str| {
            let own = id("Kustomization", name);
            let text = format!("Kustomization/apps/{name} depends on itself");
            why(own.clone(), ExaminedObjectState::NotReady, Some((own, CauseKind::Cycle, &text)))
        };
        let mut overview =
            UnreadyObjectsOverview { objects: 2, ..UnreadyObjectsOverview::default() };
        let first = id("Kustomization", "one");
        let first_of_cycle =
            ["one", "two"].map(|name| (id("Kustomization", name), first.clone())).into();
        let facts = CauseGroupFacts { first_of_cycle, ..CauseGroupFacts::default() };
        overview.take(["one", "two"].map(member).to_vec(), &facts);
        assert_eq!(overview.causes.len(), 1);
        assert_eq!(overview.causes[0].cause, "Kustomization/apps/one depends on itself");
        assert_eq!(overview.causes[0].objects.len(), 2);
    }

    #[test]
    fn the_members_of_a_cycle_are_known_by_what_they_depend_on() {
        let mut known = FactAnswers::default();
        let mut whys = Vec::new();
        for (name, on) in [("b", "a"), ("a", "b"), ("x", "y"), ("y", "x")] {
            let object = Object::new(serde_json::json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": name, "namespace": "apps"},
                "spec": {"dependsOn": [{"name": on}]}}));
            let object = object.unwrap();
            let own = object.id();
            known.insert(
                cause::FactQuery::Object(own.clone()),
                cause::FactAnswer::Objects(vec![object]),
            );
            whys.push(why(
                own.clone(),
                ExaminedObjectState::NotReady,
                Some((own, CauseKind::Cycle, "cycle")),
            ));
        }
        let found = cycles(&whys, &known);
        let firsts: Vec<[&str; 2]> =
            found.iter().map(|(id, first)| [id.name.as_str(), first.name.as_str()]).collect();
        assert_eq!(firsts, [["a", "a"], ["b", "a"], ["x", "x"], ["y", "x"]]);
    }

    #[test]
    fn what_is_in_progress_is_no_cause() {
        let deployment = id("Deployment", "web");
        let running = why(id("HelmRelease", "a"), ExaminedObjectState::Progressing, None);
        let text = Some((deployment.clone(), CauseKind::Health, "InProgress: Updated: 0/1"));
        let degraded = why(id("Kustomization", "b"), ExaminedObjectState::Degraded, text);
        let mut overview =
            UnreadyObjectsOverview { objects: 2, applied: 1, ..UnreadyObjectsOverview::default() };
        let rolling_out = [deployment].into();
        let facts = CauseGroupFacts { rolling_out, ..CauseGroupFacts::default() };
        overview.take(vec![running, degraded.clone()], &facts);
        assert_eq!(
            overview.sum(EVERYWHERE),
            "◎ none of 2 objects in all namespaces reports that it is not ready; of 1 object that they applied none is \
             missing or fails (in progress: 2)"
        );
        let new = id("Kustomization", "new");
        let said = "has not been reconciled yet";
        let new = why(
            new.clone(),
            ExaminedObjectState::Progressing,
            Some((new, CauseKind::NotReconciled, said)),
        );
        let new_since = Some("2026-11-24T11:54:30Z".parse().unwrap());
        overview
            .take(vec![new.clone()], &CauseGroupFacts { new_since, ..CauseGroupFacts::default() });
        assert_eq!((overview.in_progress, overview.not_ready), (3, 0));
        overview.take(vec![new], &CauseGroupFacts::default());
        assert_eq!((overview.in_progress, overview.not_ready), (3, 1), "no operator is active");
        // Without facts about the rollout, the counts differ.
        overview.not_ready = 0;
        overview.take(vec![degraded], &CauseGroupFacts::default());
        let sum = overview.sum(EVERYWHERE);
        assert!(
            sum.contains(
                "1 of 2 objects in all namespaces is not ready, or what it applied is not"
            )
        );
    }

    #[test]
    fn what_was_left_out_is_a_warning_and_no_all_clear() {
        let mut overview =
            UnreadyObjectsOverview { objects: 1, ..UnreadyObjectsOverview::default() };
        overview.warn(&vec!["Kustomization/apps/a: no field dat".to_owned(); 22]);
        assert_eq!(overview.remarks.len(), MOST_WARNINGS + 1);
        assert!(overview.remarks[MOST_WARNINGS].starts_with("2 more warnings"));
        assert!(overview.sum(EVERYWHERE).starts_with("⚠ none of 1 object"));
    }

    #[test]
    fn what_names_a_suspended_source_is_named_unless_it_is_suspended_itself() {
        let mut listed = UnreadyObjectCandidates::default();
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        for (version, kind, name, suspend) in [
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "a", false),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "b", true),
            ("source.toolkit.fluxcd.io/v1", "GitRepository", "app", true),
        ] {
            let source = serde_json::json!({"kind": "GitRepository", "name": "app"});
            let spec = serde_json::json!({"suspend": suspend, "sourceRef": source});
            let object = serde_json::json!({"apiVersion": version, "kind": kind,
                "metadata": {"name": name, "namespace": "apps"}, "spec": spec});
            listed.add(&Object::new(object).unwrap(), now);
        }
        let line = "newer revisions do not reach Kustomization/apps/a: GitRepository/apps/app is suspended";
        assert_eq!(listed.behind_suspended_sources(), [line]);
    }

    #[test]
    fn what_may_not_be_listed_or_may_be_old_is_no_all_clear() {
        let sum = |objects, left_out: &[&str], remarks: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
            let left_out = owned(left_out);
            let remarks = owned(remarks);
            UnreadyObjectsOverview {
                objects,
                left_out,
                remarks,
                ..UnreadyObjectsOverview::default()
            }
            .sum("in namespace apps")
        };
        let forbidden = ["alerts: forbidden"];
        assert_eq!(
            sum(0, &forbidden, &[]),
            "⚠ nothing is known of the objects in namespace apps: they may not be listed"
        );
        assert_eq!(
            sum(3, &forbidden, &[]),
            "⚠ none of 3 objects in namespace apps that may be listed reports that it is not ready"
        );
        assert_eq!(
            sum(3, &[], &["no operator holds Lease a/b"]),
            "⚠ none of 3 objects in namespace apps reports that it is not ready"
        );
    }

    #[test]
    fn an_object_is_examined_unless_it_says_that_its_newest_spec_is_ready() {
        let suspect = |status: serde_json::Value| {
            let object = serde_json::json!({"apiVersion": "v1", "kind": "X",
                "metadata": {"name": "a", "generation": 2}, "status": status});
            is_suspect(&Object::new(object).unwrap())
        };
        let ready = |status: &str, generation: i64| serde_json::json!({"observedGeneration": generation, "conditions": [{"type": "Ready", "status": status}]});
        assert!(!suspect(ready("True", 2)));
        assert!(
            suspect(ready("True", 1)) && suspect(ready("False", 2)) && suspect(ready("Unknown", 2))
        );
        assert!(suspect(serde_json::json!({})));
    }
}
