//! Compares the changes that a plan predicted for an applier with the changes in the cluster.
//!
//! This module judges one applier between two commits, and sums up the verdicts. `inventories` reads what happened,
//! and `super` prints the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use objects::ObjectId;
use plan::{
    ApplierChange, ApplierComparisonStatus, ImmutableFieldConsequence, PlanObjectReference,
};

use super::inventories::{ApplierInCluster, InventoryChanges};

/// Parts of messages of `Ready` that show that an applier fails only in the test bed, each with a reason for the
/// table.
const ENVIRONMENT_MESSAGES: [(&str, &str); 9] = [
    ("no matches for kind", "its kind is not served here"),
    ("could not find the requested resource", "its kind is not served here"),
    ("failed calling webhook", "a webhook that is not here"),
    ("secret not found", "a Secret that is not here"),
    ("secrets \"", "a Secret that is not here"),
    ("configmaps \"", "a ConfigMap that is not here"),
    ("namespaces \"", "a namespace that is not here"),
    ("for bound claims", "claims are never bound here, and only a bound one may grow"),
    ("proxy", "another host, and there is no network here"),
];

/// Reasons of `Ready` that show the same.
const ENVIRONMENT_REASONS: [(&str, &str); 3] = [
    ("DependencyNotReady", "what it depends on is not ready"),
    ("ArtifactFailed", "its source is another host, and there is no network here"),
    ("HealthCheckFailed", "its objects do not get healthy here"),
];

/// The result of comparing an applier between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApplierVerdict {
    /// Nothing was predicted, and nothing happened.
    Unchanged,
    /// What was predicted happened.
    Equal,
    /// The comparison is not possible, for this reason.
    Unknown(String),
    /// Something else happened. The texts are the differences.
    Wrong(Vec<String>),
}

/// An applier between two commits.
pub(super) struct ApplierBetweenCommits<'s> {
    /// The changes that the plan predicts. It is none if the plan does not list the applier.
    pub(super) predicted: Option<&'s ApplierChange>,
    /// The changes in the cluster.
    pub(super) observed: &'s InventoryChanges,
    /// The applier before the commit. It is none if it did not exist.
    pub(super) before: Option<&'s ApplierInCluster>,
    /// The applier after the commit.
    pub(super) after: Option<&'s ApplierInCluster>,
    /// The revision before the commit.
    pub(super) base: &'s str,
    /// The revision after the commit.
    pub(super) head: &'s str,
}

impl ApplierBetweenCommits<'_> {
    /// Judges whether the prediction about an applier came true.
    pub(super) fn verdict(&self) -> ApplierVerdict {
        let fails_at = |side: Option<&ApplierInCluster>, revision: &str| {
            side.filter(|it| !it.has_applied(revision)).map(|it| {
                let text = if it.message.is_empty() { "no message" } else { it.message.as_str() };
                (environment(it), format!("{}: {text}", it.reason))
            })
        };
        let is_quiet = *self.observed == InventoryChanges::default();
        let fails_now = fails_at(self.after, self.head);
        if let Some(change) = self.predicted.filter(|it| !is_comparison(it.comparison)) {
            let is_as_predicted = change.comparison == ApplierComparisonStatus::HeadFailed
                && is_quiet
                && fails_now.as_ref().is_some_and(|(environment, _)| environment.is_none());
            return match is_as_predicted {
                true => ApplierVerdict::Equal,
                false => {
                    let message = change.message.as_deref().unwrap_or_default();
                    ApplierVerdict::Unknown(format!("the plan cannot compare it: {message}"))
                }
            };
        }
        if let Some((_, text)) = fails_at(self.before, self.base) {
            let text = format!("the cluster does not have the commit before: {text}");
            return ApplierVerdict::Unknown(text);
        }
        match fails_now {
            Some((Some(environment), text)) => {
                return ApplierVerdict::Unknown(format!("{environment}: {text}"));
            }
            Some((None, _)) if self.predicted.is_some_and(is_rejected) => {
                return ApplierVerdict::Equal;
            }
            Some((None, text)) => {
                return ApplierVerdict::Wrong(vec![format!("the cluster fails: {text}")]);
            }
            None => {}
        }
        if let Some(removal) = self.predicted.and_then(|it| it.unknown_removal.as_ref()) {
            let text = format!("the plan does not know what is removed: {}", removal.reason);
            return ApplierVerdict::Unknown(text);
        }
        let differences = differences(self.predicted, self.observed);
        let unknown =
            self.predicted.and_then(|it| it.moved_sources.first().or(it.unknown_values.first()));
        match (differences.is_empty(), unknown) {
            (true, _) if is_quiet => ApplierVerdict::Unchanged,
            (true, _) => ApplierVerdict::Equal,
            (false, Some(value)) => {
                let text = format!("{}: {}; {}", value.what, value.reason, differences.join("; "));
                ApplierVerdict::Unknown(format!("the plan does not know {text}"))
            }
            (false, None) => ApplierVerdict::Wrong(differences),
        }
    }
}

