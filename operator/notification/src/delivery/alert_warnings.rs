//! Records warnings about Alerts as events. The same warning is not recorded again for a while.
//!
//! Elsewhere: which warnings there are (`notify::route`), events about Providers (`provider_worker`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::Alert;
use kube_core::ResourceExt as _;
use notify::AlertWarningEvent;
use parking_lot::Mutex;

use super::repeated_events::RepeatedEvents;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::run_context::RunContext;

/// How often the same warning about an Alert is recorded at most.
const REPEATED_WARNING_INTERVAL: Duration = Duration::from_secs(300);

/// Records warnings about Alerts, and remembers the warnings of the last minutes.
pub(super) struct AlertWarnings {
    context: Arc<RunContext>,
    recent: Mutex<RepeatedEvents>,
}

impl AlertWarnings {
    pub(super) fn new(context: Arc<RunContext>) -> Self {
        Self { context, recent: Mutex::new(RepeatedEvents::within(REPEATED_WARNING_INTERVAL)) }
    }

    /// Records a warning about an Alert. The same warning is not recorded again for a while.
    pub(super) fn warn(&self, namespace: &str, name: &str, warning: AlertWarningEvent) {
        let Some(alert) = self.context.seen::<Alert>(namespace, name) else { return };
        let key = format!("{namespace}/{name}/{}/{}", warning.reason, warning.message);
        let is_repeated = self.recent.lock().is_repeated(&key, Instant::now());
        if is_repeated {
            return;
        }
        let event = ObjectEvent {
            severity: EventSeverity::Error,
            reason: warning.reason.to_owned(),
            message: warning.message,
            metadata: warning.annotations,
        };
        self.context.events.announce(&*alert, super::CONTROLLER, event);
    }

    /// Records on an Alert that one of its annotations is invalid, or is not followed.
    pub(super) fn warn_invalid(&self, alert: &Alert, message: String) {
        let warning =
            AlertWarningEvent { reason: "InvalidConfig", message, annotations: BTreeMap::new() };
        self.warn(&alert.namespace().unwrap_or_default(), &alert.name_any(), warning);
    }
}

/// The warning that a notification was not sent.
pub(super) fn dispatch_failed(message: String) -> AlertWarningEvent {
    AlertWarningEvent {
        reason: "NotificationDispatchFailed",
        message,
        annotations: BTreeMap::new(),
    }
}
