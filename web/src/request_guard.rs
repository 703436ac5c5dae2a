//! Decides which requests `windlass ui` answers: only those of the browser that the user opened, with a name of this machine.
//! All requests except forms only read.
//!
//! Another web page can send requests to 127.0.0.1, and an attacker's host name can resolve to that address (DNS rebinding). So
//! the header `Host` and a cookie are checked before anything is read. Requests from other sites do not carry this cookie.
//! Elsewhere: which requests may change something (`action_guard.rs`), which restrictions every answer sets (`response.rs`).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::header::{COOKIE, HOST};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use std::sync::atomic::{AtomicBool, Ordering};

use super::action_guard::{self, ACTION_PATH};
use windlass_runtime::random_bytes;

/// The path at which a browser gets its cookie.
const LOGIN_PATH: &str = "/_/login";

/// The path prefix of static files. They contain nothing about the cluster, so they need no cookie.
const ASSET_PREFIX: &str = "/_/assets/";

/// The default port of HTTP, which an address need not name.
const HTTP_PORT: u16 = 80;

/// The length of a secret, in bytes.
const SECRET_BYTES: usize = 32;

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardVerdict {
    /// The server answers the request.
    Allowed,
    /// The browser gets a cookie and a redirect to a page.
    Login {
        /// The value of the header `Set-Cookie`.
        cookie: String,
    },
    /// The server refuses the request.
    Refused {
        /// The HTTP status of the answer.
        status: StatusCode,
        /// The reason, as a text for the user.
        text: &'static str,
    },
}

/// The secrets that a browser has to present.
pub(crate) struct RequestGuard {
    port: u16,
    /// The secret in the address that the command prints. It can be used once.
    login: String,
    is_login_used: AtomicBool,
    /// The secret in the cookie.
    session: String,
}

impl RequestGuard {
    /// Makes the guard of a server on a port of 127.0.0.1, with new random secrets.
    pub(crate) fn new(port: u16) -> Self {
        let is_login_used = AtomicBool::new(false);
        Self { port, login: secret(), is_login_used, session: secret() }
    }

    /// The path and query at which a browser gets its cookie. They work once. `&return=` and the escaped address of a page may
    /// follow, which the browser then opens.
    pub(crate) fn login_target(&self) -> String {
        format!("{LOGIN_PATH}?token={}", self.login)
    }

    /// Decides about a request without its body. The server reads the body only afterwards.
    pub(crate) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> GuardVerdict {
        if !self.is_for_this_server(uri, headers) {
            let text = "this address is not the one that `windlass ui` printed";
            return refused(StatusCode::MISDIRECTED_REQUEST, text);
        }
        if method == Method::POST && uri.path() == ACTION_PATH {
            return match action_guard::refusal(headers, &own_origin(headers)) {
                Some(text) => refused(StatusCode::FORBIDDEN, text),
                None if self.has_session(headers) => GuardVerdict::Allowed,
                None => refused(
                    StatusCode::FORBIDDEN,
                    "this browser has not the cookie of this `windlass ui`",
                ),
            };
        }
        if method != Method::GET && method != Method::HEAD {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "pages can only be read");
        }
        if is_embedded_elsewhere(headers) {
            return refused(StatusCode::FORBIDDEN, "a page of another server asks for this one");
        }
        if uri.path().starts_with(ASSET_PREFIX) || self.has_session(headers) {
            let is_login = uri.path() == LOGIN_PATH;
            // A browser that already has the cookie may open the printed address again.
            return if is_login { self.login_verdict() } else { GuardVerdict::Allowed };
        }
        if uri.path() == LOGIN_PATH && method == Method::GET && self.takes(uri.query()) {
            return self.login_verdict();
        }
        let text = "this browser is not the one for which `windlass ui` printed its address, or the address was opened in \
            another one before: it counts once. Start `windlass ui` again, and open what it prints";
        refused(StatusCode::FORBIDDEN, text)
    }

    fn login_verdict(&self) -> GuardVerdict {
        let Self { port, session, .. } = self;
        let cookie = format!("{}={session}; Path=/; HttpOnly; SameSite=Strict", cookie_name(*port));
        GuardVerdict::Login { cookie }
    }

    /// Whether the address of a request and its header `Host` name this machine and this port.
    fn is_for_this_server(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        // Browsers omit the port if it is the default port of HTTP.
        let port = format!(":{}", self.port);
        let is_host = |text: &str| {
            ["127.0.0.1", "localhost"].iter().any(|name| name.eq_ignore_ascii_case(text))
        };
        let is_ours = |text: &str| match text.strip_suffix(port.as_str()) {
            Some(host) => is_host(host),
            None => self.port == HTTP_PORT && is_host(text),
        };
        names_server(uri, headers, is_ours)
    }

    /// Whether a request carries the cookie of this server.
    fn has_session(&self, headers: &HeaderMap) -> bool {
        let name = cookie_name(self.port);
        let lines = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut cookies =
            lines.flat_map(|line| line.split(';')).filter_map(|it| it.split_once('='));
        cookies.any(|(key, value)| key.trim() == name && is_equal(value.trim(), &self.session))
    }

    /// Whether a query contains the secret of the printed address for the first time.
    fn takes(&self, query: Option<&str>) -> bool {
        // The page that the browser shall open may follow.
        let first = query.and_then(|query| query.split('&').next()).unwrap_or_default();
        let token = first.strip_prefix("token=").unwrap_or_default();
        is_equal(token, &self.login) && !self.is_login_used.swap(true, Ordering::AcqRel)
    }
}

