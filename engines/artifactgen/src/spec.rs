//! The spec of an ArtifactGenerator, as far as this engine needs it.
//!
//! Elsewhere: the definition of the kind (`crds`), and refused specs (`validate.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Reads a list or map for which Go may write null when it is empty.
fn nil<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The spec of an ArtifactGenerator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GeneratorSpec {
    /// The sources of the files.
    #[serde(deserialize_with = "nil")]
    pub sources: Vec<SourceReference>,
    /// The artifacts that are built from the sources.
    #[serde(deserialize_with = "nil")]
    pub artifacts: Vec<OutputArtifact>,
    /// The path pattern `@alias/pattern`. All artifacts are built once for each folder that it matches. If it is empty,
    /// they are built once.
    pub path_pattern: String,
    /// Labels and annotations of all ExternalArtifacts.
    pub common_metadata: Option<CommonMetadata>,
}

/// A source, and its alias in copies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SourceReference {
    /// The name of the source in copies.
    pub alias: String,
    /// The kind of the source.
    pub kind: String,
    /// The name of the source object.
    pub name: String,
    /// The namespace of the source object. If it is empty, it is the generator's namespace.
    pub namespace: String,
}

/// Labels and annotations of all ExternalArtifacts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CommonMetadata {
    /// Labels.
    #[serde(deserialize_with = "nil")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "nil")]
    pub annotations: BTreeMap<String, String>,
}

/// An artifact that an ArtifactGenerator asks for: its name, its revision and what is copied into it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputArtifact {
    /// The name of the artifact and of its ExternalArtifact.
    pub name: String,
    /// `@alias` of the source whose revision the artifact gets. If it is empty, the revision is the artifact's own
    /// digest.
    pub revision: String,
    /// `@alias` of the source whose origin revision the artifact gets.
    pub origin_revision: String,
    /// The copies that make its content. Later copies overwrite files of earlier ones.
    #[serde(deserialize_with = "nil")]
    pub copy: Vec<CopyOperation>,
}

/// A copy from a source into an artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CopyOperation {
    /// `@alias/`, followed by a path or a pattern of paths.
    pub from: String,
    /// `@artifact/`, followed by a path.
    pub to: String,
    /// Patterns of excluded paths.
    #[serde(deserialize_with = "nil")]
    pub exclude: Vec<String>,
    /// What happens to files that exist already.
    pub strategy: CopyStrategy,
}

/// What a copy does with files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum CopyStrategy {
    /// Copied files replace existing files of the same path.
    #[default]
    Overwrite,
    /// Copied YAML files are merged into existing files.
    Merge,
    /// The copied files are archives, and their content is copied.
    Extract,
}

impl From<String> for CopyStrategy {
    /// Parity(flux): any other text means [`CopyStrategy::Overwrite`].
    fn from(text: String) -> Self {
        match text.as_str() {
            "Merge" => Self::Merge,
            "Extract" => Self::Extract,
            _ => Self::Overwrite,
        }
    }
}
