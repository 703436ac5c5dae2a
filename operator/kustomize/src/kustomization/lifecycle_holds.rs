//! Lifecycles that hold a Kustomization: before a build is applied, after it is applied and healthy, and around its removal.
//!
//! A Kustomization has no journal. Its events keep the answers until the status reports the end of the attempt, so each run of
//! an attempt finds them again, also in another process. Lifecycles do not hold corrections of drift.
//! Elsewhere: which lifecycles hold a Kustomization, and asking them (`windlass_runtime::lifecycle`).

use crds::kustomize::{Kustomization, KustomizationSpec};
use kube_core::{Resource as _, ResourceExt as _};
use lifecycle::{LifecycleEventAnswer, LifecycleHoldPhase, ReleaseOrSourceRevision};
use reconcile::{NextRunTrigger, RunOutcome};
use release::lifecycle_hold::{LIFECYCLES_UNKNOWN, ReleaseLifecycles};
use release::status::LIFECYCLE_FAILED;
use sha2::{Digest as _, Sha256};

use super::KustomizationSession;
use super::last_attempts::BuildIdentity;
use windlass_cluster::ClusterError;
use windlass_runtime::hold_conditions;
use windlass_runtime::lifecycle::lifecycle_attempt::{
    LifecycleAttempt, LifecycleAttemptProgress, answered, pass,
};
use windlass_runtime::lifecycle::{self as gates, LifecycleSubject};

/// The lifecycles that hold an attempt, and the name of the attempt.
pub(super) struct LifecycleHold {
    lifecycles: ReleaseLifecycles,
    attempt: LifecycleAttempt,
    is_first: bool,
}

/// The name of an attempt, from the name of the Kustomization and a hash of `parts`.
fn operation(object: &Kustomization, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    format!("{}.{}", object.name_any(), &hex::encode(hash.finalize())[..12])
}

/// A text that identifies the spec of an attempt. A suspension does not change it, so answers from the time of a suspension
/// count.
fn asked_of(object: &Kustomization) -> String {
    let spec = KustomizationSpec { suspend: false, ..object.spec.clone() };
    // A spec that was read can be written.
    serde_json::to_string(&spec).unwrap_or_default()
}

fn revision(of: &str) -> ReleaseOrSourceRevision {
    ReleaseOrSourceRevision { revision: of.to_owned(), ..ReleaseOrSourceRevision::default() }
}

impl LifecycleHold {
    /// The hold of an attempt to apply a build.
    pub(super) fn build(
        session: &KustomizationSession<'_>,
        object: &Kustomization,
        judged: &BuildIdentity,
    ) -> Self {
        let BuildIdentity { digest, revision: to, .. } = judged;
        let applied =
            object.status.as_ref().and_then(|status| status.last_applied_revision.as_deref());
        Self {
            lifecycles: gates::holding(&session.context, object),
            attempt: LifecycleAttempt {
                operation: operation(object, &[&asked_of(object), digest, to]),
                from: applied.map(revision),
                to: Some(revision(to)),
            },
            is_first: applied.is_none(),
        }
    }

    /// The hold of the removal of the applied objects.
    pub(super) fn removal(session: &KustomizationSession<'_>, object: &Kustomization) -> Self {
        let applied =
            object.status.as_ref().and_then(|status| status.last_applied_revision.as_deref());
        Self {
            lifecycles: gates::holding(&session.context, object),
            attempt: LifecycleAttempt {
                operation: operation(object, &["delete"]),
                from: applied.map(revision),
                to: None,
            },
            is_first: false,
        }
    }

    fn before(&self) -> &'static [LifecycleHoldPhase] {
        match (self.attempt.to.is_some(), self.is_first) {
            (false, _) => &[LifecycleHoldPhase::PreDelete],
            (true, true) => &[LifecycleHoldPhase::PreInstall],
            (true, false) => &[LifecycleHoldPhase::PreUpgrade],
        }
    }

    fn after(&self) -> &'static [LifecycleHoldPhase] {
        match (self.attempt.to.is_some(), self.is_first) {
            (false, _) => &[LifecycleHoldPhase::PostDelete],
            (true, true) => &[LifecycleHoldPhase::PostInstall, LifecycleHoldPhase::Promote],
            (true, false) => &[LifecycleHoldPhase::PostUpgrade, LifecycleHoldPhase::Promote],
        }
    }
}

/// The outcome of an attempt that a lifecycle holds or fails, and the answers of lifecycles so far.
pub(super) struct HeldAttempt {
    pub(super) outcome: RunOutcome,
    pub(super) answers: Vec<LifecycleEventAnswer>,
}

/// The proof that lifecycles let an attempt begin. Functions that write or delete objects take one.
#[derive(Debug, Clone)]
pub(super) struct LifecycleClearance {
    answers: Vec<LifecycleEventAnswer>,
}

impl LifecycleClearance {
    /// A correction of drift, which lifecycles do not hold.
    pub(super) fn of_correction() -> Self {
        Self { answers: Vec::new() }
    }

    /// The answers of lifecycles that let the attempt begin.
    pub(super) fn into_answers(self) -> Vec<LifecycleEventAnswer> {
        self.answers
    }
}

