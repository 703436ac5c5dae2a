//! Resolves the names of API servers and proxies, and returns only addresses that the egress rules allow.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_client::EgressRules;
use hyper_util::client::legacy::connect::dns::Name;

/// A DNS resolver that leaves out addresses that the egress rules forbid. It checks them again for each connection.
#[derive(Clone)]
pub(super) struct EgressResolver(pub(super) EgressRules);

impl tower::Service<Name> for EgressResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let egress = self.0.clone();
        async move { Ok(egress.look_up(name.as_str(), 0).await?.into_iter()) }.boxed()
    }
}
