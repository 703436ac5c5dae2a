//! Writes to the repository with the user's own `git`, which uses the user's settings, credential helpers and SSH agent.
//!
//! Differs(flux): Flux has its own Git client, which knows none of these.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use url::Url;

use super::credentials::RepositoryCredentials;

/// The author of a commit.
#[derive(Clone, Copy)]
pub(super) struct CommitAuthor<'a> {
    pub(super) name: &'a str,
    /// The e-mail address.
    pub(super) address: &'a str,
}

/// The maximum number of characters of git's error output that are shown.
const MAX_SHOWN_STDERR_CHARACTERS: usize = 2000;

/// A work tree of the repository. It is deleted when this is dropped.
pub(super) struct BootstrapRepository<'c> {
    folder: TempDir,
    branch: String,
    access: &'c RepositoryCredentials,
    limit: Duration,
}

impl<'c> BootstrapRepository<'c> {
    /// Clones a branch. If the repository has no branches, the first push creates the branch.
    ///
    /// # Errors
    /// The repository cannot be read, or it has only other branches.
    pub(super) async fn clone(
        url: &Url,
        branch: &str,
        access: &'c RepositoryCredentials,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-bootstrap-").tempdir()?;
        let repository = Self { folder, branch: branch.to_owned(), access, limit };
        let of_branch = format!("refs/heads/{branch}");
        repository
            .git(&["check-ref-format", &of_branch])
            .await
            .with_context(|| format!("`{branch}` is not a name that a branch can have"))?;
        let heads = repository.git(&["ls-remote", "--heads", "--", url.as_str()]).await?;
        let names: Vec<&str> =
            heads.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        repository.git(&["init", "-q", "-b", branch]).await?;
        repository.git(&["remote", "add", "origin", "--", url.as_str()]).await?;
        if names.contains(&of_branch.as_str()) {
            repository.git(&["fetch", "-q", "--depth=1", "origin", &of_branch]).await?;
            repository.git(&["reset", "-q", "--hard", "FETCH_HEAD"]).await?;
        } else {
            let others: Vec<&str> =
                names.iter().filter_map(|it| it.strip_prefix("refs/heads/")).take(5).collect();
            ensure!(
                others.is_empty(),
                "{url} has no branch `{branch}`, but has {}: push it, or pass --branch",
                others.join(", ")
            );
        }
        Ok(repository)
    }

    /// The folder of the work tree.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Commits some files and pushes the branch.
    ///
    /// # Errors
    /// The server refuses the push. In that case, it has changed nothing.
    pub(super) async fn commit_and_push(
        &self,
        paths: &[String],
        CommitAuthor { name, address }: CommitAuthor<'_>,
        message: &str,
    ) -> anyhow::Result<()> {
        let mut add = vec!["add", "-f", "--"];
        add.extend(paths.iter().map(String::as_str));
        self.git(&add).await?;
        let name = format!("user.name={name}");
        let address = format!("user.email={address}");
        self.git(&["-c", &name, "-c", &address, "commit", "-q", "-m", message]).await?;
        let to = format!("HEAD:refs/heads/{}", self.branch);
        self.git(&["push", "-q", "origin", &to]).await.context(
            "the push was rejected and nothing was installed; if the branch is protected or was changed meanwhile, \
             permit the push or run the command again",
        )?;
        Ok(())
    }

    /// The hash of the current commit.
    ///
    /// # Errors
    /// There is no commit yet.
    pub(super) async fn head(&self) -> anyhow::Result<String> {
        Ok(self.git(&["rev-parse", "HEAD"]).await?.trim().to_owned())
    }

    async fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(self.folder())
            .envs(self.access.environment())
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        let what = arguments.iter().find(|it| !it.starts_with('-') && !it.contains('='));
        let what = what.copied().unwrap_or_default();
        let Output { status, stdout, stderr } = tokio::time::timeout(self.limit, command.output())
            .await
            .with_context(|| format!("`git {what}` timed out after {:?}", self.limit))?
            .context("`git` cannot be started: install it first")?;
        if !status.success() {
            let said: String = String::from_utf8_lossy(&stderr)
                .trim()
                .chars()
                .take(MAX_SHOWN_STDERR_CHARACTERS)
                .collect();
            bail!("`git {what}` failed: {said}");
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}
