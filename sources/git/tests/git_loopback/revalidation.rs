//! Looking again: one small request where the server is known, and what happens when it is no longer what it was.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use git::{Error, GitReference};

use crate::http_server::{GitHttpRequest, GitHttpServer, GitHttpServerBehavior};
use crate::test_repository::BareRepository;
use crate::{FetchCase, commit, main_branch};

/// A server and a case that fetched from it.
fn acquainted(
    repository: &BareRepository,
    manners: GitHttpServerBehavior,
    secret: &[(&str, &str)],
) -> (GitHttpServer, FetchCase) {
    let server = GitHttpServer::start(repository.root.path(), manners);
    let case = FetchCase::new(&server.url(), secret);
    case.fetch(&main_branch()).unwrap();
    (server, case)
}

/// Checks a branch, and returns the requests that the server got for that.
fn look(
    server: &GitHttpServer,
    case: &FetchCase,
    repository: &BareRepository,
) -> Vec<GitHttpRequest> {
    let before = server.seen().len();
    let tip = case.tip(&main_branch()).unwrap();
    assert_eq!((tip.sha, tip.refname.as_str()), (repository.commit_of("main"), "refs/heads/main"));
    server.seen().split_off(before)
}

fn basic(user: &str, password: &str) -> Option<String> {
    Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
}

#[test]
fn a_remote_that_did_not_move_costs_one_small_request_however_many_branches_it_has() {
    let repository = BareRepository::with_history();
    let sha = repository.commit_of("main");
    let many: String = (0..3000).map(|i| format!("{sha} refs/heads/team/{i}\n")).collect();
    std::fs::write(repository.path().join("packed-refs"), many).unwrap();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    for _ in 0..3 {
        let asked = look(&server, &case, &repository);
        assert_eq!(asked.len(), 1);
        let bytes = asked[0].received + asked[0].answer.len();
        assert!(bytes < 2048, "{bytes} bytes");
    }
}

#[test]
fn a_remote_that_moved_shows_it_in_the_same_one_request() {
    let repository = BareRepository::with_history();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    let parent = repository.commit_of("main");
    repository.commit(&[("100644", "a", b"new")], "fourth", Some(&parent), "main");
    assert_eq!(look(&server, &case, &repository).len(), 1);
    let fetched = case.fetch(&main_branch()).unwrap();
    assert_eq!(fetched.commit.summary, "fourth");
}

#[test]
fn a_lookup_teaches_as_a_fetch_does_and_serves_every_reference() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    assert_eq!(look(&server, &case, &repository).len(), 2);
    assert_eq!(look(&server, &case, &repository).len(), 1);
    let tip = case.tip(&GitReference::Tag("v1".to_owned())).unwrap();
    assert_eq!(tip.sha, repository.commit_of("v1"), "peeled");
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn a_fetch_shakes_hands_each_time() {
    let repository = BareRepository::with_history();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    case.fetch(&commit(&repository.commit_of("side"), None)).unwrap();
    case.fetch(&main_branch()).unwrap();
    assert_eq!(server.seen().len(), 3 + 2 + 3);
}

#[test]
fn a_server_that_forgot_protocol_2_is_asked_as_it_wants_to_be() {
    let repository = BareRepository::with_history();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    server.change(|manners| manners.is_old = true);
    assert_eq!(look(&server, &case, &repository).len(), 2, "a question in vain, a handshake");
    assert_eq!(look(&server, &case, &repository).len(), 1, "a handshake brings everything");
    server.change(|manners| manners.is_old = false);
    assert_eq!(look(&server, &case, &repository).len(), 2);
    assert_eq!(look(&server, &case, &repository).len(), 1);
}

#[test]
fn any_other_answer_than_a_list_leads_to_a_handshake() {
    let repository = BareRepository::with_history();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    let git = "200 OK\r\nContent-Type: application/x-git-upload-pack-result";
    let other = "003d0123456789012345678901234567890123456789 refs/heads/maim\n0000";
    let answers = [
        ("200 OK\r\nContent-Type: text/html", "<br>"),
        ("401 Unauthorized", ""),
        ("404 Not Found", ""),
        ("503 Busy", ""),
        ("302 Found\r\nLocation: http://127.0.0.1:1/evil", ""),
        (git, ""),
        (git, "0000"),
        (git, "003d0123"),
        (git, "00zz"),
        (git, "000bERR no\n0000"),
        (git, other),
    ];
    let mut answers: Vec<String> = answers
        .map(|(head, body)| {
            format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        })
        .to_vec();
    answers.extend([String::new(), "complete nonsense\r\n\r\n".to_owned()]);
    for answer in answers {
        server.change(|manners| manners.once = Some(answer.clone().into_bytes()));
        // A connection that is closed without an answer may just have been old: the question is put once more.
        let requests = if answer.is_empty() { 2 } else { 3 };
        assert_eq!(look(&server, &case, &repository).len(), requests, "{answer:?}");
        assert_eq!(look(&server, &case, &repository).len(), 1, "it is known again");
    }
}

#[test]
fn what_is_reported_is_what_came_of_the_handshake() {
    let repository = BareRepository::with_history();
    let check = |first: &str, then: &str, is_expected: fn(&Error) -> bool| {
        let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
        server.change(|manners| {
            manners.once = Some(first.as_bytes().to_vec());
            manners.answer = Some(then.as_bytes().to_vec());
        });
        let error = case.tip(&main_branch()).unwrap_err();
        assert!(is_expected(&error), "{error:?}");
    };
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    let absent = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    check(busy, absent, |e| matches!(e, Error::RepositoryNotFound { .. }));
    let git = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result";
    let late = format!("{git}\r\nContent-Length: 15\r\n\r\n0000000bERR no\n");
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<br>";
    check(&late, page, |e| matches!(e, Error::Protocol { .. }));
}

