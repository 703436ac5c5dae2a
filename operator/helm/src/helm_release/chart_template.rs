//! Creates, updates and deletes the HelmChart of a HelmRelease with `spec.chart`.
//!
//! Source: helm-controller 1.6 `internal/reconcile`. Elsewhere: the runs of the HelmChart (`helm_chart`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helm::{HelmChartTemplate, HelmChartTemplateSpec, HelmRelease};
use crds::source::{
    HelmChart, HelmChartSpec, HelmChartVerification, LocalHelmChartSourceReference,
    ReconcileStrategy,
};
use crds::{GoDuration, ReconciledObject as _};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, condition_reason};
use serde_json::Value;

use super::{OWNERSHIP, origin};
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;

/// The field manager of the HelmChart.
const MANAGER: &str = "helm-controller";
/// The range of versions where the template has none, as the API server fills it in.
const ANY_VERSION: &str = "*";

/// The delay after a request failed because of the API server.
const SERVER_RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(2);

/// The HelmChart that a HelmRelease should have, with its key. `None` if the HelmRelease names a source that holds the chart.
pub fn wanted(object: &HelmRelease) -> Option<(ObjectKey, HelmChart)> {
    let HelmChartTemplate { metadata, spec } = object.spec.chart.clone()?;
    let HelmChartTemplateSpec {
        chart,
        version,
        source_ref,
        interval,
        reconcile_strategy,
        values_files,
        ignore_missing_values_files,
        verify,
    } = spec;
    let own = object.namespace().unwrap_or_default();
    let name = format!("{own}-{}", object.name_any());
    let namespace = source_ref.namespace.unwrap_or(own);
    let spec = HelmChartSpec {
        chart,
        version,
        source_ref: LocalHelmChartSourceReference {
            api_version: None,
            kind: source_ref.kind,
            name: source_ref.name,
        },
        interval: in_go(interval.unwrap_or_else(|| object.spec.interval.clone())),
        reconcile_strategy,
        values_files,
        ignore_missing_values_files,
        suspend: false,
        verify: verify.map(|verify| HelmChartVerification {
            provider: verify.provider,
            secret_ref: verify.secret_ref,
            ..HelmChartVerification::default()
        }),
    };
    let mut chart = HelmChart::new(&name, spec);
    let metadata = metadata.unwrap_or_default();
    let mut labels = metadata.labels;
    labels.extend(origin(object));
    chart.metadata.namespace = Some(namespace.clone());
    chart.metadata.labels = Some(labels);
    chart.metadata.annotations = Some(metadata.annotations).filter(|known| !known.is_empty());
    Some((node_named::<HelmChart>(&namespace, &name), chart))
}

/// The interval in Go's notation, so that a HelmChart that Flux made stays unchanged.
fn in_go(interval: GoDuration) -> GoDuration {
    match reconcile::parse_duration(interval.as_str()) {
        Ok(duration) => reconcile::format_duration(duration).into(),
        Err(_) => interval,
    }
}

/// Whether the watch has seen the HelmChart with the present template. True for a HelmRelease without a template.
pub(super) fn is_seen(context: &RunContext, object: &HelmRelease) -> bool {
    let Some((node, chart)) = wanted(object) else { return true };
    let seen = context.seen::<HelmChart>(&node.namespace, &node.name);
    seen.is_some_and(|seen| says_the_same(&seen, &chart))
}

/// Whether the HelmChart of a template is still being made for the present template, without a failure.
pub(super) fn is_on_its_way(context: &RunContext, object: &HelmRelease) -> bool {
    let Some((node, chart)) = wanted(object) else { return false };
    let seen = context.seen::<HelmChart>(&node.namespace, &node.name);
    seen.is_none_or(|seen| {
        let is_current =
            says_the_same(&seen, &chart) && seen.observed_generation() == seen.metadata.generation;
        let is_failing = seen.condition("Ready").is_some_and(|it| it.status == "False");
        !is_current && !is_failing && !seen.is_suspended()
    })
}

