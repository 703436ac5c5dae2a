//! Answers LifecycleEvents that windlass itself handles. It uses the interface of other controllers: it writes the status of
//! the event, which wakes the waiting object.
//!
//! Each open event has a task, which mostly sleeps. All state between two checks is in the status of the event, so a restart
//! loses nothing.
//!
//! Here: which events windlass handles, and their status. Below: one check (`check`), Jobs (`job`), and suspended objects
//! (`subject_suspension`). Elsewhere: the meaning of results (engine `lifecycle`).

mod condition_check;
mod job;
mod subject_suspension;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::operation_lifecycle::{
    Lifecycle, LifecycleEvent, LifecycleEventHandlerSpec, LifecycleHttpCheckHandler,
    LifecycleJobHandler, LifecycleState, LifecycleWaitForHandler,
};
use kube_core::ResourceExt as _;
use lifecycle::{HandlerOutcome, MetricBounds};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use self::condition_check::LifecycleCheckSubject;
use super::MANAGER;
use super::watched_object_cache::{WatchedObjectCache, resource};
use crate::run_context::RunContext;
use windlass_cluster::run_permits::RunPermits;

/// The interval of checks if the Lifecycle gives none.
const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The interval of queries if the Lifecycle gives none.
const QUERY_INTERVAL: Duration = Duration::from_secs(30);

/// How long the values of a query have to be good if the Lifecycle gives no time.
const QUERY_DURATION: Duration = Duration::from_secs(300);

/// The shortest interval between two checks.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// The most checks at once, in all and in one namespace.
const MAX_CONCURRENT_CHECKS: (usize, usize) = (32, 8);

/// A parsed handler of a Lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LifecycleEventHandler {
    Pause(Duration),
    WaitFor(Box<LifecycleWaitForHandler>, Duration),
    Http(Box<LifecycleHttpCheckHandler>, Duration),
    Metrics {
        address: String,
        query: String,
        bounds: MetricBounds,
        duration: Duration,
        interval: Duration,
    },
    Job(Box<LifecycleJobHandler>),
}

impl LifecycleEventHandler {
    /// Parses the handler of a Lifecycle. `approval` is an error here, because users give approvals.
    ///
    /// # Errors
    /// The reason why a field cannot be read.
    pub(super) fn of(handler: &LifecycleEventHandlerSpec) -> Result<Self, String> {
        let read = |field: &str, text: &crds::GoDuration| {
            let duration = reconcile::parse_duration(text.as_str());
            duration.map_err(|error| format!("spec.handler.{field}: {error}"))
        };
        let interval = |field: &str, text: &Option<crds::GoDuration>, default: Duration| {
            let interval = text.as_ref().map_or(Ok(default), |text| read(field, text));
            interval.map(|it| it.max(LEAST_INTERVAL))
        };
        let LifecycleEventHandlerSpec { approval: _, pause, wait_for, http_check, metrics, job } =
            handler;
        if let Some(pause) = pause {
            return read("pause.duration", &pause.duration).map(Self::Pause);
        }
        if let Some(wait) = wait_for {
            let interval = interval("waitFor.interval", &wait.interval, DEFAULT_CHECK_INTERVAL)?;
            return Ok(Self::WaitFor(Box::new(wait.clone()), interval));
        }
        if let Some(check) = http_check {
            let interval = interval("httpCheck.interval", &check.interval, DEFAULT_CHECK_INTERVAL)?;
            return Ok(Self::Http(Box::new(check.clone()), interval));
        }
        if let Some(metrics) = metrics {
            let duration = metrics.duration.as_ref();
            return Ok(Self::Metrics {
                address: metrics.address.clone(),
                query: metrics.query.clone(),
                bounds: MetricBounds { min: metrics.min, max: metrics.max },
                duration: duration
                    .map_or(Ok(QUERY_DURATION), |text| read("metrics.duration", text))?,
                interval: interval("metrics.interval", &metrics.interval, QUERY_INTERVAL)?,
            });
        }
        match job {
            Some(job) => Ok(Self::Job(Box::new(job.clone()))),
            None => {
                Err("spec.handler has no handler that this version of windlass knows".to_owned())
            }
        }
    }
}

/// The uid of an event.
type LifecycleEventUid = String;

/// The tasks that handle events. The watches of Lifecycles and of events share them.
pub(super) struct LifecycleHandlers {
    state: Mutex<LifecycleHandlersState>,
    /// Notified when a new event may need a task.
    more: Notify,
    checks: RunPermits,
}

#[derive(Default)]
struct LifecycleHandlersState {
    /// The open events that may need a task.
    open: BTreeMap<LifecycleEventUid, Arc<LifecycleEvent>>,
    running: BTreeMap<LifecycleEventUid, AbortHandle>,
    /// The events that windlass has answered. The watch may not have reported the answers yet.
    answered: BTreeSet<LifecycleEventUid>,
}

