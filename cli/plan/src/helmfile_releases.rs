//! Adds the releases of Helmfiles to a plan as appliers. It finds the helmfile, its releases, and the inputs of each release.
//! It fetches no charts from other hosts.
//!
//! Elsewhere: planning (`helmfile_plan_without_cluster.rs`), rendering releases that differ (`helmfile_rendering.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use helm::capabilities::Capabilities;
use helm_controller::release_runner::action_options::ActionOptions;
use helmfile::{RemoteAddress, RemoteSource};
use helmfile_controller::helmfile::plan::{HelmfilePlan, PlannedRelease, ReleaseKey};
use helmfile_controller::helmfile::suspended_releases::ReleaseSuspensions;
use helmfile_controller::helmfile::validated_spec::uninstalls;
use objects::{Object, ObjectId};
use plan::{HelmReleaseTarget, RenderedApplier, UnknownValue};
use serde_json::json;
use tree::RelPath;

use super::applier_discovery::{
    DeclaredApplier, DeferredRendering, MAX_APPLIERS, RenderingTask, RepositoryDeclarations,
    Revision, source_of,
};
use super::helmfile_plan_without_cluster::{
    DeclaredHelmfile, HelmfileLocation, HelmfilePlanEnvironment, HelmfilePlanResult,
};
use super::helmfile_request_sender::HelmfileRequestSender;
use super::kustomization_build::target_cluster;
use super::parallel_work::in_parallel;
use super::render_failure::RenderFailure;
use windlass_serve::settings::OperatorSettings;

/// The releases of Helmfiles, each with the path of its helmfile.
pub(crate) type HelmfilePathsByRelease = BTreeMap<ObjectId, BTreeMap<ReleaseKey, String>>;

/// A Helmfile that can be planned again.
pub(crate) struct PlannableHelmfile {
    pub(crate) helmfile: DeclaredHelmfile,
    pub(crate) location: HelmfileLocation,
    pub(crate) surroundings: HelmfilePlanEnvironment,
}

/// A release of a Helmfile that may have to be rendered. Its values and chart are not kept, because the Helmfile can be planned
/// again.
pub(crate) struct HelmfileReleaseInputs {
    pub(crate) plannable: Arc<PlannableHelmfile>,
    pub(crate) key: ReleaseKey,
    /// Why its chart was not fetched. `None` if the chart is in the repository.
    pub(crate) refusal: Option<String>,
    /// The options of Helm's operations on the release. `None` if they cannot be read, and then the release fails.
    pub(crate) options: Option<ActionOptions>,
}

/// The result of planning a Helmfile.
enum HelmfilePlanningOutcome {
    /// The Helmfile was planned. Its releases are further appliers.
    Planned {
        unknown_values: Vec<UnknownValue>,
        own_sources: Vec<ObjectId>,
        files: BTreeMap<ReleaseKey, String>,
        releases: BTreeMap<ObjectId, DeclaredApplier>,
    },
    /// The Helmfile is not planned, because its files are in another place.
    NotRendered(DeferredRendering),
    Failed {
        failure: RenderFailure,
        /// A digest of the revision's files for the Helmfile. Empty if they are unknown.
        digest: String,
    },
}

/// The id of a release as an applier: `HELMFILE#[CONTEXT/]NAMESPACE/NAME`, as dependencies write it.
pub(crate) fn release_id(helmfile: &ObjectId, key: &ReleaseKey) -> ObjectId {
    let name = format!("{}#{key}", helmfile.name);
    ObjectId::new(&helmfile.namespace, &name, &helmfile.group, &helmfile.kind)
}

impl DeclaredHelmfile {
    /// Makes the applier of a release that is not rendered yet.
    pub(crate) fn release_applier(
        &self,
        key: &ReleaseKey,
        suspensions: &ReleaseSuspensions<'_>,
    ) -> RenderedApplier {
        let Self { id, spec, .. } = self;
        let cluster = match key.context.is_empty() {
            true => spec.kube_config.as_ref(),
            false => spec.kube_contexts.get(&key.context),
        };
        RenderedApplier {
            target_cluster: target_cluster(&id.namespace, cluster),
            parent: Some(id.clone()),
            is_part_of_parent: true,
            helm_release: Some(HelmReleaseTarget {
                name: format!("{}/{}", key.namespace, key.name),
                storage_namespace: key.namespace.clone(),
                chart: String::new(),
                keeps_with_other_chart: true,
            }),
            is_suspended: spec.suspend || suspensions.of(key).is_some(),
            prunes: true,
            deletes_with_itself: true,
            ..RenderedApplier::default()
        }
    }
}

