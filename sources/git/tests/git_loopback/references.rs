//! Ranges of versions and full names.

use git::{Error, GitReference};

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::test_repository::BareRepository;
use crate::{FetchCase, files};

/// A repository whose commits on `main` are each tagged with the names of one line.
fn tagged(lines: &[&[&str]]) -> BareRepository {
    let repository = BareRepository::empty();
    let mut parent = None;
    for (number, tags) in lines.iter().enumerate() {
        let text = number.to_string();
        let files: [(&str, &str, &[u8]); 1] = [("100644", "n", text.as_bytes())];
        let sha = repository.commit(&files, &text, parent.as_deref(), "main");
        for tag in *tags {
            repository.git(&["tag", "-a", "-m", "a tag", tag, &sha], b"");
        }
        parent = Some(sha);
    }
    repository
}

fn range(text: &str) -> GitReference {
    GitReference::semver(text).unwrap()
}

#[test]
fn the_highest_tag_in_a_range_is_followed() {
    let repository = tagged(&[&["v1.0.0"], &["v1.10.0", "latest"], &["v1.9.9"], &["2.0.0-rc.1"]]);
    for is_old in [false, true] {
        let manners = GitHttpServerBehavior { is_old, ..GitHttpServerBehavior::default() };
        let server = GitHttpServer::start(repository.root.path(), manners);
        let case = FetchCase::new(&server.url(), &[]);
        for (text, tag) in
            [("1.x", "v1.10.0"), ("~1.9", "v1.9.9"), (">=1.0.0-0", "2.0.0-rc.1"), ("*", "v1.10.0")]
        {
            let sha = repository.commit_of(tag);
            let tip = case.tip(&range(text)).unwrap();
            assert_eq!((&tip.sha, tip.refname), (&sha, format!("refs/tags/{tag}")), "{text}");
            let fetched = case.fetch(&range(text)).unwrap();
            assert_eq!(fetched.revision.to_string(), format!("{tag}@sha1:{sha}"), "{text}");
        }
    }
}

#[test]
fn a_commit_names_the_commits_that_it_follows_although_they_are_not_fetched() {
    let repository = tagged(&[&["v1.0.0"], &["v2.0.0"]]);
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let [first, second] = ["v1.0.0", "v2.0.0"].map(|tag| repository.commit_of(tag));
    for (tag, parents) in [("v1.0.0", vec![]), ("v2.0.0", vec![first.clone()])] {
        let fetched = case.fetch(&GitReference::Tag(tag.to_owned())).unwrap();
        assert_eq!(fetched.parents().unwrap(), parents, "{tag}");
    }
    let by_hash = GitReference::Commit { sha: second, branch: None, name: None };
    assert_eq!(case.fetch(&by_hash).unwrap().parents().unwrap(), [first]);
}

#[test]
fn a_range_without_a_tag_may_get_one_later() {
    let repository = tagged(&[&["v1.0.0"]]);
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let error = case.refused(&range("9.x"));
    assert!(matches!(error, Error::NoMatch { .. }), "{error:?}");
    assert!(error.to_string().starts_with("no match found for semver: 9.x;"), "{error}");

    case.tip(&range(">=1")).unwrap();
    repository.git(&["tag", "v9.0.0", "main"], b"");
    assert_eq!(case.tip(&range("9.x")).unwrap().refname, "refs/tags/v9.0.0");
    assert_eq!(case.tip(&range(">=1")).unwrap().refname, "refs/tags/v9.0.0");
}

#[test]
fn of_tags_of_one_version_the_youngest_commit_wins_and_is_looked_up_once() {
    let repository = BareRepository::empty();
    let times = [("1.0.0+z", 1_700_000_000), ("1.0.0+a", 1_700_000_500), ("v1.0.0", 1_700_000_300)];
    for (tag, time) in times {
        let tree = repository.git(&["write-tree"], b"");
        let commit = format!(
            "tree {tree}\nauthor A <a@b> 1800000000 +0000\ncommitter A <a@b> {time} +0000\n\n{tag}\n"
        );
        let sha = repository.object("commit", commit.as_bytes());
        repository.git(&["update-ref", &format!("refs/tags/{tag}"), &sha], b"");
    }
    let manners = GitHttpServerBehavior::default();
    let server = GitHttpServer::start(repository.root.path(), manners);
    let case = FetchCase::new(&server.url(), &[]);
    assert_eq!(case.tip(&range("1.x")).unwrap().refname, "refs/tags/1.0.0+a");
    let before = server.seen().len();
    assert_eq!(case.tip(&range("1.x")).unwrap().refname, "refs/tags/1.0.0+a");
    assert_eq!(server.seen().len() - before, 1, "the times of commits are known");
    let fetched = case.fetch(&range("1.x")).unwrap();
    assert_eq!(fetched.commit.summary, "1.0.0+a");
}

#[test]
fn too_many_tags_of_one_version_are_not_all_examined() {
    let repository = tagged(&[&["1.0.0"]]);
    let sha = repository.commit_of("1.0.0");
    let many: String = (0..70).map(|i| format!("{sha} refs/tags/1.0.0+{i}\n")).collect();
    std::fs::write(repository.path().join("packed-refs"), many).unwrap();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let error = FetchCase::new(&server.url(), &[]).refused(&range("1.x"));
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
}

#[test]
fn a_full_name_leads_to_what_no_branch_or_tag_is() {
    let repository = BareRepository::with_history();
    let side = repository.commit_of("side");
    repository.git(&["update-ref", "refs/pull/1/head", &side], b"");
    repository.git(&["update-ref", "refs/pull/1/header", "main"], b"");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    for (name, commit) in [
        ("refs/pull/1/head", "side"),
        ("refs/heads/main", "main"),
        ("refs/tags/v1", "v1"),
        ("refs/tags/v1^{}", "v1"),
        ("HEAD", "main"),
    ] {
        let reference = GitReference::Name(name.to_owned());
        let sha = repository.commit_of(commit);
        assert_eq!(case.tip(&reference).unwrap().sha, sha, "{name}");
        let fetched = case.fetch(&reference).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("{name}@sha1:{sha}"));
        assert!(!files(&fetched).is_empty());
    }
    let error = case.refused(&GitReference::Name("refs/pull/2/head".to_owned()));
    assert!(error.to_string().starts_with("reference `refs/pull/2/head` not found in "), "{error}");
}
