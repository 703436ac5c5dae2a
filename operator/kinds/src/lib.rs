//! The list of all kinds that windlass runs, and the start of their runs. Also the leader elections before that
//! ([`lease_elections`]), and the watch of Quarantines, which several kinds read (`quarantine_watch`).
//!
//! Elsewhere: the types of the kinds (`crds`), and other lists of kinds (the tests here, and `xtask/src/tidy/kind_field_tests.rs`).

pub mod lease_elections;
mod quarantine_watch;

use std::sync::Arc;

use crds::helmfile::{Helmfile, mumoshu_helmfile};
use crds::operation_lifecycle::{Lifecycle, LifecycleBinding, LifecycleEvent};
use crds::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use crds::windlass_notification::Incident;
use crds::windlass_release::{
    ChangeSet, ClusterStagedRollout, Freeze, FreezeBypass, Plan, PlanPolicy, Quarantine,
    ReleaseAudit, StagedRollout,
};
use crds::windlass_source::HTTPArchive;
use futures::future::{BoxFuture, FutureExt as _, join_all};
use kube_core::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use helm_controller::helm_release::{self, HelmReleaseController};
use helm_controller::release_runner::chart_cache;
use helmfile_controller::helmfile::{self, HelmfileController};
use image_controller::image_policy::ImagePolicyController;
use image_controller::image_repository::ImageRepositoryController;
use image_controller::image_update_automation::ImageUpdateAutomationController;
use kustomize_controller::kustomization::removals_in_reviewed_pull_request::check_removal;
use kustomize_controller::kustomization::{self, KustomizationController};
use kustomize_controller::last_good_artifacts::LastGoodArtifacts;
use notification_controller::alert_controller::AlertController;
use notification_controller::delivery::NotificationDelivery;
use notification_controller::incident;
use notification_controller::provider_controller::ProviderController;
use notification_controller::receiver::ReceiverController;
use notification_controller::receiver::webhook_requests::hooks;
use source_controller::artifact_generator::ArtifactGeneratorController;
use source_controller::external_artifact::ExternalArtifactController;
use source_controller::freeze_calendar;
use source_controller::pull_request_approval::{self, RemovalReviewCheck};
use source_controller::source::{SourceController, standby_artifacts};
use windlass_cluster::ClusterConnection;
use windlass_cluster::crd_watch::follow_crds;
use windlass_cluster::depends_on_crd_fields::warn_of_missing_fields;
use windlass_cluster::events::EventDistributor;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::object_store::TypeMap;
use windlass_cluster::object_watcher::{ObjectWatcher, OwnershipMarks};
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::work_queue::WorkQueue;
use windlass_http_server::{HttpListener, ServerReadiness};
use windlass_runtime::approval_plan;
use windlass_runtime::audit::retention;
use windlass_runtime::cluster_target::ClusterTargets;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::depends_on_annotation::{DependableKind, DependableKinds};
use windlass_runtime::egress_policy::EgressPolicy;
use windlass_runtime::freeze;
use windlass_runtime::http_clients::RemoteClients;
use windlass_runtime::lifecycle;
use windlass_runtime::object_run::run_kind;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::{CatalogSourceKind, SourceCatalog};
use windlass_serve::settings::OperatorSettings;

/// The facts about a kind that the program needs.
#[derive(Clone, Copy)]
struct KindRegistration {
    /// The group and the kind.
    name: fn() -> [String; 2],
    /// Runs the kind until the token is cancelled.
    run: fn(Arc<RunContext>, CancellationToken) -> BoxFuture<'static, ()>,
    /// Waits until its objects were listed. Returns false if the watch ended before.
    listed: fn(&TypeMap) -> BoxFuture<'_, bool>,
    /// The fields of an object that this version of windlass does not support.
    unsupported: fn(Value) -> Result<Vec<&'static str>, serde_json::Error>,
    /// Whether the kind runs with these flags.
    is_run: fn(&OperatorSettings) -> bool,
    /// Whether the CRD of the kind may be missing. windlass is ready without it.
    is_optional: bool,
    /// Adds the kind to the catalog of sources, so that a spec may name its objects as a source.
    provide: Option<fn(&mut SourceCatalog)>,
    /// Adds the kind to those on whose objects other objects may depend.
    depend: Option<fn(&mut DependableKinds, OwnershipMarks)>,
    /// The ownership marks on the objects that it applies.
    ownership: Option<OwnershipMarks>,
    /// How Incidents read the status of its objects.
    observed: Option<incident::ObservedKind>,
}

