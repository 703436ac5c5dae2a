//! Hostile repositories and servers.

use std::path::Path;

use git::{Error, GitReference};

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::test_repository::BareRepository;
use crate::{FetchCase, files, main_branch};

fn case(server: &GitHttpServer) -> FetchCase {
    FetchCase::new(&server.url(), &[])
}

#[test]
fn limits_hold() {
    let repository = BareRepository::empty();
    let large = vec![0; 3 << 20];
    let files = [("100644", "large", large.as_slice()), ("100644", "small", b"small")];
    repository.commit(&files, "large", None, "main");
    let noise: Vec<u8> =
        (0..40_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_769).to_le_bytes()).collect();
    repository.commit(&[("100644", "noise", &noise)], "noise", None, "noise");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let is_too_large = |error: &Error, what: &str| {
        assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    };

    let mut narrow = case(&server);
    narrow.remote.limits.file = 1 << 20;
    is_too_large(&narrow.fetch(&main_branch()).unwrap_err(), "an object");

    let mut narrow = case(&server);
    narrow.remote.limits.received = 10_000;
    let noise = GitReference::Branch("noise".to_owned());
    is_too_large(&narrow.fetch(&noise).unwrap_err(), "the received data");

    let mut narrow = case(&server);
    narrow.remote.limits.entries = 1;
    let fetched = narrow.fetch(&main_branch()).unwrap();
    is_too_large(&fetched.entries().unwrap_err(), "the number of entries");

    let mut narrow = case(&server);
    narrow.remote.limits.total = 1 << 20;
    let fetched = narrow.fetch(&main_branch()).unwrap();
    let listing = fetched.entries().unwrap();
    let [large, small] = &listing.entries[..] else { unreachable!("two files were committed") };
    assert_eq!(fetched.read(small).unwrap(), b"small");
    is_too_large(&fetched.read(large).unwrap_err(), "all files together");
}

