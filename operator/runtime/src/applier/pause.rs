//! An object that may not go on now: suspended, outside of its windows, or observed a moment ago.
//!
//! Elsewhere: the questions (engine `reconcile`, `gate`), what annotations say (`window`, `hold`).

use std::sync::Arc;
use std::time::Duration;

use reconcile::{Facts, WindowState};

use super::{ApplierKind, Pending, Session, hold, hold_conditions, window};
use windlass_cluster::ClusterError;

impl<K: ApplierKind> Session<K> {
    /// How long a wait that was just observed is not observed again.
    pub(super) fn pause(&self, object: &K::Object) -> Option<Duration> {
        if hold::is_suspended(object, self.began) {
            return None;
        }
        K::observation(self, object)?.pause()
    }

    /// Whether the object is suspended or outside of its windows.
    pub(super) fn is_shut(&self, object: &K::Object) -> bool {
        hold::is_suspended(object, self.began)
            || matches!(window::state(object, self.began), Some(WindowState::Closed { .. }))
    }

    /// What the gate asks about before anything is resolved. An operation that began while a window was open comes to its
    /// end.
    pub(super) async fn facts(&self, object: &Arc<K::Object>, is_under_way: bool) -> Facts {
        let facts = Facts {
            suspended: hold::is_suspended(&**object, self.began),
            cycle: self.context.work_queue.cycle(&self.node),
            window: window::state(&**object, self.began),
            ..Facts::default()
        };
        let Some(WindowState::Closed { .. }) = facts.window else { return facts };
        if is_under_way {
            return Facts { window: None, ..facts };
        }
        match K::pending(self, object).await {
            Pending::Nothing => facts,
            Pending::Observing => Facts { window: None, ..facts },
            Pending::Change(what) => Facts { waiting: Some(what), ..facts },
        }
    }

    /// A suspended object is left as it is, but for what its hold says, and that nothing is under way any more; nothing it
    /// waited for wakes it.
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

    /// Outside of its windows an object without anything new is left as it is.
    pub(super) async fn finish_closed(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        hold_conditions::show(&self.context, &self.latest, object, self.began, true).await?;
        Ok(None)
    }
}
