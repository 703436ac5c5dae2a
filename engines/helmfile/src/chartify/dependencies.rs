//! Subcharts of a chart: charts that a release adds as dependencies, and charts in local directories.
//!
//! Differs(helmfile 1.8): nothing is fetched from repositories, and nothing is written into the directory of the chart.

use golang::semver::{SemverVersion, VersionConstraint};
use serde_json::{Value, json};

use super::{ChartFileTree, is_below, unreadable};
use crate::chart_reference_resolution::normal;
use crate::error::Result;
use crate::load::Helmfile;
use crate::release_render_preparation::RenderCommandFlags;
use crate::spec::Release;
use crate::state_values_merge::ValuesMap;
use crate::working_directory::base;
use crate::yaml;
use golang::path::{clean, join};

/// The files in which a chart names its dependencies, besides `Chart.yaml`.
const LOCKS: [&str; 3] = ["requirements.yaml", "requirements.lock", "Chart.lock"];

/// The parsed content of a chart's `Chart.yaml`. The error says that the file is missing or not readable.
fn metadata(tree: &ChartFileTree) -> Result<ValuesMap> {
    let text = tree.get("Chart.yaml").ok_or("Chart.yaml is missing")?;
    yaml::read_map(text).map_err(|error| unreadable("Chart.yaml", error))
}

fn write(tree: &mut ChartFileTree, metadata: ValuesMap) -> Result<()> {
    let text = yaml::write_plain(&Value::Object(metadata))?;
    tree.insert("Chart.yaml".to_owned(), text.into_bytes().into());
    Ok(())
}

/// Removes the names of all charts within, which have been rendered.
pub(super) fn remove_all(tree: &mut ChartFileTree) -> Result<()> {
    let mut known = metadata(tree)?;
    known.remove("dependencies");
    LOCKS.iter().for_each(|lock| drop(tree.remove(*lock)));
    write(tree, known)
}

/// The dependencies of a chart: first those in `Chart.yaml`, then those in `requirements.yaml`.
fn declared(tree: &ChartFileTree, metadata: &ValuesMap) -> Result<Vec<Value>> {
    let list = |map: &ValuesMap| {
        map.get("dependencies").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut all = list(metadata);
    if let Some(text) = tree.get("requirements.yaml") {
        all.extend(list(
            &yaml::read_map(text).map_err(|error| unreadable("requirements.yaml", error))?,
        ));
    }
    Ok(all)
}

impl Helmfile {
    /// Whether charts in local directories are added to the chart that depends on them.
    pub(crate) fn builds_dependencies(
        &self,
        release: &Release,
        options: &RenderCommandFlags,
    ) -> bool {
        !options.skip_deps && !release.skip_deps.unwrap_or(self.spec.helm_defaults.skip_deps)
    }

    /// Adds the dependencies of a release to its chart, including charts in local directories.
    pub(super) fn add_dependencies(
        &self,
        release: &Release,
        directory: &str,
        options: &RenderCommandFlags,
        tree: &mut ChartFileTree,
    ) -> Result<()> {
        let mut known = metadata(tree)?;
        let mut all = declared(tree, &known)?;
        for added in &release.dependencies {
            let path = normal(&self.base, &added.chart);
            if !self.place.is_directory(&path) {
                return Err(format!(
                    "the dependency `{}` is in a repository or registry, which is not fetched: fetch it first and \
                     name the local directory",
                    added.chart
                )
                .into());
            }
            let name = base(&clean(&added.chart)).to_owned();
            let condition = if added.alias.is_empty() { &name } else { &added.alias };
            let mut dependency = json!({
                "name": name,
                "repository": format!("file://{}", self.place.absolute_of(&path)?),
                "condition": format!("{condition}.enabled"),
                "version": added.version,
            });
            if let Some(map) = dependency.as_object_mut().filter(|_| !added.alias.is_empty()) {
                map.insert("alias".to_owned(), added.alias.as_str().into());
            }
            all.push(dependency);
        }
        if !release.dependencies.is_empty() || self.builds_dependencies(release, options) {
            self.vendor(directory, &all, tree)?;
        }
        if !all.is_empty() {
            known.insert("dependencies".to_owned(), Value::Array(all));
            tree.remove("requirements.yaml");
            write(tree, known)?;
        }
        Ok(())
    }

    /// The files of a local chart, together with the charts in local directories that it depends on; `None` if it depends on
    /// none.
    pub(crate) fn with_local_charts(&self, directory: &str) -> Result<Option<ChartFileTree>> {
        if !self.place.is_file(&join(directory, "Chart.yaml")) {
            return Ok(None);
        }
        let text = self.place.read(&join(directory, "Chart.yaml"))?;
        if !String::from_utf8_lossy(&text).contains("file://") {
            return Ok(None);
        }
        let mut tree = self.place.walk(directory)?;
        let all = declared(&tree, &metadata(&tree)?)?;
        self.vendor(directory, &all, &mut tree)?;
        Ok(Some(tree))
    }

    /// Puts charts of local directories into a chart.
    fn vendor(&self, directory: &str, all: &[Value], tree: &mut ChartFileTree) -> Result<()> {
        for dependency in all {
            let field = |key: &str| dependency.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = field("name");
            let repository = field("repository");
            let wanted = field("version");
            let own = format!("charts/{name}");
            let Some(path) = repository.strip_prefix("file://") else {
                let is_there =
                    |path: &String| is_below(path, &own) || path.starts_with(&format!("{own}-"));
                if !tree.keys().any(is_there) {
                    return Err(format!(
                        "the chart names {name} of {repository:?}, which is not fetched: put it into `charts` first"
                    )
                    .into());
                }
                continue;
            };
            let path = if path.starts_with('/') { path.to_owned() } else { join(directory, path) };
            let chart = self.place.walk(&path)?;
            let version = metadata(&chart)?
                .get("version")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let range =
                VersionConstraint::parse(wanted).map_err(|error| unreadable(name, error))?;
            let known = SemverVersion::parse(&version).map_err(|error| unreadable(name, error))?;
            if !range.matches(&known) {
                return Err(format!(
                    "can't get a valid version for \"{name}\" (repository {repository:?}, version {wanted:?}): it has \
                     version {version}"
                )
                .into());
            }
            tree.retain(|path, _| !is_below(path, &own) && !path.starts_with(&format!("{own}-")));
            tree.extend(chart.into_iter().map(|(path, text)| (format!("{own}/{path}"), text)));
        }
        Ok(())
    }
}
