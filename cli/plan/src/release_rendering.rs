//! Renders the objects of a release in the same way as the operator, but without a cluster. The time and the random numbers are
//! fixed, so only changes of the repository make a difference.
//!
//! Elsewhere: the inputs of a release (`release_inputs.rs`), random values and times (`nondeterministic_values.rs`), rendering
//! (`helm_controller::release_runner::manifest_rendering`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::helm::CrdsPolicy;
use golang::time::GoTimeZone;
use golang::work_meter::StopSignal;
use helm::capabilities::Capabilities;
use helm::render::ReleaseToRender;
use helm::render_environment::{ClusterLookup, LookupQuery, RenderEnvironment};
use helm_controller::helm_release::validated_spec::read_without_chart;
use helm_controller::helm_release::values;
use helm_controller::release_runner::manifest_objects;
use helm_controller::release_runner::manifest_rendering::{
    HelmReleaseRenderInputs, RenderedManifests, definitions, utc,
};
use objects::Object;
use parking_lot::Mutex;
use plan::{HelmReleaseTarget, RenderedApplier, UnknownValue};
use release::OperationKind;
use serde_json::Value;

use super::chart_fetch::ChartFetcher;
use super::nondeterministic_values::{TemplateRandomness, mask};
use super::release_inputs::ReleaseInputs;
use super::remote_file_fetcher::RemoteFileFetcher;
use super::render_failure::RenderFailure;
use super::resource_scope::DeclaredKindScopes;
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};
use windlass_serve::settings::OperatorSettings;

/// Renders releases.
pub(crate) struct ReleaseRenderer {
    pub(crate) charts: Arc<ChartFetcher>,
    /// The servers from which helmfiles fetch addresses.
    pub(crate) remote: Arc<RemoteFileFetcher>,
    /// The Kubernetes version and the API versions of the cluster, without the kinds that the repository declares.
    pub(crate) capabilities: Capabilities,
    pub(crate) settings: OperatorSettings,
    /// Whether the CRDs in `crds/` that upgrades replace count as objects of a release. Release records do not contain them.
    pub(crate) includes_definitions: bool,
    /// Whether random values and times from charts are masked, and named as unknown.
    pub(crate) masks_drawn_values: bool,
}

/// The rendered objects of a release.
pub(crate) struct RenderedObjects {
    /// The objects, with their final namespaces.
    pub(crate) objects: Vec<Object>,
    /// The name and the version of the chart.
    pub(crate) chart: String,
    /// The values that templates looked up in the cluster, or that they generated.
    pub(crate) unknown_values: Vec<UnknownValue>,
    /// Whether templates generated some of the values.
    pub(crate) has_drawn_values: bool,
}

impl ReleaseRenderer {
    /// Renders a release for an upgrade or an installation, and adds the objects to the facts about its applier.
    pub(crate) fn render(
        &self,
        inputs: &ReleaseInputs,
        kinds: &DeclaredKindScopes,
        is_upgrade: bool,
        begun: RenderedApplier,
    ) -> RenderedApplier {
        match self.rendered(inputs, kinds, is_upgrade) {
            Ok(RenderedObjects { objects, chart, unknown_values, has_drawn_values }) => {
                let name = chart.rsplit_once('@').map(|(name, _)| name.to_owned());
                let helm_release = begun.helm_release.map(|release| HelmReleaseTarget {
                    chart: name.unwrap_or_default(),
                    ..release
                });
                RenderedApplier {
                    objects,
                    source_revision: chart,
                    unknown_values,
                    has_drawn_values,
                    helm_release,
                    ..begun
                }
            }
            Err(failure) => {
                RenderedApplier { declaration_digest: inputs.digest(), ..failure.of_applier(begun) }
            }
        }
    }

