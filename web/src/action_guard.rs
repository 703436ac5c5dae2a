//! Decides which requests may change something: only forms that a page of this server sent.
//!
//! The cookie alone does not prove that. Browsers treat all ports of a host as one site.
//! So a page of another server on this machine could send a form with the cookie.
//! Elsewhere: the checks of the cookie and of the header `Host` (`guard.rs`), the check that this process made the form
//! (`actions/form_seal.rs`).

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};

/// The path to which browsers send the forms.
pub(crate) const ACTION_PATH: &str = "/_/act";

/// The content type of a form that a browser sends without a script.
const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// Returns why a request may not change anything, or `None` if a page of this server sent the request. The caller has already
/// checked the header `Host`.
pub(crate) fn refusal(headers: &HeaderMap) -> Option<&'static str> {
    let single = |name: &str| {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next().and_then(|it| it.to_str().ok());
        line.filter(|_| lines.next().is_none())
    };
    let host = single(HOST.as_str()).unwrap_or_default();
    // Browsers send the header `Origin` with each form. A program that does not send it is refused.
    let origin = single(ORIGIN.as_str()).unwrap_or_default();
    let own = format!("http://{host}");
    if host.is_empty() || !origin.eq_ignore_ascii_case(&own) {
        return Some("a page of another server, or a program, asks for a change");
    }
    let is_named = headers.contains_key("sec-fetch-site");
    if is_named && single("sec-fetch-site") != Some("same-origin") {
        return Some("a page of another server asks for a change");
    }
    let kind = single(CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    (!kind.eq_ignore_ascii_case(FORM_CONTENT_TYPE))
        .then_some("a change is asked for by a form only")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_FORM_HEADERS: [(&str, &str); 3] = [
        ("host", "127.0.0.1:4711"),
        ("origin", "http://127.0.0.1:4711"),
        ("content-type", FORM_CONTENT_TYPE),
    ];

    /// Whether the server refuses a form request after these header lines were added or replaced.
    fn is_refused(lines: &[(&'static str, &str)]) -> bool {
        let own = OWN_FORM_HEADERS
            .iter()
            .filter(|(name, _)| lines.iter().all(|(other, _)| other != name));
        let mut headers = HeaderMap::new();
        for (name, value) in own.chain(lines).filter(|(_, value)| !value.is_empty()) {
            headers.append(*name, value.parse().unwrap());
        }
        refusal(&headers).is_some()
    }

    #[test]
    fn a_form_of_this_server_may_change_something() {
        assert!(!is_refused(&[]));
        assert!(!is_refused(&[("sec-fetch-site", "same-origin")]));
        assert!(!is_refused(&[(
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8"
        )]));
        let by_name = [("host", "localhost:4711"), ("origin", "http://localhost:4711")];
        assert!(!is_refused(&by_name));
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
        assert!(is_refused(&[("host", "")]));
    }
}