/// A tree with the given entries, whose names need not be valid.
fn tree(repository: &BareRepository, entries: &[(&str, &[u8], &str)]) -> String {
    let mut bytes = Vec::new();
    for (mode, name, id) in entries {
        bytes.extend_from_slice(mode.as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(&hex::decode(id).unwrap());
    }
    repository.object("tree", &bytes)
}

#[test]
fn a_tree_that_leads_out_of_itself_is_refused() {
    let repository = BareRepository::empty();
    let blob = repository.object("blob", b"x");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    for name in ["..", ".", ".git", ".GIT", "a/b"] {
        let hostile = tree(&repository, &[("100644", name.as_bytes(), &blob)]);
        let outer = tree(&repository, &[("40000", b"in", &hostile)]);
        repository.commit_tree(&outer, "hostile", None, "main");
        let fetched = case(&server).fetch(&main_branch()).unwrap();
        let error = fetched.entries().unwrap_err();
        assert!(
            matches!(&error, Error::BadTree { path, .. } if *path == format!("in/{name}")),
            "{error:?}"
        );
    }
}

#[test]
fn a_tree_that_repeats_itself_without_end_is_given_up() {
    let repository = BareRepository::empty();
    let mut id = repository.object("blob", b"x");
    let mut mode = "100644";
    for _ in 0..12 {
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let entries: Vec<_> =
            names.iter().map(|name| (mode, name.as_bytes(), id.as_str())).collect();
        id = tree(&repository, &entries);
        mode = "40000";
    }
    repository.commit_tree(&id, "bomb", None, "main");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let mut case = case(&server);
    case.remote.limits.entries = 5_000;
    let error = case.fetch(&main_branch()).unwrap().entries().unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
}

#[test]
fn a_tree_whose_folders_lie_in_each_other_is_counted_as_it_is_read() {
    let repository = BareRepository::empty();
    let blob = repository.object("blob", b"x");
    // What is read last is refused; the limit is reached before.
    let mut id = tree(&repository, &[("100644", b"..", &blob)]);
    let names: Vec<String> = (100..200).map(|number: u32| number.to_string()).collect();
    for _ in 0..20 {
        // The folder comes first, so the files beside it wait until all folders in it were read.
        let mut entries = vec![("40000", &b"000"[..], id.as_str())];
        entries.extend(names.iter().map(|name| ("100644", name.as_bytes(), blob.as_str())));
        id = tree(&repository, &entries);
    }
    repository.commit_tree(&id, "deep", None, "main");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let mut case = case(&server);
    case.remote.limits.entries = 500;
    let error = case.fetch(&main_branch()).unwrap().entries().unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
}

#[test]
fn names_that_are_not_text_and_submodules_are_set_apart() {
    let repository = BareRepository::empty();
    let blob = repository.object("blob", b"x");
    let elsewhere = "0123456789012345678901234567890123456789";
    let id = tree(
        &repository,
        &[
            ("100644", b"latin-\xe9", &blob),
            ("160000", b"module", elsewhere),
            ("100644", b"ok", &blob),
        ],
    );
    repository.commit_tree(&id, "odd", None, "main");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let fetched = case(&server).fetch(&main_branch()).unwrap();
    assert_eq!(
        files(&fetched),
        [r#"Submodule module """#, r#"File { is_executable: false } ok "x""#]
    );
    assert_eq!(fetched.entries().unwrap().unreadable, ["latin-\u{fffd}"]);
}

/// A server whose handshake is a reference, with its capabilities.
fn advertising(line: &str) -> GitHttpServer {
    let line = format!("{:04x}{line}", line.len() + 4);
    let body = format!("001e# service=git-upload-pack\n0000{line}0000");
    let kind = "application/x-git-upload-pack-advertisement";
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    let answer = Some(format!("{head}{body}").into_bytes());
    GitHttpServer::start(
        Path::new("/nowhere"),
        GitHttpServerBehavior { answer, ..GitHttpServerBehavior::default() },
    )
}

#[test]
fn a_symbolic_reference_that_is_not_listed_ends_in_an_error_and_not_in_a_panic() {
    let id = "1".repeat(40);
    let server = advertising(&format!("{id} refs/heads/main\0symref=HEAD:refs/heads/main\n"));
    let error = case(&server).refused(&main_branch());
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

#[test]
fn a_repository_with_sha256_is_named_as_such() {
    for name in ["refs/heads/main", "capabilities^{}"] {
        let id = if name.starts_with("refs/") { "1" } else { "0" }.repeat(64);
        let server = advertising(&format!("{id} {name}\0object-format=sha256 agent=git/2\n"));
        let error = case(&server).refused(&main_branch());
        assert!(matches!(error, Error::UnsupportedHash { .. }), "{error:?}");
    }
}

/// Numbers that look random and are the same every time (xorshift).
struct PseudoRandomNumbers(u64);

impl PseudoRandomNumbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// An answer of a server, some of it changed, cut or repeated.
fn mangled(answer: &[u8], dice: &mut PseudoRandomNumbers) -> Vec<u8> {
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (head, body) = answer.split_at(body);
    let mut body = body.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(body.len().max(1));
        match (dice.below(4), body.get_mut(at)) {
            (_, None) => {}
            (0, Some(byte)) => *byte ^= 1 << dice.below(8),
            (1, Some(byte)) => *byte = b"0f\xff\x00\n"[dice.below(5)],
            (2, Some(_)) => body.truncate(at),
            (_, Some(_)) => body.extend_from_within(at..),
        }
    }
    let head = String::from_utf8_lossy(head);
    let lines = head.lines().filter(|line| !line.starts_with("Content-Length"));
    let mut answer =
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\r\n").into_bytes();
    answer.extend_from_slice(format!("\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
    answer.extend_from_slice(&body);
    answer
}

#[test]
fn broken_answers_end_in_an_error_and_not_in_a_panic() {
    let repository = BareRepository::with_history();
    let honest = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    case(&honest).fetch(&main_branch()).unwrap();
    let answers: Vec<Vec<u8>> = honest.seen().into_iter().map(|seen| seen.answer).collect();
    assert_eq!(answers.len(), 3, "the handshake, the list, the pack");

    let mut dice = PseudoRandomNumbers(0x5eed_1234_5678_9abc);
    let mut failures = 0;
    for round in 0..120 {
        let mut script = answers.clone();
        let broken = round % script.len();
        script[broken] = mangled(&script[broken], &mut dice);
        let server = GitHttpServer::start(
            Path::new("/nowhere"),
            GitHttpServerBehavior { script, ..GitHttpServerBehavior::default() },
        );
        // Some changes do no harm; what is delivered then must be readable or refused as well.
        match case(&server).fetch(&main_branch()) {
            Err(_) => failures += 1,
            Ok(fetched) => {
                for entry in fetched.entries().map(|listing| listing.entries).unwrap_or_default() {
                    let _read_or_refused: Result<Vec<u8>, Error> = fetched.read(&entry);
                }
            }
        }
    }
    assert!(failures > 60, "{failures} of 120 were noticed");
}
