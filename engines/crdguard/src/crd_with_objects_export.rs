//! Exports: a definition and its objects in one compressed text, from which they can be created again.
//!
//! The text is gzip of JSON lines: first the definition, then its objects, each exactly as the API server sent it. The
//! text is divided into parts that fit into Secrets. Elsewhere: reading the objects, storing the parts, and creating
//! the objects again (the program).

use std::io::{BufRead as _, BufReader, Cursor, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::crd_definition::{CrdConversion, CrdDefinition, CrdDefinitionError};

/// How many bytes a part has. A Secret has room for one MiB.
const MAX_PART: usize = 900 * 1024;

/// How many parts an export may have.
const MAX_PARTS: usize = 16;

/// How long a line may be, in bytes. An API server does not store longer objects.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// The fields of `metadata` that a restored object keeps. Owner references are left out. Their owners may have other
/// uids by then, and Kubernetes deletes an object whose owner does not exist.
const KEPT: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// The definition and its objects do not fit into an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExportTooLargeError {
    /// All objects together are too large.
    #[error("they are more than {} KiB when packed", MAX_PART * MAX_PARTS / 1024)]
    All,
    /// One object is so large that it could not be read again.
    #[error("one of them is larger than {} MiB", MAX_LINE / 1024 / 1024)]
    One,
}

/// Why no version shows every object completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoExportableVersionError {
    /// The definition cannot be read.
    #[error(transparent)]
    Fault(#[from] CrdDefinitionError),
    /// The storage version is not served. The served versions may lack some of its fields.
    #[error("objects are stored in version {0}, which is not served; serve it")]
    Unserved(String),
    /// Objects may be stored in another version. Reading them in the storage version would lose the fields that it does
    /// not have.
    #[error(
        "objects may be stored in version {stored} (`status.storedVersions`), whose schema is not that of {storage}, in \
         which they would be read; write all of them back and remove {stored} from `status.storedVersions`, or let windlass \
         do that by a manifest without {stored}"
    )]
    Stored {
        /// The version in which objects may be stored.
        stored: String,
        /// The storage version.
        storage: String,
    },
}

/// The version in which every object of a live definition can be read completely.
///
/// # Errors
/// The definition cannot be exported completely.
pub fn whole(live: &Value) -> Result<(CrdDefinition, String), NoExportableVersionError> {
    let definition = CrdDefinition::read(live)?;
    let storage = definition.storage().ok_or(CrdDefinitionError::Field("spec.versions"))?;
    if !storage.is_served {
        return Err(NoExportableVersionError::Unserved(storage.name.clone()));
    }
    let storage = storage.name.clone();
    let others = definition.stored.iter().filter(|it| **it != storage);
    // With a conversion webhook, the webhook decides the content of a converted object.
    for stored in others.filter(|_| definition.conversion == CrdConversion::None) {
        let mut schema = CrdDefinition::schema(live, &storage)?;
        schema.mark(&CrdDefinition::schema(live, stored)?);
        if !schema.root.is_same {
            return Err(NoExportableVersionError::Stored { stored: stored.clone(), storage });
        }
    }
    Ok((definition, storage))
}

/// Compresses a definition and its objects. The size limit of an export bounds the memory.
pub struct CrdExporter {
    packed: GzEncoder<Vec<u8>>,
    objects: u64,
}

/// A definition and its objects, compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdExport {
    /// The parts of the compressed text, at least one.
    pub parts: Vec<Vec<u8>>,
    /// The SHA-256 digest of all parts.
    pub digest: String,
    /// How many objects the export has.
    pub objects: u64,
}

impl CrdExporter {
    /// Begins an export with the manifest of the definition.
    ///
    /// # Errors
    /// The definition alone is too large.
    pub fn new(definition: &Value) -> Result<Self, ExportTooLargeError> {
        let packed = GzEncoder::new(Vec::new(), Compression::default());
        let mut exporter = Self { packed, objects: 0 };
        exporter.line(definition.to_string().as_bytes())?;
        Ok(exporter)
    }

    /// Adds an object, as the API server sent it.
    ///
    /// # Errors
    /// The object does not fit. The caller must then discard the export.
    pub fn add(&mut self, json: &[u8]) -> Result<(), ExportTooLargeError> {
        self.objects += 1;
        self.line(json)
    }

    fn line(&mut self, json: &[u8]) -> Result<(), ExportTooLargeError> {
        if json.len() >= MAX_LINE {
            return Err(ExportTooLargeError::One);
        }
        // A line break in JSON is only space between values, because line breaks within strings are escaped.
        for piece in json.split(|byte| *byte == b'\n') {
            self.packed.write_all(piece).map_err(|_| ExportTooLargeError::All)?;
        }
        self.packed.write_all(b"\n").map_err(|_| ExportTooLargeError::All)?;
        (self.packed.get_ref().len() <= MAX_PART * MAX_PARTS)
            .then_some(())
            .ok_or(ExportTooLargeError::All)
    }