impl DeclaredApplier {
    /// Makes the applier of a Helmfile whose releases are not known yet.
    pub(crate) fn helmfile(object: &Object) -> Result<Self, String> {
        let DeclaredHelmfile { spec, id, .. } = DeclaredHelmfile::read(object)?;
        let rendered = RenderedApplier {
            is_suspended: spec.suspend,
            target_cluster: target_cluster(&id.namespace, spec.kube_config.as_ref()),
            prunes: spec.prune,
            deletes_with_itself: uninstalls(&spec),
            ..RenderedApplier::default()
        };
        Ok(Self { rendered, own_sources: Vec::new(), deferred: None })
    }
}

impl RepositoryDeclarations {
    /// Adds the releases of all Helmfiles, after everything else was declared.
    ///
    /// # Errors
    /// A thread could not do its work.
    pub(crate) fn add_helmfile_releases(&mut self, revision: &Revision<'_>) -> anyhow::Result<()> {
        let helmfiles: Vec<(ObjectId, Object)> =
            std::mem::take(&mut self.helmfiles).into_iter().collect();
        let declarations = &*self;
        let capabilities = revision.renderer.capabilities_with(&self.kinds);
        let planned = in_parallel(helmfiles, |(id, object)| {
            let planning = match Instant::now() > revision.deadline {
                true => {
                    let failure = RenderFailure::out_of_time();
                    HelmfilePlanningOutcome::Failed { failure, digest: String::new() }
                }
                false => declarations.planned_helmfile(&object, revision, &capabilities),
            };
            (id, planning)
        })?;
        for (id, planning) in planned {
            self.add_helmfile(id, planning);
        }
        Ok(())
    }

    fn add_helmfile(&mut self, id: ObjectId, planning: HelmfilePlanningOutcome) {
        let Some(own) = self.appliers.get_mut(&id) else { return };
        match planning {
            HelmfilePlanningOutcome::Failed { failure, digest } => {
                own.rendered = failure.of_applier(std::mem::take(&mut own.rendered));
                own.rendered.declaration_digest = digest;
            }
            HelmfilePlanningOutcome::NotRendered(deferred) => own.deferred = Some(deferred),
            HelmfilePlanningOutcome::Planned { unknown_values, own_sources, files, releases } => {
                own.rendered.unknown_values = unknown_values;
                own.own_sources = own_sources;
                if self.appliers.len() + releases.len() > MAX_APPLIERS {
                    self.stop_at(&format!("more than {MAX_APPLIERS} appliers"));
                    return;
                }
                self.helmfile_releases.insert(id, files);
                self.appliers.extend(releases);
            }
        }
    }

    fn planned_helmfile(
        &self,
        object: &Object,
        revision: &Revision<'_>,
        capabilities: &Arc<Capabilities>,
    ) -> HelmfilePlanningOutcome {
        let helmfile = match DeclaredHelmfile::read(object) {
            Ok(helmfile) => helmfile,
            Err(reason) => {
                let digest = self.unread_key(object, &[], "");
                return HelmfilePlanningOutcome::Failed {
                    failure: RenderFailure::Failed(reason),
                    digest,
                };
            }
        };
        let source = source_of(object);
        let location = match self.helmfile_location(&helmfile, source.as_ref(), revision) {
            Ok(location) => location,
            Err(failure) => {
                let key = self.unread_key(object, source.as_slice(), failure.text());
                let work = RenderingTask::NotRendered(failure);
                return HelmfilePlanningOutcome::NotRendered(DeferredRendering { key, work });
            }
        };
        let known = revision.known_releases.get(&helmfile.id).cloned().unwrap_or_default();
        let surroundings = HelmfilePlanEnvironment {
            references: self.references.clone(),
            known,
            capabilities: capabilities.clone(),
        };
        let renderer = revision.renderer;
        let servers = HelmfileRequestSender::without_charts(&renderer.charts, &renderer.remote);
        match helmfile.plan(&location, &surroundings, servers) {
            Ok(HelmfilePlanResult { plan, unknown_values }) => {
                let plannable = Arc::new(PlannableHelmfile { helmfile, location, surroundings });
                let files = plan.releases.iter().map(|it| (it.key.clone(), it.file.clone()));
                HelmfilePlanningOutcome::Planned {
                    unknown_values,
                    own_sources: self.own_sources_of(source.as_slice(), revision),
                    files: files.collect(),
                    releases: self.release_appliers(&plannable, plan, revision.settings),
                }
            }
            Err(failure) => {
                // The Helmfile may read any file of its source.
                let read = location.artifact.content(&RelPath::root());
                let digest = self.unread_key(object, source.as_slice(), &read.digest);
                HelmfilePlanningOutcome::Failed { failure, digest }
            }
        }
    }

