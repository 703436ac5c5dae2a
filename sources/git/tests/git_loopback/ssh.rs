//! Over SSH.

use std::net::TcpListener;
use std::time::Duration;

use git::{Error, GitReference};
use tempfile::TempDir;
use url::Url;

use crate::ssh_server::GitSshServer;
use crate::test_repository::{BareRepository, ssh_key};
use crate::{FetchCase, commit, files, main_branch};

/// A server with a repository and one key that it lets in.
pub(crate) struct SshTestbed {
    pub(crate) repository: BareRepository,
    pub(crate) server: GitSshServer,
    identity: String,
    _keys: TempDir,
}

impl SshTestbed {
    pub(crate) fn new(kind: &str, passphrase: &str, is_modern: bool) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let path = keys.path().join("id");
        let identity = ssh_key(&path, kind, passphrase);
        let server = GitSshServer::start(&[&path], is_modern);
        Self { repository: BareRepository::with_history(), server, identity, _keys: keys }
    }

    pub(crate) fn case(&self, known_hosts: &str, more: &[(&str, &str)]) -> FetchCase {
        let mut secret = vec![("identity", self.identity.as_str()), ("known_hosts", known_hosts)];
        secret.extend(more);
        FetchCase::new(&self.server.url(&self.repository.path()), &secret)
    }
}

#[test]
fn every_usual_kind_of_key_opens() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let bed = SshTestbed::new(kind, "", true);
        let case = bed.case(&bed.server.known_hosts("ed25519"), &[]);
        let fetched = case.fetch(&main_branch()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let sha = bed.repository.commit_of("main");
        assert_eq!(fetched.revision.to_string(), format!("main@sha1:{sha}"));
        assert_eq!(files(&fetched).len(), 5);
        assert_eq!(case.tip(&main_branch()).unwrap().sha, sha);
    }
}

#[test]
fn tags_and_commits_are_found() {
    for is_modern in [true, false] {
        let bed = SshTestbed::new("ed25519", "", is_modern);
        let case = bed.case(&bed.server.known_hosts("ed25519"), &[]);
        let first = bed.repository.commit_of("v1");
        let fetched = case.fetch(&GitReference::Tag("v1".to_owned())).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("v1@sha1:{first}"));
        let second = bed.repository.commit_of("main~1");
        let fetched = case.fetch(&commit(&second, None)).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("sha1:{second}"));
        let fetched = case.fetch(&commit(&second, Some("main"))).unwrap();
        assert_eq!(fetched.revision.to_string(), format!("main@sha1:{second}"));
        let error = case.refused(&GitReference::default());
        assert!(matches!(error, Error::NoSuchRef { .. }), "{error:?}");
    }
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    let bed = SshTestbed::new("ed25519", "hunter2", true);
    let known = bed.server.known_hosts("ed25519");
    bed.case(&known, &[("password", "hunter2")]).fetch(&main_branch()).unwrap();

    let error = bed.case(&known, &[]).refused(&main_branch());
    assert!(matches!(&error, Error::BadSecret(text) if text.contains("passphrase")), "{error:?}");
    let error = bed.case(&known, &[("password", "wrong-one")]).refused(&main_branch());
    assert!(matches!(&error, Error::BadSecret(text) if text.contains("decrypts")), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wrong-one"));
}

#[test]
fn a_passphrase_for_a_key_that_has_none_does_not_matter() {
    let bed = SshTestbed::new("ed25519", "", true);
    let known = bed.server.known_hosts("ed25519");
    bed.case(&known, &[("password", "superfluous")]).fetch(&main_branch()).unwrap();
}

#[test]
fn only_a_known_host_is_spoken_to() {
    let bed = SshTestbed::new("ed25519", "", true);
    let other = GitSshServer::start(&[], true);
    let right = bed.server.known_hosts("ed25519");
    let port = bed.server.address.port();

    let error = bed.case(&other.known_hosts("ed25519"), &[]).refused(&main_branch());
    let text = error.to_string();
    assert!(matches!(error, Error::HostKeyUnknown { .. }), "{error:?}");
    assert!(text.contains(&format!("[127.0.0.1]:{port}")) && text.contains("SHA256:"), "{text}");

    let key = other.known_hosts("ed25519").split_once(' ').unwrap().1.to_owned();
    let wrong = format!("[127.0.0.1]:{port} {key}");
    let error = bed.case(&wrong, &[]).refused(&main_branch());
    assert!(matches!(error, Error::HostKeyChanged { .. }), "{error:?}");

    let error = bed.case(&format!("{right}@revoked {right}"), &[]).refused(&main_branch());
    assert!(matches!(error, Error::HostKeyRevoked { .. }), "{error:?}");

    bed.case(&bed.server.hashed_known_hosts(), &[]).fetch(&main_branch()).unwrap();
}