/// Whether a plan says what changes in the applier.
fn is_comparison(comparison: ApplierComparisonStatus) -> bool {
    matches!(
        comparison,
        ApplierComparisonStatus::Compared
            | ApplierComparisonStatus::New
            | ApplierComparisonStatus::Removed
    )
}

/// Whether a plan says that the API server will reject an object.
fn is_rejected(change: &ApplierChange) -> bool {
    let mut fields = change.immutable_fields.iter();
    fields.any(|it| it.consequence == ImmutableFieldConsequence::Rejected)
}

/// The cause in the test bed that makes an applier fail. `None` if the applier itself fails.
fn environment(applier: &ApplierInCluster) -> Option<&'static str> {
    if applier.ready == "Unknown" || applier.ready.is_empty() {
        return Some("it did not settle");
    }
    let message = applier.message.to_lowercase();
    let by_reason = ENVIRONMENT_REASONS.iter().find(|(reason, _)| applier.reason == *reason);
    let by_message = ENVIRONMENT_MESSAGES.iter().find(|(part, _)| message.contains(part));
    by_reason.or(by_message).map(|(_, text)| *text)
}

/// The id of an object that a plan names.
pub(super) fn id_of(reference: &PlanObjectReference) -> ObjectId {
    let PlanObjectReference { group, kind, namespace, name } = reference;
    ObjectId::new(namespace, name, group, kind)
}

/// The changes of an applier's objects that a plan predicts, without the changed fields.
fn prediction(change: Option<&ApplierChange>) -> InventoryChanges {
    let mut predicted = InventoryChanges::default();
    let Some(change) = change.filter(|it| !it.is_suspended) else { return predicted };
    predicted.added = change.added.iter().map(id_of).collect();
    predicted.changed = change.changed.iter().map(|it| (id_of(&it.object), Vec::new())).collect();
    predicted.moved = change.moved.iter().map(|it| id_of(&it.object)).collect();
    for removed in &change.removed {
        let list = match removed.left_in_cluster {
            Some(_) => &mut predicted.left,
            None => &mut predicted.deleted,
        };
        list.insert(id_of(&removed.object));
    }
    predicted
}

/// The differences between a plan and the cluster, one a line.
fn differences(change: Option<&ApplierChange>, observed: &InventoryChanges) -> Vec<String> {
    let predicted = prediction(change);
    let changed =
        |side: &InventoryChanges| -> BTreeSet<ObjectId> { side.changed.keys().cloned().collect() };
    let changed_in_plan = changed(&predicted);
    let changed_in_cluster = changed(observed);
    let mut lines = Vec::new();
    for (what, plan, cluster) in [
        ("added", &predicted.added, &observed.added),
        ("changed", &changed_in_plan, &changed_in_cluster),
        ("deleted", &predicted.deleted, &observed.deleted),
        ("left in the cluster", &predicted.left, &observed.left),
        ("moved here", &predicted.moved, &observed.moved),
    ] {
        for id in plan.difference(cluster) {
            lines.push(format!("{} is {what} in the plan only", id.subject()));
        }
        for id in cluster.difference(plan) {
            let fields = observed.changed.get(id).filter(|_| what == "changed");
            let fields = fields.map_or(String::new(), |it| format!(" ({})", it.join(", ")));
            lines.push(format!("{} is {what} in the cluster only{fields}", id.subject()));
        }
    }
    lines
}