    /// The files of a Helmfile, if they are in this repository.
    fn helmfile_location(
        &self,
        helmfile: &DeclaredHelmfile,
        source: Option<&ObjectId>,
        revision: &Revision<'_>,
    ) -> Result<HelmfileLocation, RenderFailure> {
        let spec = &helmfile.spec;
        if let Some(address) = &spec.source {
            return address_location(address, revision);
        }
        let no_source = || RenderFailure::Failed("spec.sourceRef names no source".to_owned());
        let source = source.ok_or_else(no_source)?;
        let artifact = self.artifact(source, revision)?;
        Ok(HelmfileLocation { artifact, path: spec.path.clone().unwrap_or_default() })
    }

    /// The current releases of a Helmfile, and former releases in the base that stay although the helmfile no longer lists
    /// them.
    fn release_appliers(
        &self,
        plannable: &Arc<PlannableHelmfile>,
        plan: HelmfilePlan,
        settings: &OperatorSettings,
    ) -> BTreeMap<ObjectId, DeclaredApplier> {
        let PlannableHelmfile { helmfile, surroundings, .. } = &**plannable;
        let DeclaredHelmfile { id, spec, .. } = helmfile;
        let suspensions = ReleaseSuspensions::new(spec, jiff::Timestamp::now());
        let begun = |key: &ReleaseKey| helmfile.release_applier(key, &suspensions);
        let applier =
            |rendered, deferred| DeclaredApplier { rendered, own_sources: Vec::new(), deferred };
        let mut appliers = BTreeMap::new();
        for (key, file) in &surroundings.known {
            if plan.releases.iter().any(|it| it.key == *key) {
                continue;
            }
            let is_suspended = suspensions.of(key).is_some();
            let deferred = match kept_reason(&plan, key, file, is_suspended, spec.prune) {
                Some(reason) => {
                    let work = RenderingTask::LeftAsItIs(reason.clone());
                    Some(DeferredRendering { key: reason, work })
                }
                // This release is uninstalled, so it has no objects.
                None if plan.unwanted.contains(key) => None,
                None => continue,
            };
            appliers.insert(release_id(id, key), applier(begun(key), deferred));
        }
        for release in plan.releases {
            let rendered = RenderedApplier {
                source_revision: chart_text(&release),
                forces: release.operation.force,
                ..begun(&release.key)
            };
            let key = self.release_digest(&release, &rendered.target_cluster);
            let name = release_id(id, &release.key);
            let work = RenderingTask::HelmfileRelease(Box::new(HelmfileReleaseInputs {
                plannable: plannable.clone(),
                options: helmfile.action_options(&release, settings),
                key: release.key,
                refusal: release.chart.err(),
            }));
            let deferred = Some(DeferredRendering { key, work });
            appliers.insert(name, applier(rendered, deferred));
        }
        appliers
    }

    /// A digest of all inputs of a release and its cluster. Equal digests mean equal objects in the same place.
    fn release_digest(&self, release: &PlannedRelease, cluster: &str) -> String {
        let PlannedRelease { chart, chart_changes, values_digest, skips_schema, .. } = release;
        let versions = &self.kinds.api_versions;
        let parts = match chart {
            Ok(chart) => json!([chart.digest, values_digest, skips_schema, cluster, versions]),
            Err(refusal) => {
                json!([[refusal, chart_changes], values_digest, skips_schema, cluster])
            }
        };
        parts.to_string()
    }
}

/// The name and version of a release's chart. Empty if the chart was not fetched.
fn chart_text(release: &PlannedRelease) -> String {
    let chart = release.chart.as_ref();
    chart.map(|it| format!("{}@{}", it.name, it.version)).unwrap_or_default()
}

