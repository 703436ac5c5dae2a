//! `windlass plan`: predicts what a change of a Git repository would change in a cluster, without contacting the cluster. With
//! `--live`, it compares the repository with a cluster.
//!
//! Here: the command, its output formats and its exit code. Below: reading both revisions (`revision_files.rs`), finding the
//! entry point (`applier_search_root.rs`), finding and building appliers (`applier_discovery.rs`, `kustomization_build.rs`,
//! `repository_sources.rs`, `source_files.rs`). Releases: `release_inputs.rs`, `release_chart.rs`, `chart_fetch.rs`,
//! `chart_download_folder.rs`, `release_rendering.rs`, `nondeterministic_values.rs`. Helmfiles:
//! `helmfile_plan_without_cluster.rs`, `helmfile_releases.rs`, `helmfile_request_sender.rs`, `helmfile_rendering.rs`. Other
//! servers: `remote_file_fetcher.rs`. Rendering both sides: `comparison_rendering.rs`, `render_failure.rs`.
//! `windlass plan facts`: `cluster_facts_command.rs`, `cluster_facts_reading.rs`, `cluster_facts_file.rs`.
//! `windlass plan check`, which posts a plan: `pull_request_check.rs`, `pull_request_commit.rs`. `windlass plan show`, which
//! prints a Plan of a cluster: `plan_show.rs`. `windlass plan --live`: `live_plan.rs`, `live_render_inputs.rs`,
//! `live_appliers.rs`, `live_comparison.rs`, `live_deletion_budgets.rs`. A branch of a source, compared with a cluster:
//! [`branch_plan`], `source_appliers.rs`. Predicting one object, also for `windlass diff`:
//! [`object_prediction`]. Elsewhere: building and rendering (`kustomize_controller`, `helm_controller`), comparing (engine
//! `plan`).

mod applier_discovery;
mod applier_search_root;
pub mod branch_plan;
mod chart_download_folder;
mod chart_fetch;
mod cluster_facts_command;
mod cluster_facts_file;
mod cluster_facts_reading;
mod comparison_rendering;
mod helmfile_plan_without_cluster;
mod helmfile_releases;
mod helmfile_rendering;
mod helmfile_request_sender;
mod kustomization_build;
mod live_appliers;
mod live_comparison;
mod live_deletion_budgets;
mod live_plan;
mod live_render_inputs;
mod nondeterministic_values;
pub mod object_prediction;
mod parallel_work;
mod plan_show;
mod pull_request_check;
mod pull_request_commit;
mod release_chart;
mod release_inputs;
mod release_rendering;
mod remote_file_fetcher;
mod render_failure;
mod repository_sources;
mod resource_scope;
mod revision_files;
mod source_appliers;
mod source_artifact;
mod source_files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use helm::capabilities::{Capabilities, KubeVersion};
use objects::SecretMasking;
use plan::{ApplierComparisonStatus, ChangePlan, RenderingComparisonOptions};
use tree::RelPath;

use applier_discovery::{ApplierSearchBegin, Revision};
use applier_search_root::{ApplierManifests, ApplierSearchRoot};
use chart_download_folder::ChartDownloadFolder;
use chart_fetch::ChartFetcher;
use cluster_facts_file::{ClusterFacts, FACTS_PATH};
use comparison_rendering::{OtherSideFacts, UnrenderedComparisonSide};
use helmfile_releases::HelmfilePathsByRelease;
use kustomization_build::ReusableKustomizationBuilds;
use release_rendering::ReleaseRenderer;
use remote_file_fetcher::RemoteFileFetcher;
use repository_sources::RepositorySources;
use revision_files::{LocalGitRepository, RevisionFiles};
use windlass_cli_runtime::connection::{
    ApiServerUnreachable, ClusterAccessFlags, ProgressGlyph, print, say,
};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::trailing_serve_flags::settings;
use windlass_serve::settings::{OperatorSettings, parse_duration};

