//! What is signed is verified by what verifies the commits of sources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ssh_key::PrivateKey;

use super::*;
use crate::git::{CheckedOutCommit, GitVerificationKeys, GitVerificationMode, verify};

const NOW: u64 = 1_800_000_000;
const PAYLOAD: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\nx\n";

/// A key without a passphrase.
const PLAIN: &str = "\
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
const PLAIN_PUBLIC: &str = "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaVW5ABYJKwYBBAHaRw8BAQdANzuh8u8yzKuNkdekSSdjjrUMsWQDdUBdliZj
APRBa0m0FUJvdCA8Ym90QGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEA2FZE1Q6F35e
sA2NBi7NeUktaW8FAmlVuQACGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
Bi7NeUktaW8ZYQD/R2zV4EnXDQFLaapHmVTYz43CCuL/pevJWf98VLJG+EMBAOeI
U4+ZF67CwpbGcezOX2tIoXoDVJ9o/XS/FrXYFdkJ
=38O0
-----END PGP PUBLIC KEY BLOCK-----
";
/// A key that certifies, with a subkey that signs; the passphrase is `hunter2`.
const WITH_SUBKEY: &str = "\
-----BEGIN PGP PRIVATE KEY BLOCK-----

lIYEaVW5ABYJKwYBBAHaRw8BAQdA4rPafJzP6Gs5vl9wUwEQDoIiAokbR3kTXmlE
T3/S7zz+BwMC05UV3CKTmD7/2YYWCTgyJkITRFFp8cnZ9xFhMvR/n54QrsDNnPFK
kIvpnPMK7+bqvC9WJCBtyocs1WFK0Wgc2CpjJgm9poXNUD0YfIf1nbQVQm90IDxi
b3RAZXhhbXBsZS5jb20+iJAEExYIADgWIQQqNGllpOXYF42AAdvlGwAH+ZiWDgUC
aVW5AAIbAQULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRDlGwAH+ZiWDkPaAP48
N6/8Xt2Nb6XV6xv1dnW4OYZAX3bi017n0WVZD5v6ywEA/0w0qqZTGotSdoHwDc3V
1KprkBGvJXw+qVPTIrvKBQKchgRpVbkAFgkrBgEEAdpHDwEBB0BJB56rDtaBqbIZ
Qe+QpNfBjfiM9NyZG4fIs77Piwa75f4HAwJEwKXo0gfmv/8SP3AAj9n0cFNAzikS
ASporKVhLL9YlBtGNPmxupbkhrHBvbyoWzVOrZqAWGczt7esmmVYg/lLnURNKjo1
mM0HLtEDjo+iiO8EGBYIACAWIQQqNGllpOXYF42AAdvlGwAH+ZiWDgUCaVW5AAIb
AgCBCRDlGwAH+ZiWDnYgBBkWCAAdFiEEEHrKiscOqliJ82PF7jPyUTn166oFAmlV
uQAACgkQ7jPyUTn166qp7gD9FHw0ko98RFkiGwLqfDrdfNo/1c1pI8rsu99z+ZlY
yVwBAJdI0c+JD82cxo4gN8RK5Nt6K4n2dJwhzZAPSfJCiJQGxxgA/R0uG2FKOn9U
amZpHVytUhUvHZTKAWPgm/AkNUVuua+hAP0ScNxxKGrqjtzH3c+IDnCWneMBoIvc
GvZaH/nq1bQRAA==
=wX0C
-----END PGP PRIVATE KEY BLOCK-----
";
/// Its public part.
const WITH_SUBKEY_PUBLIC: &str = "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaVW5ABYJKwYBBAHaRw8BAQdA4rPafJzP6Gs5vl9wUwEQDoIiAokbR3kTXmlE
T3/S7zy0FUJvdCA8Ym90QGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEKjRpZaTl2BeN
gAHb5RsAB/mYlg4FAmlVuQACGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
5RsAB/mYlg5D2gD+PDev/F7djW+l1esb9XZ1uDmGQF924tNe59FlWQ+b+ssBAP9M
NKqmUxqLUnaB8A3N1dSqa5ARryV8PqlT0yK7ygUCuDMEaVW5ABYJKwYBBAHaRw8B
AQdASQeeqw7WgamyGUHvkKTXwY34jPTcmRuHyLO+z4sGu+WI7wQYFggAIBYhBCo0
aWWk5dgXjYAB2+UbAAf5mJYOBQJpVbkAAhsCAIEJEOUbAAf5mJYOdiAEGRYIAB0W
IQQQesqKxw6qWInzY8XuM/JROfXrqgUCaVW5AAAKCRDuM/JROfXrqqnuAP0UfDSS
j3xEWSIbAup8Ot182j/VzWkjyuy733P5mVjJXAEAl0jRz4kPzZzGjiA3xErk23or
ifZ0nCHNkA9J8kKIlAbHGAD9HS4bYUo6f1RqZmkdXK1SFS8dlMoBY+Cb8CQ1RW65
r6EA/RJw3HEoauqO3Mfdz4gOcJad4wGgi9wa9lof+erVtBEA
=mTA4
-----END PGP PUBLIC KEY BLOCK-----
";
/// The same, of which GnuPG exported the subkey alone.
const SUBKEY_ALONE: &str = "\
-----BEGIN PGP PRIVATE KEY BLOCK-----

