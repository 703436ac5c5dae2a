//! The work that comes before the record of a revision is written: CRDs, rendering, ownership of the objects, the namespace.
//!
//! A run that is interrupted may do all of it again. Elsewhere: the chart (`chart_cache`), values (`values`), post-renderers
//! (`postrender`), the record (`executor`).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use apply::prune_candidates::is_same_object;
use crds::helm::CrdsPolicy;
use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;
use helm::chart::{self, Chart};
use helm::render::{REQUIRED_STACK_BYTES, ReleaseToRender, RenderMode};
use helm::render_environment::{ClusterLookup, HostNameLookup, LookupQuery, RenderEnvironment};
use helm::template::{RenderRequest, RenderedRelease, render};
use helm::values::coalesce;
use helm::warning::WarningLevel;
use objects::{Gvk, Object, manifest};
use quarantine::rollback_protected_objects::record_refusal;
use reconcile::Time;
use release::ReleaseRecord;
use release::journal::OperationKind;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::crd_definitions::{CrdNotEstablishedError, established};
use super::deletion_judgement::PermittedRendering;
use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, ManifestObject, ManifestObjectError};
use super::step_error::StepError;
use super::{MANAGER, ReleaseStatusOwner};
use windlass_cluster::capabilities::ServerCapabilities;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::namespace_policies::NamespacePolicies;
use windlass_cluster::run_permits::{RunPermit, RunPermits};
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};

/// The longest time until the kind of a CRD is served.
const ESTABLISHED_LIMIT: Duration = Duration::from_secs(60);

/// A revision before it has a record.
pub(super) struct PreparedRevision {
    pub(super) rendered: RenderedRelease,
    pub(super) config: GoMap,
    pub(super) server_side: bool,
    /// How many objects of the current revision are deleted with it without the approval of a user.
    pub(super) deletions: usize,
}

/// The inputs from which a revision is rendered.
pub(super) struct RevisionInputs {
    pub(super) chart: Chart,
    pub(super) config: GoMap,
    pub(super) release: ReleaseToRender,
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Collects the inputs for rendering the revision that follows on `base`.
    ///
    /// # Errors
    /// The reason why the action fails.
    pub(super) fn revision_inputs(
        &self,
        action: OperationKind,
        version: i64,
        base: Option<&ReleaseRecord>,
    ) -> Result<RevisionInputs, StepError> {
        let Some(loaded) = self.desired_release.chart.as_ref() else {
            return Err(StepError::Failed("the chart was not loaded".to_owned()));
        };
        let mut chart = loaded.chart.clone();
        let mut config = self.desired_release.values.clone();
        if let Some(base) = base.filter(|_| self.options().preserve_values) {
            preserved(&mut chart, &mut config, base).map_err(StepError::Failed)?;
        }
        let target = &self.desired().spec.target;
        let release = ReleaseToRender {
            name: target.name.clone(),
            namespace: target.namespace.clone(),
            revision: version,
            is_upgrade: action == OperationKind::Upgrade,
        };
        Ok(RevisionInputs { chart, config, release })
    }

    /// Does all that comes before a record.
    ///
    /// # Errors
    /// Why the action fails, or that the run has an outcome.
    pub(super) async fn prepare(
        &self,
        action: OperationKind,
        version: i64,
        base: Option<Arc<ReleaseRecord>>,
    ) -> Result<PreparedRevision, StepError> {
        let RevisionInputs { chart, config, release } =
            self.revision_inputs(action, version, base.as_deref())?;
        let crds = self.crds_to_write(&chart, &config, action).await?;
        let judged = self.known().judged.take().filter(|it| it.version == version);
        let judged = match judged {
            Some(judged) if crds.is_empty() && !self.owner.prepares() => judged,
            // Templates may look up objects that were written since, or are being written.
            judged => {
                if !crds.is_empty() {
                    let before = match judged {
                        Some(judged) => Ok(judged.rendered),
                        None => {
                            let values = config.clone();
                            self.rendered(chart.clone(), values, release.clone(), action).await
                        }
                    };
                    self.judge_templates(before).await?;
                    self.write_crds(crds, action).await?;
                }
                let rendered = self.rendered(chart, config.clone(), release, action).await?;
                self.judged_rendering(version, rendered, base.as_deref()).await?
            }
        };
        let PermittedRendering { rendered, deletions, .. } = judged;
        if let Some(loaded) = &self.desired_release.chart {
            *loaded.templates.lock() = Some(rendered.templates.clone());
        }
        let server_side = self.options().is_server_side(action, base.as_deref());
        self.checked(&rendered, action, base.as_deref()).await?;
        if action == OperationKind::Install {
            self.namespace().await?;
        }
        Ok(PreparedRevision { rendered, config, server_side, deletions })
    }

