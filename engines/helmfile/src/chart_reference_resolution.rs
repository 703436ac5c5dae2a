//! Resolves the `chart` of a release: the kind of reference, and where a command that prepares charts finds the chart.

use std::borrow::Cow;

use golang::semver::{SemverVersion, VersionConstraint};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_paths::is_remote;
use crate::hooks;
use crate::load::Helmfile;
use crate::spec::{Hook, Release};
use crate::yaml;
use golang::path::join;

/// The messages about preparing charts.
#[derive(Debug, Default)]
pub(crate) struct ChartPreparationReport {
    pub(crate) warnings: Vec<String>,
    /// How many kustomizations were built.
    pub(crate) kustomizations: usize,
}

/// Whether a chart is given as a path, which need not exist. Other charts are in a repository or a registry.
pub(crate) fn is_local(chart: &str) -> bool {
    if chart.starts_with("./") || chart.starts_with("../") {
        return true;
    }
    if chart.contains("://") {
        return false;
    }
    chart.starts_with('/') || !matches!(chart.split('/').count(), 2 | 3)
}

/// Splits the reference to a chart in a repository into the repository's name and the chart's name. `None` if the chart
/// is local, a URL or has no repository.
pub(crate) fn in_repository(chart: &str) -> Option<(&str, &str)> {
    if is_local(chart) || chart.contains("://") {
        return None;
    }
    chart.split_once('/')
}

/// A path of a chart as seen from the working directory.
pub(crate) fn normal(base: &str, chart: &str) -> String {
    if !is_local(chart) || chart.starts_with('/') { chart.to_owned() } else { join(base, chart) }
}

/// Whether a release patches the rendered manifests of its chart.
pub(crate) fn has_patches(release: &Release) -> bool {
    !(release.json_patches.is_empty()
        && release.strategic_merge_patches.is_empty()
        && release.transformers.is_empty())
}

impl Helmfile {
    /// The directory of a release's chart, even if it has no `Chart.yaml`. `None` if there is no such directory.
    pub(crate) fn chart_directory(&self, release: &Release) -> Option<String> {
        let chart = self.chart(release);
        let path = if chart.starts_with('/') { chart.to_owned() } else { join(&self.base, chart) };
        self.place.is_directory(&path).then_some(path)
    }

    /// Whether the chart of a release must be built for it, because it has manifests, a kustomization, more dependencies, or
    /// patches.
    pub(crate) fn is_chartified(&self, release: &Release) -> bool {
        let is_chart = |directory: &String| self.place.is_file(&join(directory, "Chart.yaml"));
        self.chart_directory(release).is_some_and(|directory| !is_chart(&directory))
            || !release.dependencies.is_empty()
            || !release.force_namespace.is_empty()
            || has_patches(release)
    }

    /// Warnings about the hooks of an event, because windlass never runs the commands of hooks.
    ///
    /// # Errors
    /// The release has hooks, and hooks are disabled.
    pub(crate) fn skipped_hooks(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        hooks: &[Hook],
        event: &str,
        owner: &str,
    ) -> Result<Vec<String>> {
        if !hooks.is_empty() && helmfile_environment.is_on("HELMFILE_DISABLE_HOOKS") {
            return Err(
                format!("{owner}: HELMFILE_DISABLE_HOOKS is active, hooks are disabled").into()
            );
        }
        let is_run = |hook: &&Hook| hook.events.iter().any(|known| known == event);
        let said = hooks.iter().filter(is_run).map(|hook| {
            let name = hooks::name(hook);
            format!(
                "{owner}: the hook \"{name}\" of event \"{event}\" is not run, because windlass runs no programs: \
                 run it before if the result depends on it"
            )
        });
        Ok(said.collect())
    }

    /// The chart that is rendered for a release: the chart of the helmfile if it sets one for all releases, otherwise the
    /// release's own.
    pub(crate) fn chart<'c>(&'c self, release: &'c Release) -> &'c str {
        if self.spec.chart.is_empty() { &release.chart } else { &self.spec.chart }
    }

    /// Sets `chartPath` of the releases as `build` prints it. `temporary` is the directory in which helmfile would create
    /// charts.
    pub(crate) fn prepare_charts(
        &mut self,
        helmfile_environment: &HelmfileHostEnvironment,
        temporary: &str,
    ) -> Result<ChartPreparationReport> {
        let mut prepared = ChartPreparationReport::default();
        prepared.warnings.extend(self.skipped_hooks(
            helmfile_environment,
            &self.spec.hooks,
            "prepare",
            &self.path,
        )?);
        let mut paths = Vec::new();
        for release in &self.spec.releases {
            let is_prepared =
                self.is_selected(release)? && release.is_desired() && !has_patches(release);
            paths.push(match is_prepared {
                true => self.prepared(helmfile_environment, release, temporary, &mut prepared)?,
                false => None,
            });
        }
        for (release, path) in self.spec.releases.iter_mut().zip(paths) {
            if let Some(path) = path.filter(|path| *path != release.chart) {
                release.chart_path = path;
            }
        }
        prepared.warnings.extend(self.skipped_hooks(
            helmfile_environment,
            &self.spec.hooks,
            "cleanup",
            &self.path,
        )?);
        Ok(prepared)
    }

