//! `windlass plan check` with a real Gitea: one comment on a pull request, and the status of its last commit.
//!
//! The command reads no cluster. Elsewhere: the requests to other forges (`engines/notify/src/tests/pull_request_checks.rs`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::await_until;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::operator_process;
use e2e::servers::gitea::{GiteaRepository, GiteaServer, USER};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// Variables in which a CI describes its job. The tests themselves may run in a CI.
const CI_VARIABLES: [&str; 4] = ["GITHUB_ACTIONS", "GITEA_ACTIONS", "FORGEJO_ACTIONS", "GITLAB_CI"];

/// A pull request on Gitea, and a folder for clones and plans.
struct PlannedPullRequest {
    gitea: GiteaServer,
    hosted: GiteaRepository,
    number: String,
    token: String,
    folder: TempDir,
}

fn succeeded(output: &Output, what: &str) -> Result<()> {
    ensure!(output.status.success(), "{what}: {output:?}");
    Ok(())
}

impl PlannedPullRequest {
    /// Opens the pull request. Also returns its first commit.
    async fn open() -> Result<(Self, String)> {
        let gitea = GiteaServer::start().await?;
        let hosted = gitea.repository("fleet").await?;
        hosted
            .push(&[("one.yaml", config_map("one", "1")), ("two.yaml", config_map("two", "1"))])?;
        hosted.local.branch("change")?;
        let first = hosted.push(&[("one.yaml", config_map("one", "2"))])?;
        let number = gitea.open_pull_request(&hosted, "change").await?;
        let token = gitea.token("check").await?;
        let folder = tempfile::tempdir()?;
        Ok((Self { gitea, hosted, number, token, folder }, first))
    }

    /// A command without the environment variables of proxies and CIs.
    fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in CI_VARIABLES {
            command.env_remove(name);
        }
        command.envs(["NO_PROXY", "no_proxy"].map(|name| (name, "127.0.0.1"))).kill_on_drop(true);
        command
    }

    /// Runs the job without a token for a commit, after Gitea knows that it is the last one. Returns the file with the plan.
    async fn plan(&self, commit: &str) -> Result<PathBuf> {
        let path = format!("{}/pulls/{}", self.hosted.path, self.number);
        let what = format!("the pull request to have {commit}");
        await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let head = self.gitea.get(&path).await?["head"]["sha"].clone();
            Ok((head == commit).then_some(()))
        })
        .await?;
        let clone = self.folder.path().join(commit);
        let url = format!("{}.git", self.hosted.url);
        let mut git = Self::command("git");
        git.args(["clone", "-q", "--no-checkout", &url]).arg(&clone);
        succeeded(&git.output().await.context("cannot start git")?, "git clone")?;
        let mut windlass = Self::command(operator_process::binary()?);
        windlass.args(["plan", "--base", "origin/main", "--head", commit, "-o", "json"]);
        let output = windlass.current_dir(&clone).output().await?;
        succeeded(&output, "windlass plan")?;
        let path = self.folder.path().join(format!("{commit}.json"));
        std::fs::write(&path, &output.stdout)?;
        Ok(path)
    }

    /// Runs the job with the token, which posts the plan. Returns its standard error.
    async fn check(&self, plan: &Path, commit: &str, more: &[&str]) -> Result<String> {
        let mut windlass = Self::command(operator_process::binary()?);
        windlass.args(["plan", "check"]).arg(plan).args(["--forge", "gitea", "--commit", commit]);
        windlass.args(["--url", &self.gitea.url(), "--pull-request", &self.number]);
        windlass.args(["--repository", &format!("{USER}/fleet")]).args(more);
        let output = windlass.env("GITEA_TOKEN", &self.token).output().await?;
        succeeded(&output, "windlass plan check")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn comments_path(&self) -> String {
        format!("{}/issues/{}/comments", self.hosted.path, self.number)
    }

    /// The comments that begin with a marker, the oldest first.
    async fn comments(&self, marker: &str) -> Result<Vec<Value>> {
        let comments = self.gitea.get(&self.comments_path()).await?;
        let comments = comments.as_array().context("the comments are no list")?;
        let has_marker = |it: &&Value| it["body"].as_str().is_some_and(|it| it.starts_with(marker));
        Ok(comments.iter().filter(has_marker).cloned().collect())
    }

    /// The newest status of a commit with a name.
    async fn status(&self, commit: &str, name: &str) -> Result<Value> {
        let path = format!("{}/commits/{commit}/statuses", self.hosted.path);
        let statuses = self.gitea.get(&path).await?;
        let mut statuses = statuses.as_array().context("the statuses are no list")?.iter();
        let found = statuses.find(|it| it["context"] == name);
        found.cloned().with_context(|| format!("{commit} has no status {name}"))
    }
}

