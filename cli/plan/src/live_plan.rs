//! `windlass plan --live`: predicts what a cluster would become if a revision or the work tree were applied. The prediction
//! covers what the user may read.
//!
//! The repository is searched and rendered in the same way as for two revisions, but with data of the cluster instead of facts
//! (`live_render_inputs.rs`).
//! Then the appliers of the cluster are read (`live_appliers.rs`), each object is compared (`live_comparison.rs`,
//! `object_prediction.rs`), and deletions are checked against the budgets of the cluster (`live_deletion_budgets.rs`).
//! Elsewhere: two revisions (`lib.rs`), a branch that is fetched (`branch_plan.rs`), comparing and formats (engine `plan`).
//! Nothing is written: all requests are reads or dry-runs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use helm::capabilities::Capabilities;
use objects::{Object, ObjectId};
use plan::{
    ApplierComparisonStatus, ApplierDeletionBudgets, ChangePlan, RenderingComparisonOptions,
    UnknownValue,
};
use tokio::runtime::Handle;
use tree::RelPath;
use windlass_runtime::approval_plan::DELETION_BUDGET;

use super::applier_discovery::{
    self, ApplierKind, ApplierSearchBegin, RepositoryDeclarations, Revision,
};
use super::applier_search_root::{ApplierManifests, ApplierSearchRoot};
use super::branch_plan;
use super::chart_download_folder::ChartDownloadFolder;
use super::chart_fetch::ChartFetcher;
use super::comparison_rendering::{OtherSideFacts, UnrenderedComparisonSide};
use super::kustomization_build::ReusableKustomizationBuilds;
use super::live_appliers::{ApplierReader, ClusterAppliers};
use super::live_comparison::{LiveComparison, of_other_clusters, writers};
use super::live_deletion_budgets::LiveDeletionBudgets;
use super::live_render_inputs::LiveRenderInputs;
use super::object_prediction::PlannedCrdsAndNamespaces;
use super::release_rendering::ReleaseRenderer;
use super::remote_file_fetcher::RemoteFileFetcher;
use super::repository_sources::RepositorySources;
use super::revision_files::RevisionFiles;
use super::{
    MAX_RENDER_TIME, PlanArgs, capabilities, head_files, named_repository, secret_masking,
};
use windlass_cli_runtime::connection::{CommandRuntime, ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cluster::ClusterConnection;
use windlass_serve::settings::OperatorSettings;

/// The maximum number of searches in the repository. Values of the cluster may reveal new appliers, and these may name further
/// values of the cluster.
const MAX_SEARCHES: usize = 6;

/// A cluster connection, and the time limit for reading the cluster.
pub(crate) struct LiveCluster {
    // The connections have to be dropped before their runtime.
    pub(crate) cluster: ClusterConnection,
    runtime: LiveRuntime,
    limit: Duration,
    left: Cell<Duration>,
}

/// The runtime of the connections.
enum LiveRuntime {
    /// It belongs to the command.
    OfCommand(CommandRuntime),
    /// It belongs to the caller, and other threads run it.
    OfCaller(Handle),
}

impl LiveCluster {
    /// Connects according to the flags.
    ///
    /// # Errors
    /// The cluster cannot be reached.
    fn open(args: &PlanArgs) -> anyhow::Result<Self> {
        let runtime = CommandRuntime::new()?;
        let (cluster, _) = runtime.block_on(args.access.open())?;
        let runtime = LiveRuntime::OfCommand(runtime);
        Ok(Self { cluster, runtime, limit: args.timeout, left: Cell::new(args.timeout) })
    }

    /// Uses a connection of another runtime. This thread must not run tasks of that runtime.
    pub(crate) fn of_caller(cluster: ClusterConnection, runtime: Handle, limit: Duration) -> Self {
        let runtime = LiveRuntime::OfCaller(runtime);
        Self { cluster, runtime, limit, left: Cell::new(limit) }
    }

    /// Runs work that reads the cluster.
    ///
    /// # Errors
    /// The error of the work, or the time is over.
    pub(crate) fn read<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        let left = self.left.get();
        let limited = async {
            let within = tokio::time::timeout(left, work).await;
            within.unwrap_or_else(|_elapsed| Err(self.out_of_time()))
        };
        let ended = match &self.runtime {
            LiveRuntime::OfCommand(runtime) => runtime.block_on(limited),
            LiveRuntime::OfCaller(runtime) => runtime.block_on(limited),
        };
        self.left.set(left.saturating_sub(begun.elapsed()));
        ended
    }

    fn out_of_time(&self) -> anyhow::Error {
        let seconds = self.limit.as_secs();
        let flag = match self.runtime {
            LiveRuntime::OfCommand(_) => " (--timeout)",
            LiveRuntime::OfCaller(_) => "",
        };
        anyhow!("reading the cluster took longer than {seconds} s{flag}")
    }
}

