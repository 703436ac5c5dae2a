//! Plans a branch of a source that a cluster has: what the cluster would become if the branch were merged. The files are fetched
//! from the place of the source, and all requests to the cluster are reads and dry-runs of the user. Web pages use it, and
//! `windlass plan --live --branch`.
//!
//! The credentials of the source are those that it names. The user reads them. If the user may not, a server may read them with
//! its own rights. Then the server has to check before that the user may plan this source.
//! Elsewhere: which appliers use the source (`source_appliers.rs`), rendering and comparing (`live_plan.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use crds::LocalObjectReference;
use crds::source::{GitRepository, GitRepositorySpec};
use git::{GitLimits, GitOperationContext, GitReference, GitRemote, GitServerCache};
use helm::capabilities::Capabilities;
use http_client::{EgressRules, HostBudgets};
use objects::{Object, ObjectId};
use plan::{ChangePlan, FindingLevel, PlanFinding, PlanFindingKind};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::applier_discovery::{ApplierSearchBegin, typed};
use super::applier_search_root::ApplierManifests;
use super::kustomization_build::ReusableKustomizationBuilds;
use super::live_plan::{LiveCluster, RepositorySearchInputs, renderer, report_progress};
use super::live_render_inputs::LiveRenderInputs;
use super::repository_sources::{RepositorySources, SOURCE_GROUP};
use super::revision_files::RevisionFiles;
use super::source_appliers::SourceAppliers;
use super::{MAX_RENDER_TIME, PlanArgs};
use windlass_cluster::error::chain;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::git_remote_access::{GitRemoteSecrets, GitSecretData};
use windlass_serve::settings::OperatorSettings;

/// The kind of the sources that have branches.
const SOURCE_KIND: &str = "GitRepository";

/// The API version in which the source is read.
const SOURCE_VERSION: &str = "v1";

/// The longest name of a branch, in bytes. Servers keep a branch in a file of this name.
const MAX_BRANCH_BYTES: usize = 255;

/// The limits of a fetch. All files are in memory, and a server may make several plans at once.
const FETCH_LIMITS: GitLimits =
    GitLimits { received: 256 << 20, entries: 50_000, file: 32 << 20, total: 128 << 20 };

/// How long the fetch may take. A shorter `spec.timeout` counts.
const FETCH_TIME_LIMIT: Duration = Duration::from_secs(60);

/// How long a plan of a server may read the cluster.
const READ_TIME_LIMIT: Duration = Duration::from_secs(120);

/// How long a plan of a server may build and render. After that, no further applier is started.
const RENDER_TIME_LIMIT: Duration = Duration::from_secs(120);

/// The stack of the thread of a plan, in bytes.
const STACK_BYTES: usize = 8 << 20;

/// A branch of a GitRepository in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedBranch {
    namespace: String,
    source: String,
    branch: String,
}

/// Why a text is not the name of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidBranchName(String);

impl fmt::Display for InvalidBranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidBranchName {}

impl PlannedBranch {
    /// Names a branch of the source `namespace`/`source`.
    ///
    /// # Errors
    /// Git does not permit the name.
    pub fn new(namespace: &str, source: &str, branch: &str) -> Result<Self, InvalidBranchName> {
        if branch.is_empty() {
            return Err(InvalidBranchName("name a branch".to_owned()));
        }
        if branch.len() > MAX_BRANCH_BYTES {
            let text = format!("the name of the branch is longer than {MAX_BRANCH_BYTES} bytes");
            return Err(InvalidBranchName(text));
        }
        if branch.starts_with('-') {
            let text = "the name of a branch must not start with `-`".to_owned();
            return Err(InvalidBranchName(text));
        }
        let checked = GitReference::Branch(branch.to_owned()).check();
        checked.map_err(|error| InvalidBranchName(error.to_string()))?;
        let [namespace, source, branch] = [namespace, source, branch].map(str::to_owned);
        Ok(Self { namespace, source, branch })
    }

    /// The source as the flag `--source` names it.
    fn source_word(&self) -> String {
        format!("{SOURCE_KIND}/{}/{}", self.namespace, self.source)
    }
}