    /// Ends the export.
    ///
    /// # Errors
    /// The export is too large.
    pub fn finish(self) -> Result<CrdExport, ExportTooLargeError> {
        let packed = self.packed.finish().map_err(|_| ExportTooLargeError::All)?;
        if packed.len() > MAX_PART * MAX_PARTS {
            return Err(ExportTooLargeError::All);
        }
        let digest = digest(&[&packed]);
        let parts = packed.chunks(MAX_PART).map(<[u8]>::to_vec).collect();
        Ok(CrdExport { parts, digest, objects: self.objects })
    }
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// Why an export cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrdImportError {
    /// Parts are missing or were changed.
    #[error("the digest of its parts does not match: parts are missing, or were changed")]
    Digest,
    /// The data cannot be decompressed.
    #[error("it cannot be unpacked: {0}")]
    Packed(String),
    /// A line is not a readable object.
    #[error("{name}: it cannot be read: {why}")]
    Object {
        /// Namespace and name, as far as they can be read.
        name: String,
        /// Why the line cannot be read, with line and column and without values.
        why: String,
    },
}

/// Reads an export line by line: first the definition, then its objects. Wrongly compressed data ends it.
pub struct CrdExportReader {
    lines: BufReader<GzDecoder<Cursor<Vec<u8>>>>,
    is_broken: bool,
}

impl CrdExportReader {
    /// Opens an export from its parts, which are in order and must have the digest `wanted`.
    ///
    /// # Errors
    /// The parts do not have this digest.
    pub fn of(parts: &[Vec<u8>], wanted: &str) -> Result<Self, CrdImportError> {
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if digest(&slices) != wanted {
            return Err(CrdImportError::Digest);
        }
        let lines = BufReader::new(GzDecoder::new(Cursor::new(parts.concat())));
        Ok(Self { lines, is_broken: false })
    }
}

impl Iterator for CrdExportReader {
    type Item = Result<RestoredObject, CrdImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return None;
        }
        let mut line = Vec::new();
        let mut limited = self.lines.by_ref().take(MAX_LINE as u64);
        let broken = match limited.read_until(b'\n', &mut line) {
            Err(error) => error.to_string(),
            Ok(0) => return None,
            Ok(_) if line.ends_with(b"\n") => return Some(RestoredObject::read(&line)),
            Ok(_) => "a line is too long, or has no end".to_owned(),
        };
        self.is_broken = true;
        Some(Err(CrdImportError::Packed(broken)))
    }
}

/// An object in the form in which it is created again.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredObject {
    /// The manifest for the creation, without the status and the fields that an API server sets.
    pub manifest: Value,
    /// The status of the exported object.
    pub status: Option<Value>,
    /// Whether the exported object had owner references. They are left out.
    pub had_owners: bool,
}

impl RestoredObject {
    fn read(line: &[u8]) -> Result<Self, CrdImportError> {
        let unread = |why: String| CrdImportError::Object { name: named(line), why };
        let value = serde_json::from_slice::<Map<String, Value>>(line);
        let mut fields = value.map_err(|error| unread(error.to_string()))?;
        let status = fields.remove("status");
        let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or_else(|| unread("no metadata".to_owned()))?;
        let had_owners = metadata
            .get("ownerReferences")
            .and_then(Value::as_array)
            .is_some_and(|it| !it.is_empty());
        metadata.retain(|field, _| KEPT.contains(&field.as_str()));
        Ok(Self { manifest: Value::Object(fields), status, had_owners })
    }
}

