//! The server of `windlass ui`. It listens on this machine only, and answers one browser.
//!
//! The server for a team (`multi_user_server.rs`) also uses parts of this file: finding the page of a request, reading forms, and
//! making pages and carrying out actions for one user. Pages are made on the thread of the command, a few at once. Further
//! requests wait in a queue, and a full queue refuses them. Open pages receive events about changes (`live_updates.rs`).
//! Elsewhere: which requests are answered (`request_guard.rs`), connections (`windlass_http_server`).

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;
use windlass_answers::command_scope::CommandScope;
use windlass_http_server::HttpListener;

use super::action_guard::ACTION_PATH;
use super::actions::{self, ActionForm, ActionReply};
use super::assets;
use super::frame::refusal;
use super::href::{Href, LIVE_PATH};
use super::live_updates::{self, MAX_WAITING_EVENTS, OpenPage};
use super::page_data_reader::PageDataReader;
use super::page_query::PageQuery;
use super::pages::{self, PageRequest};
use super::request_guard::{GuardVerdict, RequestGuard};
use super::response::{self, HTML, JSON, PageAnswer};
use super::route::Route;

/// How many pages are made at once. A browser has six connections, so its slow pages do not take all places.
const MAX_PAGES_AT_ONCE: usize = 8;

/// How many further requests may wait.
pub(crate) const MAX_WAITING_PAGES: usize = 32;

/// How many open pages are rendered again at once. New requests of users have separate places.
const MAX_RENEWALS_AT_ONCE: usize = 4;

/// How many open pages receive events at once. Further pages stay as they were when the user opened them.
const MAX_OPEN_PAGES: usize = 16;

/// The largest form, in bytes.
const MAX_FORM_BYTES: usize = 64 << 10;

/// How long a browser may take to send a form.
const FORM_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The header in which a reconnecting browser names the version that it shows.
const LAST_EVENT_ID: &str = "last-event-id";

/// How long making a page may take, including the requests to the API server.
pub(crate) const PAGE_TIME_LIMIT: Duration = Duration::from_secs(60);

/// A request of a browser, and the channel for the answer.
pub(crate) enum QueuedPageRequest {
    Once {
        page: PageRequest,
        reply: oneshot::Sender<PageAnswer>,
    },
    Open(OpenPage),
    Act {
        form: ActionForm,
        wants_json: bool,
        /// The permit of a user who has logged in, which is kept until the action ends.
        permit: Option<OwnedSemaphorePermit>,
        reply: oneshot::Sender<ActionReply>,
    },
}

/// The state that requests share.
struct ServerState {
    guard: RequestGuard,
    pages: mpsc::Sender<QueuedPageRequest>,
}

/// Serves pages on 127.0.0.1 to the browser that opens [`Self::address`] first.
pub struct LocalWebServer {
    listener: HttpListener,
    guard: RequestGuard,
}

impl LocalWebServer {
    /// Listens on a port of 127.0.0.1. If the port is 0, it chooses a free port.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn bind(port: u16) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = HttpListener::bind("pages", address).await?;
        let guard = RequestGuard::new(listener.address.port());
        Ok(Self { listener, guard })
    }

    /// The address that the user opens. It contains a secret that works once.
    pub fn address(&self) -> String {
        format!("http://{}{}", self.listener.address, self.guard.login_target())
    }

    /// Serves pages with the rights of the connection's user until `stop`, and carries out the actions of forms. `access` are
    /// the flags that a command needs to reach the same cluster as the same user.
    pub async fn serve(self, site: CommandScope, access: &[String], stop: CancellationToken) {
        let Self { listener, guard } = self;
        let (pages, orders) = mpsc::channel(MAX_WAITING_PAGES);
        let state = Arc::new(ServerState { guard, pages });
        let router = Router::new().fallback(move |request: Request| {
            let state = state.clone();
            async move { respond(&state, request).await }
        });
        let local = LocalSet::new();
        local
            .run_until(async {
                let reader = Rc::new(PageDataReader::new(site, access).await);
                let making = make_pages(reader.clone(), orders, stop.clone());
                tokio::select! {
                    () = listener.serve(router, stop) => {}
                    () = making => {}
                    () = reader.watcher.follow(&reader.site) => {}
                }
            })
            .await;
    }
}

/// Makes the requested pages.
async fn make_pages(
    reader: Rc<PageDataReader>,
    mut orders: mpsc::Receiver<QueuedPageRequest>,
    stop: CancellationToken,
) {
    let renderer = PageRenderer::new(reader, stop);
    while let Some(order) = orders.recv().await {
        renderer.take(order).await;
    }
}