/// How often each verdict was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VerdictCounts {
    /// [`ApplierVerdict::Unchanged`].
    pub(super) unchanged: usize,
    /// [`ApplierVerdict::Equal`].
    pub(super) equal: usize,
    /// [`ApplierVerdict::Unknown`].
    pub(super) unknown: usize,
    /// [`ApplierVerdict::Wrong`].
    pub(super) wrong: usize,
}

impl VerdictCounts {
    /// Counts the verdict about an applier.
    pub(super) fn add(&mut self, verdict: &ApplierVerdict) {
        match verdict {
            ApplierVerdict::Unchanged => self.unchanged += 1,
            ApplierVerdict::Equal => self.equal += 1,
            ApplierVerdict::Unknown(_) => self.unknown += 1,
            ApplierVerdict::Wrong(_) => self.wrong += 1,
        }
    }

    /// The number of all verdicts.
    pub(super) fn total(&self) -> usize {
        self.unchanged + self.equal + self.unknown + self.wrong
    }
}

impl fmt::Display for VerdictCounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unchanged, equal, unknown, wrong } = self;
        write!(out, "{unchanged} unchanged, {equal} equal, {unknown} unknown, {wrong} wrong")
    }
}

/// All verdicts of a run.
#[derive(Debug, Default)]
pub(super) struct VerdictTally {
    /// The numbers of verdicts for each applier.
    pub(super) appliers: BTreeMap<ObjectId, VerdictCounts>,
    /// The reasons of unknown verdicts, and how often each came.
    pub(super) reasons: BTreeMap<String, usize>,
    /// The wrong predictions, with applier and commit.
    pub(super) wrong: Vec<String>,
}

impl VerdictTally {
    /// Counts the verdict about an applier at a commit.
    pub(super) fn add(&mut self, applier: &ObjectId, commit: &str, verdict: &ApplierVerdict) {
        self.appliers.entry(applier.clone()).or_default().add(verdict);
        match verdict {
            ApplierVerdict::Unknown(reason) => {
                *self.reasons.entry(format!("{}: {reason}", applier.subject())).or_default() += 1;
            }
            ApplierVerdict::Wrong(lines) => {
                let lines = lines.iter().map(|line| format!("\n    {line}")).collect::<String>();
                self.wrong.push(format!("{} at {commit}{lines}", applier.subject()));
            }
            ApplierVerdict::Unchanged | ApplierVerdict::Equal => {}
        }
    }

