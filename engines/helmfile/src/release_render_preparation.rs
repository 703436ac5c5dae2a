//! Prepares releases for rendering, in the order of their needs. Each one has its chart, values and flags of Helm.
//!
//! Elsewhere: building charts (`chartify.rs`), rendering with Helm (the caller).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use helm::chart::ChartFile;
use serde_json::Value;

use crate::chart_reference_resolution::{is_local, normal};
use crate::chartify::{HelmChartRenderer, finished};
use crate::deps::ReleaseWithRepositoryChart;
use crate::error::{PartialOutput, Result};
use crate::error_trace::HelmfileErrorTrace;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::hooks::{self, ManifestHook};
use crate::load::Helmfile;
use crate::plan::{HelmfileProcessingPlan, ReleaseIdentity};
use crate::release_graph::{NeedsPolicy, groups};
use crate::release_operation_flags::ReleaseOperationSettings;
use crate::release_selector::{check_duplicates, selected};
use crate::secret_references;
use crate::spec::{Release, SetValue};
use crate::working_directory::base;
use crate::yaml;
use golang::path::clean;

/// The purpose of rendering releases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RenderPurpose {
    /// `template`.
    #[default]
    Template,
    /// `lint`.
    Lint,
    /// `diff`.
    Diff,
    /// `apply`: Helm operations, including hooks that apply manifests.
    Apply,
}

impl RenderPurpose {
    /// Whether releases that must be uninstalled are returned, too.
    fn has_unwanted(self) -> bool {
        matches!(self, Self::Diff | Self::Apply)
    }
}

/// Flags of `template`, `lint` and `diff`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RenderCommandFlags {
    /// Which command this is for.
    pub purpose: RenderPurpose,
    /// Whether charts in local directories are not added to the charts that depend on them.
    pub skip_deps: bool,
    /// Also includes the releases that selected releases need directly or indirectly.
    pub include_needs: bool,
    /// Leaves out needed releases that are not selected, instead of an error. `include_needs` takes precedence.
    pub skip_needs: bool,
    /// `--include-crds` of Helm.
    pub include_crds: bool,
    /// `--skip-tests` of Helm.
    pub skip_tests: bool,
    /// `--no-hooks` of Helm.
    pub no_hooks: bool,
    /// `--skip-schema-validation` of Helm.
    pub skip_schema_validation: bool,
    /// The version of Kubernetes. It takes precedence over those of releases.
    pub kube_version: String,
    /// `--show-only` of Helm.
    pub show_only: Vec<String>,
    /// `--set` of Helm, above all values of releases.
    pub set: Vec<String>,
    /// Values files that override those of releases. Paths are relative to each helmfile.
    pub values: Vec<String>,
    /// More flags of `helm template`, in place of `helmDefaults.args`.
    pub args: String,
    /// More flags of `helm template`, in place of `helmDefaults.templateArgs`.
    pub template_args: String,
}

/// Where the chart of a release is.
#[derive(Debug, Clone)]
pub enum ReleaseChartLocation {
    /// A directory or an archive, as an absolute path.
    Path(String),
    /// Made for the release.
    Files {
        /// The name of the chart in messages.
        place: String,
        /// The files of the chart.
        files: Vec<ChartFile>,
    },
    /// A helmfile may not refer to this location. Only for [`RenderPurpose::Apply`].
    Refused {
        /// The reason, for users.
        why: String,
    },
}

