//! The artifacts that a generator built before, and whether they have to be built again.
//!
//! Here: comparing the inventory with the existing ExternalArtifacts and stored files. Elsewhere: storing, applying and
//! removing them (the program).
//!
//! Source of the semantics: source-watcher 2.2 `artifactgenerator_drift.go`, `notify`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::spec::GeneratorSpec;

/// A built artifact, as the status lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// The digest of the artifact's archive.
    pub digest: String,
    /// The file name of the artifact's archive.
    pub filename: String,
    /// The name of the ExternalArtifact.
    pub name: String,
    /// The namespace of the ExternalArtifact.
    pub namespace: String,
}

/// The state of the stored file of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredArchiveFile {
    /// The file has the digest in the inventory.
    Intact,
    /// The file does not exist.
    Missing,
    /// The file has another digest.
    Corrupt,
}

/// The present state of a generator's spec and sources.
#[derive(Debug, Clone, Copy)]
pub struct CurrentGeneratorInputs<'a> {
    /// The spec of the generator.
    pub spec: &'a GeneratorSpec,
    /// The generation of the spec.
    pub generation: i64,
    /// The [`crate::sources_digest`] of the present artifacts of the sources.
    pub sources_digest: &'a str,
}

/// The status of the generator's last run.
#[derive(Debug, Clone, Copy)]
pub struct LastGeneratorRun<'a> {
    /// Whether the condition `Ready` is False.
    pub is_failed: bool,
    /// The generation that the condition `Ready` is about.
    pub observed_generation: i64,
    /// The [`crate::sources_digest`] of the sources in that run.
    pub sources_digest: &'a str,
    /// The artifacts that were built.
    pub inventory: &'a [InventoryEntry],
}

/// Why artifacts have to be built again, in Flux's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtifactRebuildReason {
    /// The last run failed.
    NotReady,
    /// The spec has changed.
    GenerationChanged,
    /// The sources have changed.
    SourcesChanged,
    /// The number of artifacts has changed.
    ArtifactsChanged,
    /// The stored file of an archive does not exist.
    ArtifactMissing,
    /// The stored file of an archive is damaged, and has to be removed.
    ArtifactCorrupted,
    /// ExternalArtifacts do not exist, or have other digests.
    ExternalArtifactsChanged,
}

/// Why artifacts have to be built again. `None` if nothing changed.
///
/// `stored` examines the stored file of an archive. It is only called if there is no other reason. `external` lists
/// name and digest of the ExternalArtifacts with the generator's label. An ExternalArtifact without an artifact has an
/// empty digest.
pub fn drift(
    requested: CurrentGeneratorInputs<'_>,
    last: LastGeneratorRun<'_>,
    mut stored: impl FnMut(&InventoryEntry) -> StoredArchiveFile,
    external: &BTreeSet<ExternalArtifactState>,
) -> Option<ArtifactRebuildReason> {
    let CurrentGeneratorInputs { spec, generation, sources_digest } = requested;
    if last.is_failed {
        return Some(ArtifactRebuildReason::NotReady);
    }
    if last.observed_generation != generation {
        return Some(ArtifactRebuildReason::GenerationChanged);
    }
    if last.sources_digest != sources_digest {
        return Some(ArtifactRebuildReason::SourcesChanged);
    }
    if spec.path_pattern.is_empty() && last.inventory.len() != spec.artifacts.len() {
        return Some(ArtifactRebuildReason::ArtifactsChanged);
    }
    let damage = last.inventory.iter().find_map(|entry| match stored(entry) {
        StoredArchiveFile::Intact => None,
        StoredArchiveFile::Missing => Some(ArtifactRebuildReason::ArtifactMissing),
        StoredArchiveFile::Corrupt => Some(ArtifactRebuildReason::ArtifactCorrupted),
    });
    let made: BTreeSet<ExternalArtifactState> = last.inventory.iter().map(Into::into).collect();
    damage.or((made != *external).then_some(ArtifactRebuildReason::ExternalArtifactsChanged))
}

