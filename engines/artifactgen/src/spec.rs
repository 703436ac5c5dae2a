//! What an ArtifactGenerator asks for, as far as this engine sees it.
//!
//! Elsewhere: the definition (`crds`), what is refused (`validate.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// For lists and maps that Go writes as null when they are empty.
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
    /// Where files come from.
    #[serde(deserialize_with = "nil")]
    pub sources: Vec<SourceReference>,
    /// What is made of them.
    #[serde(deserialize_with = "nil")]
    pub artifacts: Vec<OutputArtifact>,
    /// All artifacts are made once for each folder that this pattern, `@alias/pattern`, matches; just once if it is empty.
    pub path_pattern: String,
    /// What all ExternalArtifacts have.
    pub common_metadata: Option<CommonMetadata>,
}

/// A source, and what copies call it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SourceReference {
    /// What copies call it.
    pub alias: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; that of the generator if empty.
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

/// An artifact that is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputArtifact {
    /// Its name, and that of its ExternalArtifact.
    pub name: String,
    /// `@alias` of the source whose revision it has; its own digest if empty.
    pub revision: String,
    /// `@alias` of the source whose origin it names.
    pub origin_revision: String,
    /// What is in it; later copies overwrite what earlier ones made.
    #[serde(deserialize_with = "nil")]
    pub copy: Vec<CopyOperation>,
}

/// A copy from a source into an artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CopyOperation {
    /// `@alias/` and a path, or a pattern of paths.
    pub from: String,
    /// `@artifact/` and a path.
    pub to: String,
    /// Patterns of paths that are left out.
    #[serde(deserialize_with = "nil")]
    pub exclude: Vec<String>,
    /// What happens to files that are there.
    pub strategy: CopyStrategy,
}

/// What a copy does with files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum CopyStrategy {
    /// Copied files replace existing files of the same path.
    #[default]
    Overwrite,
    /// YAML files are laid over those that are there.
    Merge,
    /// They are archives, whose contents are copied.
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