/// The base revision if the user names none.
const DEFAULT_BASE: &str = "HEAD";

/// How long building and rendering may take. After that, no further applier is started.
const MAX_RENDER_TIME: Duration = Duration::from_secs(600);

/// The maximum total size of Secret values that are searched for in the output, in bytes. If there are more, no values are
/// printed at all.
const MAX_SECRET_BYTES: usize = 8 << 20;

/// The limit for searching Secret values in the output, as bytes of text times number of values. It is about a minute.
const MAX_MASKING_STEPS: u64 = 100_000_000_000;

/// The flags of `windlass plan`.
#[derive(Debug, Clone, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: Option<PlanCommand>,
    /// The folder that the cluster applies first [default: that of a Kustomization that applies itself or of a FluxInstance, or the root]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// The revision that is compared with [default: HEAD]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Compare with a cluster instead of a revision, with the rights of this user
    #[arg(long)]
    live: bool,
    /// The revision with the change [default: the work tree, with what is not committed]
    #[arg(long, value_name = "REV")]
    head: Option<String>,
    /// With --live: a branch of the GitRepository that --source names; it is fetched, and no local repository is read
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// A source that is this repository, such as OCIRepository/flux-system/fleet; may be repeated
    #[arg(long, value_name = "KIND/NAMESPACE/NAME")]
    source: Vec<String>,
    /// Hosts from which charts, remote bases and what helmfiles name are fetched, between commas; may be repeated
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    allow_hosts: Vec<String>,
    /// The version of Kubernetes that charts are rendered for
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<String>,
    /// API versions that the cluster serves besides those of Kubernetes and of the repository, between commas
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS")]
    api_versions: Vec<String>,
    /// File with what only the cluster knows, as `windlass plan facts` writes it [default: .windlass/facts.yaml of the base]
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Folder in which charts are kept for the next run [default: $XDG_CACHE_HOME/windlass/plan, or that of the system]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table, value_name = "FORMAT")]
    output: PlanFormat,
    /// Exit with status 1 if something would change
    #[arg(long)]
    detailed_exitcode: bool,
    /// With --live: only appliers of this namespace are listed; by default all
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Cluster")]
    namespace: Option<String>,
    #[command(flatten)]
    access: ClusterAccessFlags,
    /// With --live: how long reading the cluster may take
    #[arg(
        long,
        default_value = "5m",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = "Cluster"
    )]
    timeout: Duration,
    /// Flags with which `windlass serve` runs in the cluster; by default none
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

/// What is done besides comparing two revisions.
#[derive(Debug, Clone, Subcommand)]
enum PlanCommand {
    /// Write what only the cluster knows into a file of the repository, or compare both
    #[command(after_help = cluster_facts_command::EXAMPLES)]
    Facts(cluster_facts_command::FactsArgs),
    /// Post a plan as one comment of a pull request, and a commit status
    #[command(after_help = pull_request_check::EXAMPLES)]
    Check(pull_request_check::PlanCheckArgs),
    /// Show what a Plan in a cluster would do, which waits for approval
    #[command(after_help = plan_show::EXAMPLES)]
    Show(plan_show::PlanShowArgs),
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// For people
    Table,
    /// A comment of a pull request
    Markdown,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// SARIF 2.1.0, for scanners of code
    Sarif,
}

/// Examples, and a description of what is covered, at the end of the command's help.
pub const EXAMPLES: &str = "Examples:
  windlass plan                                         what a commit of the work tree would change
  windlass plan --base main                             the same since the branch main
  windlass plan --base v1.4 --head v1.5 -o markdown     what is between two revisions, as a comment
  windlass plan --path clusters/prod --base main        of one of several clusters
  windlass plan --base main --allow-hosts=charts.example.com,ghcr.io --detailed-exitcode
  windlass plan --live                                  what the cluster would become if the work tree were applied
  windlass plan --live --context prod --head main       what another cluster would become by the branch main
  windlass plan --live --branch new --source GitRepository/apps/web   if this branch were merged
  windlass plan facts                                   write what only the cluster knows, for later plans
  windlass plan check plan.json                         what was found, as a comment and a status of a pull request

