//! Decides about each request: the proxy counts it, refuses it, cuts the connection, delays it, or passes it on.
//!
//! Here: the gate for all requests, with the current fault and the count of writes.
//! Elsewhere: the properties of a request (`super::api_request_properties`), forwarding requests (`super::connection`).

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::api_request_properties::ApiRequestProperties;
use super::connection::ProxiedApiServerClient;
use super::{ApiFault, ConnectionCutMoment};
use crate::random_sequence::RandomSequence;
use crate::response_fault::ResponseFault;

/// The largest answer to a write, in bytes. The gate holds such an answer until it is complete.
const ANSWER_LIMIT: usize = 64 << 20;

/// A cut that has not happened yet.
#[derive(Debug)]
struct PendingConnectionCut {
    number: usize,
    moment: ConnectionCutMoment,
    tell: oneshot::Sender<String>,
}

/// An order to answer one request, and each repetition of it, wrongly.
#[derive(Debug)]
struct PendingWrongAnswer {
    number: usize,
    fault: ResponseFault,
    /// The requests that were counted since the order.
    requests: Vec<String>,
    /// The request with the ordered number, after it has arrived.
    request: Option<String>,
}

#[derive(Debug)]
struct ApiServerFaultProxyState {
    fault: Option<ApiFault>,
    cut: Option<PendingConnectionCut>,
    wrong: Option<PendingWrongAnswer>,
    /// Whether a cut has happened. Then the proxy answers no request.
    is_severed: bool,
    /// How many requests are handled now. Watches do not count.
    in_flight: usize,
    writes: Vec<String>,
    dice: RandomSequence,
}

/// The gate that decides about all requests.
#[derive(Debug)]
pub(super) struct ApiRequestGate {
    inside: Mutex<ApiServerFaultProxyState>,
    /// A change of one of these channels ends all open connections or all open watches.
    connections: watch::Sender<()>,
    watches: watch::Sender<()>,
    /// How many writes the API server has received but not yet answered.
    under_way: watch::Sender<usize>,
}

impl Default for ApiRequestGate {
    fn default() -> Self {
        let inside = ApiServerFaultProxyState {
            fault: None,
            cut: None,
            wrong: None,
            is_severed: false,
            in_flight: 0,
            writes: Vec::new(),
            dice: RandomSequence::new(0),
        };
        Self {
            inside: Mutex::new(inside),
            connections: watch::Sender::new(()),
            watches: watch::Sender::new(()),
            under_way: watch::Sender::new(0),
        }
    }
}

/// The decision about a request.
enum ProxyDecision {
    /// The request gets no answer.
    Lost,
    /// The proxy answers the request itself.
    Answered(Response),
    /// The proxy forwards the request and damages the answer.
    Damaged(ResponseFault),
    /// The proxy forwards the request.
    Passed {
        /// How long the proxy delays the answer.
        delay: Duration,
        /// If a cut was ordered for this request, the answer is lost. Contains the text of the request, and the channel to the
        /// test.
        cut: Option<(String, oneshot::Sender<String>)>,
    },
}

