//! The signing keys of recorded cases, which have placeholders such as `${GPG_KEY}`. GnuPG and `ssh-keygen` make the
//! keys once.
//!
//! This module makes the keys, and checks whether a commit is signed with one of them. The crate `sources` signs, and
//! the engine `signatures` verifies.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow, ensure};
use e2e::gnupg::GnuPgHome;
use serde_json::Value;
use signatures::git::{CheckedOutCommit, GitVerificationKeys, GitVerificationMode, verify};

/// The passphrase of all keys that have one.
const PASSPHRASE: &str = "sesame";

/// The SSH keys of cases. Each has a placeholder, an algorithm, a number of bits and a passphrase.
const SSH_KEYS: [(&str, &str, &str, &str); 5] = [
    ("${SSH_ED25519}", "ed25519", "256", ""),
    ("${SSH_ED25519_LOCKED}", "ed25519", "256", PASSPHRASE),
    ("${SSH_ECDSA256}", "ecdsa", "256", ""),
    ("${SSH_RSA2048}", "rsa", "2048", ""),
    ("${SSH_RSA1024}", "rsa", "1024", ""),
];

/// The beginnings of placeholders for keys.
const PLACEHOLDERS: [&str; 2] = ["${GPG_", "${SSH_"];

/// The first line of a signature, by the name of its kind in cases.
const SIGNATURE_KINDS: [(&str, &str); 2] =
    [("gpg", "-----BEGIN PGP SIGNATURE-----"), ("ssh", "-----BEGIN SSH SIGNATURE-----")];

/// The keys of all cases.
struct SigningKeys {
    /// The content of a Secret, by placeholder.
    texts: BTreeMap<String, String>,
    /// The public OpenPGP keys, armored.
    pgp: String,
    /// The public SSH keys, one on each line.
    ssh: String,
}

fn keys() -> anyhow::Result<&'static SigningKeys> {
    static MADE: OnceLock<Result<SigningKeys, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| SigningKeys::make().map_err(|error| format!("{error:#}")));
    made.as_ref().map_err(|error| anyhow!("the keys of the cases cannot be made: {error}"))
}

impl SigningKeys {
    fn make() -> anyhow::Result<Self> {
        let mut keys = Self { texts: BTreeMap::new(), pgp: String::new(), ssh: String::new() };
        keys.add_open_pgp()?;
        keys.add_ssh()?;
        Ok(keys)
    }

    fn add(&mut self, placeholder: &str, text: String) {
        self.texts.insert(placeholder.to_owned(), text);
    }

    fn add_open_pgp(&mut self) -> anyhow::Result<()> {
        let plain = GnuPgHome::with_key("ed25519", "sign")?;
        self.add("${GPG_KEY}", plain.private()?);
        self.add("${GPG_PUBLIC}", plain.public()?);
        // A second key is in the same keyring, so that both are exported together.
        let second = "Second <second@testbed.example>";
        let generate = ["--quick-generate-key", second, "ed25519", "sign", "never"];
        plain.run(&[&["--passphrase", ""][..], &generate[..]].concat())?;
        self.add("${GPG_KEYS_TWO}", plain.private()?);
        self.pgp.push_str(&plain.public()?);
        let home = GnuPgHome::with_key("ed25519", "sign")?;
        // By default, GnuPG hashes a passphrase as often as the machine can in a tenth of a second.
        fs::write(home.home().join("gpg-agent.conf"), "s2k-count 65536\n")?;
        let ended = Command::new("gpgconf")
            .arg("--homedir")
            .arg(home.home())
            .args(["--kill", "gpg-agent"])
            .status()
            .context("cannot start `gpgconf`")?;
        ensure!(ended.success(), "the agent of GnuPG does not end");
        let locked = "Locked <locked@testbed.example>";
        let unlock = ["--pinentry-mode", "loopback", "--passphrase", PASSPHRASE];
        let generate = ["--quick-generate-key", locked, "ed25519", "sign", "never"];
        home.run(&[&unlock[..], &generate[..]].concat())?;
        let export = ["--armor", "--export-secret-keys", "locked@testbed.example"];
        self.add("${GPG_KEY_LOCKED}", home.run(&[&unlock[..], &export[..]].concat())?);
        self.pgp.push_str(&home.run(&["--armor", "--export", "locked@testbed.example"])?);
        Ok(())
    }

