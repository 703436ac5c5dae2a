//! Renders a HelmRelease, from a local chart or from the artifact of its source.
//!
//! Elsewhere: values and post-renderers (`helm_controller::helm_release`), rendering (engine `helm`), comparing with the
//! cluster (`diff`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use crds::helm::{CrdsPolicy, HelmRelease};
use golang::time::GoTimeZone;
use golang::work_meter::StopSignal;
use helm::chart::Chart;
use helm::render::ReleaseToRender;
use helm::render_environment::{ClusterLookup, LookupQuery, RenderEnvironment};
use objects::{Object, SecretMasking};
use release::release_target::{self, ReleaseTarget, ReleaseTargetChange};
use release::{OperationKind as Operation, ReleaseRecord, ReleaseSpec};
use serde_json::Value;
use tokio::runtime::Handle;

use super::{BuildFilesOrigin, fetched, on_large_stack, outcome_error, references, typed};
use helm_controller::helm_release::validated_spec::read_without_chart;
use helm_controller::helm_release::{status, values};
use helm_controller::release_runner::action_options::ActionOptions;
use helm_controller::release_runner::chart_cache::of_archive;
use helm_controller::release_runner::manifest_objects;
use helm_controller::release_runner::manifest_rendering::{
    HelmReleaseRenderInputs, RenderedManifests, definitions, utc,
};
use helm_controller::release_runner::prepare_revision;
use helm_controller::release_runner::storage::{ReleaseStorage, StorageError};
use helm_controller::release_runner::validated_spec::ReleaseInputs;
use windlass_cli_helm::template::load_chart;
use windlass_cluster::ClusterConnection;
use windlass_cluster::capabilities::ServerCapabilities;
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};
use windlass_serve::settings::OperatorSettings;

/// How long the API server may take to answer a `lookup` of a template.
const LOOKUP_LIMIT: Duration = Duration::from_secs(15);

/// The rendered objects of a HelmRelease, and the operation for which they were rendered.
pub struct RenderedHelmRelease {
    pub(crate) target: ReleaseTarget,
    /// The release revision before the operation.
    pub(crate) base: Option<Arc<ReleaseRecord>>,
    pub(crate) operation: Operation,
    pub(crate) options: ActionOptions,
    /// The CRDs from the folder `crds` that the operation writes.
    pub definitions: Vec<Object>,
    /// The objects of the release, in the order in which they are applied.
    pub objects: Vec<Object>,
    /// The objects of the hooks.
    pub hooks: Vec<Object>,
    /// Identifies the inputs of the release. `None` for a local chart.
    pub(crate) inputs: Option<String>,
    /// The strings that are secret and have to be masked.
    pub secrets: SecretMasking,
    pub(crate) settings: OperatorSettings,
}

/// Renders a HelmRelease with the values of the cluster. It renders for an upgrade, or for an installation if there is no
/// release.
///
/// # Errors
/// The HelmRelease cannot be rendered, or it releases to another cluster.
pub async fn render_release(
    cluster: &ClusterConnection,
    object: Object,
    given: &BuildFilesOrigin,
    settings: OperatorSettings,
) -> anyhow::Result<RenderedHelmRelease> {
    let object: HelmRelease = typed(object)?;
    ensure!(
        object.spec.kube_config.is_none(),
        "it is released to the cluster of spec.kubeConfig, which this command does not read"
    );
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let values = values::read(namespace, &object.spec, &mut references(cluster)).await;
    let values = values.map_err(outcome_error)?;
    let spec = read_without_chart(&object, &settings);
    let target = &spec.release.target;
    let storage = ReleaseStorage::new(cluster, &target.storage_namespace, &target.name, "").await;
    let revisions = storage.map_err(StorageError::into_cluster)?.revisions().await;
    let revisions = revisions.map_err(StorageError::into_cluster)?;
    if let Some(broken) = revisions.unreadable_last() {
        bail!("release record {}: {}", broken.secret, broken.problem);
    }
    let base = revisions.current().map(|it| it.record.clone());
    let last = revisions.last().map_or(0, |it| it.record.version);
    let operation = if base.is_some() { Operation::Upgrade } else { Operation::Install };
    let options = spec.options;
    let ChartWithOrigin { mut chart, artifact_digest, oci_digest } =
        chart(cluster, &object, given, &settings).await?;
    let inputs = artifact_digest.map(|artifact_digest| ReleaseInputs {
        chart_name: chart.metadata.name.clone(),
        chart_version: chart.metadata.version.clone(),
        app_version: chart.metadata.app_version.clone(),
        oci_digest,
        config_digest: values.digest.clone(),
        artifact_digest,
    });
    let inputs = inputs.map(|inputs| spec.desired(&object, inputs, 0, &settings).inputs);
    let mut config = values.map;
    is_in_place(&object, &spec.release, &chart)?;
    if let Some(base) = base.as_deref().filter(|_| options.preserve_values) {
        prepare_revision::preserved(&mut chart, &mut config, base).map_err(anyhow::Error::msg)?;
    }
    let definitions = match options.of_action(operation).crds {
        CrdsPolicy::Skip => Vec::new(),
        CrdsPolicy::Create | CrdsPolicy::CreateReplace => {
            definitions(&chart).map_err(anyhow::Error::msg)?
        }
    };
    let rendering = HelmReleaseRenderInputs {
        chart,
        config,
        release: ReleaseToRender {
            name: target.name.clone(),
            namespace: target.namespace.clone(),
            revision: last + 1,
            is_upgrade: operation == Operation::Upgrade,
        },
        skip_schema: options.of_action(operation).skip_schema,
        post: spec.post,
    };
    let served = cluster.served().await?;
    let asked = cluster.clone();
    let runtime = Handle::current();
    let rendered = on_large_stack(move || {
        let stop = StopSignal::default();
        let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
        let lookup = UserClusterLookup { cluster: asked, runtime, limit };
        rendering.manifests(&env(&served, stop, lookup))
    })
    .await?;
    let RenderedManifests { manifests, hooks } =
        rendered.map_err(|text| anyhow::anyhow!(values.secrets.mask(&text)))?;
    let objects = manifest_objects::read(&manifests).map_err(anyhow::Error::msg)?;
    let hooks = manifest_objects::read(&hooks).map_err(anyhow::Error::msg)?;
    let secrets = values.secrets.with_manifests(objects.iter().chain(&hooks));
    Ok(RenderedHelmRelease {
        target: spec.release.target,
        base,
        operation,
        options,
        definitions,
        objects,
        hooks,
        inputs,
        secrets,
        settings,
    })
}