/// A release to be rendered.
#[derive(Debug, Clone)]
pub struct HelmfileReleaseToRender {
    /// The name of the release.
    pub name: String,
    /// The namespace of the release; empty for the namespace of the context.
    pub namespace: String,
    /// The kubeconfig context of the release; empty for the current context.
    pub kube_context: String,
    /// The chart's name in helmfile's output: a path relative to the working directory, or the name in a repository.
    pub shown: String,
    /// The chart of the release.
    pub chart: ReleaseChartLocation,
    /// Identifies the changes of the release to a chart that was refused: dependencies, patches, a namespace. It is empty
    /// without changes. It is also empty for other charts, because they contain the changes already.
    pub chart_changes: String,
    /// The content of values files. Later ones take precedence.
    pub values: Vec<Vec<u8>>,
    /// Flags of `helm template` or `helm lint`.
    pub flags: Vec<String>,
    /// The id that other releases use in `needs`.
    pub id: String,
    /// The needed releases, by [`HelmfileReleaseToRender::id`].
    pub needs: Vec<String>,
    /// The number of the release's helmfile. helmfile begins with a helmfile only after all earlier ones are done.
    pub helmfile: usize,
    /// The files that led to the release's helmfile. Errors begin with them.
    pub trail: HelmfileErrorTrace,
    /// The absolute path of its helmfile.
    pub file: String,
    /// The options of Helm operations. Only for [`RenderPurpose::Apply`].
    pub operation: ReleaseOperationSettings,
    /// The manifests that its hooks apply. Only for [`RenderPurpose::Apply`].
    pub hooks: Vec<ManifestHook>,
    /// How many empty lines are printed before this release. helmfile prints one for each kustomization of a helmfile, before
    /// all releases of that helmfile.
    pub empty_lines: usize,
}

/// A release that must be uninstalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmfileReleaseToUninstall {
    /// The name of the release.
    pub name: String,
    /// The namespace of the release; empty for the namespace of the context.
    pub namespace: String,
    /// The kubeconfig context of the release; empty for the current context.
    pub kube_context: String,
    /// The chart's name in helmfile's output.
    pub shown: String,
}

/// All releases to be rendered.
#[derive(Debug, Clone, Default)]
pub struct HelmfileReleasesToRender {
    /// The releases in the order in which they are printed.
    pub releases: Vec<HelmfileReleaseToRender>,
    /// Selected releases that are not to be installed, for [`RenderPurpose::Diff`] and [`RenderPurpose::Apply`] only.
    pub unwanted: Vec<HelmfileReleaseToUninstall>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Whether any release was found.
    pub has_releases: bool,
}

impl HelmfileProcessingPlan {
    /// Prepares all releases for the command `template`.
    ///
    /// # Errors
    /// A release or a file that it names is not valid, or a chart is not on the disk.
    pub fn renderings(
        self,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
    ) -> Result<HelmfileReleasesToRender> {
        self.renderings_until_error(options, helm).whole()
    }

    /// Like [`HelmfileProcessingPlan::renderings`], but keeps the releases that helmfile has rendered before one that fails.
    ///
    /// # Assumes
    /// The caller does not remove releases that are missing from this incomplete result.
    pub fn renderings_until_error(
        self,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
    ) -> PartialOutput<HelmfileReleasesToRender> {
        let mut all = HelmfileReleasesToRender::default();
        let mut hook_bytes = hooks::MAX_HOOK_MANIFEST_BYTES;
        for (number, mut helmfile) in self.helmfiles.into_iter().enumerate() {
            let done = helmfile.render_all(
                &self.helmfile_environment,
                options,
                helm,
                &mut hook_bytes,
                &mut all,
            );
            all.releases.iter_mut().rev().take_while(|it| it.trail.is_empty()).for_each(|it| {
                it.trail.clone_from(&helmfile.trail);
                it.file.clone_from(&helmfile.file);
                it.helmfile = number;
            });
            if let Err(error) = done {
                return PartialOutput {
                    made: all,
                    error: Some(error.at(&helmfile.trail.to_string())),
                };
            }
        }
        PartialOutput { made: all, error: None }
    }
}

/// The chart of a release, and the name of the release.
struct PreparedChart {
    named: HelmfileReleaseToUninstall,
    /// Parity(helmfile 1.8): a chart that is not there fails its release only when that is rendered.
    chart: Result<ReleaseChartLocation>,
}