    /// The sums over all appliers.
    pub(super) fn sums(&self) -> VerdictCounts {
        let mut sums = VerdictCounts::default();
        for counts in self.appliers.values() {
            sums.unchanged += counts.unchanged;
            sums.equal += counts.equal;
            sums.unknown += counts.unknown;
            sums.wrong += counts.wrong;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", "ConfigMap")
    }

    fn change(more: Value) -> ApplierChange {
        let mut value = json!({
            "applier": {"kind": "Kustomization", "namespace": "apps", "name": "web"},
            "comparison": "compared", "movedAway": 0, "unchanged": 0,
        });
        let fields = more.as_object().unwrap().clone();
        value.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(value).unwrap()
    }

    fn applier(ready: &str, reason: &str, applied: &str) -> ApplierInCluster {
        ApplierInCluster::for_tests(ready, reason, applied)
    }

    fn verdict(
        predicted: Option<&ApplierChange>,
        observed: &InventoryChanges,
        after: &ApplierInCluster,
    ) -> ApplierVerdict {
        let before = applier("True", "Succeeded", "one");
        let step = ApplierBetweenCommits {
            predicted,
            observed,
            before: Some(&before),
            after: Some(after),
            base: "one",
            head: "two",
        };
        step.verdict()
    }

    fn added(name: &str) -> InventoryChanges {
        InventoryChanges { added: [id(name)].into(), ..InventoryChanges::default() }
    }

    fn adding(name: &str) -> Value {
        json!({"added": [{"kind": "ConfigMap", "namespace": "apps", "name": name}]})
    }

    #[test]
    fn a_removal_of_objects_that_the_plan_does_not_know_is_unknown() {
        let removal = json!({"reason": "it was not fetched"});
        let plan = change(json!({"comparison": "removed", "unknownRemoval": removal}));
        let deleted = InventoryChanges { deleted: [id("a")].into(), ..InventoryChanges::default() };
        let text = "the plan does not know what is removed: it was not fetched";
        let ready = applier("True", "Succeeded", "two");
        let expected = ApplierVerdict::Unknown(text.to_owned());
        assert_eq!(verdict(Some(&plan), &deleted, &ready), expected);
    }

    #[test]
    fn a_prediction_is_equal_if_just_that_happened() {
        let ready = applier("True", "Succeeded", "two");
        let plan = change(adding("a"));
        let nothing = InventoryChanges::default();
        assert_eq!(verdict(Some(&plan), &added("a"), &ready), ApplierVerdict::Equal);
        assert_eq!(verdict(None, &nothing, &ready), ApplierVerdict::Unchanged);
        let expected = ApplierVerdict::Wrong(vec![
            "ConfigMap/apps/a is added in the plan only".to_owned(),
            "ConfigMap/apps/b is added in the cluster only".to_owned(),
        ]);
        assert_eq!(verdict(Some(&plan), &added("b"), &ready), expected);
        let mut suspended = plan.clone();
        suspended.is_suspended = true;
        assert_eq!(verdict(Some(&suspended), &nothing, &ready), ApplierVerdict::Unchanged);
    }

    #[test]
    fn what_the_plan_or_the_test_bed_cannot_know_is_unknown_and_not_wrong() {
        let ready = applier("True", "Succeeded", "two");
        let is_unknown = |it: ApplierVerdict| matches!(it, ApplierVerdict::Unknown(_));
        let mut plan = change(adding("a"));
        let value = json!({"what": "variable ${A}", "reason": "no value"});
        plan.unknown_values = vec![serde_json::from_value(value).unwrap()];
        assert_eq!(verdict(Some(&plan), &added("a"), &ready), ApplierVerdict::Equal);
        assert!(is_unknown(verdict(Some(&plan), &added("b"), &ready)));
        let nothing = InventoryChanges::default();
        let dependency = applier("False", "DependencyNotReady", "one");
        assert!(is_unknown(verdict(None, &nothing, &dependency)));
        let rejected = applier("False", "ReconciliationFailed", "one");
        assert!(matches!(verdict(None, &nothing, &rejected), ApplierVerdict::Wrong(_)));
        let field = json!({"object": {"kind": "Job", "name": "a"}, "path": "/spec",
            "rule": "it is immutable", "consequence": "rejected"});
        let rejection = change(json!({"immutableFields": [field]}));
        assert_eq!(verdict(Some(&rejection), &nothing, &rejected), ApplierVerdict::Equal);
        let failing = change(json!({"comparison": "headFailed", "message": "no such file"}));
        assert_eq!(verdict(Some(&failing), &nothing, &rejected), ApplierVerdict::Equal);
        assert!(is_unknown(verdict(Some(&failing), &nothing, &ready)));
    }

    #[test]
    fn an_applier_that_lacks_the_commit_before_is_unknown() {
        let behind = applier("False", "ReconciliationFailed", "none");
        let ready = applier("True", "Succeeded", "two");
        let observed = added("a");
        let step = ApplierBetweenCommits {
            predicted: None,
            observed: &observed,
            before: Some(&behind),
            after: Some(&ready),
            base: "one",
            head: "two",
        };
        assert!(matches!(step.verdict(), ApplierVerdict::Unknown(_)));
        let new = ApplierBetweenCommits { before: None, ..step };
        assert!(matches!(new.verdict(), ApplierVerdict::Wrong(_)));
    }

    #[test]
    fn verdicts_are_summed_by_applier() {
        let mut tally = VerdictTally::default();
        tally.add(&id("a"), "one", &ApplierVerdict::Equal);
        tally.add(&id("a"), "two", &ApplierVerdict::Wrong(vec!["b".to_owned()]));
        tally.add(&id("c"), "two", &ApplierVerdict::Unknown("why".to_owned()));
        let expected = VerdictCounts { unchanged: 0, equal: 1, unknown: 1, wrong: 1 };
        assert_eq!(tally.sums(), expected);
        assert_eq!(tally.sums().total(), 3);
        assert_eq!(tally.wrong, ["ConfigMap/apps/a at two\n    b"]);
    }
}