    /// Renders for the API versions that the cluster serves now. It holds no permit, since rendering sends few requests to the
    /// API server, and may have to wait for its turn.
    pub(super) async fn rendered(
        &self,
        chart: Chart,
        values: GoMap,
        release: ReleaseToRender,
        action: OperationKind,
    ) -> Result<RenderedRelease, StepError> {
        let inputs = RevisionInputs { chart, config: values, release };
        self.rendered_at(inputs, action, jiff::Timestamp::now()).await
    }

    /// Like [`Self::rendered`], with the time that templates see.
    pub(super) async fn rendered_at(
        &self,
        inputs: RevisionInputs,
        action: OperationKind,
        now: Time,
    ) -> Result<RenderedRelease, StepError> {
        let served = self.target.cluster.served().await;
        let served = served.map_err(|error| StepError::Outcome(self.no_answer(&error)))?;
        self.permit.aside(self.rendered_for(inputs, action, &served, now)).await
    }

    /// Renders on a thread of its own: templates need a deep stack.
    async fn rendered_for(
        &self,
        inputs: RevisionInputs,
        action: OperationKind,
        served: &ServerCapabilities,
        now: Time,
    ) -> Result<RenderedRelease, StepError> {
        let RevisionInputs { chart, config: values, release } = inputs;
        let permit = self.context.building.run_permit(&self.node.namespace).await;
        let stop = StopSignal::default();
        let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
        let env = RenderEnvironment { stop, ..self.env(served, &permit, &limit, now) };
        let skip_schema = self.options().of_action(action).skip_schema;
        let spec = self.desired_release.spec.clone();
        let known =
            self.desired_release.chart.as_ref().and_then(|loaded| loaded.templates.lock().clone());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = move || {
            let mut warnings = Vec::new();
            let rendered = spec.post.with(|post_render| {
                let request = RenderRequest {
                    chart,
                    values: &values,
                    release,
                    mode: RenderMode::default(),
                    skip_schema,
                    sub_notes: false,
                    templates: known,
                    post_render,
                };
                render(request, &env, &mut warnings)
            });
            // The receiver is gone when the process ends.
            drop(limit);
            sender.send((rendered.map_err(|error| error.to_string()), warnings)).ok();
        };
        let thread =
            std::thread::Builder::new().name("render".to_owned()).stack_size(REQUIRED_STACK_BYTES);
        thread.spawn(work).map_err(|error| {
            StepError::Failed(format!("failed to start a thread to render the chart: {error}"))
        })?;
        let Ok((rendered, warnings)) = receiver.await else {
            return Err(StepError::Failed(
                "rendering panicked; this is a bug in windlass, please report it with the chart"
                    .to_owned(),
            ));
        };
        let name = &self.node.name;
        let namespace = &self.node.namespace;
        for warning in warnings.iter().filter(|it| it.level != WarningLevel::Debug) {
            tracing::info!(controller_kind = O::KIND, name, namespace, "{}", warning.line());
        }
        rendered.map_err(|text| StepError::Failed(self.desired_release.masked(&text)))
    }

