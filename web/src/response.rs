//! What is answered, and what every answer forbids a browser: scripts, frames, content of other servers, guessing types.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use super::style::AssetFile;

/// What a browser may load and do. There is no script at all, so that none can be smuggled in.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers of every answer.
fn restrictions() -> [(HeaderName, &'static str); 6] {
    [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]
}

/// HTML.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// JSON.
pub(crate) const JSON: &str = "application/json";

/// A page, as HTML or JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageAnswer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) text: String,
}

/// The answer with a page. Nothing keeps it: what it shows is as it was then, for one person.
pub(crate) fn of_page(answer: PageAnswer) -> Response {
    let PageAnswer { status, content_type, text } = answer;
    let mut response = plain(status, content_type, text);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// The answer with a file, which is kept: its path changes with it.
pub(crate) fn of_asset(file: &AssetFile) -> Response {
    let mut response = plain(StatusCode::OK, file.content_type, file.text.to_owned());
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, kept);
    response
}

/// The answer that gives a browser its cookie, and sends it to the first page.
pub(crate) fn of_login(cookie: &str) -> Response {
    let mut response = plain(StatusCode::SEE_OTHER, HTML, String::new());
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

fn plain(status: StatusCode, content_type: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
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
    fn every_answer_forbids_scripts_and_frames() {
        let page =
            PageAnswer { status: StatusCode::FORBIDDEN, content_type: HTML, text: String::new() };
        let file = AssetFile { content_type: "text/css; charset=utf-8", text: "" };
        for response in [of_page(page), of_asset(&file), of_login("a=b")] {
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let policy = header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("referrer-policy"), "no-referrer");
        }
        assert_eq!(of_login("a=b").headers()["set-cookie"], "a=b");
        assert_eq!(of_login("a=b").headers()["location"], "/");
    }
}