/// Makes pages for one user. A page is given up if its browser disconnects. Event streams end at `stop`, because the server
/// waits for running requests before it exits.
pub(crate) struct PageRenderer {
    reader: Rc<PageDataReader>,
    permits: Arc<Semaphore>,
    renewals: Arc<Semaphore>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl PageRenderer {
    pub(crate) fn new(reader: Rc<PageDataReader>, stop: CancellationToken) -> Self {
        Self {
            reader,
            permits: Arc::new(Semaphore::new(MAX_PAGES_AT_ONCE)),
            renewals: Arc::new(Semaphore::new(MAX_RENEWALS_AT_ONCE)),
            places: Arc::new(Semaphore::new(MAX_OPEN_PAGES)),
            stop,
        }
    }

    /// Whether no page is being made, no page is open, and no plan of a branch is being made.
    pub(crate) fn is_idle(&self) -> bool {
        self.permits.available_permits() == MAX_PAGES_AT_ONCE
            && self.places.available_permits() == MAX_OPEN_PAGES
            && !self.reader.branch_plans.is_running()
    }

    /// Starts an order as soon as there is a free place.
    pub(crate) async fn take(&self, order: QueuedPageRequest) {
        let reader = self.reader.clone();
        match order {
            QueuedPageRequest::Once { page, reply } => {
                let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
                drop(spawn_local(async move {
                    make_page(&reader, &page, reply).await;
                    drop(permit);
                }));
            }
            QueuedPageRequest::Act { form, wants_json, permit: of_user, reply } => {
                let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
                drop(spawn_local(async move {
                    // An action that has begun continues even if the browser disconnects. An action that has not begun is
                    // dropped.
                    if !reply.is_closed() {
                        drop(reply.send(actions::perform(&reader, &form, wants_json).await));
                    }
                    drop((permit, of_user));
                }));
            }
            QueuedPageRequest::Open(open) => {
                let Ok(place) = self.places.clone().try_acquire_owned() else {
                    let why = "too many pages are open, so that this one is as it was read";
                    live_updates::refuse(&open, why);
                    return;
                };
                let renewals = self.renewals.clone();
                let stop = self.stop.clone();
                drop(spawn_local(async move {
                    tokio::select! {
                        () = live_updates::follow(&reader, &renewals, open) => {}
                        () = stop.cancelled() => {}
                    }
                    drop(place);
                }));
            }
        }
    }
}

async fn make_page(
    reader: &PageDataReader,
    page: &PageRequest,
    mut reply: oneshot::Sender<PageAnswer>,
) {
    let made = tokio::select! {
        made = tokio::time::timeout(PAGE_TIME_LIMIT, pages::answer(reader, page)) => Some(made),
        () = reply.closed() => None,
    };
    if let Some(made) = made {
        let answer = made.unwrap_or_else(|_elapsed| too_late(page.wants_json));
        drop(reply.send(answer));
    }
}

async fn respond(state: &ServerState, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match state.guard.judge(&head.method, &head.uri, &head.headers) {
        GuardVerdict::Login { cookie } => {
            let query = PageQuery::parse(head.uri.query().unwrap_or_default());
            return response::of_login(&cookie, &Href::page_at(query.get("return")));
        }
        GuardVerdict::Refused { status, text } => {
            return response::of_page(refused(status, text, wants_json(&head.headers)));
        }
        GuardVerdict::Allowed => {}
    }
    if head.method == Method::POST && head.uri.path() == ACTION_PATH {
        let order = |order| state.pages.try_send(order).is_ok();
        return match read_form(&head, body).await {
            Ok(form) => acted(&head, form, "`windlass ui` ends", order).await,
            Err(refusal) => response::of_page(refusal),
        };
    }
    if let Some(file) = assets::find(head.uri.path()) {
        return response::of_asset(&file);
    }
    answered(&head, "`windlass ui` ends", |order| state.pages.try_send(order).is_ok()).await
}

/// Answers a request for a page, or for the events of an open page. `order` hands the request to a reader, and returns false if
/// the queue is full. `ended` is the error text if the reader ends without an answer.
pub(crate) async fn answered(
    head: &Parts,
    ended: &str,
    order: impl FnOnce(QueuedPageRequest) -> bool,
) -> Response {
    if head.uri.path() == LIVE_PATH {
        return open(head, order);
    }
    let is_json = wants_json(&head.headers);
    let Some(route) = Route::parse(head.uri.path()) else {
        return response::of_page(refused(StatusCode::NOT_FOUND, "there is no such page", is_json));
    };
    let query = PageQuery::parse(head.uri.query().unwrap_or_default());
    let page = PageRequest { route, query, wants_json: is_json };
    let (reply, answer) = oneshot::channel();
    if !order(QueuedPageRequest::Once { page, reply }) {
        let text = "too many pages are being made; reload this one in a moment";
        return response::of_page(refused(StatusCode::SERVICE_UNAVAILABLE, text, is_json));
    }
    let answer = answer
        .await
        .unwrap_or_else(|_ended| refused(StatusCode::SERVICE_UNAVAILABLE, ended, is_json));
    response::of_page(answer)
}

/// Reads the form of an action from the body of a request. The error is the answer to a body that is not a form.
pub(crate) async fn read_form(head: &Parts, body: Body) -> Result<ActionForm, PageAnswer> {
    let not_read = |text: &str| refused(StatusCode::BAD_REQUEST, text, wants_json(&head.headers));
    let reading = tokio::time::timeout(FORM_TIME_LIMIT, to_bytes(body, MAX_FORM_BYTES)).await;
    let Ok(Ok(sent)) = reading else {
        return Err(not_read("the form is too large, or did not come in time"));
    };
    let fields = PageQuery::parse(&String::from_utf8_lossy(&sent));
    ActionForm::parse(&fields).ok_or_else(|| not_read("this is no form of a page of windlass"))
}

/// Carries out the action of a form. No other request can change anything. `order` and `ended` are those of [`answered`].
pub(crate) async fn acted(
    head: &Parts,
    form: ActionForm,
    ended: &str,
    order: impl FnOnce(QueuedPageRequest) -> bool,
) -> Response {
    let wants_json = wants_json(&head.headers);
    let (reply, answer) = oneshot::channel();
    if !order(QueuedPageRequest::Act { form, wants_json, permit: None, reply }) {
        let text =
            "too many pages are being made; nothing was done, send the form again in a moment";
        return response::of_page(refused(StatusCode::SERVICE_UNAVAILABLE, text, wants_json));
    }
    match answer.await {
        Ok(ActionReply::Done(page)) => response::of_done(&page),
        Ok(ActionReply::Refused(page)) => response::of_page(page),
        Err(_ended) => {
            let text = format!("{ended}; whether this was done is not known");
            response::of_page(refused(StatusCode::SERVICE_UNAVAILABLE, &text, wants_json))
        }
    }
}

/// The event stream of the page that a query names.
fn open(head: &Parts, order: impl FnOnce(QueuedPageRequest) -> bool) -> Response {
    let query = PageQuery::parse(head.uri.query().unwrap_or_default());
    let (path, of_page) = query.get("page").split_once('?').unwrap_or((query.get("page"), ""));
    let Some(route) = Route::parse(path).filter(live_updates::is_live) else {
        return response::of_page(refused(StatusCode::NOT_FOUND, "there is no such page", false));
    };
    // The version that the browser shows, if it was connected before.
    let version = head.headers.get(LAST_EVENT_ID).and_then(|it| it.to_str().ok());
    let version = version.unwrap_or(query.get("at")).to_owned();
    let page = PageRequest { route, query: PageQuery::parse(of_page), wants_json: false };
    let (events, received) = mpsc::channel(MAX_WAITING_EVENTS);
    let open = OpenPage { page, version, events };
    if !order(QueuedPageRequest::Open(open)) {
        let text = "too many pages are being made";
        return response::of_page(refused(StatusCode::SERVICE_UNAVAILABLE, text, false));
    }
    response::of_events(received)
}

/// Whether the client asks for JSON instead of HTML.
pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let kinds: Vec<&str> = accepts
        .flat_map(|line| line.split(','))
        .filter_map(|kind| kind.split(';').next())
        .map(str::trim)
        .collect();
    kinds.contains(&JSON) && !kinds.contains(&"text/html")
}

