//! What a chart would change that takes the place of a HelmRelease's: an upgrade, or an installation where there is no
//! release.
//!
//! Elsewhere: values and post-renderers (`controllers::helm_release`), how objects are read and written
//! (`controllers::releaser`), rendering (engine `helm`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use crds::helm::{ChartNameChangeStrategy, CrdsPolicy, HelmRelease};
use futures::stream::{self, StreamExt as _};
use golang::meter::Stop;
use golang::time::{Time, Zone};
use golang::value::Map;
use helm::chart::{Chart, crds as definitions};
use helm::env::{Env, Lookup, Wanted};
use helm::render::{Mode as Templates, Release};
use helm::template::{Request, render};
use objects::{Gvk, Masking, Object, ObjectId};
use release::target::{self, TargetChange};
use release::{Action as Operation, Record};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::change::{Action, Change, Compared, Difference, Planned};
use super::{on_large_stack, references, say_suspended, told};
use crate::cli::template::load_chart;
use crate::cluster::capabilities::Served;
use crate::cluster::objects::Mode;
use crate::cluster::{Cluster, ClusterError};
use crate::controllers::helm_release::{post_renderers, status, values, wish};
use crate::controllers::releaser::MANAGER;
use crate::controllers::releaser::action_options::ActionOptions;
use crate::controllers::releaser::members::{self, Member, POLICY};
use crate::controllers::releaser::merge;
use crate::controllers::releaser::postrender::PostRenderers;
use crate::controllers::releaser::prepare;
use crate::controllers::releaser::storage::{Storage, StorageError};
use crate::settings::Settings;
use crate::time_limit::{TIME_LIMIT, TimeLimit};

/// How long the API server may take to respond to a `lookup`.
const LOOKUP_LIMIT: Duration = Duration::from_secs(15);

const TAKEN_OVER: &str =
    "fields that Helm or kubectl have set are taken over; those that the manifest lacks go";

/// Compares a chart with what a HelmRelease released.
///
/// # Errors
/// It cannot be rendered.
pub(super) async fn diff(
    cluster: &Cluster,
    object: HelmRelease,
    path: &Path,
    settings: Settings,
) -> anyhow::Result<Difference> {
    let spec = &object.spec;
    ensure!(
        spec.kube_config.is_none(),
        "it is released to the cluster of spec.kubeConfig, which `windlass diff` does not read"
    );
    let has_files = spec.chart.as_ref().is_some_and(|it| !it.spec.values_files.is_empty());
    ensure!(!has_files, "`windlass diff` does not support spec.chart.spec.valuesFiles");
    say_suspended(spec.suspend);
    let values = values::read(&object, &mut references(cluster)).await.map_err(told)?;
    let target = wish::target(&object);
    let storage = Storage::new(cluster, &target.storage_namespace, &target.name, "").await;
    let revisions = storage.map_err(StorageError::into_cluster)?.revisions().await;
    let revisions = revisions.map_err(StorageError::into_cluster)?;
    if let Some(broken) = revisions.unreadable_last() {
        bail!("release record {}: {}", broken.secret, broken.problem);
    }
    let base = revisions.current().map(|it| it.record.clone());
    let last = revisions.last().map_or(0, |it| it.record.version);
    let operation = if base.is_some() { Operation::Upgrade } else { Operation::Install };
    let options = ActionOptions::of(spec, &settings);
    let (mut chart, mut config) = (load_chart(path).map_err(anyhow::Error::msg)?, values.map);
    is_in_place(&object, &chart)?;
    if let Some(base) = base.as_deref().filter(|_| options.preserve_values) {
        prepare::preserved(&mut chart, &mut config, base).map_err(anyhow::Error::msg)?;
    }
    let planned = match options.of_action(operation).crds {
        CrdsPolicy::Skip => Planned::default(),
        CrdsPolicy::Create | CrdsPolicy::CreateReplace => brought(&chart)?,
    };
    let rendering = Rendering {
        chart,
        config,
        release: Release {
            name: target.name.clone(),
            namespace: target.namespace.clone(),
            revision: last + 1,
            is_upgrade: operation == Operation::Upgrade,
        },
        skip_schema: options.of_action(operation).skip_schema,
        post: post_renderers(&object, options.post_render),
    };
    let served = cluster.served().await?;
    let (asked, runtime) = (cluster.clone(), Handle::current());
    let manifest = on_large_stack(move || rendering.manifest(asked, runtime, &served)).await?;
    let manifest = manifest.map_err(|text| anyhow::anyhow!(values.secrets.mask(&text)))?;
    let wanted = members::read(&manifest).map_err(anyhow::Error::msg)?;
    let secrets = values.secrets.with_manifests(&wanted);
    let comparison = Comparison {
        cluster,
        name: &target.name,
        namespace: &target.namespace,
        operation,
        options,
        is_server_side: options.is_server_side(operation, base.as_deref()),
        was_merged: base.as_deref().is_some_and(|base| !base.is_server_side()),
        overrides: overrides(&settings),
        planned,
        secrets,
    };
    let width = usize::from(settings.concurrent_ssa);
    comparison.difference(wanted, base.as_deref(), width).await
}