/// Whether a live HelmChart has the wanted fields, and no field of windlass that is no longer wanted.
fn is_as_wanted(live: &HelmChart, wanted: &HelmChart) -> bool {
    says_the_same(live, wanted)
        && is_dressed(live, "f:labels", live.labels(), wanted.labels())
        && is_dressed(live, "f:annotations", live.annotations(), wanted.annotations())
}

/// Whether the spec of a live HelmChart equals the wanted one.
fn says_the_same(live: &HelmChart, wanted: &HelmChart) -> bool {
    let HelmChartSpec {
        chart,
        version,
        source_ref,
        interval,
        reconcile_strategy,
        values_files,
        ignore_missing_values_files,
        // Users may suspend it.
        suspend: _,
        verify,
    } = &wanted.spec;
    let spec = &live.spec;
    let versions = [version, &spec.version].map(|it| it.as_deref().unwrap_or(ANY_VERSION));
    let strategies = [reconcile_strategy, &spec.reconcile_strategy]
        .map(|it| it.unwrap_or(ReconcileStrategy::ChartVersion));
    let sources = [source_ref, &spec.source_ref].map(|it| (it.kind, &it.name));
    chart == &spec.chart
        && versions[0] == versions[1]
        && sources[0] == sources[1]
        && interval == &spec.interval
        && strategies[0] == strategies[1]
        && values_files == &spec.values_files
        && *ignore_missing_values_files == spec.ignore_missing_values_files
        && verify == &spec.verify
}

/// Whether all wanted labels or annotations are there, and those that are ours are all wanted.
fn is_dressed(
    live: &HelmChart,
    field: &str,
    there: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> bool {
    let is_ours = |entry: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    };
    let Some(ours) = live.managed_fields().iter().find(is_ours) else { return false };
    let fields = ours.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0);
    let owned = fields.get("f:metadata").and_then(|metadata| metadata.get(field)?.as_object());
    let owned = owned.into_iter().flat_map(|owned| owned.keys());
    let mut owned = owned.filter_map(|key| key.strip_prefix("f:"));
    owned.all(|key| wanted.contains_key(key))
        && wanted.iter().all(|(key, value)| there.get(key) == Some(value))
}

/// Whether a HelmChart was made for a HelmRelease, as its labels say.
fn is_of(chart: &HelmChart, object: &HelmRelease) -> bool {
    origin(object).iter().all(|(key, value)| chart.labels().get(key) == Some(value))
}

/// `namespace/name`, as `status.helmChart` has it.
fn place(node: &ObjectKey) -> String {
    format!("{}/{}", node.namespace, node.name)
}

/// The HelmChart that the status of a HelmRelease names. `None` if the status names none.
fn known(object: &HelmRelease) -> Option<ObjectKey> {
    let place = object.status.as_ref()?.helm_chart.as_deref()?;
    let (namespace, name) = place.split_once('/')?;
    Some(node_named::<HelmChart>(namespace, name))
}

/// The HelmChart of a HelmRelease that its status still names, but that is no longer wanted. `None` if there is none.
fn left(object: &HelmRelease, wanted: Option<&ObjectKey>) -> Option<ObjectKey> {
    known(object).filter(|known| Some(known) != wanted)
}

/// Checks that the HelmChart is in the HelmRelease's own namespace, where references to others are forbidden.
fn check_access(
    object: &HelmRelease,
    chart: &ObjectKey,
    is_forbidden: bool,
) -> Result<(), RunOutcome> {
    let own = object.namespace().unwrap_or_default();
    if !is_forbidden || chart.namespace == own {
        return Ok(());
    }
    let text = format!(
        "cross-namespace references are not allowed: cannot access HelmChart {}; name a source in namespace {own} in \
         spec.chart.spec.sourceRef",
        place(chart)
    );
    Err(RunOutcome::Stalled(condition_reason::ACCESS_DENIED, text))
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(condition_reason::ARTIFACT_FAILED, text, NextRunTrigger::default())
}