/// The origin of the pages by the name of this machine that the browser uses.
fn own_origin(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    format!("http://{}", host.unwrap_or_default())
}

/// Whether every host name in the address and the header `Host` of a request is a name of this server.
pub(crate) fn names_server(uri: &Uri, headers: &HeaderMap, is_ours: impl Fn(&str) -> bool) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|it| it.to_str().ok());
    let is_single = hosts.next().is_none();
    let authority = uri.authority().map(|it| it.as_str());
    is_single && host.is_some_and(&is_ours) && authority.is_none_or(&is_ours)
}

/// Whether the browser says that a page of another origin loads this page. The cookie does not protect against other servers on
/// this machine, because browsers treat all ports of a host as one site.
pub(crate) fn is_embedded_elsewhere(headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let is_of_another_origin = matches!(said("sec-fetch-site"), "cross-site" | "same-site");
    is_of_another_origin && said("sec-fetch-dest") != "document"
}

/// Makes the verdict that refuses a request.
pub(crate) fn refused(status: StatusCode, text: &'static str) -> GuardVerdict {
    GuardVerdict::Refused { status, text }
}

/// The name of the cookie, which contains the port. A cookie belongs to a host with all its ports, and several servers may run
/// there.
fn cookie_name(port: u16) -> String {
    format!("windlass-ui-{port}")
}

