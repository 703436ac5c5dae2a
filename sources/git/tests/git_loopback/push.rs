//! Pushing commits over HTTP and SSH, and what servers say no to.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use git::push::{
    CommitIdentity, GitFileChange, GitFileMode, NewCommitMetadata, PushError, PushOutcome,
    PushRejection, PushRejectionCause, PushRequest, PushWorkspace, ReferenceUpdate,
    ReferenceUpdateRule, is_ancestor, refspec_destination,
};
use git::{Error, GitReference};
use jiff::Timestamp;

use crate::http::basic;
use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::ssh::SshTestbed;
use crate::test_repository::BareRepository;
use crate::{FetchCase, main_branch};

/// A server that lets push.
fn serve(repository: &BareRepository, manners: GitHttpServerBehavior) -> GitHttpServer {
    repository.git(&["config", "http.receivepack", "true"], b"");
    GitHttpServer::start(repository.root.path(), manners)
}

pub(crate) fn details(message: &str, at: Timestamp) -> NewCommitMetadata {
    let bot = CommitIdentity { name: "Bot".to_owned(), email: "bot@example.com".to_owned() };
    NewCommitMetadata { author: bot.clone(), committer: bot, message: message.to_owned(), at }
}

pub(crate) fn change(path: &str, text: &str) -> BTreeMap<String, GitFileChange> {
    let bytes = text.as_bytes().to_vec();
    BTreeMap::from([(path.to_owned(), GitFileChange::Write { bytes, mode: GitFileMode::AsBefore })])
}

fn update(name: &str, rule: ReferenceUpdateRule) -> ReferenceUpdate {
    ReferenceUpdate { name: name.to_owned(), commit: None, rule }
}

pub(crate) fn to(names: &[&str]) -> PushRequest {
    let references =
        names.iter().map(|name| update(name, ReferenceUpdateRule::FastForward)).collect();
    PushRequest { references, options: Vec::new() }
}

/// Commits one change on top of `main` and pushes it.
fn push_change(
    case: &FetchCase,
    path: &str,
    text: &str,
    request: &PushRequest,
) -> Result<PushOutcome, PushError> {
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let details = details("update", Timestamp::from_second(1_700_000_100).unwrap());
    workspace.commit(&change(path, text), &details, None).unwrap().unwrap();
    workspace.push(request, &case.remote, &case.context)
}

fn rejected(pushed: Result<PushOutcome, PushError>) -> PushRejection {
    let PushError::Rejected(rejection) = pushed.unwrap_err() else {
        unreachable!("the push fails otherwise");
    };
    *rejection
}

fn hook(repository: &BareRepository, name: &str, script: &str) {
    let folder = repository.path().join("hooks");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    testbed::script::write_executable(&path, &format!("#!/bin/sh\n{script}\n")).unwrap();
}

/// A repository with a file that can be run, a link and a submodule.
fn with_every_mode() -> BareRepository {
    let repository = BareRepository::empty();
    let files: [(&str, &str, &[u8]); 5] = [
        ("100644", "app/deploy.yaml", b"image: app:v1\n"),
        ("100755", "app/run.sh", b"#!/bin/sh\n"),
        ("120000", "app/link", b"deploy.yaml"),
        ("160000", "app/module", b"module"),
        ("100644", "z", b"z"),
    ];
    repository.commit(&files, "first", None, "main");
    repository
}

#[test]
fn a_commit_is_pushed_over_http_and_changes_nothing_else() {
    let repository = with_every_mode();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let before = repository.git(&["ls-tree", "-r", "main"], b"");
    let parent = repository.commit_of("main");
    let case = FetchCase::new(&server.url(), &[]);
    let text = "image: app:v2\n";
    let pushed = push_change(&case, "app/deploy.yaml", text, &to(&["refs/heads/main"])).unwrap();
    assert_eq!(pushed.updated, ["refs/heads/main"]);
    assert_eq!(repository.commit_of("main"), pushed.commit);
    assert_eq!(repository.commit_of("main~1"), parent);
    repository.git(&["fsck", "--strict", "--full"], b"");

    let after = repository.git(&["ls-tree", "-r", "main"], b"");
    let differing = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    assert_eq!(differing.count(), 1, "{before}\n{after}");
    assert_eq!(before.lines().count(), after.lines().count());
    assert_eq!(repository.git(&["show", "main:app/deploy.yaml"], b""), "image: app:v2");
    let said = repository.git(&["log", "-1", "--format=%an <%ae> %at %cn %ct %B", "main"], b"");
    assert_eq!(said, "Bot <bot@example.com> 1700000100 Bot 1700000100 update");
}

