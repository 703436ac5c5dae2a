//! Tests of Jobs with a fake API server from which Jobs disappear.

use std::sync::Arc;

use axum::body::Body;
use parking_lot::{Mutex, MutexGuard};

use super::*;
use fake_cluster::{RecordedRequest, answering};

const JOBS: &str = "/apis/batch/v1/namespaces/apps/jobs";
const STATUS: &str =
    "/apis/lifecycle.windlass.dev/v1alpha1/namespaces/apps/lifecycleevents/web-0123/status";

/// The objects in the fake cluster.
struct FakeClusterState {
    event: Value,
    job: Option<Value>,
    created: usize,
    /// The error code for the creation of a Job, if it is refused.
    refusal: Option<u16>,
}

#[derive(Clone)]
struct FakeJobApiServer(Arc<Mutex<FakeClusterState>>);

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let details = json!({"name": "web-0123"});
    let text = "refused";
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": text, "details": details}),
    )
}

impl FakeJobApiServer {
    fn new() -> Self {
        let event = json!({"apiVersion": "lifecycle.windlass.dev/v1alpha1", "kind": "LifecycleEvent",
            "metadata": {"name": "web-0123", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
            "spec": {"lifecycle": "l"}, "status": {"phase": "Running"}});
        Self(Arc::new(Mutex::new(FakeClusterState { event, job: None, created: 0, refusal: None })))
    }

    fn state(&self) -> MutexGuard<'_, FakeClusterState> {
        self.0.lock()
    }

    fn event(&self) -> LifecycleEvent {
        serde_json::from_value(self.state().event.clone()).unwrap()
    }

    fn answer(&self, (request, body): RecordedRequest) -> (u16, Value) {
        let mut state = self.state();
        match request.split_once('?').map_or(request.as_str(), |(path, _)| path) {
            path if *path == format!("GET {JOBS}/web-0123") => match &state.job {
                Some(job) => (200, job.clone()),
                None => refusal(404, "NotFound"),
            },
            path if *path == format!("POST {JOBS}") => {
                let is_tried = request.contains("dryRun=All");
                if let Some(code) = state.refusal.filter(|_| !is_tried) {
                    let reason = if code == 409 { "AlreadyExists" } else { "Forbidden" };
                    return refusal(code, reason);
                }
                if !is_tried {
                    state.created += 1;
                    state.job = Some(body.clone());
                }
                (201, body)
            }
            path if *path == format!("PATCH {STATUS}") => {
                let version = body["metadata"]["resourceVersion"].clone();
                if !version.is_null() && version != state.event["metadata"]["resourceVersion"] {
                    return refusal(409, "Conflict");
                }
                state.event["status"]["steps"] = body["status"]["steps"].clone();
                state.event["metadata"]["resourceVersion"] = "8".into();
                (200, state.event.clone())
            }
            other => panic!("{other}"),
        }
    }

    async fn check(
        &self,
        cluster: &ClusterConnection,
        event: &LifecycleEvent,
    ) -> Result<HandlerOutcome, String> {
        self.check_during(None, cluster, event).await
    }

    async fn check_during(
        &self,
        suspension: Option<&str>,
        cluster: &ClusterConnection,
        event: &LifecycleEvent,
    ) -> Result<HandlerOutcome, String> {
        let job: LifecycleJobHandler =
            serde_json::from_value(json!({"template": {"spec": {"ttlSecondsAfterFinished": 0,
            "template": {"spec": {"containers": [{"name": "c"}]}}}}}))
            .unwrap();
        let variables = BTreeMap::from([("LIFECYCLE_SUBJECT".to_owned(), "web".to_owned())]);
        let wanted = manifest(&job, event, "apps", &variables).unwrap();
        check(cluster, cluster, event, &wanted, suspension).await
    }
}

async fn cluster(server: &FakeJobApiServer) -> ClusterConnection {
    let server = server.clone();
    answering(move |asked| {
        let (code, body) = server.answer(asked);
        (code, Body::from(body.to_string()))
    })
    .await
}

