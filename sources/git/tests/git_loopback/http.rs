//! Over HTTP and HTTPS.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use expect_test::expect;
use git::{Error, GitReference};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::test_repository::BareRepository;
use crate::{FetchCase, commit, files, main_branch};

fn case(server: &GitHttpServer) -> FetchCase {
    FetchCase::new(&server.url(), &[])
}

pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn a_branch_comes_with_its_files_in_the_order_of_a_walk() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let fetched = case(&server).fetch(&main_branch()).unwrap();
    let sha = repository.commit_of("main");
    assert_eq!(fetched.revision.to_string(), format!("main@sha1:{sha}"));
    assert_eq!(fetched.commit.sha, sha);
    assert_eq!(fetched.commit.summary, "third");
    assert_eq!(fetched.commit.authored.as_second(), 1_700_000_000);
    assert_eq!(fetched.committed(), 1_700_000_001);
    expect![[r##"
        [
            "File { is_executable: false } B \"\"",
            "Symlink a/link \"../a.txt\"",
            "File { is_executable: true } a/run.sh \"#!/bin/sh\\n\"",
            "File { is_executable: false } a/z.yaml \"z: 1\\n\"",
            "File { is_executable: false } a.txt \"three\"",
        ]
    "##]]
    .assert_debug_eq(&files(&fetched));
}

#[test]
fn only_the_last_commit_of_a_branch_is_asked_for() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    case(&server).fetch(&main_branch()).unwrap();
    let last = String::from_utf8_lossy(&server.seen().last().unwrap().body).into_owned();
    assert!(last.contains("deepen 1"), "{last}");
    assert!(last.contains(&repository.commit_of("main")), "{last}");
}

#[test]
fn a_tag_is_peeled_to_its_commit() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let sha = repository.commit_of("v1");
    for (name, is_old) in [("v1", false), ("light", false), ("v1", true), ("light", true)] {
        let old = GitHttpServer::start(
            repository.root.path(),
            GitHttpServerBehavior { is_old, ..GitHttpServerBehavior::default() },
        );
        let case = if is_old { case(&old) } else { case(&server) };
        let reference = GitReference::Tag(name.to_owned());
        let fetched = case.fetch(&reference).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("{name}@sha1:{sha}"));
        assert_eq!(fetched.commit.summary, "first");
        assert_eq!(fetched.message(), "first\n\nmore\n");
        assert_eq!(files(&fetched), [r#"File { is_executable: false } a.txt "one""#]);
        let tip = case.tip(&reference).unwrap();
        assert_eq!((tip.sha.as_str(), tip.refname), (sha.as_str(), format!("refs/tags/{name}")));
    }
}

