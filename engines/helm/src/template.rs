//! Renders a chart with values into the manifests and hooks of a release. These are the steps of `helm install` before
//! it writes to a cluster.
//!
//! Here: the steps and their order. Elsewhere: each step (`chart`, `values`, `schema`, `render`, `manifests`, and
//! `template/postrender.rs`), and everything that needs a cluster.

mod postrender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use golang::GoRuntimeValue;
use golang::semver::{SemverVersion, VersionConstraint};
use golang::value::GoMap;
use golang::work_meter::WorkMeter;
use gotemplate::{TemplateBudget, TemplateLimits};

use crate::chart::Chart;
use crate::manifests::{self, ManifestOrder, ReleaseHook, ReleaseManifest, SortedManifests};
use crate::releasename;
use crate::render::{self, ChartTemplates, ReleaseToRender, RenderInput, RenderMode};
use crate::render_environment::RenderEnvironment;
use crate::schema::{self, SchemaError};
use crate::values::{self, coalesce_until, process_dependencies_until};
use crate::warning::{HelmWarning, WarningLevel};

pub use postrender::{
    ManifestStreamError, NotAMapError, PostRenderError, PostRenderGroup, PostRenderStep,
    PostRenderStepError, PostRendererFn, PostRendererStrategy, UnknownPostRendererStrategy,
};

/// The inputs and options of a render.
#[derive(Debug)]
pub struct RenderRequest<'r> {
    /// The loaded chart.
    pub chart: Chart,
    /// The values of the user.
    pub values: &'r GoMap,
    /// The release for which the chart is rendered.
    pub release: ReleaseToRender,
    /// Options for running templates.
    pub mode: RenderMode,
    /// Whether to skip the validation of values against the charts' schemas.
    pub skip_schema: bool,
    /// Whether the notes of sub-charts are added to the notes.
    pub sub_notes: bool,
    /// Parsed templates that an earlier call returned. They are used if they belong to this chart.
    pub templates: Option<ChartTemplates>,
    /// The post-renderer. It changes the rendered text, except the notes, before the text is split into manifests and
    /// hooks.
    pub post_render: Option<PostRenderStep<'r>>,
}

/// The parts of a rendered release.
#[derive(Debug)]
pub struct RenderedRelease {
    /// The chart with its enabled dependencies.
    pub chart: Chart,
    /// The parsed templates, for the next render.
    pub templates: ChartTemplates,
    /// The manifests, in the order in which they are applied.
    pub manifests: Vec<ReleaseManifest>,
    /// The hooks, sorted by kind.
    pub hooks: Vec<ReleaseHook>,
    /// The notes that a user reads after an installation.
    pub notes: Vec<u8>,
}