impl ApiRequestGate {
    fn inside(&self) -> MutexGuard<'_, ApiServerFaultProxyState> {
        self.inside.lock()
    }

    pub(super) fn set_fault(&self, fault: Option<ApiFault>) {
        {
            let mut inside = self.inside();
            inside.fault = fault.clone();
            inside.is_severed = false;
            inside.wrong = inside.wrong.take().filter(|_| fault.is_some());
        }
        match fault {
            Some(ApiFault::Gone) => self.drop_connections(),
            Some(ApiFault::Compacted(_) | ApiFault::Unavailable(_)) => self.end_watches(),
            Some(
                ApiFault::Slow(_)
                | ApiFault::Crowded { .. }
                | ApiFault::Refusing { .. }
                | ApiFault::FailingReviews { .. }
                | ApiFault::Unauthorized
                | ApiFault::Revoked(_),
            )
            | None => {}
        }
    }

    pub(super) fn cut_at(
        &self,
        number: usize,
        moment: ConnectionCutMoment,
    ) -> oneshot::Receiver<String> {
        let (tell, receiver) = oneshot::channel();
        let mut inside = self.inside();
        inside.writes.clear();
        inside.cut = Some(PendingConnectionCut { number, moment, tell });
        receiver
    }

    pub(super) fn answer_wrongly(&self, number: usize, fault: ResponseFault) {
        let order = PendingWrongAnswer { number, fault, requests: Vec::new(), request: None };
        self.inside().wrong = Some(order);
    }

    pub(super) fn requests_since_order(&self) -> Vec<String> {
        self.inside().wrong.as_ref().map(|order| order.requests.clone()).unwrap_or_default()
    }

    pub(super) fn wrong_request(&self) -> Option<String> {
        self.inside().wrong.as_ref()?.request.clone()
    }

    pub(super) fn writes(&self) -> Vec<String> {
        self.inside().writes.clone()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.inside().is_gone()
    }

    pub(super) fn end_watches(&self) {
        self.watches.send_replace(());
    }

    pub(super) fn drop_connections(&self) {
        self.connections.send_replace(());
    }

    /// Returns a future that ends when [`ApiRequestGate::drop_connections`] is called after this call.
    pub(super) fn next_end_of_connections(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.connections.subscribe();
        async move { end.changed().await.unwrap_or_default() }
    }

    fn next_end_of_watches(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.watches.subscribe();
        async move { end.changed().await.unwrap_or_default() }
    }

    pub(super) async fn await_writes_under_way(&self) {
        // This fails only if the gate no longer exists, and here the gate is borrowed.
        self.under_way.subscribe().wait_for(|count| *count == 0).await.ok();
    }

    /// Stops answering requests, and sends `request` to the test that ordered the cut.
    fn sever(&self, request: String, tell: oneshot::Sender<String>) {
        self.inside().is_severed = true;
        self.drop_connections();
        // The test may have dropped its [`super::ConnectionCutHandle`].
        tell.send(request).ok();
    }

    /// Counts a request and decides about it.
    fn judge(&self, request: &Request, sort: &ApiRequestProperties) -> ProxyDecision {
        let mut inside = self.inside();
        if inside.is_gone() {
            return ProxyDecision::Lost;
        }
        if let Some(answer) = inside.refuse(request, sort) {
            return ProxyDecision::Answered(answer);
        }
        let delay = match inside.fault {
            Some(ApiFault::Slow(delay) | ApiFault::Crowded { delay, .. }) => delay,
            _ => Duration::ZERO,
        };
        let request_line = format!("{} {}", request.method(), request.uri().path());
        let fault = inside.wrong_answer(&request_line, sort);
        if sort.is_write {
            inside.writes.push(request_line.clone());
        }
        if let Some(fault) = fault {
            return wrong(fault, sort);
        }
        if !sort.is_write {
            return ProxyDecision::Passed { delay, cut: None };
        }
        let count = inside.writes.len();
        let Some(cut) = inside.cut.take_if(|cut| cut.number == count) else {
            return ProxyDecision::Passed { delay, cut: None };
        };
        drop(inside);
        match cut.moment {
            ConnectionCutMoment::Before => {
                self.sever(request_line, cut.tell);
                ProxyDecision::Lost
            }
            ConnectionCutMoment::After => {
                ProxyDecision::Passed { delay, cut: Some((request_line, cut.tell)) }
            }
        }
    }
}

impl ApiServerFaultProxyState {
    fn is_gone(&self) -> bool {
        self.is_severed || self.fault == Some(ApiFault::Gone)
    }

    /// Counts a request to the API server. Returns the fault that its answer gets. `None` if the answer stays right.
    fn wrong_answer(
        &mut self,
        request_line: &str,
        sort: &ApiRequestProperties,
    ) -> Option<ResponseFault> {
        let order = self.wrong.as_mut().filter(|_| sort.is_counted)?;
        order.requests.push(request_line.to_owned());
        if order.requests.len() == order.number {
            order.request = Some(request_line.to_owned());
        }
        (order.request.as_deref() == Some(request_line)).then_some(order.fault)
    }

    /// The answer that the proxy gives in place of the API server because of the current fault. `None` if the request is
    /// forwarded.
    fn refuse(&mut self, request: &Request, sort: &ApiRequestProperties) -> Option<Response> {
        let bearer = || {
            let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
            value.strip_prefix("Bearer ")
        };
        match &self.fault {
            Some(ApiFault::Refusing { status, percent }) => {
                let status = *status;
                self.dice.chance(*percent).then(|| refusal(status))
            }
            Some(ApiFault::Crowded { at_once, .. }) => {
                // The request itself is in flight by now.
                let is_full = sort.watch_from.is_none() && self.in_flight > *at_once;
                is_full.then(|| refusal(429))
            }
            Some(ApiFault::Unavailable(end)) => {
                request.uri().path().ends_with(end.as_str()).then(|| refusal(503))
            }
            Some(ApiFault::FailingReviews { status }) => {
                request.uri().path().ends_with("accessreviews").then(|| refusal(*status))
            }
            Some(ApiFault::Unauthorized) => Some(refusal(401)),
            Some(ApiFault::Revoked(token)) => (bearer() == Some(token)).then(|| refusal(401)),
            Some(ApiFault::Compacted(before)) => {
                sort.watch_from.is_some_and(|from| from < *before).then(too_old)
            }
            Some(ApiFault::Gone | ApiFault::Slow(_)) | None => None,
        }
    }
}

/// The decision about a request that gets a wrong answer.
fn wrong(fault: ResponseFault, sort: &ApiRequestProperties) -> ProxyDecision {
    if let ResponseFault::Status(status) = fault {
        return ProxyDecision::Answered(refusal(status));
    }
    let replacement = match fault.replacement() {
        // The answer to a watch never completes, so the proxy answers at once without events.
        None if sort.watch_from.is_some() => ResponseFault::EmptyBody.replacement(),
        replacement => replacement,
    };
    replacement.map_or(ProxyDecision::Damaged(fault), ProxyDecision::Answered)
}