#[test]
fn a_bare_commit_is_fetched_alone() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let sha = repository.commit_of("main~1");
    let fetched = case(&server).fetch(&commit(&sha, None)).unwrap();
    assert_eq!(fetched.revision.to_string(), format!("sha1:{sha}"));
    assert_eq!(files(&fetched), [r#"File { is_executable: false } a.txt "two""#]);
    assert_eq!(server.seen().len(), 2, "a handshake and a fetch, no list of references");

    let asked = server.seen().len();
    assert_eq!(case(&server).tip(&commit(&sha, None)).unwrap().sha, sha);
    assert_eq!(server.seen().len(), asked, "a commit cannot change, so nothing is asked");
}

#[test]
fn a_server_that_gives_no_bare_commits_gives_everything() {
    let repository = BareRepository::with_history();
    let manners = GitHttpServerBehavior { is_old: true, ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let sha = repository.commit_of("main~1");
    let fetched = case(&server).fetch(&commit(&sha, None)).unwrap();
    assert_eq!(fetched.revision.to_string(), format!("sha1:{sha}"));
    assert_eq!(files(&fetched), [r#"File { is_executable: false } a.txt "two""#]);
}

#[test]
fn a_commit_that_does_not_exist_is_said_to_be_missing() {
    let repository = BareRepository::with_history();
    let absent = "0123456789012345678901234567890123456789";
    let blob = repository.git(&["rev-parse", "main:a.txt"], b"");
    for is_old in [false, true] {
        let server = GitHttpServer::start(
            repository.root.path(),
            GitHttpServerBehavior { is_old, ..GitHttpServerBehavior::default() },
        );
        for sha in [absent, &blob] {
            let error = case(&server).fetch(&commit(sha, None)).unwrap_err();
            assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
            assert!(
                error.to_string().starts_with(&format!("commit `{sha}` not found in ")),
                "{error}"
            );
        }
    }
}

#[test]
fn a_commit_must_be_on_the_branch_that_is_named_with_it() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    for (name, summary) in [("main", "third"), ("main~2", "first")] {
        let sha = repository.commit_of(name);
        let fetched = case(&server).fetch(&commit(&sha, Some("main"))).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("main@sha1:{sha}"));
        assert_eq!(fetched.commit.summary, summary);
    }
    let sha = repository.commit_of("side");
    let error = case(&server).fetch(&commit(&sha, Some("main"))).unwrap_err();
    assert!(matches!(&error, Error::NotOnBranch { branch, .. } if branch == "main"), "{error:?}");
    let error = case(&server).fetch(&commit(&sha, Some("absent"))).unwrap_err();
    assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
}

#[test]
fn looking_whether_a_branch_moved_is_cheap_however_many_there_are() {
    let repository = BareRepository::with_history();
    let sha = repository.commit_of("main");
    let many: String = (0..3000).map(|i| format!("{sha} refs/heads/team/{i}\n")).collect();
    std::fs::write(repository.path().join("packed-refs"), many).unwrap();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let tip = case(&server).tip(&main_branch()).unwrap();
    assert_eq!((tip.sha, tip.refname.as_str()), (sha, "refs/heads/main"));
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "a handshake and a list of one");
    let bytes: usize = seen.iter().map(|seen| seen.answer.len() + seen.body.len()).sum();
    assert!(bytes < 2048, "{bytes} bytes");
}

#[test]
fn a_password_is_sent_with_the_first_request() {
    let repository = BareRepository::with_history();
    let manners = GitHttpServerBehavior {
        authorization: Some(basic("me", "hunter2")),
        ..GitHttpServerBehavior::default()
    };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let right = [("username", "me"), ("password", "hunter2")];
    FetchCase::new(&server.url(), &right).fetch(&main_branch()).unwrap();
    assert!(server.seen().iter().all(|seen| seen.authorization.is_some()));

    let in_url = server.url().replace("://", "://me:hunter2@");
    FetchCase::new(&in_url, &[]).fetch(&main_branch()).unwrap();

    for secret in [&[][..], &[("username", "me"), ("password", "wrong")]] {
        let error = FetchCase::new(&server.url(), secret).refused(&main_branch());
        assert!(matches!(error, Error::AuthenticationFailed { .. }), "{error:?}");
        assert!(error.to_string().contains("401"), "{error}");
    }
}

#[test]
fn a_bearer_token_is_sent_as_one() {
    let repository = BareRepository::with_history();
    let authorization = Some("Bearer hunter2".to_owned());
    let server = GitHttpServer::start(
        repository.root.path(),
        GitHttpServerBehavior { authorization, ..GitHttpServerBehavior::default() },
    );
    FetchCase::new(&server.url(), &[("bearerToken", "hunter2")]).fetch(&main_branch()).unwrap();
    let error = FetchCase::new(&server.url(), &[("bearerToken", "wrong")]).refused(&main_branch());
    assert!(matches!(error, Error::AuthenticationFailed { .. }), "{error:?}");
}

/// An authority, and what it signs for `localhost` and for a client.
pub(crate) struct TestPki {
    pub(crate) ca: String,
    pub(crate) server: Arc<rustls::ServerConfig>,
    client: (String, String),
}

pub(crate) fn pki(wants_client: bool) -> TestPki {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(authority, key);
    let signed = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned()];
        (rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap(), key)
    };
    let (certificate, key) = signed();
    let (client, client_key) = signed();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let server = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    TestPki {
        ca: ca.pem(),
        server: Arc::new(server),
        client: (client.pem(), client_key.serialize_pem()),
    }
}

pub(crate) fn tls_url(server: &GitHttpServer) -> String {
    format!("https://localhost:{}/app.git", server.address.port())
}