/// Refuses flags that cannot be combined.
///
/// # Errors
/// Such flags are given. The error names them.
pub(crate) fn check_flags(args: &PlanArgs) -> anyhow::Result<()> {
    ensure!(
        !args.live || args.base.is_none(),
        "--live compares with the cluster, and --base with a revision: leave out one of them"
    );
    ensure!(
        !args.live || args.facts.is_none(),
        "--live reads the cluster itself, and no facts of it: leave out --facts"
    );
    ensure!(
        args.live || !(args.access.is_given() || args.namespace.is_some()),
        "two revisions are compared without a cluster: add --live, or leave out --context, --namespace and the other flags \
         of a cluster"
    );
    branch_plan::check_flags(args)
}

/// The exit code of the command. An unreadable cluster is a failure, although a base revision that cannot be rendered is not.
pub(crate) fn exit_code(plan: &ChangePlan, is_detailed: bool) -> ExitCode {
    let is_unread = plan.base_incomplete.is_some()
        || plan.appliers.iter().any(|it| {
            let comparison = it.comparison;
            matches!(
                comparison,
                ApplierComparisonStatus::BaseFailed | ApplierComparisonStatus::BaseUnknown
            )
        });
    let is_unknown = plan.appliers.iter().any(|it| !it.unknown_values.is_empty());
    match super::exit_code(plan, is_detailed) {
        _ if is_unread => ExitCode::Failed,
        ExitCode::Success if is_detailed && is_unknown => ExitCode::ProblemsFound,
        otherwise => otherwise,
    }
}

/// Compares the head revision with the cluster.
///
/// # Errors
/// The repository or the cluster cannot be read.
pub(crate) fn change_plan(
    args: &PlanArgs,
    settings: OperatorSettings,
) -> anyhow::Result<ChangePlan> {
    if let Some(branch) = &args.branch {
        return branch_plan::change_plan(args, branch, LiveCluster::open(args)?, settings);
    }
    let repository = named_repository(args.path.as_deref())?;
    let sources = RepositorySources::new(&repository.remote_urls(), &args.source)?;
    let files = head_files(args, &repository)?;
    let manifests = ApplierManifests::of(&files.artifact(None)?.files);
    let entry = match &args.path {
        Some(path) => ApplierSearchRoot::named(repository.path_of(path)?),
        None => manifests.entry()?,
    };
    let live = LiveCluster::open(args)?;
    let inputs = live.read(LiveRenderInputs::of(&live.cluster))?;
    let downloads = ChartDownloadFolder::new(args.cache_dir.clone());
    let capabilities = capabilities(args, &inputs.facts)?;
    let renderer = renderer(args.allow_hosts.clone(), downloads, capabilities, settings)?;
    let progress = format!("building what `{}` declares: {}", entry.folder, files.revision);
    report_progress(&progress);
    let builds = ReusableKustomizationBuilds::new(renderer.remote.clone());
    let search = RepositorySearchInputs {
        files: &files,
        sources: &sources,
        builds: &builds,
        renderer: &renderer,
        begin: ApplierSearchBegin::Folder(&entry),
        deadline: Instant::now() + MAX_RENDER_TIME,
        namespace: args.namespace.as_deref(),
        progress: &report_progress,
    };
    search.plan(&live, inputs, manifests)
}

/// Prints a line of progress.
pub(crate) fn report_progress(text: &str) {
    say(ProgressGlyph::Action, &plan::clean_line(text));
}

