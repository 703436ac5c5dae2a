//! A complete example of a controller that answers the events of a Lifecycle, in a hundred lines. The same as a shell script is
//! `e2e/testbed/lifecycle-handler.sh`.
//!
//! It lists and watches LifecycleEvents by the label with its key, handles each open event, and writes the status.
//! It can be killed at any time. After a restart, it sees unanswered events again. An answer is final, so no event is answered
//! twice.

use anyhow::{Context as _, Result};
use crds::operation_lifecycle::{KEY_LABEL, LifecycleEvent, LifecycleEventSpec, LifecycleState};
use futures::TryStreamExt as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// The result of a handler for one event.
pub struct LifecycleHandlerFinding {
    /// Whether the operation may continue.
    pub is_good: bool,
    /// A message for people.
    pub message: String,
}

/// Answers all events with a key in a namespace, without end.
///
/// # Errors
/// The API server rejects a request. The caller then starts the handler again.
pub async fn handle(
    client: Client,
    namespace: &str,
    key: &str,
    find: impl AsyncFn(&LifecycleEventSpec) -> Result<LifecycleHandlerFinding>,
) -> Result<()> {
    let user = own_name(&client).await?;
    let events = Api::<LifecycleEvent>::namespaced(client, namespace);
    let config = watcher::Config::default().labels(&format!("{KEY_LABEL}={key}"));
    let mut seen = std::pin::pin!(watcher(events.clone(), config).applied_objects());
    while let Some(event) = seen.try_next().await? {
        let state = event.status.as_ref().and_then(|it| it.phase).unwrap_or_default();
        // A previous process of this handler began to work on an event that is `Running`.
        if !matches!(state, LifecycleState::Pending | LifecycleState::Running) {
            continue;
        }
        let running = json!({"phase": "Running", "answeredBy": user, "message": "checking"});
        write(&events, &event, &running).await?;
        let answer = match find(&event.spec).await {
            Ok(LifecycleHandlerFinding { is_good: true, message }) => ("Succeeded", message),
            Ok(LifecycleHandlerFinding { is_good: false, message }) => ("Failed", message),
            Err(error) => ("Failed", format!("{error:#}")),
        };
        let (phase, message) = answer;
        let answer = json!({"phase": phase, "answeredBy": user, "message": message});
        write(&events, &event, &answer).await?;
    }
    Ok(())
}

/// Writes the status of an event. An event that was deleted or answered meanwhile is no error.
async fn write(events: &Api<LifecycleEvent>, event: &LifecycleEvent, status: &Value) -> Result<()> {
    // The UID ensures that the answer is not written to a newer event with the same name.
    let patch = Patch::Merge(json!({"metadata": {"uid": event.uid()}, "status": status}));
    let written = events.patch_status(&event.name_any(), &PatchParams::default(), &patch).await;
    match written {
        Err(kube::Error::Api(status)) if [404, 409, 422].contains(&status.code) => Ok(()),
        written => written.map(drop).context("an event cannot be answered"),
    }
}

/// The name of this controller according to the API server. Every answer has to contain it.
async fn own_name(client: &Client) -> Result<String> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|it| it.user_info).and_then(|it| it.username);
    user.context("the API server does not name this user")
}
