//! Permits for the bodies of webhooks. With them, a sender whose body comes slowly, or takes long to check, does not delay
//! others.
//!
//! A short body is read without a permit (`windlass_http_server::request_bodies`). A longer body needs one of a few permits,
//! which namespaces get in turn. Windlass rejects a body that keeps its permit for long while others wait for one.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use notify::receivers::MAX_BODY;

use windlass_cluster::run_permits::{GrantedPermit, RunPermits};
use windlass_http_server::request_bodies::{BodyReader, SHORT_BODY_BYTES};

/// Longest time that sending a part of a body may take. Parity(flux): the notification-controller's.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The most long bodies in memory at once, in total and for one namespace.
const MAX_CONCURRENT_LONG_BODIES: usize = 32;
const LONG_EACH: usize = 16;

/// The time for which a body keeps its permit while others wait for one, and the interval at which that is checked.
const PERMIT_HOLD_PERIOD: Duration = Duration::from_secs(5);
const PERMIT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The permits under which long webhook bodies are read, which namespaces get in turn, so that a slow sender
/// delays no other.
pub(super) struct WebhookBodyPermits {
    permits: RunPermits,
    keeps: Duration,
}

/// A body in memory, with its permit. A short body has no permit.
pub(super) struct WebhookBody {
    pub(super) body: Vec<u8>,
    pub(super) permit: Option<GrantedPermit>,
}

impl Default for WebhookBodyPermits {
    fn default() -> Self {
        Self {
            permits: RunPermits::shared(MAX_CONCURRENT_LONG_BODIES, LONG_EACH),
            keeps: PERMIT_HOLD_PERIOD,
        }
    }
}

impl WebhookBodyPermits {
    /// Reads a body for a namespace.
    ///
    /// # Errors
    /// The status of the response, because the body is too long, was interrupted, or is slow.
    pub(super) async fn read(
        &self,
        namespace: &str,
        body: Body,
    ) -> Result<WebhookBody, StatusCode> {
        let mut reader = BodyReader::new(body, MAX_BODY);
        let slow = |_| StatusCode::REQUEST_TIMEOUT;
        let is_short =
            tokio::time::timeout(READ_LIMIT, reader.up_to(SHORT_BODY_BYTES)).await.map_err(slow)?;
        if is_short? {
            return Ok(WebhookBody { body: reader.into_bytes(), permit: None });
        }
        let permit = self.permits.acquire(namespace).await;
        let rest = tokio::time::timeout(READ_LIMIT, self.while_granted(reader.rest())).await;
        rest.map_err(slow)?.ok_or(StatusCode::REQUEST_TIMEOUT)??;
        Ok(WebhookBody { body: reader.into_bytes(), permit: Some(permit) })
    }

    /// Does the work for which a permit was granted. `None` if it takes long while others wait for a permit.
    pub(super) async fn while_granted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let given_up = async {
            tokio::time::sleep(self.keeps).await;
            while !self.permits.is_awaited() {
                tokio::time::sleep(PERMIT_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = given_up => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt as _;

    use super::*;

    /// A body of which so many bytes come, and no end.
    fn slow(bytes: usize) -> Body {
        let first = futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; bytes])]);
        Body::from_stream(first.chain(futures::stream::pending()))
    }

    fn long() -> Body {
        Body::from(vec![b' '; SHORT_BODY_BYTES + 1])
    }

    fn intake(keeps: Duration) -> Arc<WebhookBodyPermits> {
        Arc::new(WebhookBodyPermits { keeps, ..WebhookBodyPermits::default() })
    }

    #[tokio::test]
    async fn slow_bodies_of_a_tenant_hold_up_no_others() {
        let intake = intake(Duration::ZERO);
        let mut slow_ones = tokio::task::JoinSet::new();
        for at in 0..4 * MAX_CONCURRENT_LONG_BODIES {
            let intake = intake.clone();
            let namespace = format!("tenant-{}", at % 4);
            let body = slow(if at % 2 == 0 { SHORT_BODY_BYTES + 1 } else { 1 });
            slow_ones.spawn(async move { intake.read(&namespace, body).await.err() });
        }
        while intake.permits.free() > 0 {
            tokio::task::yield_now().await;
        }
        let short = intake.read("apps", Body::from("{}")).await.ok();
        assert!(short.is_some_and(|it| it.body == b"{}" && it.permit.is_none()));
        let received = intake.read("apps", long()).await.ok();
        assert!(received.is_some_and(|it| it.body.len() > SHORT_BODY_BYTES && it.permit.is_some()));
        // Those that kept their permits while others waited were given up.
        let given_up = slow_ones.join_next().await.unwrap().unwrap();
        assert_eq!(given_up, Some(StatusCode::REQUEST_TIMEOUT));
    }

    #[tokio::test]
    async fn a_slow_body_has_its_time_while_no_other_request_waits() {
        let intake = intake(Duration::ZERO);
        let parts = (0..3).map(|_| Ok::<_, std::io::Error>(vec![b' '; SHORT_BODY_BYTES]));
        let parts = futures::stream::iter(parts).then(async |part| {
            tokio::time::sleep(2 * PERMIT_CHECK_INTERVAL).await;
            part
        });
        let received = intake.read("apps", Body::from_stream(Box::pin(parts))).await.ok();
        assert!(
            received.is_some_and(|it| it.body.len() == 3 * SHORT_BODY_BYTES && it.permit.is_some())
        );
        assert!(intake.while_granted(tokio::time::sleep(PERMIT_CHECK_INTERVAL)).await.is_some());
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_rejected() {
        let body = Body::from(vec![b' '; MAX_BODY + 1]);
        let read = WebhookBodyPermits::default().read("apps", body).await.err();
        assert_eq!(read, Some(StatusCode::PAYLOAD_TOO_LARGE));
    }
}
