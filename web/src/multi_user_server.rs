//! The web server for a team. Users log in, read pages, and send forms, all with their own rights.
//!
//! Each page is read, and each action is carried out, with the token of its user, which the API server verifies. The rights of
//! this process are used for one request only: reading the Secret of a source whose branch the user may plan. Replicas do not
//! need each other.
//! Elsewhere: logins (`login.rs`), the checks of requests (`multi_user_request_guard.rs`), readers (`session_readers.rs`), the parts shared
//! with `windlass ui` (`local_server.rs`).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use http_client::EgressRules;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;
use windlass_cluster::ClusterConnection;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_http_server::HttpListener;

use super::action_guard::ACTION_PATH;
use super::assets;
use super::branch_plans::BranchPlanService;
use super::frame;
use super::href::{Href, LIVE_PATH};
use super::local_server::{QueuedPageRequest, acted, answered, read_form, refused, wants_json};
use super::login::{
    self, CALLBACK_PATH, LOGIN_PATH, LOGOUT_PATH, LoginOptions, LoginRedirect, LoginRefusal,
    LoginService, NAMESPACE_PATH, UserSession, chosen_namespace, namespace_cookie,
};
use super::multi_user_request_guard::MultiUserRequestGuard;
use super::page_query::PageQuery;
use super::request_guard::GuardVerdict;
use super::response::{self, HTML, PageAnswer};
use super::session_readers::{SessionPageRequest, SessionReaderMessage, SessionReaders};

/// How many requests of all users may wait until they are handed to a reader.
const MAX_WAITING_ORDERS: usize = 64;

/// The state that requests share.
struct MultiUserServerState {
    guard: MultiUserRequestGuard,
    login: LoginService,
    readers: mpsc::Sender<SessionReaderMessage>,
}

/// Serves pages to users who log in at an OpenID Connect issuer. The API server has to trust the same issuer.
pub struct MultiUserWebServer {
    listener: HttpListener,
    guard: MultiUserRequestGuard,
    login: LoginService,
    max_users: usize,
}

impl MultiUserWebServer {
    /// Listens on an address, for a limited number of users at once. It sends no request to the issuer yet.
    ///
    /// # Errors
    /// The address is in use, or a setting of logins cannot be used.
    pub async fn bind(
        address: SocketAddr,
        login: LoginOptions,
        max_users: usize,
    ) -> anyhow::Result<Self> {
        let guard = MultiUserRequestGuard::new(&login::base_url(&login.base_url)?);
        let login = LoginService::new(login)?;
        let listener = HttpListener::bind("pages", address).await?;
        Ok(Self { listener, guard, login, max_users })
    }

    /// Serves until `stop`. It reads, and carries out the actions of forms, with the tokens of users. From `cluster`, it uses
    /// the address of the API server and its authorities. Over `cluster` itself, it reads only the Secrets of a source whose
    /// branch a user may plan, and only if this user may not read them. Sources are fetched from servers that `egress` admits.
    /// The future is not `Send`, so it has to stay on one thread.
    pub async fn serve(
        self,
        cluster: ClusterConnection,
        egress: EgressRules,
        metrics: Arc<MetricsRegistry>,
        stop: CancellationToken,
    ) {
        let Self { listener, guard, login, max_users } = self;
        let (readers, orders) = mpsc::channel(MAX_WAITING_ORDERS);
        let state = Arc::new(MultiUserServerState { guard, login, readers });
        let router = Router::new().fallback(move |request: Request| {
            let state = state.clone();
            async move { respond(&state, request).await }
        });
        let plans = BranchPlanService::new(egress, Some(cluster.clone()));
        let sessions = SessionReaders::new(cluster, plans, metrics, max_users, stop.clone());
        LocalSet::new()
            .run_until(async {
                tokio::join!(listener.serve_behind_proxy(router, stop), sessions.serve(orders));
            })
            .await;
    }
}

async fn respond(state: &MultiUserServerState, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let is_json = wants_json(&head.headers);
    if let GuardVerdict::Refused { status, text } =
        state.guard.judge(&head.method, &head.uri, &head.headers)
    {
        return response::of_page(refused(status, text, is_json));
    }
    let path = head.uri.path();
    if let Some(file) = assets::find(path) {
        return response::of_asset(&file);
    }
    let now = Timestamp::now().as_second();
    let query = PageQuery::parse(head.uri.query().unwrap_or_default());
    match path {
        LOGIN_PATH => to_issuer(state.login.begin(query.get("return"), now).await, is_json),
        CALLBACK_PATH => of_step(state.login.finish(&head.headers, &query, now).await, is_json),
        LOGOUT_PATH => log_out(state, &head, now).await,
        NAMESPACE_PATH => response::of_redirect("/", &[namespace_cookie(query.get("name"))]),
        ACTION_PATH if head.method == Method::POST => act(state, &head, body, now).await,
        _ => page(state, &head, now).await,
    }
}

