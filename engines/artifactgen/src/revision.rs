//! Revisions: those of the sources of an artifact, and that of the artifact itself.
//!
//! Source of the semantics: source-watcher 2.2 `api/v2/v1beta1` (`HashObservedSources`), `setArtifactRevisions`.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::spec::OutputArtifact;

/// The metadata key of an artifact with the revision of its origin.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// The present artifact of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSource {
    /// The digest of the artifact.
    pub digest: String,
    /// The revision of the artifact.
    pub revision: String,
    /// The URL of the artifact.
    pub url: String,
    /// The value of [`ORIGIN_REVISION`] in its metadata. It is empty if there is none.
    pub origin_revision: String,
}

/// One digest of the artifacts of all sources. It changes when one of them changes.
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

/// The revisions of a built artifact, for its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionAndOriginRevision {
    /// The revision of the artifact.
    pub revision: String,
    /// The value for [`ORIGIN_REVISION`] in its metadata, if there is one.
    pub origin: Option<String>,
}

/// The revisions of an artifact whose archive has this digest. An alias that no source has is ignored.
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