/// The reason why a chart could not be rendered into a release. The messages are Helm's. They may contain values of the
/// user, and therefore secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the release is not valid.
    #[error("release name check failed: release name {0}: {1}")]
    Name(String, releasename::InvalidReleaseName),
    /// Dependencies could not be processed.
    #[error("chart dependencies processing failed: {0}")]
    Dependencies(values::Error),
    /// The values could not be merged.
    #[error(transparent)]
    Values(#[from] values::Error),
    /// The values do not match the charts' schemas.
    #[error(
        "values don't meet the specifications of the schema(s) in the following chart(s):\n{0}"
    )]
    Schema(SchemaError),
    /// The chart does not support the version of Kubernetes.
    #[error("chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {found}")]
    KubeVersion {
        /// The range of versions that the chart supports.
        wanted: String,
        /// The version of the cluster.
        found: String,
    },
    /// The time of the caller is over. The text says during which step.
    #[error("the time limit is reached {0}")]
    TooLong(&'static str),
    /// A template failed.
    #[error(transparent)]
    Render(#[from] render::Error),
    /// The rendered text could not be given to the post-renderer, or its answer cannot be used.
    #[error(transparent)]
    PostRender(#[from] PostRenderError),
    /// A rendered text is not a manifest.
    #[error("{error}")]
    Manifests {
        /// The file, and why it is not a manifest.
        error: manifests::Error,
        /// All rendered files by path. After a post-renderer, they are its result.
        files: BTreeMap<String, Vec<u8>>,
    },
}

impl Error {
    /// Whether Helm has a release at this point, so that the rendered files can be shown to the user.
    pub fn is_of_release(&self) -> bool {
        match self {
            Self::KubeVersion { .. }
            | Self::TooLong(_)
            | Self::Render(_)
            | Self::PostRender(_)
            | Self::Manifests { .. } => true,
            Self::Name(..) | Self::Dependencies(_) | Self::Values(_) | Self::Schema(_) => false,
        }
    }
}

/// Renders a release. The warnings that Helm would log are added to `warnings`, even if there is an error.
///
/// # Errors
/// The first step that fails.
///
/// # Assumes
/// The thread has a stack of [`render::REQUIRED_STACK_BYTES`].
pub fn render(
    request: RenderRequest<'_>,
    env: &RenderEnvironment,
    warnings: &mut Vec<HelmWarning>,
) -> Result<RenderedRelease, Error> {
    let RenderRequest {
        mut chart,
        values: user,
        release,
        mode,
        skip_schema,
        sub_notes,
        templates,
        post_render,
    } = request;
    let failed = |what: &str, error: &dyn ToString| {
        HelmWarning::new(WarningLevel::Error, what).with_value("error", error.to_string())
    };
    if let Err(problem) = releasename::check(&release.name) {
        let error = Error::Name(releasename::quoted(&release.name), problem);
        let inner = format!("release name {}: {problem}", releasename::quoted(&release.name));
        warnings.push(failed("release name check failed", &inner));
        return Err(error);
    }
    let mut budget = TemplateBudget::with_stop(TemplateLimits::default(), env.stop.clone());
    match process_dependencies_until(&mut chart, user, env.stop.clone()) {
        Ok(mut said) => warnings.append(&mut said),
        Err(error) => {
            warnings.push(failed("chart dependencies processing failed", &error));
            return Err(Error::Dependencies(error));
        }
    }
    let mut coalesced = coalesce_until(&chart, user, env.stop.clone())?;
    warnings.append(&mut coalesced.warnings);
    if !skip_schema {
        check_schema(&chart, &coalesced.values, budget.meter(), warnings)?;
    }
    check_kube_version(&chart, env)?;
    let templates = match templates.filter(|templates| templates.are_of(&chart)) {
        Some(templates) => templates,
        None => ChartTemplates::parse(&chart)?,
    };
    let input = RenderInput { chart: &chart, values: &coalesced.values, release: &release };
    let mut files = templates.render_within(input, env, mode, &mut budget, warnings)?;
    let notes = take_notes(&mut files, &chart, sub_notes);
    let late =
        |at, budget: &mut TemplateBudget| budget.meter().look().map_err(|_| Error::TooLong(at));
    late("before post-rendering", &mut budget)?;
    if let Some(post_render) = post_render {
        files = postrender::apply(&post_render, files, warnings)?;
    }
    late("before the manifests are sorted", &mut budget)?;
    let sorted = manifests::sort(&files, ManifestOrder::Install);
    let sorted = sorted.map_err(|error| Error::Manifests { error, files })?;
    let SortedManifests { hooks, manifests, unknown_hooks } = sorted;
    warn_of_unknown_hooks(unknown_hooks, warnings);
    Ok(RenderedRelease { chart, templates, manifests, hooks, notes })
}

fn warn_of_unknown_hooks(unknown: Vec<String>, warnings: &mut Vec<HelmWarning>) {
    warnings.extend(unknown.into_iter().map(|events| {
        // The events come from the chart, which may take them from the values.
        HelmWarning::new(WarningLevel::Info, "skipping unknown hooks")
            .with_value("hookTypes", events)
    }));
}

/// Renders `template` into the name of a release, as the flag `--name-template` does.
///
/// Differs(helm 4): the functions `env` and `expandenv` do not exist; those that read YAML and TOML do.
///
/// # Errors
/// The template cannot be parsed or rendered. The message is Go's.
pub fn name(template: &str, env: &RenderEnvironment) -> Result<String, String> {
    render::text("name-template", template, env)
}

/// Takes the notes out of the rendered files.
fn take_notes(files: &mut BTreeMap<String, Vec<u8>>, chart: &Chart, with_subs: bool) -> Vec<u8> {
    const SUFFIX: &str = "NOTES.txt";
    let own = format!("{}/templates/{SUFFIX}", chart.metadata.name);
    let names: Vec<String> = files.keys().filter(|name| name.ends_with(SUFFIX)).cloned().collect();
    let mut notes = Vec::new();
    for name in names {
        let text = files.remove(&name).unwrap_or_default();
        if with_subs || name == own {
            if !notes.is_empty() {
                notes.push(b'\n');
            }
            notes.extend_from_slice(&text);
        }
    }
    notes
}

fn check_kube_version(chart: &Chart, env: &RenderEnvironment) -> Result<(), Error> {
    let wanted = &chart.metadata.kube_version;
    let found = &env.capabilities.kube_version;
    let is_in = || {
        let range = VersionConstraint::parse(wanted).ok()?;
        Some(range.matches(&SemverVersion::parse(found.compared()).ok()?))
    };
    if wanted.is_empty() || is_in() == Some(true) {
        return Ok(());
    }
    Err(Error::KubeVersion { wanted: wanted.clone(), found: found.version.clone() })
}

/// Checks values against the schemas of the charts, and adds Helm's log messages, including those of `--debug`.
fn check_schema(
    chart: &Chart,
    values: &GoMap,
    meter: &mut WorkMeter,
    warnings: &mut Vec<HelmWarning>,
) -> Result<(), Error> {
    let mut pending = vec![(chart, values.clone())];
    while let Some((chart, values)) = pending.pop() {
        warnings.push(
            HelmWarning::new(WarningLevel::Debug, "number of dependencies in the chart")
                .with("chart", &chart.metadata.name)
                .with("dependencies", chart.charts.len().to_string()),
        );
        pending.extend(chart.charts.iter().rev().filter_map(|sub| {
            match values.get(sub.metadata.name.as_bytes()) {
                Some(GoRuntimeValue::Map(values)) => Some((sub, values)),
                _ => None,
            }
        }));
    }
    schema::validate_within(chart, values, meter, warnings).map_err(Error::Schema)
}

/// Manifests as Helm stores and prints them, each with the path of its file.
pub fn text<'m>(manifests: impl IntoIterator<Item = (&'m str, &'m [u8])>) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, content) in manifests {
        for part in [b"---\n# Source: ", path.as_bytes(), b"\n", content, b"\n"] {
            text.extend_from_slice(part);
        }
    }
    text
}
