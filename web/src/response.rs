//! The responses of the server, and the restrictions that every response sets for the browser. They forbid scripts except from
//! files of this server, frames, content of other servers, and guessing of content types.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures::stream;
use tokio::sync::mpsc;

use super::assets::AssetFile;
use super::href::Href;

/// The Content-Security-Policy. Scripts may come only from files of this server. They may make HTML from text only through the
/// one Trusted Types policy of `assets/live.js`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types windlass";

/// The policy lets browsers send the origin of a form to this server. Other servers receive no referrer.
const REFERRER_RULE: &str = "same-origin";

/// The headers of every response.
fn restrictions() -> [(HeaderName, &'static str); 6] {
    [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, REFERRER_RULE),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]
}

/// The content type of pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The content type of event streams.
const EVENT_STREAM: &str = "text/event-stream";

/// The content type of JSON.
pub(crate) const JSON: &str = "application/json";

/// A page, as HTML or JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageAnswer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) text: String,
}

/// The response with a page. Browsers and proxies may not store it, because it contains one user's current data.
pub(crate) fn of_page(answer: PageAnswer) -> Response {
    let PageAnswer { status, content_type, text } = answer;
    let mut response = plain(status, content_type, text.into());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status == StatusCode::UNAUTHORIZED {
        // The API server rejected the credentials of the kubeconfig.
        // Browsers do not know this scheme, so they ask for no password.
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("kubeconfig"));
    }
    response
}

/// The response with a stream of events. A header tells proxies not to buffer it.
pub(crate) fn of_events(events: mpsc::Receiver<String>) -> Response {
    let events = stream::unfold(events, |mut events| async move {
        events.recv().await.map(|event| (Ok::<String, Infallible>(event), events))
    });
    let mut response = plain(StatusCode::OK, EVENT_STREAM, Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The response with a static file. Browsers may cache it, because the path changes with the content.
pub(crate) fn of_asset(file: &AssetFile) -> Response {
    let mut response = plain(StatusCode::OK, file.content_type, file.text.into());
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, kept);
    response
}

/// The response that gives a browser its cookie, and redirects it to a page.
pub(crate) fn of_login(cookie: &str, page: &Href) -> Response {
    of_redirect(page.as_str(), &[cookie.to_owned()])
}

/// The response that redirects a browser and sets cookies. It is an error if the address does not fit into a header.
pub(crate) fn of_redirect(location: &str, cookies: &[String]) -> Response {
    let mut response = plain(StatusCode::SEE_OTHER, HTML, Body::empty());
    match HeaderValue::from_str(location) {
        Ok(location) => drop(response.headers_mut().insert(LOCATION, location)),
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    with_cookies(response, cookies)
}

/// The response after an action. The browser loads the page that shows the result.
pub(crate) fn of_done(page: &Href) -> Response {
    of_redirect(page.as_str(), &[])
}

/// Adds cookies to a response, or removes them from the browser.
pub(crate) fn with_cookies(mut response: Response, cookies: &[String]) -> Response {
    for cookie in cookies.iter().filter_map(|it| HeaderValue::from_str(it).ok()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn plain(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in restrictions() {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_forbids_frames_and_all_scripts_but_files_of_this_server() {
        let page =
            PageAnswer { status: StatusCode::FORBIDDEN, content_type: HTML, text: String::new() };
        let file = AssetFile { content_type: "text/css; charset=utf-8", text: "" };
        let (_, events) = mpsc::channel(1);
        let first = Href::page_at("/");
        let login = of_login("a=b", &first);
        for response in [of_page(page), of_asset(&file), login, of_events(events)] {
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let policy = header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(policy.contains("script-src 'self'; "), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            assert!(policy.ends_with("require-trusted-types-for 'script'; trusted-types windlass"));
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(
                header("referrer-policy"),
                "same-origin",
                "else forms come from the origin null"
            );
        }
        assert_eq!(of_login("a=b", &first).headers()["set-cookie"], "a=b");
        assert_eq!(of_login("a=b", &first).headers()["location"], "/");
    }
}
