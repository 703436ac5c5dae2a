//! Decides whether the run of an object may continue. The checks are the same for every kind, and take place twice in a run.
//!
//! Here: suspension, windows, Freezes, dependency cycles, dependencies.
//! Elsewhere: whether a dependency is ready (each kind), edges and finding cycles (`dependency_graph.rs`), when windows are
//! open (`change_window.rs`), when a Freeze denies (`freeze_calendar.rs`), holds (`object_hold.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{
    ChangeWindowState, DependencyGraph, FreezeHold, NextRunTrigger, ObjectKey, RunOutcome, Time,
    condition_reason,
};

/// The facts about an object that the gate needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunGateFacts {
    /// Whether `spec.suspend` is set. A hold that has expired does not count.
    pub suspended: bool,
    /// The windows of the object, if it has any.
    pub window: Option<ChangeWindowState>,
    /// The Freezes that hold the object, if there are any.
    pub freeze: Option<Arc<FreezeHold>>,
    /// The change that a run would apply if windows and Freezes allowed it, such as `revision main@sha1:…`. `None` if the
    /// object is ready and there is no new revision.
    pub waiting: Option<String>,
    /// The object has a deletion timestamp.
    pub deleting: bool,
    /// The entries of `dependsOn`, in order. They are needed only for the check after resolving the source.
    pub dependencies: Vec<DependsOnEntry>,
    /// The cycle of `dependsOn` that contains the object, from [`DependencyGraph::cycle`].
    pub cycle: Option<Vec<ObjectKey>>,
}

/// One entry of `dependsOn` and the state of the object that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependsOnEntry {
    /// The object that the entry names.
    pub node: ObjectKey,
    /// The name of the object in messages.
    pub shown: String,
    /// The state of the dependency.
    pub state: DependencyState,
}

impl DependsOnEntry {
    /// An entry of `dependsOn` that names an object of the same kind.
    pub fn of_kind(node: ObjectKey, state: DependencyState) -> Self {
        Self { shown: node.namespaced_name(), node, state }
    }
}

/// The state of a dependency. The strings say why, as a part of a sentence; an empty string adds nothing to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependencyState {
    /// The dependency is ready.
    Ready,
    /// The object does not exist.
    Missing,
    /// The object does not exist, or the named user may not get it. The message does not distinguish the two cases, so that a
    /// user without access does not learn whether the object exists.
    MissingOrForbidden(String),
    /// The dependency is not `Ready=True`, or its latest generation has not been observed.
    NotReady(String),
    /// The dependency is ready, but has not yet applied the revision of the source that both objects share.
    Stale(String),
}

/// Whether a run continues at the gate, or how it ends there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunGate {
    /// The run continues.
    Open,
    /// The run ends without a change of the status, because the object is suspended.
    Suspended,
    /// The run ends without a change of the status. No window is open or a Freeze denies, but there is no new change that
    /// waits.
    Closed,
    /// The run ends here, with this outcome.
    Outcome(RunOutcome),
}

/// Decides whether the run may continue before anything is fetched.
///
/// An object that is being deleted is checked for suspension only; its kind decides what to do if it is suspended. Windows that
/// cannot be read count as closed.
pub fn before_resolve(facts: &RunGateFacts) -> RunGate {
    if facts.suspended {
        return RunGate::Suspended;
    }
    match &facts.cycle {
        // Differs(flux): in Flux the members of a cycle wait for each other for ever; here they report the cycle and
        // stop.
        Some(path) if !facts.deleting => {
            let is_of_one =
                |pair: &[ObjectKey]| pair[0].kind == pair[1].kind && pair[0].group == pair[1].group;
            let what = match path.windows(2).all(is_of_one) {
                true => "dependsOn",
                false => "dependsOn or windlass.dev/depends-on",
            };
            let text = format!(
                "dependency cycle: {}; remove one {what}",
                DependencyGraph::cycle_text(path)
            );
            RunGate::Outcome(RunOutcome::Stalled(condition_reason::DEPENDENCY_CYCLE, text))
        }
        None if !facts.deleting => within_window(facts),
        Some(_) | None => RunGate::Open,
    }
}

fn within_window(facts: &RunGateFacts) -> RunGate {
    match (&facts.window, &facts.waiting) {
        (None | Some(ChangeWindowState::Open { .. }), _) => outside_freezes(facts),
        (Some(ChangeWindowState::Closed { .. }), None) => RunGate::Closed,
        (Some(window), waiting) => {
            let waiting = waiting.as_deref().unwrap_or("nothing new");
            window.outcome(waiting).map_or(RunGate::Open, RunGate::Outcome)
        }
    }
}