/// An existing ExternalArtifact in the generator's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalArtifactState {
    /// The name of the object.
    pub name: String,
    /// The digest of its artifact. It is empty if there is none.
    pub digest: String,
}

impl From<&InventoryEntry> for ExternalArtifactState {
    fn from(entry: &InventoryEntry) -> Self {
        Self { name: entry.name.clone(), digest: entry.digest.clone() }
    }
}

/// The message of the event about artifacts with new digests, one line for each. `None` if no digest is new.
#[must_use]
pub fn changes_message(before: &[InventoryEntry], now: &[InventoryEntry]) -> Option<String> {
    let key = |entry: &InventoryEntry| {
        let InventoryEntry { namespace, name, digest, .. } = entry;
        format!("{namespace}/{name} ({digest})")
    };
    let known: BTreeSet<String> = before.iter().map(key).collect();
    let changed: Vec<String> = now.iter().map(key).filter(|it| !known.contains(it)).collect();
    (!changed.is_empty()).then(|| format!("external artifacts reconciled: {}", changed.join("\n")))
}

/// The message of `Ready` when all artifacts are built.
#[must_use]
pub fn succeeded_message(artifacts: usize) -> String {
    format!("reconciliation succeeded, generated {artifacts} artifact(s)")
}

/// The message of `Ready` when no artifact has to be built.
#[must_use]
pub fn up_to_date_message(artifacts: usize) -> String {
    format!("No drift detected, {artifacts} artifact(s) up to date")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::OutputArtifact;

    #[test]
    fn only_what_is_as_it_was_made_is_no_drift() {
        let spec =
            GeneratorSpec { artifacts: vec![OutputArtifact::default()], ..Default::default() };
        let inventory = [InventoryEntry {
            digest: "sha256:1".to_owned(),
            filename: "1.tar.gz".to_owned(),
            name: "a".to_owned(),
            namespace: "apps".to_owned(),
        }];
        let requested = CurrentGeneratorInputs { spec: &spec, generation: 1, sources_digest: "d" };
        let last = LastGeneratorRun {
            is_failed: false,
            observed_generation: 1,
            sources_digest: "d",
            inventory: &inventory,
        };
        let external: BTreeSet<_> = inventory.iter().map(Into::into).collect();
        let found = |requested, last, stored, external: &BTreeSet<_>| {
            drift(requested, last, |_| stored, external)
        };
        use StoredArchiveFile::{Corrupt, Intact, Missing};
        assert_eq!(found(requested, last, Intact, &external), None);
        let failed = LastGeneratorRun { is_failed: true, ..last };
        assert_eq!(
            found(requested, failed, Intact, &external),
            Some(ArtifactRebuildReason::NotReady)
        );
        let newer = CurrentGeneratorInputs { generation: 2, ..requested };
        assert_eq!(
            found(newer, last, Intact, &external),
            Some(ArtifactRebuildReason::GenerationChanged)
        );
        let other = CurrentGeneratorInputs { sources_digest: "e", ..requested };
        assert_eq!(
            found(other, last, Intact, &external),
            Some(ArtifactRebuildReason::SourcesChanged)
        );
        let more = LastGeneratorRun { inventory: &[], ..last };
        assert_eq!(
            found(requested, more, Intact, &external),
            Some(ArtifactRebuildReason::ArtifactsChanged)
        );
        let gone = found(requested, last, Missing, &external);
        assert_eq!(gone, Some(ArtifactRebuildReason::ArtifactMissing));
        let damaged = found(requested, last, Corrupt, &external);
        assert_eq!(damaged, Some(ArtifactRebuildReason::ArtifactCorrupted));
        let changed = found(requested, last, Intact, &BTreeSet::new());
        assert_eq!(changed, Some(ArtifactRebuildReason::ExternalArtifactsChanged));
    }
}
