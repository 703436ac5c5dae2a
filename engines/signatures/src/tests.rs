//! What recorded cases do not show: bounds, and inputs that mean nothing.

use proptest::prelude::*;

use crate::chart_provenance;
use crate::git::{CheckedOutCommit, GitTag, GitVerificationKeys, GitVerificationMode, verify};
use crate::pgp::{PgpVerificationBudget, read_ring};

const NOW: u64 = 1_800_000_000;

/// A commit with a signature of these lines.
fn commit(signature: &str) -> Vec<u8> {
    let signature = signature.replace('\n', "\n ");
    format!("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ngpgsig {signature}\n\nx\n").into_bytes()
}

fn error_text(mode: GitVerificationMode, object: &[u8], keys: &[(&str, &[u8])]) -> String {
    let tag = GitTag { name: "v1", object: Some(("2f1d", object)) };
    let checkout = CheckedOutCommit { commit: ("2f1d", object), tag: Some(tag) };
    verify(mode, &checkout, &GitVerificationKeys::new(keys.iter().copied()), NOW)
        .unwrap_err()
        .message
}

#[test]
fn a_signature_is_not_read_when_it_is_too_large() {
    let signature = format!("-----BEGIN PGP SIGNATURE-----\n\n{}", "A".repeat(2 << 20));
    let error_text = error_text(GitVerificationMode::Head, &commit(&signature), &[("a.asc", b"")]);
    assert!(error_text.ends_with("the signature is larger than 1048576 bytes"), "{error_text}");
    let signature = format!("-----BEGIN SSH SIGNATURE-----\n{}", "A".repeat(2 << 20));
    let keys: [(&str, &[u8]); 1] = [("id.sshpub", SIGNING_KEY)];
    let error_text = self::error_text(GitVerificationMode::Head, &commit(&signature), &keys);
    assert!(error_text.ends_with("the signature is larger than 1048576 bytes"), "{error_text}");
}

#[test]
fn a_key_that_would_take_seconds_is_refused() {
    // RSA with a modulus of 40000 bits, with a name that is not signed.
    let mut body = vec![4, 0, 0, 0, 1, 1];
    body.extend(40_000_u16.to_be_bytes());
    body.extend([0xff; 5_000]);
    body.extend([0, 17, 1, 0, 1]);
    let mut ring = vec![0x99];
    ring.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    ring.extend(body);
    ring.extend([0xb4, 1, b'x']);
    assert!(read_ring(&ring, &mut PgpVerificationBudget::default()).is_err());
}

#[test]
fn only_so_many_signatures_are_verified_for_one_object() {
    let mut effort = PgpVerificationBudget::default();
    let taken = std::iter::repeat_with(|| effort.take()).take_while(|it| *it).count();
    assert_eq!(taken, 1_000);
    assert!(!effort.take());
    let mut effort = PgpVerificationBudget::default();
    let is_hashed = [(); 4].map(|()| effort.take_message(300 << 20));
    assert_eq!(is_hashed, [true, true, true, false]);
}

#[test]
fn a_mode_that_is_none_verifies_the_commit() {
    for (name, mode) in [
        ("HEAD", GitVerificationMode::Head),
        ("head", GitVerificationMode::Head),
        ("", GitVerificationMode::Head),
        ("Tag", GitVerificationMode::Tag),
        ("TagAndHEAD", GitVerificationMode::TagAndHead),
    ] {
        assert_eq!(GitVerificationMode::named(name), mode, "{name}");
    }
}

#[test]
fn a_keyring_of_entries_is_binary_whatever_they_are() {
    let armored =
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQE=\n-----END PGP PUBLIC KEY BLOCK-----\n";
    let entries: [&[u8]; 2] = [b"\x99\x02", armored];
    assert_eq!(chart_provenance::keyring(entries), b"\x99\x02\x99\x01");
}

/// A tag that Git signed, and the key.
const SIGNED_TAG: &str = "\
object 336a080701cd93516ebbcd41be0af125c8b3fe0c
type commit
tag real-ssh-ed25519
tagger Rec Committer <committer@example.test> 1709283600 +0100

tag by git itself: ssh-ed25519

more text
-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg6mWqaGQ8Y64sZjeERQs6yBm1cw
hEOx2IQaJM3ciSHrYAAAADZ2l0AAAAAAAAAAZzaGE1MTIAAABTAAAAC3NzaC1lZDI1NTE5
AAAAQHQ/TekpH9ZXUd9PFjYSrsCmA15dh0iS0eFN1/n4hfFATyoSY3zl2e3vV28V7ElPxy
tnq8sqaqJHDfkr5KKcZwQ=
-----END SSH SIGNATURE-----
";
const SIGNING_KEY: &[u8] =
    b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOplqmhkPGOuLGY3hEULOsgZtXMIRDsdiEGiTN3Ikh62 x\n";

#[test]
fn a_signed_tag_counts_under_the_name_that_was_signed_only() {
    let keys = GitVerificationKeys::new([("id.sshpub", SIGNING_KEY)]);
    let verified = |name: &str, object: &str| {
        let tag = GitTag { name, object: Some(("2f1d", object.as_bytes())) };
        let checkout = CheckedOutCommit { commit: ("336a", b"tree x\n"), tag: Some(tag) };
        verify(GitVerificationMode::Tag, &checkout, &keys, NOW)
    };
    let text = verified("real-ssh-ed25519", SIGNED_TAG).unwrap();
    assert!(text.contains("tag 'real-ssh-ed25519@2f1d' with key"), "{text}");
    for name in ["v9.9.9", "real-ssh-ed25519-2", "real-ssh", ""] {
        let refused = verified(name, SIGNED_TAG).unwrap_err();
        assert_eq!(refused.reason, "InvalidTagSignature");
        assert!(refused.message.contains("was signed as tag 'real-ssh-ed25519'"), "{refused}");
    }
    // A header of a signature is not part of what is signed, nor are its further lines.
    let forged = SIGNED_TAG.replacen("type commit", "gpgsig x\n tag v9.9.9\ntype commit", 1);
    let refused = verified("v9.9.9", &forged).unwrap_err();
    assert!(refused.message.contains("was signed as tag 'real-ssh-ed25519'"), "{refused}");
}

proptest! {
    #[test]
    fn what_means_nothing_is_refused(
        signature in "(-----BEGIN (PGP|SSH) SIGNATURE-----\n\n?)?[A-Za-z0-9+/=\n :-]{0,200}",
        keys in proptest::collection::vec(any::<u8>(), 0..200),
        line in "(ssh-(rsa|ed25519) )?[A-Za-z0-9+/=\" \t,-]{0,80}",
    ) {
        let keys = [("a.asc", keys.as_slice()), ("a.sshpub", line.as_bytes())];
        for mode in [GitVerificationMode::Head, GitVerificationMode::Tag, GitVerificationMode::TagAndHead] {
            prop_assert!(!error_text(mode, &commit(&signature), &keys).is_empty());
        }
        let ring = chart_provenance::keyring(keys.map(|(_, value)| value));
        let signed = format!("-----BEGIN PGP SIGNED MESSAGE-----\n\nx\n...\nfiles: {{}}\n{signature}");
        prop_assert!(chart_provenance::verify("a.tgz", b"", signed.as_bytes(), &ring, NOW).is_err());
    }
}
