//! The checks of the team server before it looks for a session. A request has to name the server's own address, and may only
//! read or log out.
//!
//! A flag gives the address of the server. The header `X-Forwarded-Host` of a proxy is never used.
//! Elsewhere: sessions (`login.rs`), the guard of `windlass ui` (`guard.rs`).

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use url::Url;

use super::guard::{GuardVerdict, is_embedded_elsewhere, names_server, refused};
use super::login::{LOGOUT_PATH, NAMESPACE_PATH};

/// The host name that requests have to contain.
pub(crate) struct TeamGuard {
    /// Host and port as browsers write them.
    authority: String,
    origin: String,
}

impl TeamGuard {
    /// Makes the guard of a server at an address.
    pub(crate) fn new(base: &Url) -> Self {
        let origin = base.origin().ascii_serialization();
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        Self { authority: authority.to_owned(), origin }
    }

    /// Decides about a request without its cookies and its body.
    pub(crate) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> GuardVerdict {
        let is_ours = |text: &str| text.eq_ignore_ascii_case(&self.authority);
        if !names_server(uri, headers, is_ours) {
            let text = "this is not the address of the pages (--web-url)";
            return refused(StatusCode::MISDIRECTED_REQUEST, text);
        }
        let foreign = "a page of another server asks for this one";
        if is_embedded_elsewhere(headers) {
            return refused(StatusCode::FORBIDDEN, foreign);
        }
        match *method {
            // A link on another site must not change the namespace that the user chose.
            Method::GET if uri.path() == NAMESPACE_PATH && !is_from_here(headers) => {
                refused(StatusCode::FORBIDDEN, foreign)
            }
            Method::GET | Method::HEAD if uri.path() != LOGOUT_PATH => GuardVerdict::Allowed,
            Method::POST if uri.path() == LOGOUT_PATH => match self.is_of_origin(headers) {
                true => GuardVerdict::Allowed,
                false => refused(StatusCode::FORBIDDEN, foreign),
            },
            _ => refused(StatusCode::METHOD_NOT_ALLOWED, "pages can only be read"),
        }
    }

    /// Whether a page of this server sent the form, according to the browser. A request without the header `Origin` does not
    /// come from a form in a browser.
    fn is_of_origin(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_own = origins.next().is_some_and(|it| it.as_bytes() == self.origin.as_bytes());
        is_own && origins.next().is_none() && is_from_here(headers)
    }
}

/// Whether the browser gives no sign that a page of another server caused the request.
fn is_from_here(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_none_or(|it| matches!(it.as_bytes(), b"same-origin" | b"none"))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn judged(method: &str, target: &str, lines: &[(&'static str, &str)]) -> u16 {
        let guard = TeamGuard::new(&Url::parse("https://windlass.example").unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        match guard.judge(&method, &target.parse().unwrap(), &headers) {
            GuardVerdict::Allowed => 200,
            GuardVerdict::Refused { status, .. } => status.as_u16(),
            GuardVerdict::Login { .. } => 303,
        }
    }

    const HOST: (&str, &str) = ("host", "windlass.example");
    const OWN: (&str, &str) = ("origin", "https://windlass.example");

    #[test]
    fn only_the_address_of_the_flag_is_answered() {
        assert_eq!(judged("GET", "/", &[HOST]), 200);
        assert_eq!(judged("GET", "/", &[("host", "Windlass.Example")]), 200);
        for host in [
            "",
            "evil.example",
            "windlass.example:8080",
            "windlass.example.evil.example",
            "10.0.0.7",
        ] {
            assert_eq!(judged("GET", "/", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(judged("GET", "/", &[]), 421);
        assert_eq!(judged("GET", "/", &[HOST, HOST]), 421);
        assert_eq!(judged("GET", "http://evil.example/", &[HOST]), 421);
        let forwarded = ("x-forwarded-host", "windlass.example");
        assert_eq!(judged("GET", "/", &[("host", "evil.example"), forwarded]), 421);
        assert_eq!(judged("GET", "/", &[HOST, ("x-forwarded-host", "evil.example")]), 200);
    }

    #[test]
    fn other_sites_may_link_to_pages_and_do_nothing_else() {
        let cross = ("sec-fetch-site", "cross-site");
        let document = ("sec-fetch-dest", "document");
        assert_eq!(judged("GET", "/callback?code=a", &[HOST, cross, document]), 200);
        assert_eq!(judged("GET", "/", &[HOST, cross, ("sec-fetch-dest", "iframe")]), 403);
        assert_eq!(judged("GET", "/_/live", &[HOST, cross, ("sec-fetch-dest", "empty")]), 403);
        assert_eq!(judged("GET", "/namespace?name=a", &[HOST, cross, document]), 403);
        assert_eq!(
            judged("GET", "/namespace?name=a", &[HOST, ("sec-fetch-site", "same-origin")]),
            200
        );
    }

    #[test]
    fn a_logout_is_a_form_of_this_server_and_nothing_else_is_written() {
        assert_eq!(judged("POST", "/logout", &[HOST, OWN]), 200);
        assert_eq!(judged("POST", "/logout", &[HOST, OWN, ("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(judged("POST", "/logout", &[HOST]), 403);
        assert_eq!(judged("POST", "/logout", &[HOST, OWN, OWN]), 403);
        assert_eq!(judged("POST", "/logout", &[HOST, OWN, ("sec-fetch-site", "same-site")]), 403);
        for origin in [
            "null",
            "https://evil.example",
            "http://windlass.example",
            "https://windlass.example:1",
        ] {
            assert_eq!(judged("POST", "/logout", &[HOST, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(judged("GET", "/logout", &[HOST]), 405);
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_eq!(judged(method, "/objects", &[HOST, OWN]), 405, "{method}");
        }
    }
}
