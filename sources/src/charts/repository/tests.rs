//! A repository on loopback: conditional requests, redirects, which servers get credentials, limits.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use objects::RedactedValue;
use parking_lot::Mutex;

use super::*;

/// A server that answers by path, and records requests.
struct FakeChartServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeChartServer {
    /// `answer` gets the path and the whole request.
    fn start(answer: impl Fn(&str, &str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !request.windows(4).any(|it| it == b"\r\n\r\n") {
                    let read = stream.read(&mut buffer).unwrap_or_default();
                    if read == 0 {
                        break;
                    }
                    request.extend_from_slice(&buffer[..read]);
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().push(request.to_ascii_lowercase());
                stream.write_all(&answer(&path, &request)).unwrap_or_default();
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn repository(url: &str, pass: bool) -> ChartRepository {
    let basic = Some(("me".to_owned(), RedactedValue::new("hunter2".to_owned())));
    let credentials = ChartRepositoryCredentials { basic, ..ChartRepositoryCredentials::default() };
    ChartRepository::new(
        url,
        credentials,
        pass,
        Duration::from_secs(10),
        &ChartRepositoryClients::default(),
    )
    .unwrap()
}

#[tokio::test]
async fn an_index_that_did_not_change_is_not_sent_again() {
    let server = FakeChartServer::start(|path, request| {
        assert_eq!(path, "/charts/index.yaml?token=x");
        match request.to_ascii_lowercase().contains("if-none-match: \"1\"") {
            true => answer("304 Not Modified", "", b""),
            false => {
                answer("200 OK", "ETag: \"1\"\r\nLast-Modified: then\r\n", b"apiVersion: v1\n")
            }
        }
    });
    let repository = repository(&server.url("/charts?token=x"), false);
    let ChartIndexFetchResult::Index { mut file, sealed, validators } =
        repository.index(None).await.unwrap()
    else {
        panic!("it is new")
    };
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), sealed.size), ("apiVersion: v1\n", 15));
    assert_eq!(validators.modified.as_deref(), Some("then"));
    let again = repository.index(Some(&validators)).await.unwrap();
    assert!(matches!(again, ChartIndexFetchResult::Unchanged));
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("if-modified-since: then"));
}

#[tokio::test]
async fn an_archive_that_did_not_change_is_not_sent_again() {
    let server = FakeChartServer::start(|_, request| {
        match request.to_ascii_lowercase().contains("if-none-match: \"1\"") {
            true => answer("304 Not Modified", "", b""),
            false => answer("200 OK", "ETag: \"1\"\r\n", b"archive"),
        }
    });
    let charts = repository(&server.url("/charts"), false);
    let first = charts.chart_since("web.tgz", &HttpEtagAndLastModified::default()).await.unwrap();
    let ChartFetchResult::Archive { bytes, validators } = first else { panic!("it is new") };
    assert_eq!((bytes.as_slice(), validators.etag.as_deref()), (&b"archive"[..], Some("\"1\"")));
    let again = charts.chart_since("web.tgz", &validators).await.unwrap();
    assert!(matches!(again, ChartFetchResult::Unchanged));
    // Without validators, such an answer is an error.
    let server = FakeChartServer::start(|_, _| answer("304 Not Modified", "", b""));
    assert!(repository(&server.url("/"), false).chart("web.tgz", None).await.is_err());
}

