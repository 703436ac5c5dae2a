//! Checks the metadata of a chart, with Helm's messages.
//!
//! Here: the checks when a chart is loaded, and those before it is rendered. Elsewhere: values (`crate::schema`), names
//! of releases (`crate::releasename`).

use golang::semver::{SemverVersion, VersionConstraint};
use golang::unicode::is_print;

use super::decode::ChartMetadataDraft;
use super::go_path_and_quote::{base, quoted};
use super::{Chart, ChartDependency, ChartMaintainer, ChartMetadata};

/// Why a chart's metadata is refused. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("validation: {0}")]
pub struct InvalidChartMetadata(String);

/// Why a chart is not rendered. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartValidationError {
    /// The chart has another type than `application`. The text is its type.
    #[error("{0} charts are not installable")]
    NotInstallable(String),
    /// The chart lists dependencies that it does not contain.
    #[error(
        "an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch missing dependencies: found in Chart.yaml, but missing in charts/ directory: {}",
        .0.join(", ")
    )]
    Missing(Vec<String>),
    /// The chart does not support this version of Kubernetes.
    #[error("chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {found}")]
    KubeVersion {
        /// The range of versions that the chart supports.
        wanted: String,
        /// The version of the cluster.
        found: String,
    },
}

/// Checks whether a chart may be installed or rendered on its own.
///
/// # Errors
/// The chart is a library.
pub fn installable(chart: &Chart) -> Result<(), ChartValidationError> {
    match chart.metadata.kind.as_str() {
        "" | "application" => Ok(()),
        kind => Err(ChartValidationError::NotInstallable(kind.to_owned())),
    }
}

/// Checks whether the chart contains every dependency that `Chart.yaml` lists, under its name.
///
/// This check comes before dependencies are processed, so aliases and conditions do not matter.
///
/// # Errors
/// The names of the missing dependencies.
pub fn dependencies_present(chart: &Chart) -> Result<(), ChartValidationError> {
    let is_there = |name: &str| chart.charts.iter().any(|chart| chart.metadata.name == name);
    let listed = chart.metadata.dependencies.iter().flatten();
    let missing = listed.map(|listed| &listed.name).filter(|name| !is_there(name));
    let missing: Vec<_> = missing.cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(ChartValidationError::Missing(missing)) }
}

/// Checks whether a chart supports a version of Kubernetes. `version` is its text, such as `v1.36.0`.
///
/// # Errors
/// The version does not match, or the range or the version is not valid.
pub fn kube_version(chart: &Chart, version: &str) -> Result<(), ChartValidationError> {
    let wanted = &chart.metadata.kube_version;
    let fits = || {
        let version = SemverVersion::parse(version).ok()?;
        Some(VersionConstraint::parse(wanted).ok()?.matches(&version))
    };
    if wanted.is_empty() || fits() == Some(true) {
        return Ok(());
    }
    Err(ChartValidationError::KubeVersion { wanted: wanted.clone(), found: version.to_owned() })
}

impl ChartMetadataDraft {
    /// Cleans the texts of the metadata, and checks it.
    pub(super) fn validated(mut self) -> Result<ChartMetadata, InvalidChartMetadata> {
        clean_metadata(&mut self.metadata);
        check_metadata(&self.metadata)?;
        for maintainer in self.maintainers {
            let problem = "maintainers must not contain empty or null nodes";
            let maintainer = maintainer.ok_or_else(|| InvalidChartMetadata(problem.to_owned()))?;
            self.metadata.maintainers.push(cleaned_maintainer(maintainer));
        }
        self.metadata.dependencies = match self.dependencies {
            Some(listed) => Some(checked_dependencies(listed)?),
            None => None,
        };
        Ok(self.metadata)
    }
}

fn clean_metadata(metadata: &mut ChartMetadata) {
    let single = [
        &mut metadata.name,
        &mut metadata.description,
        &mut metadata.home,
        &mut metadata.icon,
        &mut metadata.condition,
        &mut metadata.tags,
        &mut metadata.app_version,
        &mut metadata.kube_version,
    ];
    let lists = metadata.sources.iter_mut().chain(&mut metadata.keywords);
    single.into_iter().chain(lists).for_each(clean);
}

fn check_metadata(metadata: &ChartMetadata) -> Result<(), InvalidChartMetadata> {
    let ChartMetadata { name, version, kind, .. } = metadata;
    let problem = if metadata.api_version.is_empty() {
        "chart.metadata.apiVersion is required".to_owned()
    } else if name.is_empty() {
        "chart.metadata.name is required".to_owned()
    } else if name == "." || name == ".." {
        format!("chart.metadata.name {} is not allowed", quoted(name))
    } else if name != base(name) {
        format!("chart.metadata.name {} is invalid", quoted(name))
    } else if version.is_empty() {
        "chart.metadata.version is required".to_owned()
    } else if SemverVersion::parse(version).is_err() {
        format!("chart.metadata.version {} is invalid", quoted(version))
    } else if !matches!(kind.as_str(), "" | "application" | "library") {
        "chart.metadata.type must be application or library".to_owned()
    } else {
        return Ok(());
    };
    Err(InvalidChartMetadata(problem))
}

fn cleaned_maintainer(mut maintainer: ChartMaintainer) -> ChartMaintainer {
    let strings = [&mut maintainer.name, &mut maintainer.email, &mut maintainer.url];
    strings.into_iter().for_each(clean);
    maintainer
}

fn checked_dependencies(
    listed: Vec<Option<ChartDependency>>,
) -> Result<Vec<ChartDependency>, InvalidChartMetadata> {
    let mut checked = Vec::with_capacity(listed.len());
    let mut names = std::collections::BTreeSet::new();
    for dependency in listed {
        let problem = "dependencies must not contain empty or null nodes";
        let mut dependency = dependency.ok_or_else(|| InvalidChartMetadata(problem.to_owned()))?;
        let ChartDependency { name, version, repository, condition, alias, tags, .. } =
            &mut dependency;
        [&mut *name, version, repository, condition].into_iter().for_each(clean);
        tags.iter_mut().for_each(clean);
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !alias.bytes().all(is_fine) {
            let name = quoted(name);
            return Err(InvalidChartMetadata(format!(
                "dependency {name} has disallowed characters in the alias"
            )));
        }
        let key = if alias.is_empty() { &*name } else { &*alias };
        if !names.insert(key.clone()) {
            let key = quoted(key);
            return Err(InvalidChartMetadata(format!(
                "more than one dependency with name or alias {key}"
            )));
        }
        checked.push(dependency);
    }
    Ok(checked)
}

/// Replaces every white space character by a space, and removes invisible characters.
fn clean(text: &mut String) {
    let cleaned = |character: char| {
        if character.is_whitespace() { Some(' ') } else { is_print(character).then_some(character) }
    };
    if text.chars().any(|character| cleaned(character) != Some(character)) {
        *text = text.chars().filter_map(cleaned).collect();
    }
}