/// An error response without a page.
pub(crate) fn refused(status: StatusCode, text: &str, is_json: bool) -> PageAnswer {
    match is_json {
        true => PageAnswer {
            status,
            content_type: JSON,
            text: format!("{}\n", serde_json::json!({"error": text})),
        },
        false => {
            let title = status.canonical_reason().unwrap_or("Not possible");
            PageAnswer { status, content_type: HTML, text: refusal(title, text) }
        }
    }
}

fn too_late(is_json: bool) -> PageAnswer {
    let text = format!(
        "the API server has not responded within {} s; what this page shows is not known",
        PAGE_TIME_LIMIT.as_secs()
    );
    refused(StatusCode::GATEWAY_TIMEOUT, &text, is_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_pages_and_programs_json() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            wants_json(&headers)
        };
        assert!(wants("application/json") && wants("application/json;q=0.9, */*;q=0.1"));
        for accept in ["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "*/*"] {
            assert!(!wants(accept), "{accept}");
        }
        assert!(!wants("text/html, application/json") && !wants_json(&HeaderMap::new()));
    }

    #[test]
    fn what_is_refused_is_escaped_in_both_forms() {
        let page = refused(StatusCode::FORBIDDEN, "<script>", false);
        assert!(page.text.contains("<h1>Forbidden</h1><p>&lt;script&gt;</p>"), "{}", page.text);
        let json = refused(StatusCode::FORBIDDEN, "a \"b\"", true);
        assert_eq!(json.text, "{\"error\":\"a \\\"b\\\"\"}\n");
    }
}