/// Checks the Freezes. If a Freeze allows the correction of drift, a run without a new change may begin. If the run then finds
/// a new change after all, it does not apply it.
fn outside_freezes(facts: &RunGateFacts) -> RunGate {
    match (&facts.freeze, &facts.waiting) {
        (None, _) => RunGate::Open,
        (Some(freeze), None) if freeze.corrects_drift => RunGate::Open,
        (Some(_), None) => RunGate::Closed,
        (Some(freeze), Some(waiting)) => RunGate::Outcome(freeze.outcome(waiting)),
    }
}

/// Decides again once the source is known, because its artifact determines whether a dependency is stale.
///
/// A blocked object runs again when one of its dependencies changes, and at `retry_at`.
pub fn after_resolve(facts: &RunGateFacts, retry_at: Time) -> RunGate {
    let gate = before_resolve(facts);
    if facts.deleting || gate != RunGate::Open {
        return gate;
    }
    let mut strings = Vec::new();
    let mut on = BTreeSet::new();
    for DependsOnEntry { node, shown: name, state } in &facts.dependencies {
        let (text, why) = match state {
            DependencyState::Ready => continue,
            DependencyState::Missing => (format!("dependency '{name}' not found"), ""),
            DependencyState::MissingOrForbidden(user) => {
                (format!("dependency '{name}' not found, or {user} may not get it"), "")
            }
            DependencyState::NotReady(why) => (format!("dependency '{name}' is not ready"), &**why),
            DependencyState::Stale(why) => {
                (format!("dependency '{name}' revision is not up to date"), &**why)
            }
        };
        strings.push(if why.is_empty() { text } else { format!("{text}: {why}") });
        on.insert(node.clone());
    }
    if on.is_empty() {
        return RunGate::Open;
    }
    // Differs(flux): it names the first that is not ready; here all are, and each of them wakes.
    let wake = NextRunTrigger::on(on).and_at(retry_at);
    RunGate::Outcome(RunOutcome::Blocked(
        condition_reason::DEPENDENCY_NOT_READY,
        strings.join("; "),
        wake,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> ObjectKey {
        ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "infra", name)
    }

    fn retry_at() -> Time {
        Time::from_second(30).unwrap()
    }

    fn dependency(name: &str, state: DependencyState) -> DependsOnEntry {
        DependsOnEntry::of_kind(node(name), state)
    }

    /// Both answers for an object that depends on something missing.
    fn asked(suspended: bool, deleting: bool, is_in_cycle: bool) -> [RunGate; 2] {
        let cycle = is_in_cycle.then(|| vec![node("a"), node("b"), node("a")]);
        let dependencies = vec![dependency("b", DependencyState::Missing)];
        let facts =
            RunGateFacts { suspended, deleting, dependencies, cycle, ..RunGateFacts::default() };
        [before_resolve(&facts), after_resolve(&facts, retry_at())]
    }

    fn cycle() -> RunGate {
        let text = "dependency cycle: Kustomization/infra/a → Kustomization/infra/b → \
                    Kustomization/infra/a; remove one dependsOn";
        RunGate::Outcome(RunOutcome::Stalled(condition_reason::DEPENDENCY_CYCLE, text.into()))
    }

    fn blocked(text: &str, on: &[&str]) -> RunGate {
        let wake = NextRunTrigger::on(on.iter().map(|name| node(name))).and_at(retry_at());
        RunGate::Outcome(RunOutcome::Blocked(
            condition_reason::DEPENDENCY_NOT_READY,
            text.into(),
            wake,
        ))
    }

    #[test]
    fn suspension_comes_first_then_cycles_then_dependencies() {
        let missing = || blocked("dependency 'infra/b' not found", &["b"]);
        for (suspended, deleting, is_in_cycle, expected) in [
            (false, false, false, [RunGate::Open, missing()]),
            (false, false, true, [cycle(), cycle()]),
            (false, true, false, [RunGate::Open, RunGate::Open]),
            (false, true, true, [RunGate::Open, RunGate::Open]),
            (true, false, false, [RunGate::Suspended, RunGate::Suspended]),
            (true, false, true, [RunGate::Suspended, RunGate::Suspended]),
            (true, true, false, [RunGate::Suspended, RunGate::Suspended]),
            (true, true, true, [RunGate::Suspended, RunGate::Suspended]),
        ] {
            assert_eq!(asked(suspended, deleting, is_in_cycle), expected);
        }
    }

    #[test]
    fn outside_its_window_an_object_waits_if_something_is_new_and_is_left_alone_if_not() {
        let now = Time::from_second(1_795_435_200).unwrap();
        let state = |text: &str| ChangeWindowState::at(now, Some(text), None);
        let closed = state("0 22 * * * 4h");
        let open = state("0 0 * * * 24h");
        let asked = |window: &Option<ChangeWindowState>, waiting: Option<&str>, deleting| {
            let window = window.clone();
            let waiting = waiting.map(str::to_owned);
            before_resolve(&RunGateFacts { window, waiting, deleting, ..RunGateFacts::default() })
        };
        assert_eq!(asked(&open, Some("revision 1"), false), RunGate::Open);
        assert_eq!(asked(&closed, None, false), RunGate::Closed);
        assert_eq!(asked(&closed, Some("revision 1"), true), RunGate::Open);
        let outcome = closed.as_ref().unwrap().outcome("revision 1").unwrap();
        assert_eq!(outcome.reason(), condition_reason::WINDOW_CLOSED);
        assert_eq!(asked(&closed, Some("revision 1"), false), RunGate::Outcome(outcome));
        for waiting in [None, Some("revision 1")] {
            let RunGate::Outcome(outcome) = asked(&state("never"), waiting, false) else {
                panic!()
            };
            assert!(
                matches!(outcome, RunOutcome::Stalled(condition_reason::INVALID_WINDOW, _)),
                "{outcome:?}"
            );
        }
        let held = RunGateFacts { suspended: true, window: closed, ..RunGateFacts::default() };
        assert_eq!(before_resolve(&held), RunGate::Suspended);
    }

    #[test]
    fn during_a_freeze_nothing_new_begins_and_drift_is_corrected_if_that_is_allowed() {
        let asked = |corrects_drift: bool, waiting: Option<&str>, deleting: bool| {
            let text = "Freeze christmas".to_owned();
            let recheck_at = retry_at();
            let hold =
                FreezeHold { reason: condition_reason::FROZEN, text, corrects_drift, recheck_at };
            before_resolve(&RunGateFacts {
                freeze: Some(Arc::new(hold)),
                waiting: waiting.map(str::to_owned),
                deleting,
                ..RunGateFacts::default()
            })
        };
        assert_eq!(asked(true, None, false), RunGate::Open);
        assert_eq!(asked(false, None, false), RunGate::Closed);
        assert_eq!(asked(false, Some("revision 1"), true), RunGate::Open);
        for corrects_drift in [true, false] {
            let text = "revision 1 waits: Freeze christmas".to_owned();
            let wake = NextRunTrigger::at(retry_at());
            let outcome = RunOutcome::Blocked(condition_reason::FROZEN, text, wake);
            let gate = asked(corrects_drift, Some("revision 1"), false);
            assert_eq!(gate, RunGate::Outcome(outcome));
        }
    }

    #[test]
    fn a_cycle_across_kinds_names_the_annotation_too() {
        let release = ObjectKey::new("helm.toolkit.fluxcd.io", "HelmRelease", "infra", "b");
        let cycle = Some(vec![node("a"), release, node("a")]);
        let RunGate::Outcome(outcome) =
            before_resolve(&RunGateFacts { cycle, ..RunGateFacts::default() })
        else {
            panic!()
        };
        let text = "dependency cycle: Kustomization/infra/a → HelmRelease/infra/b → \
                    Kustomization/infra/a; remove one dependsOn or windlass.dev/depends-on";
        assert_eq!(outcome.text(), text);
    }

    #[test]
    fn an_object_without_dependencies_or_with_ready_ones_runs() {
        assert_eq!(after_resolve(&RunGateFacts::default(), retry_at()), RunGate::Open);
        let dependencies = vec![dependency("a", DependencyState::Ready)];
        let facts = RunGateFacts { dependencies, ..RunGateFacts::default() };
        assert_eq!(after_resolve(&facts, retry_at()), RunGate::Open);
    }

    #[test]
    fn every_dependency_that_is_not_ready_is_named_and_wakes() {
        let dependencies = vec![
            dependency("d", DependencyState::Stale("at main@sha1:1".into())),
            dependency("a", DependencyState::Ready),
            dependency("c", DependencyState::NotReady("health check failed".into())),
            dependency("b", DependencyState::NotReady(String::new())),
            dependency("e", DependencyState::MissingOrForbidden("ServiceAccount 'x/y'".into())),
        ];
        let facts = RunGateFacts { dependencies, ..RunGateFacts::default() };
        let text = "dependency 'infra/d' revision is not up to date: at main@sha1:1; \
                    dependency 'infra/c' is not ready: health check failed; \
                    dependency 'infra/b' is not ready; \
                    dependency 'infra/e' not found, or ServiceAccount 'x/y' may not get it";
        assert_eq!(after_resolve(&facts, retry_at()), blocked(text, &["b", "c", "d", "e"]));
    }
}