lDsEaVW5ABYJKwYBBAHaRw8BAQdA4rPafJzP6Gs5vl9wUwEQDoIiAokbR3kTXmlE
T3/S7zz/AGUAR05VAbQVQm90IDxib3RAZXhhbXBsZS5jb20+iJAEExYIADgWIQQq
NGllpOXYF42AAdvlGwAH+ZiWDgUCaVW5AAIbAQULCQgHAgYVCgkICwIEFgIDAQIe
AQIXgAAKCRDlGwAH+ZiWDkPaAP48N6/8Xt2Nb6XV6xv1dnW4OYZAX3bi017n0WVZ
D5v6ywEA/0w0qqZTGotSdoHwDc3V1KprkBGvJXw+qVPTIrvKBQKchgRpVbkAFgkr
BgEEAdpHDwEBB0BJB56rDtaBqbIZQe+QpNfBjfiM9NyZG4fIs77Piwa75f4HAwJY
GJ3+Nt/VNP/UFcvax/8dnaxS8IMISuodYuFzoV8LgZiov/syReGnqG3e6Mva6XST
yhm/rBciBTF0oAUfN1CbGWtgPS1+a2PsHG6rZY8HiO8EGBYIACAWIQQqNGllpOXY
F42AAdvlGwAH+ZiWDgUCaVW5AAIbAgCBCRDlGwAH+ZiWDnYgBBkWCAAdFiEEEHrK
iscOqliJ82PF7jPyUTn166oFAmlVuQAACgkQ7jPyUTn166qp7gD9FHw0ko98RFki
GwLqfDrdfNo/1c1pI8rsu99z+ZlYyVwBAJdI0c+JD82cxo4gN8RK5Nt6K4n2dJwh
zZAPSfJCiJQGxxgA/R0uG2FKOn9UamZpHVytUhUvHZTKAWPgm/AkNUVuua+hAP0S
cNxxKGrqjtzH3c+IDnCWneMBoIvcGvZaH/nq1bQRAA==
=lEdH
-----END PGP PRIVATE KEY BLOCK-----
";
/// A key of OpenSSH.
const SSH: &str = "\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACDnXtI2ei0Dg6/xFr6Qe4A8AZW6IQ4q4F4UD/4SwqolQQAAAIhSOp/mUjqf
5gAAAAtzc2gtZWQyNTUxOQAAACDnXtI2ei0Dg6/xFr6Qe4A8AZW6IQ4q4F4UD/4SwqolQQ
AAAEBbgDSkuO1+BuwRjogmRqLkv4mrqUcYzZt9BcJK4t3UL+de0jZ6LQODr/EWvpB7gDwB
lbohDirgXhQP/hLCqiVBAAAAAAECAwQF
-----END OPENSSH PRIVATE KEY-----
";
const SSH_PUBLIC: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOde0jZ6LQODr/EWvpB7gDwBlbohDirgXhQP/hLCqiVB\n";

/// The commit with a signature.
fn signed(signature: &str) -> String {
    let lines = signature.trim_end().replace('\n', "\n ");
    PAYLOAD.replacen("\n\n", &format!("\ngpgsig {lines}\n\n"), 1)
}

fn verified(signature: &str, name: &str, public: &str) -> Result<String, String> {
    let object = signed(signature);
    let checkout = CheckedOutCommit { commit: ("2f1d", object.as_bytes()), tag: None };
    let keys = GitVerificationKeys::new([(name, public.as_bytes())]);
    verify(GitVerificationMode::Head, &checkout, &keys, NOW).map_err(|error| error.message)
}

#[test]
fn an_openpgp_key_signs_what_verifies_with_its_public_key_only() {
    let key = OpenPgpSigningKey::read(PLAIN.as_bytes(), None).unwrap();
    let signature = key.sign(PAYLOAD.as_bytes(), NOW).unwrap();
    assert!(signature.starts_with("-----BEGIN PGP SIGNATURE-----\n"), "{signature}");
    let text = verified(&signature, "a.asc", PLAIN_PUBLIC).unwrap();
    assert!(text.ends_with("with key '062ECD79492D696F'"), "{text}");
    assert!(verified(&signature, "a.asc", WITH_SUBKEY_PUBLIC).is_err());
    let other = key.sign(b"tree x\n", NOW).unwrap();
    assert!(verified(&other, "a.asc", PLAIN_PUBLIC).is_err());
    // A passphrase for a key that has none is not examined.
    let key = OpenPgpSigningKey::read(PLAIN.as_bytes(), Some("superfluous")).unwrap();
    assert!(key.sign(PAYLOAD.as_bytes(), NOW).is_ok());
}