impl Helmfile {
    /// Adds the selected releases of this helmfile to `all`. If one fails, the releases before it stay added.
    ///
    /// Parity(helmfile 1.8): charts of all releases are made before the first one is rendered.
    fn render_all(
        &mut self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
        hook_bytes: &mut usize,
        all: &mut HelmfileReleasesToRender,
    ) -> Result<()> {
        let said =
            self.skipped_hooks(helmfile_environment, &self.spec.hooks, "prepare", &self.path)?;
        all.warnings.extend(said);
        self.apply_lock()?;
        let Some(releases) = self.to_render(options)? else { return Ok(()) };
        all.has_releases = true;
        let (releases, unwanted): (Vec<_>, Vec<_>) =
            releases.into_iter().partition(Release::is_desired);
        if options.purpose == RenderPurpose::Apply {
            for release in &unwanted {
                self.refuse_hooks(release).map_err(|error| error.at(&owner(release)))?;
            }
        }
        if options.purpose.has_unwanted() {
            all.unwanted.extend(unwanted.iter().map(|release| self.unwanted(release)));
        }
        let mut charts = Vec::new();
        for release in &releases {
            let chart = self.prepared_chart(helmfile_environment, release, options, helm);
            charts.push(chart.map_err(|error| error.at(&owner(release)))?);
        }
        let mut empty_lines = releases.iter().filter(|it| self.is_kustomization(it)).count();
        for (release, chart) in releases.iter().zip(charts) {
            let owner = owner(release);
            all.warnings.extend(self.skipped_hooks(
                helmfile_environment,
                &release.hooks,
                "prepare",
                &owner,
            )?);
            let rendering = self.rendering(helmfile_environment, release, chart, options);
            let mut rendering = rendering.map_err(|error| error.at(&owner))?;
            rendering.empty_lines = std::mem::take(&mut empty_lines);
            if options.purpose == RenderPurpose::Apply {
                let hooks = self.manifest_hooks(helmfile_environment, release, hook_bytes);
                rendering.hooks = hooks.map_err(|error| error.at(&owner))?;
            }
            all.releases.push(rendering);
        }
        Ok(())
    }

    fn unwanted(&self, release: &Release) -> HelmfileReleaseToUninstall {
        let ReleaseIdentity { name, namespace, kube_context } = self.identity(release);
        HelmfileReleaseToUninstall {
            name,
            namespace,
            kube_context,
            shown: normal(&self.base, self.chart(release)),
        }
    }

    pub(crate) fn identity(&self, release: &Release) -> ReleaseIdentity {
        ReleaseIdentity {
            name: release.name.clone(),
            namespace: release.namespace.clone(),
            kube_context: self.kube_context(release),
        }
    }

    /// The context of a release.
    fn kube_context(&self, release: &Release) -> String {
        let of_environment = self.spec.environments.get(&self.environment.name);
        let of_environment = of_environment.map_or("", |known| known.kube_context.as_str());
        let contexts =
            [&release.kube_context, of_environment, &self.spec.helm_defaults.kube_context];
        contexts.into_iter().find(|context| !context.is_empty()).unwrap_or_default().to_owned()
    }

    /// The releases to render, in order, followed by the releases that must not be installed; `None` if none is selected.
    fn to_render(&self, options: &RenderCommandFlags) -> Result<Option<Vec<Release>>> {
        let all = &self.spec.releases;
        let chosen = selected(all, &self.selectors, &self.values, false)?;
        if chosen.is_empty() {
            return Ok(None);
        }
        check_duplicates(&chosen)?;
        // If several releases have the same name, only the selected one counts.
        let mut selected_of: BTreeMap<String, &Release> =
            chosen.iter().rev().map(|release| (release.id(), release)).collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        all.iter().for_each(|release| *counts.entry(release.id()).or_default() += 1);
        let mut known: Vec<Release> = Vec::new();
        for release in all {
            let id = release.id();
            let is_alone = counts.get(&id) == Some(&1);
            if is_alone {
                known.push(release.clone());
            } else {
                known.extend(selected_of.remove(&id).cloned());
            }
        }
        let needs = match (options.include_needs, options.skip_needs) {
            (true, _) => NeedsPolicy::Include,
            (false, true) => NeedsPolicy::Skip,
            (false, false) => NeedsPolicy::Refuse,
        };
        let planned = groups(&known, &chosen, needs)?.into_iter().flatten();
        let (desired, unwanted): (Vec<_>, Vec<_>) = planned.partition(Release::is_desired);
        if desired.is_empty() {
            return Ok(Some(unwanted));
        }
        let desired = groups(&known, &desired, needs)?.into_iter().flatten();
        Ok(Some(desired.filter(Release::is_desired).chain(unwanted).collect()))
    }

