//! A proxy on loopback in front of a plain HTTP server. It gives wrong answers to some requests.
//!
//! The server receives requests with the host name that the client used, so signatures stay valid.
//! Elsewhere: the kinds of wrong answers (`crate::response_fault`), bytes and connections (`crate::tcp_relay`), the API server
//! (`crate::api_server_fault_proxy`).

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

/// A running proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct HttpFaultProxy {
    address: SocketAddr,
    shared: Arc<Mutex<HttpFaultProxyState>>,
    stop: AbortHandle,
}

#[derive(Debug, Default)]
struct HttpFaultProxyState {
    order: Option<WrongAnswerRule>,
    /// The requests since the last order, as `METHOD path and query`.
    requests: Vec<String>,
    /// How many wrong answers the proxy has given since the last order.
    given: usize,
}

/// An order for wrong answers: which requests get them, and with which fault.
#[derive(Debug)]
struct WrongAnswerRule {
    /// The number of the first such request, counted from 1.
    from: usize,
    /// A text that the request has to contain.
    part: String,
    fault: ResponseFault,
}

impl Drop for HttpFaultProxy {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl HttpFaultProxy {
    /// Starts a proxy in front of a server on the current runtime. At first, all answers are right.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<HttpFaultProxyState>>::default();
        // The client does not reuse connections. A connection that the server is closing would cause a fault that no test
        // ordered.
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        let backend = HttpFaultProxyBackend { server, shared: shared.clone(), client };
        let router = Router::new().fallback(exchange).with_state(backend);
        let serving = async move { axum::serve(listener, router).await };
        let stop = tokio::spawn(serving).abort_handle();
        Ok(Self { address, shared, stop })
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives wrong answers from the `number`-th request on, counted from 1, until [`HttpFaultProxy::heal`].
    pub fn answer_from(&self, number: usize, fault: ResponseFault) {
        self.order(Some(WrongAnswerRule { from: number, part: String::new(), fault }));
    }

    /// Gives wrong answers to all requests whose `METHOD path?query` contains `part`, until [`HttpFaultProxy::heal`].
    pub fn answer_containing(&self, part: &str, fault: ResponseFault) {
        self.order(Some(WrongAnswerRule { from: 1, part: part.to_owned(), fault }));
    }

    /// Ends the wrong answers. The count of requests starts again.
    pub fn heal(&self) {
        self.order(None);
    }

    fn order(&self, order: Option<WrongAnswerRule>) {
        *self.shared.lock() = HttpFaultProxyState { order, ..HttpFaultProxyState::default() };
    }

    /// The requests since the last order or [`HttpFaultProxy::heal`], as `METHOD path?query`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.lock().requests.clone()
    }

    /// How many wrong answers the proxy has given since the last order or [`HttpFaultProxy::heal`].
    pub fn given(&self) -> usize {
        self.shared.lock().given
    }
}

type HttpClient = legacy::Client<HttpConnector, Body>;

#[derive(Clone)]
struct HttpFaultProxyBackend {
    server: SocketAddr,
    shared: Arc<Mutex<HttpFaultProxyState>>,
    client: HttpClient,
}

async fn exchange(State(backend): State<HttpFaultProxyBackend>, request: Request) -> Response {
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

impl HttpFaultProxyBackend {
    /// Counts a request to the proxy. Returns the fault that its answer gets. `None` if the answer stays right.
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

/// Removes the headers that apply to one connection only.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::web::FileWebServer;

    #[tokio::test]
    async fn chosen_requests_get_a_wrong_answer_until_it_is_healed() -> Result<()> {
        let server = FileWebServer::start().await?;
        server.put("a", "right");
        server.put("b", "right");
        let proxy = HttpFaultProxy::start(server.address()).await?;
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
