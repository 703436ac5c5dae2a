//! An object that may not go on now: suspended, outside of its windows, or observed a moment ago.
//!
//! Elsewhere: the questions (engine `reconcile`, `gate`), what annotations say (`change_window`, `object_hold`).

use std::sync::Arc;
use std::time::Duration;

use reconcile::{ChangeWindowState, RunGateFacts};

use super::{
    ApplierKind, ApplierSession, PendingChanges, change_window, hold_conditions, object_hold,
};
use windlass_cluster::ClusterError;

impl<K: ApplierKind> ApplierSession<K> {
    /// The time until the wait of an object may be observed again; `None` if a run may begin now.
    pub(super) fn pause(&self, object: &K::Object) -> Option<Duration> {
        if object_hold::is_suspended(object, self.began) {
            return None;
        }
        K::observation(self, object)?.pause()
    }

    /// Whether the object is suspended or outside of its windows.
    pub(super) fn is_shut(&self, object: &K::Object) -> bool {
        object_hold::is_suspended(object, self.began)
            || matches!(
                change_window::state(object, self.began),
                Some(ChangeWindowState::Closed { .. })
            )
    }

    /// The facts of the gate that need no other object. A closed window does not count for an operation in progress.
    pub(super) async fn facts(&self, object: &Arc<K::Object>, is_under_way: bool) -> RunGateFacts {
        let facts = RunGateFacts {
            suspended: object_hold::is_suspended(&**object, self.began),
            cycle: self.context.work_queue.cycle(&self.node),
            window: change_window::state(&**object, self.began),
            ..RunGateFacts::default()
        };
        let Some(ChangeWindowState::Closed { .. }) = facts.window else { return facts };
        if is_under_way {
            return RunGateFacts { window: None, ..facts };
        }
        match K::pending(self, object).await {
            PendingChanges::Nothing => facts,
            PendingChanges::Observing => RunGateFacts { window: None, ..facts },
            PendingChanges::Change(what) => RunGateFacts { waiting: Some(what), ..facts },
        }
    }

    /// Ends the run of a suspended object: its waits end, and its status shows the hold and where the operation
    /// stopped. Nothing else is written.
    ///
    /// # Errors
    /// The API server did not record it.
    pub async fn finish_suspended(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        if let Some(target) = self.last_target() {
            target.watcher().await_objects(&self.node, &[]);
        }
        K::waits_no_more(&mut self.memory());
        let context = &self.context;
        let latest = &self.latest;
        let text = K::where_stopped(object);
        hold_conditions::show_suspended(context, latest, object, self.began, K::OWNED, &text)
            .await?;
        Ok(None)
    }

    /// Ends the run of an object whose windows are closed. The status shows that, and nothing else is written.
    pub(super) async fn finish_closed(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        hold_conditions::show(&self.context, &self.latest, object, self.began, true).await?;
        Ok(None)
    }
}