impl KustomizationSession<'_> {
    /// Deletes lifecycle events that belong to no present attempt. Without a present attempt, all events are deleted.
    pub(super) async fn dismiss_events(
        &self,
        object: &Kustomization,
        held: Option<&LifecycleHold>,
    ) {
        let namespace = &self.node.namespace;
        let uid = object.uid().unwrap_or_default();
        let events = gates::events_of(&self.context, namespace, &uid, None);
        let operation = held.map(|held| held.attempt.operation.as_str());
        let over = lifecycle::dismissed(&events, operation, &[]);
        if !over.is_empty() {
            gates::dismiss(&self.context, namespace, &over).await;
        }
    }

    /// Passes the phases before an attempt does anything.
    ///
    /// # Errors
    /// It does not go on now.
    pub(super) async fn pass_before(
        &self,
        object: &Kustomization,
        held: &LifecycleHold,
    ) -> Result<LifecycleClearance, HeldAttempt> {
        if let Some(why) = held.lifecycles.unknown.clone() {
            let wake = NextRunTrigger::on(held.lifecycles.known_on.clone());
            let outcome = RunOutcome::Blocked(LIFECYCLES_UNKNOWN, why, wake);
            return Err(HeldAttempt { outcome, answers: Vec::new() });
        }
        let answers = self.pass(object, held, held.before()).await?;
        Ok(LifecycleClearance { answers })
    }

    /// Passes the phases after an attempt has done everything.
    ///
    /// # Errors
    /// It has not come to its end.
    pub(super) async fn pass_after(
        &self,
        object: &Kustomization,
        held: &LifecycleHold,
        answers: Vec<LifecycleEventAnswer>,
    ) -> Result<Vec<LifecycleEventAnswer>, HeldAttempt> {
        let all = |more| answers.iter().cloned().chain(more).collect();
        match self.pass(object, held, held.after()).await {
            Ok(more) => Ok(all(more)),
            Err(stopped) => Err(HeldAttempt { answers: all(stopped.answers), ..stopped }),
        }
    }

    /// The answers before an attempt, as far as its events still exist.
    pub(super) fn answered_before(
        &self,
        object: &Kustomization,
        held: &LifecycleHold,
    ) -> Vec<LifecycleEventAnswer> {
        let uid = object.uid().unwrap_or_default();
        let asking = LifecycleSubject { node: &self.node, uid: &uid, release: None, owner: None };
        let LifecycleHold { lifecycles, attempt, .. } = held;
        answered(&self.context, &asking, lifecycles, attempt, held.before())
    }

    async fn pass(
        &self,
        object: &Kustomization,
        held: &LifecycleHold,
        phases: &[LifecycleHoldPhase],
    ) -> Result<Vec<LifecycleEventAnswer>, HeldAttempt> {
        let is_held =
            |hold: &lifecycle::HoldingLifecycle| phases.iter().any(|it| hold.phases.contains(it));
        if !held.lifecycles.holds.iter().any(is_held) {
            return Ok(Vec::new());
        }
        let uid = object.uid().unwrap_or_default();
        let owner = object.owner_ref(&());
        let asking = LifecycleSubject { node: &self.node, uid: &uid, release: None, owner };
        // A failed lifecycle is asked again if a user requests it.
        let is_asked = hold_conditions::is_asked(object);
        let passage = pass(&self.context, &asking, &held.lifecycles, &held.attempt, phases);
        let mut passage = passage.await;
        if let (Ok(LifecycleAttemptProgress::Failed(_, answers)), true) = (&passage, is_asked) {
            let failed = answers.last().map(|it| it.event.as_str()).unwrap_or_default();
            let mut events = gates::events_of(&self.context, &self.node.namespace, &uid, None);
            events.retain(|event| event.uid == failed);
            let over = lifecycle::dismissed(&events, None, &[]);
            gates::dismiss(&self.context, &self.node.namespace, &over).await;
            let again = pass(&self.context, &asking, &held.lifecycles, &held.attempt, phases);
            passage = again.await;
        }
        match passage {
            Ok(LifecycleAttemptProgress::Free(answers)) => Ok(answers),
            Ok(LifecycleAttemptProgress::Held(outcome, answers)) => {
                Err(HeldAttempt { outcome, answers })
            }
            Ok(LifecycleAttemptProgress::Failed(text, answers)) => {
                let outcome = RunOutcome::Failed(LIFECYCLE_FAILED, text, NextRunTrigger::default());
                Err(HeldAttempt { outcome, answers })
            }
            Err(error) => Err(HeldAttempt { outcome: unanswered(&error), answers: Vec::new() }),
        }
    }
}

/// The outcome of a failed request to the API server, which is repeated.
fn unanswered(error: &ClusterError) -> RunOutcome {
    let text = format!("a LifecycleEvent cannot be created: {error}");
    RunOutcome::Failed(LIFECYCLES_UNKNOWN, text, NextRunTrigger::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(applied: Option<&str>, to: Option<&str>) -> LifecycleHold {
        LifecycleHold {
            lifecycles: ReleaseLifecycles::default(),
            attempt: LifecycleAttempt {
                operation: String::new(),
                from: applied.map(revision),
                to: to.map(revision),
            },
            is_first: applied.is_none(),
        }
    }

    #[test]
    fn the_first_revision_is_installed_and_others_are_upgrades() {
        let phases = |applied, to| {
            let held = held(applied, to);
            held.before().iter().chain(held.after()).map(|it| it.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(phases(None, Some("b")), ["PreInstall", "PostInstall", "Promote"]);
        assert_eq!(phases(Some("a"), Some("b")), ["PreUpgrade", "PostUpgrade", "Promote"]);
        assert_eq!(phases(Some("a"), None), ["PreDelete", "PostDelete"]);
    }

    #[test]
    fn an_attempt_has_a_name_of_its_own() {
        let object: Kustomization =
            serde_json::from_value(json!({"metadata": {"name": "apps"}})).unwrap();
        let one = operation(&object, &["1", "sha256:0", "main"]);
        assert!(one.starts_with("apps.") && one.len() == "apps.".len() + 12, "{one}");
        assert_eq!(one, operation(&object, &["1", "sha256:0", "main"]));
        assert_ne!(one, operation(&object, &["2", "sha256:0", "main"]));
        assert_ne!(one, operation(&object, &["1", "sha256:0m", "ain"]));
    }
}