#[test]
fn a_commit_is_pushed_over_ssh() {
    for is_modern in [true, false] {
        let bed = SshTestbed::new("ed25519", "", is_modern);
        let case = bed.case(&bed.server.known_hosts("ed25519"), &[]);
        let pushed = push_change(&case, "a/run.sh", "x", &to(&["refs/heads/main"])).unwrap();
        assert_eq!(bed.repository.commit_of("main"), pushed.commit);
        bed.repository.git(&["fsck", "--strict", "--full"], b"");
        let listed = bed.repository.git(&["ls-tree", "main", "a/run.sh"], b"");
        assert!(listed.starts_with("100755 blob"), "{listed}");
    }
}

#[test]
fn several_commits_go_to_several_references_in_one_push() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let at = Timestamp::from_second(1_700_000_100).unwrap();
    workspace.commit(&change("new/deep/a", "1"), &details("one", at), None).unwrap().unwrap();
    workspace.commit(&change("new/deep/b", "2"), &details("two", at), None).unwrap().unwrap();
    // Nothing differs, so there is no third commit.
    let again = workspace.commit(&change("new/deep/b", "2"), &details("three", at), None);
    assert_eq!(again.unwrap(), None);
    let asked = server.seen().len();
    let review = refspec_destination("HEAD:refs/for/main", "main").unwrap();
    let request = to(&["refs/heads/main", "refs/heads/copy", &review]);
    let pushed = workspace.push(&request, &case.remote, &case.context).unwrap();
    assert_eq!(pushed.updated.len(), 3);
    assert_eq!(server.seen().len() - asked, 2, "a handshake and a push");
    assert_eq!(workspace.head().as_deref(), Some(pushed.commit.as_str()));
    for name in ["refs/heads/main", "refs/heads/copy", "refs/for/main"] {
        assert_eq!(repository.commit_of(name), pushed.commit);
    }
    assert_eq!(repository.git(&["log", "-2", "--format=%s", "main"], b""), "two\none");
    repository.git(&["fsck", "--strict", "--full"], b"");

    let asked = server.seen().len();
    let again = workspace.push(&request, &case.remote, &case.context).unwrap();
    assert_eq!(again.updated, Vec::<String>::new());
    assert_eq!(server.seen().len() - asked, 1, "all are there already, so nothing is sent");
}

#[test]
fn whether_files_would_differ_is_known_without_a_commit() {
    let repository = with_every_mode();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let head = workspace.head();
    assert!(workspace.differs(&change("app/deploy.yaml", "image: app:v2\n")).unwrap());
    assert!(!workspace.differs(&change("app/deploy.yaml", "image: app:v1\n")).unwrap());
    let error = workspace.differs(&change("app/.git/config", "x")).unwrap_err();
    assert!(matches!(error, PushError::Unwritable { .. }), "{error:?}");
    assert_eq!(workspace.head(), head);
    let pushed = workspace.push(&to(&["refs/heads/main"]), &case.remote, &case.context).unwrap();
    assert_eq!(pushed.updated, Vec::<String>::new(), "there is no commit");
}

