//! A chart as far as its values are concerned.
//!
//! Elsewhere: what is done with its values (`values`), templates and files of a chart.

use golang::Value;
use golang::semver::{Constraint, Version};
use golang::value::Map;

/// A chart with the charts in it.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its name, which a parent's alias replaces.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What its `values.yaml` says. Never changed through this chart, so it may be shared.
    pub values: Map,
    /// What its `Chart.yaml` lists; an empty list and none at all are not the same to Helm.
    pub dependencies: Option<Vec<Dependency>>,
    /// The charts that are there, listed or not.
    pub charts: Vec<Self>,
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
    pub import_values: Vec<Value>,
    /// Another name for the chart.
    pub alias: String,
    /// Whether tags and conditions leave it in.
    pub enabled: bool,
}

impl Dependency {
    /// Whether a chart is the one that is meant, by name and version.
    pub fn is_met_by(&self, chart: &Chart) -> bool {
        let in_range = || {
            let constraint = Constraint::parse(&self.version).ok()?;
            let version = Version::parse(&chart.version).ok()?;
            Some(constraint.matches(&version))
        };
        self.name == chart.name && in_range() == Some(true)
    }
}