/// Makes the HelmChart what the template says and deletes a former one; returns the value of `status.helmChart`.
///
/// Sends no request if the watch has seen all of that.
///
/// Differs(flux): a reference that is forbidden leaves the HelmChart that there is.
pub(super) async fn keep(
    context: &RunContext,
    object: &HelmRelease,
) -> Result<Option<String>, RunOutcome> {
    let wanted = wanted(object);
    if let Some((node, _)) = &wanted {
        check_access(object, node, context.settings.no_cross_namespace_refs)?;
    }
    if let Some(left) = left(object, wanted.as_ref().map(|(node, _)| node)) {
        let refused =
            |error| failed(format!("failed to delete HelmChart '{}': {error}", place(&left)));
        delete(context, object, &left).await.map_err(refused)?;
    }
    let Some((node, chart)) = wanted else { return Ok(None) };
    let seen = context.seen::<HelmChart>(&node.namespace, &node.name);
    if !seen.as_ref().is_some_and(|seen| is_as_wanted(seen, &chart)) {
        let refused = |error: ClusterError| {
            let place = place(&node);
            let text = format!("HelmChart '{place}': failed to run server-side apply: {error}");
            let soon = jiff::Timestamp::now().checked_add(SERVER_RETRY_DELAY).ok();
            let wake = NextRunTrigger {
                at: soon.filter(|_| error.is_transient()),
                ..NextRunTrigger::default()
            };
            RunOutcome::Failed(condition_reason::ARTIFACT_FAILED, text, wake)
        };
        let live = match seen {
            // If the watch has not seen a write yet, the write is repeated, which changes nothing.
            Some(seen) => Some(seen),
            None => {
                let live = context.cluster.read::<HelmChart>(&node.namespace, &node.name).await;
                live.map_err(refused)?.map(Arc::new)
            }
        };
        if let Some(other) = live.as_ref().and_then(|live| keeper(context, live, object, &node)) {
            return Err(taken(context, &node, &other));
        }
        // The watch may not have seen yet that the HelmChart is as wanted.
        if !live.as_ref().is_some_and(|live| is_as_wanted(live, &chart)) {
            apply(context, object, &node, &chart, live.is_none()).await.map_err(refused)?;
        }
    }
    Ok(Some(place(&node)))
}

/// Another HelmRelease that keeps a HelmChart, as its labels say, and whose template still names that HelmChart. `None` if
/// there is no other one.
fn keeper(
    context: &RunContext,
    chart: &HelmChart,
    object: &HelmRelease,
    node: &ObjectKey,
) -> Option<ObjectKey> {
    if is_of(chart, object) {
        return None;
    }
    let labels = chart.labels();
    let name = labels.get(OWNERSHIP.name)?;
    let namespace = labels.get(OWNERSHIP.namespace)?;
    let other = context.seen::<HelmRelease>(namespace, name)?;
    let (meant, _) = wanted(&other)?;
    (meant == *node).then(|| node_named::<HelmRelease>(namespace, name))
}

/// Namespace and name of two HelmReleases make the same name of a HelmChart, as those of `a-b/c` and `a/b-c` do.
///
/// Differs(flux): there each of them changes the HelmChart in turn, and both release one chart.
fn taken(context: &RunContext, chart: &ObjectKey, other: &ObjectKey) -> RunOutcome {
    let text = format!(
        "HelmChart '{}' belongs to HelmRelease '{}', whose namespace and name result in the same chart name; \
         rename one of them, or create a HelmChart and reference it in spec.chartRef",
        place(chart),
        place(other)
    );
    let again = jiff::Timestamp::now().saturating_add(context.settings.requeue_dependency);
    let wake = NextRunTrigger::on([other.clone()]).and_at(again.unwrap_or(reconcile::Time::MAX));
    RunOutcome::Failed(condition_reason::ARTIFACT_FAILED, text, wake)
}

