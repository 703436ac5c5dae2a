//! Renders a release for commands that write nothing to the cluster: manifests, hooks, and the definitions in `crds/`.
//!
//! Elsewhere: rendering within a run, which also judges and writes (`prepare_revision.rs`), reading manifests
//! (`manifest_objects.rs`).

use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use helm::chart::Chart;
use helm::render::{ReleaseToRender, RenderMode};
use helm::render_environment::RenderEnvironment;
use helm::template::{RenderRequest, render};
use objects::Object;

use super::manifest_objects;
use super::postrender::PostRenderers;

/// The inputs for rendering a release.
#[derive(Clone)]
pub struct HelmReleaseRenderInputs {
    /// The chart of the release.
    pub chart: Chart,
    /// The values that override the values of the chart.
    pub config: GoMap,
    /// The name, namespace and revision of the release.
    pub release: ReleaseToRender,
    /// Whether the values are not checked against the schema of the chart.
    pub skip_schema: bool,
    /// The post-renderers that change the rendered documents.
    pub post: PostRenderers,
}

/// The documents of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedManifests {
    /// The manifests of objects that are applied, in their order.
    pub manifests: String,
    /// The manifests of hooks.
    pub hooks: String,
}

impl HelmReleaseRenderInputs {
    /// Renders the release. The caller needs a thread with a stack of [`helm::render::REQUIRED_STACK_BYTES`].
    ///
    /// # Errors
    /// The message of Helm or of a post-renderer. It may contain values of Secrets.
    pub fn manifests(self, environment: &RenderEnvironment) -> Result<RenderedManifests, String> {
        let Self { chart, config, release, skip_schema, post } = self;
        let rendered = post.with(|post_render| {
            let request = RenderRequest {
                chart,
                values: &config,
                release,
                mode: RenderMode::default(),
                skip_schema,
                sub_notes: false,
                templates: None,
                post_render,
            };
            render(request, environment, &mut Vec::new())
        });
        let rendered = rendered.map_err(|error| error.to_string())?;
        let document = |text: &str| format!("---\n{text}\n");
        let manifests = rendered.manifests.iter().map(|it| document(&it.content)).collect();
        let hooks = rendered.hooks.iter().map(|it| document(&it.manifest)).collect();
        Ok(RenderedManifests { manifests, hooks })
    }
}

/// A time as templates see it. Charts are rendered in UTC, on any machine.
pub fn utc(now: jiff::Timestamp) -> GoTime {
    let nanoseconds = i64::from(now.subsec_nanosecond());
    GoTime::from_unix(now.as_second(), nanoseconds, GoTimeZone::fixed("UTC", 0))
}

/// The objects that a chart has in `crds/`.
///
/// # Errors
/// A file in `crds/` is not a manifest.
pub fn definitions(chart: &Chart) -> Result<Vec<Object>, String> {
    let mut found = Vec::new();
    for file in helm::chart::crds(chart) {
        let text = String::from_utf8_lossy(&file.file.data).into_owned();
        found.extend(manifest_objects::read(&text)?);
    }
    Ok(found)
}