impl KindRegistration {
    const fn of<K: ControllerKind>() -> Self {
        Self {
            name: || [K::Object::group(&()).into_owned(), K::Object::kind(&()).into_owned()],
            run: |context, stop| run_kind::<K>(context, stop.cancelled_owned()).boxed(),
            listed: |kept| kept.listed::<K::Object>().boxed(),
            unsupported: |object| {
                serde_json::from_value::<K::Object>(object).map(|object| K::unsupported(&object))
            },
            is_run: |_| true,
            is_optional: false,
            provide: None,
            depend: None,
            ownership: None,
            observed: Some(incident::ObservedKind::of::<K::Object>()),
        }
    }

    /// A kind without runs of its own, whose objects the runs of other kinds read or write. `run` watches them or deletes old
    /// ones.
    const fn kept<K: kube_core::Resource<DynamicType = ()> + DeserializeOwned>(
        run: fn(Arc<RunContext>, CancellationToken) -> BoxFuture<'static, ()>,
    ) -> Self {
        Self {
            name: || [K::group(&()).into_owned(), K::kind(&()).into_owned()],
            run,
            listed: |_| std::future::ready(true).boxed(),
            unsupported: |object| serde_json::from_value::<K>(object).map(|_| Vec::new()),
            is_run: |_| true,
            is_optional: true,
            provide: None,
            depend: None,
            ownership: None,
            observed: None,
        }
    }

    /// The kind is a source that a `sourceRef` may name.
    const fn providing<K: CatalogSourceKind>(self) -> Self {
        Self { provide: Some(SourceCatalog::add::<K>), ..self }
    }

    /// The kind applies objects with these marks, and other objects may depend on it.
    const fn applying<K: DependableKind>(self, ownership: OwnershipMarks) -> Self {
        Self { ownership: Some(ownership), depend: Some(DependableKinds::add::<K>), ..self }
    }

    /// The CRD of the kind may be missing.
    const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// The kind runs only with certain flags.
    const fn only(self, is_run: fn(&OperatorSettings) -> bool) -> Self {
        Self { is_run, ..self }
    }
}

