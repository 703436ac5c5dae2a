//! Decides which requests may change something: only forms that a page of this server sent.
//!
//! The cookie alone does not prove that. Browsers treat all ports of a host as one site, and all hosts of a domain.
//! So a page of another server on this machine, or of a sibling domain, could send a form with the cookie.
//! Elsewhere: the checks of the cookie and of the header `Host` (`request_guard.rs`, `multi_user_request_guard.rs`), the check that the form is
//! of a page of this user (`actions/form_seal.rs`).

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, ORIGIN};

/// The path to which browsers send the forms.
pub(crate) const ACTION_PATH: &str = "/_/act";

/// The content type of a form that a browser sends without a script.
const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// The header in which browsers say which site caused a request.
const FETCH_SITE: &str = "sec-fetch-site";

/// Returns why a request may not change anything, or `None` if a page of this server sent the request. `own` is the origin of
/// the pages. The caller has already checked the header `Host`.
pub(crate) fn refusal(headers: &HeaderMap, own: &str) -> Option<&'static str> {
    if !is_of_own_page(headers, own) {
        return Some("a page of another server, or a program, asks for a change");
    }
    let kind = single(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    (!kind.eq_ignore_ascii_case(FORM_CONTENT_TYPE))
        .then_some("a change is asked for by a form only")
}

/// Whether a page of this server sent a form, according to the browser. Browsers send the header `Origin` with each form. A
/// program that does not send it is refused.
pub(crate) fn is_of_own_page(headers: &HeaderMap, own: &str) -> bool {
    let is_own = single(headers, ORIGIN.as_str()).is_some_and(|it| it.eq_ignore_ascii_case(own));
    let is_named = headers.contains_key(FETCH_SITE);
    is_own && (!is_named || single(headers, FETCH_SITE) == Some("same-origin"))
}

/// The value of a header. Returns `None` unless the request contains the header exactly once.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().and_then(|it| it.to_str().ok());
    line.filter(|_| lines.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "http://127.0.0.1:4711";

    const OWN_FORM_HEADERS: [(&str, &str); 2] =
        [("origin", OWN), ("content-type", FORM_CONTENT_TYPE)];

    /// Whether the server refuses a form request after these header lines were added or replaced.
    fn is_refused(lines: &[(&'static str, &str)]) -> bool {
        let own = OWN_FORM_HEADERS
            .iter()
            .filter(|(name, _)| lines.iter().all(|(other, _)| other != name));
        let mut headers = HeaderMap::new();
        for (name, value) in own.chain(lines).filter(|(_, value)| !value.is_empty()) {
            headers.append(*name, value.parse().unwrap());
        }
        refusal(&headers, OWN).is_some()
    }

    #[test]
    fn a_form_of_this_server_may_change_something() {
        assert!(!is_refused(&[]));
        assert!(!is_refused(&[("sec-fetch-site", "same-origin")]));
        assert!(!is_refused(&[(
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8"
        )]));
    }

    #[test]
    fn a_forged_origin_may_change_nothing() {
        for origin in [
            "",
            "null",
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:4712",
            "http://localhost:4711",
            "https://127.0.0.1:4711",
            "http://127.0.0.1:4711.evil.example",
            "http://127.0.0.1:4711/",
        ] {
            assert!(is_refused(&[("origin", origin)]), "{origin}");
        }
        let twice = [("origin", "http://127.0.0.1:4711"), ("origin", "http://evil.example")];
        assert!(is_refused(&twice));
        for site in ["cross-site", "same-site", "none"] {
            assert!(is_refused(&[("sec-fetch-site", site)]), "{site}");
        }
        for kind in ["", "text/plain", "multipart/form-data; boundary=x", "application/json"] {
            assert!(is_refused(&[("content-type", kind)]), "{kind}");
        }
    }
}
