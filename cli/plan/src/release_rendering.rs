//! The objects of a release, rendered as the operator renders them, without a cluster: at a fixed time and with fixed
//! randomness, so that only what changes in the repository makes a difference.
//!
//! Elsewhere: what a release depends on (`release_inputs.rs`), rendering
//! (`helm_controller::release_runner::manifest_rendering`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crds::helm::CrdsPolicy;
use golang::time::GoTimeZone;
use golang::work_meter::StopSignal;
use helm::capabilities::Capabilities;
use helm::render::ReleaseToRender;
use helm::render_environment::{ClusterLookup, LookupQuery, RandomFill, RenderEnvironment};
use helm_controller::helm_release::validated_spec::read_without_chart;
use helm_controller::helm_release::values;
use helm_controller::release_runner::manifest_objects;
use helm_controller::release_runner::manifest_rendering::{
    HelmReleaseRendering, RenderedManifests, definitions, utc,
};
use objects::Object;
use parking_lot::Mutex;
use plan::{RenderedApplier, UnknownValue};
use release::OperationKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::chart_fetch::ChartFetcher;
use super::release_inputs::ReleaseInputs;
use super::resource_scope::DeclaredKindScopes;
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};
use windlass_serve::settings::OperatorSettings;

/// When charts are rendered, in seconds since 1970: not now, since two renderings would differ.
const RENDER_TIME_SECONDS: i64 = 1_767_225_600;

/// Renders releases.
pub(crate) struct ReleaseRenderer {
    pub(crate) charts: ChartFetcher,
    /// What the cluster can do, besides the kinds that the repository declares.
    pub(crate) capabilities: Capabilities,
    pub(crate) settings: OperatorSettings,
}

/// What a release has.
struct ReleaseObjects {
    objects: Vec<Object>,
    chart: String,
    unknown_values: Vec<UnknownValue>,
}

impl ReleaseRenderer {
    /// The objects of a release, for an upgrade or an installation, added to what is known of its applier.
    pub(crate) fn render(
        &self,
        inputs: &ReleaseInputs,
        kinds: &DeclaredKindScopes,
        is_upgrade: bool,
        begun: RenderedApplier,
    ) -> RenderedApplier {
        match self.rendered(inputs, kinds, is_upgrade) {
            Ok(ReleaseObjects { objects, chart, unknown_values }) => {
                RenderedApplier { objects, source_revision: chart, unknown_values, ..begun }
            }
            Err(text) => RenderedApplier { failure: Some(text), ..begun },
        }
    }

    fn rendered(
        &self,
        inputs: &ReleaseInputs,
        kinds: &DeclaredKindScopes,
        is_upgrade: bool,
    ) -> Result<ReleaseObjects, String> {
        let release = &inputs.release;
        let chart = inputs.chart.as_ref().map_err(Clone::clone)?.load(&self.charts)?;
        let chart_text = format!("{}@{}", chart.metadata.name, chart.metadata.version);
        let namespace = release.metadata.namespace.clone().unwrap_or_default();
        let values = values::compose(&namespace, &release.spec, &inputs.references)
            .map_err(|outcome| outcome.text().to_owned())?;
        let spec = read_without_chart(release, &self.settings);
        let operation = if is_upgrade { OperationKind::Upgrade } else { OperationKind::Install };
        let options = *spec.options.of_action(operation);
        let target = spec.release.target;
        let mut objects = match options.crds {
            CrdsPolicy::CreateReplace => kept_definitions(definitions(&chart)?),
            CrdsPolicy::Create | CrdsPolicy::Skip => Vec::new(),
        };
        let rendering = HelmReleaseRendering {
            chart,
            config: values.map,
            release: ReleaseToRender {
                name: target.name.clone(),
                namespace: target.namespace.clone(),
                revision: 1,
                is_upgrade,
            },
            skip_schema: options.skip_schema,
            post: spec.post,
        };
        let lookups = Arc::new(UnansweredLookups::default());
        let stop = StopSignal::default();
        let _limit = TimeLimit::start(TIME_LIMIT, &stop);
        let environment = self.environment(kinds, lookups.clone(), stop);
        let rendered = rendering.manifests(&environment);
        let RenderedManifests { manifests, .. } =
            rendered.map_err(|text| values.secrets.mask(&text))?;
        let read = manifest_objects::read(&manifests);
        objects.extend(read.map_err(|text| values.secrets.mask(&text))?);
        for object in &mut objects {
            kinds.place(object, Some(&target.namespace));
        }
        let mut unknown_values = inputs.unknown_values.clone();
        unknown_values.extend(lookups.unknown_values());
        if spec.options.preserve_values {
            unknown_values.push(UnknownValue {
                what: "values of the last revision".to_owned(),
                reason: "spec.upgrade.preserveValues takes them from the cluster".to_owned(),
            });
        }
        Ok(ReleaseObjects { objects, chart: chart_text, unknown_values })
    }

    fn environment(
        &self,
        kinds: &DeclaredKindScopes,
        lookups: Arc<UnansweredLookups>,
        stop: StopSignal,
    ) -> RenderEnvironment {
        let mut capabilities = self.capabilities.clone();
        capabilities.api_versions.extend(kinds.api_versions.iter().cloned());
        let time = jiff::Timestamp::from_second(RENDER_TIME_SECONDS);
        RenderEnvironment {
            now: utc(time.unwrap_or(jiff::Timestamp::UNIX_EPOCH)),
            local: GoTimeZone::fixed("UTC", 0),
            random: fixed_randomness(),
            capabilities: Arc::new(capabilities),
            cluster: Some(lookups),
            stop,
            names: None,
        }
    }
}

/// The definitions of `crds/`, which no upgrade deletes.
fn kept_definitions(mut definitions: Vec<Object>) -> Vec<Object> {
    for definition in &mut definitions {
        definition.set_annotation(manifest_objects::POLICY, "keep");
    }
    definitions
}

/// The same bytes for each rendering.
fn fixed_randomness() -> Arc<RandomFill> {
    let blocks = AtomicU64::new(0);
    Arc::new(move |buffer: &mut [u8]| {
        for chunk in buffer.chunks_mut(32) {
            let block = Sha256::digest(blocks.fetch_add(1, Ordering::Relaxed).to_le_bytes());
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    })
}

/// What templates ask the cluster for. They find nothing, as with `helm template`.
#[derive(Default)]
struct UnansweredLookups(Mutex<BTreeSet<String>>);

impl UnansweredLookups {
    fn unknown_values(&self) -> Vec<UnknownValue> {
        let unknown = |what: &String| UnknownValue {
            what: what.clone(),
            reason: "a template looks it up in the cluster, and found nothing here".to_owned(),
        };
        self.0.lock().iter().map(unknown).collect()
    }
}

impl ClusterLookup for UnansweredLookups {
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Value>, String> {
        let LookupQuery { kind, namespace, name, .. } = wanted;
        let named: Vec<&str> =
            [*kind, *namespace, *name].into_iter().filter(|it| !it.is_empty()).collect();
        self.0.lock().insert(named.join("/"));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_renderings_draw_the_same_random_bytes() {
        let drawn = || {
            let random = fixed_randomness();
            let mut buffer = [0_u8; 40];
            random(&mut buffer);
            random(&mut buffer[..3]);
            buffer
        };
        assert_eq!(drawn(), drawn());
        assert_ne!(drawn()[..8], drawn()[8..16]);
    }
}
