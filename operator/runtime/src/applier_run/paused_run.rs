//! Runs of an object that may not continue now. The object is suspended, outside of its windows, held by a Freeze, or was
//! observed a moment ago.
//!
//! Elsewhere: the gate (engine `reconcile`, `gate`), annotations (`change_window`, `object_hold`), and which Freezes deny
//! (`freeze`).

use std::sync::Arc;
use std::time::Duration;

use reconcile::{AnnotationCondition, ChangeWindowState, RunGateFacts};

use super::{
    ApplierKind, ApplierSession, ObjectFreeze, PendingChanges, ThrottledRunBackoff, change_window,
    hold_conditions, object_hold,
};
use crate::object_status::status_of;
use windlass_cluster::ClusterError;

impl<K: ApplierKind> ApplierSession<K> {
    /// The time until the wait of an object may be observed again. `None` if a run may begin now.
    pub(super) fn pause(&self, object: &K::Object) -> Option<Duration> {
        if object_hold::is_suspended(object, self.began) {
            return None;
        }
        K::observation(self, object)?.pause()
    }

    /// Whether the object is suspended, outside of its windows or held by a Freeze.
    pub(super) fn is_shut(&self, object: &K::Object) -> bool {
        object_hold::is_suspended(object, self.began)
            || self.freeze.is_some()
            || matches!(
                change_window::state(object, self.began),
                Some(ChangeWindowState::Closed { .. })
            )
    }

    /// The facts of the gate that need no other object. An operation in progress ignores closed windows and Freezes. A Freeze
    /// with a bypass is ignored too, because the operation checks the bypass again when it begins.
    pub(super) async fn facts(&self, object: &Arc<K::Object>, is_under_way: bool) -> RunGateFacts {
        let facts = RunGateFacts {
            suspended: object_hold::is_suspended(&**object, self.began),
            cycle: self.context.work_queue.cycle(&self.node),
            window: change_window::state(&**object, self.began),
            freeze: self.freeze.as_ref().map(|freeze| freeze.hold().clone()),
            ..RunGateFacts::default()
        };
        let is_closed = matches!(facts.window, Some(ChangeWindowState::Closed { .. }));
        if !is_closed && facts.freeze.is_none() {
            return facts;
        }
        let window = facts.window.clone().filter(|_| !is_closed);
        if is_under_way {
            return RunGateFacts { window, freeze: None, ..facts };
        }
        match K::pending(self, object).await {
            PendingChanges::Nothing => facts,
            PendingChanges::Observing => RunGateFacts { window, freeze: None, ..facts },
            PendingChanges::Change(what) => {
                let has_bypass =
                    |freeze: &ObjectFreeze| freeze.has_bypass(&self.context, &**object, self.began);
                let is_passed = self.freeze.as_ref().is_some_and(has_bypass);
                let freeze = facts.freeze.clone().filter(|_| !is_passed);
                RunGateFacts { waiting: Some(what), freeze, ..facts }
            }
        }
    }

    /// Ends the run of a suspended object. Its waits end, and its status shows the hold and the step at which the operation
    /// stopped. Nothing else is written.
    ///
    /// # Errors
    /// The API server did not store the status.
    pub async fn finish_suspended(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        if let Some(target) = self.last_target() {
            target.watcher().await_objects(&self.node, &[]);
        }
        K::waits_no_more(&mut self.memory());
        self.memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
        // Parity(flux): a suspension says nothing of what else would hold the object.
        self.show_freeze(object, None).await?;
        let context = &self.context;
        let latest = &self.latest;
        let text = K::where_stopped(object);
        let object = &latest.begun(object);
        hold_conditions::show_suspended(context, latest, object, self.began, K::OWNED, &text)
            .await?;
        Ok(None)
    }

    /// Sets or removes the condition about Freezes in the status of an object that does not run.
    async fn show_freeze(
        &self,
        object: &Arc<K::Object>,
        mark: Option<&AnnotationCondition>,
    ) -> Result<(), ClusterError> {
        let object = self.latest.begun(object);
        let before = status_of(&*object);
        let after = hold_conditions::frozen(&*object, before.clone(), self.began, mark);
        self.latest.write_status(&self.context, &object, &before, &after).await?;
        Ok(())
    }

    /// Ends the run of an object whose windows are closed or that a Freeze holds. Only its status is written.
    pub(super) async fn finish_closed(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        let mark = self.freeze.as_ref().and_then(ObjectFreeze::mark);
        // While the Freezes are not known, the condition stays.
        if mark.is_some() || self.freeze.is_none() {
            self.show_freeze(object, mark.as_ref()).await?;
        }
        let object = &self.latest.begun(object);
        hold_conditions::show(&self.context, &self.latest, object, self.began, true).await?;
        Ok(self.freeze.as_ref().map(|freeze| freeze.recheck_in(self.began)))
    }
}
