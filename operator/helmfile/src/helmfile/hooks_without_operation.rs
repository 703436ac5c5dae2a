//! Hooks of a release on which no operation begins, because only their manifests changed or the release was adopted. Windows,
//! Freezes and lifecycles hold these hooks as they hold an operation. After an operation, the hooks that follow it are
//! applied.
//!
//! Elsewhere: applying (`hooks.rs`), hooks before an operation, whose lifecycles the operation has asked
//! (`release_status_writer.rs`).

use std::sync::atomic::Ordering;

use helmfile::ManifestHookTime;
use kube_core::ResourceExt as _;
use lifecycle::{LifecycleEventAnswer, LifecycleHoldPhase, ReleaseOrSourceRevision};
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use release::lifecycle_hold::{LIFECYCLES_UNKNOWN, ReleaseLifecycles};
use release::status::LIFECYCLE_FAILED;
use sha2::{Digest as _, Sha256};

use super::HelmfileSession;
use super::helmfile_kind_differences::HelmfileCustomResource;
use super::hooks::HookApplyOutcome;
use super::plan::ReleaseKey;
use super::release_reconciler::{HelmfileRun, ReleaseRunState};
use super::release_specification::latest_version;
use super::release_status_writer::HelmfileReleaseOwner;
use super::report::RELEASE_FAILED;
use helm_controller::release_runner::{DesiredRelease, ReleaseStatusOwner as _};
use windlass_runtime::approval_plan::PLAN_FAILED;
use windlass_runtime::hold_conditions;
use windlass_runtime::lifecycle::lifecycle_attempt::{
    LifecycleAttempt, LifecycleAttemptProgress, beside_release, is_beside_release,
    pass_as_requested,
};
use windlass_runtime::lifecycle::{LifecycleSubject, dismiss, events_of};

/// The present and the former digest of a release.
pub(super) struct ReleaseDigestChange<'d> {
    pub(super) digest: &'d str,
    pub(super) known: Option<&'d str>,
}

/// The phases before and after hooks are applied on which no operation begins.
fn phases(is_first: bool) -> (&'static [LifecycleHoldPhase], &'static [LifecycleHoldPhase]) {
    match is_first {
        true => (
            &[LifecycleHoldPhase::PreInstall],
            &[LifecycleHoldPhase::PostInstall, LifecycleHoldPhase::Promote],
        ),
        false => (
            &[LifecycleHoldPhase::PreUpgrade],
            &[LifecycleHoldPhase::PostUpgrade, LifecycleHoldPhase::Promote],
        ),
    }
}

/// The name of the operation that applies the hooks of a release. It changes with the desired state.
fn operation(key: &ReleaseKey, digest: &str) -> String {
    let digest = Sha256::digest(format!("{key} {digest}"));
    beside_release(&key.name, &hex::encode(digest)[..12])
}

