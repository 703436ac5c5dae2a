//! The web server for a team. Users log in, and read pages with their own rights.
//!
//! Each page is read with the token of its user, which the API server verifies. Pages never use the rights of this process.
//! Replicas do not need each other. Elsewhere: logins (`login.rs`), the checks of requests (`team_guard.rs`), readers
//! (`session_readers.rs`), the parts shared with `windlass ui` (`server.rs`).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;
use windlass_cluster::ClusterConnection;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_http_server::HttpListener;

use super::assets;
use super::frame;
use super::guard::GuardVerdict;
use super::href::{Href, LIVE_PATH};
use super::login::{
    self, CALLBACK_PATH, LOGIN_PATH, LOGOUT_PATH, LoginOptions, LoginRefusal, LoginService,
    LoginStep, NAMESPACE_PATH, chosen_namespace, namespace_cookie,
};
use super::page_query::PageQuery;
use super::response::{self, HTML, PageAnswer};
use super::server::{answered, refused, wants_json};
use super::session_readers::{ReaderOrder, SessionPage, SessionReaders};
use super::team_guard::TeamGuard;

/// How many requests of all users may wait until they are handed to a reader.
const MAX_WAITING_ORDERS: usize = 64;

/// The state that requests share.
struct TeamServerState {
    guard: TeamGuard,
    login: LoginService,
    readers: mpsc::Sender<ReaderOrder>,
}

/// Serves pages to users who log in at an OpenID Connect issuer. The API server has to trust the same issuer.
pub struct TeamWebServer {
    listener: HttpListener,
    guard: TeamGuard,
    login: LoginService,
    max_users: usize,
}

impl TeamWebServer {
    /// Listens on an address, for a limited number of users at once. It sends no request to the issuer yet.
    ///
    /// # Errors
    /// The address is in use, or a setting of logins cannot be used.
    pub async fn bind(
        address: SocketAddr,
        login: LoginOptions,
        max_users: usize,
    ) -> anyhow::Result<Self> {
        let guard = TeamGuard::new(&login::base_url(&login.base_url)?);
        let login = LoginService::new(login)?;
        let listener = HttpListener::bind("pages", address).await?;
        Ok(Self { listener, guard, login, max_users })
    }

    /// Serves until `stop`. It only reads, with the tokens of users. From `cluster`, it uses only the address of the API server
    /// and its authorities. The future is not `Send`, so it has to stay on one thread.
    pub async fn serve(
        self,
        cluster: ClusterConnection,
        metrics: Arc<MetricsRegistry>,
        stop: CancellationToken,
    ) {
        let Self { listener, guard, login, max_users } = self;
        let (readers, orders) = mpsc::channel(MAX_WAITING_ORDERS);
        let state = Arc::new(TeamServerState { guard, login, readers });
        let router = Router::new().fallback(move |request: Request| {
            let state = state.clone();
            async move { respond(&state, request).await }
        });
        let sessions = SessionReaders::new(cluster, metrics, max_users, stop.clone());
        LocalSet::new()
            .run_until(async {
                tokio::join!(listener.serve_behind_proxy(router, stop), sessions.serve(orders));
            })
            .await;
    }
}

async fn respond(state: &TeamServerState, request: Request) -> Response {
    let (head, _) = request.into_parts();
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
        _ => page(state, &head, now).await,
    }
}

/// The page for the user of a request. Without a session, the user has to log in first.
async fn page(state: &TeamServerState, head: &Parts, now: i64) -> Response {
    let is_json = wants_json(&head.headers);
    let Some(session) = state.login.session(&head.headers, now) else {
        if is_json || head.uri.path() == LIVE_PATH || head.method != Method::GET {
            return response::of_page(refused(StatusCode::UNAUTHORIZED, "log in first", is_json));
        }
        let wanted = head.uri.path_and_query().map_or("/", |it| it.as_str());
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("return", wanted);
        return response::of_redirect(&format!("{LOGIN_PATH}?{}", query.finish()), &[]);
    };
    let namespace = chosen_namespace(&head.headers);
    let order = |order| {
        let page = SessionPage { session, namespace, order };
        state.readers.try_send(ReaderOrder::Page(Box::new(page))).is_ok()
    };
    answered(head, "the session has ended, or too much is asked for; reload this page", order).await
}

async fn log_out(state: &TeamServerState, head: &Parts, now: i64) -> Response {
    let session = state.login.session(&head.headers, now);
    let cookies = state.login.end(session.as_ref(), now);
    if let Some(session) = session {
        // The open pages of the session end. The message fails only if there are no readers and so no open pages.
        drop(state.readers.send(ReaderOrder::End { session: session.id }).await);
    }
    let text = "This browser has no session any more. The issuer may still know you: log out there, too, on a machine of others.";
    with_page(frame::refusal("Logged out", text), &cookies)
}

/// The response that redirects a browser to the issuer.
fn to_issuer(step: Result<LoginStep, LoginRefusal>, is_json: bool) -> Response {
    match step {
        Ok(LoginStep { location, cookies }) => match Href::outside(&location) {
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

fn of_step(step: Result<LoginStep, LoginRefusal>, is_json: bool) -> Response {
    match step {
        Ok(LoginStep { location, cookies }) => response::of_redirect(&location, &cookies),
        Err(LoginRefusal { status, text }) => response::of_page(refused(status, &text, is_json)),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header::{HOST, LOCATION};

    use super::*;

    fn state() -> TeamServerState {
        let login = LoginOptions {
            base_url: "https://windlass.example".to_owned(),
            issuer: "https://127.0.0.1:1".to_owned(),
            client_id: "windlass".to_owned(),
            client_secret: None,
            authorities: None,
            scopes: Vec::new(),
            session_key: None,
        };
        let guard = TeamGuard::new(&login::base_url(&login.base_url).unwrap());
        // This channel has no receiver, so requests for pages are dropped. No test needs them.
        let (readers, _) = mpsc::channel(1);
        TeamServerState { guard, login: LoginService::new(login).unwrap(), readers }
    }

    async fn answer(target: &str, lines: &[(&str, &str)]) -> Response {
        let mut request = Request::get(target).header(HOST, "windlass.example");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        respond(&state(), request.body(Body::empty()).unwrap()).await
    }

    #[tokio::test]
    async fn without_a_session_there_is_no_page_and_a_browser_is_sent_to_log_in() {
        let page = answer("/objects?q=a&ns=b", &[]).await;
        assert_eq!(page.status(), StatusCode::SEE_OTHER);
        assert_eq!(page.headers()[LOCATION], "/login?return=%2Fobjects%3Fq%3Da%26ns%3Db");
        let json = answer("/objects", &[("accept", "application/json")]).await;
        assert_eq!(json.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(answer("/_/live?page=/", &[]).await.status(), StatusCode::UNAUTHORIZED);
        let forged = [("cookie", "__Host-windlass-session-0=AAAA")];
        assert_eq!(answer("/me", &forged).await.status(), StatusCode::SEE_OTHER);
        let style = answer(assets::style_path(), &[]).await;
        assert_eq!(style.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn an_issuer_that_is_away_and_a_callback_without_login_are_refused() {
        assert_eq!(answer("/login", &[]).await.status(), StatusCode::BAD_GATEWAY);
        let forged = answer("/callback?code=a&state=b", &[]).await;
        assert_eq!(forged.status(), StatusCode::FORBIDDEN);
        assert!(forged.headers()["content-security-policy"].to_str().unwrap().contains("'none'"));
    }
}
