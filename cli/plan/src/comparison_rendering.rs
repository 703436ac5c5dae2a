//! Renders both sides of a comparison where they differ.
//!
//! Elsewhere: rendering during the search (`applier_discovery.rs`), releases (`release_rendering.rs`, `helmfile_rendering.rs`), the
//! comparison (engine `plan`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use objects::{Object, ObjectId};
use plan::{RenderedApplier, RepositoryRendering, UnknownValue, blind_digest};

use super::applier_discovery::{
    ApplierKind, DeferredRendering, RenderingTask, RepositoryDeclarations,
};
use super::applier_search_root::ApplierManifests;
use super::helmfile_rendering::{PendingHelmfileRelease, render_helmfile_releases};
use super::parallel_work::in_parallel;
use super::release_chart::{ChartVersionAndDigest, ReleaseChart};
use super::release_inputs::ReleaseInputs;
use super::release_rendering::ReleaseRenderer;
use super::render_failure::RenderFailure;
use super::repository_sources::{DeclaredSources, SourceAddress};
use super::resource_scope::DeclaredKindScopes;

/// One side of a comparison before its releases are rendered.
pub(crate) struct UnrenderedComparisonSide {
    pub(crate) revision: String,
    pub(crate) declarations: RepositoryDeclarations,
    pub(crate) manifests: ApplierManifests,
}

impl UnrenderedComparisonSide {
    /// The input keys of appliers that are rendered only if the other side differs.
    fn deferred_keys(&self) -> BTreeMap<ObjectId, String> {
        let appliers = self.declarations.appliers.iter();
        let keys =
            appliers.filter_map(|(id, it)| Some((id.clone(), it.deferred.as_ref()?.key.clone())));
        keys.collect()
    }

    fn versioned_charts(&self) -> BTreeMap<ObjectId, ChartVersionAndDigest> {
        let appliers = self.declarations.appliers.iter();
        let charts = appliers.filter_map(|(id, it)| match &it.deferred.as_ref()?.work {
            RenderingTask::Release(inputs) => Some((id.clone(), versioned_chart(inputs)?)),
            RenderingTask::HelmfileRelease(_)
            | RenderingTask::LeftAsItIs(_)
            | RenderingTask::NotRendered(_) => None,
        });
        charts.collect()
    }

    /// The appliers whose objects stay as they are on the other side.
    fn left_as_they_are(&self) -> BTreeSet<ObjectId> {
        let appliers = self.declarations.appliers.iter();
        let left = appliers.filter(|(_, it)| {
            let work = it.deferred.as_ref().map(|it| &it.work);
            matches!(work, Some(RenderingTask::LeftAsItIs(_)))
        });
        left.map(|(id, _)| id.clone()).collect()
    }

    /// The appliers that are not rendered. Their objects stay as they are.
    pub(crate) fn unrendered(&self) -> BTreeSet<ObjectId> {
        let is_unrendered = |it: &DeferredRendering| {
            matches!(it.work, RenderingTask::NotRendered(_) | RenderingTask::LeftAsItIs(_))
        };
        let appliers = self.declarations.appliers.iter();
        let unrendered = appliers.filter(|(_, it)| it.deferred.as_ref().is_some_and(is_unrendered));
        unrendered.map(|(id, _)| id.clone()).collect()
    }

    /// The values of the Secrets that this side declares.
    pub(crate) fn secret_values(&self) -> impl Iterator<Item = Vec<u8>> {
        let RepositoryDeclarations { references, replaced_secrets, .. } = &self.declarations;
        references.secret_values().chain(replaced_secrets).cloned()
    }