/// The page for the user of a request. Without a session, the user has to log in first.
async fn page(state: &MultiUserServerState, head: &Parts, now: i64) -> Response {
    let is_json = wants_json(&head.headers);
    let Some(session) = state.login.session(&head.headers, now) else {
        if is_json || head.uri.path() == LIVE_PATH || head.method != Method::GET {
            return response::of_page(refused(StatusCode::UNAUTHORIZED, "log in first", is_json));
        }
        let wanted = head.uri.path_and_query().map_or("/", |it| it.as_str());
        return response::of_redirect(Href::login(wanted).as_str(), &[]);
    };
    let ended = "the session has ended, or too much is asked for; reload this page";
    answered(head, ended, |order| is_handed(state, head, session, order)).await
}

/// Carries out the action of a form with the token of its user. Without a session, nothing is read of the form.
async fn act(state: &MultiUserServerState, head: &Parts, body: Body, now: i64) -> Response {
    if state.login.session(&head.headers, now).is_none() {
        return response::of_page(without_session(state, head));
    }
    let form = match read_form(head, body).await {
        Ok(form) => form,
        Err(refusal) => return response::of_page(refusal),
    };
    // The session may have ended while the form was received.
    let now = Timestamp::now().as_second();
    let Some(session) = state.login.session(&head.headers, now) else {
        return response::of_page(without_session(state, head));
    };
    let ended = "the session has ended, or too much is asked for";
    acted(head, form, ended, |order| is_handed(state, head, session, order)).await
}

/// The answer to a form whose session has ended.
fn without_session(state: &MultiUserServerState, head: &Parts) -> PageAnswer {
    let status = StatusCode::UNAUTHORIZED;
    if wants_json(&head.headers) {
        return refused(status, "the session has ended, and nothing was done: log in again", true);
    }
    let login = Href::login(state.guard.page_before(&head.headers).as_str());
    PageAnswer { status, content_type: HTML, text: frame::no_session(&login) }
}

/// Hands a request to the readers of its session. Returns false if too many requests wait for that.
fn is_handed(
    state: &MultiUserServerState,
    head: &Parts,
    session: UserSession,
    order: QueuedPageRequest,
) -> bool {
    let namespace = chosen_namespace(&head.headers);
    let page = SessionPageRequest { session, namespace, order };
    state.readers.try_send(SessionReaderMessage::Page(Box::new(page))).is_ok()
}

async fn log_out(state: &MultiUserServerState, head: &Parts, now: i64) -> Response {
    let session = state.login.session(&head.headers, now);
    let cookies = state.login.end(session.as_ref(), now);
    if let Some(session) = session {
        // The open pages of the session end. The message fails only if there are no readers and so no open pages.
        drop(state.readers.send(SessionReaderMessage::End { session: session.id }).await);
    }
    let text = "This browser has no session any more. The issuer may still know you: log out there, too, on a machine of others.";
    with_page(frame::refusal("Logged out", text), &cookies)
}

/// The response that redirects a browser to the issuer.
fn to_issuer(step: Result<LoginRedirect, LoginRefusal>, is_json: bool) -> Response {
    match step {
        Ok(LoginRedirect { location, cookies }) => match Href::outside(&location) {
            Some(link) => with_page(frame::onward(&link), &cookies),
            None => {
                let text = "the issuer of logins has no address of the web";
                response::of_page(refused(StatusCode::BAD_GATEWAY, text, is_json))
            }
        },
        Err(refusal) => of_step(Err(refusal), is_json),
    }
}

fn with_page(text: String, cookies: &[String]) -> Response {
    let page = PageAnswer { status: StatusCode::OK, content_type: HTML, text };
    response::with_cookies(response::of_page(page), cookies)
}

fn of_step(step: Result<LoginRedirect, LoginRefusal>, is_json: bool) -> Response {
    match step {
        Ok(LoginRedirect { location, cookies }) => response::of_redirect(&location, &cookies),
        Err(LoginRefusal { status, text }) => response::of_page(refused(status, &text, is_json)),
    }
}

#[cfg(test)]
mod tests;