/// Whether the release stays what it is; another one would be installed in its place otherwise.
fn is_in_place(object: &HelmRelease, chart: &Chart) -> anyhow::Result<()> {
    let (target, known) = (wish::target(object), status::read(object));
    let name = &chart.metadata.name;
    let changed = target::change(&target, name, &known.storage_namespace, &known.history);
    let strategy = object.spec.upgrade.as_ref().and_then(|it| it.chart_name_change_strategy);
    let may_be_renamed = strategy == Some(ChartNameChangeStrategy::InPlaceUpdate);
    match changed.filter(|it| *it != TargetChange::Chart || !may_be_renamed) {
        None => Ok(()),
        Some(changed) => bail!(
            "the {} is another one: windlass would remove the release and install it again, which `windlass diff` does \
             not compare",
            changed.as_str()
        ),
    }
}

/// Field managers whose fields become those of windlass.
fn overrides(settings: &Settings) -> Vec<String> {
    let ours = ["helm", MANAGER].map(str::to_owned).into_iter();
    ours.chain(settings.override_manager.iter().cloned()).collect()
}

/// The kinds whose CRDs the chart has in `crds`.
fn brought(chart: &Chart) -> anyhow::Result<Planned> {
    let mut found = Vec::new();
    for file in definitions(chart) {
        let text = String::from_utf8_lossy(&file.file.data).into_owned();
        found.extend(members::read(&text).map_err(anyhow::Error::msg)?);
    }
    Ok(Planned::of(found.iter()))
}

/// What is rendered.
struct Rendering {
    chart: Chart,
    config: Map,
    release: Release,
    skip_schema: bool,
    post: PostRenderers,
}

impl Rendering {
    /// The manifests without hooks.
    fn manifest(
        self,
        cluster: Cluster,
        runtime: Handle,
        served: &Served,
    ) -> Result<String, String> {
        let Self { chart, config, release, skip_schema, post } = self;
        let stop = Stop::default();
        let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
        let env = env(served, stop, Finder { cluster, runtime, limit });
        let rendered = post.with(|post_render| {
            let request = Request {
                chart,
                values: &config,
                release,
                mode: Templates::default(),
                skip_schema,
                sub_notes: false,
                templates: None,
                post_render,
            };
            render(request, &env, &mut Vec::new())
        });
        let rendered = rendered.map_err(|error| error.to_string())?;
        Ok(rendered.manifests.iter().map(|it| format!("---\n{}\n", it.content)).collect())
    }
}

fn env(served: &Served, stop: Stop, finder: Finder) -> Env {
    let (now, local) = (jiff::Timestamp::now(), Zone::fixed("UTC", 0));
    let capabilities = served.to_helm();
    Env {
        now: Time::from_unix(now.as_second(), i64::from(now.subsec_nanosecond()), local.clone()),
        local,
        random: Arc::new(crate::random::fill),
        capabilities: Arc::new(capabilities),
        cluster: Some(Arc::new(finder)),
        stop,
        names: None,
    }
}