impl Default for LifecycleHandlers {
    fn default() -> Self {
        let (all, each) = MAX_CONCURRENT_CHECKS;
        Self { state: Mutex::default(), more: Notify::new(), checks: RunPermits::shared(all, each) }
    }
}

impl LifecycleHandlers {
    fn state(&self) -> MutexGuard<'_, LifecycleHandlersState> {
        self.state.lock()
    }

    /// Handles an event that was created, changed or deleted.
    pub(super) fn event_changed(
        &self,
        before: Option<&LifecycleEvent>,
        after: Option<&Arc<LifecycleEvent>>,
    ) {
        let mut state = self.state();
        let uid = |event: &LifecycleEvent| event.uid().unwrap_or_default();
        let open = after.filter(|event| is_open(event));
        let is_same = |it: &LifecycleEvent| open.is_some_and(|open| uid(open) == uid(it));
        if let Some(over) = before.filter(|it| !is_same(it)) {
            state.open.remove(&uid(over));
            if after.is_none_or(|after| uid(after) != uid(over)) {
                state.answered.remove(&uid(over));
            }
            if let Some(task) = state.running.remove(&uid(over)) {
                task.abort();
            }
        }
        if let Some(open) = open.filter(|it| !state.answered.contains(&uid(it))) {
            state.open.insert(uid(open), open.clone());
            self.more.notify_one();
        }
    }

    /// Notes that an event is answered and needs no task.
    fn answered(&self, event: &LifecycleEvent) {
        let uid = event.uid().unwrap_or_default();
        let mut state = self.state();
        state.open.remove(&uid);
        state.answered.insert(uid);
    }

    /// Handles a Lifecycle that was created, changed or deleted. The sleeping tasks of its events start anew.
    pub(super) fn lifecycle_changed(&self, name: &str) {
        let mut state = self.state();
        let of_it = state.open.values().filter(|event| event.spec.lifecycle == name);
        let of_it: Vec<LifecycleEventUid> = of_it.filter_map(|event| event.uid()).collect();
        for task in of_it.iter().filter_map(|uid| state.running.remove(uid)) {
            task.abort();
        }
        self.more.notify_one();
    }
}

fn is_open(event: &LifecycleEvent) -> bool {
    let phase = event.status.as_ref().and_then(|it| it.phase).unwrap_or_default();
    matches!(phase, LifecycleState::Pending | LifecycleState::Running)
}

/// Handles LifecycleEvents without end, once this process is the leader.
pub(super) async fn run(context: Arc<RunContext>) {
    context.cluster.leadership.begun().await;
    super::known(&context).await;
    let handlers = context.shared::<LifecycleHandlers>();
    let mut tasks = JoinSet::new();
    loop {
        begin(&context, &handlers, &mut tasks);
        tokio::select! {
            () = handlers.more.notified() => {}
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    tokio::time::sleep(DEFAULT_CHECK_INTERVAL).await;
                }
            }
        }
    }
}

/// Starts a task for each open event that has none.
fn begin(context: &Arc<RunContext>, handlers: &Arc<LifecycleHandlers>, tasks: &mut JoinSet<()>) {
    let lifecycles = context.shared::<WatchedObjectCache<Lifecycle>>();
    let mut state = handlers.state();
    let LifecycleHandlersState { open, running, .. } = &mut *state;
    running.retain(|_, task| !task.is_finished());
    for (uid, event) in
        open.iter().filter(|(uid, _)| !running.contains_key(*uid)).collect::<Vec<_>>()
    {
        let handler =
            lifecycles.get("", &event.spec.lifecycle).and_then(|it| it.spec.handler.clone());
        let Some(handler) = handler.filter(|it| it.approval.is_none()) else { continue };
        // The waiting object itself reports a handler that cannot be read.
        let Ok(handler) = LifecycleEventHandler::of(&handler) else { continue };
        let task = handle(context.clone(), handlers.clone(), event.clone(), handler);
        running.insert(uid.clone(), tasks.spawn(task));
    }
}

