//! Limits the requests that are in flight to one API server, and adapts the limit to its answers.
//!
//! A request waits in the queue of the namespace whose object sends it, so the order is fair as in [`super::run_permits`].
//! Renewals of Leases and writes of statuses do not wait: without them, other processes and users would act on what is no
//! longer so. Nothing that was sent is cancelled. Watches, and the lists with which they begin, have clients without a limit.
//! A permit is held from the sending until the answer begins, so a request that was begun must be polled or dropped: a caller
//! that awaits another request in between could wait forever.
//!
//! Here: the waiting, and the pools of permits that follow the limit. Elsewhere: the numbers (`request_window`), and the
//! repetition of a request (`request_retry`) or of a run ([`super::throttled_requests`]).

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use tower::{Layer, Service, ServiceExt as _};

use super::ClusterConnection;
use super::request_window::{AnswerOutcome, ObservedAnswer, RequestWindow};
use super::run_permits::{GrantedPermit, RunPermits};
use super::throttled_requests::namespace_of_run;

/// The limit of requests to one API server. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct RequestLimit(Arc<RequestLimitState>);

#[derive(Debug)]
struct RequestLimitState {
    /// The address of the API server, for the log.
    server: String,
    /// The permits of requests in flight.
    in_flight: RunPermits,
    adapted: Mutex<AdaptedLimit>,
}

/// The window, and the pools of permits for runs that follow it.
#[derive(Debug, Default)]
struct AdaptedLimit {
    window: RequestWindow,
    followers: Vec<FollowingPool>,
}

/// A pool of permits that has at most as many as there may be requests.
#[derive(Debug)]
struct FollowingPool {
    permits: RunPermits,
    /// The number of permits while the limit is not lower.
    most: usize,
}

/// Reads the present limit of one API server. It does not keep the connection alive.
#[derive(Debug)]
pub(super) struct RequestLimitReader(Weak<RequestLimitState>);

impl RequestLimitReader {
    /// How many requests may be in flight. `None` if the connection is no longer in use.
    pub(super) fn limit(&self) -> Option<usize> {
        Some(self.0.upgrade()?.adapted.lock().window.limit())
    }
}

/// How many of the permits one namespace may hold, so that requests that get no answer leave some for others.
fn most_per_namespace(limit: usize) -> usize {
    (limit - limit / 4).min(limit.saturating_sub(1)).max(1)
}

/// Whether a request is sent without waiting: it is about a Lease, or writes a status.
fn comes_first(method: &Method, path: &str) -> bool {
    // An object of a group in a namespace, or in none, has five or seven parts before its subresource.
    let is_subresource =
        path.starts_with("/apis/") && matches!(path.split('/').skip(1).count(), 6 | 8);
    let is_write = [Method::PATCH, Method::PUT].contains(method);
    (is_write && is_subresource && path.ends_with("/status"))
        || path.starts_with("/apis/coordination.k8s.io/")
}

/// What a status code says about the load of the API server.
fn outcome_of(status: StatusCode) -> AnswerOutcome {
    match status {
        StatusCode::TOO_MANY_REQUESTS => AnswerOutcome::Throttled,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => AnswerOutcome::Unavailable,
        _ => AnswerOutcome::Handled,
    }
}

impl RequestLimit {
    /// The limit for an API server that has not answered yet. `server` is its address, without parts that may be secret.
    pub(super) fn new(server: String) -> Self {
        let adapted = AdaptedLimit::default();
        let limit = adapted.window.limit();
        let in_flight = RunPermits::shared(limit, most_per_namespace(limit));
        Self(Arc::new(RequestLimitState { server, in_flight, adapted: Mutex::new(adapted) }))
    }

    /// Waits until one more request may be in flight.
    async fn permit(&self) -> GrantedPermit {
        self.0.in_flight.acquire(&namespace_of_run()).await
    }

