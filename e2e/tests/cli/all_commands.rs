//! Runs every command that reads a cluster in an empty namespace, and as users without the right to read.
//!
//! Here: running a table of commands, and checking that no command is missing. Below: the tables
//! (`all_commands/expected_outputs.rs`). Elsewhere: the same commands while no operator is active
//! (`leader::without_operator`), the texts of each command (its own tests).

mod expected_outputs;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use e2e::operator_process;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// A command line, and its expected exit status and output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLineCase {
    /// The arguments without the program. `--namespace` is added unless the command is for all namespaces. `{dir}` stands for a
    /// folder with a helmfile, and `{ns}` for the namespace, here and in the texts.
    pub(crate) arguments: &'static str,
    pub(crate) code: i32,
    /// Texts that the command has to print, on either stream.
    pub(crate) says: &'static [&'static str],
    /// Texts that the command must not print.
    pub(crate) never: &'static [&'static str],
}

/// Makes a row of a table.
pub(crate) const fn row(
    arguments: &'static str,
    code: i32,
    says: &'static [&'static str],
    never: &'static [&'static str],
) -> CommandLineCase {
    CommandLineCase { arguments, code, says, never }
}

/// The number of commands that run at once.
const AT_ONCE: usize = 6;

/// How long a command may take that does not wait for an operator.
const LIMIT: Duration = Duration::from_secs(90);

/// Commands that need no cluster. They print their input, or they are the operator. `helmfile diff`, `plan facts` and `plan
/// --live` do need a cluster.
pub(crate) const ASKS_NO_CLUSTER: [&str; 9] = [
    "bundle",
    "completion",
    "helmfile",
    "man",
    "migrate from-helmfile",
    "plan",
    "serve",
    "template",
    "version",
];

/// Runs command lines with the kubeconfig of a user.
pub(crate) struct CommandLineRunner<'s> {
    story: &'s Story,
    kubeconfig: PathBuf,
    folder: TempDir,
}

impl<'s> CommandLineRunner<'s> {
    pub(crate) fn of(story: &'s Story, kubeconfig: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let helmfile =
            format!("releases: [{{name: web, namespace: {}, chart: ./chart}}]\n", story.namespace);
        std::fs::create_dir_all(folder.path().join("chart/templates"))?;
        for (path, text) in [
            ("helmfile.yaml", helmfile.as_str()),
            ("chart/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            ("chart/templates/a.yaml", &config_map("web", "1")),
        ] {
            std::fs::write(folder.path().join(path), text)?;
        }
        fleet(folder.path(), &story.namespace)?;
        Ok(Self { story, kubeconfig: kubeconfig.to_owned(), folder })
    }

    /// Runs all rows and compares the results. No row may print one of the texts in `never`.
    pub(crate) async fn check(&self, rows: &[CommandLineCase], never: &[&str]) -> Result<()> {
        let wrong = stream::iter(rows).map(|row| self.wrong(row, never)).buffered(AT_ONCE);
        let wrong: Vec<Option<String>> = wrong.try_collect().await?;
        let wrong: Vec<String> = wrong.into_iter().flatten().collect();
        ensure!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
        Ok(())
    }

    /// Runs a row, and describes how its result differs from the expected one.
    async fn wrong(&self, row: &CommandLineCase, never: &[&str]) -> Result<Option<String>> {
        let filled = |text: &str| {
            let folder = self.folder.path().display().to_string();
            text.replace("{ns}", &self.story.namespace).replace("{dir}", &folder)
        };
        let everywhere = row.arguments.split(' ').any(|it| it == "-A");
        let mut command = Command::new(operator_process::binary()?);
        command
            .args(filled(row.arguments).split_whitespace())
            .args((!everywhere).then(|| format!("--namespace={}", self.story.namespace)))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("FLUX_SYSTEM_NAMESPACE", &self.story.namespace)
            .envs(["GITHUB_TOKEN", "GITLAB_TOKEN", "GITEA_TOKEN"].map(|name| (name, "none")))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(LIMIT, command.output()).await;
        let output = ended.with_context(|| format!("{} does not end", row.arguments))??;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lacks = row.says.iter().map(|it| filled(it)).filter(|it| !text.contains(it));
        let lacks: Vec<String> = lacks.collect();
        let has = row.never.iter().chain(never).map(|it| filled(it)).filter(|it| text.contains(it));
        let has: Vec<String> = has.collect();
        let is_right = output.status.code() == Some(row.code) && lacks.is_empty() && has.is_empty();
        Ok((!is_right).then(|| {
            let code = output.status.code().unwrap_or_default();
            let CommandLineCase { arguments, code: wanted, .. } = row;
            format!("windlass {arguments}: {code} instead of {wanted}, without {lacks:?}, with {has:?}:\n{text}")
        }))
    }
}

/// A repository with a Kustomization that applies itself, and a ConfigMap.
fn fleet(folder: &Path, namespace: &str) -> Result<()> {
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "flux-system", "namespace": namespace},
        "spec": {"interval": "1h", "prune": true, "path": "./cluster",
            "sourceRef": {"kind": "GitRepository", "name": "flux-system"}},
    });
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleet", "namespace": namespace}});
    let cluster = folder.join("fleet/cluster");
    std::fs::create_dir_all(&cluster)?;
    std::fs::write(cluster.join("sync.yaml"), kustomization.to_string())?;
    std::fs::write(cluster.join("map.yaml"), map.to_string())?;
    let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let commit = [&user[..], &["commit", "-q", "-m", "first"][..]].concat();
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "-A"][..], commit.as_slice()] {
        let mut git = std::process::Command::new("git");
        let output = git.args(arguments).current_dir(folder.join("fleet")).output()?;
        ensure!(output.status.success(), "git {arguments:?}: {output:?}");
    }
    Ok(())
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