/// An error in the format of the API server.
fn refusal(status: u16) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match status {
        401 => "Unauthorized",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the test bed answers {status}"), "reason": reason, "code": status,
    });
    let mut answer = (code, axum::Json(body)).into_response();
    if status == 429 {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    answer
}

/// A watch whose history was compacted. The API server accepts the watch, and the first event contains the error.
fn too_old() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    let event = format!("{}\n", json!({"type": "ERROR", "object": status}));
    ([(header::CONTENT_TYPE, "application/json")], event).into_response()
}

/// Answers one request, or never returns if the answer is lost.
pub(super) async fn exchange(
    State((gate, upstream)): State<(Arc<ApiRequestGate>, ProxiedApiServerClient)>,
    request: Request,
) -> Response {
    let sort = ApiRequestProperties::of(request.method(), request.uri());
    let _in_flight = sort.watch_from.is_none().then(|| RequestInFlight::begin(&gate));
    match gate.judge(&request, &sort) {
        // The connection is being closed, which also ends this future.
        ProxyDecision::Lost => pending().await,
        ProxyDecision::Answered(answer) => answer,
        ProxyDecision::Damaged(fault) => {
            let answer = damaged(fault, &upstream, request).await;
            answer.unwrap_or_else(|error| unreachable(&error))
        }
        ProxyDecision::Passed { delay, cut } if sort.is_write => {
            gate.under_way.send_modify(|count| *count += 1);
            // The API server completes a write that it has received, even if the connection closes meanwhile.
            let work = write(gate, upstream, request, delay, cut);
            match tokio::spawn(work).await {
                Ok(Some(answer)) => answer,
                Ok(None) | Err(_) => pending().await,
            }
        }
        ProxyDecision::Passed { delay, .. } => {
            let is_watch = sort.watch_from.is_some();
            let answer = upstream.forward(request, is_watch).await;
            tokio::time::sleep(delay).await;
            match answer {
                Ok(answer) if is_watch => until_ended(&gate, answer),
                Ok(answer) => answer,
                Err(error) => unreachable(&error),
            }
        }
    }
}

/// Forwards a request and damages its answer.
async fn damaged(
    fault: ResponseFault,
    upstream: &ProxiedApiServerClient,
    mut request: Request,
) -> anyhow::Result<Response> {
    // A compressed list could not be shortened.
    request.headers_mut().remove(header::ACCEPT_ENCODING);
    let answer = upstream.forward(request, false).await?;
    Ok(fault.damage(answer).await?.0)
}

/// A request that is handled now. Dropping it ends that, also if the client no longer waits for the answer.
struct RequestInFlight(Arc<ApiRequestGate>);

impl RequestInFlight {
    fn begin(gate: &Arc<ApiRequestGate>) -> Self {
        gate.inside().in_flight += 1;
        Self(gate.clone())
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.inside().in_flight -= 1;
    }
}

/// Counts a write as answered when it is dropped, so it also works if the task of the write is cancelled.
struct WriteInProgress(Arc<ApiRequestGate>);

impl Drop for WriteInProgress {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

/// Forwards a write and holds its answer until it is complete. Returns `None` if the answer is lost.
async fn write(
    gate: Arc<ApiRequestGate>,
    upstream: ProxiedApiServerClient,
    request: Request,
    delay: Duration,
    cut: Option<(String, oneshot::Sender<String>)>,
) -> Option<Response> {
    let answer = {
        let _under_way = WriteInProgress(gate.clone());
        whole(upstream.forward(request, false).await)
            .await
            .unwrap_or_else(|error| unreachable(&error))
    };
    if let Some((request_line, tell)) = cut {
        gate.sever(request_line, tell);
        return None;
    }
    tokio::time::sleep(delay).await;
    Some(answer)
}

async fn whole(answer: anyhow::Result<axum::http::Response<Body>>) -> anyhow::Result<Response> {
    let (parts, body) = answer?.into_parts();
    let body = to_bytes(body, ANSWER_LIMIT).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// A watch that ends when the test ends all watches.
fn until_ended(gate: &ApiRequestGate, answer: Response) -> Response {
    let end = gate.next_end_of_watches();
    answer.map(|body| {
        let events = body.into_data_stream().take_until(Box::pin(end));
        // A watch may end at any time, so an interruption of the real watch also ends this one.
        let whole = events.take_while(|chunk| std::future::ready(chunk.is_ok()));
        Body::from_stream(whole.map(|chunk| Ok::<Bytes, Infallible>(chunk.unwrap_or_default())))
    })
}

/// The answer of the proxy if the real API server gave none.
fn unreachable(error: &anyhow::Error) -> Response {
    (StatusCode::BAD_GATEWAY, format!("the API server behind the proxy: {error:#}")).into_response()
}