    /// Adapts the limit to the answer to a request.
    fn observe(&self, answer: ObservedAnswer) {
        let mut adapted = self.0.adapted.lock();
        let before = adapted.window.limit();
        adapted.window.observe(answer);
        let limit = adapted.window.limit();
        if limit == before {
            return;
        }
        // The pools change under the lock, so that two changes reach them in their order.
        self.0.in_flight.resize(limit, most_per_namespace(limit));
        for pool in &adapted.followers {
            let all = pool.most.min(limit);
            pool.permits.resize(all, all);
        }
        drop(adapted);
        let server = &self.0.server;
        tracing::debug!(
            server,
            before,
            limit,
            "the limit of requests in flight to an API server changed"
        );
    }

    fn reader(&self) -> RequestLimitReader {
        RequestLimitReader(Arc::downgrade(&self.0))
    }

    /// A pool of permits that has `most` permits, or as many as there may be requests if these are fewer.
    fn following_pool(&self, most: usize) -> RunPermits {
        let mut adapted = self.0.adapted.lock();
        let permits = RunPermits::new(most.min(adapted.window.limit()));
        adapted.followers.push(FollowingPool { permits: permits.clone(), most });
        permits
    }
}

impl ClusterConnection {
    /// The permits for runs that send many requests to this API server: `most` of them, and fewer while the API server permits
    /// fewer requests at once. More such runs would only wait for their requests, and use up the time of their spec.
    ///
    /// The permits are kept as long as the connection, so this is called once for each connection.
    pub fn permits_for_runs(&self, most: usize) -> RunPermits {
        self.connection.request_limit.following_pool(most)
    }

    pub(super) fn request_limit_reader(&self) -> RequestLimitReader {
        self.connection.request_limit.reader()
    }
}

impl<S> Layer<S> for RequestLimit {
    type Service = LimitedRequestService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedRequestService { inner, limit: self.clone() }
    }
}

/// The HTTP service of [`RequestLimit`].
#[derive(Debug, Clone)]
pub(super) struct LimitedRequestService<S> {
    inner: S,
    limit: RequestLimit,
}