/// Applies a HelmChart and announces that.
async fn apply(
    context: &RunContext,
    object: &HelmRelease,
    node: &ObjectKey,
    chart: &HelmChart,
    is_new: bool,
) -> Result<(), ClusterError> {
    let broken = |error: &dyn std::fmt::Display| ClusterError::NoAnswer(error.to_string());
    let manifest = serde_json::to_value(chart).map_err(|error| broken(&error))?;
    let manifest = Object::new(manifest).map_err(|error| broken(&error))?;
    let resource = context.cluster.resource(&manifest.gvk()).await?;
    context.cluster.apply(&resource, &manifest, MANAGER, DryRunMode::Write).await?;
    let source = &chart.spec.source_ref;
    let (reason, done) = match is_new {
        true => ("HelmChartCreated", "Created"),
        false => ("HelmChartConfigured", "Configured"),
    };
    let message = format!(
        "{done} HelmChart/{} with SourceRef '{}/{}/{}'",
        place(node),
        source.kind,
        node.namespace,
        source.name
    );
    announce(context, object, reason, message);
    Ok(())
}

/// Deletes the HelmChart of a deleted HelmRelease. It finds the HelmChart also if a process ended before it wrote the
/// HelmChart to the status.
///
/// # Errors
/// The API server refuses the request, or does not respond. A HelmChart that is gone is not an error.
pub(super) async fn remove(context: &RunContext, object: &HelmRelease) -> Result<(), ClusterError> {
    let wanted = wanted(object).map(|(node, _)| node);
    for node in left(object, wanted.as_ref()).iter().chain(&wanted) {
        delete(context, object, node).await?;
    }
    Ok(())
}

/// Reads the present HelmChart. It does not exist if its CustomResourceDefinition is missing, as when Flux's definitions are
/// deleted in any order. A path that is not served does not by itself prove that the HelmChart is gone.
async fn there(
    cluster: &ClusterConnection,
    node: &ObjectKey,
) -> Result<Option<Object>, ClusterError> {
    let id = ObjectId::new(&node.namespace, &node.name, &node.group, &node.kind);
    cluster.get_by_id(&id, "v1").await
}

/// Deletes a HelmChart that was made for the HelmRelease.
///
/// Differs(flux): there any HelmChart goes whose name a status has; here its labels have to say whose it is. So one in
/// another namespace goes as well where references have been forbidden since, and the HelmRelease can.
async fn delete(
    context: &RunContext,
    object: &HelmRelease,
    node: &ObjectKey,
) -> Result<(), ClusterError> {
    let Some(chart) = there(&context.cluster, node).await? else { return Ok(()) };
    let place = place(node);
    if !origin(object).iter().all(|(key, value)| chart.label(key) == Some(value)) {
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        tracing::info!(
            name,
            namespace,
            chart = place,
            "HelmChart not deleted, because its labels {} and {} do not name this HelmRelease",
            OWNERSHIP.name,
            OWNERSHIP.namespace,
        );
        return Ok(());
    }
    let resource = context.cluster.resource(&chart.gvk()).await?;
    context.cluster.delete_unmanaged(&resource, &node.namespace, &node.name, chart.uid()).await?;
    announce(context, object, "HelmChartDeleted", format!("deleted HelmChart '{place}'"));
    Ok(())
}

fn announce(context: &RunContext, object: &HelmRelease, reason: &str, message: String) {
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    tracing::info!(name, namespace, reason, "{message}");
    let event = ObjectEvent {
        severity: EventSeverity::Info,
        reason: reason.to_owned(),
        message,
        metadata: BTreeMap::new(),
    };
    context.events.announce(object, MANAGER, event);
}

#[cfg(test)]
mod tests;
