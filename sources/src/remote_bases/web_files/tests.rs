//! Files from servers on loopback, which answer well, wrongly or not at all.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use http_client::TlsConfig;

use super::*;

/// Answers each request with what its path is given; others with 404.
pub(crate) fn serve(answers: Vec<(&'static str, Vec<u8>)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap();
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let path = asked.split(' ').nth(1).unwrap_or_default();
            let found = answers.iter().find(|(known, _)| *known == path);
            let found =
                found.map_or_else(|| answer("404 Not Found", "", b""), |(_, bytes)| bytes.clone());
            stream.write_all(&found).unwrap_or_default();
        }
    });
    address
}

pub(crate) fn answer(status: &str, header: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{header}\r\n"
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn fetch(address: &str, limits: WebFileLimits) -> Result<Arc<[u8]>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = http_client::client(&TlsConfig::default(), None).unwrap();
    runtime.block_on(get(&client, &HostBudgets::default(), &EgressRules::Anywhere, address, limits))
}

fn refused(address: &str) -> String {
    fetch(address, WebFileLimits::default()).unwrap_err().to_string()
}

#[test]
fn a_file_is_fetched_where_redirects_lead() {
    let to = |target: &str| answer("302 Found", &format!("location: {target}\r\n"), b"");
    let server = serve(vec![
        ("/a.yaml", to("/b.yaml")),
        ("/b.yaml", to("c.yaml?x=1")),
        ("/c.yaml?x=1", answer("200 OK", "", b"kind: A\n")),
        ("/round", to("/round")),
        ("/out", to("ftp://me:hunter2@host/a")),
        ("/nowhere", answer("302 Found", "", b"")),
    ]);
    let found = fetch(&format!("http://{server}/a.yaml"), WebFileLimits::default()).unwrap();
    assert_eq!(&found[..], b"kind: A\n");
    assert_eq!(
        refused(&format!("http://{server}/round")),
        format!("Get \"http://{server}/round\": stopped after 10 redirects")
    );
    assert_eq!(
        refused(&format!("http://{server}/out")),
        "Get \"ftp://***@host/a\": unsupported protocol scheme \"ftp\""
    );
    assert_eq!(refused(&format!("http://{server}/nowhere")), "HTTP Error: status code 302 (Found)");
}

#[test]
fn what_is_not_there_may_still_be_a_repository() {
    let server = serve(Vec::new());
    let file = refused(&format!("http://{server}/a.yaml"));
    assert_eq!(file, "HTTP Error: status code 404 (Not Found)");
    let repository = refused(&format!("http://{server}/org/repo"));
    assert_eq!(repository, "URL is a git repository");
}

#[test]
fn a_file_without_end_is_given_up() {
    let server = serve(vec![("/a", answer("200 OK", "", &[b'#'; 2000]))]);
    let address = format!("http://{server}/a");
    let limits = WebFileLimits { bytes: 1000, ..WebFileLimits::default() };
    let error = fetch(&address, limits).unwrap_err().to_string();
    assert_eq!(error, format!("Get \"{address}\": the file is larger than 1000 bytes"));
    assert!(fetch(&address, WebFileLimits { bytes: 2000, ..limits }).is_ok());
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/a", listener.local_addr().unwrap());
    let limits = WebFileLimits { time: Duration::from_millis(50), ..WebFileLimits::default() };
    let error = fetch(&address, limits).unwrap_err().to_string();
    assert_eq!(error, format!("Get \"{address}\": no complete response within 50ms"));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_without_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(
        refused(&format!("http://me:hunter2@{closed}/a")),
        format!("Get \"http://***@{closed}/a\": dial tcp {closed}: connect: connection refused")
    );
    assert_eq!(
        refused("http://example.invalid/a"),
        "Get \"http://example.invalid/a\": dial tcp: lookup example.invalid: no such host"
    );
    assert!(!refused("http://me:hunter2@host:port/a").contains("hunter2"));
}

#[test]
fn no_address_in_a_text_shows_credentials() {
    let text =
        "from 'https://me:hunter2@host/a': Get \"http://hunter2@host:1?x=a@b\": ssh://hunter2@h";
    let wanted = "from 'https://***@host/a': Get \"http://***@host:1?x=a@b\": ssh://***@h";
    assert_eq!(without_credentials(text), wanted);
    for text in ["https://host/package@v1", "a@b", "://", "https://"] {
        assert_eq!(without_credentials(text), text);
    }
}
