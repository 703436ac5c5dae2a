//! Verifies the provenance of charts: the signed file that a Helm repository serves for a chart.
//!
//! Here: the format of the file, and comparing it with the chart. Elsewhere: the signer (`pgp`).
//! Source: Helm 4.2; error messages are Helm's.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::pgp::{self, PgpVerificationBudget, armor};

/// The largest provenance file that is read.
pub(crate) const MAX_PROVENANCE_BYTES: usize = 1 << 20;

/// Joins entries to one keyring. Each entry is a keyring itself: binary, or armored by `gpg --export --armor`.
pub fn keyring<'k>(entries: impl IntoIterator<Item = &'k [u8]>) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in entries {
        match armor::first(entry).filter(|_| entry.first().is_none_or(|byte| byte & 0x80 == 0)) {
            Some(block) => all.extend(block.content),
            None => all.extend(entry),
        }
    }
    all
}

/// The result of verifying a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedChart {
    /// The names of the signer, as the key claims.
    pub signers: Vec<String>,
    /// The fingerprint of their primary key, in capitals.
    pub fingerprint: String,
    /// The digest of the chart, as `sha256:<hex>`.
    pub digest: String,
}

/// Why a chart is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProvenanceVerificationError(String);

/// Verifies a chart with its provenance file. `file` is the chart's file name in the repository, and `now` is in seconds since
/// 1970.
///
/// The keyring must be binary, as written by `gpg --export`. An armored keyring is rejected.
///
/// # Errors
/// The keyring or the provenance cannot be read, no key of the keyring signed it, or it is about another chart.
pub fn verify(
    file: &str,
    chart: &[u8],
    provenance: &[u8],
    keyring: &[u8],
    now: u64,
) -> Result<VerifiedChart, ProvenanceVerificationError> {
    let refused = |why: String| ProvenanceVerificationError(why);
    let mut effort = PgpVerificationBudget::default();
    let ring = pgp::read_ring(keyring, &mut effort);
    let ring = ring.map_err(|why| refused(format!("failed to load keyring: {why}")))?;
    if provenance.len() > MAX_PROVENANCE_BYTES {
        return Err(refused(format!(
            "the provenance file is larger than {MAX_PROVENANCE_BYTES} bytes"
        )));
    }
    let signed = ClearsignedMessage::parse(provenance)
        .ok_or_else(|| refused("signature block not found".to_owned()))?;
    let signer = pgp::check(&signed.signature, &signed.signed, &ring, now, &mut effort);
    let signer = signer.map_err(refused)?;
    let sums = sums(&signed.text).map_err(refused)?;
    let digest = format!("sha256:{}", hex(&Sha256::digest(chart)));
    match sums.get(file) {
        None => {
            Err(refused(format!("provenance does not contain a SHA for a file named \"{file}\"")))
        }
        Some(sum) if *sum != digest => {
            Err(refused(format!("sha256 sum does not match for {file}: \"{sum}\" != \"{digest}\"")))
        }
        Some(_) => Ok(VerifiedChart {
            signers: signer.names.clone(),
            fingerprint: signer.fingerprint(),
            digest,
        }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digests in the second part of the text, by the name of the file.
///
/// Parity(helm): the first part, which is about the chart, is not read.
fn sums(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut parts = text.split("\n...\n");
    let (Some(_), Some(sums)) = (parts.next(), parts.next()) else {
        return Err("message block must have at least two parts".to_owned());
    };
    let sums = goyaml::to_json_within(sums.as_bytes(), &goyaml::YamlLimits::default());
    let sums = sums.map_err(|error| error.to_string())?;
    let files = sums.get("files").and_then(serde_json::Value::as_object);
    let files = files.into_iter().flatten();
    Ok(files.filter_map(|(name, sum)| Some((name.clone(), sum.as_str()?.to_owned()))).collect())
}

/// A text with its signature below it.
struct ClearsignedMessage {
    /// The text without the dash escapes of the armor.
    text: String,
    /// The signed text, without blanks at the ends of lines, and with CR LF as line ends.
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl ClearsignedMessage {
    /// Reads the first signed text and its signature. Text around it is skipped. `None` if there is no complete signed
    /// text.
    fn parse(all: &[u8]) -> Option<Self> {
        const SIGNED_MESSAGE_HEADER: &[u8] = b"-----BEGIN PGP SIGNED MESSAGE-----";
        const SIGNATURE_HEADER: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
        const SIGNATURE_FOOTER: &[u8] = b"-----END PGP SIGNATURE-----";
        let mut lines = TextLines(all);
        lines
            .find(|line| line.starts_with(SIGNED_MESSAGE_HEADER))
            .filter(|line| *line == SIGNED_MESSAGE_HEADER)?;
        loop {
            let line = lines.next()?;
            if line.trim_ascii().is_empty() {
                break;
            }
            if !is_hash_header(line) {
                return None;
            }
        }
        let mut signed = Vec::new();
        let mut text = String::new();
        let mut is_first = true;
        let armored = loop {
            let rest = lines.0;
            let line = lines.next()?;
            if line == SIGNATURE_HEADER {
                break rest;
            }
            if !std::mem::take(&mut is_first) {
                signed.extend(b"\r\n");
                text.push('\n');
            }
            let line = line.strip_prefix(b"- ").unwrap_or(line);
            let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
            let line = line.get(..end.map_or(0, |end| end + 1)).unwrap_or_default();
            signed.extend(line);
            text.push_str(&String::from_utf8_lossy(line));
        };
        TextLines(armored).find(|line| line.starts_with(SIGNATURE_FOOTER))?;
        let signature = armor::first(armored)?.content;
        Some(Self { text, signed, signature })
    }
}

/// Whether a header line lists digest algorithms that may have been used. The signature itself contains the real one.
fn is_hash_header(line: &[u8]) -> bool {
    const DIGESTS: [&str; 9] = [
        "MD5",
        "SHA1",
        "RIPEMD160",
        "SHA224",
        "SHA256",
        "SHA384",
        "SHA512",
        "SHA3-256",
        "SHA3-512",
    ];
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let Some((name, digests)) = line.split_once(':') else { return false };
    let mut digests = digests.split(',').map(|it| it.trim().to_ascii_uppercase());
    name.trim() == "Hash" && digests.all(|digest| DIGESTS.contains(&digest.as_str()))
}

/// The lines of a text, without their line ends (LF or CR LF).
struct TextLines<'t>(&'t [u8]);

impl<'t> Iterator for TextLines<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let (line, rest) = match self.0.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (self.0, &self.0[self.0.len()..]),
        };
        self.0 = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}
