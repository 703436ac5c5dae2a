//! Replays single artifacts, and compares the content and names of their archives.
//!
//! Three differences apply to every case of their kind:
//! - windlass leaves links out of trees, and Flux rejects a source with links when it fetches it. Where Flux fails
//!   because of a link, the expected artifact is the one without that link.
//! - An artifact with the name of a source has all files of that source in Flux. The expected files are those that
//!   the artifact has under another name.
//! - An archive that is copied as a file was compressed by Go, and no other compressor makes the same bytes. So its
//!   files are compared.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Read as _};

use artifactgen::{ArtifactTree, BuildInputs, OutputArtifact, build};
use artifacts::archive::{ArchiveContents, DigestingWriter, write};
use artifacts::ignore::IgnoreMatcher;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath, TreeLimits};

use super::trees::{CaseTarballReader, LinkHandling, trees};
use super::{by_alias, meter, mismatch, strict};
use crate::replay::case::{
    Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil, same, same_value,
};

/// The namespace of all recorded artifacts.
const NAMESPACE: &str = "apps";

/// The ends of Flux's errors about links.
const LINK_FAULTS: [&str; 4] = [
    ": path escapes from parent",
    ": too many levels of symbolic links",
    ": no such file or directory",
    ": is a directory",
];

/// The beginnings of the operating system's words in an error, after Flux's own words.
const OF_SYSTEM: [&str; 7] = [
    "openat ",
    "mkdirat ",
    "statat ",
    "mkdir ${WORK}",
    "read ${WORK}",
    "write ${WORK}",
    "unexpected EOF",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildCaseInputs {
    #[serde(deserialize_with = "nil")]
    sources: BTreeMap<String, Map<String, Value>>,
    artifact: OutputArtifact,
    /// The version of the source-watcher that gave this answer first.
    #[serde(rename = "since")]
    _since: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordedArtifact {
    #[serde(deserialize_with = "nil")]
    entries: Vec<String>,
    #[serde(deserialize_with = "nil")]
    files: Map<String, Value>,
    path: String,
    url: String,
    revision_is_latest_at_digest: bool,
    /// A digest that depends on Go's compressor, so it is not compared.
    #[serde(rename = "goGzipDigest")]
    _digest: Option<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    strict(judge_build(&case))
}

fn judge_build(case: &Case) -> CaseJudgement {
    let BuildCaseInputs { sources, artifact, .. } = case.inputs()?;
    if let ReferenceAnswer::Error(wanted) = &case.answer
        && sources.values().any(has_links)
        && LINK_FAULTS.iter().any(|fault| wanted.ends_with(fault))
    {
        return judge_without_links(wanted, &sources, &artifact);
    }
    let trees = trees(&sources, LinkHandling::Followed)?;
    let built = built(&trees, &artifact);
    if sources.contains_key(&artifact.name) && matches!(case.answer, ReferenceAnswer::Out(_)) {
        let name = format!("not-{}", artifact.name);
        let other = self::built(&trees, &OutputArtifact { name, ..artifact.clone() });
        return same(&shown(other.as_ref())?, &shown(built.as_ref())?);
    }
    match (&case.answer, built) {
        (ReferenceAnswer::Error(wanted), Err(got)) => is_same_error(wanted, &got),
        (ReferenceAnswer::Out(wanted), Ok(built)) => {
            let wanted: RecordedArtifact = serde_json::from_value(wanted.clone())
                .map_err(|error| mismatch("an artifact", &error.to_string()))?;
            is_same_artifact(&wanted, &artifact, &built)
        }
        (wanted, got) => same(&format!("{wanted:?}"), &format!("{got:?}")),
    }
}

/// Builds the artifact of a case.
///
/// # Errors
/// Why the artifact cannot be built.
fn built(
    trees: &BTreeMap<String, MemoryTree>,
    artifact: &OutputArtifact,
) -> Result<ArtifactTree, String> {
    let inputs = BuildInputs {
        sources: &by_alias(trees),
        tarballs: &CaseTarballReader,
        limits: TreeLimits::default(),
    };
    build(artifact, &inputs, &mut meter()).map_err(|error| error.to_string())
}

/// The content of an artifact, or the error, as text.
fn shown(built: Result<&ArtifactTree, &String>) -> Result<String, CaseFailure> {
    match built {
        Ok(built) => {
            let archive = archive(built)?;
            let unreadable = |error: io::Error| mismatch("an archive", &error.to_string());
            let ArchiveListing { entries, files } = listing(&archive.bytes).map_err(unreadable)?;
            Ok(json!({"entries": entries, "files": files}).to_string())
        }
        Err(error) => Ok(format!("error: {error}")),
    }
}

/// Whether the tree of a case has links.
fn has_links(tree: &Map<String, Value>) -> bool {
    tree.values().any(|node| node["Symlink"].is_string())
}

/// Flux failed over a link with this error. The artifact has to be the one without this link.
fn judge_without_links(
    wanted: &str,
    sources: &BTreeMap<String, Map<String, Value>>,
    artifact: &OutputArtifact,
) -> CaseJudgement {
    let built = built(&trees(sources, LinkHandling::Left)?, artifact);
    let copies =
        artifact.copy.iter().map(|copy| (copy, format!("from '{}' to '{}': ", copy.from, copy.to)));
    let mut failed = copies.filter_map(|(copy, words)| {
        let end = wanted.find(&words)? + words.len();
        Some((copy, wanted.get(..end)?))
    });
    let unknown = || mismatch("a copy that failed", wanted);
    let (copy, before) = failed.next_back().ok_or_else(unknown)?;
    let (alias, path) = copy.from.trim_start_matches('@').split_once('/').ok_or_else(unknown)?;
    let is_pattern = path.contains(['*', '?', '[', '{']);
    match built {
        Err(got) if is_pattern => {
            same(&format!("{before}no files match pattern '{path}' in source '{alias}'"), &got)
        }
        Err(got) => same(&format!("{before}source '{path}' does not exist"), &got),
        Ok(built) => {
            // The expected files are known only if the copy takes all files with their own paths.
            let is_whole = ["**", ".", "./"].contains(&path)
                && copy.to == "@artifact/"
                && copy.exclude.is_empty()
                && artifact.copy.len() == 1;
            let files = sources.get(alias).filter(|_| is_whole).ok_or_else(unknown)?;
            let files: BTreeMap<&String, &Value> =
                files.iter().filter(|(_, node)| node.is_string()).collect();
            let unreadable = |error: io::Error| mismatch("an archive", &error.to_string());
            let got = listing(&archive(&built)?.bytes).map_err(unreadable)?.files;
            same_value(&json!(files), &Value::Object(got))
        }
    }
}

/// Compares two errors. Flux's own words have to be equal, but not the operating system's.
pub(super) fn is_same_error(wanted: &str, got: &str) -> CaseJudgement {
    let of_system = OF_SYSTEM.iter().filter_map(|beginning| wanted.find(beginning)).min();
    let own = of_system.map(|at| wanted[..at].trim_end_matches(": "));
    match own {
        Some(own) if got.starts_with(own) => Ok(()),
        Some(_) | None => same(wanted, got),
    }
}

fn is_same_artifact(
    wanted: &RecordedArtifact,
    artifact: &OutputArtifact,
    built: &ArtifactTree,
) -> CaseJudgement {
    let archive = archive(built)?;
    let unreadable = |error: io::Error| mismatch("an archive", &error.to_string());
    let ArchiveListing { entries, files } = listing(&archive.bytes).map_err(unreadable)?;
    let unpacked_files = unpacked(&wanted.files);
    let has_archive = unpacked_files != wanted.files;
    // The number in the name depends on the bytes of all files.
    let file_name = match has_archive {
        true => wanted.path.rsplit('/').next().unwrap_or_default().to_owned(),
        false => built.file_name(),
    };
    let path = format!("externalartifact/{NAMESPACE}/{}/{file_name}", artifact.name);
    let url = format!("http://store.example/{path}");
    let revisions = artifactgen::revisions(artifact, &archive.digest, &BTreeMap::new());
    same_value(
        &json!({
            "entries": wanted.entries,
            "files": unpacked_files,
            "path": wanted.path,
            "url": wanted.url,
            "latest": wanted.revision_is_latest_at_digest,
        }),
        &json!({
            "entries": entries,
            "files": if has_archive { unpacked(&files) } else { files },
            "path": path,
            "url": url,
            "latest": revisions.revision == format!("latest@{}", archive.digest),
        }),
    )
}

/// An archive as windlass stores it.
pub(super) struct ArtifactArchive {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

fn failed(error: &dyn std::error::Error) -> CaseFailure {
    mismatch("an archive", &error.to_string())
}

/// Archives a tree as windlass does. Files that every source excludes by default are left out.
fn archive(built: &ArtifactTree) -> Result<ArtifactArchive, CaseFailure> {
    let mut contents = contents(&built.files)?;
    contents.leave_out(&IgnoreMatcher::new(&[], None).map_err(|error| failed(&error))?);
    packed(&contents, &built.files)
}

/// Archives the tree of a source with all of its files.
pub(super) fn source_archive(files: &MemoryTree) -> Result<ArtifactArchive, CaseFailure> {
    packed(&contents(files)?, files)
}

fn contents(files: &MemoryTree) -> Result<ArchiveContents<RelPath>, CaseFailure> {
    let mut contents = ArchiveContents::new();
    for (path, metadata) in files.walk() {
        let added = match metadata {
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())
            }
            FileMetadata::Dir => contents.dir(path.clone()),
        };
        added.map_err(|error| failed(&error))?;
    }
    Ok(contents)
}

fn packed(
    contents: &ArchiveContents<RelPath>,
    files: &MemoryTree,
) -> Result<ArtifactArchive, CaseFailure> {
    let load =
        |_: &RelPath, path: &RelPath| Ok::<_, Infallible>(files.read(path).unwrap_or_default());
    let out =
        write(DigestingWriter::new(Vec::new()), contents, load).map_err(|error| failed(&error))?;
    let (bytes, sum) = out.finish();
    Ok(ArtifactArchive { bytes, digest: sum.digest })
}

/// Replaces archives among the files by their content.
fn unpacked(files: &Map<String, Value>) -> Map<String, Value> {
    let content = |file: &Value| {
        let bytes = STANDARD.decode(file["base64"].as_str()?).ok()?;
        let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
        let listing = listing(&bytes).ok().filter(|_| is_compressed)?;
        Some(json!({"archive": listing.files}))
    };
    let unpacked = files
        .iter()
        .map(|(name, file)| (name.clone(), content(file).unwrap_or_else(|| file.clone())));
    unpacked.collect()
}

struct ArchiveListing {
    entries: Vec<String>,
    files: Map<String, Value>,
}

/// The entries and files of an archive, as another implementation reads them.
fn listing(archive: &[u8]) -> io::Result<ArchiveListing> {
    let mut tar = tar::Archive::new(GzDecoder::new(archive));
    let mut listing = ArchiveListing { entries: Vec::new(), files: Map::new() };
    for entry in tar.entries()? {
        let mut entry = entry?;
        let mut name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mode = entry.header().mode()?;
        if entry.header().entry_type().is_dir() {
            if !name.ends_with('/') {
                name.push('/');
            }
        } else {
            let mut body = Vec::new();
            entry.read_to_end(&mut body)?;
            let body = match String::from_utf8(body) {
                Ok(text) => text.into(),
                Err(error) => json!({"base64": STANDARD.encode(error.as_bytes())}),
            };
            listing.files.insert(name.clone(), body);
        }
        listing.entries.push(format!("{name} {mode:o}"));
    }
    Ok(listing)
}
