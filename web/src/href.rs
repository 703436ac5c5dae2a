//! Links to a page of this server, or to a text that was parsed as a web address.
//!
//! An `href` attribute accepts only this type. So no text of an object can become a `javascript:` or `data:` link.

use maud::Render;
use url::Url;

use super::login::LOGIN_PATH;
use super::page_query::PageQuery;
use super::route::Route;

/// The path from which open pages receive events about changes.
pub(crate) const LIVE_PATH: &str = "/_/live";

/// The longest address of a page to which a login returns, in bytes.
const MAX_RETURN_BYTES: usize = 1024;

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Href(String);

impl Href {
    /// A link to a page of this server.
    pub(crate) fn inside(route: &Route) -> Self {
        Self(route.path())
    }

    /// A link to a page with a query. Pairs with an empty value are left out.
    pub(crate) fn with_query(route: &Route, pairs: &[(&str, &str)]) -> Self {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        pairs.iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| {
            query.append_pair(key, value);
        });
        match query.finish() {
            query if query.is_empty() => Self::inside(route),
            query => Self(format!("{}?{query}", route.path())),
        }
    }

    /// The page at an address that a browser sent, for example to return to it after a login. The link is built from the parsed
    /// route, so it cannot lead to another server. It is the first page if the address is not a page.
    pub(crate) fn page_at(address: &str) -> Self {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let route = Route::parse(path).filter(|_| address.len() <= MAX_RETURN_BYTES);
        match route {
            Some(route) => Self::with_query(&route, &PageQuery::parse(query).pairs()),
            None => Self::inside(&Route::Overview),
        }
    }

    /// The address from which an open page receives its changed parts. It names the page and the version that the browser
    /// shows.
    pub(crate) fn live(page: &str, version: &str) -> Self {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("page", page).append_pair("at", version);
        Self(format!("{LIVE_PATH}?{}", query.finish()))
    }

    /// The address that starts a login. The browser returns to `page`, if that is a page of this server.
    pub(crate) fn login(page: &str) -> Self {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("return", page);
        Self(format!("{LOGIN_PATH}?{}", query.finish()))
    }

    /// The address itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// A link to a static file of this server.
    pub(crate) fn asset(path: &'static str) -> Self {
        Self(path.to_owned())
    }

    /// A link to a web address. Returns `None` unless the text is an `http` or `https` address without a user and a password.
    pub(crate) fn outside(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let is_of_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        let is_plain = url.username().is_empty() && url.password().is_none();
        (is_of_web && is_plain).then(|| Self(url.into()))
    }
}

impl Render for Href {
    fn render_to(&self, buffer: &mut String) {
        self.0.as_str().render_to(buffer);
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn only_addresses_of_the_web_become_links() {
        for text in [
            "javascript:alert(1)",
            " javascript:alert(1)",
            "java\nscript:alert(1)",
            "JaVaScRiPt://example.com/%0aalert(1)",
            "data:text/html,<script>alert(1)</script>",
            "vbscript:x",
            "file:///etc/passwd",
            "ssh://git@example.com/a",
            "//example.com/a",
            "/objects",
            "https:",
            "https://user:password@example.com/",
            "https://token@example.com/",
            "",
        ] {
            assert_eq!(Href::outside(text), None, "{text:?}");
        }
        let link = Href::outside("https://example.com/a?b=\"><script>&c").unwrap();
        let markup = html! { a href=(link) { "x" } };
        let expected = "<a href=\"https://example.com/a?b=%22%3E%3Cscript%3E&amp;c\">x</a>";
        assert_eq!(markup.into_string(), expected);
    }

    #[test]
    fn a_login_returns_to_a_page_of_this_server_only() {
        for (address, expected) in [
            ("/", "/"),
            ("/objects?q=a%26b&ns=apps", "/objects?ns=apps&q=a%26b"),
            ("/o/ks/apps/web/tree", "/o/ks/apps/web/tree"),
            ("", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/%2fevil.example", "/"),
            ("/%5cevil.example", "/"),
            ("\\\\evil.example", "/"),
            ("https://evil.example/", "/"),
            ("https:evil.example", "/"),
            ("javascript:alert(1)", "/"),
            ("/objects@evil.example", "/"),
            ("/\tobjects", "/"),
            ("/login", "/"),
            ("/logout", "/"),
            ("/callback?code=a", "/"),
            ("/_/live?page=/", "/"),
            ("/objects\r\nset-cookie: a=b", "/"),
        ] {
            assert_eq!(Href::page_at(address).as_str(), expected, "{address:?}");
        }
        let long = format!("/objects?q={}", "a".repeat(MAX_RETURN_BYTES));
        assert_eq!(Href::page_at(&long).as_str(), "/");
    }

    #[test]
    fn a_query_is_encoded_and_has_no_empty_values() {
        let link =
            Href::with_query(&Route::Objects, &[("q", "a&b=\"<"), ("ns", ""), ("page", "2")]);
        assert_eq!(link, Href("/objects?q=a%26b%3D%22%3C&page=2".to_owned()));
        assert_eq!(Href::with_query(&Route::Objects, &[("ns", "")]), Href("/objects".to_owned()));
    }
}