impl<S, A, B> Service<Request<A>> for LimitedRequestService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send,
    A: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The future waits until the inner service is ready, after it has a permit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let inner = self.inner.clone();
        let limit = self.limit.clone();
        Box::pin(async move {
            let is_first = comes_first(request.method(), request.uri().path());
            // The client calls this service in a task of its own, but polls this future in the task of the run.
            let permit = if is_first { None } else { Some(limit.permit().await) };
            let sent = Instant::now();
            let answer = inner.oneshot(request).await;
            let outcome =
                answer.as_ref().map_or(AnswerOutcome::Lost, |answer| outcome_of(answer.status()));
            limit.observe(ObservedAnswer { outcome, sent, ended: Instant::now() });
            drop(permit);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::sync::Semaphore;
    use tower::service_fn;

    use super::*;
    use crate::request_window::{FEWEST_IN_FLIGHT, MOST_IN_FLIGHT};
    use crate::throttled_requests::ThrottledRequests;

    fn request(method: Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    fn get() -> Request<()> {
        request(Method::GET, "/api/v1/namespaces/a/secrets/b")
    }

    fn limit() -> RequestLimit {
        RequestLimit::new("https://a".to_owned())
    }

    /// Sends a request to a server that answers when `answers` has a permit. Returns the status of the answer.
    async fn send(limit: &RequestLimit, answers: &Arc<Semaphore>, request: Request<()>) -> u16 {
        let answers = answers.clone();
        let service = limit.layer(service_fn(move |_: Request<()>| {
            let answers = answers.clone();
            async move {
                answers.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(()))
            }
        }));
        service.oneshot(request).await.unwrap().status().as_u16()
    }

    /// Sends as many requests of a namespace as may be in flight for it, none of which is answered.
    fn crowd<'a>(
        limit: &'a RequestLimit,
        answers: &'a Arc<Semaphore>,
        namespace: &'static str,
    ) -> Vec<BoxFuture<'a, u16>> {
        let run = ThrottledRequests::of_namespace(namespace);
        let mut sent = Vec::new();
        for _ in 0..MOST_IN_FLIGHT {
            let run = run.clone();
            let mut one: BoxFuture<'a, u16> =
                Box::pin(async move { run.watch(send(limit, answers, get())).await });
            assert!((&mut one).now_or_never().is_none());
            sent.push(one);
        }
        sent
    }

    #[tokio::test]
    async fn statuses_and_leases_do_not_wait_for_others_and_no_namespace_takes_all() {
        let limit = limit();
        let stuck = Arc::new(Semaphore::new(0));
        let greedy = crowd(&limit, &stuck, "greedy");
        let left = MOST_IN_FLIGHT - most_per_namespace(MOST_IN_FLIGHT);
        assert_eq!(limit.0.in_flight.free(), left, "one namespace leaves some to others");
        let others = [crowd(&limit, &stuck, "b"), crowd(&limit, &stuck, "c")];
        assert_eq!(limit.0.in_flight.free(), 0);
        let well = Arc::new(Semaphore::new(10));
        let status = "/apis/a/v1/namespaces/b/widgets/c/status";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/b/leases/c";
        for first in [request(Method::PATCH, status), request(Method::PUT, lease)] {
            assert_eq!(send(&limit, &well, first).now_or_never(), Some(200));
        }
        let mut last = Box::pin(send(&limit, &well, get()));
        assert_eq!((&mut last).now_or_never(), None);
        // What gets no answer in its time is dropped, and another request is sent.
        drop((greedy, others));
        assert_eq!(last.await, 200);
        assert_eq!(limit.0.in_flight.free(), MOST_IN_FLIGHT);
    }

    #[tokio::test]
    async fn a_refusal_lowers_the_limit_and_that_of_runs_and_of_no_other_server() {
        let limits = [limit(), limit()];
        let runs = limits[0].following_pool(16);
        let few = limits[0].following_pool(1);
        let refusing = limits[0].layer(service_fn(|_: Request<()>| async move {
            let answer = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
            Ok::<_, Infallible>(answer.body(()).unwrap())
        }));
        let reader = limits[0].reader();
        assert_eq!((reader.limit(), runs.free(), few.free()), (Some(MOST_IN_FLIGHT), 16, 1));
        for _ in 0..3 {
            refusing.clone().oneshot(get()).await.unwrap();
        }
        assert_eq!(reader.limit(), Some(MOST_IN_FLIGHT / 2), "once in a second");
        assert_eq!(limits[0].0.in_flight.free(), MOST_IN_FLIGHT / 2);
        assert_eq!((runs.free(), few.free()), (16, 1));
        let later = Instant::now() + Duration::from_secs(2);
        let outcome = AnswerOutcome::Throttled;
        limits[0].observe(ObservedAnswer { outcome, sent: later, ended: later });
        assert_eq!((limits[0].0.in_flight.free(), runs.free(), few.free()), (8, 8, 1));
        assert_eq!(limits[0].following_pool(16).free(), 8);
        assert_eq!(limits[1].0.in_flight.free(), MOST_IN_FLIGHT, "each server has its own");
        drop((limits, refusing));
        assert_eq!(reader.limit(), None, "the connection is no longer in use");
    }

    #[test]
    fn no_namespace_may_hold_all_permits_of_any_limit() {
        for limit in FEWEST_IN_FLIGHT..=MOST_IN_FLIGHT {
            let each = most_per_namespace(limit);
            assert!(each >= 1 && each < limit, "{each} of {limit}");
        }
        assert_eq!(most_per_namespace(MOST_IN_FLIGHT), 24);
    }

    #[test]
    fn only_writes_of_statuses_and_requests_about_leases_come_first() {
        for (method, path, expected) in [
            (Method::PATCH, "/apis/a/v1/namespaces/b/widgets/c/status", true),
            (Method::GET, "/apis/a/v1/namespaces/b/widgets/c/status", false),
            (Method::PUT, "/apis/a/v1/widgets/c/status", true),
            (Method::PATCH, "/api/v1/namespaces/b/configmaps/status", false),
            (Method::PATCH, "/apis/a/v1/namespaces/b/widgets/status", false),
            (Method::PATCH, "/apis/a/v1/namespaces/b/widgets/c", false),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/b/leases/c", true),
            (Method::GET, "/api/v1/namespaces/b/configmaps/leases", false),
        ] {
            assert_eq!(comes_first(&method, path), expected, "{method} {path}");
        }
    }
}
