//! Signed commits, verified by Git itself with GnuPG and OpenSSH.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use git::push::{CommitSigner, PushWorkspace, SigningKeyError};
use jiff::Timestamp;

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::push::{change, details, to};
use crate::test_repository::{BareRepository, isolated, run, ssh_key};
use crate::{FetchCase, main_branch};

/// A key that GnuPG made for these tests; it has no passphrase.
const OPEN_PGP: &str = "\
-----BEGIN PGP PRIVATE KEY BLOCK-----

lFgEaVW5ABYJKwYBBAHaRw8BAQdANzuh8u8yzKuNkdekSSdjjrUMsWQDdUBdliZj
APRBa0kAAQDajiBilTgUl6xuou1aX/fRlanPIusO510KCsApM5V7UA+JtBVCb3Qg
PGJvdEBleGFtcGxlLmNvbT6IkAQTFggAOBYhBANhWRNUOhd+XrANjQYuzXlJLWlv
BQJpVbkAAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEAYuzXlJLWlvGWEA
/0ds1eBJ1w0BS2mqR5lU2M+Nwgri/6XryVn/fFSyRvhDAQDniFOPmReuwsKWxnHs
zl9rSKF6A1SfaP10vxa12BXZCQ==
=xeOa
-----END PGP PRIVATE KEY BLOCK-----
";
/// Its public part.
const OPEN_PGP_PUBLIC: &str = "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaVW5ABYJKwYBBAHaRw8BAQdANzuh8u8yzKuNkdekSSdjjrUMsWQDdUBdliZj
APRBa0m0FUJvdCA8Ym90QGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEA2FZE1Q6F35e
sA2NBi7NeUktaW8FAmlVuQACGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
Bi7NeUktaW8ZYQD/R2zV4EnXDQFLaapHmVTYz43CCuL/pevJWf98VLJG+EMBAOeI
U4+ZF67CwpbGcezOX2tIoXoDVJ9o/XS/FrXYFdkJ
=38O0
-----END PGP PUBLIC KEY BLOCK-----
";

/// When keys are read, in seconds since 1970.
const TIME_OF_TEST: u64 = 1_800_000_000;

fn secret(entries: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    entries.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
}

/// Pushes a signed commit to a new repository.
fn push_signed(signer: &CommitSigner) -> BareRepository {
    let repository = BareRepository::with_history();
    repository.git(&["config", "http.receivepack", "true"], b"");
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let case = FetchCase::new(&server.url(), &[]);
    let fetched = case.fetch(&main_branch()).unwrap();
    let mut workspace = PushWorkspace::on(&fetched, &case.remote).unwrap();
    let details = details("signed\n\nwith a body\n", Timestamp::now());
    workspace.commit(&change("x", "y"), &details, Some(signer)).unwrap().unwrap();
    workspace.push(&to(&["refs/heads/main"]), &case.remote, &case.context).unwrap();
    repository.git(&["fsck", "--strict", "--full"], b"");
    repository
}

/// Fails unless Git verifies the commit.
fn verify(repository: &BareRepository, arguments: &[&str], home: &Path) {
    let mut command = isolated("git");
    command.args(arguments).args(["verify-commit", "main"]).env("GNUPGHOME", home);
    run(command.current_dir(repository.path()), b"");
}

#[test]
fn git_verifies_a_commit_that_is_signed_with_openpgp() {
    let signer = CommitSigner::open_pgp(&secret(&[("git.asc", OPEN_PGP)]), TIME_OF_TEST).unwrap();
    let repository = push_signed(&signer);
    let home = tempfile::tempdir().unwrap();
    let mut import = Command::new("gpg");
    import.args(["--batch", "--quiet", "--import"]).env("GNUPGHOME", home.path());
    run(&mut import, OPEN_PGP_PUBLIC.as_bytes());
    verify(&repository, &[], home.path());
}

#[test]
fn git_verifies_a_commit_that_is_signed_with_ssh() {
    let keys = tempfile::tempdir().unwrap();
    for (kind, passphrase) in [("ed25519", ""), ("ecdsa", ""), ("rsa", ""), ("ed25519", "hunter2")]
    {
        let path = keys.path().join(format!("{kind}{}", passphrase.len()));
        let identity = ssh_key(&path, kind, passphrase);
        let data = secret(&[("identity", &identity), ("password", passphrase)]);
        let repository = push_signed(&CommitSigner::ssh(&data).unwrap());
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        let allowed = keys.path().join("allowed");
        std::fs::write(&allowed, format!("bot@example.com {public}")).unwrap();
        let setting = format!("gpg.ssh.allowedSignersFile={}", allowed.display());
        verify(&repository, &["-c", &setting], keys.path());
    }
}

#[test]
fn a_key_that_cannot_sign_is_refused_without_being_repeated() {
    for (entries, reason) in [
        (&[][..], "signing requires `git.asc`"),
        (&[("git.asc", OPEN_PGP_PUBLIC)][..], "doesn't have a private key"),
        (&[("git.asc", "hunter2")][..], "no armored data found"),
    ] {
        let error = CommitSigner::open_pgp(&secret(entries), TIME_OF_TEST).unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
    }
    let error = CommitSigner::ssh(&secret(&[("identity", "hunter2")])).unwrap_err().to_string();
    assert!(error.contains("not a private key") && !error.contains("hunter2"), "{error}");
}

#[test]
fn an_encrypted_ssh_key_without_its_passphrase_is_not_one_that_cannot_be_read() {
    let keys = tempfile::tempdir().unwrap();
    let identity = ssh_key(&keys.path().join("locked"), "ed25519", "hunter2");
    let read = |password: &str| {
        let data = secret(&[("identity", &identity), ("password", password)]);
        CommitSigner::ssh(&data).map(drop)
    };
    assert!(matches!(read(""), Err(SigningKeyError::Locked)));
    assert!(matches!(read("hunter3"), Err(SigningKeyError::Unusable(_))));
    assert!(read("hunter2").is_ok());
}
