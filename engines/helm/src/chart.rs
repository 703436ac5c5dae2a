//! A chart: the parsed content of its files.
//!
//! Here: the chart. Below: loading it ([`load`]) from archives (`chart/archive.rs`) and YAML (`chart/decode.rs`), what
//! must hold of it ([`validate`]), what templates see of its files ([`files`]), CRDs that it brings ([`crds`](mod@crds)).
//! Elsewhere: what is done with its values (`crate::values`), schemas (`crate::schema`).

mod archive;
mod content_type;
pub mod crds;
mod decode;
pub mod files;
pub mod load;
mod name;
mod size;
#[cfg(test)]
mod tests;
pub mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::semver::{SemverVersion, VersionConstraint};
use golang::value::GoMap;

pub use archive::{ChartArchiveError, MAX_ENTRIES, MAX_FILE_SIZE, MAX_UNPACKED};
pub use crds::{ChartCrdFile, crds};
pub use decode::{ChartDecodeError, ValuesFileError, values as read_values};
pub(crate) use decode::{ChartMetadataDraft, METADATA, documents, shape_of};
pub use files::ChartFiles;
pub use load::{ChartLoadError, ChartLoadResult};
pub(crate) use name::{base, extension, quoted};
pub use validate::{ChartValidationError, InvalidChartMetadata};

/// A chart with the charts in it. A clone shares the strings of its files.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Its `Chart.yaml`.
    pub metadata: ChartMetadata,
    /// Its `Chart.lock`.
    pub lock: Option<ChartLock>,
    /// Its `values.yaml`. Never changed through this chart, so it may be shared.
    pub values: GoMap,
    /// Its `values.schema.json`.
    pub schema: Option<Arc<[u8]>>,
    /// The files below `templates/`, in the order of the chart.
    pub templates: Vec<ChartFile>,
    /// All other files: those of `.Files`, `crds/` among them.
    pub files: Vec<ChartFile>,
    /// The charts that are there, listed or not.
    pub charts: Vec<Self>,
}

/// A file of a chart.
#[derive(Debug, Clone, Default)]
pub struct ChartFile {
    /// Its path in the chart, with slashes.
    pub name: String,
    /// Its bytes.
    pub data: Arc<[u8]>,
}

/// The fields of `Chart.yaml` (`helm 4.2 pkg/chart/v2 ChartMetadata`).
#[derive(Debug, Clone, Default)]
pub struct ChartMetadata {
    /// Its name, which a parent's alias replaces.
    pub name: String,
    /// A page about the project.
    pub home: String,
    /// Where its source is.
    pub sources: Vec<String>,
    /// Its version.
    pub version: String,
    /// One sentence.
    pub description: String,
    /// Words to find it by.
    pub keywords: Vec<String>,
    /// Its maintainers.
    pub maintainers: Vec<ChartMaintainer>,
    /// Address of a picture.
    pub icon: String,
    /// `v1` or `v2`.
    pub api_version: String,
    /// As a dependency's.
    pub condition: String,
    /// As a dependency's, between commas.
    pub tags: String,
    /// Version of what it installs: any text.
    pub app_version: String,
    /// Whether the chart is deprecated.
    pub deprecated: bool,
    /// Notes for tools; nothing and an empty table are not the same to Helm.
    pub annotations: Option<BTreeMap<String, String>>,
    /// The versions of Kubernetes that it is for: a range.
    pub kube_version: String,
    /// What it lists as dependencies; an empty list and none at all are not the same to Helm.
    pub dependencies: Option<Vec<ChartDependency>>,
    /// `application`, `library` or empty.
    pub kind: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartMaintainer {
    /// A name.
    pub name: String,
    /// A mail address.
    pub email: String,
    /// A page.
    pub url: String,
}

/// The fields of `Chart.lock`: the dependencies that were chosen.
#[derive(Debug, Clone)]
pub struct ChartLock {
    /// When, as it is written there.
    pub generated: String,
    /// Of what was listed and what was chosen.
    pub digest: String,
    /// What was chosen.
    pub dependencies: Vec<ChartDependency>,
}

/// A dependency as `Chart.yaml` lists it.
#[derive(Debug, Clone, Default)]
pub struct ChartDependency {
    /// The chart's name; once dependencies were processed, the alias if there is one.
    pub name: String,
    /// A range of versions.
    pub version: String,
    /// Where the chart comes from.
    pub repository: String,
    /// Paths of values, between commas: the first that leads to a bool decides.
    pub condition: String,
    /// Names below `tags` in the top values.
    pub tags: Vec<String>,
    /// What to take over from the chart's values: names of its `exports`, or tables with `child` and `parent`.
    pub import_values: Vec<GoRuntimeValue>,
    /// Another name for the chart.
    pub alias: String,
    /// Whether tags and conditions leave it in.
    pub enabled: bool,
}

impl ChartDependency {
    /// Whether a chart meets the dependency, by name and version.
    pub fn is_met_by(&self, chart: &Chart) -> bool {
        let in_range = || {
            let constraint = VersionConstraint::parse(&self.version).ok()?;
            let version = SemverVersion::parse(&chart.metadata.version).ok()?;
            Some(constraint.matches(&version))
        };
        self.name == chart.metadata.name && in_range() == Some(true)
    }
}