/// All kinds. A test compares this list with `crds::all`.
const KINDS: &[KindRegistration] = &[
    KindRegistration::of::<AlertController>().only(OperatorSettings::notifies).optional(),
    KindRegistration::of::<ArtifactGeneratorController>().optional(),
    KindRegistration::of::<SourceController<Bucket>>().providing::<SourceController<Bucket>>(),
    KindRegistration::of::<ExternalArtifactController>().providing::<ExternalArtifactController>(),
    KindRegistration::of::<SourceController<GitRepository>>()
        .providing::<SourceController<GitRepository>>(),
    KindRegistration::of::<SourceController<HTTPArchive>>().optional(),
    KindRegistration::of::<SourceController<HelmChart>>()
        .providing::<SourceController<HelmChart>>(),
    KindRegistration::of::<HelmReleaseController>()
        .applying::<HelmReleaseController>(helm_release::OWNERSHIP),
    KindRegistration::of::<SourceController<HelmRepository>>()
        .providing::<SourceController<HelmRepository>>(),
    KindRegistration::of::<HelmfileController<Helmfile>>()
        .applying::<HelmfileController<Helmfile>>(helmfile::OWNERSHIP)
        .optional(),
    KindRegistration::of::<HelmfileController<mumoshu_helmfile::Helmfile>>()
        .applying::<HelmfileController<mumoshu_helmfile::Helmfile>>(
            helmfile::helmfile_operator_resource::OWNERSHIP,
        )
        .optional(),
    KindRegistration::of::<ImagePolicyController>().optional(),
    KindRegistration::of::<ImageRepositoryController>().optional(),
    KindRegistration::of::<ImageUpdateAutomationController>().optional(),
    KindRegistration::of::<KustomizationController>()
        .applying::<KustomizationController>(kustomization::OWNERSHIP),
    KindRegistration::of::<SourceController<OCIRepository>>()
        .providing::<SourceController<OCIRepository>>(),
    KindRegistration::of::<ProviderController>().only(OperatorSettings::notifies).optional(),
    KindRegistration::of::<ReceiverController>().only(OperatorSettings::notifies).optional(),
    KindRegistration::kept::<Lifecycle>(|context, stop| {
        lifecycle::follow_lifecycles(context, stop).boxed()
    }),
    KindRegistration::kept::<LifecycleBinding>(|context, stop| {
        lifecycle::follow_bindings(context, stop).boxed()
    }),
    KindRegistration::kept::<LifecycleEvent>(|context, stop| {
        lifecycle::follow_events(context, stop).boxed()
    }),
    KindRegistration::kept::<Freeze>(|context, stop| follow_freezes(context, stop).boxed()),
    KindRegistration::kept::<FreezeBypass>(|context, stop| {
        freeze::follow_bypasses(context, stop).boxed()
    }),
    KindRegistration::kept::<PlanPolicy>(|context, stop| {
        approval_plan::follow_policies(context, stop).boxed()
    }),
    KindRegistration::kept::<Plan>(|context, stop| follow_plans(context, stop).boxed()),
    KindRegistration::kept::<Quarantine>(|context, stop| {
        quarantine_watch::follow(context, stop).boxed()
    }),
    KindRegistration::kept::<ChangeSet>(|context, stop| follow_changes(context, stop).boxed()),
    KindRegistration::kept::<StagedRollout>(|context, stop| follow_rollouts(context, stop).boxed()),
    KindRegistration::kept::<ClusterStagedRollout>(|context, stop| {
        windlass_rollout::follow_of_cluster(context, stop).boxed()
    }),
    KindRegistration::kept::<Incident>(|context, stop| incident::follow(context, stop).boxed())
        .only(OperatorSettings::notifies),
    KindRegistration::kept::<ReleaseAudit>(|context, stop| retention::run(context, stop).boxed()),
];

/// Watches Freezes until `stop`, and reads their calendars.
async fn follow_freezes(context: Arc<RunContext>, stop: CancellationToken) {
    tokio::join!(
        freeze::follow_freezes(context.clone(), stop.clone()),
        freeze_calendar::run(context, stop),
    );
}

/// Watches Plans until `stop`, and approves those that a reviewed pull request approves.
async fn follow_plans(context: Arc<RunContext>, stop: CancellationToken) {
    let check_removal: RemovalReviewCheck =
        |context, removal| check_removal(context, removal).boxed();
    tokio::join!(
        approval_plan::follow_plans(context.clone(), stop.clone()),
        pull_request_approval::run(context, check_removal, stop),
    );
}

/// Watches ChangeSets until `stop`, and writes those of sources with new artifacts.
async fn follow_changes(context: Arc<RunContext>, stop: CancellationToken) {
    tokio::join!(
        windlass_changes::follow(context.clone(), stop.clone()),
        windlass_changes::run(context, stop),
    );
}

/// Watches StagedRollouts until `stop`, and decides which appliers may take a new revision. The decisions also use
/// ClusterStagedRollouts.
async fn follow_rollouts(context: Arc<RunContext>, stop: CancellationToken) {
    tokio::join!(
        windlass_rollout::follow(context.clone(), stop.clone()),
        windlass_rollout::run(context, stop),
    );
}

