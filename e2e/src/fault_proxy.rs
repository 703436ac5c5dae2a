//! A proxy on loopback before a server over plain HTTP, which gives wrong answers to some requests.
//!
//! The server gets requests with the host that the client asked for, so signatures stay valid. Elsewhere: what is wrong with
//! an answer (`crate::response_fault`), bytes and connections (`crate::tcp_relay`), the API server (`crate::api_proxy`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header, uri::PathAndQuery};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::response_fault::ResponseFault;

/// A proxy. Ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Mutex<FaultProxyState>>,
    stop: AbortHandle,
}

#[derive(Debug, Default)]
struct FaultProxyState {
    order: Option<WrongAnswers>,
    /// As `METHOD path and query`, since the last order.
    requests: Vec<String>,
    /// How many wrong answers were given since then.
    given: usize,
}

/// Which requests get a wrong answer, and which one.
#[derive(Debug)]
struct WrongAnswers {
    /// The number of the first, counted from 1.
    from: usize,
    /// What the request has in it.
    part: String,
    fault: ResponseFault,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl FaultProxy {
    /// Starts a proxy to a server on the current runtime. All answers are right.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<FaultProxyState>>::default();
        // A connection that the server is closing would be a fault that no test ordered.
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        let backend = FaultProxyBackend { server, shared: shared.clone(), client };
        let router = Router::new().fallback(exchange).with_state(backend);
        let serving = async move { axum::serve(listener, router).await };
        let stop = tokio::spawn(serving).abort_handle();
        Ok(Self { address, shared, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives a wrong answer to the `number`-th request from now on, counted from 1, and to all later ones, until
    /// [`FaultProxy::heal`].
    pub fn answer_from(&self, number: usize, fault: ResponseFault) {
        self.order(Some(WrongAnswers { from: number, part: String::new(), fault }));
    }

    /// Gives a wrong answer to every request that has this part in `METHOD path?query`, until [`FaultProxy::heal`].
    pub fn answer_containing(&self, part: &str, fault: ResponseFault) {
        self.order(Some(WrongAnswers { from: 1, part: part.to_owned(), fault }));
    }

    /// Has all answers be right, and counts requests anew.
    pub fn heal(&self) {
        self.order(None);
    }

    fn order(&self, order: Option<WrongAnswers>) {
        *self.shared.lock() = FaultProxyState { order, ..FaultProxyState::default() };
    }

    /// The requests since the last order or [`FaultProxy::heal`], as `METHOD path?query`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.lock().requests.clone()
    }

    /// How many wrong answers were given since then.
    pub fn given(&self) -> usize {
        self.shared.lock().given
    }
}

type HttpClient = legacy::Client<HttpConnector, Body>;

#[derive(Clone)]
struct FaultProxyBackend {
    server: SocketAddr,
    shared: Arc<Mutex<FaultProxyState>>,
    client: HttpClient,
}

async fn exchange(State(backend): State<FaultProxyBackend>, request: Request) -> Response {
    let fault = backend.fault(&request);
    if let Some(answer) = fault.and_then(ResponseFault::replacement) {
        backend.shared.lock().given += 1;
        return answer;
    }
    match backend.forward(request, fault).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

impl FaultProxyBackend {
    /// Counts a request; what is wrong with its answer.
    fn fault(&self, request: &Request) -> Option<ResponseFault> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let line = format!("{} {path}", request.method());
        let mut shared = self.shared.lock();
        shared.requests.push(line.clone());
        let number = shared.requests.len();
        let order = shared.order.as_ref()?;
        (number >= order.from && line.contains(&order.part)).then_some(order.fault)
    }

    async fn forward(&self, request: Request, fault: Option<ResponseFault>) -> Result<Response> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        parts.uri = Uri::try_from(format!("http://{}{path}", self.server)).context("not a URI")?;
        remove_hop_by_hop(&mut parts.headers);
        let answer = self.client.request(Request::from_parts(parts, body)).await?;
        let mut answer = answer.map(Body::new);
        remove_hop_by_hop(answer.headers_mut());
        let Some(fault) = fault else { return Ok(answer) };
        let (answer, is_wrong) = fault.damage(answer).await?;
        self.shared.lock().given += usize::from(is_wrong);
        Ok(answer)
    }
}

/// Headers that are about one connection mean nothing on the next.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::web::WebServer;

    #[tokio::test]
    async fn chosen_requests_get_a_wrong_answer_until_it_is_healed() -> Result<()> {
        let server = WebServer::start().await?;
        server.put("a", "right");
        server.put("b", "right");
        let proxy = FaultProxy::start(server.address()).await?;
        let get = async |path: &str| -> Result<(u16, String)> {
            let answer = reqwest::get(format!("http://{}/{path}", proxy.address())).await?;
            Ok((answer.status().as_u16(), answer.text().await?))
        };
        let right = (200, "right".to_owned());
        proxy.answer_from(2, ResponseFault::Status(500));
        assert_eq!(get("a").await?, right);
        assert_eq!(get("a").await?.0, 500);
        assert_eq!((proxy.given(), proxy.requests().len()), (1, 2));
        proxy.answer_containing("GET /b", ResponseFault::EmptyBody);
        assert_eq!(get("a").await?, right);
        assert_eq!(get("b").await?, (200, String::new()));
        proxy.answer_from(1, ResponseFault::Truncated);
        assert!(get("b").await.is_err(), "half of it came as if it were all");
        proxy.heal();
        assert_eq!(get("b").await?, right);
        Ok(())
    }
}