#[test]
fn a_subkey_that_may_sign_does_and_its_passphrase_is_needed() {
    for armored in [WITH_SUBKEY, SUBKEY_ALONE] {
        let sign = |passphrase| {
            let key = OpenPgpSigningKey::read(armored.as_bytes(), passphrase).unwrap();
            key.sign(PAYLOAD.as_bytes(), NOW).map_err(|error| error.to_string())
        };
        let signature = sign(Some("hunter2")).unwrap();
        let text = verified(&signature, "a.asc", WITH_SUBKEY_PUBLIC).unwrap();
        assert!(text.ends_with("with key 'E51B0007F998960E'"), "{text}");
        let missing = "the OpenPGP key is encrypted: add its `passphrase`";
        assert_eq!(sign(None).unwrap_err(), missing);
        let wrong = "`passphrase` does not unlock the OpenPGP key";
        assert_eq!(sign(Some("hunter3")).unwrap_err(), wrong);
        let checked = |passphrase| {
            let key = OpenPgpSigningKey::read(armored.as_bytes(), passphrase).unwrap();
            key.check_passphrase(NOW)
        };
        assert_eq!(checked(Some("hunter2")), Ok(()));
        assert_eq!(checked(None), Err(SigningError::Locked));
        assert_eq!(checked(Some("hunter3")), Err(SigningError::WrongPassphrase));
    }
}

#[test]
fn a_key_does_not_sign_before_it_was_made() {
    let key = OpenPgpSigningKey::read(PLAIN.as_bytes(), None).unwrap();
    assert!(key.sign(PAYLOAD.as_bytes(), 1_700_000_000).is_err());
}

#[test]
fn what_is_no_single_private_key_is_refused() {
    let refused =
        |armored: &str| OpenPgpSigningKey::read(armored.as_bytes(), None).unwrap_err().to_string();
    assert_eq!(
        refused(PLAIN_PUBLIC),
        "openpgp: invalid argument: signing key doesn't have a private key"
    );
    assert_eq!(refused("hunter2"), "openpgp: invalid argument: no armored data found");
}

#[test]
fn an_ssh_key_signs_what_verifies_with_its_public_key_only() {
    let key = PrivateKey::from_openssh(SSH).unwrap();
    let signature = sign_with_ssh_key(&key, PAYLOAD.as_bytes()).unwrap();
    assert!(signature.starts_with("-----BEGIN SSH SIGNATURE-----\n"), "{signature}");
    verified(&signature, "a.sshpub", SSH_PUBLIC).unwrap();
    let other = sign_with_ssh_key(&key, b"tree x\n").unwrap();
    assert!(verified(&other, "a.sshpub", SSH_PUBLIC).is_err());
}

fn armored(content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let lines = lines.join("\n");
    format!(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{lines}\n-----END PGP PRIVATE KEY BLOCK-----\n"
    )
}

#[test]
fn a_few_subkeys_are_unlocked_and_no_more() {
    let content = crate::pgp::armor::first(WITH_SUBKEY.as_bytes()).unwrap().content;
    let mut packets = Vec::new();
    let mut rest = content.as_slice();
    // In this key each packet begins with a byte of its type and a byte of its length.
    while let [_, length, ..] = rest {
        let (packet, after) = rest.split_at(2 + usize::from(*length));
        packets.push(packet.to_vec());
        rest = after;
    }
    let [primary, name, certification, subkey, binding] = packets.as_slice() else {
        panic!("{} packets", packets.len());
    };
    let mut broken = subkey.clone();
    *broken.last_mut().unwrap() ^= 1;
    let sign = |count: usize| {
        let broken = [broken.as_slice(), binding].concat().repeat(count);
        let key = [primary.as_slice(), name, certification, &broken, subkey, binding].concat();
        let key = OpenPgpSigningKey::read(armored(&key).as_bytes(), Some("hunter2")).unwrap();
        key.sign(PAYLOAD.as_bytes(), NOW)
    };
    assert!(sign(3).is_ok());
    assert!(sign(4).is_err());
}

#[test]
fn a_private_key_whose_numbers_do_not_belong_together_is_refused() {
    // RSA with the prime 7 taken twice: 49 and 5; then 5, 7, 7, 1 and their checksum.
    let public: [u8; 12] = [4, 0, 0, 0, 1, 1, 0, 6, 49, 0, 3, 5];
    let private: [u8; 15] = [0, 0, 3, 5, 0, 3, 7, 0, 3, 7, 0, 1, 1, 0, 30];
    let packet = [&[0xc5, 27][..], &public, &private].concat();
    OpenPgpSigningKey::read(armored(&packet).as_bytes(), None).unwrap_err();
}