Both revisions are read out of the Git repository around the folder, which may be bare if --head names a revision; nothing is
checked out, no program is run, and no request is sent to a cluster. Kustomizations are built as windlass builds them, from the
entry point down, and releases are rendered where their spec, chart or values differ. ConfigMaps and Secrets that the repository
declares count, and facts of the cluster that the base has; what else only the cluster has is named as unknown. No value of a
Secret is printed, and what SOPS encrypted is compared as it is.

A GitRepository is this repository if its URL is that of a remote, and so are the source of the Kustomization that applies
itself and what --source names. Charts of other hosts are fetched, without credentials, only from --allow-hosts, and only
if their release changes; so are remote bases, and what helmfiles name elsewhere. The releases of a Helmfile count as
HelmReleases do; their hooks are not covered, and no program is run that a helmfile names.

With --live, the base is the cluster, as this user may read it: objects as they are, compared by dry-runs of the API server,
and what appliers have recorded that they applied. Nothing is written. What this user may not read is named as not known, and
never counts as added or removed. All releases are rendered, so their charts are fetched from --allow-hosts, too. With
--branch, the files are those of a branch of a GitRepository of the cluster, fetched with its credentials as this user may
read them, and what uses this source is compared.

Exit status: 0 if the plan was made; 1 if something would change, with --detailed-exitcode; 2 if the plan could not be made,
or an applier cannot be rendered with the change that could be before. What is not fetched, such as a chart of a host that
--allow-hosts does not name, is not known and no failure, whether its applier is new, changes or goes. With --live, it is also
2 if an applier could not be read in the cluster, and 3 if the cluster cannot be reached.";

/// Prints what a change would change, or posts an earlier plan.
///
/// # Errors
/// There is no repository or no such revision, or the files cannot be read.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    // Errors contain names of files and objects. Everyone who can propose a change chooses these names, so the text is cleaned.
    let clean = |error: anyhow::Error| anyhow!(plan::clean_line(&format!("{error:#}")));
    match &args.command {
        Some(PlanCommand::Facts(args)) => return cluster_facts_command::run(args),
        Some(PlanCommand::Check(args)) => return pull_request_check::run(args),
        Some(PlanCommand::Show(args)) => return plan_show::run(args),
        None => {}
    }
    live_plan::check_flags(args)?;
    let settings = settings(&args.flags)?;
    let plan = match args.live {
        true => live_plan::change_plan(args, settings).map_err(|error| {
            // This decides the exit code.
            let is_unreachable = error.is::<ApiServerUnreachable>();
            if is_unreachable { error } else { clean(error) }
        })?,
        false => change_plan(args, settings).map_err(clean)?,
    };
    print(&text(&plan, args.output)?)?;
    Ok(match args.live {
        true => live_plan::exit_code(&plan, args.detailed_exitcode),
        false => exit_code(&plan, args.detailed_exitcode),
    })
}