/// Why a release that is only in the base is neither changed nor uninstalled. The checks have the order of the operator
/// (`helmfile_controller::helmfile::prune`). `None` if the release is uninstalled.
fn kept_reason(
    plan: &HelmfilePlan,
    key: &ReleaseKey,
    file: &str,
    is_suspended: bool,
    prunes: bool,
) -> Option<String> {
    let others = &plan.others;
    let unread = || {
        let hidden = others.skipped.as_ref().and_then(|it| it.hides(Some(file)));
        others.unread.as_deref().or(hidden)
    };
    if is_suspended {
        return Some("spec.suspendedReleases names it, so it is not uninstalled".to_owned());
    }
    if plan.unwanted.contains(key) {
        return None;
    }
    if others.left_out.contains(key) {
        return Some(
            "spec.selectors or its condition leave it out, so it stays as it is".to_owned(),
        );
    }
    let why = unread().filter(|_| prunes)?;
    Some(format!("it is not known whether the helmfile still has it: {why}"))
}

/// The files at an address, if they are in this repository.
fn address_location(
    text: &str,
    revision: &Revision<'_>,
) -> Result<HelmfileLocation, RenderFailure> {
    let said = |why: &str| format!("spec.source is not fetched: {why}");
    let elsewhere = |why: &str| Err(RenderFailure::NotFetched(said(why)));
    let Some(address) = RemoteAddress::parse(text) else {
        return Err(RenderFailure::Failed(said("it is not an address")));
    };
    let RemoteSource::Git { host, path, folder, reference } = address.source()? else {
        return elsewhere("it is not a repository");
    };
    if !revision.sources.is_remote(&format!("{host}{path}")) {
        return elsewhere("it is another repository; if it is this one, add its URL as a remote");
    }
    if is_pinned(&reference) {
        return elsewhere(&format!(
            "it stays at `{reference}` of this repository, whatever is committed"
        ));
    }
    let folder = RelPath::parse(folder.trim_matches('/'));
    let folder = folder.map_err(|error| format!("spec.source: {error}"))?;
    let artifact = revision.files.folder(&folder)?;
    let path = Some(address.file).filter(|it| it != ".").unwrap_or_default();
    Ok(HelmfileLocation { artifact, path })
}

/// Whether a reference looks like a commit or a version. Such a reference does not move with new commits.
fn is_pinned(reference: &str) -> bool {
    let bare = reference.strip_prefix('v').unwrap_or(reference);
    let is_version = bare.starts_with(|it: char| it.is_ascii_digit()) && bare.contains('.');
    let is_commit = reference.len() == 40 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_version || is_commit || reference.starts_with("refs/tags/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(name: &str) -> ReleaseKey {
        let [context, namespace, name] = ["", "shop", name].map(str::to_owned);
        ReleaseKey { context, namespace, name }
    }

    #[test]
    fn a_release_is_called_as_dependencies_name_it() {
        let helmfile = ObjectId::new("apps", "all", "helmfile.windlass.dev", "Helmfile");
        let id = release_id(&helmfile, &key("web"));
        assert_eq!(id.subject(), "Helmfile/apps/all#shop/web");
        let east = ReleaseKey { context: "east".to_owned(), ..key("web") };
        assert_eq!(release_id(&helmfile, &east).name, "all#east/shop/web");
    }

    #[test]
    fn what_leaves_a_helmfile_stays_where_the_operator_would_keep_it() {
        let mut plan = HelmfilePlan::default();
        plan.unwanted = BTreeSet::from([key("unwanted")]);
        plan.others.left_out = BTreeSet::from([key("left")]);
        let kept = |plan: &HelmfilePlan, name: &str, is_suspended: bool, prunes: bool| {
            kept_reason(plan, &key(name), "helmfile.yaml", is_suspended, prunes)
        };
        assert!(kept(&plan, "unwanted", true, true).unwrap().contains("suspendedReleases"));
        assert_eq!(kept(&plan, "unwanted", false, true), None);
        assert!(kept(&plan, "left", false, true).unwrap().contains("spec.selectors"));
        assert_eq!(kept(&plan, "gone", false, true), None);
        plan.others.unread = Some("a file is missing".to_owned());
        assert!(kept(&plan, "gone", false, true).unwrap().ends_with("a file is missing"));
        assert_eq!(kept(&plan, "gone", false, false), None);
    }

    #[test]
    fn a_commit_or_a_version_is_not_moved_by_a_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for pinned in [commit, "v1.4", "2.0.1", "refs/tags/a"] {
            assert!(is_pinned(pinned), "{pinned}");
        }
        for branch in ["", "main", "release-1.4", "versions"] {
            assert!(!is_pinned(branch), "{branch}");
        }
    }
}