/// The plan of a branch that a server makes for a user.
pub struct BranchPlanRequest {
    /// What is planned.
    pub planned: PlannedBranch,
    /// The connection of the user. All reads and dry-runs go through it.
    pub cluster: ClusterConnection,
    /// The connection of the server. It reads only the Secrets that the source names, and only if the user may not read them.
    pub server: Option<ClusterConnection>,
    /// The servers from which the source may be fetched.
    pub egress: EgressRules,
    /// The settings of the operator.
    pub settings: OperatorSettings,
    /// Receives what is done at the moment.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

impl BranchPlanRequest {
    /// Makes the plan on a thread of its own. If the future is dropped, the thread still works until its time limits. `permit` is
    /// kept until the thread ends. Must be called within the runtime of the connections.
    ///
    /// # Errors
    /// The source cannot be fetched, or the cluster cannot be read.
    pub async fn make<P: Send + 'static>(self, permit: P) -> anyhow::Result<ChangePlan> {
        let (reply, made) = oneshot::channel();
        let runtime = Handle::current();
        let thread = std::thread::Builder::new().name("branch-plan".to_owned());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            let plan = self.run(runtime);
            drop(permit);
            // The user may have closed the page.
            drop(reply.send(plan));
        });
        started.context("cannot start a thread")?;
        made.await.context("the plan panicked; this is a bug in windlass, please report it")?
    }

    fn run(self, runtime: Handle) -> anyhow::Result<ChangePlan> {
        let Self { planned, cluster, server, egress, settings, progress } = self;
        let live = LiveCluster::of_caller(cluster, runtime, READ_TIME_LIMIT);
        let work = BranchPlanWork {
            planned: &planned,
            live: &live,
            server: server.as_ref(),
            egress,
            settings,
            hosts: Vec::new(),
            namespace: None,
            render_time: RENDER_TIME_LIMIT,
            progress: &*progress,
        };
        work.plan()
    }
}

/// Refuses flags that cannot be combined with `--branch`.
///
/// # Errors
/// Such flags are given. The error names them.
pub(crate) fn check_flags(args: &PlanArgs) -> anyhow::Result<()> {
    let Some(branch) = &args.branch else { return Ok(()) };
    ensure!(args.live, "--branch compares a branch with the cluster: add --live");
    ensure!(
        args.head.is_none() && args.path.is_none(),
        "--branch says what is fetched and compared: leave out --head and --path"
    );
    ensure!(
        args.kube_version.is_none() && args.api_versions.is_empty(),
        "with --branch, the cluster says what it serves: leave out --kube-version and --api-versions"
    );
    planned_by_flags(args, branch).map(drop)
}

/// The branch of the source that the flags name.
fn planned_by_flags(args: &PlanArgs, branch: &str) -> anyhow::Result<PlannedBranch> {
    let advice = "--branch needs the source of the branch: --source=GitRepository/NAMESPACE/NAME";
    let [source] = args.source.as_slice() else { bail!("{advice}") };
    match source.split('/').collect::<Vec<_>>().as_slice() {
        [kind, namespace, name]
            if kind.eq_ignore_ascii_case(SOURCE_KIND)
                && !namespace.is_empty()
                && !name.is_empty() =>
        {
            Ok(PlannedBranch::new(namespace, name, branch).context("--branch")?)
        }
        _ => bail!("{advice}"),
    }
}

/// Plans a branch for the command.
///
/// # Errors
/// The source cannot be fetched, or the cluster cannot be read.
pub(crate) fn change_plan(
    args: &PlanArgs,
    branch: &str,
    live: LiveCluster,
    settings: OperatorSettings,
) -> anyhow::Result<ChangePlan> {
    let planned = planned_by_flags(args, branch)?;
    let work = BranchPlanWork {
        planned: &planned,
        live: &live,
        server: None,
        egress: EgressRules::with_loopback(),
        settings,
        hosts: args.allow_hosts.clone(),
        namespace: args.namespace.as_deref(),
        render_time: MAX_RENDER_TIME,
        progress: &report_progress,
    };
    work.plan()
}