#[test]
fn a_private_authority_must_be_given() {
    let repository = BareRepository::with_history();
    let pki = pki(false);
    let manners =
        GitHttpServerBehavior { tls: Some(pki.server), ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let url = tls_url(&server);
    for key in ["ca.crt", "caFile"] {
        FetchCase::new(&url, &[(key, &pki.ca)]).fetch(&main_branch()).unwrap();
    }
    let other = self::pki(false).ca;
    for secret in [&[][..], &[("ca.crt", other.as_str())]] {
        let error = FetchCase::new(&url, secret).refused(&main_branch());
        assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
        assert!(error.to_string().contains("ca.crt"), "{error}");
    }
}

#[test]
fn a_client_certificate_is_shown_to_a_server_that_asks() {
    let repository = BareRepository::with_history();
    let pki = pki(true);
    let manners =
        GitHttpServerBehavior { tls: Some(pki.server), ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let secret =
        [("ca.crt", pki.ca.as_str()), ("tls.crt", &pki.client.0), ("tls.key", &pki.client.1)];
    FetchCase::new(&tls_url(&server), &secret).fetch(&main_branch()).unwrap();
    let error = FetchCase::new(&tls_url(&server), &secret[..1]).refused(&main_branch());
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[test]
fn credentials_follow_a_redirect_only_on_the_same_server() {
    let repository = BareRepository::with_history();
    let moved = repository.root.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(repository.path(), moved.join("app.git")).unwrap();
    let target = GitHttpServer::start(&moved, GitHttpServerBehavior::default());
    let secret = [("username", "me"), ("password", "hunter2")];

    let elsewhere = Some(format!("http://localhost:{}", target.address.port()));
    let front = GitHttpServer::start(
        &moved,
        GitHttpServerBehavior { redirect: elsewhere, ..GitHttpServerBehavior::default() },
    );
    FetchCase::new(&front.url(), &secret).fetch(&main_branch()).unwrap();
    assert!(front.seen().iter().all(|seen| seen.authorization.is_some()));
    assert!(target.seen().len() >= 3, "it was followed, and the rest went there too");
    assert!(target.seen().iter().all(|seen| seen.authorization.is_none()));

    let redirect_prefix = Some("/old".to_owned());
    let server = GitHttpServer::start(
        &moved,
        GitHttpServerBehavior { redirect_prefix, ..GitHttpServerBehavior::default() },
    );
    let old = server.url().replace("/app.git", "/old/app.git");
    FetchCase::new(&old, &secret).fetch(&main_branch()).unwrap();
    assert!(server.seen().len() >= 4, "the redirect, the handshake, the list, the pack");
    assert!(server.seen().iter().all(|seen| seen.authorization.is_some()));
}

#[test]
fn a_redirect_out_of_tls_is_not_followed() {
    let repository = BareRepository::with_history();
    let plain = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let pki = pki(false);
    let redirect = Some(format!("http://{}", plain.address));
    let manners = GitHttpServerBehavior {
        tls: Some(pki.server),
        redirect,
        ..GitHttpServerBehavior::default()
    };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let error = FetchCase::new(&tls_url(&server), &[("ca.crt", &pki.ca)]).refused(&main_branch());
    assert!(matches!(error, Error::Redirected { .. }), "{error:?}");
    assert!(plain.seen().is_empty());
}

#[test]
fn redirects_in_a_circle_end() {
    let repository = BareRepository::with_history();
    let redirect = Some(String::new());
    let server = GitHttpServer::start(
        repository.root.path(),
        GitHttpServerBehavior { redirect, ..GitHttpServerBehavior::default() },
    );
    let error = case(&server).refused(&main_branch());
    assert!(matches!(error, Error::Redirected { .. }), "{error:?}");
}

#[test]
fn a_server_that_falls_silent_is_given_up_in_time() {
    let begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\nContent-Length: 5000\r\n\r\n001e# service=git-upload-pack\n";
    for stall_after in [b"".as_slice(), b"HTTP/1.1 200", begun] {
        let manners = GitHttpServerBehavior {
            stall_after: Some(stall_after.to_vec()),
            ..GitHttpServerBehavior::default()
        };
        let server = GitHttpServer::start(std::path::Path::new("/nowhere"), manners);
        let mut case = case(&server);
        case.remote.timeout = Duration::from_millis(300);
        let start = Instant::now();
        let error = case.refused(&main_branch());
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(error.to_string().ends_with("timed out after 0.3s"), "{error}");
    }
}

#[test]
fn a_cancelled_fetch_ends() {
    let stall_after = Some(Vec::new());
    let manners = GitHttpServerBehavior { stall_after, ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(std::path::Path::new("/nowhere"), manners);
    let case = case(&server);
    let cancel = case.context.cancel.clone();
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| case.fetch(&main_branch()).unwrap_err());
        while server.seen().is_empty() {
            std::thread::yield_now();
        }
        cancel.cancel();
        let error = fetch.join().unwrap();
        assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
    });
}

#[test]
fn what_is_not_there_is_named() {
    let repository = BareRepository::with_history();
    let empty = BareRepository::empty();
    for is_old in [false, true] {
        let manners = GitHttpServerBehavior { is_old, ..GitHttpServerBehavior::default() };
        let server = GitHttpServer::start(repository.root.path(), manners.clone());
        let error = case(&server).refused(&GitReference::default());
        assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
        assert_eq!(error.to_string(), format!("branch `master` not found in {}", server.url()));
        let error = case(&server).refused(&GitReference::Tag("mai".to_owned()));
        assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");

        let error =
            FetchCase::new(&server.url().replace("app", "absent"), &[]).refused(&main_branch());
        assert!(matches!(error, Error::RepositoryNotFound { .. }), "{error:?}");

        let server = GitHttpServer::start(empty.root.path(), manners);
        let error = case(&server).refused(&main_branch());
        assert!(matches!(error, Error::EmptyRepository { .. }), "{error:?}");
    }
}

#[test]
fn a_tag_of_something_else_than_a_commit_is_no_revision() {
    let repository = BareRepository::with_history();
    repository.git(&["tag", "of-a-blob", "main:a.txt"], b"");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let error = case(&server).fetch(&GitReference::Tag("of-a-blob".to_owned())).unwrap_err();
    assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
}

#[test]
fn a_closed_port_is_unreachable() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = FetchCase::new(&format!("http://{address}/app.git"), &[]).refused(&main_branch());
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("refused"), "{text}");
}