    fn env(
        &self,
        served: &ServerCapabilities,
        permit: &RunPermit,
        limit: &Arc<TimeLimit>,
        now: Time,
    ) -> RenderEnvironment {
        let local = GoTimeZone::fixed("UTC", 0);
        let capabilities = served.to_helm();
        let runtime = Handle::current();
        let permit = permit.clone();
        let waits = TemplateRequestRunner { runtime, permit, limit: limit.clone() };
        let lookup = TenantClusterLookup {
            cluster: self.target.cluster.clone(),
            namespace: self.node.namespace.clone(),
            waits: waits.clone(),
        };
        RenderEnvironment {
            now: GoTime::from_unix(
                now.as_second(),
                i64::from(now.subsec_nanosecond()),
                local.clone(),
            ),
            local,
            random: Arc::new(windlass_runtime::random_bytes::fill),
            capabilities: Arc::new(capabilities),
            cluster: Some(Arc::new(lookup)),
            stop: StopSignal::default(),
            names: self
                .context
                .settings
                .allows_dns_lookups()
                .then(|| Arc::new(ResolvableHostNames(waits)) as _),
        }
    }

    /// CRDs that the chart brings along and that are written by policy; they are judged.
    ///
    /// Differs(helm 4): upgrades take them along, too, as Flux does it.
    pub(super) async fn crds_to_write(
        &self,
        chart: &Chart,
        config: &GoMap,
        action: OperationKind,
    ) -> Result<Vec<Object>, StepError> {
        let policy = self.options().of_action(action).crds;
        if policy == CrdsPolicy::Skip {
            return Ok(Vec::new());
        }
        let mut chart = chart.clone();
        // An error in the dependencies is reported when the chart is rendered.
        if helm::values::process_dependencies(&mut chart, config).is_err() {
            return Ok(Vec::new());
        }
        let mut wanted = Vec::new();
        for file in chart::crds(&chart) {
            let read = manifest::read(&file.path, &file.file.data, &goyaml::YamlLimits::default());
            let all = read.map_err(|error| StepError::Failed(format!("parsing {error}")))?;
            for located in all {
                let mut object = located.object;
                if object.kind() != "CustomResourceDefinition" {
                    let name = &self.node.name;
                    let namespace = &self.node.namespace;
                    let file = &located.file;
                    let object = object.id().subject();
                    tracing::info!(
                        controller_kind = O::KIND,
                        name,
                        namespace,
                        file,
                        object,
                        "ignored an object in crds/ that is not a CustomResourceDefinition"
                    );
                    continue;
                }
                object.set_label(O::OWNERSHIP.name, &self.node.whole().name);
                object.set_label(O::OWNERSHIP.namespace, &self.node.namespace);
                wanted.push(object);
            }
        }
        if policy == CrdsPolicy::CreateReplace {
            let skipped = self.admitted(wanted.iter()).await?;
            wanted.retain(|it| !skipped.contains(&it.id()));
            return Ok(wanted);
        }
        // Existing CRDs stay as they are, so the guard has nothing to judge.
        let mut missing = Vec::new();
        for object in wanted {
            if self.live_crd(&object).await?.1.is_none() {
                missing.push(object);
            }
        }
        Ok(missing)
    }

