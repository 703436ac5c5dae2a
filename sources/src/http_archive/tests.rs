//! Files from a server on loopback that answers well, wrongly, slowly or with traps.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use artifacts::archive::{ExtractOptions, extract, write};
use flate2::write::GzEncoder;
use http_client::{EgressRules, HostBudgets, HttpClientCache};
use objects::RedactedValue;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tree::{FileTree as _, MemoryTree};

use super::*;

/// Requests as they came in, in lower case.
type HttpRequestLog = Arc<Mutex<Vec<String>>>;

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}connection: close\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Answers a path with its bytes, and a request with the right `If-None-Match` with 304.
async fn serve(answers: Vec<(&'static str, Vec<u8>)>) -> (String, HttpRequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let answers: BTreeMap<_, _> = answers.into_iter().collect();
    let asked = HttpRequestLog::default();
    let recorded = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).await.unwrap();
            let text = String::from_utf8_lossy(&bytes[..length]).to_ascii_lowercase();
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            let is_known = text.contains("if-none-match: \"one\"");
            recorded.lock().push(text);
            let found = match answers.get(path.as_str()) {
                Some(_) if is_known => answer("304 Not Modified\r\n", b""),
                Some(found) => found.clone(),
                None => answer("404 Not Found\r\n", b""),
            };
            if path == "/drip" {
                tokio::spawn(async move {
                    for byte in found {
                        if stream.write_all(&[byte]).await.is_err() {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                });
            } else {
                stream.write_all(&found).await.unwrap_or_default();
            }
        }
    });
    (base, asked)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

async fn asked(
    remote: &RemoteHttpArchive,
    validators: Option<&ArchiveEtagAndLastModified>,
) -> Result<HttpArchiveFetchResult, Error> {
    let clients = HttpClientCache::within(EgressRules::with_loopback());
    ask(remote, validators, &clients, &HostBudgets::default()).await
}

async fn fetched(url: &str) -> Result<MemoryTree, Error> {
    match asked(&RemoteHttpArchive::new(url)?, None).await? {
        HttpArchiveFetchResult::Found(download) => unpack(download),
        HttpArchiveFetchResult::Unchanged => panic!("unchanged without validators"),
    }
}

fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (name, body) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *body).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn listed(tree: &MemoryTree) -> String {
    tree.walk().map(|(path, _)| path.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_bytes_are_decides_and_names_only_where_they_do_not() {
    run(async {
        let archive = packed(&[("a/b.yaml", b"kind: B\n")]);
        let mut tar = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*archive), &mut tar).unwrap();
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        zip.start_file("z.yaml", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(b"kind: Z\n").unwrap();
        let zip = zip.finish().unwrap().into_inner();
        let ok = |body: &[u8]| answer("200 OK\r\n", body);
        let (base, _) = serve(vec![
            ("/a.tar.gz", ok(&archive)),
            ("/download?id=1", ok(&archive)),
            ("/unpacked-on-the-way.tar.gz", ok(&tar)),
            ("/called.yaml", ok(&zip)),
            ("/app.yml", ok(b"kind: A\n---\nkind: B\n")),
            ("/app.json", ok(b"{\"kind\": \"A\"}")),
            ("/latest", ok(b"kind: A\n")),
            ("/b.tgz", ok(b"kind: A\n")),
            ("/c", answer("200 OK\r\ncontent-type: application/zip\r\n", b"kind: A\n")),
            ("/login", answer("200 OK\r\n", b"\n <!doctype html><p>Log in")),
            ("/readme", ok(b"Hello: [")),
            ("/list", ok(b"- a\n- b\n")),
            ("/nothing", ok(b"# nothing\n")),
        ])
        .await;
        let mut lines = Vec::new();
        for path in [
            "a.tar.gz",
            "download?id=1",
            "unpacked-on-the-way.tar.gz",
            "called.yaml",
            "app.yml",
            "app.json",
            "latest",
            "b.tgz",
            "c",
            "login",
            "readme",
            "list",
            "nothing",
        ] {
            let found = match fetched(&format!("{base}/{path}")).await {
                Ok(tree) => listed(&tree),
                Err(error) => error.to_string().replace(&base, "http://h"),
            };
            lines.push(format!("{path}: {found}"));
        }
        expect_test::expect![[r#"
            a.tar.gz: a a/b.yaml
            download?id=1: a a/b.yaml
            unpacked-on-the-way.tar.gz: a a/b.yaml
            called.yaml: z.yaml
            app.yml: app.yml
            app.json: app.json
            latest: manifest.yaml
            b.tgz: `http://h/b.tgz` is not a tar.gz, zip or YAML file: its name or type says a tar archive, but its content is not
            c: `http://h/c` is not a tar.gz, zip or YAML file: its name or type says a zip archive, but its content is not
            login: `http://h/login` is not a tar.gz, zip or YAML file: it is an HTML page, perhaps a login page
            readme: `http://h/readme` is not a tar.gz, zip or YAML file: yaml: line 1: did not find expected node content
            list: `http://h/list` is not a tar.gz, zip or YAML file: the document at line 1 is not an object
            nothing: `http://h/nothing` is not a tar.gz, zip or YAML file: it is empty"#]]
        .assert_eq(&lines.join("\n"));
    });
}

#[test]
fn unchanged_costs_one_question_and_no_bytes() {
    run(async {
        let headers = "200 OK\r\netag: \"one\"\r\nlast-modified: Sun, 22 Nov 2026 09:00:00 GMT\r\n";
        let (base, questions) = serve(vec![("/a.yaml", answer(headers, b"kind: A\n"))]).await;
        let remote = RemoteHttpArchive::new(&format!("{base}/a.yaml")).unwrap();
        let HttpArchiveFetchResult::Found(first) = asked(&remote, None).await.unwrap() else {
            panic!("nothing")
        };
        assert!(!first.validators.is_empty());
        let second = asked(&remote, Some(&first.validators)).await.unwrap();
        assert!(matches!(second, HttpArchiveFetchResult::Unchanged), "{second:?}");
        let questions = questions.lock();
        assert_eq!(questions.len(), 2);
        assert!(questions[1].contains("if-modified-since: sun, 22 nov 2026 09:00:00 gmt"));
        assert!(!questions[0].contains("if-none-match"));
    });
}

#[test]
fn bytes_have_the_digest_that_is_asked_for() {
    run(async {
        let (base, _) = serve(vec![("/a.yaml", answer("200 OK\r\n", b"kind: A\n"))]).await;
        let remote = || RemoteHttpArchive::new(&format!("{base}/a.yaml")).unwrap();
        let HttpArchiveFetchResult::Found(found) = asked(&remote(), None).await.unwrap() else {
            panic!("nothing")
        };
        let right = remote().with_digest(Some(&found.digest)).unwrap();
        assert!(asked(&right, None).await.is_ok());
        let other = format!("sha256:{}", "0".repeat(64));
        let wrong = remote().with_digest(Some(&other)).unwrap();
        let error = asked(&wrong, None).await.unwrap_err().to_string();
        assert!(error.contains(&other) && error.contains("spec.digest"), "{error}");
        assert!(!error.contains(&found.digest), "it tells what is there: {error}");
        for bad in ["sha256:1", "md5:00", "", &found.digest.to_ascii_uppercase()] {
            assert!(
                matches!(remote().with_digest(Some(bad)), Err(Error::InvalidDigest(_))),
                "{bad}"
            );
        }
    });
}

#[test]
fn redirects_are_followed_to_where_we_may_go_and_credentials_stay() {
    run(async {
        let (other, at_other) = serve(vec![("/a.yaml", answer("200 OK\r\n", b"kind: A\n"))]).await;
        let to = |target: &str| answer(&format!("302 Found\r\nlocation: {target}\r\n"), b"");
        let (base, at_base) = serve(vec![
            ("/there", to("/here")),
            ("/here", to(&format!("{}/a.yaml", other.replace("http://", "http://me:hunter3@")))),
            ("/round", to("/round")),
            ("/file", to("file:///etc/passwd")),
            ("/ftp", to("ftp://me:hunter2@h/a?token=hunter2")),
            ("/link", to("http://169.254.169.254/latest/meta-data/")),
            ("/mapped", to("http://[::ffff:a9fe:a9fe]/")),
            ("/nowhere", to("http://[")),
            ("/silent", answer("302 Found\r\n", b"")),
        ])
        .await;
        let mut remote = RemoteHttpArchive::new(&format!("{base}/there")).unwrap();
        let password = RedactedValue::new("hunter2".to_owned());
        remote.auth = GitAuth::Basic { username: "me".to_owned(), password };
        assert!(matches!(asked(&remote, None).await, Ok(HttpArchiveFetchResult::Found(_))));
        assert!(at_base.lock().iter().all(|asked| asked.contains("authorization: basic")));
        assert_eq!(at_base.lock().len(), 2);
        assert!(!at_other.lock()[0].contains("authorization"));

        let mut lines = Vec::new();
        for path in ["round", "file", "ftp", "link", "mapped", "nowhere", "silent"] {
            let error = fetched(&format!("{base}/{path}")).await.unwrap_err();
            lines.push(error.to_string().replace(&base, "http://h"));
        }
        let asked = at_base.lock();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("get /round ")).count(), 11);
        let lines = lines.join("\n");
        assert!(!lines.contains("hunter2"), "{lines}");
        expect_test::expect![[r#"
            redirect from `http://h/round` to `http://127.0.0.1` not allowed: too many redirects
            redirect from `http://h/file` to `file://` not allowed: only http:// and https:// are supported
            redirect from `http://h/ftp` to `ftp://h` not allowed: only http:// and https:// are supported
            redirect from `http://h/link` to `http://169.254.169.254` not allowed: `169.254.169.254` resolves to a link-local or cloud metadata address, which is not allowed
            redirect from `http://h/mapped` to `http://[::ffff:a9fe:a9fe]` not allowed: `[::ffff:a9fe:a9fe]` resolves to a link-local or cloud metadata address, which is not allowed
            redirect from `http://h/nowhere` to an invalid URL not allowed: it is not a URL
            cannot fetch `http://h/silent`: HTTP status 302"#]]
        .assert_eq(&lines);
    });
}

#[test]
fn tls_is_never_left() {
    let at = Url::parse("https://h/a").unwrap();
    let remote = RemoteHttpArchive::new("https://h/a").unwrap();
    run(async {
        let clients = HttpClientCache::default();
        let budgets = HostBudgets::default();
        let client = clients.client(&remote.tls, None).unwrap();
        let left = request::next_for_tests(&remote, client, &budgets, &at, "http://h/a");
        assert_eq!(
            left.unwrap_err().to_string(),
            "redirect from `https://h/a` to `http://h` not allowed: it downgrades from https to http"
        );
    });
}

#[test]
fn urls_with_credentials_and_other_schemes_are_refused_and_not_shown() {
    for (url, why) in [
        ("https://me:hunter2@h/a", "credentials belong in the Secret"),
        ("https://hunter2@h/a", "credentials belong in the Secret"),
        ("file:///etc/passwd", "only http:// and https://"),
        ("oci://h/a", "only http:// and https://"),
        ("h/a", "it is not a URL"),
        ("", "it is not a URL"),
    ] {
        let error = RemoteHttpArchive::new(url).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_server_that_drips_or_does_not_stop_is_left() {
    run(async {
        let body = vec![b'#'; 10_000];
        let endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        let (base, _) = serve(vec![
            ("/drip", answer("200 OK\r\n", &body)),
            ("/large", answer("200 OK\r\n", &body)),
            ("/endless", [endless, body.clone()].concat()),
        ])
        .await;
        for (path, wanted) in
            [("drip", "timed out"), ("large", "larger than"), ("endless", "larger than")]
        {
            let mut remote = RemoteHttpArchive::new(&format!("{base}/{path}")).unwrap();
            remote.limits = HttpArchiveLimits { bytes: 5_000, time: Duration::from_millis(400) };
            if path == "drip" {
                remote.limits.bytes = 1 << 20;
            }
            let error = asked(&remote, None).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{path}: {error}");
        }
    });
}

#[test]
fn statuses_say_what_to_do() {
    run(async {
        let (base, _) = serve(vec![
            ("/401", answer("401 Unauthorized\r\n", b"")),
            ("/500", answer("500 Oh\r\n", b"")),
            ("/206", answer("206 Partial\r\n", b"kind: A")),
            ("/304", answer("304 Not Modified\r\n", b"")),
            ("/429", answer("429 Slow\r\nretry-after: 120\r\n", b"")),
        ])
        .await;
        for (path, wanted) in [
            ("401", "check the credentials in the Secret"),
            ("404", "HTTP status 404"),
            ("500", "HTTP status 500"),
            ("206", "HTTP status 206"),
            ("304", "HTTP status 304"),
            ("429", "responded with HTTP status 429; next request at 20"),
        ] {
            let error = fetched(&format!("{base}/{path}")).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{path}: {error}");
        }
        let closed = fetched("http://127.0.0.1:1/a").await.unwrap_err().to_string();
        assert!(closed.contains("Connection refused"), "{closed}");
    });
}

#[test]
fn hostile_archives_are_refused_or_harmless() {
    run(async {
        // How many entries there may be is tested where archives are (`tests/archive_hostile.rs`).
        let zeros = vec![0; 20 << 20];
        let mut links = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::best()));
        for kind in [tar::EntryType::Symlink, tar::EntryType::Char] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            links.append_link(&mut header, "dev", "/etc/passwd").unwrap();
        }
        let links = links.into_inner().unwrap().finish().unwrap();
        let ok = |body: Vec<u8>| answer("200 OK\r\n", &body);
        let (base, _) = serve(vec![
            ("/bomb", ok(packed(&[("zeros", &zeros)]))),
            ("/links", ok(links)),
            ("/folds", ok(packed(&[("a.yaml", b"kind: A"), ("A.yaml", b"kind: B")]))),
            ("/cut", ok(packed(&[("a", b"1")])[..40].to_vec())),
        ])
        .await;
        for (path, wanted) in [
            ("bomb", "decompression bomb"),
            ("links", "unsupported file type"),
            ("cut", "cannot read the archive"),
        ] {
            let error = fetched(&format!("{base}/{path}")).await.err().unwrap();
            let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
            assert!(text.contains(wanted), "{path}: {text}");
        }
        assert_eq!(listed(&fetched(&format!("{base}/folds")).await.unwrap()), "A.yaml a.yaml");
    });
}

#[test]
fn the_same_files_have_one_revision_however_they_were_packed() {
    let tree =
        |files: &[(&str, &[u8])]| extract(&*packed(files), &ExtractOptions::default()).unwrap();
    let one = tree(&[("a", b"1"), ("b", b"2")]);
    assert_eq!(revision(&one), revision(&tree(&[("b", b"2"), ("a", b"1")])));
    for other in [&[("a", &b"2"[..]), ("b", b"1")][..], &[("a", b"1")], &[("a", b"1b2")]] {
        assert_ne!(revision(&one), revision(&tree(other)), "{other:?}");
    }
    assert_eq!(revision(&one).len(), "sha256:".len() + 64);
}

#[test]
fn what_is_ignored_is_not_in_the_artifact() {
    let tree = extract(
        &*packed(&[(".sourceignore", b"*.md\n"), ("a.md", b""), ("b.txt", b""), ("c.yaml", b"")]),
        &ExtractOptions::default(),
    )
    .unwrap();
    let contents = contents(&tree, Some("*.txt\n")).unwrap();
    let packed = write(Vec::new(), &contents, |_, path| tree.read(path)).unwrap();
    let kept = extract(&*packed, &ExtractOptions::default()).unwrap();
    assert_eq!(listed(&kept), ".sourceignore c.yaml");
}