/// Makes the renderer of a comparison with a cluster. Charts and other files are fetched only from these hosts.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn renderer(
    hosts: Vec<String>,
    downloads: Option<ChartDownloadFolder>,
    capabilities: Capabilities,
    settings: OperatorSettings,
) -> anyhow::Result<ReleaseRenderer> {
    Ok(ReleaseRenderer {
        remote: Arc::new(RemoteFileFetcher::new(hosts.clone())?),
        charts: Arc::new(ChartFetcher::new(hosts, downloads)),
        capabilities,
        settings,
        includes_definitions: false,
        // Masked values could have the wrong type for a dry-run.
        masks_drawn_values: false,
    })
}

/// The inputs of a search in the repository, and of the comparison with the cluster.
pub(crate) struct RepositorySearchInputs<'s> {
    pub(crate) files: &'s RevisionFiles,
    pub(crate) sources: &'s RepositorySources,
    pub(crate) builds: &'s ReusableKustomizationBuilds,
    pub(crate) renderer: &'s ReleaseRenderer,
    pub(crate) begin: ApplierSearchBegin<'s>,
    /// The time after which no further applier is started.
    pub(crate) deadline: Instant,
    /// The namespace whose appliers are listed. `None` for all namespaces.
    pub(crate) namespace: Option<&'s str>,
    /// Receives what is done at the moment.
    pub(crate) progress: &'s dyn Fn(&str),
}

impl RepositorySearchInputs<'_> {
    /// Searches the repository, renders what it declares, and compares the result with the cluster.
    ///
    /// # Errors
    /// The repository or the cluster cannot be read.
    pub(crate) fn plan(
        &self,
        live: &LiveCluster,
        mut inputs: LiveRenderInputs,
        manifests: ApplierManifests,
    ) -> anyhow::Result<ChangePlan> {
        let declarations = self.declarations(live, &mut inputs)?;
        let revision = self.files.revision.clone();
        let side = UnrenderedComparisonSide { revision, declarations, manifests };
        compared(self, live, &mut inputs, side)
    }

    /// Searches the repository, and reads from the cluster what the repository refers to. Returns everything that the
    /// repository declares.
    fn declarations(
        &self,
        live: &LiveCluster,
        inputs: &mut LiveRenderInputs,
    ) -> anyhow::Result<RepositoryDeclarations> {
        let mut found = self.search(inputs)?;
        for _ in 1..MAX_SEARCHES {
            if !live.read(inputs.read_for(&live.cluster, &found))? {
                break;
            }
            found = self.search(inputs)?;
        }
        Ok(found)
    }

    fn search(&self, inputs: &LiveRenderInputs) -> anyhow::Result<RepositoryDeclarations> {
        let Self { files, sources, builds, renderer, begin, deadline, .. } = *self;
        let cluster_references = inputs.cluster_references();
        let revision = Revision {
            files,
            sources,
            builds,
            renderer,
            settings: &renderer.settings,
            known_releases: &inputs.releases,
            facts: &inputs.facts,
            cluster_references: &cluster_references,
            deadline,
        };
        applier_discovery::declarations(&revision, begin)
    }
}

