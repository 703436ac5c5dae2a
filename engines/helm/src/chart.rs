//! A chart: the parsed content of its files.
//!
//! Here: the types. Below: loading a chart ([`load`]) from archives (`chart/archive.rs`) and YAML (`chart/decode.rs`),
//! checking it ([`validate`]), its files as templates see them ([`files`]), and its CRDs ([`crds`](mod@crds)).
//! Elsewhere: merging its values (`crate::values`), and schemas (`crate::schema`).

mod archive;
mod content_type;
pub mod crds;
mod decode;
pub mod files;
mod go_path_and_quote;
pub mod load;
mod memory_size;
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
pub(crate) use go_path_and_quote::{base, extension, quoted};
pub use load::{ChartLoadError, ChartLoadResult};
pub use validate::{ChartValidationError, InvalidChartMetadata};

/// A chart with its sub-charts. A clone shares the content of the files.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// The fields of `Chart.yaml`.
    pub metadata: ChartMetadata,
    /// The fields of `Chart.lock`.
    pub lock: Option<ChartLock>,
    /// The values of `values.yaml`. They are never changed through this chart, so they may be shared.
    pub values: GoMap,
    /// The content of `values.schema.json`.
    pub schema: Option<Arc<[u8]>>,
    /// The files below `templates/`, in the order of the chart.
    pub templates: Vec<ChartFile>,
    /// All other files, including `crds/`. Templates see them as `.Files`.
    pub files: Vec<ChartFile>,
    /// The sub-charts that the chart contains, whether `Chart.yaml` lists them or not.
    pub charts: Vec<Self>,
}

/// A file of a chart.
#[derive(Debug, Clone, Default)]
pub struct ChartFile {
    /// The path of the file in the chart, with slashes.
    pub name: String,
    /// The content of the file.
    pub data: Arc<[u8]>,
}

/// The fields of `Chart.yaml` (`helm 4.2 pkg/chart/v2 ChartMetadata`).
#[derive(Debug, Clone, Default)]
pub struct ChartMetadata {
    /// The name of the chart. An alias in the parent chart replaces it.
    pub name: String,
    /// The home page of the project.
    pub home: String,
    /// The addresses of the project's source code.
    pub sources: Vec<String>,
    /// The version of the chart.
    pub version: String,
    /// A description in one sentence.
    pub description: String,
    /// Keywords for a search.
    pub keywords: Vec<String>,
    /// The maintainers of the chart.
    pub maintainers: Vec<ChartMaintainer>,
    /// The address of an icon.
    pub icon: String,
    /// The API version of the chart: `v1` or `v2`.
    pub api_version: String,
    /// A condition, as in [`ChartDependency`].
    pub condition: String,
    /// Tags, as in [`ChartDependency`], separated by commas.
    pub tags: String,
    /// The version of the application that the chart installs. It may be any text.
    pub app_version: String,
    /// Whether the chart is deprecated.
    pub deprecated: bool,
    /// Annotations. For Helm, none and an empty table are different.
    pub annotations: Option<BTreeMap<String, String>>,
    /// The range of Kubernetes versions that the chart supports.
    pub kube_version: String,
    /// The listed dependencies. For Helm, no list and an empty list are different.
    pub dependencies: Option<Vec<ChartDependency>>,
    /// The type of the chart: `application`, `library` or empty.
    pub kind: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartMaintainer {
    /// The maintainer's name.
    pub name: String,
    /// The maintainer's mail address.
    pub email: String,
    /// The address of the maintainer's page.
    pub url: String,
}

/// The fields of `Chart.lock`: the resolved dependencies.
#[derive(Debug, Clone)]
pub struct ChartLock {
    /// When the file was generated, as text.
    pub generated: String,
    /// The digest of the listed and the resolved dependencies.
    pub digest: String,
    /// The resolved dependencies.
    pub dependencies: Vec<ChartDependency>,
}

/// A dependency as `Chart.yaml` lists it.
#[derive(Debug, Clone, Default)]
pub struct ChartDependency {
    /// The name of the chart. After dependencies are processed, it is the alias if there is one.
    pub name: String,
    /// The range of allowed versions.
    pub version: String,
    /// The repository of the chart.
    pub repository: String,
    /// Paths of values, separated by commas. The first path that leads to a boolean decides whether the chart is used.
    pub condition: String,
    /// Names below `tags` in the top-level values. They switch the dependency on or off.
    pub tags: Vec<String>,
    /// The values that the parent imports from this chart: names in its `exports`, or tables with `child` and `parent`.
    pub import_values: Vec<GoRuntimeValue>,
    /// Another name for the chart in its parent.
    pub alias: String,
    /// Whether tags and conditions allow the dependency.
    pub enabled: bool,
}

impl ChartDependency {
    /// Whether a chart has the name and an allowed version of this dependency.
    pub fn is_met_by(&self, chart: &Chart) -> bool {
        let in_range = || {
            let constraint = VersionConstraint::parse(&self.version).ok()?;
            let version = SemverVersion::parse(&chart.metadata.version).ok()?;
            Some(constraint.matches(&version))
        };
        self.name == chart.metadata.name && in_range() == Some(true)
    }
}
