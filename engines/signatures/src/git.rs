//! Verifies the signatures of commits and tags, and determines which of the two must be signed.
//!
//! Source: fluxcd/pkg/git 0.52 and source-controller 1.9.

use crate::{pgp, ssh};

/// Which objects must be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitVerificationMode {
    /// The commit.
    Head,
    /// The tag object.
    Tag,
    /// Both.
    TagAndHead,
}

impl GitVerificationMode {
    /// Reads `spec.verify.mode`.
    ///
    /// Parity(flux): any other mode is the commit, so `head` is, too. Differs(flux): in Flux an empty mode verifies nothing;
    /// the schema has a default, so an empty mode has bypassed it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "Tag" => Self::Tag,
            "TagAndHEAD" => Self::TagAndHead,
            _ => Self::Head,
        }
    }

    /// This mode as the text of `status.sourceVerificationMode`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Tag => "Tag",
            Self::TagAndHead => "TagAndHEAD",
        }
    }

    fn has_tag(self) -> bool {
        matches!(self, Self::Tag | Self::TagAndHead)
    }

    fn has_commit(self) -> bool {
        matches!(self, Self::Head | Self::TagAndHead)
    }
}

/// The commit and tag that were checked out.
#[derive(Debug, Clone, Copy)]
pub struct CheckedOutCommit<'o> {
    /// The hash of the commit, and the stored commit object without its header.
    pub commit: (&'o str, &'o [u8]),
    /// The tag that led to the commit, if there was one.
    pub tag: Option<GitTag<'o>>,
}

/// A tag of a Git repository, with its tag object if it has one.
#[derive(Debug, Clone, Copy)]
pub struct GitTag<'o> {
    /// The name of the tag, without `refs/tags/`.
    pub name: &'o str,
    /// The hash and the tag object. A lightweight tag has no object.
    pub object: Option<(&'o str, &'o [u8])>,
}

impl std::fmt::Display for GitTag<'_> {
    /// Writes `name@hash`, as in Flux's messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.object {
            Some((hash, _)) => write!(f, "{}@{hash}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Public keys of the Secret of `spec.verify.secretRef`.
#[derive(Debug, Default)]
pub struct GitVerificationKeys<'d> {
    /// OpenPGP key rings.
    pgp: Vec<&'d [u8]>,
    /// Lists of SSH keys.
    ssh: Vec<&'d [u8]>,
}

impl<'d> GitVerificationKeys<'d> {
    /// Reads the keys from the entries of a Secret. `*.sshpub` are lists of SSH keys, and all other entries are OpenPGP key
    /// rings.
    pub fn new(data: impl IntoIterator<Item = (&'d str, &'d [u8])>) -> Self {
        let mut keys = Self::default();
        for (name, value) in data {
            match name.ends_with(".sshpub") {
                true => keys.ssh.push(value),
                false => keys.pgp.push(value),
            }
        }
        keys
    }
}

/// Why a commit or tag is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GitVerificationError {
    /// The reason of the condition `SourceVerified`, as in Flux.
    pub reason: &'static str,
    /// The problem, and the object that has it.
    pub message: String,
    /// Whether the problem remains until the spec changes.
    pub is_permanent: bool,
}

impl GitVerificationError {
    /// The Secret with the keys cannot be read, for this reason.
    #[must_use]
    pub fn without_keys(why: &str) -> Self {
        let message = format!("public keys secret error: {why}");
        Self { reason: "VerificationError", message, is_permanent: false }
    }
}

/// Verifies the checked-out commit and tag. `now` is in seconds since 1970. Returns the signers and the objects that they
/// signed, in Flux's words.
///
/// # Errors
/// An object that must be signed has no signature, no signature by one of the keys, or an invalid one; see
/// [`GitVerificationError`].
pub fn verify(
    mode: GitVerificationMode,
    checkout: &CheckedOutCommit<'_>,
    keys: &GitVerificationKeys<'_>,
    now: u64,
) -> Result<String, GitVerificationError> {
    let refused = |reason, message| GitVerificationError { reason, message, is_permanent: false };
    let mut message = "verified signature of".to_owned();
    if mode.has_tag() {
        let Some(tag) = &checkout.tag else {
            return Err(GitVerificationError {
                reason: "InvalidVerificationMode",
                message: "cannot verify tag object's signature if a tag reference is not specified"
                    .to_owned(),
                is_permanent: true,
            });
        };
        let signed = tag.object.map(|(_, object)| SignedGitObject::tag(object));
        let Some(signed) = signed.filter(|signed| !signed.signature.is_empty()) else {
            let message = format!("cannot verify signature of tag '{tag}' since it is not signed");
            return Err(refused("InvalidGitObject", message));
        };
        let key = signed.verify("tag", keys, now).map_err(|why| {
            let message = format!("signature verification of tag '{tag}' failed: {why}");
            refused("InvalidTagSignature", message)
        })?;
        signed.check_name(tag).map_err(|message| refused("InvalidTagSignature", message))?;
        message.push_str(&format!("\n\t- tag '{tag}' with key '{key}'"));
    }
    if mode.has_commit() {
        let (hash, object) = checkout.commit;
        let key = SignedGitObject::commit(object).verify("commit", keys, now).map_err(|why| {
            let message = format!("signature verification of commit '{hash}' failed: {why}");
            refused("InvalidCommitSignature", message)
        })?;
        message.push_str(&format!("\n\t- commit '{hash}' with key '{key}'"));
    }
    Ok(message)
}