    fn add_ssh(&mut self) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        for (placeholder, algorithm, bits, passphrase) in SSH_KEYS {
            let path = folder.path().join(placeholder.trim_matches(['$', '{', '}']));
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", algorithm, "-b", bits, "-N", passphrase, "-C", "", "-f"])
                .arg(&path)
                .output()
                .context("cannot start `ssh-keygen`")?;
            let said = String::from_utf8_lossy(&made.stderr);
            ensure!(made.status.success(), "`ssh-keygen` failed: {said}");
            self.add(placeholder, fs::read_to_string(&path)?);
            self.ssh.push_str(&fs::read_to_string(path.with_extension("pub"))?);
        }
        Ok(())
    }

    /// The keys that verify signatures. Each armored OpenPGP text is a keyring of its own.
    fn verification_keys(&self) -> GitVerificationKeys<'_> {
        let end = "-----END PGP PUBLIC KEY BLOCK-----";
        let rings = self.pgp.split_inclusive(end).filter(|ring| ring.contains(end));
        let rings = rings.map(|ring| ("ring.asc", ring.as_bytes()));
        GitVerificationKeys::new(rings.chain([("keys.sshpub", self.ssh.as_bytes())]))
    }
}

/// Replaces the placeholders of keys in an object.
///
/// # Errors
/// A placeholder is not known, or the keys cannot be made.
pub(super) fn with_keys(object: Value) -> anyhow::Result<Value> {
    match object {
        Value::String(text) if PLACEHOLDERS.iter().any(|start| text.contains(start)) => {
            let mut text = text;
            for (placeholder, key) in &keys()?.texts {
                text = text.replace(placeholder, key);
            }
            let is_filled = !PLACEHOLDERS.iter().any(|start| text.contains(start));
            ensure!(is_filled, "a key of the case is not known");
            Ok(Value::String(text))
        }
        Value::Array(items) => items.into_iter().map(with_keys).collect(),
        Value::Object(fields) => {
            let filled = fields
                .into_iter()
                .map(|(name, value)| -> anyhow::Result<_> { Ok((name, with_keys(value)?)) });
            filled.collect::<anyhow::Result<_>>().map(Value::Object)
        }
        other => Ok(other),
    }
}

/// The kind of a commit's signature, as cases name it. It is `None` without a signature. If no key verifies the
/// signature, the text says so.
///
/// # Errors
/// The keys cannot be made.
pub(super) fn signature_kind(hash: &str, commit: &[u8]) -> anyhow::Result<Option<String>> {
    let text = String::from_utf8_lossy(commit);
    let head = text.split("\n\n").next().unwrap_or_default();
    let Some(signature) = head.lines().find_map(|line| line.strip_prefix("gpgsig ")) else {
        return Ok(None);
    };
    let kind = SIGNATURE_KINDS.iter().find(|(_, first)| *first == signature);
    let kind = kind.map_or("a signature of another kind", |(kind, _)| *kind);
    let checkout = CheckedOutCommit { commit: (hash, commit), tag: None };
    let now = u64::try_from(jiff::Timestamp::now().as_second())?;
    let keys = keys()?.verification_keys();
    Ok(Some(match verify(GitVerificationMode::Head, &checkout, &keys, now) {
        Ok(_) => kind.to_owned(),
        Err(error) => format!("{kind}, not verified: {error}"),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_stand_in_place_of_their_placeholders_and_others_are_an_error() -> anyhow::Result<()> {
        let secret = json!({"stringData": {"identity": "${SSH_ED25519}", "other": "x"}});
        let filled = with_keys(secret)?;
        let identity = filled["stringData"]["identity"].as_str().context("no identity")?;
        assert!(identity.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"), "{identity}");
        assert_eq!(filled["stringData"]["other"], "x");
        assert!(with_keys(json!("${SSH_DSA}")).is_err());
        Ok(())
    }

    #[test]
    fn a_commit_without_a_signature_has_no_kind() -> anyhow::Result<()> {
        assert_eq!(signature_kind("1", b"tree 1\n\ngpgsig x\n")?, None);
        Ok(())
    }
}
