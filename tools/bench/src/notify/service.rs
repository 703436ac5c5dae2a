//! A notification service on loopback. It counts the notifications that it gets, or it is dead until the benchmark
//! revives it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::DeadServiceBehavior;

/// How many connections may wait for a service that does not accept them.
const MAX_LISTEN_BACKLOG: u32 = 1_024;

/// The messages that the service got: when each came first, and how many came.
#[derive(Default)]
struct MessageCounts {
    first: BTreeMap<String, Instant>,
    received: usize,
}

/// The socket of a dead service.
enum DeadServiceSocket {
    /// The socket is bound, so that no other program takes the port. Connections are rejected.
    Bound(TcpSocket),
    /// The kernel accepts connections, and the service does not respond.
    Listening(TcpListener),
}

/// A notification service on loopback that counts the messages it receives. A dead one does not respond until it is
/// revived. The service ends when it is dropped.
pub(super) struct CountingNotificationService {
    address: SocketAddr,
    seen: Arc<Mutex<MessageCounts>>,
    asleep: Option<DeadServiceSocket>,
    serving: JoinSet<()>,
}

/// The part of a notification that is read.
#[derive(Deserialize)]
struct NotificationBody {
    message: String,
}

impl CountingNotificationService {
    /// Starts a service that works.
    ///
    /// # Errors
    /// No port is free.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a service")?;
        let mut service = Self::at(listener.local_addr()?);
        service.serve(listener);
        Ok(service)
    }

    /// Makes a dead service, which works only after [`CountingNotificationService::revive`].
    ///
    /// # Errors
    /// No port is free.
    pub(super) fn dead(how: DeadServiceBehavior) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4().context("no socket for a service")?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("no port for a service")?;
        let mut service = Self::at(socket.local_addr()?);
        service.asleep = Some(match how {
            DeadServiceBehavior::Refuses => DeadServiceSocket::Bound(socket),
            DeadServiceBehavior::Silent => {
                DeadServiceSocket::Listening(socket.listen(MAX_LISTEN_BACKLOG)?)
            }
        });
        Ok(service)
    }

    fn at(address: SocketAddr) -> Self {
        Self { address, seen: Arc::default(), asleep: None, serving: JoinSet::new() }
    }

    /// Makes the service work from now on.
    ///
    /// # Errors
    /// The service cannot listen on its port.
    pub(super) fn revive(&mut self) -> anyhow::Result<()> {
        match self.asleep.take() {
            Some(DeadServiceSocket::Bound(socket)) => {
                self.serve(socket.listen(MAX_LISTEN_BACKLOG)?);
            }
            Some(DeadServiceSocket::Listening(listener)) => self.serve(listener),
            None => {}
        }
        Ok(())
    }

    fn serve(&mut self, listener: TcpListener) {
        let router = Router::new().route("/", post(take)).with_state(self.seen.clone());
        self.serving.spawn(async move {
            // The server runs until this service is dropped.
            axum::serve(listener, router).await.ok();
        });
    }

    /// The URL of the service.
    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn seen(&self) -> MutexGuard<'_, MessageCounts> {
        locked(&self.seen)
    }

    /// How many different events the service got.
    pub(super) fn count(&self) -> usize {
        self.seen().first.keys().filter(|message| !is_probe(message)).count()
    }

    /// How many notifications the service got.
    pub(super) fn received(&self) -> usize {
        self.seen().received
    }

    /// How many notifications the service got that it already had.
    pub(super) fn repeated(&self) -> usize {
        let seen = self.seen();
        seen.received - seen.first.len()
    }

    /// How long after `begun` the service got each event for the first time.
    pub(super) fn times(&self, begun: Instant) -> Vec<Duration> {
        let seen = self.seen();
        let events = seen.first.iter().filter(|(message, _)| !is_probe(message));
        events.map(|(_, at)| at.saturating_duration_since(begun)).collect()
    }

    /// How many different probes the service got.
    pub(super) fn probes(&self) -> usize {
        self.seen().first.keys().filter(|message| is_probe(message)).count()
    }

    /// Sets the counts of received messages to zero.
    pub(super) fn forget(&self) {
        *self.seen() = MessageCounts::default();
    }
}

fn locked(seen: &Mutex<MessageCounts>) -> MutexGuard<'_, MessageCounts> {
    seen.lock()
}

fn is_probe(message: &str) -> bool {
    message.starts_with("probe ")
}

async fn take(State(seen): State<Arc<Mutex<MessageCounts>>>, body: Bytes) -> StatusCode {
    let at = Instant::now();
    let Ok(sent) = serde_json::from_slice::<NotificationBody>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut seen = locked(&seen);
    seen.received += 1;
    seen.first.entry(sent.message).or_insert(at);
    StatusCode::OK
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(service: &CountingNotificationService, message: &str) -> bool {
        let client = reqwest::Client::new();
        let body = serde_json::json!({"message": message, "reason": "Succeeded"});
        client.post(service.url()).json(&body).send().await.is_ok_and(|it| it.status() == 200)
    }

    #[tokio::test]
    async fn repetitions_are_distinguished_from_events_and_probes_are_none() {
        let service = CountingNotificationService::start().await.unwrap();
        for message in ["probe 1", "a", "b", "a"] {
            assert!(send(&service, message).await);
        }
        assert_eq!((service.count(), service.received(), service.repeated()), (2, 4, 1));
        assert_eq!((service.probes(), service.times(Instant::now()).len()), (1, 2));
        service.forget();
        assert_eq!((service.count(), service.received()), (0, 0));
    }

    #[tokio::test]
    async fn a_dead_service_refuses_until_it_is_brought_to_life() {
        let mut service = CountingNotificationService::dead(DeadServiceBehavior::Refuses).unwrap();
        assert!(!send(&service, "a").await);
        service.revive().unwrap();
        assert!(send(&service, "a").await);
        assert_eq!(service.count(), 1);
    }
}
