//! `windlass image plan`: predicts what ImageUpdateAutomations would commit, without writing anything.
//!
//! Here: the command, objects from the cluster or from files, the exit code. Below: the work tree
//! (`image_plan/work_tree.rs`), the predicted update (`image_plan/update_plan.rs`), the output (`image_plan/format.rs`).
//! Elsewhere: why a tag is not chosen (`why/image_tags.rs`).

mod format;
mod update_plan;
mod work_tree;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use crds::image::ImagePolicy;
use objects::{LocatedObject, Object, manifest};

use self::format::DiffAudience;
use self::update_plan::{AutomationInputs, ImageUpdatePlan};
use self::work_tree::WorkTree;
use super::command_scope::{ClusterScope, CommandScope, say_left_out};
use super::complete;
use super::kind_argument::{self, ResourceArgument};
use super::output::{ReportFormat, report};
use super::render::typed;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, clean};

/// The flags of `windlass image`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum ImageCommand {
    /// Show what ImageUpdateAutomations would commit; the status is 1 if they would
    ///
    /// The values are those of the ImagePolicies of the cluster, the files those of a local work tree. Nothing is written.
    #[command(after_help = EXAMPLES)]
    Plan(ImagePlanArgs),
}

#[derive(Debug, Clone, ClapArgs)]
struct ImagePlanArgs {
    /// Name of the ImageUpdateAutomation; by default all of the namespace
    #[arg(value_name = "NAME", add = complete::objects_of("imageupdateautomation"))]
    name: Option<String>,
    /// A folder in the work tree of the repository to which the automation commits
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
    /// File with ImagePolicies, with their statuses, instead of those of the cluster; may be repeated
    #[arg(long, value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// Also print the changes of files as a unified diff
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    place: ClusterScope,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

const EXAMPLES: &str = "Examples:
  windlass image plan -n apps                   what the automations of a namespace would commit, in the current folder
  windlass image plan web -n apps --path ../apps
                                                what one of them would commit, in another folder
  windlass image plan web -n apps --diff        the same with the lines of the files
  windlass image plan --policies objects.yaml   the same without a cluster, such as in a pipeline, with the objects of
                                                `kubectl get imgpol,iua -n apps -o yaml > objects.yaml`

The files are those of the work tree as it is: check out what the automation fetches, or the branch that it pushes to. Files
that are not committed, or that Git ignores, count; those of submodules do not. A policy sets what it chose last, also if it is
not ready. Named are markers that set nothing, because their policy does not exist or has no result, and files with markers that
cannot be read.

ImageUpdateAutomations in a FILE are taken instead of those of the cluster, which then is not needed.

In a sparse checkout, the files that are not checked out are not planned.

Exit status: 0 if nothing would be committed; 1 if something would; 2 if something could not be read, an automation cannot do what
its spec says, or -n or --policies name no automation; 3 if the cluster cannot be reached.";

/// The maximum number of named findings for an automation.
const MAX_NAMED_FINDINGS: usize = 20;

const AUTOMATION: &str = "ImageUpdateAutomation";
const POLICY: &str = "ImagePolicy";
const IMAGE_GROUP: &str = "image.toolkit.fluxcd.io";

/// Runs the command.
///
/// # Errors
/// The objects or the work tree cannot be read.
pub(super) fn run(args: &ImageArgs) -> anyhow::Result<ExitCode> {
    let ImageCommand::Plan(args) = &args.command;
    let given = ImageObjectsFromFiles::read(args)?;
    let found = if given.automations.is_empty() {
        args.place.run(async |site| PlannableAutomations::of_cluster(&site, args, &given).await)?
    } else {
        given.automations(args)?
    };
    if found.inputs.is_empty() {
        report(&Vec::<ImageUpdatePlan>::new(), args.output)?;
        say_left_out(&found.left_out);
        // If the user named the place, finding nothing is a failure. Otherwise a pipeline with a wrong name would always
        // succeed.
        let is_named = args.place.has_namespace() || !args.policies.is_empty();
        if found.left_out.is_empty() {
            let glyph = if is_named { ProgressGlyph::Failure } else { ProgressGlyph::Action };
            say(glyph, &clean(&format!("no {AUTOMATION} in {}", found.place)));
        }
        return Ok(exit_code(&[], is_named || !found.left_out.is_empty()));
    }
    let tree = WorkTree::around(&args.path)?;
    if tree.is_sparse {
        let text = "the work tree is a sparse checkout: files that are not checked out are not \
                    planned; `git sparse-checkout disable` checks out all of them";
        say(ProgressGlyph::Warning, text);
    }
    let plans: Vec<ImageUpdatePlan> =
        found.inputs.iter().map(|it| it.plan(&tree, args.diff)).collect();
    tell(args, &plans)?;
    say_left_out(&found.left_out);
    Ok(exit_code(&plans, !found.left_out.is_empty()))
}

/// Prints plans, and markers or files without effect.
///
/// # Errors
/// The reader of the output has closed it.
fn tell(args: &ImagePlanArgs, plans: &[ImageUpdatePlan]) -> anyhow::Result<()> {
    for plan in plans {
        let ImageUpdatePlan { automation, suspended, error, findings, .. } = plan;
        if *suspended {
            let text = "is suspended: nothing is committed before it is resumed";
            say(ProgressGlyph::Warning, &clean(&format!("{automation} {text}")));
        }
        if let Some(error) = error {
            say(ProgressGlyph::Failure, &clean(&format!("{automation}: {error}")));
        }
        for finding in findings.iter().take(MAX_NAMED_FINDINGS) {
            say(ProgressGlyph::Warning, &clean(finding));
        }
        if let Some(more) = findings.len().checked_sub(MAX_NAMED_FINDINGS).filter(|it| *it > 0) {
            say(ProgressGlyph::Warning, &format!("{more} more files and markers have no effect"));
        }
    }
    let is_printed = match (args.name.is_some(), plans) {
        (true, [plan]) => report(plan, args.output)?.is_some(),
        _ => report(&plans, args.output)?.is_some(),
    };
    if !is_printed {
        let reader = match std::io::stdout().is_terminal() {
            true => DiffAudience::Terminal,
            false => DiffAudience::Program,
        };
        for plan in plans {
            print(&format::text(plan, TerminalScreen::of_stdout(), reader))?;
        }
    }
    Ok(())
}

/// The exit code. It says whether something would be committed, or whether that is unknown.
fn exit_code(plans: &[ImageUpdatePlan], is_partial: bool) -> ExitCode {
    match () {
        () if is_partial || plans.iter().any(|plan| plan.error.is_some()) => ExitCode::Failed,
        () if plans.iter().any(|plan| !plan.changes.is_empty()) => ExitCode::ProblemsFound,
        () => ExitCode::Success,
    }
}

/// The automations whose updates are predicted.
#[derive(Debug, Default)]
struct PlannableAutomations {
    inputs: Vec<AutomationInputs>,
    /// Messages about objects that the user may not list.
    left_out: Vec<String>,
    /// The scope in words, for messages.
    place: String,
}

impl PlannableAutomations {
    /// Reads the automations of the cluster. The policies come from the cluster, or from the given files.
    ///
    /// # Errors
    /// A named automation does not exist, or the API server did not respond.
    async fn of_cluster(
        site: &CommandScope,
        args: &ImagePlanArgs,
        given: &ImageObjectsFromFiles,
    ) -> anyhow::Result<Self> {
        cluster_operators::say_doubt(&site.cluster).await;
        let mut objects = Vec::new();
        let mut left_out = Vec::new();
        if let Some(name) = &args.name {
            let target = kind_argument::one(&site.cluster, &words(AUTOMATION, name)).await?;
            ensure!(target.resource.gvk.kind == AUTOMATION, "only an {AUTOMATION} commits");
            objects.push(kind_argument::read(site, &target).await?);
        } else {
            let target = all_of(site, AUTOMATION).await?;
            let listed = site.list(&target, "", |page| {
                objects.extend(page);
                Ok(())
            });
            left_out = listed.await?;
        }
        let mut policies: BTreeMap<String, Vec<ImagePolicy>> = BTreeMap::new();
        let mut inputs = Vec::new();
        for object in objects {
            let namespace = object.namespace().to_owned();
            let known = if !args.policies.is_empty() {
                given.policies.clone()
            } else if let Some(known) = policies.get(&namespace) {
                known.clone()
            } else {
                let known = policies_of(site, &namespace).await?;
                policies.insert(namespace, known.clone());
                known
            };
            inputs.push(AutomationInputs { automation: typed(object)?, policies: known });
        }
        Ok(Self { inputs, left_out, place: format!("namespace {}", site.namespace) })
    }
}

/// The ImagePolicies of a namespace.
///
/// # Errors
/// This user may not list them, or the API server did not respond.
async fn policies_of(site: &CommandScope, namespace: &str) -> anyhow::Result<Vec<ImagePolicy>> {
    let target = all_of(site, POLICY).await?;
    let target = ResourceArgument { namespace: Some(namespace.to_owned()), ..target };
    let mut objects = Vec::new();
    let listed = site.list(&target, "", |page| {
        objects.extend(page);
        Ok(())
    });
    let left_out = listed.await?;
    if let Some(refused) = left_out.first() {
        bail!("what the policies chose is not known: {refused}");
    }
    objects.into_iter().map(typed).collect()
}

/// Selects all objects of a kind.
async fn all_of(site: &CommandScope, kind: &str) -> anyhow::Result<ResourceArgument> {
    let mut targets = kind_argument::targets(&site.cluster, &[kind.to_owned()]).await?;
    targets.pop().with_context(|| format!("the cluster has no kind {kind}"))
}

/// The arguments for a kind and a name. The name may already contain the kind.
fn words(kind: &str, name: &str) -> Vec<String> {
    match name.contains('/') {
        true => vec![name.to_owned()],
        false => vec![kind.to_owned(), name.to_owned()],
    }
}

/// The ImageUpdateAutomations and ImagePolicies that are read from local files.
#[derive(Debug, Default)]
struct ImageObjectsFromFiles {
    automations: Vec<Object>,
    policies: Vec<ImagePolicy>,
}

impl ImageObjectsFromFiles {
    /// Reads the given files. Objects of other kinds are ignored.
    ///
    /// # Errors
    /// A file cannot be read, no file contains a policy, or an object has no namespace.
    fn read(args: &ImagePlanArgs) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for path in &args.policies {
            let shown = path.display().to_string();
            let data = std::fs::read(path).with_context(|| format!("reading {shown}"))?;
            let all = manifest::read(&shown, &data, &goyaml::YamlLimits::default())?;
            for located in all {
                found.add(located, args.place.given_namespace())?;
            }
        }
        let is_given = args.policies.is_empty() || !found.policies.is_empty();
        ensure!(is_given, "none of the files of --policies has an {POLICY}");
        Ok(found)
    }

