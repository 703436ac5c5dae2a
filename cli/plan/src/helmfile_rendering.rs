//! The objects of releases of Helmfiles that change. Their Helmfile is planned once more for that, with their charts of other
//! hosts: one Helmfile after the other, so that the values and charts of one are in memory.
//!
//! Elsewhere: which releases there are (`helmfile_releases.rs`), rendering (`release_rendering.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use helmfile_controller::helmfile::plan::{PlannedRelease, ReleaseKey};
use objects::ObjectId;
use plan::{RenderedApplier, UnknownValue};

use super::discovery::{ApplierKind, TIME_IS_OVER};
use super::helmfile_releases::{HelmfileReleaseInputs, PlannableHelmfile};
use super::helmfile_servers::HelmfileServers;
use super::parallel_work::in_parallel;
use super::release_rendering::{ReleaseRenderer, RenderedObjects};
use super::resource_scope::DeclaredKindScopes;

/// A release of a Helmfile that is to be rendered.
pub(crate) struct PendingHelmfileRelease {
    pub(crate) id: ObjectId,
    pub(crate) inputs: Box<HelmfileReleaseInputs>,
    pub(crate) is_upgrade: bool,
    /// What is known of its applier.
    pub(crate) begun: RenderedApplier,
}

/// The releases of a Helmfile with their charts, or why it could not be planned.
type PlannedReleases = Result<BTreeMap<ReleaseKey, PlannedRelease>, String>;

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

/// Plans the Helmfile of some releases once more, with their charts.
fn planned_releases(
    pending: &[PendingHelmfileRelease],
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> anyhow::Result<PlannedReleases> {
    let refusals: Vec<String> = pending.iter().filter_map(|it| it.inputs.refusal.clone()).collect();
    let plannable: Vec<Arc<PlannableHelmfile>> =
        pending.iter().take(1).map(|it| it.inputs.plannable.clone()).collect();
    // On a thread with the stack that it needs.
    let planned = in_parallel(plannable, |plannable| -> PlannedReleases {
        if Instant::now() > deadline {
            return Err(TIME_IS_OVER.to_owned());
        }
        let servers = HelmfileServers::without_charts(&renderer.charts, &renderer.remote);
        let servers = servers.with_charts(refusals.clone());
        let PlannableHelmfile { helmfile, location, surroundings } = &*plannable;
        let plan = helmfile.plan(location, surroundings, servers)?.plan;
        Ok(plan.releases.into_iter().map(|release| (release.key.clone(), release)).collect())
    })?;
    Ok(planned.into_iter().next().unwrap_or_else(|| Ok(BTreeMap::new())))
}

fn objects_of(
    pending: &PendingHelmfileRelease,
    planned: &PlannedReleases,
    kinds: &DeclaredKindScopes,
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> Result<RenderedObjects, String> {
    if Instant::now() > deadline {
        return Err(TIME_IS_OVER.to_owned());
    }
    let HelmfileReleaseInputs { plannable, key, .. } = &*pending.inputs;
    let planned = planned.as_ref().map_err(Clone::clone)?;
    let release = planned.get(key).ok_or("its helmfile has it no more when it is planned again")?;
    let settings = &renderer.settings;
    let rendering = plannable.helmfile.release_to_render(release, pending.is_upgrade, settings)?;
    renderer.objects_of(rendering, kinds)
}

/// What is known of an applier, with its objects or why there are none.
fn applier_with(
    rendered: Result<RenderedObjects, String>,
    begun: RenderedApplier,
) -> RenderedApplier {
    match rendered {
        Ok(RenderedObjects { objects, chart, unknown_values }) => {
            let mut applier = RenderedApplier { objects, source_revision: chart, ..begun };
            applier.unknown_values.extend(unknown_values);
            let declared = declared_appliers(&applier);
            applier.unknown_values.extend(declared);
            applier
        }
        Err(text) => RenderedApplier { failure: Some(text), ..begun },
    }
}

/// Appliers among the objects of a release: what they apply is not compared.
fn declared_appliers(applier: &RenderedApplier) -> Vec<UnknownValue> {
    let appliers = applier.objects.iter().filter(|it| ApplierKind::of(it).is_some());
    let unknown = appliers.map(|object| UnknownValue {
        what: format!("objects of {}", object.id().subject()),
        reason: "a release of a Helmfile declares it, and what such appliers apply is not followed"
            .to_owned(),
    });
    unknown.collect()
}