async fn help(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(operator_process::binary()?).args(arguments).arg("--help").output().await?;
    ensure!(output.status.success(), "{arguments:?} --help: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// All commands of the program, such as `get` and `alerts test`.
async fn commands() -> Result<Vec<String>> {
    let names = listed(&help(&[]).await?);
    ensure!(names.len() > 30, "the help lists {names:?} only");
    let below = stream::iter(&names).map(async |name| help(&[name.as_str()]).await);
    let below: Vec<String> = below.buffered(AT_ONCE).try_collect().await?;
    let mut all = Vec::new();
    for (name, text) in names.iter().zip(&below) {
        match listed(text) {
            own if own.is_empty() => all.push(name.clone()),
            own => all.extend(own.iter().map(|below| format!("{name} {below}"))),
        }
    }
    Ok(all)
}

/// Checks that each command has a row, or is one of the commands that need none.
///
/// # Errors
/// A command has no row, or a command that needs none does not exist.
pub(crate) async fn ensure_all_have_rows(rows: &[CommandLineCase], others: &[&str]) -> Result<()> {
    let all = commands().await?;
    let is_of = |line: &str, command: &str| {
        line.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let is_covered = |command: &&String| {
        rows.iter().any(|row| is_of(row.arguments, command))
            || others.iter().any(|other| is_of(command, other))
    };
    let missing: Vec<&String> = all.iter().filter(|command| !is_covered(command)).collect();
    let unknown = others.iter().filter(|other| !all.iter().any(|command| is_of(command, other)));
    let unknown: Vec<_> = unknown.collect();
    match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => Ok(()),
        ([], unknown) => bail!("{unknown:?} are no commands"),
        (missing, _) => bail!("no row says what these do: {missing:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_takes_an_empty_namespace_for_one_where_all_is_well() -> Result<()> {
    let story = Story::with_windlass("sweep-nothing").await?;
    ensure_all_have_rows(expected_outputs::NOTHING_THERE, &ASKS_NO_CLUSTER).await?;
    CommandLineRunner::of(&story, story.kubeconfig())?
        .check(expected_outputs::NOTHING_THERE, &[])
        .await?;
    story.end().await
}

/// The CRD of another operator's kind without objects.
fn definition(group: &str, version: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}],
        },
    })
}

/// The kubeconfig of a ServiceAccount with some rights in the namespace.
pub(crate) async fn account(story: &Story, name: &str, rules: Value) -> Result<PathBuf> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let version = format!("{RBAC}/v1");
    let metadata = json!({"name": name});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": story.namespace}],
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}}),
    ] {
        story.apply_value(object).await?;
    }
    story.bed.account_kubeconfig(&story.namespace, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_takes_what_it_may_not_read_for_absent() -> Result<()> {
    let story = Story::with_windlass("sweep-forbidden").await?;
    let foreign =
        [("argoproj.io", "v1alpha1", "Application"), ("helm.fluxcd.io", "v1", "HelmRelease")];
    let mut definitions = Vec::new();
    for (group, version, kind) in foreign {
        let object = story.apply_value(definition(group, version, kind)).await?;
        let name = object.metadata.name.context("a name")?;
        let target = StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name);
        story.await_condition(&target, "Established", "True", LIMIT).await?;
        definitions.push(target);
    }
    let without_rights = account(&story, "without-rights", json!([])).await?;
    // `ui` exits with success even if its pages show errors (`cli::windlass_ui`).
    let others = [&ASKS_NO_CLUSTER[..], &["ui"]].concat();
    ensure_all_have_rows(expected_outputs::MAY_NOT_LOOK, &others).await?;
    ensure!(expected_outputs::MAY_NOT_LOOK.iter().all(|row| row.code != 0), "a row succeeds");
    CommandLineRunner::of(&story, &without_rights)?
        .check(expected_outputs::MAY_NOT_LOOK, expected_outputs::ABSENT)
        .await?;
    for definition in &definitions {
        story.delete(definition).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_answer_names_what_it_leaves_out() -> Result<()> {
    let story = Story::with_windlass("sweep-partial").await?;
    let files =
        [("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", PodBehavior::Ready))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let rules = json!([{"apiGroups": ["kustomize.toolkit.fluxcd.io"],
        "resources": ["kustomizations"], "verbs": ["get", "list", "watch"]}]);
    let clerk = account(&story, "clerk", rules).await?;
    CommandLineRunner::of(&story, &clerk)?
        .check(expected_outputs::MAY_LOOK_AT_KUSTOMIZATIONS, expected_outputs::ABSENT)
        .await?;
    story.end().await
}
