//! Finds the source object that has the chart of a HelmRelease.
//!
//! Elsewhere: the HelmChart for `spec.chart` (`chart_template`), reading the chart (`release_runner::chart`).

use crds::helm::HelmRelease;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};

use super::chart_template;
use crate::release_runner::chart_cache::ChartSource;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

/// The key of the object from which a HelmRelease gets its chart. `None` if the spec names no chart.
pub(super) fn source_node(object: &HelmRelease) -> Option<ObjectKey> {
    let own = object.namespace().unwrap_or_default();
    if let Some(named) = &object.spec.chart_ref {
        let namespace = named.namespace.as_deref().unwrap_or(&own);
        return Some(ObjectKey::new(SOURCES, named.kind.as_str(), namespace, &named.name));
    }
    let template = object.spec.chart.as_ref()?;
    let namespace = template.spec.source_ref.namespace.as_deref().unwrap_or(&own);
    let name = format!("{own}-{}", object.name_any());
    Some(ObjectKey::new(SOURCES, "HelmChart", namespace, &name))
}

/// The source that the spec of a HelmRelease names. If windlass makes a HelmChart for the HelmRelease, this is the source of
/// that HelmChart. `None` if the spec names no chart.
pub(super) fn named_source(object: &HelmRelease) -> Option<ObjectKey> {
    let Some(template) = object.spec.chart.as_ref().filter(|_| object.spec.chart_ref.is_none())
    else {
        return source_node(object);
    };
    let own = object.namespace().unwrap_or_default();
    let source = &template.spec.source_ref;
    let namespace = source.namespace.as_deref().unwrap_or(&own);
    Some(ObjectKey::new(SOURCES, source.kind.as_str(), namespace, &source.name))
}

/// The artifact of the chart, as the watch last saw it.
pub(super) fn source(
    context: &RunContext,
    object: &HelmRelease,
    retry_at: Time,
) -> Result<ChartSource, RunOutcome> {
    let own = object.namespace().unwrap_or_default();
    let Some(node) = source_node(object) else {
        let text = "neither spec.chart nor spec.chartRef is set; set one of them".to_owned();
        return Err(RunOutcome::Stalled(condition_reason::ARTIFACT_FAILED, text));
    };
    if context.settings.no_cross_namespace_refs && node.namespace != own {
        let text = format!(
            "can't access '{node}': cross-namespace references have been blocked by --no-cross-namespace-refs; use a \
             source in namespace {own}"
        );
        return Err(RunOutcome::Stalled(condition_reason::ACCESS_DENIED, text));
    }
    let blocked = |why, text: String| {
        RunOutcome::Blocked(why, text, NextRunTrigger::on([node.clone()]).and_at(retry_at))
    };
    // This is asked before the artifact is read. Otherwise the watch may bring the new HelmChart between the two, and the
    // older artifact would count as the new HelmChart's.
    let is_template_seen = chart_template::is_seen(context, object);
    let Some(found) = context.sources.find(&node, &context.settings) else {
        let text = match object.spec.chart_ref {
            Some(_) => format!("source '{node}' not found; create it or correct spec.chartRef"),
            None => format!("{node} does not exist yet"),
        };
        return Err(blocked(condition_reason::ARTIFACT_FAILED, text));
    };
    found.admit(&context.kept, &context.artifacts, &own, &node)?;
    if let Some(why) = found.denied {
        return Err(blocked(SOURCE_NOT_READY, why));
    }
    // The watch may lag behind a recent write. The former chart version must not be released with new values.
    let not_current = match is_template_seen {
        true => found.not_current,
        false => Some("its latest generation has not been reconciled".to_owned()),
    };
    if let Some(why) = not_current {
        return Err(blocked(SOURCE_NOT_READY, format!("{node} is not ready: {why}")));
    }
    let Some(artifact) = found.artifact else {
        let text = format!("{node} is not ready: it has no artifact");
        return Err(blocked(SOURCE_NOT_READY, text));
    };
    Ok(ChartSource { node, artifact, is_elsewhere: found.is_elsewhere })
}

/// The source has no artifact yet.
pub(super) const SOURCE_NOT_READY: reconcile::ConditionReason =
    reconcile::ConditionReason::new("SourceNotReady");