    /// The chart of a release. It is built if necessary.
    fn prepared_chart(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
    ) -> Result<PreparedChart> {
        self.refuse_programs(release, options.purpose)?;
        self.check_address(release, self.chart(release))?;
        let fetched = &*self.with_fetched_chart(release)?;
        let charted = match self.with_chart_of_repository(helmfile_environment, fetched)? {
            ReleaseWithRepositoryChart::Available(charted) => charted,
            ReleaseWithRepositoryChart::Refused(why) if options.purpose == RenderPurpose::Apply => {
                let chart = Ok(ReleaseChartLocation::Refused { why: why.to_string() });
                return Ok(PreparedChart { named: self.unwanted(fetched), chart });
            }
            ReleaseWithRepositoryChart::Refused(why) => return Err(why),
        };
        let charted = &**charted;
        let chart = match self.is_chartified(charted) {
            true => {
                self.check_dependencies(charted)?;
                Ok(self.chartified(helmfile_environment, charted, options, helm)?)
            }
            false => self.chart_of(charted, options),
        };
        Ok(PreparedChart { named: self.unwanted(fetched), chart })
    }

    fn rendering(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        prepared: PreparedChart,
        options: &RenderCommandFlags,
    ) -> Result<HelmfileReleaseToRender> {
        let values = self.all_values(helmfile_environment, release)?;
        let flags = match options.purpose {
            RenderPurpose::Lint => self.lint_flags(helmfile_environment, release, options)?,
            _ => self.template_flags(helmfile_environment, release, options)?,
        };
        let chart_changes = match &prepared.chart {
            // If the changes themselves are invalid, that is reported once the chart is available.
            Ok(ReleaseChartLocation::Refused { .. }) => self
                .chart_changes_digest(helmfile_environment, release)
                .unwrap_or_else(|error| error.to_string()),
            _ => String::new(),
        };
        let HelmfileReleaseToUninstall { name, namespace, kube_context, shown } = prepared.named;
        Ok(HelmfileReleaseToRender {
            name,
            namespace,
            kube_context,
            shown,
            chart: prepared.chart?,
            chart_changes,
            values,
            flags,
            id: release.id(),
            needs: release.needs.clone(),
            helmfile: 0,
            trail: HelmfileErrorTrace::default(),
            file: String::new(),
            operation: match options.purpose {
                RenderPurpose::Apply => self.operation(release)?,
                _ => ReleaseOperationSettings::default(),
            },
            hooks: Vec::new(),
            empty_lines: 0,
        })
    }

    /// The chart of a release on the disk.
    fn chart_of(
        &self,
        release: &Release,
        options: &RenderCommandFlags,
    ) -> Result<ReleaseChartLocation> {
        let chart = self.chart(release);
        let path = normal(&self.base, chart);
        if self.place.is_directory(&path)
            && self.builds_dependencies(release, options)
            && let Some(tree) = self.with_local_charts(&path)?
        {
            return finished(base(&clean(&path)), &tree);
        }
        if self.place.exists(&path) {
            return self.place.absolute_of(&path).map(ReleaseChartLocation::Path);
        }
        if is_local(chart) {
            return Err(format!("the chart `{path}` does not exist").into());
        }
        Err(format!(
            "the chart `{chart}` is in a repository or registry, which this command does not fetch: fetch it first \
             and name the local directory"
        )
        .into())
    }

    fn refuse_programs(&self, release: &Release, purpose: RenderPurpose) -> Result<()> {
        let renderer =
            release.post_renderer.as_ref().or(self.spec.helm_defaults.post_renderer.as_ref());
        let renderer = renderer.filter(|it| !it.is_empty() && purpose != RenderPurpose::Lint);
        if let Some(renderer) = renderer {
            return Err(format!(
                "postRenderer `{renderer}` is not supported, because it runs a program: use strategicMergePatches, \
                 jsonPatches or transformers"
            )
            .into());
        }
        let reuses = release.reuse_values.unwrap_or(self.spec.helm_defaults.reuse_values);
        if reuses && purpose.has_unwanted() {
            return Err("`reuseValues` is not supported, because values then depend on the cluster: put them into \
                        values files"
                .into());
        }
        if purpose == RenderPurpose::Apply {
            self.refuse_hooks(release)?;
        }
        Ok(())
    }

