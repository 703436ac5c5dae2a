//! Renders the Helmfile releases that differ. For this, each Helmfile is planned again, now with charts from other hosts.
//! Helmfiles are planned one after the other, so only one has its values and charts in memory.
//!
//! Elsewhere: finding the releases (`helmfile_releases.rs`), rendering (`release_rendering.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use helmfile_controller::helmfile::plan::{PlannedRelease, ReleaseKey};
use objects::ObjectId;
use plan::{RenderedApplier, UnknownValue};

use super::applier_discovery::ApplierKind;
use super::helmfile_releases::{HelmfileReleaseInputs, PlannableHelmfile};
use super::helmfile_request_sender::{HelmfileFetchRefusals, HelmfileRequestSender};
use super::parallel_work::in_parallel;
use super::release_rendering::{ReleaseRenderer, RenderedObjects};
use super::render_failure::RenderFailure;
use super::resource_scope::DeclaredKindScopes;

/// A release of a Helmfile that has to be rendered.
pub(crate) struct PendingHelmfileRelease {
    pub(crate) id: ObjectId,
    pub(crate) inputs: Box<HelmfileReleaseInputs>,
    pub(crate) is_upgrade: bool,
    /// The known facts about its applier.
    pub(crate) begun: RenderedApplier,
}

/// The releases of a Helmfile with their charts.
#[derive(Default)]
struct PlannedReleases {
    releases: BTreeMap<ReleaseKey, PlannedRelease>,
    /// The charts that were not fetched.
    unfetched: Arc<HelmfileFetchRefusals>,
}

/// The plan of a Helmfile with the charts of its releases, or the reason why planning failed.
type PlanWithCharts = Result<PlannedReleases, RenderFailure>;

/// Renders releases.
///
/// # Errors
/// A thread could not do its work.
pub(crate) fn render_helmfile_releases(
    pending: Vec<PendingHelmfileRelease>,
    kinds: &DeclaredKindScopes,
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> anyhow::Result<Vec<(ObjectId, RenderedApplier)>> {
    let mut by_helmfile: BTreeMap<ObjectId, Vec<PendingHelmfileRelease>> = BTreeMap::new();
    for release in pending {
        let helmfile = release.inputs.plannable.helmfile.id.clone();
        by_helmfile.entry(helmfile).or_default().push(release);
    }
    let mut appliers = Vec::new();
    for pending in by_helmfile.into_values() {
        let planned = planned_releases(&pending, renderer, deadline)?;
        let rendered = in_parallel(pending, |release| {
            let objects = objects_of(&release, &planned, kinds, renderer, deadline);
            (release.id, applier_with(objects, release.begun))
        })?;
        appliers.extend(rendered);
    }
    Ok(appliers)
}

/// Plans the Helmfile of some releases again, now with their charts.
fn planned_releases(
    pending: &[PendingHelmfileRelease],
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> anyhow::Result<PlanWithCharts> {
    let refusals: Vec<String> = pending.iter().filter_map(|it| it.inputs.refusal.clone()).collect();
    let plannable: Vec<Arc<PlannableHelmfile>> =
        pending.iter().take(1).map(|it| it.inputs.plannable.clone()).collect();
    // Planning needs a thread with a large stack.
    let planned = in_parallel(plannable, |plannable| -> PlanWithCharts {
        if Instant::now() > deadline {
            return Err(RenderFailure::out_of_time());
        }
        let servers = HelmfileRequestSender::without_charts(&renderer.charts, &renderer.remote);
        let servers = servers.with_charts(refusals.clone());
        let unfetched = servers.unfetched();
        let PlannableHelmfile { helmfile, location, surroundings } = &*plannable;
        let plan = helmfile.plan(location, surroundings, servers)?.plan;
        let releases = plan.releases.into_iter().map(|release| (release.key.clone(), release));
        Ok(PlannedReleases { releases: releases.collect(), unfetched })
    })?;
    Ok(planned.into_iter().next().unwrap_or_else(|| Ok(PlannedReleases::default())))
}

fn objects_of(
    pending: &PendingHelmfileRelease,
    planned: &PlanWithCharts,
    kinds: &DeclaredKindScopes,
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> Result<RenderedObjects, RenderFailure> {
    if Instant::now() > deadline {
        return Err(RenderFailure::out_of_time());
    }
    let HelmfileReleaseInputs { plannable, key, refusal, .. } = &*pending.inputs;
    let PlannedReleases { releases, unfetched } = planned.as_ref().map_err(Clone::clone)?;
    let gone = || "its helmfile has it no more when it is planned again".to_owned();
    let release = releases.get(key).ok_or_else(gone)?;
    let settings = &renderer.settings;
    let rendering = plannable.helmfile.release_to_render(release, pending.is_upgrade, settings);
    let refusal = refusal.as_deref().filter(|_| release.chart.is_err());
    let rendering = rendering.map_err(|text| unfetched.failure_of_release(refusal, text))?;
    renderer.objects_of(rendering, kinds).map_err(RenderFailure::Failed)
}

/// The facts about an applier, with its objects or the reason why there are none.
fn applier_with(
    rendered: Result<RenderedObjects, RenderFailure>,
    begun: RenderedApplier,
) -> RenderedApplier {
    match rendered {
        Ok(RenderedObjects { objects, chart, unknown_values, has_drawn_values }) => {
            let mut applier =
                RenderedApplier { objects, source_revision: chart, has_drawn_values, ..begun };
            applier.unknown_values.extend(unknown_values);
            let declared = declared_appliers(&applier);
            applier.unknown_values.extend(declared);
            applier
        }
        Err(failure) => failure.of_applier(begun),
    }
}

/// The appliers among the objects of a release. The objects that they would apply are not compared.
fn declared_appliers(applier: &RenderedApplier) -> Vec<UnknownValue> {
    let appliers = applier.objects.iter().filter(|it| ApplierKind::of(it).is_some());
    let unknown = appliers.map(|object| UnknownValue {
        what: format!("objects of {}", object.id().subject()),
        reason: "a release of a Helmfile declares it, and what such appliers apply is not followed"
            .to_owned(),
    });
    unknown.collect()
}