#[tokio::test]
async fn a_job_that_a_ttl_removed_is_not_created_again() {
    let server = FakeJobApiServer::new();
    let cluster = cluster(&server).await;
    let stale = server.event();
    let created = server.check(&cluster, &stale).await;
    assert_eq!(created, Ok(HandlerOutcome::Wait("Job web-0123 was created".to_owned())));
    let job = server.state().job.clone().unwrap();
    assert_eq!(job["spec"].get("ttlSecondsAfterFinished"), None);
    assert_eq!(
        job["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "LIFECYCLE_SUBJECT", "value": "web"}])
    );
    let runs = server.check(&cluster, &server.event()).await;
    assert_eq!(runs, Ok(HandlerOutcome::Wait("Job web-0123 runs".to_owned())));
    server.state().job = None;
    let Ok(HandlerOutcome::Bad(why)) = server.check(&cluster, &server.event()).await else {
        panic!()
    };
    assert!(why.contains("is unknown"), "{why}");
    // A process that has not seen the begin of the Job cannot start it again either.
    let why = server.check(&cluster, &stale).await.unwrap_err();
    assert!(why.contains("is not created"), "{why}");
    assert_eq!(server.state().created, 1);
}

#[tokio::test]
async fn a_job_that_is_refused_is_tried_again() {
    let server = FakeJobApiServer::new();
    let cluster = cluster(&server).await;
    server.state().refusal = Some(403);
    let why = server.check(&cluster, &server.event()).await.unwrap_err();
    assert!(why.starts_with("Job web-0123 cannot be created: "), "{why}");
    server.state().refusal = None;
    assert!(server.check(&cluster, &server.event()).await.is_ok());
    assert_eq!(server.state().created, 1);
}

#[tokio::test]
async fn a_job_that_was_refused_is_not_created_during_a_suspension() {
    let server = FakeJobApiServer::new();
    let cluster = cluster(&server).await;
    server.state().refusal = Some(403);
    server.check(&cluster, &server.event()).await.unwrap_err();
    server.state().refusal = None;
    let suspension = Some("HelmRelease apps/web is suspended");
    let waits = server.check_during(suspension, &cluster, &server.event()).await;
    let text = "HelmRelease apps/web is suspended; Job web-0123 is created on resume";
    assert_eq!(waits, Ok(HandlerOutcome::Wait(text.to_owned())));
    assert_eq!(server.state().created, 0);
    assert!(server.check(&cluster, &server.event()).await.is_ok());
    assert_eq!(server.state().created, 1);
    // A Job that has begun is still judged during the suspension.
    let runs = server.check_during(suspension, &cluster, &server.event()).await;
    assert_eq!(runs, Ok(HandlerOutcome::Wait("Job web-0123 runs".to_owned())));
}

#[tokio::test]
async fn a_job_that_was_created_by_a_lost_request_stays_begun() {
    let server = FakeJobApiServer::new();
    let cluster = cluster(&server).await;
    // The Job exists when it is created, and its TTL removes it before the next check.
    server.state().refusal = Some(409);
    let why = server.check(&cluster, &server.event()).await.unwrap_err();
    assert!(why.starts_with("Job web-0123 cannot be created: "), "{why}");
    server.state().refusal = None;
    let Ok(HandlerOutcome::Bad(why)) = server.check(&cluster, &server.event()).await else {
        panic!()
    };
    assert!(why.contains("is unknown"), "{why}");
    assert_eq!(server.state().created, 0);
}

#[tokio::test]
async fn a_job_of_another_owner_is_not_changed() {
    let server = FakeJobApiServer::new();
    let cluster = cluster(&server).await;
    server.state().job = Some(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "web-0123", "namespace": "apps"}}));
    let why = server.check(&cluster, &server.event()).await.unwrap_err();
    assert!(why.contains("does not belong to this event"), "{why}");
    assert_eq!(server.state().created, 0);
}
