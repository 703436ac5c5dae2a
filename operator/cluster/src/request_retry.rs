//! How long windlass waits before it repeats a request: the time that the API server asks for, or a growing delay. The delay
//! varies by path, so that requests do not coincide.
//!
//! Here: reading `Retry-After`, which kube's client ignores, and the delays. Elsewhere: which requests are repeated
//! (`objects`).

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use kube::core::response::StatusDetails;
use tower::{Layer, Service};

use super::ClusterError;

/// The longest time that a request waits here. A longer `Retry-After` becomes an error, so that the caller releases its
/// permit.
const MAX_HELD_REQUEST_DELAY: Duration = Duration::from_secs(3);

/// The longest `Retry-After` that windlass respects.
const MAX_RETRY_AFTER_DELAY: Duration = Duration::from_secs(15 * 60);

/// The `Retry-After` of the answer to a request. The request carries this value in its extensions.
#[derive(Debug, Clone, Default)]
pub(super) struct RetryAfterHint(Arc<OnceLock<Duration>>);

impl RetryAfterHint {
    /// Adds the `Retry-After` to the error, where [`ClusterError::retry_after`] finds it.
    pub(super) fn into(self, error: ClusterError) -> ClusterError {
        let (Some(retry_after), ClusterError::Refused(mut status)) = (self.0.get(), error.clone())
        else {
            return error;
        };
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        details.retry_after_seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX);
        ClusterError::Refused(status)
    }
}

/// The `Retry-After` header in seconds. Dates are ignored, because API servers do not send them.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER_DELAY))
}

/// How long to wait before the next attempt at a path. `None` if that is too long to hold a permit.
pub(super) fn delay(error: &ClusterError, attempt: u32, path: &str) -> Option<Duration> {
    // The same path and attempt always give the same delay. Similar paths get other delays.
    let seed = path.bytes().fold(u64::from(attempt), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    match error.retry_after() {
        // Never earlier than the API server asked for.
        Some(retry_after) if retry_after <= MAX_HELD_REQUEST_DELAY => {
            Some(retry_after + reconcile::jittered(retry_after / 4, 99, seed))
        }
        Some(_) => None,
        None => Some(reconcile::jittered(Duration::from_millis(100 << attempt.min(6)), 50, seed)),
    }
}

/// An HTTP layer that reads `Retry-After` for requests that carry a [`RetryAfterHint`].
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryAfterLayer;

impl<S> Layer<S> for RetryAfterLayer {
    type Service = RetryAfterService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryAfterService(inner)
    }
}

/// The HTTP service of [`RetryAfterLayer`].
#[derive(Debug, Clone)]
pub(super) struct RetryAfterService<S>(S);

impl<S, A, B> Service<Request<A>> for RetryAfterService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let hint = request.extensions().get::<RetryAfterHint>().cloned();
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let is_put_off = matches!(
                answer.status(),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            );
            if let (true, Some(hint)) = (is_put_off, hint)
                && let Some(by) = retry_after(answer.headers())
            {
                // Each request is sent once, so no value was set before.
                let _ = hint.0.set(by);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    use super::*;

    fn refused() -> ClusterError {
        ClusterError::Refused(Box::new(Status { code: 429, ..Status::default() }))
    }

    async fn refused_with(status: u16, header: &'static str) -> ClusterError {
        let answer = move |_: Request<()>| async move {
            let answer = Response::builder().status(status).header(RETRY_AFTER, header);
            Ok::<_, std::convert::Infallible>(answer.body(()).unwrap())
        };
        let service = ServiceBuilder::new().layer(RetryAfterLayer).service(service_fn(answer));
        let hint = RetryAfterHint::default();
        let mut request = Request::new(());
        request.extensions_mut().insert(hint.clone());
        service.oneshot(request).await.unwrap();
        hint.into(refused())
    }

    #[tokio::test]
    async fn what_a_busy_server_says_about_when_to_come_back_is_heard() {
        let heard = async |status, header| refused_with(status, header).await.retry_after();
        assert_eq!(heard(429, "7").await, Some(Duration::from_secs(7)));
        assert_eq!(heard(503, " 1 ").await, Some(Duration::from_secs(1)));
        assert_eq!(heard(429, "999999999999").await, Some(MAX_RETRY_AFTER_DELAY));
        for (status, header) in [(200, "7"), (404, "7"), (429, "soon"), (429, "-1"), (429, "0")] {
            assert_eq!(heard(status, header).await, None, "{status} {header}");
        }
    }

    #[tokio::test]
    async fn no_request_is_retried_before_retry_after_and_no_permit_is_held_for_long() {
        let short = refused_with(429, "2").await;
        let two = Duration::from_secs(2);
        let three = Duration::from_secs(3);
        for path in ["/a", "/b", "/c"] {
            let delay = delay(&short, 1, path).unwrap();
            assert!(delay >= two && delay <= three, "{delay:?}");
        }
        assert_eq!(delay(&refused_with(429, "60").await, 1, "/a"), None);
    }

    #[test]
    fn attempts_are_spread() {
        let of = |attempt, path| delay(&refused(), attempt, path).unwrap();
        assert_ne!(of(1, "/a"), of(1, "/b"));
        assert_eq!(of(1, "/a"), of(1, "/a"));
        for attempt in 1..4 {
            let nominal = Duration::from_millis(100 << attempt);
            assert!(of(attempt, "/a") >= nominal / 2 && of(attempt, "/a") <= nominal * 3 / 2);
        }
    }
}