#[test]
fn answers_that_are_not_git_are_distinguished() {
    let check = |answer: &str, is_expected: fn(&Error) -> bool| {
        let answer = answer.replace('\n', "\r\n").into_bytes();
        let manners =
            GitHttpServerBehavior { answer: Some(answer), ..GitHttpServerBehavior::default() };
        let server = GitHttpServer::start(std::path::Path::new("/nowhere"), manners);
        let error = case(&server).refused(&main_branch());
        assert!(is_expected(&error), "{error:?}");
    };
    let page = "HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 4\n\n<br>";
    check(page, |e| matches!(e, Error::Protocol { .. }));
    let busy = "HTTP/1.1 503 Busy\nContent-Length: 0\n\n";
    check(busy, |e| matches!(e, Error::Unavailable { cause, .. } if cause.contains("503")));
    let rate = "HTTP/1.1 429 Slow\nContent-Length: 0\n\n";
    check(rate, |e| matches!(e, Error::Busy { busy, .. } if busy.status == 429));
    check("HTTP/1.1 403 No\nContent-Length: 0\n\n", |e| {
        matches!(e, Error::AuthenticationFailed { .. })
    });
    check("HTTP/1.1 418 Pot\nContent-Length: 0\n\n", |e| matches!(e, Error::Refused { .. }));
    check("complete nonsense\n\n", |e| matches!(e, Error::Unreachable { .. }));
    let short = "HTTP/1.1 200 OK\nContent-Type: application/x-git-upload-pack-advertisement\nContent-Length: 6\n\n00zz\n";
    check(short, |e| matches!(e, Error::Protocol { .. }));
}

#[test]
fn no_secret_is_repeated_even_if_the_server_says_it() {
    let secret = [("username", "me"), ("password", "hunter2")];
    let header = basic("me", "hunter2");
    let encoded = header.trim_start_matches("Basic ");
    let said = format!("you sent hunter2, that is {encoded}\u{1b}[31m");
    let line = format!("{:04x}ERR {said}", said.len() + 8);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\nContent-Length: {}\r\n\r\n{line}",
        line.len()
    );
    let manners = GitHttpServerBehavior {
        answer: Some(answer.into_bytes()),
        ..GitHttpServerBehavior::default()
    };
    let server = GitHttpServer::start(std::path::Path::new("/nowhere"), manners);
    let url = server.url().replace("://", "://me:hunter2@");
    let case = FetchCase::new(&url, &secret);
    let error = case.refused(&main_branch());
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let text = format!("{error} {error:?} {:?}", case.remote);
    assert!(text.contains("you sent ****, that is ****"), "{text}");
    assert!(
        !text.contains("hunter2") && !text.contains(encoded) && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn a_path_with_a_space_in_it_is_found() {
    let repository = BareRepository::with_history();
    std::fs::rename(repository.path(), repository.root.path().join("my app.git")).unwrap();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let url = server.url().replace("app.git", "my%20app.git");
    FetchCase::new(&url, &[]).fetch(&main_branch()).unwrap();
}