/// A chart and its origin.
struct ChartWithOrigin {
    chart: Chart,
    /// The digest of the source's artifact. `None` for a local chart.
    artifact_digest: Option<String>,
    /// The digest of the chart in an OCI registry. Empty if it comes from elsewhere.
    oci_digest: String,
}

/// Finds the chart. A chart from a HelmChart already includes its `valuesFiles`.
async fn chart(
    cluster: &ClusterConnection,
    object: &HelmRelease,
    given: &BuildFilesOrigin,
    settings: &OperatorSettings,
) -> anyhow::Result<ChartWithOrigin> {
    match given {
        BuildFilesOrigin::Local(path) => {
            let template = object.spec.chart.as_ref();
            let has_files = template.is_some_and(|it| !it.spec.values_files.is_empty());
            ensure!(!has_files, "spec.chart.spec.valuesFiles of a local chart are not supported");
            let chart = load_chart(path).map_err(anyhow::Error::msg)?;
            Ok(ChartWithOrigin { chart, artifact_digest: None, oci_digest: String::new() })
        }
        BuildFilesOrigin::Earlier(_) => bail!("a chart has no earlier artifact"),
        BuildFilesOrigin::Source(source) => {
            let artifact = fetched(cluster, source).await?;
            let tracks = settings.tracks_chart_digests();
            let chart = of_archive(&artifact.bytes, &artifact.kind, &artifact.revision, tracks);
            let (chart, oci_digest) = chart.map_err(|error| {
                anyhow::anyhow!("could not load chart of {}: {error}", source.subject())
            })?;
            Ok(ChartWithOrigin { chart, artifact_digest: Some(artifact.digest), oci_digest })
        }
    }
}

/// Whether the operation upgrades the existing release. Otherwise, windlass would install another release in its place.
fn is_in_place(object: &HelmRelease, spec: &ReleaseSpec, chart: &Chart) -> anyhow::Result<()> {
    let known = status::read(object);
    let name = &chart.metadata.name;
    let changed =
        release_target::change(&spec.target, name, &known.storage_namespace, &known.history);
    let may_be_renamed = spec.upgrade.in_place_chart_name_change;
    match changed.filter(|it| *it != ReleaseTargetChange::Chart || !may_be_renamed) {
        None => Ok(()),
        Some(changed) => bail!(
            "the {} is another one: windlass would remove the release and install it again, which this command does not \
             predict",
            changed.as_str()
        ),
    }
}

fn env(
    served: &ServerCapabilities,
    stop: StopSignal,
    finder: UserClusterLookup,
) -> RenderEnvironment {
    let capabilities = served.to_helm();
    RenderEnvironment {
        now: utc(jiff::Timestamp::now()),
        local: GoTimeZone::fixed("UTC", 0),
        random: Arc::new(windlass_runtime::random_bytes::fill),
        capabilities: Arc::new(capabilities),
        cluster: Some(Arc::new(finder)),
        stop,
        names: None,
    }
}

/// Answers `lookup` in templates with the rights of the user.
struct UserClusterLookup {
    cluster: ClusterConnection,
    runtime: Handle,
    limit: Arc<TimeLimit>,
}

impl ClusterLookup for UserClusterLookup {
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Value>, String> {
        let asked = async {
            tokio::time::timeout(LOOKUP_LIMIT, prepare_revision::find(&self.cluster, wanted)).await
        };
        let found = self.limit.pause(|| self.runtime.block_on(asked));
        found.unwrap_or_else(|_| {
            let LookupQuery { api_version, kind, .. } = wanted;
            Err(format!("the API server did not respond for {api_version}, Kind={kind}"))
        })
    }
}
