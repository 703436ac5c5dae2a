//! The Secrets that store the records of a release, in the format of the driver `secret` of Helm 4.2. Helm 3 uses the same
//! format.
//!
//! A record is the Secret `sh.helm.release.v1.NAME.vN` of the type `helm.sh/release.v1`, with the labels that Helm selects by.
//! Its key `release` has JSON, compressed by gzip and encoded in base64. Kubernetes adds its own base64.
//!
//! # Records that do not fit
//! A Secret holds at most 1 MiB. Helm fails for larger records, but windlass splits them. The first part stays in the Secret,
//! which then has the annotations [`PARTS`] and [`DIGEST`]. Each other part is in a Secret named by [`part_name`]. It has the
//! label [`PART_OF`] but not `owner=helm`, so that no client mistakes it for a release. Parts are named by the digest of the
//! whole, so an update never changes a part that is in use. Parts are written first, then the Secret, and then unused parts are
//! deleted. Parts left behind by a crash are recognized by [`PART_OWNER`] and deleted later. Helm cannot read such a record and
//! skips it. It cannot create a revision with this number either, because the Secret exists.
//!
//! Here: names, labels, packing, unpacking. Elsewhere: the JSON ([`crate::record`]), the journal on the same Secret
//! ([`crate::journal`]), reading and writing Secrets (the program).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use reconcile::Time;
use sha2::{Digest as _, Sha256};

use crate::record::{JsonEncodeError, RecordDecodeError, ReleaseRecord};

/// The type of the Secrets that store revisions.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// The key of a record in the data of its Secret.
pub const DATA_KEY: &str = "release";
/// Annotation: the number of parts of the record, including this Secret.
pub const PARTS: &str = "windlass.dev/release-parts";
/// Annotation: the digest of all parts together.
pub const DIGEST: &str = "windlass.dev/release-digest";
/// Label of the other parts: `NAME.vN`.
pub const PART_OF: &str = "windlass.dev/release-part-of";

/// Label of the other parts: the uid of the HelmRelease that wrote them.
pub const PART_OWNER: &str = "windlass.dev/release-owner";

/// The most data in a Secret, as Kubernetes counts it.
pub const MAX_PART: usize = 1 << 20;
/// The most parts that a record may have.
pub const MAX_PARTS: usize = 64;
/// The longest JSON of a record, in bytes.
const MAX_JSON: u64 = 64 << 20;

/// Labels that a user cannot set for a release.
const SYSTEM_LABELS: [&str; 6] = ["name", "owner", "status", "version", "createdAt", "modifiedAt"];

/// Why a record cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordPackError {
    /// The record cannot be written as JSON.
    #[error("release {0} cannot be stored: {1}")]
    Encode(String, JsonEncodeError),
    /// The record is too large even if it is split.
    #[error(
        "release {0} cannot be stored: it takes {1} bytes when packed, and the limit is {limit}; leave files out of the chart with `.helmignore`",
        limit = MAX_PART * MAX_PARTS
    )]
    TooLarge(String, usize),
}

/// Why a Secret does not hold a record. The text does not quote its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordUnpackError {
    /// The data is not base64.
    #[error("its key `release` is not base64")]
    Base64,
    /// The data is not gzip.
    #[error("its key `release` is damaged: what is in it cannot be unpacked")]
    Gzip,
    /// The unpacked record is too large.
    #[error("its key `release` unpacks to more than 64 MiB")]
    TooLarge,
    /// The JSON is not a record.
    #[error("its key `release` holds no release: {0}")]
    Decode(#[from] RecordDecodeError),
    /// Parts are missing, or belong to another record.
    #[error("its parts do not fit together: {0}")]
    Parts(&'static str),
}

/// A record in its stored form.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedRecord {
    /// The data of the Secret, followed by the data of the other parts; not empty.
    pub parts: Vec<Vec<u8>>,
    /// The digest of all parts together: `sha256:…`.
    pub digest: String,
}

impl PackedRecord {
    /// The annotations that the Secret needs if the record has more than one part; empty for one part.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        if self.parts.len() < 2 {
            return BTreeMap::new();
        }
        BTreeMap::from([
            (PARTS.to_owned(), self.parts.len().to_string()),
            (DIGEST.to_owned(), self.digest.clone()),
        ])
    }
}

/// The name of the Secret of a revision.
pub fn secret_name(release: &str, version: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{version}")
}

/// The name of the Secret with another part of a revision. `part` counts from 1.
pub fn part_name(release: &str, version: i64, digest: &str, part: usize) -> String {
    format!("{}{part}", part_prefix(release, version, digest))
}

/// The common prefix of the names of a revision's part Secrets. A record that is too large for [`secret_name`] is split into
/// these.
pub fn part_prefix(release: &str, version: i64, digest: &str) -> String {
    let digits = digest.rsplit_once(':').map_or(digest, |(_, digits)| digits);
    let short = digits.get(..12).unwrap_or(digits);
    format!("{}.{short}.", secret_name(release, version))
}

/// The value of the label [`PART_OF`] on the part Secrets of a revision: `RELEASE.vVERSION`.
pub fn part_of(release: &str, version: i64) -> String {
    format!("{release}.v{version}")
}

