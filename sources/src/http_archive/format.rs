//! Detects the format of a download, and unpacks it.
//!
//! The bytes decide before the name. A file that begins as gzip, zip or tar is an archive, and only another file may be YAML.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};

use artifacts::archive::{ArchiveContents, ExtractOptions, extract, unzip};
use artifacts::ignore::{self, IGNORE_FILE, IgnoreMatcher};
use flate2::Compression;
use flate2::read::GzEncoder;
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::{DownloadedFile, Error};

/// The largest YAML file. No manifest that people write is larger.
const LARGEST_YAML: u64 = 16 << 20;
/// The name of a file of YAML whose URL has none.
const USUAL_NAME: &str = "manifest.yaml";
/// The place of the magic bytes of a tar archive.
const TAR_MAGIC: std::ops::Range<usize> = 257..262;

/// Unpacks a download: the files of an archive, or one YAML file under its name in the URL. Blocks.
///
/// # Errors
/// The download is neither, or an archive that cannot be used.
pub fn unpack(download: DownloadedFile) -> Result<MemoryTree, Error> {
    let DownloadedFile { mut file, content_type, name, shown, .. } = download;
    let disk = |error: io::Error| Error::Disk { url: shown.clone(), why: error.to_string() };
    let unusable = |source| Error::Extract { url: shown.clone(), source };
    let format = |why: String| Error::Format { url: shown.clone(), why };
    let mut start = Vec::new();
    file.by_ref().take(512).read_to_end(&mut start).map_err(disk)?;
    file.rewind().map_err(disk)?;
    let options = ExtractOptions::default();
    if start.starts_with(&[0x1f, 0x8b]) {
        return extract(BufReader::new(file), &options).map_err(unusable);
    }
    if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        return unzip(BufReader::new(file), &options).map_err(unusable);
    }
    if start.get(TAR_MAGIC) == Some(b"ustar") {
        // A server that takes gzip for the way only, and not for the file, has it taken off on arrival.
        let packed = GzEncoder::new(BufReader::new(file), Compression::none());
        return extract(packed, &options).map_err(unusable);
    }
    if let Some(claimed) = claimed_archive(&content_type, &name) {
        return Err(format(format!("its name or type says {claimed}, but its content is not")));
    }
    let is_page = start.trim_ascii_start().first() == Some(&b'<');
    if is_page || content_type == "text/html" {
        return Err(format("it is an HTML page, perhaps a login page".to_owned()));
    }
    yaml(&file, &name, format, disk)
}

fn yaml(
    file: &File,
    name: &str,
    format: impl Fn(String) -> Error,
    disk: impl Fn(io::Error) -> Error,
) -> Result<MemoryTree, Error> {
    let mut bytes = Vec::new();
    file.take(LARGEST_YAML + 1).read_to_end(&mut bytes).map_err(disk)?;
    if bytes.len() as u64 > LARGEST_YAML {
        return Err(format(format!("YAML files must not be larger than {LARGEST_YAML} bytes")));
    }
    let documents = goyaml::documents(&bytes, &goyaml::YamlLimits::default())
        .map_err(|error| format(error.to_string()))?;
    // The existing objects would be deleted for an empty file.
    if documents.is_empty() {
        return Err(format("it is empty".to_owned()));
    }
    if let Some(other) = documents.iter().find(|document| !document.value.is_object()) {
        return Err(format(format!("the document at line {} is not an object", other.line)));
    }
    let is_manifest = |ending: &&str| name.to_ascii_lowercase().ends_with(*ending);
    let is_named = [".yaml", ".yml", ".json"].iter().any(is_manifest);
    let path = RelPath::parse(if is_named { name } else { USUAL_NAME });
    let path = path.map_err(|error| format(error.to_string()))?;
    let mut tree = MemoryTree::builder(tree::TreeLimits::default());
    tree.file(&path, bytes, false).map_err(|error| format(error.to_string()))?;
    Ok(tree.build())
}

/// The kind of archive that a content type or a file name promises. `None` if they promise none.
fn claimed_archive(content_type: &str, name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |endings: &[&str], types: &[&str]| {
        endings.iter().any(|ending| name.ends_with(ending)) || types.contains(&content_type)
    };
    if has(&[".zip"], &["application/zip", "application/x-zip-compressed"]) {
        return Some("a zip archive");
    }
    let types = ["application/gzip", "application/x-gzip", "application/x-tar"];
    let is_tar = has(&[".tar.gz", ".tgz", ".tar", ".gz"], &types);
    is_tar.then_some("a tar archive")
}

/// The revision of files: `sha256:` and the digest over their paths, execute bits and bodies.
///
/// The same files packed once more, or in another way, have the same revision.
pub fn revision(tree: &MemoryTree) -> String {
    let mut digest = Sha256::new();
    for (path, entry) in tree.walk() {
        let FileMetadata::File { executable, .. } = entry else { continue };
        let body = tree.read(path).unwrap_or_default();
        for part in [path.as_str().as_bytes(), &[u8::from(executable)], &body] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    format!("sha256:{}", hex::encode(digest.finalize()))
}

/// The files for the artifact, which are all files except for those that `.sourceignore` or the spec leaves out.
///
/// # Errors
/// There are too many patterns.
pub fn contents(
    tree: &MemoryTree,
    spec_ignore: Option<&str>,
) -> Result<ArchiveContents<RelPath>, Box<dyn std::error::Error + Send + Sync>> {
    let mut contents = ArchiveContents::new();
    let mut ignore_files = Vec::new();
    for (path, entry) in tree.walk() {
        match entry {
            FileMetadata::Dir => contents.dir(path.clone())?,
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())?;
                if path.name() == Some(IGNORE_FILE) {
                    let text = tree.read(path)?;
                    let folder = path.parent().unwrap_or_else(RelPath::root);
                    ignore_files.push((folder, String::from_utf8_lossy(&text).into_owned()));
                }
            }
        }
    }
    let ignored: Result<IgnoreMatcher, ignore::Error> =
        IgnoreMatcher::new(&ignore_files, spec_ignore);
    contents.leave_out(&ignored?);
    Ok(contents)
}
