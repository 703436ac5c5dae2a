//! Entries of Rekor: the log's promise, the proof of inclusion, and the content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::sigstore_trusted_root::{SigstoreTrustedRoot, TransparencyLog};
use crate::protobuf_json::{ProtoBytes, ProtoInt, base64_of};
use crate::public_key::SignatureHash;
use crate::referrers::hex;
use crate::x509::ParsedCertificate;
use crate::{pem, sha256};

/// The most hashes in a proof. A log of 2^64 entries needs no more.
const MOST_HASHES: usize = 64;

/// A log entry as it is in a bundle.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawRekorEntry {
    #[serde(default)]
    log_index: ProtoInt,
    log_id: Option<RawLogId>,
    #[serde(rename = "kindVersion")]
    _kind_version: Option<RawRekorEntryKind>,
    #[serde(default)]
    integrated_time: ProtoInt,
    inclusion_promise: Option<RawInclusionPromise>,
    inclusion_proof: Option<RawInclusionProof>,
    #[serde(default)]
    canonicalized_body: ProtoBytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLogId {
    #[serde(default)]
    key_id: ProtoBytes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRekorEntryKind {
    #[serde(default, rename = "kind")]
    _kind: String,
    #[serde(default, rename = "version")]
    _version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawInclusionPromise {
    #[serde(default)]
    signed_entry_timestamp: ProtoBytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawInclusionProof {
    #[serde(default)]
    log_index: ProtoInt,
    #[serde(default)]
    root_hash: ProtoBytes,
    #[serde(default)]
    tree_size: ProtoInt,
    #[serde(default)]
    hashes: Vec<ProtoBytes>,
    checkpoint: Option<RawLogCheckpoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLogCheckpoint {
    #[serde(default)]
    envelope: String,
}

impl RawRekorEntry {
    pub(crate) fn has_proof(&self) -> bool {
        self.inclusion_proof.as_ref().is_some_and(|proof| proof.checkpoint.is_some())
    }

    fn log<'r>(&self, root: &'r SigstoreTrustedRoot) -> Option<&'r TransparencyLog> {
        let id = &self.log_id.as_ref()?.key_id.0;
        root.rekor.iter().find(|log| log.id == *id)
    }
}

/// Verifies the entries of a bundle. Returns the times in Rekor's promises.
///
/// Parity(flux): entries of logs that are not trusted count for nothing; a trusted one that is wrong fails all.
pub(crate) fn verify_all(
    entries: &[RawRekorEntry],
    certificate: &ParsedCertificate,
    signature: &[u8],
    root: &SigstoreTrustedRoot,
) -> Result<Vec<i64>, String> {
    let mut times = Vec::new();
    let mut verified = 0;
    for (at, entry) in entries.iter().enumerate() {
        let id = |entry: &RawRekorEntry| entry.log_id.as_ref().map(|id| id.key_id.0.clone());
        let same =
            |other: &RawRekorEntry| id(other) == id(entry) && other.log_index == entry.log_index;
        if entries.iter().take(at).any(same) {
            return Err("duplicate tlog entries found".to_owned());
        }
    }
    for entry in entries {
        let Some(log) = entry.log(root) else { continue };
        let seconds = entry.integrated_time.0;
        if let Some(promise) = &entry.inclusion_promise {
            let promised = InclusionPromise {
                body: &STANDARD.encode(&entry.canonicalized_body.0),
                seconds,
                index: entry.log_index.0,
                log: &log.id,
            };
            if !log.validity.contains(seconds)
                || !promised.is_signed(log, &promise.signed_entry_timestamp.0)
            {
                continue;
            }
            times.push(seconds);
        }
        let proof = entry.inclusion_proof.as_ref().ok_or("the entry has no inclusion proof")?;
        proof.verify(&entry.canonicalized_body.0, log)?;
        let logged = RekorEntryBody::parse(&entry.canonicalized_body.0)?;
        if logged.signature != signature {
            return Err("transparency log signature does not match".to_owned());
        }
        if !logged.is_by(certificate) {
            return Err("transparency log certificate does not match".to_owned());
        }
        if seconds != 0 && !certificate.is_valid_at(seconds) {
            return Err("integrated time outside certificate validity".to_owned());
        }
        verified += 1;
    }
    if verified < 1 {
        return Err(format!(
            "not enough verified log entries from transparency log: {verified} < 1"
        ));
    }
    Ok(times)
}

/// The content that Rekor promises to log.
pub(super) struct InclusionPromise<'a> {
    /// The entry in base64.
    pub(super) body: &'a str,
    pub(super) seconds: i64,
    pub(super) index: i64,
    pub(super) log: &'a [u8],
}

impl InclusionPromise<'_> {
    /// Whether the log signed the canonical JSON of this promise.
    pub(super) fn is_signed(&self, log: &TransparencyLog, signature: &[u8]) -> bool {
        // The canonical form: members in alphabetical order, without blanks and escapes.
        let canonical = json!({
            "body": self.body,
            "integratedTime": self.seconds,
            "logID": hex(self.log),
            "logIndex": self.index,
        });
        log.key.verify(SignatureHash::Sha256, canonical.to_string().as_bytes(), signature).is_ok()
    }
}

