//! Single artifacts: what is in their archives, and what the files of those are called.

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
use tree::{FileMetadata, FileTree as _, RelPath, TreeLimits};

use super::trees::{CaseTarballReader, LinkHandling, trees};
use super::{by_alias, meter, mismatch, strict};
use crate::replay::case::{
    Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil, same, same_value,
};

/// The namespace of all artifacts that are recorded.
const NAMESPACE: &str = "apps";

/// How what the system said begins in an error, behind Flux's own words.
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
    /// The version of the source-watcher that first answered so.
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
    /// Depends on Go's compressor.
    #[serde(rename = "goGzipDigest")]
    _digest: Option<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    strict(judge_build(&case))
}

fn judge_build(case: &Case) -> CaseJudgement {
    let BuildCaseInputs { sources, artifact, .. } = case.inputs()?;
    let trees = trees(&sources, LinkHandling::Followed)?;
    let inputs = BuildInputs {
        sources: &by_alias(&trees),
        tarballs: &CaseTarballReader,
        limits: TreeLimits::default(),
    };
    let built = build(&artifact, &inputs, &mut meter()).map_err(|error| error.to_string());
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

/// Flux's words are the same, up to those of the system.
fn is_same_error(wanted: &str, got: &str) -> CaseJudgement {
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
    let path = format!("externalartifact/{NAMESPACE}/{}/{}", artifact.name, built.file_name());
    let url = format!("http://store.example/{path}");
    let revisions = artifactgen::revisions(artifact, &archive.digest, &BTreeMap::new());
    same_value(
        &json!({
            "entries": wanted.entries,
            "files": wanted.files,
            "path": wanted.path,
            "url": wanted.url,
            "latest": wanted.revision_is_latest_at_digest,
        }),
        &json!({
            "entries": entries,
            "files": files,
            "path": path,
            "url": url,
            "latest": revisions.revision == format!("latest@{}", archive.digest),
        }),
    )
}

/// An archive as the program keeps it.
pub(super) struct ArtifactArchive {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

/// Archives a tree as the program does: without what no source has by default.
pub(super) fn archive(built: &ArtifactTree) -> Result<ArtifactArchive, CaseFailure> {
    let mut contents: ArchiveContents<RelPath> = ArchiveContents::new();
    let failed = |error: &dyn std::error::Error| mismatch("an archive", &error.to_string());
    for (path, metadata) in built.files.walk() {
        let added = match metadata {
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())
            }
            FileMetadata::Dir => contents.dir(path.clone()),
        };
        added.map_err(|error| failed(&error))?;
    }
    contents.leave_out(&IgnoreMatcher::new(&[], None).map_err(|error| failed(&error))?);
    let load = |_: &RelPath, path: &RelPath| {
        Ok::<_, Infallible>(built.files.read(path).unwrap_or_default())
    };
    let out =
        write(DigestingWriter::new(Vec::new()), &contents, load).map_err(|error| failed(&error))?;
    let (bytes, sum) = out.finish();
    Ok(ArtifactArchive { bytes, digest: sum.digest })
}

struct ArchiveListing {
    entries: Vec<String>,
    files: Map<String, Value>,
}

/// What another implementation reads in an archive.
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