    /// Renders the remaining releases, except those with equal inputs on the other side.
    ///
    /// # Errors
    /// A thread could not do its work.
    pub(crate) fn render(
        self,
        other: &OtherSideFacts,
        renderer: &ReleaseRenderer,
        deadline: Instant,
    ) -> anyhow::Result<RepositoryRendering> {
        let Self { revision, declarations, manifests } = self;
        let RepositoryDeclarations {
            appliers, kinds, sources, incomplete, manifests: objects, ..
        } = declarations;
        let mut rendering =
            RepositoryRendering { revision, incomplete, ..RepositoryRendering::default() };
        let mut jobs = Vec::new();
        let mut helmfile_jobs = Vec::new();
        for (id, applier) in appliers {
            let mut rendered = applier.rendered;
            // This digest has no secret key, so it must not contain values that only a cluster has.
            if !other.is_cluster {
                rendered.blind_digest = digest_of(&id, &rendered, applier.deferred.as_ref());
            }
            let declared = rendered.parent.as_ref().filter(|_| rendered.is_part_of_parent);
            rendered.file = manifests.file_of(declared.unwrap_or(&id));
            let moved = applier.own_sources.iter();
            let moved = moved.filter_map(|it| other.moved_source(it, &sources));
            rendered.moved_sources.extend(moved);
            rendered.moved_sources.extend(other.moved_address(&id, objects.get(&id)));
            match applier.deferred {
                None => {}
                Some(DeferredRendering { key, work: RenderingTask::Release(mut inputs) }) => {
                    let is_upgrade = other.appliers.contains(&id);
                    if other.keys.get(&id) != Some(&key) {
                        let kept = other.kept_chart(&id, &inputs);
                        inputs.unknown_values.extend(kept);
                        inputs.unknown_values.append(&mut rendered.unknown_values);
                        jobs.push(PendingReleaseRender { id: id.clone(), inputs, is_upgrade });
                    }
                }
                Some(DeferredRendering { key, work: RenderingTask::HelmfileRelease(inputs) }) => {
                    let is_upgrade = other.appliers.contains(&id);
                    if other.keys.get(&id) != Some(&key) && !other.left.contains(&id) {
                        helmfile_jobs.push(PendingHelmfileRelease {
                            id,
                            inputs,
                            is_upgrade,
                            begun: rendered,
                        });
                        continue;
                    }
                }
                Some(DeferredRendering { work: RenderingTask::LeftAsItIs(reason), .. }) => {
                    let what = "objects of the release in the cluster".to_owned();
                    rendered.unknown_values.push(UnknownValue { what, reason });
                }
                Some(DeferredRendering { key, work: RenderingTask::NotRendered(failure) }) => {
                    if other.is_cluster || other.keys.get(&id) == Some(&key) {
                        let what = "all objects".to_owned();
                        let reason = failure.into_text();
                        rendered.unknown_values.push(UnknownValue { what, reason });
                    } else {
                        rendered = failure.of_applier(rendered);
                    }
                }
            }
            rendering.appliers.insert(id, rendered);
        }
        render_releases(&mut rendering, jobs, &kinds, renderer, deadline)?;
        let releases = render_helmfile_releases(helmfile_jobs, &kinds, renderer, deadline)?;
        rendering.appliers.extend(releases);
        Ok(rendering)
    }
}

/// The blind digest of an applier, without results of the comparison. `None` if the applier is not rendered.
fn digest_of(
    id: &ObjectId,
    rendered: &RenderedApplier,
    deferred: Option<&DeferredRendering>,
) -> Option<String> {
    match deferred {
        None => blind_digest(id, rendered, None),
        Some(DeferredRendering { key, work }) => match work {
            RenderingTask::Release(_) | RenderingTask::HelmfileRelease(_) => {
                blind_digest(id, rendered, Some(key.as_str()))
            }
            RenderingTask::LeftAsItIs(_) | RenderingTask::NotRendered(_) => None,
        },
    }
}

/// The facts that a side needs about the other side.
pub(crate) struct OtherSideFacts {
    appliers: BTreeSet<ObjectId>,
    keys: BTreeMap<ObjectId, String>,
    charts: BTreeMap<ObjectId, ChartVersionAndDigest>,
    /// The appliers whose objects stay as they are on the other side.
    left: BTreeSet<ObjectId>,
    sources: DeclaredSources,
    /// The places of all declared sources that are this repository.
    places: BTreeSet<SourceAddress>,
    /// The `spec.source` of each Helmfile.
    addresses: BTreeMap<ObjectId, String>,
    /// Whether this side is a cluster. In that case, objects that are not rendered stay unchanged in the cluster.
    is_cluster: bool,
}

/// The address of a Helmfile, if it has one.
fn address_of(object: &Object) -> Option<String> {
    let is_helmfile = ApplierKind::of(object) == Some(ApplierKind::Helmfile);
    let spec = object.get("spec").filter(|_| is_helmfile)?;
    spec["source"].as_str().map(str::to_owned)
}

