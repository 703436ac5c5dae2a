//! Looking up the names of API servers and of proxies before them, by what may be asked.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_client::EgressRules;
use hyper_util::client::legacy::connect::dns::Name;

/// Leaves out addresses that may not be asked, at each connection anew.
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