#[test]
fn a_reference_goes_to_a_commit_that_the_server_has_as_far_as_its_rule_lets_it() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let before = repository.commit_of("refs/heads/main");
    let at = |name: &str, rule: ReferenceUpdateRule| ReferenceUpdate {
        commit: Some(before.clone()),
        ..update(name, rule)
    };
    let mut request = to(&["refs/heads/main"]);
    request.references.push(at("refs/heads/before", ReferenceUpdateRule::FastForward));
    let pushed = push_change(&case, "new", "1", &request).unwrap();
    assert_eq!(repository.commit_of("refs/heads/main"), pushed.commit);
    assert_eq!(repository.commit_of("refs/heads/before"), before);
    let back =
        |rule| PushRequest { references: vec![at("refs/heads/main", rule)], options: vec![] };
    let refused =
        push_change(&case, "new", "2", &back(ReferenceUpdateRule::FastForward)).unwrap_err();
    assert!(matches!(refused, PushError::Rejected(_)), "{refused:?}");
    push_change(&case, "new", "2", &back(ReferenceUpdateRule::Overwrite)).unwrap();
    assert_eq!(repository.commit_of("refs/heads/main"), before);
}

#[test]
fn a_repository_without_commits_gets_its_first() {
    let repository = BareRepository::empty();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let mut workspace = PushWorkspace::of_empty_repository(&case.remote);
    let request = to(&["refs/heads/main"]);
    let nothing = workspace.push(&request, &case.remote, &case.context).unwrap_err();
    assert!(matches!(nothing, PushError::Failed(Error::EmptyRepository { .. })), "{nothing:?}");
    let details = details("first", Timestamp::from_second(1_700_000_100).unwrap());
    workspace.commit(&change("a/b", "x"), &details, None).unwrap().unwrap();
    let pushed = workspace.push(&request, &case.remote, &case.context).unwrap();
    assert_eq!(repository.commit_of("main"), pushed.commit);
    repository.git(&["fsck", "--strict", "--full"], b"");
}

#[test]
fn a_branch_that_moved_is_not_overwritten() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let details = details("ours", Timestamp::from_second(1_700_000_100).unwrap());
    workspace.commit(&change("x", "y"), &details, None).unwrap().unwrap();
    let base = repository.commit_of("main");
    let theirs = repository.commit(&[("100644", "a", b"theirs")], "theirs", Some(&base), "main");
    let request = to(&["refs/heads/main"]);
    let rejection = rejected(workspace.push(&request, &case.remote, &case.context));
    assert_eq!(rejection.cause, PushRejectionCause::Outdated);
    assert_eq!(rejection.to_string(), "non-fast-forward update: refs/heads/main");
    assert_eq!(repository.commit_of("main"), theirs);

    // One that is gone is not made anew.
    repository.git(&["update-ref", "-d", "refs/heads/main"], b"");
    let rejection = rejected(workspace.push(&request, &case.remote, &case.context));
    assert_eq!(rejection.cause, PushRejectionCause::Outdated);
}

#[test]
fn another_reference_moves_forward_along_the_history_only() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let first = repository.commit_of("v1");
    repository.git(&["update-ref", "refs/heads/behind", &first], b"");
    let pushed = push_change(&case, "x", "1", &to(&["refs/heads/behind"])).unwrap();
    assert_eq!(repository.commit_of("behind"), pushed.commit);

    let aside = repository.commit_of("side");
    let request = to(&["refs/heads/side"]);
    let rejection = rejected(push_change(&case, "x", "2", &request));
    assert_eq!(rejection.cause, PushRejectionCause::Outdated);
    assert_eq!(repository.commit_of("side"), aside);
}

#[test]
fn a_branch_is_merged_if_its_commit_is_in_the_history_of_the_other() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let [tip, first, aside] = ["main", "light", "side"].map(|name| repository.commit_of(name));
    let is_merged = |ancestor: &str| is_ancestor(&case.remote, &tip, ancestor, &case.context);
    assert!(is_merged(&first).unwrap() && is_merged(&tip).unwrap());
    assert!(!is_merged(&aside).unwrap());
    let error = is_merged("main").unwrap_err();
    assert!(matches!(error, Error::InvalidReference { .. }), "{error:?}");
}