/// The content of a log entry.
pub(super) struct RekorEntryBody {
    pub(super) signature: Vec<u8>,
    /// A certificate or a key in PEM.
    pub(super) verifier: Vec<u8>,
    /// For entries of the kind `hashedrekord`, the hash of the signed data: algorithm and digits.
    pub(super) hash: Option<(String, String)>,
}

impl RekorEntryBody {
    /// Reads the body of an entry. It must be of a kind that signs artifacts.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let unreadable = || "the entry of the log cannot be read".to_owned();
        let body: serde_json::Value = serde_json::from_slice(body).map_err(|_| unreadable())?;
        let text = |path: &str| body.pointer(path).and_then(serde_json::Value::as_str);
        let bytes = |path: &str| text(path).and_then(base64_of);
        let paths = match (text("/kind"), text("/apiVersion")) {
            (Some("dsse"), Some("0.0.1")) => {
                ("/spec/signatures/0/signature", "/spec/signatures/0/verifier")
            }
            (Some("hashedrekord"), Some("0.0.1")) => {
                ("/spec/signature/content", "/spec/signature/publicKey/content")
            }
            (Some("intoto"), Some("0.0.2")) => (
                "/spec/content/envelope/signatures/0/sig",
                "/spec/content/envelope/signatures/0/publicKey",
            ),
            _ => return Err("the kind of the log's entry is not supported".to_owned()),
        };
        let mut signature = bytes(paths.0).ok_or_else(unreadable)?;
        if text("/kind") == Some("intoto") {
            // The signature is encoded twice in this kind of entry.
            let inner = std::str::from_utf8(&signature).ok().and_then(base64_of);
            signature = inner.ok_or_else(unreadable)?;
        }
        let hash = text("/spec/data/hash/algorithm").zip(text("/spec/data/hash/value"));
        Ok(Self {
            signature,
            verifier: bytes(paths.1).unwrap_or_default(),
            hash: hash.map(|(algorithm, digits)| (algorithm.to_owned(), digits.to_owned())),
        })
    }

    /// Whether the entry is about a certificate.
    pub(super) fn is_by(&self, certificate: &ParsedCertificate) -> bool {
        pem::first(&self.verifier).is_some_and(|block| block.content == certificate.der)
    }
}

impl RawInclusionProof {
    /// Whether a log that signed its state has the entry.
    fn verify(&self, body: &[u8], log: &TransparencyLog) -> Result<(), String> {
        let root = self.computed(body)?;
        if root != self.root_hash.0 {
            return Err(format!(
                "calculated root:\n{}\n does not match expected root:\n{}",
                decimal(&root),
                decimal(&self.root_hash.0)
            ));
        }
        let checkpoint = self.checkpoint.as_ref().ok_or("the entry has no checkpoint")?;
        let signed = signed_root(&checkpoint.envelope, log)?;
        if signed != root {
            return Err("proof root hash does not match signed tree head".to_owned());
        }
        Ok(())
    }

    /// The hash of the tree that the proof leads to, by RFC 6962.
    fn computed(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let malformed = || "the inclusion proof is malformed".to_owned();
        let index = self.log_index.0;
        let size = self.tree_size.0;
        if index < 0 || size < 1 || index >= size || self.hashes.len() > MOST_HASHES {
            return Err(malformed());
        }
        let node = |left: &[u8], right: &[u8]| sha256(&[&[1], left, right].concat()).to_vec();
        let mut hash = sha256(&[&[0], body].concat()).to_vec();
        let mut at = index;
        let mut last = size - 1;
        for other in &self.hashes {
            if last == 0 {
                return Err(malformed());
            }
            if at % 2 == 1 || at == last {
                hash = node(&other.0, &hash);
                while at % 2 == 0 && at != 0 {
                    at /= 2;
                    last /= 2;
                }
            } else {
                hash = node(&hash, &other.0);
            }
            at /= 2;
            last /= 2;
        }
        if last == 0 { Ok(hash) } else { Err(malformed()) }
    }
}

/// Bytes as decimal numbers, in Go's notation.
fn decimal(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    format!("[{}]", numbers.join(" "))
}

/// The root hash in a checkpoint that a log signed. A checkpoint is a signed note with the hash on its third line.
fn signed_root(envelope: &str, log: &TransparencyLog) -> Result<Vec<u8>, String> {
    let malformed = || "the checkpoint is malformed".to_owned();
    let (note, signatures) = envelope.split_once("\n\n").ok_or_else(malformed)?;
    let note = format!("{note}\n");
    let is_signed = signatures.lines().take(MOST_HASHES).any(|line| {
        let encoded = line.strip_prefix("— ").and_then(|line| line.split(' ').next_back());
        let Some(bytes) = encoded.and_then(base64_of) else { return false };
        let Some((hint, signature)) = bytes.split_at_checked(4) else { return false };
        log.key_hash.starts_with(hint)
            && log.key.verify(SignatureHash::Sha256, note.as_bytes(), signature).is_ok()
    });
    if !is_signed {
        return Err("the checkpoint is not signed by the log".to_owned());
    }
    note.lines().nth(2).and_then(base64_of).ok_or_else(malformed)
}
