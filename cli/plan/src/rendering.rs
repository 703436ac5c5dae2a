//! Both revisions, rendered where they differ.
//!
//! Elsewhere: what is rendered on the way down (`discovery.rs`), releases (`release_rendering.rs`), the comparison (engine
//! `plan`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use objects::ObjectId;
use plan::{RepositoryRendering, UnknownValue};

use super::discovery::{DeferredRendering, DeferredWork, RepositoryDeclarations};
use super::entry_point::ApplierManifests;
use super::parallel_work::in_parallel;
use super::release_inputs::ReleaseInputs;
use super::release_rendering::ReleaseRenderer;
use super::resource_scope::DeclaredKindScopes;

/// One side of a comparison before its releases are rendered.
pub(crate) struct DeclaredSide {
    pub(crate) revision: String,
    pub(crate) declarations: RepositoryDeclarations,
    pub(crate) manifests: ApplierManifests,
}

impl DeclaredSide {
    /// What its appliers depend on that are rendered only if the other side has something else.
    fn deferred_keys(&self) -> BTreeMap<ObjectId, String> {
        let appliers = self.declarations.appliers.iter();
        let keys =
            appliers.filter_map(|(id, it)| Some((id.clone(), it.deferred.as_ref()?.key.clone())));
        keys.collect()
    }

    /// What the Secrets hold that it declares.
    pub(crate) fn secret_values(&self) -> impl Iterator<Item = Vec<u8>> {
        self.declarations.references.secret_values().cloned()
    }

    /// Renders what is left, but for what the other side has just so.
    ///
    /// # Errors
    /// A thread could not do its work.
    pub(crate) fn render(
        self,
        other: &ComparedSide,
        renderer: &ReleaseRenderer,
        deadline: Instant,
    ) -> anyhow::Result<RepositoryRendering> {
        let Self { revision, declarations, manifests } = self;
        let RepositoryDeclarations { appliers, kinds, incomplete, .. } = declarations;
        let mut rendering =
            RepositoryRendering { revision, incomplete, ..RepositoryRendering::default() };
        let mut jobs = Vec::new();
        for (id, applier) in appliers {
            let mut rendered = applier.rendered;
            rendered.file = manifests.file_of(&id);
            match applier.deferred {
                None => {}
                Some(DeferredRendering { key, work: DeferredWork::Release(inputs) }) => {
                    let is_upgrade = other.appliers.contains(&id);
                    if other.keys.get(&id) != Some(&key) {
                        jobs.push(PendingReleaseRender { id: id.clone(), inputs, is_upgrade });
                    }
                }
                Some(DeferredRendering { key, work: DeferredWork::NotRendered(reason) }) => {
                    if other.keys.get(&id) == Some(&key) {
                        let what = "all objects".to_owned();
                        rendered.unknown_values.push(UnknownValue { what, reason });
                    } else {
                        rendered.failure = Some(reason);
                    }
                }
            }
            rendering.appliers.insert(id, rendered);
        }
        render_releases(&mut rendering, jobs, &kinds, renderer, deadline)?;
        Ok(rendering)
    }
}

/// What a side has to know of the other one.
pub(crate) struct ComparedSide {
    appliers: BTreeSet<ObjectId>,
    keys: BTreeMap<ObjectId, String>,
}

impl ComparedSide {
    /// That of a side.
    pub(crate) fn of(side: &DeclaredSide) -> Self {
        Self {
            appliers: side.declarations.appliers.keys().cloned().collect(),
            keys: side.deferred_keys(),
        }
    }
}

/// A release that is to be rendered.
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
    let rendered = in_parallel(jobs, |(job, mut begun)| {
        if Instant::now() > deadline {
            let text = "the time limit of this command was reached before its turn";
            begun.failure = Some(text.to_owned());
            return (job.id, begun);
        }
        (job.id, renderer.render(&job.inputs, kinds, job.is_upgrade, begun))
    })?;
    rendering.appliers.extend(rendered);
    Ok(())
}
