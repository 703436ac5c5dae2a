//! A service on loopback that counts what it is sent, or is dead until it is brought to life.

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

/// How many connections wait for a service that does not take them.
const MAX_LISTEN_BACKLOG: u32 = 1_024;

/// What it was sent: when each message came first, and how many came.
#[derive(Default)]
struct MessageCounts {
    first: BTreeMap<String, Instant>,
    received: usize,
}

/// What is not served yet.
enum SleepingService {
    /// Bound, so that no other program takes the port; connections are refused.
    Bound(TcpSocket),
    /// Connections are taken by the kernel, and nothing answers.
    Listening(TcpListener),
}

/// A notification service on loopback that counts the messages it receives, or does not answer until it is
/// started. It ends when dropped.
pub(super) struct CountingNotificationService {
    address: SocketAddr,
    seen: Arc<Mutex<MessageCounts>>,
    asleep: Option<SleepingService>,
    serving: JoinSet<()>,
}

/// What is read of a notification.
#[derive(Deserialize)]
struct NotificationBody {
    message: String,
}

impl CountingNotificationService {
    /// One that works.
    ///
    /// # Errors
    /// There is no port.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a service")?;
        let mut service = Self::at(listener.local_addr()?);
        service.serve(listener);
        Ok(service)
    }

    /// One that does not work until [`CountingNotificationService::revive`].
    ///
    /// # Errors
    /// There is no port.
    pub(super) fn dead(how: DeadServiceBehavior) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4().context("no socket for a service")?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("no port for a service")?;
        let mut service = Self::at(socket.local_addr()?);
        service.asleep = Some(match how {
            DeadServiceBehavior::Refuses => SleepingService::Bound(socket),
            DeadServiceBehavior::Silent => {
                SleepingService::Listening(socket.listen(MAX_LISTEN_BACKLOG)?)
            }
        });
        Ok(service)
    }

    fn at(address: SocketAddr) -> Self {
        Self { address, seen: Arc::default(), asleep: None, serving: JoinSet::new() }
    }

    /// It works from now on.
    ///
    /// # Errors
    /// The port cannot be listened on.
    pub(super) fn revive(&mut self) -> anyhow::Result<()> {
        match self.asleep.take() {
            Some(SleepingService::Bound(socket)) => self.serve(socket.listen(MAX_LISTEN_BACKLOG)?),
            Some(SleepingService::Listening(listener)) => self.serve(listener),
            None => {}
        }
        Ok(())
    }

    fn serve(&mut self, listener: TcpListener) {
        let router = Router::new().route("/", post(take)).with_state(self.seen.clone());
        self.serving.spawn(async move {
            // It never ends, but with this service.
            axum::serve(listener, router).await.ok();
        });
    }

    /// Where it is.
    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn seen(&self) -> MutexGuard<'_, MessageCounts> {
        locked(&self.seen)
    }

    /// How many different events it got.
    pub(super) fn count(&self) -> usize {
        self.seen().first.keys().filter(|message| !is_probe(message)).count()
    }

    /// How many notifications it got.
    pub(super) fn received(&self) -> usize {
        self.seen().received
    }

    /// How many events it got that it had already.
    pub(super) fn repeated(&self) -> usize {
        let seen = self.seen();
        seen.received - seen.first.len()
    }

    /// How long after a moment each event came first.
    pub(super) fn times(&self, begun: Instant) -> Vec<Duration> {
        let seen = self.seen();
        let events = seen.first.iter().filter(|(message, _)| !is_probe(message));
        events.map(|(_, at)| at.saturating_duration_since(begun)).collect()
    }

    /// How many different probes it got.
    pub(super) fn probes(&self) -> usize {
        self.seen().first.keys().filter(|message| is_probe(message)).count()
    }

    /// Begins to count anew.
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