    /// Judges the CustomResourceDefinitions among the templates before the ones of `crds/` are written. So either all are
    /// written or none.
    async fn judge_templates(
        &self,
        rendered: Result<RenderedRelease, StepError>,
    ) -> Result<(), StepError> {
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(StepError::Outcome(outcome)) => return Err(StepError::Outcome(outcome)),
            // Templates may need kinds that do not exist yet. They are judged as soon as these kinds exist.
            Err(StepError::Failed(_)) => return Ok(()),
        };
        let read = |content: &str| manifest_objects::read(content).unwrap_or_default();
        let objects: Vec<Object> =
            rendered.manifests.iter().flat_map(|it| read(&it.content)).collect();
        self.admitted(objects.iter()).await?;
        Ok(())
    }

    /// Writes CRDs that the chart brings along, and waits until their kinds are served.
    async fn write_crds(&self, crds: Vec<Object>, action: OperationKind) -> Result<(), StepError> {
        let policy = self.options().of_action(action).crds;
        let mut written = Vec::new();
        for object in crds {
            if self.apply_crd(&object, policy).await? {
                written.push(object);
            }
        }
        let established = async {
            for object in &written {
                let until = tokio::time::Instant::now() + ESTABLISHED_LIMIT;
                let established = established(&self.target.cluster, object, until).await;
                established.map_err(|error| match error {
                    CrdNotEstablishedError::TimedOut(text) => StepError::Failed(text),
                    CrdNotEstablishedError::Cluster(error) => {
                        StepError::Outcome(self.no_answer(&error))
                    }
                })?;
            }
            Ok(())
        };
        if written.is_empty() { Ok(()) } else { self.permit.aside(established).await }
    }

    /// The error of an action on a CRD.
    fn crd_failed(&self, what: &str, object: &Object, error: &ClusterError) -> StepError {
        let name = object.name();
        match error.is_of_server() {
            true => StepError::Outcome(self.no_answer(error)),
            false => StepError::Failed(format!(
                "failed to {what} CustomResourceDefinition {name}: {error}"
            )),
        }
    }

    /// The kind of a CRD, and the live object.
    pub(super) async fn live_crd(
        &self,
        object: &Object,
    ) -> Result<(ApiResourceLocation, Option<Object>), StepError> {
        let cluster = &self.target.cluster;
        let failed = |what: &str, error| self.crd_failed(what, object, &error);
        let resource = cluster.resource(&object.gvk()).await;
        let resource = resource.map_err(|error| failed("find the kind of", error))?;
        let live = cluster.get(&resource, "", object.name()).await;
        let live = live.map_err(|error| failed("read", error))?;
        Ok((resource, live))
    }

    /// Writes one CRD. Returns whether it was written.
    async fn apply_crd(&self, object: &Object, policy: CrdsPolicy) -> Result<bool, StepError> {
        let (resource, live) = self.live_crd(object).await?;
        if live.is_some() && policy == CrdsPolicy::Create {
            return Ok(false);
        }
        if let Some(text) = self.migrated(object).await? {
            return Err(StepError::Failed(text));
        }
        let applied = self.apply_object(&resource, object, false).await;
        applied.map_err(|error| self.crd_failed("apply", object, &error))?;
        Ok(true)
    }

    /// Checks whether the release may have its objects. None may be of a kind that only windlass writes, and the release has
    /// to be allowed to adopt existing ones.
    async fn checked(
        &self,
        rendered: &RenderedRelease,
        action: OperationKind,
        base: Option<&ReleaseRecord>,
    ) -> Result<(), StepError> {
        let target = &self.desired().spec.target;
        let text: String =
            rendered.manifests.iter().map(|it| format!("---\n{}\n", it.content)).collect();
        let cluster = &self.target.cluster;
        let read = manifest_objects::of_text(cluster, &text, &target.name, &target.namespace).await;
        let all = read.map_err(|error| match error {
            ManifestObjectError::Refused(text) => StepError::Failed(text),
            ManifestObjectError::Cluster(error) => StepError::Outcome(self.no_answer(&error)),
        })?;
        let hooks = rendered.hooks.iter();
        let hooks = hooks.flat_map(|it| manifest_objects::read(&it.manifest).unwrap_or_default());
        let mut ids = all.iter().map(|it| it.id.clone()).chain(hooks.map(|it| it.id()));
        if let Some(text) = ids.find_map(|id| record_refusal(&id)) {
            return Err(StepError::Failed(text));
        }
        self.admitted(all.iter().map(|it| &it.object)).await?;
        if self.options().of_action(action).take_ownership {
            return Ok(());
        }
        let before = base.map(|base| manifest_objects::read(&base.manifest).unwrap_or_default());
        let before = before.unwrap_or_default();
        let base_namespace = base.map_or("", |base| base.namespace.as_str());
        let is_known = |member: &ManifestObject| {
            before.iter().any(|it| is_same_object(it, base_namespace, &member.id))
        };
        let new: Vec<ManifestObject> = all.into_iter().filter(|it| !is_known(it)).collect();
        let width = usize::from(self.context.settings.concurrent_ssa);
        let live = manifest_objects::live(cluster, &new, width).await;
        let live = live.map_err(|error| StepError::Outcome(self.no_answer(&error)))?;
        let fault = live
            .iter()
            .flatten()
            .find_map(|it| manifest_objects::foreign(it, &target.name, &target.namespace));
        match fault {
            Some(fault) => Err(StepError::Failed(format!(
                "Unable to continue with {}: {fault}",
                action.as_str()
            ))),
            None => Ok(()),
        }
    }

    /// Whether windlass's own cluster has a namespace. That is known for the namespace of the owner, and for each namespace
    /// that a watch shows.
    pub(super) fn is_there(&self, namespace: &str) -> bool {
        let is_home = self.target.place().is_empty();
        let seen = || self.context.shared::<NamespacePolicies>().facts(namespace);
        is_home && (namespace == self.node.namespace || seen().is_some_and(|it| !it.is_terminating))
    }

    /// Creates the target namespace, if the spec asks for it.
    async fn namespace(&self) -> Result<(), StepError> {
        let name = &self.desired().spec.target.namespace;
        if !self.options().create_namespace || self.is_there(name) {
            return Ok(());
        }
        let cluster = &self.target.cluster;
        let object = Object::new(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"name": name}}}));
        let object = object.map_err(|error| StepError::Failed(error.to_string()))?;
        let resource = cluster.resource(&Gvk::new("v1", "Namespace")).await;
        let resource = resource.map_err(|error| StepError::Outcome(self.no_answer(&error)))?;
        match cluster.create_object(&resource, &object, MANAGER, false).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(409) => Ok(()),
            Err(error) if error.is_of_server() => Err(StepError::Outcome(self.no_answer(&error))),
            Err(error) => {
                Err(StepError::Failed(format!("failed to create namespace {name}: {error}")))
            }
        }
    }
}