/// Reads, renders and compares both revisions.
fn change_plan(args: &PlanArgs, settings: OperatorSettings) -> anyhow::Result<ChangePlan> {
    let repository = named_repository(args.path.as_deref())?;
    let sources = RepositorySources::new(&repository.remote_urls(), &args.source)?;
    let base = args.base.as_deref().unwrap_or(DEFAULT_BASE);
    let base_files = repository.revision(base).context("--base")?;
    let head_files = head_files(args, &repository)?;
    let base_tree = base_files.artifact(None)?;
    let head_tree = head_files.artifact(None)?;
    let base_manifests = ApplierManifests::of(&base_tree.files);
    let head_manifests = ApplierManifests::of(&head_tree.files);
    let entry = match &args.path {
        Some(path) => ApplierSearchRoot::named(repository.path_of(path)?),
        None => common_entry(&base_manifests, &head_manifests)?,
    };
    let facts = known_facts(args, [&base_files, &head_files], &entry.folder)?;
    let downloads = ChartDownloadFolder::new(args.cache_dir.clone());
    let remote = Arc::new(RemoteFileFetcher::new(args.allow_hosts.clone())?);
    let renderer = ReleaseRenderer {
        charts: Arc::new(ChartFetcher::new(args.allow_hosts.clone(), downloads)),
        remote: remote.clone(),
        capabilities: capabilities(args, &facts)?,
        settings,
        includes_definitions: true,
        masks_drawn_values: true,
    };
    let deadline = Instant::now() + MAX_RENDER_TIME;
    let builds = ReusableKustomizationBuilds::new(remote);
    let cluster_references = facts.known_references();
    let side = |files: &RevisionFiles,
                manifests: ApplierManifests,
                known_releases: &HelmfilePathsByRelease| {
        let shown = &files.revision;
        let progress = format!("building what `{}` declares: {shown}", entry.folder);
        say(ProgressGlyph::Action, &plan::clean_line(&progress));
        let revision = Revision {
            files,
            sources: &sources,
            builds: &builds,
            renderer: &renderer,
            settings: &renderer.settings,
            known_releases,
            facts: &facts,
            cluster_references: &cluster_references,
            deadline,
        };
        declared_side(&revision, manifests, &entry)
    };
    // The revisions are rendered one after the other, because the head reuses the builds of the base.
    let base = side(&base_files, base_manifests, &HelmfilePathsByRelease::new())?;
    let head = side(&head_files, head_manifests, &base.declarations.helmfile_releases)?;
    let secrets = secret_masking(base.secret_values().chain(head.secret_values()).collect());
    let of_base = OtherSideFacts::of(&base);
    let of_head = OtherSideFacts::of(&head);
    say(ProgressGlyph::Action, "rendering releases that change");
    let base = base.render(&of_head, &renderer, deadline)?;
    let head = head.render(&of_base, &renderer, deadline)?;
    let options = RenderingComparisonOptions { secrets, ..RenderingComparisonOptions::default() };
    Ok(plan::compare(&base, &head, &options))
}

/// The repository of the folder in the flags.
fn named_repository(path: Option<&Path>) -> anyhow::Result<LocalGitRepository> {
    let current = std::env::current_dir().context("cannot read the current directory")?;
    repository_of(&current, &current.join(path.unwrap_or(Path::new("."))))
}

/// The files of the head revision.
fn head_files(args: &PlanArgs, repository: &LocalGitRepository) -> anyhow::Result<RevisionFiles> {
    if let Some(revision) = &args.head {
        return repository.revision(revision).context("--head");
    }
    ensure!(
        !repository.is_bare(),
        "a bare repository has no work tree: name the revision with the change with --head"
    );
    repository.work_tree()
}

/// The repository that contains a folder. A submodule or a link inside the current repository is not accepted, because a change
/// may have added it. A separate clone is accepted.
fn repository_of(current: &Path, folder: &Path) -> anyhow::Result<LocalGitRepository> {
    let named = LocalGitRepository::around(folder)?;
    match LocalGitRepository::around(current) {
        Ok(around) if around.path_of(folder).is_ok() && !named.is_clone_in(&around) => Ok(around),
        _ => Ok(named),
    }
}

/// The entry point for both sides. The change itself must not choose what is compared.
fn common_entry(
    base: &ApplierManifests,
    head: &ApplierManifests,
) -> anyhow::Result<ApplierSearchRoot> {
    let ApplierSearchRoot { folder: base, is_assumed } = base.entry().context("--base")?;
    let head = head.entry().context("--head")?;
    ensure!(
        base == head.folder,
        "the cluster applies `{base}` first in the base, and `{}` in the head: choose one with --path",
        head.folder
    );
    Ok(ApplierSearchRoot { folder: base, is_assumed: is_assumed || head.is_assumed })
}

