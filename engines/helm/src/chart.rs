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
use golang::semver::{Constraint, Version};
use golang::value::Map;

pub use archive::{ArchiveError, MAX_ENTRIES, MAX_FILE_SIZE, MAX_UNPACKED};
pub use crds::{Crd, crds};
pub use decode::{DecodeError, ValuesError, values as read_values};
pub(crate) use decode::{Draft, METADATA, documents, shape_of};
pub use files::ChartFiles;
pub use load::{ChartLoadResult, LoadError};
pub(crate) use name::{base, extension, quoted};
pub use validate::{ChartValidationError, Invalid};

/// A chart with the charts in it. A clone shares the strings of its files.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Its `Chart.yaml`.
    pub metadata: Metadata,
    /// Its `Chart.lock`.
    pub lock: Option<Lock>,
    /// Its `values.yaml`. Never changed through this chart, so it may be shared.
    pub values: Map,
    /// Its `values.schema.json`.
    pub schema: Option<Arc<[u8]>>,
    /// The files below `templates/`, in the order of the chart.
    pub templates: Vec<File>,
    /// All other files: those of `.Files`, `crds/` among them.
    pub files: Vec<File>,
    /// The charts that are there, listed or not.
    pub charts: Vec<Self>,
}

/// A file of a chart.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Its path in the chart, with slashes.
    pub name: String,
    /// Its bytes.
    pub data: Arc<[u8]>,
}

/// The fields of `Chart.yaml` (`helm 4.2 pkg/chart/v2 Metadata`).
#[derive(Debug, Clone, Default)]
pub struct Metadata {
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
    pub maintainers: Vec<Maintainer>,
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
    pub dependencies: Option<Vec<Dependency>>,
    /// `application`, `library` or empty.
    pub kind: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintainer {
    /// A name.
    pub name: String,
    /// A mail address.
    pub email: String,
    /// A page.
    pub url: String,
}

/// The fields of `Chart.lock`: the dependencies that were chosen.
#[derive(Debug, Clone)]
pub struct Lock {
    /// When, as it is written there.
    pub generated: String,
    /// Of what was listed and what was chosen.
    pub digest: String,
    /// What was chosen.
    pub dependencies: Vec<Dependency>,
}

/// A dependency as `Chart.yaml` lists it.
#[derive(Debug, Clone, Default)]
pub struct Dependency {
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

impl Dependency {
    /// Whether a chart meets the dependency, by name and version.
    pub fn is_met_by(&self, chart: &Chart) -> bool {
        let in_range = || {
            let constraint = Constraint::parse(&self.version).ok()?;
            let version = Version::parse(&chart.metadata.version).ok()?;
            Some(constraint.matches(&version))
        };
        self.name == chart.metadata.name && in_range() == Some(true)
    }
}