/// The fields of an object that this version of windlass does not support. `None` if windlass does not run its kind.
///
/// # Errors
/// A field of the object cannot be read.
pub fn unsupported(object: &Value) -> Option<Result<Vec<&'static str>, serde_json::Error>> {
    let group = object["apiVersion"].as_str().and_then(|it| it.split_once('/'))?.0;
    let is_its = |kind: &&KindRegistration| {
        (kind.name)() == [group, object["kind"].as_str().unwrap_or_default()]
    };
    let kind = KINDS.iter().find(is_its)?;
    // The code that connects to clusters decides whether a kubeconfig can be used.
    let names_config_map = !object["spec"]["kubeConfig"]["configMapRef"].is_null();
    Some((kind.unsupported)(object.clone()).map(|mut fields| {
        fields.extend(names_config_map.then_some("spec.kubeConfig.configMapRef"));
        fields
    }))
}

/// The parts of the process that runs of kinds share with its HTTP servers.
pub struct ProcessComponents {
    /// The connection to windlass's own cluster.
    pub cluster: ClusterConnection,
    /// The store of the artifacts, which are also served from it.
    pub artifacts: Arc<artifacts::store::ArtifactStore>,
    /// The distributor of events.
    pub events: Arc<EventDistributor>,
    /// The queue of the objects that have to run.
    pub work_queue: Arc<WorkQueue>,
    /// The metrics of this process.
    pub metrics: Arc<MetricsRegistry>,
    /// Whether every kind has listed its objects, for `/readyz`.
    pub readiness: ServerReadiness,
    /// The listener for webhooks. `None` if another controller receives them.
    pub webhooks: Option<HttpListener>,
}

/// Runs every kind until `stop`.
pub async fn run(settings: OperatorSettings, process: ProcessComponents, stop: CancellationToken) {
    let ProcessComponents { cluster, artifacts, events, work_queue, metrics, readiness, webhooks } =
        process;
    let kept = Arc::new(TypeMap::default());
    let mut sources = SourceCatalog::new(kept.clone());
    for provide in KINDS.iter().filter_map(|kind| kind.provide) {
        provide(&mut sources);
    }
    let mut dependencies = DependableKinds::new(kept.clone());
    for (depend, ownership) in KINDS.iter().filter_map(|kind| kind.depend.zip(kind.ownership)) {
        depend(&mut dependencies, ownership);
    }
    let owners = KINDS.iter().filter_map(|kind| Some(((kind.name)(), kind.ownership?)));
    let watcher = ObjectWatcher::new(cluster.clone(), work_queue.clone(), owners.collect());
    // Another program or other flags may compare in another way.
    let key = format!("{} {settings:?}", program());
    watcher.keep_comparisons_in(settings.storage_path.join(KEPT_COMPARISONS), &key);
    let egress_policy =
        EgressPolicy::new(&settings, cluster.clone(), artifacts.advertised().to_owned());
    egress_policy.learn().await;
    let remotes = RemoteClients::within(&egress_policy.rules);
    let targets = ClusterTargets::new(
        &settings,
        &watcher,
        work_queue.clone(),
        remotes.budgets.clone(),
        metrics.clone(),
    );
    let at_once = usize::from(settings.sources_at_once());
    let context = Arc::new(RunContext {
        building: RunPermits::new(usize::from(settings.kustomizations_at_once())),
        reaching: RunPermits::shared(
            REACHING_AT_ONCE,
            REACHING_AT_ONCE / MIN_CONCURRENT_NAMESPACES,
        ),
        fetching: RunPermits::shared(MIN_CONCURRENT_NAMESPACES * at_once, at_once),
        asking: RunPermits::shared(ASKING_AT_ONCE, ASKING_AT_ONCE / MIN_CONCURRENT_NAMESPACES),
        settings,
        cluster,
        work_queue,
        targets,
        watcher,
        artifacts,
        events,
        metrics,
        remotes,
        sources,
        dependencies,
        kept,
    });
    context.artifacts.keep_needed(LastGoodArtifacts::seen_by(&context));
    measure_stores(&context);
    let wanted = KINDS.iter().filter(|kind| (kind.is_run)(&context.settings));
    let running = wanted.map(|kind| (kind.run)(context.clone(), stop.clone()));
    let policies = context.shared::<NamespacePolicies>();
    tokio::join!(
        join_all(running),
        notify(&context, webhooks, &stop),
        until(&stop, tell_ready(&context, readiness)),
        until(&stop, egress_policy.follow()),
        until(&stop, standby_artifacts::follow(&context)),
        until(&stop, follow_crds(context.cluster.clone(), context.work_queue.clone())),
        until(&stop, warn_of_missing_fields(&context.cluster)),
        until(
            &stop,
            namespace_policies::follow(
                context.cluster.clone(),
                context.work_queue.clone(),
                policies
            )
        ),
    );
    context.events.settle().await;
}

