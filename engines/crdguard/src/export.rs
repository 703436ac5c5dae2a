//! Exports: a definition and its objects in one packed text, from which they can be created again.
//!
//! The text is gzip of JSON, a line each: the definition, then its objects, each as the API server sent it, whatever it
//! holds. It is cut into parts that fit into Secrets.
//! Elsewhere: reading the objects, storing the parts, creating what they hold (the program).

use std::io::{BufRead as _, BufReader, Cursor, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Bytes of a part: a Secret holds a MiB.
const MAX_PART: usize = 900 * 1024;

/// Most parts of an export.
const MAX_PARTS: usize = 16;

/// Longest line, in bytes: more than an API server stores.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// Of `metadata` what an object has that is created again. Owner references are left out: their owners may have other
/// uids by then, and Kubernetes deletes an object whose owner is not there.
const KEPT: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// The definition and the objects that were added do not fit into an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("they are more than {} KiB when packed", MAX_PART * MAX_PARTS / 1024)]
pub struct TooLarge;

/// Packs a definition and its objects. Memory is bounded by the size of an export.
pub struct Exporter {
    packed: GzEncoder<Vec<u8>>,
    objects: u64,
}

/// A definition and its objects, packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The packed text in parts, at least one.
    pub parts: Vec<Vec<u8>>,
    /// SHA-256 of all parts.
    pub digest: String,
    /// How many objects it has.
    pub objects: u64,
}

impl Exporter {
    /// Begins with the manifest of the definition.
    ///
    /// # Errors
    /// It alone is too large.
    pub fn new(definition: &Value) -> Result<Self, TooLarge> {
        let packed = GzEncoder::new(Vec::new(), Compression::default());
        let mut exporter = Self { packed, objects: 0 };
        exporter.line(definition.to_string().as_bytes())?;
        Ok(exporter)
    }

    /// Adds an object, as the API server sent it.
    ///
    /// # Errors
    /// It does not fit any more; nothing of the export is to be used then.
    pub fn add(&mut self, json: &[u8]) -> Result<(), TooLarge> {
        self.objects += 1;
        self.line(json)
    }

    fn line(&mut self, json: &[u8]) -> Result<(), TooLarge> {
        // A line break in JSON is space between values; inside of strings it is escaped.
        for piece in json.split(|byte| *byte == b'\n') {
            self.packed.write_all(piece).map_err(|_| TooLarge)?;
        }
        self.packed.write_all(b"\n").map_err(|_| TooLarge)?;
        (self.packed.get_ref().len() <= MAX_PART * MAX_PARTS).then_some(()).ok_or(TooLarge)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It is too large.
    pub fn finish(self) -> Result<Export, TooLarge> {
        let packed = self.packed.finish().map_err(|_| TooLarge)?;
        if packed.len() > MAX_PART * MAX_PARTS {
            return Err(TooLarge);
        }
        let digest = digest(&[&packed]);
        let parts = packed.chunks(MAX_PART).map(<[u8]>::to_vec).collect();
        Ok(Export { parts, digest, objects: self.objects })
    }
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// Why an export cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Parts are missing or were changed.
    #[error("the digest of its parts does not match: parts are missing, or were changed")]
    Digest,
    /// What is packed is no export.
    #[error("it cannot be unpacked: {0}")]
    Packed(String),
    /// A line is no object.
    #[error("an object in it cannot be read: {0}")]
    Object(String),
}

/// Reads an export, line by line: the definition, then its objects.
pub struct Import {
    lines: BufReader<GzDecoder<Cursor<Vec<u8>>>>,
}

impl Import {
    /// Reads parts, in order, that have this digest.
    ///
    /// # Errors
    /// They do not have it.
    pub fn of(parts: &[Vec<u8>], wanted: &str) -> Result<Self, ImportError> {
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if digest(&slices) != wanted {
            return Err(ImportError::Digest);
        }
        let lines = BufReader::new(GzDecoder::new(Cursor::new(parts.concat())));
        Ok(Self { lines })
    }
}

impl Iterator for Import {
    type Item = Result<Restored, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let mut limited = self.lines.by_ref().take(MAX_LINE);
        match limited.read_until(b'\n', &mut line) {
            Err(error) => Some(Err(ImportError::Packed(error.to_string()))),
            Ok(0) => None,
            Ok(_) if !line.ends_with(b"\n") => {
                Some(Err(ImportError::Packed("a line is too long, or has no end".to_owned())))
            }
            Ok(_) => Some(Restored::read(&line)),
        }
    }
}