/// Compares two texts in a time that does not depend on where they differ.
pub(crate) fn is_equal(one: &str, other: &str) -> bool {
    verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// A random text that cannot be guessed.
pub(crate) fn secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    random_bytes::fill(&mut bytes);
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4711;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn status(verdict: &GuardVerdict) -> u16 {
        match verdict {
            GuardVerdict::Allowed => 200,
            GuardVerdict::Login { .. } => 303,
            GuardVerdict::Refused { status, .. } => status.as_u16(),
        }
    }

    /// The status of a GET request with the right cookie.
    fn with_cookie(guard: &RequestGuard, target: &str, lines: &[(&'static str, &str)]) -> u16 {
        let cookie = format!("a=b; windlass-ui-{PORT}={}", guard.session);
        let mut headers = headers(lines);
        headers.append(COOKIE, cookie.parse().unwrap());
        status(&guard.judge(&Method::GET, &target.parse().unwrap(), &headers))
    }

    #[test]
    fn only_a_request_that_names_this_server_is_answered() {
        let guard = RequestGuard::new(PORT);
        for host in ["127.0.0.1:4711", "localhost:4711", "LOCALHOST:4711"] {
            assert_eq!(with_cookie(&guard, "/", &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example:4711", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:4711.evil.example", ""]
        {
            assert_eq!(with_cookie(&guard, "/", &[("host", host)]), 421, "{host}");
        }
        let twice = [("host", "127.0.0.1:4711"), ("host", "evil.example")];
        assert_eq!(with_cookie(&guard, "/", &twice), 421);
        assert_eq!(with_cookie(&guard, "/", &[]), 421);
        let ours = [("host", "127.0.0.1:4711")];
        assert_eq!(with_cookie(&guard, "http://evil.example/", &ours), 421);
    }

    /// The status of a form request, with or without the right cookie.
    fn of_form(guard: &RequestGuard, method: &Method, target: &str, has_cookie: bool) -> u16 {
        let form = "application/x-www-form-urlencoded";
        let own = [
            ("host", "127.0.0.1:4711"),
            ("origin", "http://127.0.0.1:4711"),
            ("content-type", form),
        ];
        let mut headers = headers(&own);
        if has_cookie {
            let cookie = format!("windlass-ui-{PORT}={}", guard.session);
            headers.append(COOKIE, cookie.parse().unwrap());
        }
        status(&guard.judge(method, &target.parse().unwrap(), &headers))
    }

    #[test]
    fn only_a_form_with_the_cookie_changes_something_and_only_at_one_path() {
        let guard = RequestGuard::new(PORT);
        assert_eq!(of_form(&guard, &Method::POST, ACTION_PATH, true), 200);
        assert_eq!(of_form(&guard, &Method::POST, ACTION_PATH, false), 403);
        for target in ["/", "/o/ks/apps/web", "/_/login", "/_/live", "/_/act/", "/_/assets/x"] {
            assert_eq!(of_form(&guard, &Method::POST, target, true), 405, "{target}");
        }
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert_eq!(of_form(&guard, &method, ACTION_PATH, true), 405, "{method}");
        }
        // No page has this path, so a GET request does nothing.
        assert_eq!(of_form(&guard, &Method::GET, ACTION_PATH, true), 200);
        assert_eq!(crate::route::Route::parse(ACTION_PATH), None);
    }

    #[test]
    fn port_80_may_be_left_out_and_no_other() {
        let guard = RequestGuard::new(80);
        let is_ours = |host: &str| {
            guard.is_for_this_server(&Uri::from_static("/"), &headers(&[("host", host)]))
        };
        assert!(is_ours("127.0.0.1") && is_ours("127.0.0.1:80") && is_ours("localhost"));
        for host in ["localhost.", "127.0.0.1:81", "127.0.0.1:", "[::1]", "evil.example", ":80"] {
            assert!(!is_ours(host), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_port_may_link_to_pages_and_not_load_them_into_itself() {
        let guard = RequestGuard::new(PORT);
        let of = |site: &str, dest: &str| {
            let lines =
                [("host", "127.0.0.1:4711"), ("sec-fetch-site", site), ("sec-fetch-dest", dest)];
            with_cookie(&guard, "/", &lines)
        };
        assert_eq!(of("none", "document"), 200);
        assert_eq!(of("same-origin", "empty"), 200);
        assert_eq!(of("same-site", "document"), 200);
        for dest in ["empty", "image", "iframe", "script", ""] {
            assert_eq!((of("same-site", dest), of("cross-site", dest)), (403, 403), "{dest}");
        }
    }

    #[test]
    fn what_writes_is_refused_with_and_without_a_cookie() {
        let guard = RequestGuard::new(PORT);
        let cookie = format!("windlass-ui-{PORT}={}", guard.session);
        let headers = headers(&[("host", "127.0.0.1:4711"), ("cookie", cookie.as_str())]);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let verdict = guard.judge(&method, &Uri::from_static("/"), &headers);
            assert_eq!(status(&verdict), 405, "{method}");
        }
        assert_eq!(status(&guard.judge(&Method::HEAD, &Uri::from_static("/"), &headers)), 200);
    }

    #[test]
    fn a_form_needs_the_cookie_and_the_origin_by_the_name_that_the_browser_uses() {
        let guard = RequestGuard::new(PORT);
        let cookie = format!("windlass-ui-{PORT}={}", guard.session);
        let judged = |host: &str, origin: &str, cookie: &str| {
            let kind = "application/x-www-form-urlencoded";
            let lines =
                [("host", host), ("origin", origin), ("cookie", cookie), ("content-type", kind)];
            let headers = headers(&lines);
            status(&guard.judge(&Method::POST, &Uri::from_static(ACTION_PATH), &headers))
        };
        for host in ["127.0.0.1:4711", "localhost:4711"] {
            assert_eq!(judged(host, &format!("http://{host}"), &cookie), 200, "{host}");
            assert_eq!(judged(host, &format!("http://{host}"), "a=b"), 403, "{host}");
        }
        assert_eq!(judged("127.0.0.1:4711", "http://localhost:4711", &cookie), 403);
        assert_eq!(judged("127.0.0.1:4711", "http://", &cookie), 403);
    }

    #[test]
    fn pages_need_the_cookie_and_style_does_not() {
        let guard = RequestGuard::new(PORT);
        let judged = |target: &str, cookie: &str| {
            let headers = headers(&[("host", "127.0.0.1:4711"), ("cookie", cookie)]);
            status(&guard.judge(&Method::GET, &target.parse().unwrap(), &headers))
        };
        assert_eq!(judged("/_/assets/style.css", "a=b"), 200);
        let of_another_port = format!("windlass-ui-80={}", guard.session);
        let cut = format!("windlass-ui-{PORT}={}", &guard.session[1..]);
        let empty = format!("windlass-ui-{PORT}=");
        for cookie in ["", "a=b", of_another_port.as_str(), cut.as_str(), empty.as_str()] {
            for target in ["/", "/objects", "/o/ks/apps/web", "/_/login", "/_/assets"] {
                assert_eq!(judged(target, cookie), 403, "{target} {cookie}");
            }
        }
    }

    #[test]
    fn the_printed_address_counts_once() {
        let guard = RequestGuard::new(PORT);
        let headers = headers(&[("host", "127.0.0.1:4711")]);
        let target: Uri = guard.login_target().parse().unwrap();
        let wrong = Uri::from_static("/_/login?token=0");
        assert_eq!(status(&guard.judge(&Method::GET, &wrong, &headers)), 403);
        // A HEAD request does not use up the secret of the printed address.
        assert_eq!(status(&guard.judge(&Method::HEAD, &target, &headers)), 403);
        let GuardVerdict::Login { cookie } = guard.judge(&Method::GET, &target, &headers) else {
            panic!("the first one counts")
        };
        let session = &guard.session;
        let expected = format!("windlass-ui-4711={session}; Path=/; HttpOnly; SameSite=Strict");
        assert_eq!(cookie, expected);
        assert!(!cookie.contains(&guard.login), "the address is not the cookie");
        assert_eq!(status(&guard.judge(&Method::GET, &target, &headers)), 403);
        // The browser that has the cookie may open the printed address again.
        assert_eq!(with_cookie(&guard, &guard.login_target(), &[("host", "localhost:4711")]), 303);
    }

    #[test]
    fn the_printed_address_may_name_a_page_after_the_secret() {
        let guard = RequestGuard::new(PORT);
        let headers = headers(&[("host", "127.0.0.1:4711")]);
        let of =
            |target: String| status(&guard.judge(&Method::GET, &target.parse().unwrap(), &headers));
        let login = guard.login_target();
        assert_eq!(of(login.replace("token=", "return=/me&token=")), 403);
        assert_eq!(of(format!("{login}&return=%2Fc%2F0123abc")), 303);
        assert_eq!(of(format!("{login}&return=%2Fc%2F0123abc")), 403);
    }

    #[test]
    fn two_servers_have_secrets_of_their_own() {
        let [one, other] = [RequestGuard::new(PORT), RequestGuard::new(PORT)];
        assert_eq!(one.session.len(), 2 * SECRET_BYTES);
        assert!(one.session != other.session && one.login != other.login);
    }
}