/// Repeats the checks of an event until it is answered. An answer of another client ends the task.
async fn handle(
    context: Arc<RunContext>,
    handlers: Arc<LifecycleHandlers>,
    event: Arc<LifecycleEvent>,
    handler: LifecycleEventHandler,
) {
    let namespace = event.namespace().unwrap_or_default();
    let status = event.status.clone().unwrap_or_default();
    let mut reported = (status.phase.unwrap_or_default(), status.message.unwrap_or_default());
    loop {
        // Other shards handle the events of their own objects.
        let Some(subject) = LifecycleCheckSubject::of(&context, &event) else {
            tokio::time::sleep(DEFAULT_CHECK_INTERVAL).await;
            continue;
        };
        let permit = handlers.checks.acquire(&namespace).await;
        let (found, again) = condition_check::check(&context, &event, &subject, &handler).await;
        drop(permit);
        let (phase, text) = match found {
            HandlerOutcome::Wait(text) => (LifecycleState::Running, text),
            HandlerOutcome::Good(text) => (LifecycleState::Succeeded, text),
            HandlerOutcome::Bad(text) => (LifecycleState::Failed, text),
        };
        let message = condition_check::shortened(&text);
        if (phase, &message) != (reported.0, &reported.1) {
            match tell(&context, &event, phase, &message).await {
                Ok(()) => reported = (phase, message),
                Err(error) if error.is_not_found() => return handlers.answered(&event),
                Err(error) => {
                    let name = event.name_any();
                    tracing::warn!(namespace, name, error = %error, "failed to answer a LifecycleEvent, retrying");
                }
            }
        }
        if !matches!(reported.0, LifecycleState::Pending | LifecycleState::Running) {
            return handlers.answered(&event);
        }
        tokio::time::sleep(again).await;
    }
}

async fn tell(
    context: &RunContext,
    event: &LifecycleEvent,
    phase: LifecycleState,
    message: &str,
) -> Result<(), windlass_cluster::ClusterError> {
    let mut status = Map::new();
    status.insert("phase".to_owned(), json!(phase));
    status.insert("message".to_owned(), json!(message));
    status.insert("answeredBy".to_owned(), json!(MANAGER));
    let patch = json!({"metadata": {"uid": event.uid()}, "status": Value::Object(status)});
    let namespace = event.namespace().unwrap_or_default();
    let name = event.name_any();
    let events = resource::<LifecycleEvent>();
    context.cluster.merge_patch_status(&events, &namespace, &name, &patch, MANAGER).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(of: Value) -> Result<LifecycleEventHandler, String> {
        LifecycleEventHandler::of(&serde_json::from_value(of).unwrap())
    }

    #[test]
    fn a_handler_has_defaults_and_says_what_cannot_be_read() {
        assert_eq!(
            handler(json!({"pause": {"duration": "5m"}})),
            Ok(LifecycleEventHandler::Pause(Duration::from_secs(300)))
        );
        let soon = handler(json!({"pause": {"duration": "soon"}})).unwrap_err();
        assert!(soon.starts_with("spec.handler.pause.duration: "), "{soon}");
        let metrics =
            json!({"metrics": {"address": "http://p", "query": "up", "min": 1, "interval": "1ms"}});
        let Ok(LifecycleEventHandler::Metrics { duration, interval, .. }) = handler(metrics) else {
            panic!()
        };
        assert_eq!((duration, interval), (QUERY_DURATION, LEAST_INTERVAL));
        let http = handler(json!({"httpCheck": {"url": "http://a"}}));
        assert!(
            matches!(http, Ok(LifecycleEventHandler::Http(_, DEFAULT_CHECK_INTERVAL))),
            "{http:?}"
        );
        assert!(handler(json!({"future": {}})).unwrap_err().contains("no handler"));
    }

    fn event(uid: &str, phase: &str) -> Arc<LifecycleEvent> {
        let event = json!({"metadata": {"name": "e", "namespace": "apps", "uid": uid},
            "spec": {"lifecycle": "l"}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(event).unwrap())
    }

    #[tokio::test]
    async fn a_task_ends_with_its_event_and_begins_anew_with_its_lifecycle() {
        let handlers = LifecycleHandlers::default();
        let begin = |uid: &str| {
            let task = tokio::spawn(std::future::pending::<()>());
            handlers.state().running.insert(uid.to_owned(), task.abort_handle());
            task
        };
        let open = event("1", "Pending");
        handlers.event_changed(None, Some(&open));
        let task = begin("1");
        handlers.event_changed(Some(&open), Some(&event("1", "Running")));
        assert!(handlers.state().running.contains_key("1"), "its own progress ends no task");
        handlers.lifecycle_changed("another");
        assert!(handlers.state().running.contains_key("1"));
        handlers.lifecycle_changed("l");
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(handlers.state().open.contains_key("1"));
        // A new event of the same name replaces the first one.
        let task = begin("1");
        handlers.event_changed(Some(&open), Some(&event("2", "Pending")));
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(handlers.state().open.keys().collect::<Vec<_>>(), ["2"]);
        // A late watch event about an answered LifecycleEvent starts nothing.
        handlers.answered(&event("2", "Pending"));
        handlers.event_changed(Some(&event("2", "Pending")), Some(&event("2", "Running")));
        assert!(handlers.state().open.is_empty());
        handlers.event_changed(Some(&event("2", "Failed")), None);
        assert!(handlers.state().answered.is_empty());
    }
}