#[tokio::test]
async fn credentials_go_to_the_repository_and_elsewhere_only_if_that_is_asked_for() {
    let third = FakeChartServer::start(|_, _| answer("200 OK", "", b"chart"));
    let far = third.url("/far.tgz");
    let other = FakeChartServer::start(move |path, _| match path {
        "/moved.tgz" => answer("302 Found", &format!("location: {far}\r\n"), b""),
        _ => answer("200 OK", "", b"chart"),
    });
    let away = other.url("/app.tgz");
    let own = FakeChartServer::start(move |path, _| match path {
        "/away.tgz" => answer("302 Found", &format!("location: {away}\r\n"), b""),
        "/loop.tgz" => answer("302 Found", "location: /loop.tgz\r\n", b""),
        "/file.tgz" => answer("302 Found", "location: file:///etc/passwd\r\n", b""),
        "/meta.tgz" => answer("302 Found", "location: http://169.254.169.254/latest\r\n", b""),
        "/401.tgz" => answer("401 Unauthorized", "", b""),
        "/404.tgz" => answer("404 Not Found", "", b""),
        _ => answer("200 OK", "", b"chart"),
    });
    let has_credentials = |server: &FakeChartServer| {
        let asked = server.asked();
        assert!(!asked.is_empty());
        asked.iter().any(|request| request.contains("authorization:"))
    };
    for (pass, reference, to_other) in [
        (false, "app.tgz".to_owned(), None),
        (false, "away.tgz".to_owned(), Some(false)),
        (true, "away.tgz".to_owned(), Some(false)),
        (false, other.url("/app.tgz"), Some(false)),
        (true, other.url("/app.tgz"), Some(true)),
    ] {
        let found = repository(&own.url(""), pass).chart(&reference, None).await.unwrap();
        assert_eq!(found, b"chart");
        if reference.starts_with("http") {
            assert_eq!(own.asked().len(), 0);
        } else {
            assert!(has_credentials(&own), "{reference}");
        }
        if let Some(expected) = to_other {
            assert_eq!(has_credentials(&other), expected, "{pass} {reference}");
        }
    }
    let passing = repository(&own.url(""), true);
    passing.chart(&other.url("/moved.tgz"), None).await.unwrap();
    assert!(
        has_credentials(&other) && !has_credentials(&third),
        "a redirect is nobody that was named"
    );
    for (reference, expected) in [
        ("loop.tgz", "too many redirects"),
        ("file.tgz", "neither http nor https"),
        ("meta.tgz", "link-local"),
        ("401.tgz", "status 401; check the credentials"),
        ("404.tgz", "status 404"),
        ("http://169.254.169.254/x.tgz", "link-local"),
        ("file:///etc/passwd", "neither http nor https"),
    ] {
        let error = passing.chart(reference, None).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn an_archive_has_to_be_what_the_index_says_and_no_larger_than_one_may_be() {
    let server = FakeChartServer::start(|path, _| match path {
        "/large.tgz" => answer("200 OK", "", &vec![0; usize::try_from(MAX_CHART).unwrap() + 1]),
        "/slow.tgz" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nonly".to_vec(),
        _ => answer("200 OK", "", b"chart"),
    });
    let repository = repository(&server.url("/"), false);
    let digest = hex::encode(Sha256::digest(b"chart"));
    repository.chart("a.tgz", Some(&digest.to_uppercase())).await.unwrap();
    let wrong = repository.chart("a.tgz", Some(&"0".repeat(64))).await.unwrap_err();
    assert!(matches!(wrong, Error::Mismatch { .. }));
    let large = repository.chart("large.tgz", None).await.unwrap_err();
    assert!(matches!(large, Error::TooLarge { .. }), "{large}");
    let cut = repository.chart("slow.tgz?sig=hunter2", None).await.unwrap_err();
    assert!(matches!(cut, Error::NoAnswer { .. }) && !cut.to_string().contains("hunter2"));
}

#[test]
fn addresses_are_compared_with_one_slash_at_their_end_and_shown_without_credentials() {
    for (text, expected) in [
        ("https://example.com", "https://example.com/"),
        ("https://EXAMPLE.com/a//", "https://example.com/a/"),
        ("https://example.com:443/a?x=1#y", "https://example.com/a/?x=1"),
    ] {
        assert_eq!(normalized(text).unwrap().as_str(), expected);
    }
    for text in ["", "oci://example.com", "example.com/charts", "http://"] {
        assert!(normalized(text).is_err(), "{text}");
    }
    let url = "https://me:hunter2@example.com/charts?token=hunter2";
    let repository = ChartRepository::new(
        url,
        ChartRepositoryCredentials::default(),
        false,
        Duration::from_secs(1),
        &ChartRepositoryClients::default(),
    )
    .unwrap();
    assert_eq!(repository.url(), "https://example.com/charts/");
    assert!(!format!("{repository:?}").contains("hunter2"), "{repository:?}");
}
