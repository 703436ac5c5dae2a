//! Revisions: of what artifacts are made of, and their own.
//!
//! Source of the semantics: source-watcher 2.2 `api/v2/v1beta1` (`HashObservedSources`), `setArtifactRevisions`.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::spec::OutputArtifact;

/// The key of an artifact's metadata under which the revision of its origin is.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// The artifact that a source has now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSource {
    /// Its digest.
    pub digest: String,
    /// Its revision.
    pub revision: String,
    /// Where it is served.
    pub url: String,
    /// What its metadata has under [`ORIGIN_REVISION`]; empty if nothing.
    pub origin_revision: String,
}

/// The digest over all sources, which changes with any of them; the digest of their origins alone would not do.
#[must_use]
pub fn sources_digest(sources: &BTreeMap<String, ObservedSource>) -> String {
    let line = |(alias, source): (&String, &ObservedSource)| {
        let ObservedSource { digest, revision, url, .. } = source;
        format!("{alias}=[digest={digest},revision={revision},url={url}]")
    };
    let mut lines: Vec<String> = sources.iter().map(line).collect();
    lines.sort();
    format!("sha256:{}", hex::encode(Sha256::digest(lines.join("|"))))
}

/// The age of an artifact, by its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionAndOriginRevision {
    /// Its revision.
    pub revision: String,
    /// What its metadata has under [`ORIGIN_REVISION`], if anything.
    pub origin: Option<String>,
}

/// The revisions of an artifact whose archive has a digest. An alias that no source has is ignored.
#[must_use]
pub fn revisions(
    artifact: &OutputArtifact,
    digest: &str,
    sources: &BTreeMap<String, ObservedSource>,
) -> RevisionAndOriginRevision {
    let source = |reference: &String| {
        let alias = reference.strip_prefix('@').unwrap_or(reference);
        sources.get(alias).filter(|_| !reference.is_empty())
    };
    let revision = match source(&artifact.revision) {
        Some(source) => source.revision.clone(),
        None => format!("latest@{digest}"),
    };
    let origin = source(&artifact.origin_revision).map(|source| {
        let ObservedSource { revision, origin_revision, .. } = source;
        if origin_revision.is_empty() { revision.clone() } else { origin_revision.clone() }
    });
    RevisionAndOriginRevision { revision, origin }
}