/// The work for a plan.
struct BranchPlanWork<'w> {
    planned: &'w PlannedBranch,
    live: &'w LiveCluster,
    server: Option<&'w ClusterConnection>,
    egress: EgressRules,
    settings: OperatorSettings,
    /// The hosts from which charts and remote bases are fetched.
    hosts: Vec<String>,
    /// The namespace whose appliers are listed. `None` for all namespaces.
    namespace: Option<&'w str>,
    render_time: Duration,
    progress: &'w dyn Fn(&str),
}

impl BranchPlanWork<'_> {
    fn plan(self) -> anyhow::Result<ChangePlan> {
        let Self { planned, live, progress, .. } = self;
        progress("reading the source and what uses it");
        let source = live.read(self.source())?;
        let repository: GitRepository = typed(&source).map_err(|text| anyhow!(text))?;
        check_content(&repository.spec)?;
        let users = live.read(SourceAppliers::read(&live.cluster, source))?;
        ensure!(
            !users.appliers.is_empty(),
            "nothing that you may list uses {}{}",
            planned.source_word(),
            listed_reasons(&users.unlisted)
        );
        let secrets = live.read(self.secrets(&repository.spec))?;
        let remote = secrets.remote(&repository.spec);
        let remote = remote.map_err(|outcome| anyhow!(outcome.text().to_owned()))?;
        progress(&format!("fetching branch {}", planned.branch));
        let files = self.fetched(remote)?;
        let manifests = ApplierManifests::of(&files.artifact(None)?.files);
        let named = [planned.source_word()];
        let sources = RepositorySources::new(std::slice::from_ref(&repository.spec.url), &named)?;
        let inputs = live.read(LiveRenderInputs::of(&live.cluster))?;
        let mut capabilities = Capabilities::default();
        inputs.facts.add_to(&mut capabilities)?;
        let renderer = renderer(self.hosts, None, capabilities, self.settings)?;
        let builds = ReusableKustomizationBuilds::new(renderer.remote.clone());
        progress("building what the branch declares");
        let search = RepositorySearchInputs {
            files: &files,
            sources: &sources,
            builds: &builds,
            renderer: &renderer,
            begin: ApplierSearchBegin::Appliers(&users),
            deadline: Instant::now() + self.render_time,
            namespace: self.namespace,
            progress,
        };
        let mut plan = search.plan(live, inputs, manifests)?;
        name_unlisted(&mut plan, &users.unlisted);
        name_differences(&mut plan, &repository.spec, planned);
        Ok(plan)
    }

    /// The source, as the user may read it.
    async fn source(&self) -> anyhow::Result<Object> {
        let PlannedBranch { namespace, source, .. } = self.planned;
        let id = ObjectId::new(namespace, source, SOURCE_GROUP, SOURCE_KIND);
        let found = self.live.cluster.get_by_id(&id, SOURCE_VERSION).await;
        let found = found.with_context(|| format!("cannot read {}", id.subject()))?;
        found.with_context(|| format!("{} does not exist", id.subject()))
    }

    /// The Secrets that the source names. The server reads them only if the user may not.
    async fn secrets(&self, spec: &GitRepositorySpec) -> anyhow::Result<GitRemoteSecrets> {
        let namespace = &self.planned.namespace;
        let of_user = match read_secrets(&self.live.cluster, namespace, spec).await {
            Ok(secrets) => return Ok(secrets),
            Err(refusal) => refusal,
        };
        let text = of_user.text("you");
        let server = self.server.filter(|_| of_user.is_forbidden());
        let Some(server) = server else { bail!("{text}") };
        let of_server = read_secrets(server, namespace, spec).await;
        of_server.map_err(|refusal| anyhow!("{text}; {}", refusal.text("the server of pages")))
    }

    /// Fetches the files of the branch, without its history.
    fn fetched(&self, remote: GitRemote) -> anyhow::Result<RevisionFiles> {
        let remote = GitRemote {
            timeout: remote.timeout.min(FETCH_TIME_LIMIT),
            limits: FETCH_LIMITS,
            ..remote
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot start a thread")?;
        let budgets = Arc::new(HostBudgets::within(self.egress.clone()));
        let context = GitOperationContext {
            runtime: runtime.handle().clone(),
            cancel: CancellationToken::new(),
            scratch: std::env::temp_dir(),
            known: Arc::new(GitServerCache::within(self.egress.clone()).sharing(budgets)),
        };
        let branch = GitReference::Branch(self.planned.branch.clone());
        let snapshot = git::fetch(&remote, &branch, &context);
        let snapshot = snapshot.map_err(|error| anyhow!(chain(&error)))?;
        RevisionFiles::of_snapshot(&snapshot)
    }
}

