//! Signed commits, tags and provenance files, with the keys for them (the engine `signatures`).

use signatures::chart_provenance;
use signatures::git::{self, CheckedOutCommit, GitTag, GitVerificationKeys, GitVerificationMode};

use super::FuzzTarget;
use super::USUAL_STACK;

/// The separator between the signed text and the keys.
const KEYS_SEPARATOR: &[u8] = b"\n===KEYS===\n";

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "signature",
    stack: USUAL_STACK,
    words: &[
        KEYS_SEPARATOR,
        b"gpgsig ",
        b"gpgsig-sha256 ",
        b"\n ",
        b"\n\n",
        b"-----BEGIN PGP SIGNATURE-----\n\n",
        b"-----END PGP SIGNATURE-----\n",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n",
        b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n",
        b"-----BEGIN SSH SIGNATURE-----\n",
        b"-----END SSH SIGNATURE-----\n",
        b"\n...\nfiles:\n  a.tgz: sha256:",
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI",
        b"ssh-rsa AAAAB3NzaC1yc2E",
        b"U1NIU0lHAAAAAQ",
        b"=",
        b"AAAA",
        b"/////",
        b"- - ",
        b"\"",
        b"\\\"",
        b"\r\n",
        b"\0",
        b"\xc6",
        b"\x99",
    ],
    recorded: &[],
    read,
};

/// The time at which signatures are verified. The keys are valid then.
const VERIFICATION_UNIX_TIME: u64 = 1_800_000_000;

/// Tries both forms of keys, and everything that may be signed.
fn read(input: &[u8]) {
    let at = input.windows(KEYS_SEPARATOR.len()).position(|window| window == KEYS_SEPARATOR);
    let (signed, keys) =
        at.map_or((input, &b""[..]), |at| (&input[..at], &input[at + KEYS_SEPARATOR.len()..]));
    let keys = [("a.asc", keys), ("a.sshpub", keys)];
    let tag = GitTag { name: "v1", object: Some(("0", signed)) };
    let checkout = CheckedOutCommit { commit: ("0", signed), tag: Some(tag) };
    for mode in [GitVerificationMode::Head, GitVerificationMode::Tag] {
        drop(git::verify(mode, &checkout, &GitVerificationKeys::new(keys), VERIFICATION_UNIX_TIME));
    }
    let ring = chart_provenance::keyring(keys.map(|(_, value)| value));
    drop(chart_provenance::verify("a.tgz", b"chart", signed, &ring, VERIFICATION_UNIX_TIME));
}