    fn rendered(
        &self,
        inputs: &ReleaseInputs,
        kinds: &DeclaredKindScopes,
        is_upgrade: bool,
    ) -> Result<RenderedObjects, RenderFailure> {
        let release = &inputs.release;
        let chart = inputs.chart.as_ref().map_err(Clone::clone)?.load(&self.charts)?;
        let namespace = release.metadata.namespace.clone().unwrap_or_default();
        let values = values::compose(&namespace, &release.spec, &inputs.references)
            .map_err(|outcome| outcome.text().to_owned())?;
        let spec = read_without_chart(release, &self.settings);
        let operation = if is_upgrade { OperationKind::Upgrade } else { OperationKind::Install };
        let options = *spec.options.of_action(operation);
        let target = spec.release.target;
        let mut objects = match options.crds {
            CrdsPolicy::CreateReplace if self.includes_definitions => {
                kept_definitions(definitions(&chart)?)
            }
            CrdsPolicy::CreateReplace | CrdsPolicy::Create | CrdsPolicy::Skip => Vec::new(),
        };
        let rendering = HelmReleaseRenderInputs {
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
        for object in &mut objects {
            kinds.place(object, Some(&target.namespace));
        }
        let rendered = self.objects_of(rendering, kinds);
        let rendered = rendered.map_err(|text| values.secrets.mask(&text))?;
        objects.extend(rendered.objects);
        let mut unknown_values = inputs.unknown_values.clone();
        unknown_values.extend(rendered.unknown_values);
        if spec.options.preserve_values {
            unknown_values.push(UnknownValue {
                what: "values of the last revision".to_owned(),
                reason: "spec.upgrade.preserveValues takes them from the cluster".to_owned(),
            });
        }
        Ok(RenderedObjects { objects, unknown_values, ..rendered })
    }

    /// Renders a release.
    ///
    /// # Errors
    /// The release cannot be rendered. The error may contain Secret values.
    pub(crate) fn objects_of(
        &self,
        rendering: HelmReleaseRenderInputs,
        kinds: &DeclaredKindScopes,
    ) -> Result<RenderedObjects, String> {
        let metadata = &rendering.chart.metadata;
        let chart = format!("{}@{}", metadata.name, metadata.version);
        let lookups = Arc::new(UnansweredLookups::default());
        let draws = TemplateRandomness::fixed();
        let watch = draws.watch();
        let again = self.masks_drawn_values.then(|| rendering.clone());
        let mut objects = self.rendered_with(rendering, kinds, lookups.clone(), draws)?;
        let mut unknown_values = lookups.unknown_values();
        let mut has_drawn_values = false;
        if let Some(again) = again.filter(|it| watch.may_differ(&it.chart)) {
            let other =
                self.rendered_with(again, kinds, Arc::default(), TemplateRandomness::other());
            let drawn = match other {
                Ok(other) => mask(&mut objects, &other),
                // The error may contain Secret values, so it is dropped.
                Err(_) => vec![UnknownValue {
                    what: "what the chart draws at random or takes from the time".to_owned(),
                    reason: "the chart cannot be rendered with anything else".to_owned(),
                }],
            };
            has_drawn_values = !drawn.is_empty();
            unknown_values.extend(drawn);
        }
        Ok(RenderedObjects { objects, chart, unknown_values, has_drawn_values })
    }

    /// Renders a release with a given time and given random numbers.
    fn rendered_with(
        &self,
        rendering: HelmReleaseRenderInputs,
        kinds: &DeclaredKindScopes,
        lookups: Arc<UnansweredLookups>,
        draws: TemplateRandomness,
    ) -> Result<Vec<Object>, String> {
        let namespace = rendering.release.namespace.clone();
        let stop = StopSignal::default();
        let _limit = TimeLimit::start(TIME_LIMIT, &stop);
        let environment = RenderEnvironment {
            now: utc(draws.now),
            local: GoTimeZone::fixed("UTC", 0),
            random: draws.random,
            capabilities: self.capabilities_with(kinds),
            cluster: Some(lookups),
            stop,
            names: None,
        };
        let RenderedManifests { manifests, .. } = rendering.manifests(&environment)?;
        let mut objects = manifest_objects::read(&manifests)?;
        for object in &mut objects {
            kinds.place(object, Some(&namespace));
        }
        Ok(objects)
    }

    /// The capabilities of a cluster that also has these kinds.
    pub(crate) fn capabilities_with(&self, kinds: &DeclaredKindScopes) -> Arc<Capabilities> {
        let mut capabilities = self.capabilities.clone();
        capabilities.api_versions.extend(kinds.api_versions.iter().cloned());
        Arc::new(capabilities)
    }
}

/// The CRDs of `crds/`, which no upgrade deletes.
fn kept_definitions(mut definitions: Vec<Object>) -> Vec<Object> {
    for definition in &mut definitions {
        definition.set_annotation(manifest_objects::POLICY, "keep");
    }
    definitions
}

/// Records what templates look up in the cluster. The lookups find nothing, as with `helm template`.
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