/// Why a Secret of the source could not be read.
struct SecretRefusal {
    subject: String,
    /// `None` if the Secret does not exist.
    error: Option<ClusterError>,
}

impl SecretRefusal {
    fn is_forbidden(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.code() == Some(403))
    }

    /// The text for people. `reader` is who read the Secret.
    fn text(&self, reader: &str) -> String {
        let Self { subject, error } = self;
        match error {
            Some(error) => {
                format!("{reader} cannot read {subject}, which the source names: {error}")
            }
            None => format!("{subject}, which the source names, does not exist"),
        }
    }
}

/// Reads the Secrets that a source names, over one connection.
async fn read_secrets(
    cluster: &ClusterConnection,
    namespace: &str,
    spec: &GitRepositorySpec,
) -> Result<GitRemoteSecrets, SecretRefusal> {
    let secret = read_secret(cluster, namespace, spec.secret_ref.as_ref()).await?;
    let proxy = read_secret(cluster, namespace, spec.proxy_secret_ref.as_ref()).await?;
    Ok(GitRemoteSecrets { secret: secret.unwrap_or_default(), proxy })
}

/// The data of a Secret. `None` if the source names none.
async fn read_secret(
    cluster: &ClusterConnection,
    namespace: &str,
    reference: Option<&LocalObjectReference>,
) -> Result<Option<GitSecretData>, SecretRefusal> {
    let Some(LocalObjectReference { name }) = reference else { return Ok(None) };
    let refusal = |error: Option<ClusterError>| SecretRefusal {
        subject: format!("Secret/{namespace}/{name}"),
        error,
    };
    let found = cluster.secret(namespace, name).await.map_err(|error| refusal(Some(error)))?;
    let (data, _version) = found.ok_or_else(|| refusal(None))?;
    Ok(Some(data))
}

/// Refuses a source whose artifact has more or fewer files than the branch.
fn check_content(spec: &GitRepositorySpec) -> anyhow::Result<()> {
    let given = [
        ("spec.include", !spec.include.is_empty()),
        ("spec.sparseCheckout", !spec.sparse_checkout.is_empty()),
        ("spec.recurseSubmodules", spec.recurse_submodules),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((field, _)) => {
            bail!("a source with {field} has other files than its branch, and cannot be planned")
        }
        None => Ok(()),
    }
}

fn listed_reasons(unlisted: &[String]) -> String {
    match unlisted {
        [] => String::new(),
        unlisted => format!("; not listed: {}", unlisted.join("; ")),
    }
}

/// Names the appliers that could not be listed. Nothing is known about them.
fn name_unlisted(plan: &mut ChangePlan, unlisted: &[String]) {
    if unlisted.is_empty() {
        return;
    }
    let text =
        format!("appliers may use the source that you may not list: {}", unlisted.join("; "));
    plan.findings.push(warning(text.clone()));
    plan.base_incomplete.get_or_insert(text);
}

/// Names what the cluster does otherwise than this plan.
fn name_differences(plan: &mut ChangePlan, spec: &GitRepositorySpec, planned: &PlannedBranch) {
    let reference = spec.reference.clone().unwrap_or_default();
    let pinned = [reference.commit, reference.name, reference.tag, reference.semver];
    if let Some(pinned) = pinned.into_iter().flatten().next() {
        plan.findings.push(warning(format!(
            "{} stays at `{pinned}`, whatever is merged; this is what it would be with the branch",
            planned.source_word()
        )));
    }
    if spec.verify.is_some() {
        let text = "the signatures that spec.verify requires are not checked for a plan";
        plan.findings.push(warning(text.to_owned()));
    }
}