const MARKER: &str = "<!-- windlass plan -->";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_pull_request_at_gitea_has_one_comment_of_its_plan_and_a_status() -> Result<()> {
    let (pull, first) = PlannedPullRequest::open().await?;
    // Another user writes a comment that looks like the one of a plan.
    let mallory = json!({"username": "mallory", "email": "mallory@testbed.example",
        "password": "mallory-passw0rd", "must_change_password": false});
    pull.gitea.ask(Method::POST, "admin/users", mallory).await?;
    let foreign = json!({"body": format!("{MARKER}\nnothing changes")});
    let path = format!("{}?sudo=mallory", pull.comments_path());
    pull.gitea.ask(Method::POST, &path, foreign).await?;

    let plan = pull.plan(&first).await?;
    let said = pull.check(&plan, &first, &[]).await?;
    ensure!(said.contains("comment created"), "{said}");
    let said = pull.check(&plan, &first, &[]).await?;
    ensure!(said.contains("comment unchanged"), "{said}");
    let comments = pull.comments(MARKER).await?;
    let [of_mallory, own] = &comments[..] else { anyhow::bail!("{comments:?}") };
    let body = own["body"].as_str().unwrap_or_default();
    ensure!(own["user"]["login"] == USER && body.contains("### Plan: 1 changed"), "{own}");
    ensure!(body.contains("ConfigMap/") && body.contains("/data/value"), "{own}");
    let status = pull.status(&first, "windlass/plan").await?;
    ensure!(status["status"] == "success", "{status}");
    ensure!(
        status["description"].as_str().is_some_and(|it| it.starts_with("1 changed")),
        "{status}"
    );

    // The next commit deletes an object.
    pull.hosted.local.delete(&["two.yaml"], "delete two")?;
    let second = pull.hosted.push(&[("three.yaml", config_map("three", "1"))])?;
    let next = pull.plan(&second).await?;
    let said = pull.check(&next, &second, &["--fail-on", "destructive"]).await?;
    ensure!(said.contains("comment updated"), "{said}");
    let status = pull.status(&second, "windlass/plan").await?;
    ensure!(status["status"] == "failure", "{status}");
    // A job for the previous commit is late.
    let said = pull.check(&plan, &first, &[]).await?;
    ensure!(said.contains("another commit"), "{said}");
    let comments = pull.comments(MARKER).await?;
    let [still_of_mallory, edited] = &comments[..] else { anyhow::bail!("{comments:?}") };
    ensure!(
        edited["id"] == own["id"] && of_mallory["body"] == still_of_mallory["body"],
        "{edited}"
    );
    ensure!(edited["body"].as_str().is_some_and(|it| it.contains("1 added")), "{edited}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn checks_that_run_at_the_same_time_at_gitea_leave_one_comment_for_each_name() -> Result<()> {
    let (pull, commit) = PlannedPullRequest::open().await?;
    let plan = pull.plan(&commit).await?;
    let check = async |name: &str| pull.check(&plan, &commit, &["--name", name]).await;
    tokio::try_join!(check("prod"), check("prod"), check("prod"), check("staging"))?;
    for name in ["prod", "staging"] {
        let comments = pull.comments(&format!("<!-- windlass plan: {name} -->\n")).await?;
        ensure!(comments.len() == 1, "{comments:?}");
        let status = pull.status(&commit, &format!("windlass/plan/{name}")).await?;
        ensure!(status["status"] == "success", "{status}");
    }
    Ok(())
}
