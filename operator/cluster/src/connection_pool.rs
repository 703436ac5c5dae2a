//! A pool of connections for watches.
//!
//! An API server limits the streams of one HTTP/2 connection (kube-apiserver: 100). A request beyond the limit waits without
//! an error until another request ends, and a watch does not end soon. So each connection carries fewer watches than that, and
//! windlass opens another connection when all are full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use kube::Client;
use parking_lot::Mutex;

use super::ClusterError;

/// How many watches share a connection. Every known server allows more streams, so the lists of the watches fit as well.
const MAX_WATCHES_PER_CONNECTION: usize = 64;

/// Opens connections for watches, and assigns each watch to one of them.
#[derive(Clone)]
pub(super) struct ConnectionPool {
    open: Arc<ClientFactory>,
    members: Arc<PooledConnections>,
}

/// Opens a connection and returns its client.
type ClientFactory = dyn Fn() -> Result<Client, ClusterError> + Send + Sync;

#[derive(Default)]
struct PooledConnections(Mutex<Vec<Weak<PooledConnection>>>);

struct PooledConnection {
    client: Client,
    streams: AtomicUsize,
    /// How many watches this connection may have.
    bound: AtomicUsize,
}

/// The place of one watch on a connection. Dropping it frees the place, and the last one closes the connection.
pub(super) struct ConnectionSlot {
    member: Arc<PooledConnection>,
}

impl ConnectionPool {
    pub(super) fn new(
        open: impl Fn() -> Result<Client, ClusterError> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), members: Arc::default() }
    }

    /// Assigns a watch to a connection that has room, or opens another one.
    ///
    /// # Errors
    /// No connection can be made from the configuration.
    pub(super) fn place(&self) -> Result<ConnectionSlot, ClusterError> {
        self.members.place(|| (self.open)())
    }
}

impl PooledConnections {
    fn place<E>(&self, open: impl FnOnce() -> Result<Client, E>) -> Result<ConnectionSlot, E> {
        let mut members = self.0.lock();
        members.retain(|member| member.strong_count() > 0);
        let roomy = |member: &Arc<PooledConnection>| {
            member.streams.load(Ordering::Relaxed) < member.bound.load(Ordering::Relaxed)
        };
        let member = match members.iter().filter_map(Weak::upgrade).find(roomy) {
            Some(member) => member,
            None => {
                let streams = AtomicUsize::new(0);
                let bound = AtomicUsize::new(MAX_WATCHES_PER_CONNECTION);
                let member = Arc::new(PooledConnection { client: open()?, streams, bound });
                members.push(Arc::downgrade(&member));
                member
            }
        };
        member.streams.fetch_add(1, Ordering::Relaxed);
        Ok(ConnectionSlot { member })
    }
}

impl ConnectionSlot {
    pub(super) fn client(&self) -> &Client {
        &self.member.client
    }

    /// Frees the place of a watch whose request got no response. The connection then accepts no more watches than it still
    /// has.
    pub(super) fn leave_crowded(self) {
        let others = self.member.streams.load(Ordering::Relaxed).saturating_sub(1);
        self.member.bound.fetch_min(others.max(1), Ordering::Relaxed);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.member.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a slot in a pool whose connections lead nowhere, and counts the opened connections.
    fn place(members: &PooledConnections, opened: &mut usize) -> ConnectionSlot {
        let open = || {
            *opened += 1;
            let nowhere = tower::service_fn(async |_: http::Request<kube::client::Body>| {
                Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
            });
            Ok::<_, std::io::Error>(Client::new(nowhere, "default"))
        };
        members.place(open).unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_opened_when_the_others_are_full_and_ends_with_its_last_watch() {
        let members = PooledConnections::default();
        let mut opened = 0;
        let mut places: Vec<ConnectionSlot> =
            (0..3 * MAX_WATCHES_PER_CONNECTION).map(|_| place(&members, &mut opened)).collect();
        assert_eq!(opened, 3);
        drop(places.pop());
        places.push(place(&members, &mut opened));
        assert_eq!(opened, 3);
        places.clear();
        places.push(place(&members, &mut opened));
        assert_eq!(opened, 4, "nobody keeps a connection that nobody uses");
    }

    #[tokio::test]
    async fn a_connection_that_gives_no_answer_takes_no_more_than_it_has() {
        let members = PooledConnections::default();
        let mut opened = 0;
        let kept: Vec<ConnectionSlot> = (0..10).map(|_| place(&members, &mut opened)).collect();
        place(&members, &mut opened).leave_crowded();
        let next = place(&members, &mut opened);
        assert_eq!(opened, 2);
        drop((kept, next));
    }
}