fn warning(message: String) -> PlanFinding {
    PlanFinding {
        rule: PlanFindingKind::NotCompared,
        level: FindingLevel::Warning,
        applier: None,
        object: None,
        file: None,
        message,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::answering;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_branch_has_a_name_that_git_permits() {
        let branch = |name: &str| PlannedBranch::new("apps", "web", name);
        for name in ["main", "feature/retry-budget", "a.b", "@x", "ü"] {
            assert_eq!(branch(name).unwrap().branch, name);
        }
        let long = "a".repeat(MAX_BRANCH_BYTES + 1);
        for name in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a b",
            "a\nb",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            "a.lock",
            "a.",
            ".a",
            "a@{b",
            long.as_str(),
        ] {
            assert!(branch(name).is_err(), "{name:?}");
        }
        assert_eq!(branch("main").unwrap().source_word(), "GitRepository/apps/web");
    }

    fn spec(more: serde_json::Value) -> GitRepositorySpec {
        let mut spec = json!({"url": "https://example.com/fleet", "interval": "1m"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_source_with_other_files_than_its_branch_is_refused() {
        assert!(check_content(&spec(json!({"ignore": "docs/"}))).is_ok());
        for (field, value) in [
            ("include", json!([{"repository": {"name": "a"}}])),
            ("sparseCheckout", json!(["a"])),
            ("recurseSubmodules", json!(true)),
        ] {
            let error = check_content(&spec(json!({field: value}))).unwrap_err().to_string();
            assert!(error.contains(&format!("spec.{field}")), "{error}");
        }
    }

    fn empty_plan() -> ChangePlan {
        ChangePlan {
            base_revision: "cluster".to_owned(),
            head_revision: "0123".to_owned(),
            summary: plan::PlanSummary::default(),
            findings: Vec::new(),
            omitted_findings: 0,
            appliers: Vec::new(),
            base_incomplete: None,
            head_incomplete: None,
        }
    }

    #[test]
    fn what_is_not_listed_and_what_the_cluster_does_otherwise_is_named() {
        let planned = PlannedBranch::new("apps", "web", "main").unwrap();
        let mut plan = empty_plan();
        name_unlisted(&mut plan, &[]);
        name_differences(&mut plan, &spec(json!({"ref": {"branch": "main"}})), &planned);
        assert!(plan.is_unchanged());
        name_unlisted(&mut plan, &["Kustomization of all namespaces: forbidden".to_owned()]);
        name_differences(&mut plan, &spec(json!({"ref": {"tag": "v1"}})), &planned);
        assert!(plan.base_incomplete.as_ref().unwrap().ends_with("all namespaces: forbidden"));
        assert!(plan.findings[1].message.contains("stays at `v1`"), "{plan:?}");
    }

    /// A connection that may read the Secret, or may not.
    async fn connection(code: u16) -> ClusterConnection {
        answering(move |(request, _)| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "login", "namespace": "apps", "resourceVersion": "1"},
                "data": {"password": "aHVudGVyMg=="}});
            let refused = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": "Forbidden", "message": format!("no: {request}")});
            let answer = if code == 200 { secret } else { refused };
            (code, Body::from(answer.to_string()))
        })
        .await
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_read_is_named_with_the_words_of_the_api_server() {
        let spec = spec(json!({"secretRef": {"name": "login"}}));
        let read = read_secrets(&connection(200).await, "apps", &spec).await;
        assert_eq!(read.ok().unwrap().secret["password"], b"hunter2");
        let refusal = read_secrets(&connection(403).await, "apps", &spec).await.err().unwrap();
        assert!(refusal.is_forbidden());
        let text = refusal.text("you");
        assert!(text.starts_with("you cannot read Secret/apps/login, which the source"), "{text}");
        let none = read_secrets(&connection(403).await, "apps", &self::spec(json!({}))).await;
        assert!(none.ok().unwrap().secret.is_empty(), "a source without a Secret needs none");
    }
}