/// Whether a value of [`PART_OF`] means a revision of this release.
pub fn is_part_of(release: &str, value: &str) -> bool {
    let version = value.strip_prefix(release).and_then(|rest| rest.strip_prefix(".v"));
    version.is_some_and(|version| version.parse::<i64>().is_ok())
}

/// Selects the parts that a HelmRelease wrote, by its uid.
pub fn parts_selector(owner: &str) -> String {
    format!("{PART_OF},{PART_OWNER}={owner}")
}

/// Selects the Secrets of all revisions of a release.
pub fn selector(release: &str) -> String {
    format!("owner=helm,name={release}")
}

/// Whether a record is written for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordWriteMode {
    /// The Secret is created.
    New,
    /// The Secret exists and is replaced.
    Again,
}

/// The labels of a record's Secret.
///
/// Parity(helm 4): a Secret that is written again has no `createdAt` any more.
pub fn labels(
    record: &ReleaseRecord,
    written: RecordWriteMode,
    now: Time,
) -> BTreeMap<String, String> {
    let mut labels = record.labels.clone();
    let stamp = match written {
        RecordWriteMode::New => "createdAt",
        RecordWriteMode::Again => "modifiedAt",
    };
    let system = [
        (stamp, now.as_second().to_string()),
        ("name", record.name.clone()),
        ("owner", "helm".to_owned()),
        ("status", record.info.status.as_str().to_owned()),
        ("version", record.version.to_string()),
    ];
    labels.extend(system.map(|(key, value)| (key.to_owned(), value)));
    labels
}

/// The labels of a Secret that belong to the release itself.
pub(crate) fn user_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let user = labels.iter().filter(|(key, _)| !SYSTEM_LABELS.contains(&key.as_str()));
    user.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Packs a record for Secrets: its JSON, compressed with gzip, as Base64, cut into parts of at most [`MAX_PART`] bytes.
///
/// # Errors
/// The record cannot be written as JSON, or needs more than [`MAX_PARTS`] parts. The error does not quote the record.
pub fn pack(record: &ReleaseRecord) -> Result<PackedRecord, RecordPackError> {
    let json =
        record.to_json().map_err(|error| RecordPackError::Encode(record.full_name(), error))?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let packed = gzip.write_all(json.as_bytes()).and_then(|()| gzip.finish()).unwrap_or_default();
    let text = STANDARD.encode(packed).into_bytes();
    if text.len() > MAX_PART * MAX_PARTS {
        return Err(RecordPackError::TooLarge(record.full_name(), text.len()));
    }
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&text)));
    let parts = text.chunks(MAX_PART).map(<[u8]>::to_vec).collect();
    Ok(PackedRecord { parts, digest })
}

/// The number of parts in a Secret's annotation.
///
/// # Errors
/// The annotation does not hold a valid number.
pub fn part_count(annotations: &BTreeMap<String, String>) -> Result<usize, RecordUnpackError> {
    let Some(text) = annotations.get(PARTS) else { return Ok(1) };
    match text.parse() {
        Ok(count) if (1..=MAX_PARTS).contains(&count) => Ok(count),
        _ => Err(RecordUnpackError::Parts(
            "the annotation `windlass.dev/release-parts` is no number from 1 to 64",
        )),
    }
}

/// Unpacks a record from the data of its Secret and of its other parts, in order.
///
/// `labels` and `annotations` are the Secret's.
///
/// # Errors
/// The Secret was damaged, edited, or holds more than 64 MiB.
pub fn unpack(
    parts: &[&[u8]],
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<ReleaseRecord, RecordUnpackError> {
    if parts.len() != part_count(annotations)? {
        return Err(RecordUnpackError::Parts("some are missing"));
    }
    if parts.iter().any(|part| part.len() > MAX_PART * 2) {
        return Err(RecordUnpackError::TooLarge);
    }
    let mut text = parts.concat();
    if parts.len() > 1 {
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&text)));
        if annotations.get(DIGEST) != Some(&digest) {
            return Err(RecordUnpackError::Parts("the digest of all of them is another one"));
        }
    }
    // Go's decoder skips line ends.
    text.retain(|byte| !matches!(byte, b'\r' | b'\n'));
    let packed = STANDARD.decode(text).map_err(|_| RecordUnpackError::Base64)?;
    let json = if packed.len() > 3 && packed.starts_with(&[0x1f, 0x8b, 0x08]) {
        inflate(&packed)?
    } else {
        packed
    };
    let mut record = ReleaseRecord::from_json(&json)?;
    record.labels = user_labels(labels);
    Ok(record)
}

fn inflate(packed: &[u8]) -> Result<Vec<u8>, RecordUnpackError> {
    let mut json = Vec::new();
    let read = MultiGzDecoder::new(packed).take(MAX_JSON + 1).read_to_end(&mut json);
    read.map_err(|_| RecordUnpackError::Gzip)?;
    if json.len() as u64 > MAX_JSON { Err(RecordUnpackError::TooLarge) } else { Ok(json) }
}

#[cfg(test)]
mod tests;