/// The outcome of applying hooks that do not continue.
type HookReapplyResult = Result<(), RunOutcome>;

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// Applies the hooks of a release once the release is as the helmfile says. That includes hooks before an operation, if no
    /// operation began. `None` if the Helmfile changed meanwhile, because then nothing is applied.
    pub(super) async fn reapply(
        &self,
        owner: &HelmfileReleaseOwner<K>,
        desired_release: &DesiredRelease,
        remembered: &ReleaseRunState,
        of: ReleaseDigestChange<'_>,
        run: &HelmfileRun<'_, K>,
    ) -> Option<HookReapplyResult> {
        if owner.hooks.all.is_empty() || of.known == Some(of.digest) {
            return Some(self.end_hook_plans(&owner.key, run).await);
        }
        if self.is_closed(run.object) {
            let again = NextRunTrigger::at(self.in_future(run.timeouts.interval));
            let text = "manifests of hooks wait until a window opens".to_owned();
            return Some(Err(RunOutcome::Blocked(condition_reason::WINDOW_CLOSED, text, again)));
        }
        // This is known until the process ends. After that, the hooks are applied once more.
        if remembered.has_begun.load(Ordering::Relaxed) {
            let desired = &desired_release.desired;
            if let Err(held) = self.judge_hooks(owner, desired, remembered, &of, run).await {
                return Some(Err(held));
            }
            return self
                .apply_hooks_of(
                    owner,
                    desired_release,
                    remembered,
                    &[ManifestHookTime::After],
                    &[],
                    run,
                )
                .await;
        }
        // Hooks that follow an operation end it, even if a Freeze began meanwhile. Other hooks begin something.
        if let Some(freeze) = &run.freeze {
            return Some(Err(freeze.outcome("the change of the manifests of hooks")));
        }
        let lifecycles = &desired_release.desired.lifecycles;
        let version = latest_version(&owner.status()).map(|it| it.to_string());
        let revision = version.map(|revision| ReleaseOrSourceRevision {
            revision,
            ..ReleaseOrSourceRevision::default()
        });
        let attempt = LifecycleAttempt {
            operation: operation(&owner.key, of.digest),
            from: revision.clone(),
            to: revision,
        };
        self.dismiss_reapplied(&owner.key, Some(&attempt.operation), run).await;
        let (before, after) = phases(of.known.is_none());
        let answers = match self.pass(&owner.key, lifecycles, &attempt, before, run).await {
            Ok(answers) => answers,
            Err(StoppedHooks { outcome, answers }) => {
                if let RunOutcome::Failed(LIFECYCLE_FAILED, text, _) = &outcome {
                    owner.audit_refused(text, answers, &desired_release.desired).await;
                }
                return Some(Err(outcome));
            }
        };
        if !remembered.has_applied(&attempt.operation) {
            let desired = &desired_release.desired;
            if let Err(held) = self.judge_hooks(owner, desired, remembered, &of, run).await {
                return Some(Err(held));
            }
            let moments = [ManifestHookTime::Before, ManifestHookTime::After];
            let applied = self
                .apply_hooks_of(owner, desired_release, remembered, &moments, &answers, run)
                .await?;
            if applied.is_err() {
                return Some(applied);
            }
            remembered.set_applied(&attempt.operation);
        }
        let passed = self.pass(&owner.key, lifecycles, &attempt, after, run).await;
        Some(passed.map(drop).map_err(|stopped| stopped.outcome))
    }

    async fn apply_hooks_of(
        &self,
        owner: &HelmfileReleaseOwner<K>,
        desired_release: &DesiredRelease,
        remembered: &ReleaseRunState,
        moments: &[ManifestHookTime],
        answers: &[LifecycleEventAnswer],
        run: &HelmfileRun<'_, K>,
    ) -> Option<HookReapplyResult> {
        let target = remembered.target();
        let permit = target.applying().run_permit(&self.node.namespace).await;
        match owner.apply_hooks(moments, target, &permit, &desired_release.desired, answers).await {
            Ok(HookApplyOutcome::Applied) => {
                remembered.has_begun.store(false, Ordering::Relaxed);
                Some(self.end_hook_plans(&owner.key, run).await)
            }
            Ok(HookApplyOutcome::Refused(text)) => {
                let again = self.in_future(run.timeouts.retry);
                Some(Err(RunOutcome::Failed(RELEASE_FAILED, text, NextRunTrigger::at(again))))
            }
            Ok(HookApplyOutcome::Overtaken) => None,
            Err(outcome) => Some(Err(outcome)),
        }
    }

    /// Deletes the Plans of hooks that are applied, because an approval counts once.
    async fn end_hook_plans(
        &self,
        key: &ReleaseKey,
        run: &HelmfileRun<'_, K>,
    ) -> HookReapplyResult {
        self.dismiss_hook_plans(key, run).await.map_err(|error| {
            let text = format!("a Plan that is carried out cannot be deleted: {error}");
            let again = self.in_future(run.timeouts.retry);
            RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(again))
        })
    }

    /// Passes phases of lifecycles, and returns their answers.
    ///
    /// # Errors
    /// The outcome of a run that a lifecycle holds now.
    async fn pass(
        &self,
        key: &ReleaseKey,
        lifecycles: &ReleaseLifecycles,
        attempt: &LifecycleAttempt,
        phases: &[LifecycleHoldPhase],
        run: &HelmfileRun<'_, K>,
    ) -> Result<Vec<LifecycleEventAnswer>, StoppedHooks> {
        let again = || NextRunTrigger::at(self.in_future(run.timeouts.retry));
        let stopped = |outcome, answers| Err(StoppedHooks { outcome, answers });
        if let Some(why) = lifecycles.unknown.clone() {
            let wake = NextRunTrigger::on(lifecycles.known_on.clone());
            let wake = wake.and_at(self.in_future(run.timeouts.retry));
            return stopped(RunOutcome::Blocked(LIFECYCLES_UNKNOWN, why, wake), Vec::new());
        }
        if !lifecycles.holds.iter().any(|hold| phases.iter().any(|it| hold.phases.contains(it))) {
            return Ok(Vec::new());
        }
        let object = &**run.object;
        let uid = object.uid().unwrap_or_default();
        let asking = LifecycleSubject {
            node: &self.node,
            uid: &uid,
            release: Some((&key.name, &key.namespace, &key.context)),
            owner: object.owner_ref(&()),
        };
        let is_requested = hold_conditions::is_asked(object);
        let passage =
            pass_as_requested(&self.context, &asking, lifecycles, attempt, phases, is_requested);
        match passage.await {
            Ok(LifecycleAttemptProgress::Free(answers)) => Ok(answers),
            Ok(LifecycleAttemptProgress::Held(outcome, answers)) => {
                stopped(outcome.or_wake(self.in_future(run.timeouts.interval)), answers)
            }
            Ok(LifecycleAttemptProgress::Failed(text, answers)) => {
                stopped(RunOutcome::Failed(LIFECYCLE_FAILED, text, again()), answers)
            }
            Err(error) => {
                let text = format!("a LifecycleEvent cannot be created: {error}");
                stopped(RunOutcome::Failed(LIFECYCLES_UNKNOWN, text, again()), Vec::new())
            }
        }
    }

    /// Ends the reapplying of hooks: the release and its hooks are as the helmfile says. Once the status reports this, the
    /// lifecycles of the hooks hold nothing any more.
    ///
    /// # Errors
    /// The status was not written.
    pub(super) async fn end_reapplied(
        &self,
        key: &ReleaseKey,
        run: &HelmfileRun<'_, K>,
    ) -> Result<(), RunOutcome> {
        if self.events_of_hooks(key, run).next().is_some() {
            run.book.flush().await?;
            self.dismiss_reapplied(key, None, run).await;
        }
        Ok(())
    }

    /// Deletes the lifecycle events of the release's hooks, except those of one attempt.
    async fn dismiss_reapplied(
        &self,
        key: &ReleaseKey,
        attempt: Option<&str>,
        run: &HelmfileRun<'_, K>,
    ) {
        let events: Vec<_> = self.events_of_hooks(key, run).collect();
        let over = lifecycle::dismissed(&events, attempt, &[]);
        if !over.is_empty() {
            dismiss(&self.context, &self.node.namespace, &over).await;
        }
    }

    fn events_of_hooks(
        &self,
        key: &ReleaseKey,
        run: &HelmfileRun<'_, K>,
    ) -> impl Iterator<Item = lifecycle::ObservedLifecycleEvent> + use<K> {
        let uid = run.object.uid().unwrap_or_default();
        let release = (&*key.name, &*key.namespace, &*key.context);
        let events = events_of(&self.context, &self.node.namespace, &uid, Some(release));
        events.into_iter().filter(|event| is_beside_release(&event.operation))
    }
}