/// Adds the values of the revision `base` that `config` lacks. The values with which `base` was rendered become the defaults
/// of the chart.
///
/// Source of the semantics: Helm 4.2 `pkg/action/upgrade.go reuseValues`.
///
/// # Errors
/// The old values do not fit the old chart, in the words of Helm.
pub fn preserved(
    chart: &mut Chart,
    config: &mut GoMap,
    base: &ReleaseRecord,
) -> Result<(), String> {
    let stored = base.chart.as_ref();
    let before = Chart {
        metadata: stored.and_then(|it| it.metadata.clone()).unwrap_or_default(),
        values: stored.and_then(|it| it.values.clone()).unwrap_or_default(),
        ..Chart::default()
    };
    let failed = |error: helm::values::Error| format!("failed to rebuild old values: {error}");
    let defaults = coalesce(&before, &base.config).map_err(failed)?.values;
    let old = Chart { values: base.config.clone(), ..before };
    *config = coalesce(&old, config).map_err(failed)?.values;
    chart.values = defaults;
    Ok(())
}

/// Waits for servers on behalf of a template, without the permit for rendering and only for a limited time.
#[derive(Clone)]
struct TemplateRequestRunner {
    runtime: Handle,
    permit: RunPermit,
    limit: Arc<TimeLimit>,
}

impl TemplateRequestRunner {
    fn answer<T>(&self, limit: Duration, asked: impl Future<Output = T>) -> Option<T> {
        // The timer begins inside of the runtime, which the thread that renders is not in.
        self.end_of(async { tokio::time::timeout(limit, asked).await }).ok()
    }

    /// Waits for the end of `work` without the permit to render. The wait does not count towards the time limit.
    fn end_of<T>(&self, work: impl Future<Output = T>) -> T {
        self.limit.pause(|| self.runtime.block_on(self.permit.aside(work)))
    }
}

/// The longest time for which the API server may answer a `lookup`.
const LOOKUP_LIMIT: Duration = Duration::from_secs(15);

/// The permits for lists that `lookup` has in memory and that no rendering has counted yet, in total and for one namespace.
/// Templates that wait for the API server hold no permit to render, so many may wait at once.
static LOOKUP_LIST_PERMITS: LazyLock<RunPermits> = LazyLock::new(|| RunPermits::shared(4, 2));

/// Answers `lookup` with the rights of the ServiceAccount that applies the release.
struct TenantClusterLookup {
    cluster: ClusterConnection,
    /// The namespace of the object that is rendered.
    namespace: String,
    waits: TemplateRequestRunner,
}

