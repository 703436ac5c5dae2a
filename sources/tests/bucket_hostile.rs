//! Hostile servers with buckets: slow, endless, huge, lying. Most speak S3.
//!
//! Elsewhere: a real server (`e2e/tests/bucket`).

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http_client::TlsConfig;
use sources::bucket::{
    BucketClientCache, BucketCredentialSource, BucketEndpoint, BucketFetchState,
    BucketServerSettings, Error, PreviousArtifact, RemoteBucket, azure, bucket_archive, fetch,
    google, list,
};
use tree::TreeLimits;

/// Serves every connection with `answer`, which gets the head of each request; how many there were.
fn serve(
    answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static,
) -> (RemoteBucket, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let endpoint = listener.local_addr().expect("loopback").to_string();
    let answer = Arc::new(answer);
    let count = Arc::<AtomicUsize>::default();
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("loopback");
            let answer = answer.clone();
            let counted = counted.clone();
            thread::spawn(move || {
                while let Some(head) = head(&mut stream) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    answer(&head, &mut stream);
                }
            });
        }
    });
    let endpoint = BucketEndpoint::parse(&endpoint, true).expect("loopback");
    let tls = TlsConfig::default();
    let identity = BucketCredentialSource::Anonymous;
    let remote = RemoteBucket {
        server: BucketServerSettings { endpoint, region: None, identity, tls, proxy: None },
        bucket: "b".to_owned(),
        prefix: String::new(),
        timeout: Duration::from_secs(2),
        limits: TreeLimits::default(),
    };
    (remote, count)
}

fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let len = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{headers}\r\n{body}");
    let _gone = stream.write_all(text.as_bytes());
}

fn listing(keys: &[(&str, u64)], next: Option<&str>) -> String {
    let contents: String = keys
        .iter()
        .map(|(key, size)| {
            format!(
                "<Contents><Key>{key}</Key><ETag>&quot;1&quot;</ETag><Size>{size}</Size></Contents>"
            )
        })
        .collect();
    let more = next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name>{contents}<IsTruncated>{}</IsTruncated>{}</ListBucketResult>",
        next.is_some(),
        more.unwrap_or_default()
    )
}

/// The same server, asked by the protocols of the clouds.
fn by_clouds(remote: &RemoteBucket) -> [RemoteBucket; 2] {
    let mut of_google = remote.clone();
    let mut of_azure = remote.clone();
    of_google.server.identity =
        BucketCredentialSource::Google(google::GoogleCredentialSource::Anonymous);
    of_azure.server.identity =
        BucketCredentialSource::Azure(azure::AzureCredentialSource::Anonymous);
    [of_google, of_azure]
}

async fn listed(remote: &RemoteBucket) -> Result<usize, Error> {
    list(remote, None, &BucketFetchState::default(), &BucketClientCache::default())
        .await
        .map(|listed| listed.len())
}

async fn fetched(remote: &RemoteBucket) -> Result<usize, Error> {
    let known = BucketClientCache::default();
    let listed = list(remote, None, &BucketFetchState::default(), &known).await?;
    fetch(remote, listed, PreviousArtifact::default(), &known).await.map(|fetched| fetched.count)
}

