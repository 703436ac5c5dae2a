//! Certificate transparency: verifies that a log contains the certificate (RFC 6962, 3.2 and 3.3).

use super::sigstore_trusted_root::SigstoreTrustedRoot;
use crate::der;
use crate::public_key::SignatureHash;
use crate::sha256;
use crate::x509::ParsedCertificate;

/// The extension with timestamps of logs.
const LIST: &str = "1.3.6.1.4.1.11129.2.4.2";
/// The identifier of the extension, in DER.
const LIST_DER: [u8; 12] = [0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xd6, 0x79, 0x02, 0x04, 0x02];
/// Timestamps of a certificate.
const MAX_TIMESTAMPS_PER_CERTIFICATE: usize = 16;

/// Whether a certificate has timestamps.
pub(super) fn has_timestamps(certificate: &ParsedCertificate) -> bool {
    certificate.extension(LIST).is_some()
}

/// Verifies that a trusted log contains a certificate that one of the given authorities issued.
pub(super) fn verify(
    certificate: &ParsedCertificate,
    issuers: &[&ParsedCertificate],
    root: &SigstoreTrustedRoot,
) -> Result<(), String> {
    let timestamps = certificate.extension(LIST).and_then(read).unwrap_or_default();
    let tbs = without_list(certificate.tbs());
    let is_good = |timestamp: &SignedCertificateTimestamp<'_>| {
        let Some(tbs) = &tbs else { return false };
        let seconds = i64::try_from(timestamp.milliseconds / 1000).unwrap_or(i64::MAX);
        let logs = root.transparency.iter().filter(|log| log.id == timestamp.log);
        let mut logs = logs.filter(|log| log.validity.contains(seconds));
        logs.any(|log| {
            issuers.iter().any(|issuer| {
                let signed = timestamp.signed(tbs, &sha256(&issuer.key_info));
                log.key.verify(SignatureHash::Sha256, &signed, timestamp.signature).is_ok()
            })
        })
    };
    if timestamps.iter().any(is_good) {
        return Ok(());
    }
    Err("only able to verify 0 SCT entries; unable to meet threshold of 1".to_owned())
}

struct SignedCertificateTimestamp<'a> {
    log: &'a [u8],
    milliseconds: u64,
    extensions: &'a [u8],
    signature: &'a [u8],
}

impl SignedCertificateTimestamp<'_> {
    /// The bytes that a log signs for a certificate before it is issued.
    fn signed(&self, tbs: &[u8], issuer: &[u8]) -> Vec<u8> {
        let mut signed = vec![0, 0];
        signed.extend_from_slice(&self.milliseconds.to_be_bytes());
        signed.extend_from_slice(&[0, 1]);
        signed.extend_from_slice(issuer);
        signed.extend(tbs.len().to_be_bytes().iter().skip(size_of::<usize>() - 3));
        signed.extend_from_slice(tbs);
        signed.extend(self.extensions.len().to_be_bytes().iter().skip(size_of::<usize>() - 2));
        signed.extend_from_slice(self.extensions);
        signed
    }
}

/// Takes bytes with a prefix of two bytes, which hold their length. Returns these bytes and the rest, or `None` if
/// there are too few bytes.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([high, low], rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))
}

fn read(extension: &[u8]) -> Option<Vec<SignedCertificateTimestamp<'_>>> {
    let (string, _) = der::read(extension)?;
    let (mut list, rest) = sized(string.content)?;
    if string.tag != 4 || !rest.is_empty() {
        return None;
    }
    let mut timestamps = Vec::new();
    while !list.is_empty() && timestamps.len() < MAX_TIMESTAMPS_PER_CERTIFICATE {
        let (one, rest) = sized(list)?;
        list = rest;
        timestamps.extend(timestamp(one));
    }
    Some(timestamps)
}

/// Reads a timestamp; `None` if it has another version or is malformed.
fn timestamp(bytes: &[u8]) -> Option<SignedCertificateTimestamp<'_>> {
    let (&0, rest) = bytes.split_first()? else { return None };
    let (log, rest) = rest.split_at_checked(32)?;
    let (milliseconds, rest) = rest.split_first_chunk::<8>()?;
    let (extensions, rest) = sized(rest)?;
    // SHA-256, with every kind of key.
    let ([4, _], rest) = rest.split_first_chunk::<2>()? else { return None };
    let (signature, rest) = sized(rest)?;
    let milliseconds = u64::from_be_bytes(*milliseconds);
    rest.is_empty().then_some(SignedCertificateTimestamp {
        log,
        milliseconds,
        extensions,
        signature,
    })
}

/// The signed part of a certificate without the timestamps that were added later. `None` if the part is malformed.
fn without_list(tbs: &[u8]) -> Option<Vec<u8>> {
    const EXTENSIONS_TAG: u8 = 0xa3;
    let (whole, _) = der::read(tbs)?;
    let mut content = Vec::new();
    for field in der::all(whole.content)? {
        if field.tag != EXTENSIONS_TAG {
            content.extend_from_slice(field.whole);
            continue;
        }
        let (list, _) = der::read(field.content)?;
        let extensions = der::all(list.content)?.into_iter();
        let left = extensions.filter(|extension| !extension.content.starts_with(&LIST_DER));
        let left: Vec<u8> = left.flat_map(|extension| extension.whole.to_vec()).collect();
        if !left.is_empty() {
            content.extend(der::write(EXTENSIONS_TAG, &der::write(0x30, &left)));
        }
    }
    Some(der::write(0x30, &content))
}