/// An object as it is created again.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// What is created: all that the object had but its status and what an API server sets.
    pub manifest: Value,
    /// Its status.
    pub status: Option<Value>,
    /// Whether it had owner references, which are left out.
    pub had_owners: bool,
}

impl Restored {
    fn read(line: &[u8]) -> Result<Self, ImportError> {
        let value = serde_json::from_slice::<Map<String, Value>>(line);
        // The text of the error says line and column, never values.
        let mut fields = value.map_err(|error| ImportError::Object(error.to_string()))?;
        let status = fields.remove("status");
        let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or_else(|| ImportError::Object("no metadata".to_owned()))?;
        let had_owners = metadata
            .get("ownerReferences")
            .and_then(Value::as_array)
            .is_some_and(|it| !it.is_empty());
        metadata.retain(|field, _| KEPT.contains(&field.as_str()));
        Ok(Self { manifest: Value::Object(fields), status, had_owners })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition() -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.io"}, "spec": {"group": "acme.io"}})
    }

    #[test]
    fn what_is_exported_is_created_again_but_for_what_an_api_server_sets() {
        let mut exporter = Exporter::new(&definition()).unwrap();
        let one = b"{\"apiVersion\":\"acme.io/v1\",\n \"kind\":\"Widget\",\"metadata\":{\"name\":\"a\",\"uid\":\"u\",
            \"resourceVersion\":\"7\",\"finalizers\":[\"f\"],\"ownerReferences\":[{\"uid\":\"x\"}]},
            \"spec\":{\"text\":\"a\\nb\",\"size\":1.50},\"status\":{\"ready\":true}}";
        exporter.add(one).unwrap();
        let export = exporter.finish().unwrap();
        assert_eq!((export.objects, export.parts.len()), (1, 1));
        let all: Vec<Restored> =
            Import::of(&export.parts, &export.digest).unwrap().map(Result::unwrap).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].manifest, definition());
        let manifest = json!({"apiVersion": "acme.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"text": "a\nb", "size": 1.5}});
        let status = Some(json!({"ready": true}));
        assert_eq!(all[1], Restored { manifest, status, had_owners: true });
    }

    #[test]
    fn parts_that_are_missing_or_changed_are_no_export() {
        let mut exporter = Exporter::new(&definition()).unwrap();
        // Text that cannot be packed much.
        let mut hash = Sha256::digest(b"0").to_vec();
        for _ in 0..40_000 {
            hash = Sha256::digest(&hash).to_vec();
            let text = hex::encode(&hash);
            exporter.add(json!({"metadata": {"name": text}}).to_string().as_bytes()).unwrap();
        }
        let Export { mut parts, digest, objects } = exporter.finish().unwrap();
        assert!(parts.len() > 1, "{}", parts.len());
        let read = Import::of(&parts, &digest).unwrap().map(Result::unwrap).count();
        assert_eq!(read as u64, objects + 1);
        parts.reverse();
        assert_eq!(Import::of(&parts, &digest).err(), Some(ImportError::Digest));
        parts.pop();
        assert_eq!(Import::of(&parts, &digest).err(), Some(ImportError::Digest));
        let cut = &parts[0][..100];
        let of_cut = super::digest(&[cut]);
        let mut broken = Import::of(&[cut.to_vec()], &of_cut).unwrap();
        assert!(broken.any(|it| matches!(it, Err(ImportError::Packed(_)))));
    }

    #[test]
    fn an_export_has_a_limit() {
        let mut exporter = Exporter::new(&definition()).unwrap();
        let mut hash = Sha256::digest(b"0").to_vec();
        let mut line = || {
            let mut text = String::new();
            for _ in 0..4096 {
                hash = Sha256::digest(&hash).to_vec();
                text.push_str(&hex::encode(&hash));
            }
            text.into_bytes()
        };
        let full = (0..200).find_map(|_| exporter.add(&line()).err());
        assert_eq!(full, Some(TooLarge));
    }
}