    /// Adds an object, if it has one of the two kinds. `namespace` applies to objects that name none.
    ///
    /// # Errors
    /// The object has no namespace, or it cannot be read.
    fn add(&mut self, located: LocatedObject, namespace: Option<&str>) -> anyhow::Result<()> {
        let LocatedObject { file, line, mut object } = located;
        let id = object.id();
        if id.group != IMAGE_GROUP || ![AUTOMATION, POLICY].contains(&id.kind.as_str()) {
            return Ok(());
        }
        if id.namespace.is_empty() {
            let missing =
                || format!("{file}:{line}: {} has no namespace: add it, or -n", id.subject());
            object.set_namespace(namespace.with_context(missing)?);
        }
        if id.kind == POLICY {
            self.policies.push(typed(object)?);
        } else {
            self.automations.push(object);
        }
        Ok(())
    }

    /// The automations of the files that the user selected, with their policies.
    ///
    /// # Errors
    /// The automation that the user named does not exist.
    fn automations(&self, args: &ImagePlanArgs) -> anyhow::Result<PlannableAutomations> {
        let name = args.name.as_deref().map(|it| it.rsplit('/').next().unwrap_or(it));
        let namespace = args.place.given_namespace();
        let mut inputs = Vec::new();
        for object in &self.automations {
            let is_named = name.is_none_or(|name| object.name() == name);
            if is_named && namespace.is_none_or(|it| object.namespace() == it) {
                let automation = typed(object.clone())?;
                inputs.push(AutomationInputs { automation, policies: self.policies.clone() });
            }
        }
        if let Some(name) = name.filter(|_| inputs.is_empty()) {
            bail!("no file has {AUTOMATION} {name}");
        }
        Ok(PlannableAutomations { inputs, left_out: Vec::new(), place: "these files".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{Command, FromArgMatches as _};

    use super::*;

    const OBJECTS: &str = r#"apiVersion: v1
kind: List
items:
- apiVersion: image.toolkit.fluxcd.io/v1
  kind: ImagePolicy
  metadata: {name: web, namespace: apps}
  status: {latestRef: {name: r.io/web, tag: "2"}}
- apiVersion: image.toolkit.fluxcd.io/v1
  kind: ImageUpdateAutomation
  metadata: {name: all, namespace: apps}
  spec: {update: {strategy: Setters}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
"#;

    fn parsed(line: &[&str]) -> ImagePlanArgs {
        let command = ImagePlanArgs::augment_args(Command::new("plan").no_binary_name(true));
        ImagePlanArgs::from_arg_matches(&command.get_matches_from(line)).unwrap()
    }

    /// Runs the command on a work tree with a file that contains a marker.
    fn run_on(tag: &str, more: &[&str]) -> anyhow::Result<ExitCode> {
        let top = tempfile::tempdir()?;
        let folder = top.path().display().to_string();
        let objects = format!("{folder}/objects.txt");
        fs::create_dir(top.path().join(".git"))?;
        fs::write(&objects, OBJECTS)?;
        let marker = "# {\"$imagepolicy\": \"apps:web:tag\"}";
        fs::write(top.path().join("a.yaml"), format!("tag: \"{tag}\" {marker}\n"))?;
        let line = [more, &["--path", &folder, "--policies", &objects]].concat();
        run(&ImageArgs { command: ImageCommand::Plan(parsed(&line)) })
    }

    #[test]
    fn the_status_says_whether_something_would_be_committed() -> anyhow::Result<()> {
        assert_eq!(run_on("2", &[])?, ExitCode::Success);
        assert_eq!(run_on("1", &[])?, ExitCode::ProblemsFound);
        assert_eq!(
            run_on("1", &["all", "-n", "apps", "-o", "json", "--diff"])?,
            ExitCode::ProblemsFound
        );
        assert_eq!(run_on("1", &["-n", "other"])?, ExitCode::Failed, "nothing was planned");
        let error = run_on("1", &["none"]).map_err(|error| error.to_string());
        assert_eq!(error, Err("no file has ImageUpdateAutomation none".to_owned()));
        Ok(())
    }

    #[test]
    fn a_plan_that_failed_outweighs_one_with_changes() {
        let failed = ImageUpdatePlan { error: Some("no".to_owned()), ..ImageUpdatePlan::default() };
        assert_eq!(exit_code(&[failed, ImageUpdatePlan::default()], false), ExitCode::Failed);
        assert_eq!(exit_code(&[ImageUpdatePlan::default()], false), ExitCode::Success);
        assert_eq!(exit_code(&[], true), ExitCode::Failed);
    }

    #[test]
    fn an_object_of_a_file_has_a_namespace_or_gets_that_of_the_command() -> anyhow::Result<()> {
        let bare = OBJECTS.replace(", namespace: apps", "");
        let add = |namespace: Option<&str>| {
            let mut found = ImageObjectsFromFiles::default();
            for located in
                manifest::read("a.yaml", bare.as_bytes(), &goyaml::YamlLimits::default())?
            {
                found.add(located, namespace)?;
            }
            anyhow::Ok(found)
        };
        let error = add(None).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "a.yaml:1: ImagePolicy/web has no namespace: add it, or -n");
        let found = add(Some("shop"))?;
        assert_eq!(found.policies[0].metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(found.automations[0].namespace(), "shop");
        Ok(())
    }
}