    /// The content of all values files that Helm gets for a release: first those of `values`, then those of `secrets`.
    pub(crate) fn all_values(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
    ) -> Result<Vec<Vec<u8>>> {
        let mut strings = self.release_values(helmfile_environment, release)?;
        strings.extend(self.release_secrets(helmfile_environment, release)?);
        Ok(strings)
    }

    /// The strings of the values files that `values` of a release become.
    pub(crate) fn release_values(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
    ) -> Result<Vec<Vec<u8>>> {
        let own = release.missing_file_handler.as_deref();
        let handler = own.or(self.spec.missing_file_handler.as_deref());
        let mut strings = Vec::new();
        for entry in &release.values {
            let prefixed = match entry {
                Value::String(path) => {
                    Cow::Owned(Value::String(format!("{}{path}", release.values_path_prefix)))
                }
                other => Cow::Borrowed(other),
            };
            let entry = secret_references::expand(helmfile_environment, &self.place, &prefixed)?;
            match &*entry {
                Value::String(path) => {
                    strings.extend(self.values_file(
                        helmfile_environment,
                        release,
                        handler,
                        path,
                    )?);
                }
                Value::Object(_) => strings.push(yaml::write_plain(&entry)?.into_bytes()),
                other => {
                    return Err(
                        format!("unexpected type of values entry: {}", yaml::kind(other)).into()
                    );
                }
            }
        }
        Ok(strings)
    }

    fn template_flags(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &Release,
        options: &RenderCommandFlags,
    ) -> Result<Vec<String>> {
        let defaults = &self.spec.helm_defaults;
        let mut flags = self.capability_flags(release, options);
        release
            .adopt
            .iter()
            .for_each(|object| flags.extend(["--adopt".to_owned(), object.clone()]));
        for path in &options.show_only {
            flags.extend(["--show-only".to_owned(), path.clone()]);
        }
        self.set_flags(helmfile_environment, release, &mut flags)?;
        self.given_flags(options, &mut flags)?;
        for (is_set, flag) in [
            (release.enable_dns.unwrap_or(defaults.enable_dns), "--enable-dns"),
            (self.skips_schema(release, options), "--skip-schema-validation"),
            (options.include_crds, "--include-crds"),
            (options.no_hooks, "--no-hooks"),
            (options.skip_tests, "--skip-tests"),
        ] {
            if is_set {
                flags.push(flag.to_owned());
            }
        }
        let args =
            if options.args.is_empty() { defaults.args.join(" ") } else { options.args.clone() };
        flags.extend(words(&args));
        flags.extend(words(&self.template_args(options)));
        Ok(flags)
    }

    /// The flags with which `helm lint` is called for a release.
    fn lint_flags(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &Release,
        options: &RenderCommandFlags,
    ) -> Result<Vec<String>> {
        let mut flags = Vec::new();
        if !release.namespace.is_empty() {
            flags.extend(["--namespace".to_owned(), release.namespace.clone()]);
        }
        self.set_flags(helmfile_environment, release, &mut flags)?;
        self.given_flags(options, &mut flags)?;
        flags.extend(words(&options.args));
        flags.extend(words(&self.spec.helm_defaults.args.join(" ")));
        Ok(flags)
    }

    /// The values that the command line sets for all releases.
    fn given_flags(&self, options: &RenderCommandFlags, flags: &mut Vec<String>) -> Result<()> {
        for path in &options.values {
            if !self.place.exists(path) {
                return Err(format!("open {path}: no such file or directory").into());
            }
            flags.extend(["--values".to_owned(), self.place.absolute_of(path)?]);
        }
        options.set.iter().for_each(|set| flags.extend(["--set".to_owned(), set.clone()]));
        Ok(())
    }