/// The chart of a release whose changes count only with a new version.
fn versioned_chart(inputs: &ReleaseInputs) -> Option<ChartVersionAndDigest> {
    inputs.chart.as_ref().ok().and_then(ReleaseChart::versioned)
}

impl OtherSideFacts {
    /// Collects the facts about a side.
    pub(crate) fn of(side: &UnrenderedComparisonSide) -> Self {
        let RepositoryDeclarations { appliers, sources, manifests, .. } = &side.declarations;
        let own: BTreeSet<&ObjectId> = appliers.values().flat_map(|it| &it.own_sources).collect();
        let address = |(id, object): (&ObjectId, &Object)| Some((id.clone(), address_of(object)?));
        Self {
            places: own.into_iter().filter_map(|id| SourceAddress::of(id, sources)).collect(),
            addresses: manifests.iter().filter_map(address).collect(),
            appliers: side.declarations.appliers.keys().cloned().collect(),
            keys: side.deferred_keys(),
            charts: side.versioned_charts(),
            left: side.left_as_they_are(),
            sources: side.declarations.sources.clone(),
            is_cluster: false,
        }
    }

    /// A cluster with these installed releases, in which nothing is rendered.
    pub(crate) fn of_cluster(releases: BTreeSet<ObjectId>) -> Self {
        Self {
            appliers: releases,
            keys: BTreeMap::new(),
            charts: BTreeMap::new(),
            left: BTreeSet::new(),
            sources: DeclaredSources::default(),
            places: BTreeSet::new(),
            addresses: BTreeMap::new(),
            is_cluster: true,
        }
    }

    /// The note that a source now gets its files from another place or branch. A source that this side does not declare has to
    /// be in the same place as one of this side's sources.
    fn moved_source(&self, source: &ObjectId, sources: &DeclaredSources) -> Option<UnknownValue> {
        let place = SourceAddress::of(source, sources)?;
        let is_same = match SourceAddress::of(source, &self.sources) {
            Some(former) => former == place,
            None => self.places.contains(&place),
        };
        (!is_same && !self.is_cluster).then(|| UnknownValue {
            what: format!("files of {}", source.subject()),
            reason: "its spec.url or spec.ref is another one; the files of this repository are compared, and the cluster \
                     applies those of the new place"
                .to_owned(),
        })
    }

    /// The note that the address of a Helmfile has changed.
    fn moved_address(&self, id: &ObjectId, object: Option<&Object>) -> Option<UnknownValue> {
        let address = address_of(object?)?;
        let is_moved = self.addresses.get(id).is_none_or(|former| *former != address);
        (is_moved && self.appliers.contains(id) && !self.is_cluster).then(|| UnknownValue {
            what: format!("files of {}", id.subject()),
            reason: "its spec.source is another one; the files of this repository are compared, and the cluster reads those \
                     of the new place"
                .to_owned(),
        })
    }

    /// The note that the chart of a release changes although its version does not.
    fn kept_chart(&self, id: &ObjectId, inputs: &ReleaseInputs) -> Option<UnknownValue> {
        let ChartVersionAndDigest { version, digest } = self.charts.get(id)?;
        let own = versioned_chart(inputs)?;
        (own.version == *version && own.digest != *digest).then(|| UnknownValue {
            what: format!("whether the changed files of chart version {version} are applied"),
            reason: "with `reconcileStrategy: ChartVersion`, they are only with another version of the chart".to_owned(),
        })
    }
}

/// A release that has to be rendered.
struct PendingReleaseRender {
    id: ObjectId,
    inputs: Box<ReleaseInputs>,
    is_upgrade: bool,
}

fn render_releases(
    rendering: &mut RepositoryRendering,
    jobs: Vec<PendingReleaseRender>,
    kinds: &DeclaredKindScopes,
    renderer: &ReleaseRenderer,
    deadline: Instant,
) -> anyhow::Result<()> {
    let jobs: Vec<_> = jobs
        .into_iter()
        .filter_map(|job| rendering.appliers.remove(&job.id).map(|begun| (job, begun)))
        .collect();
    let rendered = in_parallel(jobs, |(job, begun)| {
        if Instant::now() > deadline {
            return (job.id, RenderFailure::out_of_time().of_applier(begun));
        }
        (job.id, renderer.render(&job.inputs, kinds, job.is_upgrade, begun))
    })?;
    rendering.appliers.extend(rendered);
    Ok(())
}
