//! Artifacts that are fetched from a server on loopback, which answers well, wrongly or not at all.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener},
    thread,
};

use tree::{FileTree as _, RelPath};

use super::*;
use crate::archive::{ArchiveContents, write};

/// Answers every connection with the same bytes, and leaves it open for a while when they are too few.
fn serve(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            let _asked = stream.read(&mut asked).unwrap();
            stream.write_all(&answer).unwrap_or_default();
            thread::sleep(Duration::from_millis(200));
        }
    });
    address
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn archive() -> (Vec<u8>, String) {
    let mut contents = ArchiveContents::new();
    contents.file(RelPath::parse("a.yaml").unwrap(), false, b"a: 1\n".to_vec()).unwrap();
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, std::convert::Infallible>(body.clone());
    let mut out = DigestingWriter::new(Vec::new());
    write(&mut out, &contents, load).unwrap();
    let (bytes, sealed) = out.finish();
    (bytes, sealed.digest)
}

fn fetched(
    address: SocketAddr,
    digest: &str,
    limits: &ArtifactFetchLimits,
) -> Result<Arc<MemoryTree>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), store::StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let url = format!("http://{address}/gitrepository/apps/app/1.tar.gz");
    let remote = RemoteArtifact { url, digest: digest.to_owned(), egress: EgressRules::Anywhere };
    load(&store, &remote, &ExtractOptions::default(), limits, runtime.handle())
}

const LIMITS: ArtifactFetchLimits =
    ArtifactFetchLimits { bytes: 1 << 20, time: Duration::from_secs(20) };

#[test]
fn an_artifact_of_another_store_is_fetched_and_extracted() {
    let (bytes, digest) = archive();
    let address = serve(answer("200 OK", &bytes));
    let tree = fetched(address, &digest, &LIMITS).unwrap();
    let body = tree.read(&RelPath::parse("a.yaml").unwrap()).unwrap();
    assert_eq!(&*body, b"a: 1\n");
}

#[test]
fn what_is_not_what_was_promised_is_refused() {
    let (bytes, digest) = archive();
    let address = serve(answer("200 OK", &bytes));
    let other = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(fetched(address, &other, &LIMITS), Err(Error::Mismatch { .. })));
    assert!(matches!(fetched(address, "md5:1", &LIMITS), Err(Error::Store(_))));
    let small = ArtifactFetchLimits { bytes: 10, ..LIMITS };
    assert!(matches!(fetched(address, &digest, &small), Err(Error::TooLarge { .. })));
}

#[test]
fn a_server_that_does_not_have_it_or_redirects_is_reported_by_its_status() {
    let (_, digest) = archive();
    let gone = serve(answer("404 Not Found", b""));
    assert!(matches!(fetched(gone, &digest, &LIMITS), Err(Error::Status { status: 404, .. })));
    let moved = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let moved = serve(moved.to_vec());
    assert!(matches!(fetched(moved, &digest, &LIMITS), Err(Error::Status { status: 302, .. })));
}

#[test]
fn a_server_that_stops_answering_is_given_up() {
    let (_, digest) = archive();
    let cut = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly".to_vec());
    assert!(matches!(fetched(cut, &digest, &LIMITS), Err(Error::NoAnswer { .. })));
    let short = ArtifactFetchLimits { time: Duration::from_millis(50), ..LIMITS };
    assert!(matches!(fetched(cut, &digest, &short), Err(Error::TooSlow { .. })));
}