    /// Flags of `helm template` for the release itself.
    pub(crate) fn capability_flags(
        &self,
        release: &Release,
        options: &RenderCommandFlags,
    ) -> Vec<String> {
        let mut flags = Vec::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                flags.extend([name.to_owned(), value.to_owned()]);
            }
        };
        put("--namespace", &release.namespace);
        let own = &release.api_versions;
        let versions = if own.is_empty() { &self.spec.api_versions } else { own };
        versions.iter().for_each(|version| put("--api-versions", version));
        let versions = [&options.kube_version, &release.kube_version, &self.spec.kube_version];
        put(
            "--kube-version",
            versions.into_iter().find(|version| !version.is_empty()).map_or("", |it| it),
        );
        flags
    }

    /// More flags of `helm template`.
    pub(crate) fn template_args(&self, options: &RenderCommandFlags) -> String {
        match options.template_args.is_empty() {
            true => self.spec.helm_defaults.template_args.join(" "),
            false => options.template_args.clone(),
        }
    }

    pub(crate) fn skips_schema(&self, release: &Release, options: &RenderCommandFlags) -> bool {
        release.skip_schema_validation == Some(true)
            || options.skip_schema_validation
            || self.spec.helm_defaults.skip_schema_validation == Some(true)
    }

    /// `set`, `setString` and `env` of a release as flags.
    pub(crate) fn set_flags(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &Release,
        flags: &mut Vec<String>,
    ) -> Result<()> {
        for set in &release.set {
            let name = escaped(&set.name);
            if !set.value.is_empty() {
                let value =
                    secret_references::expand_text(helmfile_environment, &self.place, &set.value)?;
                flags.extend(["--set".to_owned(), format!("{name}={}", escaped(&value))]);
            } else if !set.file.is_empty() {
                let path = self.place.absolute_of(&self.storage().normal(&set.file))?;
                flags.extend(["--set-file".to_owned(), format!("{name}={path}")]);
            } else if !set.values.is_empty() {
                let items = self.items(helmfile_environment, set)?;
                flags.extend(["--set".to_owned(), format!("{name}={{{items}}}")]);
            }
        }
        for set in &release.set_string {
            let name = escaped(&set.name);
            if !set.value.is_empty() {
                let value =
                    secret_references::expand_text(helmfile_environment, &self.place, &set.value)?;
                flags.extend(["--set-string".to_owned(), format!("{name}={}", escaped(&value))]);
            } else if !set.values.is_empty() {
                let items = self.items(helmfile_environment, set)?;
                flags.extend(["--set-string".to_owned(), format!("{name}={{{items}}}")]);
            }
        }
        let mut pairs = Vec::new();
        for set in &release.env {
            let Some(value) = helmfile_environment.variable(&set.value) else {
                return Err(format!(
                    "Environment Variables not found. Please make sure they are set and try again:\n\t{}",
                    set.value
                )
                .into());
            };
            pairs.push(format!("{}={}", escaped(&set.name), escaped(value)));
        }
        if !pairs.is_empty() {
            flags.extend(["--set".to_owned(), pairs.join(",")]);
        }
        Ok(())
    }

    /// The items of `set[].values`. Only of texts references are followed.
    fn items(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        set: &SetValue,
    ) -> Result<String> {
        let mut items = Vec::new();
        for value in &set.values {
            items.push(escaped(&match value {
                Value::String(text) => {
                    secret_references::expand_text(helmfile_environment, &self.place, text)?
                }
                Value::Null => "<nil>".to_owned(),
                other => other.to_string(),
            }));
        }
        Ok(items.join(","))
    }
}

/// The name of a release in errors.
fn owner(release: &Release) -> String {
    format!("release \"{}\"", release.name)
}

/// Escapes a text so that Helm reads it as one value without lists.
fn escaped(text: &str) -> String {
    text.replace('{', "\\{").replace('}', "\\}").replace(',', "\\,")
}

/// The words of a command line.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut quote = None;
    let mut word: Option<String> = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, blank) if blank.is_whitespace() => words.extend(word.take()),
            (_, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_and_commas_are_part_of_a_value() {
        assert_eq!(escaped("a,{b}"), "a\\,\\{b\\}");
        assert_eq!(words("--a 'b c' \"\" d"), ["--a", "b c", "", "d"]);
    }
}
