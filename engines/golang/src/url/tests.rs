//! What Go's `net/url` answers to single strings.

use super::GoUrl;

fn parsed(text: &str) -> String {
    match GoUrl::parse(text.as_bytes()) {
        Ok(url) => format!(
            "{}|{}|{}|{}|{}",
            String::from_utf8_lossy(&url.scheme),
            String::from_utf8_lossy(&url.host),
            String::from_utf8_lossy(url.hostname()),
            String::from_utf8_lossy(&url.path),
            String::from_utf8_lossy(&url.to_bytes())
        ),
        Err(error) => error.to_string(),
    }
}

#[test]
fn urls_are_read_and_written_as_go_does() {
    for (text, wanted) in [
        (
            "HTTP://u:p@Ex.com:80/a%20b?q=1#f",
            "http|Ex.com:80|Ex.com|/a b|http://u:p@Ex.com:80/a%20b?q=1#f",
        ),
        ("//[fe80::1%25en0]:1/", "|[fe80::1%en0]:1|fe80::1%en0|/|//[fe80::1%25en0]:1/"),
        ("mailto:a@b.c", "mailto||||mailto:a@b.c"),
        ("a/b:c", "|||a/b:c|a/b:c"),
        ("*", "|||*|*"),
        // Outside of the web the last colon counts.
        ("ssh://h:22:33/", "ssh|h:22:33|h:22|/|ssh://h:22:33/"),
    ] {
        assert_eq!(parsed(text), wanted);
    }
}

#[test]
fn what_is_no_url_is_refused_in_go_s_words() {
    for (text, reason) in [
        ("%%b", "invalid URL escape \"%%b\""),
        ("http://a b/", "invalid character \" \" in host name"),
        ("a:b:c", ""),
        ("a b:c/d", "first path segment in URL cannot contain colon"),
        (":x", "missing protocol scheme"),
        ("http://h:x/", "invalid port \":x\" after host"),
        ("http://[::1", "missing ']' in host"),
        ("http://[1.2.3.4]/", "invalid IP-literal"),
        (
            "http://[1::2::3]/",
            "invalid host: ParseAddr(\"1::2::3\"): multiple :: in address (at \":3\")",
        ),
        ("http://a\u{7f}/", "net/url: invalid control character in URL"),
        ("http://a\"b@c/", "net/url: invalid userinfo"),
    ] {
        let error =
            GoUrl::parse(text.as_bytes()).map_or_else(|error| error.reason, |_| String::new());
        assert_eq!(error, reason, "{text}");
    }
}

#[test]
fn a_value_of_a_query_is_read_as_go_does() {
    // `url.QueryUnescape`, Go 1.26.
    for (text, wanted) in
        [("a+b%2Fc", Some("a b/c")), ("é", Some("é")), ("%+1", None), ("%2", None), ("%", None)]
    {
        let read = super::query_unescape(text.as_bytes());
        assert_eq!(read.as_deref(), wanted.map(str::as_bytes), "{text}");
    }
}

#[test]
fn a_password_is_not_shown() {
    let url = GoUrl::parse(b"http://u:secret@h").unwrap();
    assert!(!format!("{url:?}").contains("secret"));
}