/// The outcome of hooks that a lifecycle holds or fails, and the answers so far.
struct StoppedHooks {
    outcome: RunOutcome,
    answers: Vec<LifecycleEventAnswer>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::key;
    use super::*;

    #[test]
    fn hooks_on_which_no_operation_begins_are_asked_about_as_an_operation_is() {
        let all = |is_first| {
            let (before, after) = phases(is_first);
            before.iter().chain(after).map(|it| it.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(all(true), ["PreInstall", "PostInstall", "Promote"]);
        assert_eq!(all(false), ["PreUpgrade", "PostUpgrade", "Promote"]);
    }

    #[test]
    fn an_attempt_has_a_name_that_no_operation_on_a_release_has() {
        let one = operation(&key("web"), "sha256:0");
        assert!(is_beside_release(&one), "{one}");
        assert_eq!(one, operation(&key("web"), "sha256:0"));
        assert_ne!(one, operation(&key("web"), "sha256:1"));
        assert_ne!(one, operation(&key("db"), "sha256:0"));
        let operation = release::journal::operation_id(
            "beside",
            1,
            release::journal::OperationKind::Upgrade,
            "",
            reconcile::Time::UNIX_EPOCH,
        );
        assert!(!is_beside_release(&operation), "{operation}");
    }
}