/// A Git object, split into its signature and its signed bytes.
struct SignedGitObject {
    signature: Vec<u8>,
    payload: Vec<u8>,
}

/// The possible first lines of a signature, each with the name of its format.
const SIGNATURE_FORMATS: [(&[u8], &str); 4] = [
    (b"-----BEGIN PGP SIGNATURE-----", "openpgp"),
    (b"-----BEGIN SSH SIGNATURE-----", "ssh"),
    (b"-----BEGIN SIGNED MESSAGE-----", "x509"),
    // Git treats such a block in a tag as its signature, but no program can verify it.
    (b"-----BEGIN PGP MESSAGE-----", "unknown"),
];

/// The headers of a signature. The one for objects with SHA-256 is not read. Neither is part of the signed bytes.
const SIGNATURE_HEADERS: [&[u8]; 2] = [b"gpgsig ", b"gpgsig-sha256 "];

impl SignedGitObject {
    /// Splits a commit. Its signature is the first header `gpgsig` with its continuation lines.
    fn commit(object: &[u8]) -> Self {
        let mut signed = Self { signature: Vec::new(), payload: Vec::with_capacity(object.len()) };
        let mut signatures = 0;
        let [header, other] = SIGNATURE_HEADERS;
        let mut is_header = true;
        let mut within = None;
        for line in object.split_inclusive(|byte| *byte == b'\n') {
            is_header &= line != b"\n";
            let continued = line.strip_prefix(b" ");
            (within, signatures) = match (is_header, within, continued) {
                (false, ..) => (None, signatures),
                (true, Some(_), Some(_)) => (within, signatures),
                _ if line.starts_with(header) => (Some(signatures), signatures + 1),
                // A number that no signature has.
                _ if line.starts_with(other) => (Some(usize::MAX), signatures),
                _ => (None, signatures),
            };
            match within {
                Some(0) => {
                    let text = continued.or_else(|| line.strip_prefix(header));
                    signed.signature.extend(text.unwrap_or_default());
                }
                Some(_) => {}
                None => signed.payload.extend(line),
            }
        }
        signed
    }

    /// Splits a tag. Its signature begins at the last line that can begin one.
    fn tag(object: &[u8]) -> Self {
        let mut at = 0;
        let mut found = object.len();
        for line in object.split_inclusive(|byte| *byte == b'\n') {
            if SIGNATURE_FORMATS.iter().any(|(begin, _)| line.starts_with(begin)) {
                found = at;
            }
            at += line.len();
        }
        let (payload, signature) = object.split_at(found);
        // The payload may have signature headers, too, but Git does not read them.
        let Self { payload, .. } = Self::commit(payload);
        Self { signature: signature.to_vec(), payload }
    }

    /// Checks that a tag has the name that its signer gave it.
    ///
    /// Differs(flux): Flux does not compare the name of the reference, which is not signed, with the signed name in the tag
    /// object, so a user who may push can serve an old signed tag under a new name.
    fn check_name(&self, tag: &GitTag<'_>) -> Result<(), String> {
        let lines = self.payload.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
        let name = lines.into_iter().find_map(|line| line.strip_prefix(b"tag "));
        if name == Some(tag.name.as_bytes()) {
            return Ok(());
        }
        let signed_as = String::from_utf8_lossy(name.unwrap_or_default());
        Err(format!(
            "tag '{tag}' was signed as tag '{signed_as}': the name of the reference is not what its signer gave it"
        ))
    }

    fn format(&self) -> &'static str {
        let signature = self.signature.trim_ascii();
        let known = SIGNATURE_FORMATS.iter().find(|(begin, _)| signature.starts_with(begin));
        let other = if self.signature.is_empty() { "empty" } else { "unknown" };
        known.map_or(other, |(_, name)| name)
    }

    /// Verifies the signature and returns the name of the key that signed. The error says why no key accepts the
    /// signature.
    fn verify(
        &self,
        kind: &str,
        keys: &GitVerificationKeys<'_>,
        now: u64,
    ) -> Result<String, String> {
        let signature = self.signature.trim_ascii();
        match self.format() {
            "openpgp" if keys.pgp.is_empty() => {
                Err("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)".to_owned())
            }
            "openpgp" => pgp::verify_any(signature, &self.payload, &keys.pgp, now)
                .map_err(|why| format!("unable to verify Git {kind}: {why}")),
            "ssh" if keys.ssh.is_empty() => {
                Err("SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)".to_owned())
            }
            "ssh" => ssh::verify_any(signature, &self.payload, &keys.ssh)
                .map_err(|why| format!("unable to verify Git {kind} SSH signature: {why}")),
            other => Err(format!("unsupported signature type: {other}")),
        }
    }
}