/// What `lookup` finds, in the name of the user.
struct Finder {
    cluster: Cluster,
    runtime: Handle,
    limit: Arc<TimeLimit>,
}

impl Lookup for Finder {
    fn lookup(&self, wanted: &Wanted<'_>) -> Result<Option<Value>, String> {
        let asked = async {
            tokio::time::timeout(LOOKUP_LIMIT, prepare::find(&self.cluster, wanted)).await
        };
        let found = self.limit.pause(|| self.runtime.block_on(asked));
        found.unwrap_or_else(|_| {
            let Wanted { api_version, kind, .. } = wanted;
            Err(format!("the API server did not respond for {api_version}, Kind={kind}"))
        })
    }
}

/// What objects are compared with, and how they would be written.
struct Comparison<'c> {
    cluster: &'c Cluster,
    name: &'c str,
    namespace: &'c str,
    operation: Operation,
    options: ActionOptions,
    is_server_side: bool,
    was_merged: bool,
    overrides: Vec<String>,
    planned: Planned,
    secrets: Masking,
}

impl Comparison<'_> {
    async fn difference(
        mut self,
        wanted: Vec<Object>,
        base: Option<&Record>,
        width: usize,
    ) -> anyhow::Result<Difference> {
        let mut difference = Difference::default();
        if let Some(namespace) = self.new_namespace().await? {
            self.planned.namespaces.insert(self.namespace.to_owned());
            difference.changes.push(Change::of(Action::Created, &namespace));
        }
        let mut originals = BTreeMap::new();
        let before = base.map_or("", |base| &base.manifest);
        for object in members::read(before).map_err(anyhow::Error::msg)? {
            let id = object.id();
            let namespace = base.map_or(self.namespace, |base| &base.namespace);
            match members::reached(self.cluster, object, namespace).await {
                Ok(Some(member)) => {
                    originals.insert(member.id.clone(), member);
                }
                Ok(None) => {}
                Err(error) => difference.problems.push(self.refused(&id, &error)),
            }
        }
        let (mut placed, mut ids) = (Vec::new(), BTreeSet::new());
        for object in wanted {
            let mut id = object.id();
            match members::placed(self.cluster, object.clone(), self.namespace).await {
                Ok((resource, mut object)) => {
                    members::owned(&mut object, self.name, self.namespace);
                    id = object.id();
                    placed.push(Member { id: id.clone(), object, resource });
                }
                Err(ClusterError::NoSuchKind { .. }) if self.planned.has_kind_of(&object) => {
                    difference.changes.push(Change::of(Action::Created, &object));
                }
                Err(error) => difference.problems.push(self.refused(&id, &error)),
            }
            ids.insert(id);
        }
        let compared: Vec<_> =
            placed.iter().map(|it| self.compare(it, originals.get(&it.id))).collect();
        let compared: Vec<_> = stream::iter(compared).buffered(width).collect().await;
        compared.into_iter().for_each(|it| difference.add(it));
        let gone: Vec<_> = originals.values().filter(|it| !ids.contains(&it.id)).collect();
        let removed: Vec<_> = gone.into_iter().map(|it| self.removed(it)).collect();
        let removed: Vec<_> = stream::iter(removed).buffered(width).collect().await;
        removed.into_iter().flatten().for_each(|it| difference.add(it));
        Ok(difference)
    }

    /// The namespace that an installation creates, if it is missing.
    async fn new_namespace(&self) -> anyhow::Result<Option<Object>> {
        if self.operation != Operation::Install || !self.options.create_namespace {
            return Ok(None);
        }
        let resource = self.cluster.resource(&Gvk::new("v1", "Namespace")).await?;
        let live = self.cluster.get(&resource, "", self.namespace).await;
        if live.with_context(|| format!("cannot read namespace {}", self.namespace))?.is_some() {
            return Ok(None);
        }
        let metadata = json!({"name": self.namespace, "labels": {"name": self.namespace}});
        let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        Ok(Some(Object::new(value)?))
    }

    /// How an object would change; the error says why it cannot be compared.
    async fn compare(
        &self,
        member: &Member,
        original: Option<&Member>,
    ) -> Result<Compared, String> {
        let Member { id, object, resource } = member;
        let refused = |error: ClusterError| self.refused(id, &error);
        let live = self.cluster.get(resource, &id.namespace, &id.name).await.map_err(refused)?;
        let Some(live) = live else {
            let created = Ok(Compared::Changes(Change::of(Action::Created, object)));
            return match self.try_to_create(member).await {
                Err(error) if error.is_not_found() && self.is_planned(id) => created,
                tried => tried.map_err(refused).and(created),
            };
        };
        let options = self.options.of_action(self.operation);
        let foreign = members::foreign(&live, self.name, self.namespace);
        if let Some(fault) = foreign.filter(|_| !options.take_ownership && original.is_none()) {
            return Err(fault);
        }
        let (after, is_foreign) = if self.is_server_side {
            let taken = apply::take_over(&live, MANAGER, &self.overrides);
            (self.try_to_apply(member).await, self.was_merged && taken.is_some())
        } else if self.options.forces(self.operation) {
            (self.try_to_replace(member, &live).await, false)
        } else {
            let patch = merge::patch(original.map(|it| &it.object), object, &live);
            let Some(patch) = patch else { return Ok(Compared::Same) };
            let place = (id.namespace.as_str(), id.name.as_str());
            (self.cluster.try_merge_patch(resource, place, &patch, MANAGER).await, false)
        };
        let after = after.map_err(refused)?;
        if !is_foreign && !apply::compare::has_drifted(&live, &after) {
            return Ok(Compared::Same);
        }
        let change = Change::between(&live, &after, &self.secrets);
        Ok(Compared::Changes(change.noted(is_foreign.then_some(TAKEN_OVER))))
    }

    /// Whether a namespace is created before.
    fn is_planned(&self, id: &ObjectId) -> bool {
        self.planned.namespaces.contains(&id.namespace)
    }

    async fn try_to_create(&self, member: &Member) -> Result<Object, ClusterError> {
        if self.is_server_side {
            return self.try_to_apply(member).await;
        }
        let Member { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.create_object(resource, object, &dry(), strict).await
    }

    async fn try_to_apply(&self, member: &Member) -> Result<Object, ClusterError> {
        let Member { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.apply_checked(resource, object, MANAGER, Mode::DryRun, strict).await
    }

    async fn try_to_replace(&self, member: &Member, live: &Object) -> Result<Object, ClusterError> {
        let mut whole = member.object.clone();
        if let Some(version) = live.meta("resourceVersion").cloned() {
            whole.metadata_mut().insert("resourceVersion".to_owned(), version);
        }
        self.cluster.replace_object(&member.resource, &whole, &dry()).await
    }

    /// An object that only the revision before has; nothing if it is gone, or another release has it.
    async fn removed(&self, member: &Member) -> Option<Result<Compared, String>> {
        let Member { id, resource, .. } = member;
        let live = match self.cluster.get(resource, &id.namespace, &id.name).await {
            Ok(live) => live?,
            Err(error) => return Some(Err(self.refused(id, &error))),
        };
        if members::is_of_another(&live, self.name, self.namespace) {
            return None;
        }
        Some(Ok(match live.annotation(POLICY) == Some("keep") {
            true => Compared::Skipped,
            false => Compared::Changes(Change::of(Action::Removed, &live)),
        }))
    }

    /// Why an object cannot be compared. The API server may quote it.
    fn refused(&self, id: &ObjectId, error: &ClusterError) -> String {
        format!("{}: {}", id.subject(), self.secrets.mask(&error.to_string()))
    }
}

/// The field manager of a write that is only tried.
fn dry() -> String {
    format!("{MANAGER}&dryRun=All")
}
