//! What a release renders, for commands that write nothing: manifests, hooks, and the definitions in `crds/`.
//!
//! Elsewhere: rendering within a run, which also judges and writes (`prepare_revision.rs`), reading manifests (`manifest_objects.rs`).

use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use helm::chart::Chart;
use helm::render::{ReleaseToRender, RenderMode};
use helm::render_environment::RenderEnvironment;
use helm::template::{RenderRequest, render};
use objects::Object;

use super::manifest_objects;
use super::postrender::PostRenderers;

/// A release that is to be rendered.
#[derive(Clone)]
pub struct HelmReleaseRendering {
    /// Its chart.
    pub chart: Chart,
    /// What the values of the chart are overridden with.
    pub config: GoMap,
    /// Its name, namespace and revision.
    pub release: ReleaseToRender,
    /// Whether the values are not checked against the schema of the chart.
    pub skip_schema: bool,
    /// What is done to the documents before they are manifests.
    pub post: PostRenderers,
}

/// The documents of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedManifests {
    /// Those that are applied, in their order.
    pub manifests: String,
    /// Those of hooks.
    pub hooks: String,
}

impl HelmReleaseRendering {
    /// Renders the release. Call it on a thread with a stack of [`helm::render::REQUIRED_STACK_BYTES`].
    ///
    /// # Errors
    /// The message of Helm or of a post-renderer; values of Secrets may be in it.
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

/// A moment as templates see it: charts are rendered in UTC, wherever windlass runs.
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
