//! What a generator made before, and whether it has to be made again.
//!
//! Here: comparing the inventory with the ExternalArtifacts and stored files that exist. Elsewhere: storing, applying and
//! removing them (the program).
//!
//! Source of the semantics: source-watcher 2.2 `artifactgenerator_drift.go`, `notify`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::spec::GeneratorSpec;

/// An artifact that was made, as the status lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// Digest of its archive.
    pub digest: String,
    /// File of its archive.
    pub filename: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// The file of an archive, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredArchiveFile {
    /// Its digest is that of the inventory.
    Intact,
    /// It is not there.
    Missing,
    /// Its digest is another.
    Corrupt,
}

/// What has to be made now.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorRunRequest<'a> {
    /// The spec.
    pub spec: &'a GeneratorSpec,
    /// The generation of the spec.
    pub generation: i64,
    /// [`crate::sources_digest`] of its sources as they are.
    pub sources_digest: &'a str,
}

/// The status of the last run.
#[derive(Debug, Clone, Copy)]
pub struct LastGeneratorRun<'a> {
    /// Whether `Ready` is False.
    pub is_failed: bool,
    /// The generation that `Ready` is of.
    pub observed_generation: i64,
    /// [`crate::sources_digest`] of its sources.
    pub sources_digest: &'a str,
    /// What it made.
    pub inventory: &'a [InventoryEntry],
}

/// Why artifacts are made again, in Flux's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorDrift {
    /// The last run failed.
    NotReady,
    /// The spec is another.
    GenerationChanged,
    /// The sources are others.
    SourcesChanged,
    /// There are more or fewer artifacts.
    ArtifactsChanged,
    /// The file of an archive is gone.
    ArtifactMissing,
    /// The file of an archive is damaged, and has to be removed.
    ArtifactCorrupted,
    /// ExternalArtifacts are gone, or of other digests.
    ExternalArtifactsChanged,
}

/// Why artifacts have to be made again; none if nothing changed.
///
/// `stored` examines the file of an archive; it is called for none if there is another cause. `external` lists name and
/// digest of the ExternalArtifacts with the generator's label; one without an artifact has an empty digest.
pub fn drift(
    requested: GeneratorRunRequest<'_>,
    last: LastGeneratorRun<'_>,
    mut stored: impl FnMut(&InventoryEntry) -> StoredArchiveFile,
    external: &BTreeSet<ExternalArtifactState>,
) -> Option<GeneratorDrift> {
    let GeneratorRunRequest { spec, generation, sources_digest } = requested;
    if last.is_failed {
        return Some(GeneratorDrift::NotReady);
    }
    if last.observed_generation != generation {
        return Some(GeneratorDrift::GenerationChanged);
    }
    if last.sources_digest != sources_digest {
        return Some(GeneratorDrift::SourcesChanged);
    }
    if spec.path_pattern.is_empty() && last.inventory.len() != spec.artifacts.len() {
        return Some(GeneratorDrift::ArtifactsChanged);
    }
    let damage = last.inventory.iter().find_map(|entry| match stored(entry) {
        StoredArchiveFile::Intact => None,
        StoredArchiveFile::Missing => Some(GeneratorDrift::ArtifactMissing),
        StoredArchiveFile::Corrupt => Some(GeneratorDrift::ArtifactCorrupted),
    });
    let made: BTreeSet<ExternalArtifactState> = last.inventory.iter().map(Into::into).collect();
    damage.or((made != *external).then_some(GeneratorDrift::ExternalArtifactsChanged))
}

/// An ExternalArtifact of the generator's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalArtifactState {
    /// Its name.
    pub name: String,
    /// Digest of its artifact; empty without one.
    pub digest: String,
}

impl From<&InventoryEntry> for ExternalArtifactState {
    fn from(entry: &InventoryEntry) -> Self {
        Self { name: entry.name.clone(), digest: entry.digest.clone() }
    }
}

/// The message of the event about artifacts with new digests, a line for each; none if no digest is new.
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

/// The message of `Ready` once all artifacts are made.
#[must_use]
pub fn succeeded_message(artifacts: usize) -> String {
    format!("reconciliation succeeded, generated {artifacts} artifact(s)")
}

/// The message if no artifact has to be made.
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
        let requested = GeneratorRunRequest { spec: &spec, generation: 1, sources_digest: "d" };
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
        assert_eq!(found(requested, failed, Intact, &external), Some(GeneratorDrift::NotReady));
        let newer = GeneratorRunRequest { generation: 2, ..requested };
        assert_eq!(found(newer, last, Intact, &external), Some(GeneratorDrift::GenerationChanged));
        let other = GeneratorRunRequest { sources_digest: "e", ..requested };
        assert_eq!(found(other, last, Intact, &external), Some(GeneratorDrift::SourcesChanged));
        let more = LastGeneratorRun { inventory: &[], ..last };
        assert_eq!(
            found(requested, more, Intact, &external),
            Some(GeneratorDrift::ArtifactsChanged)
        );
        let gone = found(requested, last, Missing, &external);
        assert_eq!(gone, Some(GeneratorDrift::ArtifactMissing));
        let damaged = found(requested, last, Corrupt, &external);
        assert_eq!(damaged, Some(GeneratorDrift::ArtifactCorrupted));
        let changed = found(requested, last, Intact, &BTreeSet::new());
        assert_eq!(changed, Some(GeneratorDrift::ExternalArtifactsChanged));
    }
}
