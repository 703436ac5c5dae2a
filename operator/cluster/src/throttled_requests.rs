//! Notes whether an API server throttled a request of a run. That is an answer 429, or a connection that closed under the
//! request.
//!
//! Throttling says nothing about the run's objects, so windlass repeats the run and does not count it as failed. If no
//! connection can be made at all, that may last, so it does not count as throttling. Here: noting throttled requests, and when
//! the run is repeated. Elsewhere: repeating one request (`request_retry`), fewer requests at once (`request_limit`), and the
//! run (crate `windlass-runtime`).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use parking_lot::Mutex;
use reconcile::{RunOutcome, Time};

use super::ClusterError;

tokio::task_local! {
    static OF_RUN: ThrottledRequests;
}

/// Whether requests of one run were throttled. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ThrottledRequests {
    /// The namespace of the object that runs. Its requests wait in the queue of this namespace.
    namespace: Arc<str>,
    noted: Arc<Mutex<Option<Throttling>>>,
}

/// The throttling of at least one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// The longest time for which the API server wants no request. Zero if it gave no time.
    pub retry_after: Duration,
}

impl ThrottledRequests {
    /// The requests of a run of an object in a namespace.
    pub fn of_namespace(namespace: &str) -> Self {
        Self { namespace: namespace.into(), noted: Arc::default() }
    }

    /// Runs the work of a run, and notes each throttled request that the work sends in the same task.
    pub async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        OF_RUN.scope(self.clone(), work).await
    }

    /// The throttling that was noted. `None` if no request was throttled.
    pub fn throttling(&self) -> Option<Throttling> {
        *self.noted.lock()
    }

    fn note(&self, retry_after: Duration) {
        let mut noted = self.noted.lock();
        let longest = noted.unwrap_or_default().retry_after.max(retry_after);
        *noted = Some(Throttling { retry_after: longest });
    }
}

/// The time until the first repetition. It doubles up to the longest time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// For how long throttled runs are repeated if their spec gives no time for that.
pub const DEFAULT_REPETITION_TIME: Duration = Duration::from_secs(300);

/// The consecutive runs of an object in which requests were throttled.
#[derive(Debug, Default)]
pub struct ThrottledRunBackoff {
    /// When the first of these runs ended.
    since: Option<Time>,
    runs: u32,
}

impl ThrottledRunBackoff {
    /// The time until a throttled run is repeated. `None` if runs were repeated for so long that the last one counts as
    /// failed.
    pub fn again(
        &mut self,
        now: Time,
        throttling: Throttling,
        timeout: Duration,
        seed: u64,
    ) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let spent = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        self.runs = self.runs.saturating_add(1);
        let grown = reconcile::backoff(self.runs, FIRST_DELAY, LONGEST_DELAY);
        // The delay varies, so that runs do not repeat at the same moment. It is never shorter than the API server wants.
        let delay = throttling.retry_after + reconcile::jittered(grown, 50, seed);
        (spent.saturating_add(delay) <= timeout).then_some(delay)
    }

    /// The time until this task's run is repeated. It is repeated if it failed and one of its requests was throttled. Then the
    /// failure is not reported. `None` if the outcome counts. For objects whose spec gives no time for repetitions.
    ///
    /// Differs(flux): there, each such run makes `Ready` False, of all objects at once when an API server is busy.
    pub fn postpone<K: ResourceExt>(
        &mut self,
        object: &K,
        outcome: &RunOutcome,
    ) -> Option<Duration> {
        let throttling = OF_RUN.try_with(ThrottledRequests::throttling).ok().flatten();
        let has_failed = matches!(outcome, RunOutcome::Failed(..));
        let Some(throttling) = throttling.filter(|_| has_failed) else {
            *self = Self::default();
            return None;
        };
        let seed = reconcile::seed(&object.uid().unwrap_or_default());
        let delay =
            self.again(jiff::Timestamp::now(), throttling, DEFAULT_REPETITION_TIME, seed)?;
        tracing::debug!(
            name = object.name_any(),
            namespace = object.namespace().unwrap_or_default(),
            error = outcome.text(),
            "the API server throttled a request or closed its connection, retrying"
        );
        Some(delay)
    }
}

/// The namespace of the object whose run sends the request. Empty outside of a run.
pub(crate) fn namespace_of_run() -> Arc<str> {
    OF_RUN.try_with(|requests| requests.namespace.clone()).unwrap_or_default()
}

/// Whether an open connection was closed before the answer was complete.
pub(crate) fn is_closed(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return !error.is_connect();
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return !error.is_user() && !error.is_parse();
        }
        cause = error.source();
    }
    false
}

/// Notes for the current run that a request was throttled. Does nothing for other errors, or outside of a run.
pub(crate) fn note(error: &ClusterError, is_closed: bool) {
    if is_closed || error.code() == Some(429) {
        let retry_after = error.retry_after().unwrap_or_default();
        OF_RUN.try_with(|requests| requests.note(retry_after)).ok();
    }
}

