//! The checks of the team server before it looks for a session. A request has to name the server's own address. Only forms of
//! its own pages may change something or log out, and all other requests only read.
//!
//! A flag gives the address of the server. The header `X-Forwarded-Host` of a proxy is never used.
//! Elsewhere: sessions (`login.rs`), whether a form is of a page (`action_guard.rs`), whether it is of a page of this session
//! (`actions/form_seal.rs`), the guard of `windlass ui` (`request_guard.rs`).

use axum::http::header::REFERER;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use url::Url;

use super::action_guard::{self, ACTION_PATH};
use super::href::Href;
use super::login::{LOGOUT_PATH, NAMESPACE_PATH};
use super::request_guard::{GuardVerdict, is_embedded_elsewhere, names_server, refused};

/// The host name that requests have to contain.
pub(crate) struct MultiUserRequestGuard {
    /// Host and port as browsers write them.
    authority: String,
    origin: String,
}

impl MultiUserRequestGuard {
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
            Method::GET | Method::HEAD
                if uri.path() == NAMESPACE_PATH && !is_from_here(headers) =>
            {
                refused(StatusCode::FORBIDDEN, foreign)
            }
            Method::GET | Method::HEAD if uri.path() != LOGOUT_PATH => GuardVerdict::Allowed,
            Method::POST if uri.path() == ACTION_PATH => {
                match action_guard::refusal(headers, &self.origin) {
                    None => GuardVerdict::Allowed,
                    Some(text) => refused(StatusCode::FORBIDDEN, text),
                }
            }
            Method::POST if uri.path() == LOGOUT_PATH => {
                match action_guard::is_of_own_page(headers, &self.origin) {
                    true => GuardVerdict::Allowed,
                    false => refused(StatusCode::FORBIDDEN, foreign),
                }
            }
            _ => refused(StatusCode::METHOD_NOT_ALLOWED, "pages can only be read"),
        }
    }

    /// The page of this server from which a request comes, according to the browser. It is the first page if the browser does
    /// not say so.
    pub(crate) fn page_before(&self, headers: &HeaderMap) -> Href {
        let referer = headers.get(REFERER).and_then(|it| it.to_str().ok()).unwrap_or_default();
        Href::page_at(referer.strip_prefix(self.origin.as_str()).unwrap_or_default())
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
        let guard = MultiUserRequestGuard::new(&Url::parse("https://windlass.example").unwrap());
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
        assert_eq!(judged("HEAD", "/namespace?name=a", &[HOST, cross, document]), 403);
        assert_eq!(
            judged("GET", "/namespace?name=a", &[HOST, ("sec-fetch-site", "same-origin")]),
            200
        );
    }

    #[test]
    fn an_action_is_a_form_of_this_server() {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let own = [HOST, OWN, kind];
        assert_eq!(judged("POST", "/_/act", &own), 200);
        let with = |line| [own.as_slice(), &[line]].concat();
        assert_eq!(judged("POST", "/_/act", &with(("sec-fetch-site", "same-origin"))), 200);
        for site in ["same-site", "cross-site", "none"] {
            assert_eq!(judged("POST", "/_/act", &with(("sec-fetch-site", site))), 403, "{site}");
        }
        assert_eq!(judged("POST", "/_/act", &with(OWN)), 403);
        assert_eq!(judged("POST", "/_/act", &[HOST, OWN]), 403);
        assert_eq!(judged("POST", "/_/act", &[HOST, OWN, ("content-type", "text/plain")]), 403);
        assert_eq!(judged("POST", "/_/act", &[HOST, kind]), 403);
        for origin in [
            "null",
            "https://evil.example",
            "https://a.windlass.example",
            "http://windlass.example",
            "https://windlass.example:1",
            "https://windlass.example.evil.example",
        ] {
            assert_eq!(
                judged("POST", "/_/act", &[HOST, ("origin", origin), kind]),
                403,
                "{origin}"
            );
        }
        assert_eq!(judged("PUT", "/_/act", &own), 405);
    }

    #[test]
    fn a_login_returns_to_the_page_of_the_form_and_to_no_other_server() {
        let guard = MultiUserRequestGuard::new(&Url::parse("https://windlass.example").unwrap());
        let page = |referer: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REFERER, HeaderValue::from_str(referer).unwrap());
            guard.page_before(&headers).as_str().to_owned()
        };
        assert_eq!(page("https://windlass.example/o/ks/apps/web"), "/o/ks/apps/web");
        for other in [
            "",
            "https://evil.example/o/ks/apps/web",
            "https://windlass.example.evil.example/o/ks/apps/web",
            "https://windlass.example//evil.example",
            "/o/ks/apps/web",
        ] {
            assert_eq!(page(other), "/", "{other}");
        }
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