/// Which program this is: its version, commit, and the size and time of its file. Builds between two releases have the same
/// version.
fn program() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let file = file.map(|it| (it.len(), it.modified().ok())).ok();
    let commit = option_env!("WINDLASS_COMMIT").unwrap_or_default();
    format!("{} {commit} {file:?}", env!("CARGO_PKG_VERSION"))
}

/// How many bytes a store of a run's context holds.
type StoreSize = fn(&RunContext) -> u64;

/// Shows the bytes of the stores that count them, on the metrics page. The context owns the metrics, so they do not own it.
fn measure_stores(context: &Arc<RunContext>) {
    let stores: [(&'static str, StoreSize); 3] = [
        ("artifact-files", |context| context.artifacts.cached_bytes()),
        ("charts", chart_cache::cached_bytes),
        ("references", |context| context.watcher.reference_bytes()),
    ];
    for (store, size) in stores {
        let weak = Arc::downgrade(context);
        let size = move || weak.upgrade().map_or(0, |context| size(&context));
        context.metrics.measure_store(store, size);
    }
}

/// Sends notifications and receives webhooks until `stop`.
async fn notify(
    context: &Arc<RunContext>,
    webhooks: Option<HttpListener>,
    stop: &CancellationToken,
) {
    if !context.settings.notifies() {
        return;
    }
    let delivery = NotificationDelivery::open(context.clone(), stop.clone()).await;
    let served = async {
        if let Some(listener) = webhooks {
            listener.serve(hooks(context.clone()), stop.clone()).await;
        }
    };
    let observed = KINDS.iter().filter_map(|kind| kind.observed).collect();
    let incidents = incident::run(context.clone(), delivery.clone(), observed, stop.clone());
    tokio::join!(delivery.run(), served, incidents);
}

async fn until(stop: &CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Reports that the process is ready once every kind that may not be missing has listed its objects.
async fn tell_ready(context: &RunContext, readiness: ServerReadiness) {
    let needed = KINDS.iter().filter(|kind| !kind.is_optional);
    let listed = join_all(needed.map(|kind| (kind.listed)(&context.kept))).await;
    if listed.into_iter().all(|listed| listed) {
        readiness.ready();
        tracing::info!("ready");
    }
}

/// The folder of the storage folder with the comparisons of applied objects. A name that begins with a dot is not served.
const KEPT_COMPARISONS: &str = ".comparisons";

/// How many shares the permits for remotes have. One namespace may hold one share, so that it cannot delay all others.
const MIN_CONCURRENT_NAMESPACES: usize = 4;

/// How many remotes are asked for new revisions at once. Each takes a thread, which mostly waits.
const ASKING_AT_ONCE: usize = 64;

/// How many builds may send requests to other servers at once. Each takes a thread, and memory for the answers.
const REACHING_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests;