#[tokio::test]
async fn a_server_that_never_answers_or_drips_ends_with_the_timeout() {
    let (silent, _) = serve(|_, _| thread::sleep(Duration::from_secs(60)));
    let (dripping, _) = serve(|_, stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let clouds = [by_clouds(&silent), by_clouds(&dripping)].concat();
    for remote in [silent, dripping].into_iter().chain(clouds) {
        let start = Instant::now();
        let error = listed(&remote).await.unwrap_err();
        assert!(matches!(error, Error::TooSlow { .. }), "{error:?}");
        assert!(error.to_string().contains("exceeded spec.timeout (2s)"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[tokio::test]
async fn pages_without_end_end() {
    // The same token again and again, with nothing in the pages: not for ever, and not taken for an empty bucket.
    let (mut remote, count) =
        serve(|_, stream| say(stream, "200 OK", "", &listing(&[], Some("t"))));
    // A thousand pages may take a while on a machine that compiles meanwhile.
    remote.timeout = Duration::from_secs(600);
    let error = listed(&remote).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("1000 consecutive pages are empty"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 1000);
    // With something in them: the timeout.
    let (remote, _) =
        serve(|_, stream| say(stream, "200 OK", "", &listing(&[("a", 1)], Some("t"))));
    assert!(listed(&remote).await.is_err());
}

#[tokio::test]
async fn an_empty_page_is_not_the_end_unless_nothing_else_comes() {
    let (remote, count) = serve(|head, stream| {
        let page = match head.contains("continuation-token=t") {
            true => listing(&[("a", 1)], None),
            false => listing(&[], Some("t")),
        };
        say(stream, "200 OK", "", &page);
    });
    assert_eq!((listed(&remote).await.unwrap(), count.load(Ordering::SeqCst)), (1, 2));

    let first = r#"{"nextPageToken": "t"}"#;
    let last = r#"{"items": [{"name": "a", "etag": "1"}]}"#;
    let (remote, count) = serve(move |head, stream| {
        say(stream, "200 OK", "", if head.contains("pageToken=t") { last } else { first });
    });
    let [of_google, _] = by_clouds(&remote);
    assert_eq!(listed(&of_google).await.unwrap(), 1);
    assert_eq!(count.load(Ordering::SeqCst), 2);

    let text = "<EnumerationResults><Blobs/><NextMarker>t</NextMarker></EnumerationResults>";
    let (mut remote, _) = serve(move |_, stream| say(stream, "200 OK", "", text));
    remote.timeout = Duration::from_secs(60);
    let [_, of_azure] = by_clouds(&remote);
    let error = listed(&of_azure).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_listing_that_does_not_say_where_it_goes_on_is_not_complete() {
    for token in [None, Some("")] {
        let (remote, count) = serve(move |_, stream| {
            let text = listing(&[("a", 1)], token);
            let text = text.replace("<IsTruncated>false<", "<IsTruncated>true<");
            say(stream, "200 OK", "", &text);
        });
        let error = listed(&remote).await.unwrap_err();
        assert!(error.to_string().contains("has no continuation token"), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
    // A token without the flag still leads to the next page.
    let (remote, _) = serve(|head, stream| {
        let is_first = !head.contains("continuation-token");
        let text = listing(&[(if is_first { "a" } else { "b" }, 1)], is_first.then_some("t"));
        say(stream, "200 OK", "", &text.replace("<IsTruncated>true</IsTruncated>", ""));
    });
    assert_eq!(listed(&remote).await.unwrap(), 2);
}

#[tokio::test]
async fn errors_of_a_cloud_are_reported_in_words_that_stay_the_same() {
    let body = "<Error><Code>Odd</Code><Message>It is odd.\nRequestId:1\nTime:2</Message></Error>";
    let (remote, _) =
        serve(move |_, stream| say(stream, "400 Bad Request", "x-ms-error-code: Odd\r\n", body));
    let [_, of_azure] = by_clouds(&remote);
    let error = listed(&of_azure).await.unwrap_err().to_string();
    assert!(error.ends_with("responded to a listing with 400 (Odd): It is odd."), "{error}");

    // A busy server is asked again, and what makes no sense is not.
    let asked = Arc::<AtomicUsize>::default();
    let (remote, count) = serve(move |_, stream| match asked.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => say(stream, "500 Internal Server Error", "", ""),
        _ => say(stream, "200 OK", "", "<html>"),
    });
    for (remote, requests) in by_clouds(&remote).iter().zip([3, 4]) {
        let error = listed(remote).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
        assert_eq!(count.load(Ordering::SeqCst), requests);
    }
}

#[tokio::test]
async fn a_listing_of_hundreds_of_megabytes_is_not_read_to_its_end() {
    let (mut remote, _) = serve(|_, stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 900000000\r\n\r\n");
        let spaces = vec![b' '; 1 << 20];
        for _mib in 0..850 {
            if stream.write_all(&spaces).is_err() {
                return;
            }
        }
    });
    remote.timeout = Duration::from_secs(60);
    for remote in by_clouds(&remote).into_iter().chain([remote]) {
        let start = Instant::now();
        let error = listed(&remote).await.unwrap_err();
        assert!(!matches!(error, Error::TooSlow { .. }), "{error:?}");
        assert!(error.to_string().contains("16777216 bytes"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn an_object_that_is_larger_than_its_listing_or_is_cut_off_is_not_kept() {
    let object = |body: usize, len: usize| {
        serve(move |head, stream| {
            if head.contains("list-type=2") {
                return say(stream, "200 OK", "", &listing(&[("a.yaml", 10)], None));
            }
            let head = format!("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: {len}\r\n\r\n");
            let _gone = stream.write_all(head.as_bytes());
            let _gone = stream.write_all(&vec![b'x'; body]);
            let _gone = stream.shutdown(std::net::Shutdown::Both);
        })
        .0
    };
    let error = fetched(&object(8 << 20, 8 << 20)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    let error = fetched(&object(5, 10)).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    assert_eq!(fetched(&object(10, 10)).await.unwrap(), 1);
}

#[tokio::test]
async fn keys_that_climb_and_sizes_that_are_too_much_are_rejected_before_anything_is_fetched() {
    for (keys, text) in [
        (vec![("../../etc/passwd", 1)], "it has a segment `.` or `..`"),
        (vec![("a\\b", 1)], "it has a backslash"),
        (vec![("a/b", 1), ("a", 1)], "cannot both be files"),
        (vec![("a", 1 << 40)], "object 'a' has 1099511627776 bytes"),
    ] {
        let (remote, count) =
            serve(move |_, stream| say(stream, "200 OK", "", &listing(&keys, None)));
        let error = fetched(&remote).await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn an_object_that_vanishes_is_left_out_and_one_that_changes_counts_as_it_is() {
    let (remote, _) = serve(|head, stream| {
        if head.contains("list-type=2") {
            say(stream, "200 OK", "", &listing(&[("a", 1), ("b", 1)], None));
        } else if head.starts_with("GET /b/a") {
            let text = "<Error><Code>NoSuchKey</Code></Error>";
            say(stream, "404 Not Found", "", text);
        } else {
            say(stream, "200 OK", "ETag: \"2\"\r\n", "x");
        }
    });
    let known = BucketClientCache::default();
    let listed = list(&remote, None, &BucketFetchState::default(), &known).await.unwrap();
    let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await.unwrap();
    assert_eq!(fetched.count, 1);
    assert_eq!(fetched.note.objects, [("b".to_owned(), "2".to_owned())].into());
}

#[tokio::test]
async fn what_a_proxy_answers_in_place_of_an_object_is_an_error() {
    for (status, body) in [
        ("200 OK", "<html>sign in</html>"),
        ("200 OK", ""),
        ("404 Not Found", "<html>no route</html>"),
        ("404 Not Found", ""),
        ("304 Not Modified", ""),
    ] {
        let (remote, _) = serve(move |head, stream| {
            if head.contains("list-type=2") {
                return say(stream, "200 OK", "", &listing(&[("a", 1)], None));
            }
            say(stream, status, "", body);
        });
        let error = fetched(&remote).await.unwrap_err();
        let is_named = matches!(error, Error::Unreadable { .. } | Error::Answer { .. });
        assert!(is_named, "{status} {body}: {error:?}");
    }
}

#[tokio::test]
async fn what_a_proxy_answers_in_place_of_an_object_of_a_cloud_is_an_error() {
    let of_google = r#"{"items": [{"name": "a", "etag": "1"}]}"#;
    let of_azure = "<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Etag>1</Etag></Properties></Blob>\
        </Blobs><NextMarker/></EnumerationResults>";
    for (status, body) in [
        ("200 OK", "<html>sign in</html>"),
        ("200 OK", ""),
        ("404 Not Found", "<html>no route</html>"),
        ("404 Not Found", ""),
    ] {
        let (remote, _) = serve(move |head, stream| {
            if head.contains("comp=list") {
                say(stream, "200 OK", "", of_azure);
            } else if head.contains("/o?") {
                say(stream, "200 OK", "", of_google);
            } else {
                say(stream, status, "", body);
            }
        });
        for remote in by_clouds(&remote) {
            let error = fetched(&remote).await.unwrap_err();
            let is_named = matches!(error, Error::Unreadable { .. } | Error::Answer { .. });
            assert!(is_named, "{status} {body}: {error:?}");
        }
    }
}

#[tokio::test]
async fn errors_of_a_server_are_quoted_and_shortened() {
    for (status, body, expected) in [
        (
            "403 Forbidden",
            "<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error>".to_owned(),
            "clock",
        ),
        (
            "403 Forbidden",
            "<Error><Code>SignatureDoesNotMatch</Code></Error>".to_owned(),
            "secret key",
        ),
        ("403 Forbidden", String::new(), "denied (403)"),
        (
            "404 Not Found",
            "<Error><Code>NoSuchBucket</Code></Error>".to_owned(),
            "bucket 'b' not found",
        ),
        (
            "400 Bad Request",
            format!("<Error><Code>Odd</Code><Message>{}</Message></Error>", "m".repeat(100_000)),
            "400 (Odd): mmm",
        ),
        ("200 OK", "<html>no S3</html>".to_owned(), "cannot read the response"),
        ("301 Moved", String::new(), "301"),
    ] {
        let (remote, _) = serve(move |_, stream| {
            say(stream, status, "Location: http://169.254.169.254/\r\n", &body);
        });
        let error = listed(&remote).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{status}: {error}");
        assert!(error.len() < 600, "{error}");
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_a_few_times() {
    let (mut remote, count) = serve(|_, stream| {
        say(stream, "503 Slow Down", "", "<Error><Code>SlowDown</Code></Error>");
    });
    remote.timeout = Duration::from_secs(30);
    let error = listed(&remote).await.unwrap_err().to_string();
    assert!(error.contains("503 (SlowDown)"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_bucket_of_another_region_is_asked_there_once() {
    let (mut remote, count) = serve(|head, stream| {
        let region = "x-amz-bucket-region: eu-west-1\r\n";
        if head.contains("/eu-west-1/s3/aws4_request") {
            say(stream, "200 OK", region, &listing(&[("a", 1)], None));
        } else {
            say(
                stream,
                "400 Bad Request",
                region,
                "<Error><Code>AuthorizationHeaderMalformed</Code></Error>",
            );
        }
    });
    let secret = objects::RedactedValue::new("s".to_owned());
    remote.server.identity =
        BucketCredentialSource::Keys { access: "a".to_owned(), secret, session: None };
    let known = BucketClientCache::default();
    for requests in [2, 3] {
        let listed = list(&remote, None, &BucketFetchState::default(), &known).await.unwrap();
        assert_eq!((listed.len(), count.load(Ordering::SeqCst)), (1, requests));
    }
}

#[tokio::test]
async fn bodies_come_as_they_are_stored() {
    // What the server calls compressed is an object like any other.
    let (remote, _) = serve(|head, stream| {
        if head.contains("list-type=2") {
            say(stream, "200 OK", "", &listing(&[("a.gz", 3)], None));
        } else {
            say(stream, "200 OK", "ETag: \"1\"\r\nContent-Encoding: gzip\r\n", "raw");
        }
    });
    assert_eq!(fetched(&remote).await.unwrap(), 1);
    let (remote, _) = serve(|_, stream| say(stream, "200 OK", "ETag: \"1\"\r\n", ""));
    assert!(bucket_archive::ask(&remote, "a.zip", &BucketClientCache::default()).await.is_ok());
}