#[test]
fn a_host_with_several_keys_shows_the_one_that_is_known() {
    let bed = SshTestbed::new("ed25519", "", true);
    for kind in ["rsa", "ed25519"] {
        bed.case(&bed.server.known_hosts(kind), &[]).fetch(&main_branch()).unwrap();
    }
}

#[test]
fn a_key_that_is_not_let_in_fails_to_authenticate() {
    let bed = SshTestbed::new("ed25519", "", true);
    let stranger = SshTestbed::new("ed25519", "", true).identity;
    let known = bed.server.known_hosts("ed25519");
    let secret = [("identity", stranger.as_str()), ("known_hosts", &known)];
    let case = FetchCase::new(&bed.server.url(&bed.repository.path()), &secret);
    let error = case.refused(&main_branch());
    assert!(matches!(error, Error::AuthenticationFailed { .. }), "{error:?}");
    let text = format!("{error} {error:?} {:?}", case.remote);
    for line in stranger.lines() {
        assert!(!text.contains(line), "{text}");
    }
}

#[test]
fn what_the_server_says_about_a_missing_repository_is_passed_on() {
    let bed = SshTestbed::new("ed25519", "", true);
    let known = bed.server.known_hosts("ed25519");
    let secret = [("identity", bed.identity.as_str()), ("known_hosts", &known)];
    let url = bed.server.url(&bed.repository.root.path().join("it's absent.git"));
    let error = FetchCase::new(Url::parse(&url).unwrap().as_str(), &secret).refused(&main_branch());
    assert!(
        matches!(&error, Error::Refused { message, .. } if message.contains("it's absent.git")),
        "{error:?}"
    );
}

#[test]
fn an_empty_repository_is_said_to_be_empty() {
    let mut bed = SshTestbed::new("ed25519", "", true);
    bed.repository = BareRepository::empty();
    let error = bed.case(&bed.server.known_hosts("ed25519"), &[]).refused(&main_branch());
    assert!(matches!(error, Error::EmptyRepository { .. }), "{error:?}");
}

#[test]
fn a_host_that_accepts_and_says_nothing_is_given_up_in_time() {
    let bed = SshTestbed::new("ed25519", "", true);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = [
        ("identity", bed.identity.as_str()),
        (
            "known_hosts",
            "h ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ",
        ),
    ];
    let url = format!("ssh://git@{}/app.git", silent.local_addr().unwrap());
    let mut case = FetchCase::new(&url, &secret);
    case.remote.timeout = Duration::from_millis(300);
    let error = case.refused(&main_branch());
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

#[test]
fn a_closed_port_is_unreachable() {
    let bed = SshTestbed::new("ed25519", "", true);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let known = bed.server.known_hosts("ed25519");
    let secret = [("identity", bed.identity.as_str()), ("known_hosts", &known)];
    let error =
        FetchCase::new(&format!("ssh://{address}/app.git"), &secret).refused(&main_branch());
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[test]
fn a_submodule_of_the_same_host_opens_with_the_same_key() {
    let bed = SshTestbed::new("ed25519", "", true);
    let app = &bed.repository;
    let lib = BareRepository::with_history();
    crate::submodules::beside(app, "lib", &lib);
    let first = lib.commit_of("v1");
    let said = crate::submodules::modules(&[("vendor/lib", "../lib.git")]);
    crate::submodules::commit(app, &[(".gitmodules", &said)], &[("vendor/lib", &first)]);
    let case = bed.case(&bed.server.known_hosts("ed25519"), &[]);
    let checkout = crate::submodules::check_out(&case, &crate::submodules::whole()).unwrap();
    assert_eq!(crate::submodules::listed(&checkout), ["vendor/lib/", "vendor/lib/a.txt=one"]);
}