/// Makes the mask for Secret values. If there are too many values to search for, everything is masked.
fn secret_masking(values: Vec<Vec<u8>>) -> SecretMasking {
    let bytes: usize = values.iter().map(Vec::len).sum();
    match bytes <= MAX_SECRET_BYTES {
        true => SecretMasking::new(values).within(MAX_MASKING_STEPS),
        false => SecretMasking::default().within(0),
    }
}

fn declared_side(
    revision: &Revision<'_>,
    manifests: ApplierManifests,
    entry: &ApplierSearchRoot,
) -> anyhow::Result<UnrenderedComparisonSide> {
    let begin = ApplierSearchBegin::Folder(entry);
    let declarations = applier_discovery::declarations(revision, begin)?;
    Ok(UnrenderedComparisonSide {
        revision: revision.files.revision.clone(),
        declarations,
        manifests,
    })
}

/// The known facts of the cluster: from the file that the user named, or from the file in the base revision. The file in the
/// head does not count before the merge, because its author could invent facts.
fn known_facts(
    args: &PlanArgs,
    sides: [&RevisionFiles; 2],
    entry: &RelPath,
) -> anyhow::Result<ClusterFacts> {
    if let Some(path) = &args.facts {
        return cluster_facts_command::read_file(path).context("--facts");
    }
    let path = entry.join(FACTS_PATH)?;
    let [base, head] = sides.map(|side| side.read(&path));
    let warn = |text: String| say(ProgressGlyph::Warning, &plan::clean_line(&text));
    if base != head {
        warn(format!(
            "`{path}` is another one in the head: that of the base counts, unless --facts names a file"
        ));
    }
    let Some(text) = base else { return Ok(ClusterFacts::default()) };
    Ok(ClusterFacts::parse(&text).unwrap_or_else(|error| {
        warn(format!("`{path}` of the base is not used: {error:#}"));
        ClusterFacts::default()
    }))
}

/// The Kubernetes version and API versions for charts.
fn capabilities(args: &PlanArgs, facts: &ClusterFacts) -> anyhow::Result<Capabilities> {
    let mut capabilities = Capabilities::default();
    facts.add_to(&mut capabilities)?;
    if let Some(text) = &args.kube_version {
        let version = KubeVersion::parse(text);
        capabilities.kube_version = version.with_context(|| format!("--kube-version {text}"))?;
    }
    capabilities.api_versions.extend(args.api_versions.iter().cloned());
    Ok(capabilities)
}

/// Formats a plan.
fn text(plan: &ChangePlan, format: PlanFormat) -> anyhow::Result<String> {
    Ok(match format {
        PlanFormat::Table => plan::table_text(plan),
        PlanFormat::Markdown => plan::markdown_comment(plan),
        PlanFormat::Json => format!("{}\n", serde_json::to_string_pretty(plan)?),
        PlanFormat::Yaml => goyaml::emit_with_escapes(&serde_json::to_value(plan)?)?,
        PlanFormat::Sarif => {
            format!("{}\n", serde_json::to_string_pretty(&plan::sarif_log(plan))?)
        }
    })
}

/// The exit code of the command.
fn exit_code(plan: &ChangePlan, is_detailed: bool) -> ExitCode {
    let is_incomplete = plan.head_incomplete.is_some() && plan.base_incomplete.is_none();
    let fails = plan.appliers.iter().filter(|it| !it.fails_in_base).any(|it| {
        matches!(
            it.comparison,
            ApplierComparisonStatus::HeadFailed
                | ApplierComparisonStatus::HeadUnknown
                | ApplierComparisonStatus::TooLarge
        )
    });
    match () {
        () if fails || is_incomplete => ExitCode::Failed,
        () if is_detailed && !plan.is_unchanged() => ExitCode::ProblemsFound,
        () => ExitCode::Success,
    }
}