    fn prepared(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &Release,
        temporary: &str,
        prepared: &mut ChartPreparationReport,
    ) -> Result<Option<String>> {
        let owner = format!("release \"{}\"", release.name);
        prepared.warnings.extend(self.skipped_hooks(
            helmfile_environment,
            &release.hooks,
            "prepare",
            &owner,
        )?);
        self.check_address(release, self.chart(release)).map_err(|error| error.at(&owner))?;
        let release = &*self.with_fetched_chart(release).map_err(|error| error.at(&owner))?;
        let chart = self.chart(release);
        if self.is_chartified(release) {
            self.check_dependencies(release).map_err(|error| error.at(&owner))?;
            if self.is_kustomization(release) {
                if !release.set.is_empty() {
                    return Err(set_of_kustomization(&owner));
                }
                prepared.kustomizations += 1;
            }
            // Parity(helmfile 1.8): charts are made in temporary directories, whose numbers are drawn.
            let id = release.id().replace(':', "/");
            return Ok(Some(join(&format!("{temporary}/chartify0"), &id)));
        }
        let path = normal(&self.base, chart);
        Ok(self.place.is_directory(&path).then_some(path))
    }

    /// Whether the chart of a release is a kustomization.
    ///
    /// Parity(chartify): only `kustomization.yaml` makes a directory one.
    pub(crate) fn is_kustomization(&self, release: &Release) -> bool {
        self.chart_directory(release).is_some_and(|directory| {
            let has = |name| self.place.is_file(&join(&directory, name));
            !has("Chart.yaml") && has("kustomization.yaml")
        })
    }

    /// The release with its chart on the disk, if the chart is at a remote address.
    pub(crate) fn with_fetched_chart<'r>(&self, release: &'r Release) -> Result<Cow<'r, Release>> {
        if !self.spec.chart.is_empty() && is_remote(&self.spec.chart) {
            return Err(
                "--chart takes no address: fetch the chart first and name the local directory"
                    .into(),
            );
        }
        let Some(chart) = self.place.fetched(self.chart(release))? else {
            return Ok(Cow::Borrowed(release));
        };
        Ok(Cow::Owned(Release { chart, ..release.clone() }))
    }

    /// Refuses versions that registries do not have.
    pub(crate) fn check_address(&self, release: &Release, chart: &str) -> Result<()> {
        let is_oci = chart.starts_with("oci://")
            || in_repository(chart)
                .and_then(|(name, _)| self.repository(name))
                .is_some_and(|known| known.oci);
        if is_oci && release.version.split('@').next() == Some("latest") {
            return Err("the version for OCI charts should be semver compliant, the latest tag is not supported".into());
        }
        if release.force_go_getter && !is_remote(chart) {
            return Err(format!(
                "forceGoGetter is set, but the chart `{chart}` is no address of go-getter"
            )
            .into());
        }
        Ok(())
    }

    /// Checks that the charts which a release adds have versions.
    pub(crate) fn check_dependencies(&self, release: &Release) -> Result<()> {
        for dependency in &release.dependencies {
            let chart = &dependency.chart;
            if dependency.version.is_empty() {
                return Err(format!(
                    "the dependency `{chart}` has no version, which Helm 4 refuses: set `version`"
                )
                .into());
            }
            let metadata = join(&normal(&self.base, chart), "Chart.yaml");
            if !self.place.is_file(&metadata) {
                continue;
            }
            let metadata = yaml::read_map(&self.place.read(&metadata)?)?;
            let own = metadata.get("version").and_then(Value::as_str).unwrap_or_default();
            let is_allowed =
                match (VersionConstraint::parse(&dependency.version), SemverVersion::parse(own)) {
                    (Ok(range), Ok(own)) => range.matches(&own),
                    _ => false,
                };
            if !is_allowed {
                return Err(format!(
                    "the dependency `{chart}` has version {own}, but {} is wanted: change `version`",
                    dependency.version
                )
                .into());
            }
        }
        Ok(())
    }
}

pub(crate) fn set_of_kustomization(owner: &str) -> Error {
    format!("{owner}: `set` is not supported for kustomizations, use `values` instead").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_with_two_or_three_segments_is_in_a_repository() {
        for chart in ["./a/b", "../a", "/a/b", "app", "a/b/c/d", ""] {
            assert!(is_local(chart), "{chart}");
        }
        for chart in ["stable/app", "a/b/c", "oci://host/app"] {
            assert!(!is_local(chart), "{chart}");
        }
        assert_eq!(in_repository("stable/sub/app"), Some(("stable", "sub/app")));
        assert_eq!(in_repository("oci://host/app"), None);
        assert_eq!(normal("base", "./app"), "base/app");
        assert_eq!(normal("base", "stable/app"), "stable/app");
    }
}