/// Reads the namespace and name of an object even if its other fields nest too deeply.
fn named(line: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ExportLineMetadata {
        namespace: String,
        name: String,
    }
    #[derive(Deserialize)]
    struct ExportedObjectLine {
        metadata: ExportLineMetadata,
    }
    let ExportLineMetadata { namespace, name } =
        match serde_json::from_slice::<ExportedObjectLine>(line) {
            Ok(object) => object.metadata,
            Err(_) => return "an object".to_owned(),
        };
    if namespace.is_empty() { name } else { format!("{namespace}/{name}") }
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
        let mut exporter = CrdExporter::new(&definition()).unwrap();
        let one = b"{\"apiVersion\":\"acme.io/v1\",\n \"kind\":\"Widget\",\"metadata\":{\"name\":\"a\",\"uid\":\"u\",
            \"resourceVersion\":\"7\",\"finalizers\":[\"f\"],\"ownerReferences\":[{\"uid\":\"x\"}]},
            \"spec\":{\"text\":\"a\\nb\",\"size\":1.50},\"status\":{\"ready\":true}}";
        exporter.add(one).unwrap();
        let export = exporter.finish().unwrap();
        assert_eq!((export.objects, export.parts.len()), (1, 1));
        let all: Vec<RestoredObject> = CrdExportReader::of(&export.parts, &export.digest)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].manifest, definition());
        let manifest = json!({"apiVersion": "acme.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"text": "a\nb", "size": 1.5}});
        let status = Some(json!({"ready": true}));
        assert_eq!(all[1], RestoredObject { manifest, status, had_owners: true });
    }

    #[test]
    fn parts_that_are_missing_or_changed_are_no_export() {
        let mut exporter = CrdExporter::new(&definition()).unwrap();
        // Text that cannot be packed much.
        let mut hash = Sha256::digest(b"0").to_vec();
        for _ in 0..40_000 {
            hash = Sha256::digest(&hash).to_vec();
            let text = hex::encode(&hash);
            exporter.add(json!({"metadata": {"name": text}}).to_string().as_bytes()).unwrap();
        }
        let CrdExport { mut parts, digest, objects } = exporter.finish().unwrap();
        assert!(parts.len() > 1, "{}", parts.len());
        let read = CrdExportReader::of(&parts, &digest).unwrap().map(Result::unwrap).count();
        assert_eq!(read as u64, objects + 1);
        parts.reverse();
        assert_eq!(CrdExportReader::of(&parts, &digest).err(), Some(CrdImportError::Digest));
        parts.pop();
        assert_eq!(CrdExportReader::of(&parts, &digest).err(), Some(CrdImportError::Digest));
        let cut = &parts[0][..100];
        let of_cut = super::digest(&[cut]);
        let broken: Vec<_> =
            CrdExportReader::of(&[cut.to_vec()], &of_cut).unwrap().take(9).collect();
        let errors = broken.iter().filter(|it| matches!(it, Err(CrdImportError::Packed(_))));
        assert_eq!(errors.count(), 1, "what is broken ends");
    }

    #[test]
    fn an_export_has_a_limit() {
        let mut exporter = CrdExporter::new(&definition()).unwrap();
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
        assert_eq!(full, Some(ExportTooLargeError::All));
        let mut exporter = CrdExporter::new(&definition()).unwrap();
        assert_eq!(exporter.add(&vec![b' '; MAX_LINE]), Err(ExportTooLargeError::One));
        // What is exported can be read again.
        exporter.add(&vec![b' '; MAX_LINE - 1]).unwrap();
        let export = exporter.finish().unwrap();
        let read = CrdExportReader::of(&export.parts, &export.digest).unwrap().nth(1);
        assert!(matches!(read, Some(Err(CrdImportError::Object { .. }))), "{read:?}");
    }

    #[test]
    fn an_object_that_is_nested_too_deeply_is_named() {
        let deep = format!("{}1{}", "[".repeat(400), "]".repeat(400));
        let json = format!(
            "{{\"spec\":{deep},\"metadata\":{{\"namespace\":\"shop\",\"name\":\"a\"}},\"status\":{deep}}}"
        );
        let mut exporter = CrdExporter::new(&definition()).unwrap();
        exporter.add(json.as_bytes()).unwrap();
        let export = exporter.finish().unwrap();
        let read = CrdExportReader::of(&export.parts, &export.digest).unwrap().nth(1);
        let Some(Err(CrdImportError::Object { name, .. })) = read else { panic!("{read:?}") };
        assert_eq!(name, "shop/a");
    }

    #[test]
    fn objects_are_exported_only_in_a_version_that_shows_all_of_their_fields() {
        let live = |served: bool, strategy: &str, stored: &[&str], field: &str| {
            let schema = |field: &str| {
                json!({"openAPIV3Schema": {"type": "object", "properties": {"spec":
                    {"type": "object", "properties": {field: {"type": "string"}}}}}})
            };
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.acme.io"}, "status": {"storedVersions": stored},
                "spec": {"group": "acme.io", "names": {"kind": "Widget", "plural": "widgets"},
                    "conversion": {"strategy": strategy},
                    "versions": [
                        {"name": "v1", "served": true, "storage": false, "schema": schema("a")},
                        {"name": "v2", "served": served, "storage": true, "schema": schema(field)}]}})
        };
        let of = |live: Value| whole(&live).map(|(_, version)| version);
        let (one, both): (&[&str], &[&str]) = (&["v2"], &["v1", "v2"]);
        assert_eq!(of(live(true, "None", one, "b")), Ok("v2".to_owned()));
        assert_eq!(
            of(live(false, "None", one, "b")),
            Err(NoExportableVersionError::Unserved("v2".to_owned()))
        );
        let stored =
            NoExportableVersionError::Stored { stored: "v1".to_owned(), storage: "v2".to_owned() };
        assert_eq!(of(live(true, "None", both, "b")), Err(stored));
        assert_eq!(of(live(true, "None", both, "a")), Ok("v2".to_owned()));
        assert_eq!(of(live(true, "Webhook", both, "b")), Ok("v2".to_owned()));
    }
}