/// Renders the head and compares it with the cluster.
fn compared(
    search: &RepositorySearchInputs<'_>,
    live: &LiveCluster,
    inputs: &mut LiveRenderInputs,
    side: UnrenderedComparisonSide,
) -> anyhow::Result<ChangePlan> {
    let RepositorySearchInputs { renderer, begin, deadline, progress, .. } = *search;
    let settings = &renderer.settings;
    progress("reading the appliers of the cluster");
    let manifests = side.declarations.manifests.clone();
    let made_entry: Option<(ObjectId, RelPath)> =
        side.declarations.made_entry.clone().zip(begin.folder().cloned());
    let reader = ApplierReader { cluster: &live.cluster, settings, made_entry: made_entry.clone() };
    let versions = manifests.iter().map(|(id, object)| (id.clone(), object.gvk().version));
    let found = live.read(reader.read(versions.collect()))?;
    let limits = deletion_limits(&manifests, &found);
    // The change may no longer name a Secret whose values the objects of the cluster contain.
    live.read(inputs.read_secrets(&live.cluster, found.secrets()))?;
    let values: BTreeSet<Vec<u8>> = side.secret_values().chain(inputs.secret_values()).collect();
    let secrets = secret_masking(values.into_iter().collect());
    let writers = writers(&side.declarations, settings);
    let mut unrendered = side.unrendered();
    progress("rendering releases");
    let of_cluster = OtherSideFacts::of_cluster(found.installed_releases());
    let mut head = side.render(&of_cluster, renderer, deadline)?;
    if let Some((id, folder)) = made_entry.filter(|(id, _)| !found.appliers.contains_key(id))
        && let Some(applier) = head.appliers.get_mut(&id)
    {
        applier.unknown_values.push(UnknownValue {
            what: "appliers and objects that left the repository".to_owned(),
            reason: format!(
                "no Kustomization is known that applies the folder `{folder}` in the cluster"
            ),
        });
    }
    unrendered.extend(of_other_clusters(&mut head, &found));
    let objects = head.appliers.values().flat_map(|it| &it.objects);
    let planned = PlannedCrdsAndNamespaces::of(objects);
    let comparison = LiveComparison {
        cluster: &live.cluster,
        settings,
        secrets: &secrets,
        planned: &planned,
        writers: &writers,
        unrendered: &unrendered,
    };
    progress("comparing objects with the cluster");
    let base = live.read(async { Ok(comparison.compare(&mut head, found).await) })?;
    let budgets = match settings.deletion_budget {
        true => live.read(LiveDeletionBudgets::read(&live.cluster, &limits))?,
        false => LiveDeletionBudgets::unlimited(&limits),
    };
    let of_appliers = budgets.of_appliers.clone();
    let options = RenderingComparisonOptions {
        budgets: ApplierDeletionBudgets { of_appliers, ..ApplierDeletionBudgets::default() },
        secrets,
        namespace: search.namespace.map(str::to_owned),
        ..RenderingComparisonOptions::default()
    };
    let mut plan = plan::compare(&base, &head, &options);
    budgets.name_unknown(&mut plan);
    Ok(plan)
}

/// The deletion limits in the Kustomizations of the repository and of the cluster.
fn deletion_limits(
    manifests: &BTreeMap<ObjectId, Object>,
    found: &ClusterAppliers,
) -> BTreeMap<ObjectId, Vec<String>> {
    let of_cluster = found.appliers.iter().map(|(id, it)| (id, it.deletion_budget.clone()));
    let of_head = manifests.iter().map(|(id, it)| {
        let text = it.annotation(DELETION_BUDGET).map(str::to_owned);
        (id, text)
    });
    let is_judged: BTreeSet<&ObjectId> = manifests
        .iter()
        .filter(|(_, it)| ApplierKind::of(it) == Some(ApplierKind::Kustomization))
        .map(|(id, _)| id)
        .chain(found.appliers.keys().filter(|id| id.kind == "Kustomization"))
        .collect();
    let mut limits: BTreeMap<ObjectId, Vec<String>> = BTreeMap::new();
    for (id, text) in of_cluster.chain(of_head).filter(|(id, _)| is_judged.contains(*id)) {
        limits.entry(id.clone()).or_default().extend(text);
    }
    limits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kustomization_has_its_limits_of_the_repository() {
        let object = |api: &str, kind: &str| {
            Object::new(json!({"apiVersion": api, "kind": kind, "metadata": {"name": "apps",
                "namespace": "shop", "annotations": {DELETION_BUDGET: "3"}}}))
            .unwrap()
        };
        let all = [
            object("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            object("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
        ];
        let manifests = all.into_iter().map(|object| (object.id(), object)).collect();
        let limits = deletion_limits(&manifests, &ClusterAppliers::default());
        let limits: Vec<(String, Vec<String>)> =
            limits.into_iter().map(|(id, limits)| (id.subject(), limits)).collect();
        assert_eq!(limits, [("Kustomization/shop/apps".to_owned(), vec!["3".to_owned()])]);
    }
}