#[test]
fn a_forced_push_overwrites_the_expected_commit_or_anything() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let aside = repository.commit_of("side");
    let push = |rule: ReferenceUpdateRule, text: &str| {
        let references = vec![update("refs/heads/side", rule)];
        push_change(&case, "x", text, &PushRequest { references, options: Vec::new() })
    };
    for expected in [None, Some(repository.commit_of("main"))] {
        let rejection = rejected(push(ReferenceUpdateRule::OverwriteOnly(expected), "1"));
        assert_eq!(rejection.cause, PushRejectionCause::Outdated);
        assert_eq!(repository.commit_of("side"), aside);
    }
    let pushed = push(ReferenceUpdateRule::OverwriteOnly(Some(aside)), "2").unwrap();
    assert_eq!(repository.commit_of("side"), pushed.commit);
    let pushed = push(ReferenceUpdateRule::Overwrite, "3").unwrap();
    assert_eq!(repository.commit_of("side"), pushed.commit);
}

#[test]
fn a_hook_that_declines_is_quoted_without_secrets() {
    let repository = BareRepository::with_history();
    hook(&repository, "pre-receive", "echo 'main is protected,' hunter2 >&2\nexit 1");
    let manners = GitHttpServerBehavior {
        authorization: Some(basic("me", "hunter2")),
        ..GitHttpServerBehavior::default()
    };
    let server = serve(&repository, manners);
    let before = repository.commit_of("main");
    let secret = [("username", "me"), ("password", "hunter2")];
    let case = FetchCase::new(&server.url(), &secret);
    let rejection = rejected(push_change(&case, "x", "y", &to(&["refs/heads/main"])));
    assert_eq!(rejection.cause, PushRejectionCause::Declined);
    assert_eq!(rejection.references[0].reason, "pre-receive hook declined");
    assert_eq!(rejection.message, "main is protected, ****");
    assert_eq!(repository.commit_of("main"), before);
}

#[test]
fn all_references_are_updated_or_none() {
    let repository = BareRepository::with_history();
    hook(&repository, "update", "test \"$1\" != refs/heads/protected");
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let before = repository.commit_of("main");
    let request = to(&["refs/heads/main", "refs/heads/protected"]);
    let rejection = rejected(push_change(&case, "x", "y", &request));
    assert_eq!(rejection.cause, PushRejectionCause::Declined);
    assert_eq!(rejection.references.len(), 2);
    assert_eq!(rejection.updated, Vec::<String>::new());
    assert_eq!(repository.commit_of("main"), before);
}

#[test]
fn push_options_reach_the_hooks_of_a_server_that_takes_them() {
    let repository = BareRepository::with_history();
    hook(&repository, "pre-receive", "echo \"$GIT_PUSH_OPTION_0\" > options");
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let request = PushRequest { options: vec!["ci.skip".to_owned()], ..to(&["refs/heads/main"]) };
    let error = push_change(&case, "x", "y", &request).unwrap_err();
    assert!(
        matches!(&error, PushError::Failed(Error::Refused { message, .. }) if message.contains("push options")),
        "{error:?}"
    );
    repository.git(&["config", "receive.advertisePushOptions", "true"], b"");
    push_change(&case, "x", "y", &request).unwrap();
    let said = std::fs::read_to_string(repository.path().join("options")).unwrap();
    assert_eq!(said, "ci.skip\n");
}

#[test]
fn a_lost_answer_is_an_error_of_its_own_and_the_push_is_not_repeated() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let details = details("update", Timestamp::from_second(1_700_000_100).unwrap());
    workspace.commit(&change("x", "y"), &details, None).unwrap().unwrap();
    server.change(|manners| manners.loses_answers = true);
    let asked = server.seen().len();
    let request = to(&["refs/heads/main"]);
    let error = workspace.push(&request, &case.remote, &case.context).unwrap_err();
    assert!(matches!(error, PushError::Unanswered(_)), "{error:?}");
    assert_eq!(server.seen().len() - asked, 2, "a handshake and one push");

    server.change(|manners| manners.loses_answers = false);
    assert_eq!(workspace.head().as_deref(), Some(repository.commit_of("main").as_str()));
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    assert_eq!(workspace.commit(&change("x", "y"), &details, None).unwrap(), None);
}