impl ClusterLookup for TenantClusterLookup {
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Value>, String> {
        let asked = async {
            let is_list = wanted.name.is_empty();
            let list_permit = match is_list {
                true => Some(LOOKUP_LIST_PERMITS.acquire(&self.namespace).await),
                false => None,
            };
            let found = tokio::time::timeout(LOOKUP_LIMIT, find(&self.cluster, wanted)).await;
            (found, list_permit)
        };
        // The list is permitted until the rendering has its own permit again, whose budget it then counts for.
        let (found, list_permit) = self.waits.end_of(asked);
        drop(list_permit);
        found.unwrap_or_else(|_| {
            let LookupQuery { api_version, kind, .. } = wanted;
            Err(format!("the API server did not respond for {api_version}, Kind={kind}"))
        })
    }
}

/// Answers `lookup` in a template with an object, a list of objects, or `None` if nothing was found.
///
/// # Errors
/// The error of the API server, in the words of Helm.
pub async fn find(
    cluster: &ClusterConnection,
    wanted: &LookupQuery<'_>,
) -> Result<Option<Value>, String> {
    let gvk = Gvk::new(wanted.api_version, wanted.kind);
    let resource = cluster.resource(&gvk).await.map_err(|error| {
        format!(
            "unable to get apiresource from unstructured: {}/{}, Kind={}: {error}",
            gvk.group, gvk.version, gvk.kind
        )
    })?;
    if wanted.name.is_empty() {
        let found = cluster.list(&resource, wanted.namespace, "").await;
        let items: Vec<Value> =
            found.map_err(|error| error.to_string())?.into_iter().map(Object::into_value).collect();
        let kind = format!("{}List", wanted.kind);
        return Ok(Some(json!({"apiVersion": wanted.api_version, "kind": kind, "items": items})));
    }
    let found = cluster.get(&resource, wanted.namespace, wanted.name).await;
    Ok(found.map_err(|error| error.to_string())?.map(Object::into_value))
}

/// The longest time for resolving a name.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// The names of hosts that windlass itself can resolve.
struct ResolvableHostNames(TemplateRequestRunner);

impl HostNameLookup for ResolvableHostNames {
    fn address_of(&self, host: &str) -> Result<String, String> {
        let missing = |why: &str| format!("lookup {host}: {why}");
        let asked = async { tokio::net::lookup_host((host, 0)).await.map(|mut all| all.next()) };
        let found = self.0.answer(RESOLVE_LIMIT, asked);
        let found = found.ok_or_else(|| missing("timed out"))?;
        let address = found.ok().flatten();
        address.map(|it| it.ip().to_string()).ok_or_else(|| missing("no such host"))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use fake_cluster::answering;

    #[tokio::test(flavor = "multi_thread")]
    async fn lists_of_lookup_wait_for_their_turn_and_single_objects_do_not() {
        let cluster = answering(|(request, _)| {
            let body = match request.as_str() {
                "GET /api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                    {"name": "configmaps", "singularName": "", "kind": "ConfigMap", "namespaced": true,
                        "verbs": ["list"]}]}),
                it if it.contains("/configmaps?") => json!({"metadata": {}, "items": []}),
                _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            };
            (200, Body::from(body.to_string()))
        })
        .await;
        let permit = RunPermits::new(1).run_permit("n").await;
        let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &StopSignal::default()));
        let waits = TemplateRequestRunner { runtime: Handle::current(), permit, limit };
        let finder = Arc::new(TenantClusterLookup { cluster, namespace: "n".to_owned(), waits });
        let lookup = |name: &'static str| {
            let finder = finder.clone();
            tokio::task::spawn_blocking(move || {
                let api_version = "v1";
                finder.lookup(&LookupQuery { api_version, kind: "ConfigMap", namespace: "n", name })
            })
        };
        let held = [LOOKUP_LIST_PERMITS.acquire("n").await, LOOKUP_LIST_PERMITS.acquire("n").await];
        let mut list = lookup("");
        assert!(lookup("a").await.unwrap().unwrap().is_some());
        let early = tokio::time::timeout(Duration::from_millis(200), &mut list).await;
        assert!(early.is_err(), "a third list of a namespace is in memory");
        drop(held);
        let found = list.await.unwrap().unwrap().unwrap();
        assert_eq!(found["kind"], "ConfigMapList");
    }
}