/// Converts the error of a request that is not repeated, and notes it for the current run.
pub(crate) fn noted(error: kube::Error) -> ClusterError {
    let is_closed = is_closed(&error);
    let error = ClusterError::from(error);
    note(&error, is_closed);
    error
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::{ClusterAccessOptions, connect};
    use crate::leadership::Leadership;
    use crate::metrics::MetricsRegistry;

    fn refused(code: u16, seconds: u32) -> ClusterError {
        let details = serde_json::from_value::<StatusDetails>(serde_json::json!({})).unwrap();
        let details = StatusDetails { retry_after_seconds: seconds, ..details };
        ClusterError::Refused(Box::new(Status {
            code,
            details: Some(details),
            ..Status::default()
        }))
    }

    #[tokio::test]
    async fn what_a_server_throttles_is_noted_for_the_run_that_asked() {
        let requests = ThrottledRequests::default();
        note(&refused(429, 7), false);
        requests
            .watch(async {
                note(&refused(403, 0), false);
                note(&ClusterError::NoAnswer("cannot connect".to_owned()), false);
                assert_eq!(requests.throttling(), None);
                note(&ClusterError::NoAnswer("the connection was lost".to_owned()), true);
                assert_eq!(requests.throttling(), Some(Throttling::default()));
                note(&refused(429, 7), false);
                note(&refused(429, 2), false);
            })
            .await;
        let retry_after = Duration::from_secs(7);
        assert_eq!(requests.throttling(), Some(Throttling { retry_after }));
        assert_eq!(ThrottledRequests::default().throttling(), None, "each run has its own");
    }

    /// Reads a Secret from the server at an address, and returns the noted throttling.
    async fn throttling_at(address: &str) -> Option<Throttling> {
        let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": address}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let access =
            ClusterAccessOptions { kubeconfig: Some(&path), ..ClusterAccessOptions::default() };
        let metrics = MetricsRegistry::new();
        let cluster = connect(access, "test", &Leadership::unlimited(), &metrics).await.unwrap();
        let requests = ThrottledRequests::default();
        assert!(requests.watch(cluster.secret("shop", "a")).await.is_err());
        requests.throttling()
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_is_noted_and_one_that_is_refused_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
            }
        });
        assert_eq!(throttling_at(&address).await, Some(Throttling::default()));
        server.abort();
        assert!(server.await.is_err());
        assert_eq!(throttling_at(&address).await, None);
    }

    #[tokio::test]
    async fn only_a_failed_run_with_a_throttled_request_is_postponed() {
        let object = k8s_openapi::api::core::v1::Secret::default();
        let next = reconcile::NextRunTrigger::default();
        let failed =
            RunOutcome::Failed(reconcile::condition_reason::FAILED, "no Secret".to_owned(), next);
        let settled = RunOutcome::Settled(reconcile::condition_reason::SUCCEEDED, String::new());
        let mut runs = ThrottledRunBackoff::default();
        assert_eq!(runs.postpone(&object, &failed), None, "it is no run");
        ThrottledRequests::default()
            .watch(async {
                assert_eq!(runs.postpone(&object, &failed), None, "it failed by something else");
                note(&refused(429, 7), false);
                let delay = runs.postpone(&object, &failed).unwrap();
                assert!(delay > Duration::from_secs(7), "{delay:?}");
                assert_eq!(runs.postpone(&object, &settled), None);
                assert_eq!((runs.since, runs.runs), (None, 0), "the next one begins anew");
            })
            .await;
    }

    fn at(second: i64) -> Time {
        Time::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn a_run_is_repeated_less_and_less_often_until_its_time_is_over() {
        let mut runs = ThrottledRunBackoff::default();
        let timeout = Duration::from_secs(60);
        let mut now = 0;
        let mut delays = Vec::new();
        while let Some(delay) = runs.again(at(now), Throttling::default(), timeout, 7) {
            now += i64::try_from(delay.as_secs()).unwrap() + 1;
            delays.push(delay);
        }
        assert!(delays.len() >= 4, "{delays:?}");
        let grown = [1, 2, 4, 8, 16, 30].map(Duration::from_secs);
        let mut pairs = delays.iter().zip(&grown);
        assert!(pairs.all(|(it, grown)| (*grown / 2..=*grown * 3 / 2).contains(it)), "{delays:?}");
        assert!(now <= 60 + i64::try_from(delays.len()).unwrap(), "{now}");
        assert!(delays.iter().all(|it| *it <= LONGEST_DELAY + LONGEST_DELAY / 2), "{delays:?}");
        assert_eq!(runs.again(at(now), Throttling::default(), timeout, 7), None, "it has failed");
    }

    #[test]
    fn no_run_is_repeated_before_the_server_wants_it_and_not_all_at_once() {
        let throttling = Throttling { retry_after: Duration::from_secs(9) };
        let timeout = Duration::from_secs(300);
        let delay =
            |seed| ThrottledRunBackoff::default().again(at(0), throttling, timeout, seed).unwrap();
        assert!((1..9).all(|seed| delay(seed) > throttling.retry_after));
        assert!((1..9).any(|seed| delay(seed) != delay(9)));
        let short = Duration::from_secs(5);
        assert_eq!(
            ThrottledRunBackoff::default().again(at(0), throttling, short, 1),
            None,
            "it is over by then"
        );
    }
}