#[test]
fn a_push_that_could_not_be_sent_was_not_accepted() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let details = details("update", Timestamp::from_second(1_700_000_100).unwrap());
    workspace.commit(&change("x", "y"), &details, None).unwrap().unwrap();
    workspace.push(&to(&["refs/heads/copy"]), &case.remote, &case.context).unwrap();
    let seen = server.seen();
    let handshake = seen.iter().find(|seen| seen.target.ends_with("service=git-receive-pack"));
    let answer = handshake.unwrap().answer.clone();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/app.git", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _client) = listener.accept().unwrap();
        // There is no second connection, over which the push would go.
        drop(listener);
        let _length = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(&answer).unwrap();
    });
    let gone = FetchCase::new(&url, &[]);
    let request = to(&["refs/heads/main"]);
    let error = workspace.push(&request, &gone.remote, &gone.context).unwrap_err();
    assert!(matches!(error, PushError::Failed(Error::Unreachable { .. })), "{error:?}");
}

/// What comes of a push that the server answers with the given head and body.
fn answered(head: &str, body: &[u8]) -> PushError {
    let repository = BareRepository::with_history();
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let push_answer = Some([head.as_bytes(), body].concat());
    let server = serve(
        &repository,
        GitHttpServerBehavior { push_answer, ..GitHttpServerBehavior::default() },
    );
    let case = FetchCase::new(&server.url(), &[]);
    push_change(&case, "x", "y", &to(&["refs/heads/main"])).unwrap_err()
}

/// The head of a report on a push.
const REPORT_HEAD: &str = "200 OK\r\nContent-Type: application/x-git-receive-pack-result";

#[test]
fn an_answer_that_is_no_report_means_that_nothing_was_pushed() {
    for (head, said) in [
        ("202 Accepted", "HTTP status 202 Accepted"),
        ("204 No Content", "HTTP status 204 No Content"),
        ("200 OK\r\nContent-Type: text/html", "`text/html`"),
        ("200 OK", "instead of a report on the push"),
    ] {
        let error = answered(head, b"");
        assert!(
            matches!(&error, PushError::Failed(Error::Refused { message, .. }) if message.contains(said)),
            "{error:?}"
        );
    }
}

#[test]
fn a_report_that_is_incomplete_or_never_ends_leaves_open_what_was_pushed() {
    let error = answered(REPORT_HEAD, b"0000");
    assert!(matches!(error, PushError::Unanswered(Error::Protocol { .. })), "{error:?}");
    // Remarks beside the report count, too.
    let mut remark = b"fff0\x02".to_vec();
    remark.resize(0xfff0, b'.');
    let error = answered(REPORT_HEAD, &remark.repeat(300));
    assert!(matches!(error, PushError::Unanswered(Error::TooLarge { .. })), "{error:?}");
}

#[test]
fn what_no_request_can_say_is_refused_before_one_is_sent() {
    let repository = BareRepository::with_history();
    let server = serve(&repository, GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let refused = |request: &PushRequest| push_change(&case, "x", "y", request).unwrap_err();
    let error = refused(&to(&["refs/heads/-x"])).to_string();
    assert!(error.contains("must not start with `-`"), "{error}");
    for option in ["a\nb", "a\rb", ""] {
        let options = vec![option.to_owned()];
        let error = refused(&PushRequest { options, ..to(&["refs/heads/main"]) }).to_string();
        assert!(error.contains("a push option is empty or has a control character"), "{error}");
    }
}

#[test]
fn no_permission_and_no_repository_are_different_errors() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let error = push_change(&case, "x", "y", &to(&["refs/heads/main"])).unwrap_err();
    assert!(matches!(error, PushError::Failed(Error::AuthenticationFailed { .. })), "{error:?}");

    let fetched = case.fetch(&main_branch()).unwrap();
    let workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let request = to(&["refs/heads/main", "refs/heads/main"]);
    let error = workspace.push(&request, &case.remote, &case.context).unwrap_err();
    assert!(error.to_string().contains("it is updated twice"), "{error}");
    let absent = FetchCase::new(&server.url().replace("app.git", "absent.git"), &[]);
    let request = to(&["refs/heads/main"]);
    let error = workspace.push(&request, &absent.remote, &absent.context).unwrap_err();
    assert!(matches!(error, PushError::Failed(Error::RepositoryNotFound { .. })), "{error:?}");
    assert!(matches!(absent.refused(&GitReference::default()), Error::RepositoryNotFound { .. }));
}