#[test]
fn a_branch_that_is_gone_is_said_to_be_missing_and_found_when_it_is_back() {
    let repository = BareRepository::with_history();
    let (server, case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    let sha = repository.commit_of("main");
    repository.git(&["update-ref", "-d", "refs/heads/main"], b"");
    for _ in 0..2 {
        let error = case.tip(&main_branch()).unwrap_err();
        assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
    }
    repository.git(&["update-ref", "refs/heads/main", &sha], b"");
    look(&server, &case, &repository);
    assert_eq!(look(&server, &case, &repository).len(), 1);
}

#[test]
fn a_repository_that_moved_is_followed_without_credentials_and_not_remembered() {
    let repository = BareRepository::with_history();
    let secret = [("username", "me"), ("password", "hunter2")];
    let (front, case) = acquainted(&repository, GitHttpServerBehavior::default(), &secret);
    let target = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let elsewhere = format!("http://localhost:{}", target.address.port());
    front.change(|manners| manners.redirect = Some(elsewhere));
    assert_eq!(look(&front, &case, &repository).len(), 2, "a question in vain, a handshake");
    for _ in 0..2 {
        assert_eq!(look(&front, &case, &repository).len(), 1, "a handshake");
    }
    assert_eq!(target.seen().len(), 3 * 2, "a handshake and a list each time");
    assert!(target.seen().iter().all(|seen| seen.authorization.is_none()));

    // The address no longer redirects.
    front.change(|manners| manners.redirect = None);
    assert_eq!(look(&front, &case, &repository).len(), 2);
    assert_eq!(target.seen().len(), 6, "the old target is not asked any more");
}

#[test]
fn a_password_that_was_changed_is_noticed_on_both_sides() {
    let repository = BareRepository::with_history();
    let manners = GitHttpServerBehavior {
        authorization: basic("me", "hunter2"),
        ..GitHttpServerBehavior::default()
    };
    let secret = |password| [("username", "me"), ("password", password)];
    let (server, case) = acquainted(&repository, manners, &secret("hunter2"));
    let with = |password| {
        let mut other = FetchCase::new(&server.url(), &secret(password));
        other.context.known = case.context.known.clone();
        other
    };
    let is_refused = |case: &FetchCase| {
        let error = case.tip(&main_branch()).unwrap_err();
        assert!(matches!(error, Error::AuthenticationFailed { .. }), "{error:?}");
    };
    assert_eq!(look(&server, &case, &repository).len(), 1);
    is_refused(&with("wrong"));

    server.change(|manners| manners.authorization = basic("me", "hunter3"));
    is_refused(&case);
    is_refused(&case);
    assert_eq!(look(&server, &with("hunter3"), &repository).len(), 2);
    assert_eq!(look(&server, &with("hunter3"), &repository).len(), 1);
    is_refused(&case);
}

#[test]
fn a_server_that_falls_silent_is_given_up_in_time_and_forgotten() {
    let repository = BareRepository::with_history();
    let (server, mut case) = acquainted(&repository, GitHttpServerBehavior::default(), &[]);
    case.remote.timeout = Duration::from_millis(300);
    server.change(|manners| manners.stall_after = Some(Vec::new()));
    let before = server.seen().len();
    let error = case.tip(&main_branch()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(server.seen().len(), before + 1, "there is no time for a second attempt");
    server.change(|manners| manners.stall_after = None);
    case.remote.timeout = Duration::from_secs(60);
    assert_eq!(look(&server, &case, &repository).len(), 2);
}

#[test]
fn connections_are_used_again_while_they_last() {
    let repository = BareRepository::with_history();
    let manners = GitHttpServerBehavior { keeps_alive: true, ..GitHttpServerBehavior::default() };
    let (server, case) = acquainted(&repository, manners, &[]);
    let mut other = FetchCase::new(&server.url(), &[("username", "me"), ("password", "hunter2")]);
    other.context.known = case.context.known.clone();
    for case in [&case, &other] {
        // A connection is free a moment after its answer was read; a request before that opens another one.
        let is_old = |seen: &GitHttpRequest, before: &[GitHttpRequest]| {
            before.iter().any(|earlier| earlier.connection == seen.connection)
        };
        let looks = (0..100).filter(|_| {
            let before = server.seen();
            look(&server, case, &repository).iter().all(|seen| is_old(seen, &before))
        });
        assert_eq!(looks.take(5).count(), 5);
    }

    server.change(|manners| manners.keeps_alive = false);
    for _ in 0..3 {
        assert_eq!(look(&server, &case, &repository).len(), 1, "whatever connection it takes");
    }
}

#[test]
fn what_is_remembered_is_not_shown() {
    let repository = BareRepository::with_history();
    for secret in
        [&[("username", "me"), ("password", "hunter2")][..], &[("bearerToken", "hunter2")]]
    {
        let (_server, case) = acquainted(&repository, GitHttpServerBehavior::default(), secret);
        let text = format!("{:?} {:#?}", case.context, case.context.known);
        assert!(text.contains("handshakes: 1"), "{text}");
        let encoded = BASE64_STANDARD.encode("me:hunter2");
        assert!(!text.contains("hunter2") && !text.contains(&encoded), "{text}");
    }
}
