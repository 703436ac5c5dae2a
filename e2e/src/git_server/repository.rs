//! Makes commits in a repository of the Git server.
//!
//! Here: commits, deletions, branches and tags, made with the standard `git`. Elsewhere: serving them (`super::http`,
//! `super::ssh`).

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A repository that a story writes directly and that other programs read over the network.
///
/// The author and the times are fixed, so the same commits have the same hashes in every run.
pub struct StoryGitRepository {
    name: String,
    bare: PathBuf,
    work: PathBuf,
    commits: Cell<u32>,
}

impl StoryGitRepository {
    pub(crate) fn create(root: &Path, work: &Path, name: &str) -> Result<Self> {
        let bare = root.join(format!("{name}.git"));
        let work = work.join(name);
        ensure!(!bare.exists(), "there is a repository `{name}` already");
        std::fs::create_dir_all(&work)?;
        std::fs::create_dir_all(&bare)?;
        let repository = Self { name: name.to_owned(), bare, work, commits: Cell::new(0) };
        // `self.git` names a work tree, which Git does not allow together with `--bare`.
        let mut init = isolate("git");
        init.args(["init", "-q", "--bare", "--initial-branch=main"]).arg(&repository.bare);
        ensure!(init.status().context("cannot start `git`")?.success(), "`git init` failed");
        // Hosting services have these settings: they allow pushes, shallow and partial fetches, and fetches by hash.
        for setting in
            ["http.receivepack", "uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"]
        {
            repository.git(&["config", setting, "true"])?;
        }
        Ok(repository)
    }

    /// The name of the repository, without `.git`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of the bare repository.
    pub fn path(&self) -> &Path {
        &self.bare
    }

    /// Writes files, each with its path and content, and commits them to the current branch. Returns the hash of the commit. An
    /// empty list makes an empty commit.
    pub fn commit(&self, files: &[(&str, &str)], message: &str) -> Result<String> {
        for (path, content) in files {
            let file = self.work.join(path);
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&file, content).with_context(|| format!("cannot write {path}"))?;
        }
        self.record(message)
    }

    /// Deletes files or folders, and commits the deletion.
    pub fn delete(&self, paths: &[&str], message: &str) -> Result<String> {
        for path in paths {
            self.git(&["rm", "-q", "-r", "--", path])?;
        }
        self.record(message)
    }

    /// Creates a branch at the current commit, and switches to it.
    pub fn branch(&self, name: &str) -> Result<()> {
        self.git(&["checkout", "-q", "-b", name]).map(drop)
    }

    /// Switches to another branch. The `HEAD` of the remote names this branch, too.
    pub fn switch(&self, name: &str) -> Result<()> {
        self.git(&["checkout", "-q", name]).map(drop)
    }

    /// Creates an annotated tag for the current commit, or moves the tag to it.
    pub fn tag(&self, name: &str) -> Result<()> {
        self.git(&["tag", "-f", "-a", "-m", name, name]).map(drop)
    }

    /// The hash of a branch, of the commit of a tag, or of `HEAD`.
    pub fn hash(&self, revision: &str) -> Result<String> {
        self.git(&["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
    }

    /// Runs a `git` command on the repository. Returns its output without surrounding white space.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        let time = format!("{} +0000", 1_767_225_600 + self.commits.get());
        let output = isolate("git")
            .args(arguments)
            .current_dir(&self.work)
            .env("GIT_DIR", &self.bare)
            .env("GIT_WORK_TREE", &self.work)
            .env("GIT_AUTHOR_DATE", &time)
            .env("GIT_COMMITTER_DATE", &time)
            .output()
            .context("cannot start `git`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`git {}` failed: {said}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn record(&self, message: &str) -> Result<String> {
        self.commits.set(self.commits.get() + 1);
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "--allow-empty", "-m", message])?;
        self.hash("HEAD")
    }
}

/// A command that ignores the Git settings of the developer who runs the tests.
pub(super) fn isolate(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Story")
        .env("GIT_AUTHOR_EMAIL", "story@testbed.example")
        .env("GIT_COMMITTER_NAME", "Story")
        .env("GIT_COMMITTER_EMAIL", "story@testbed.example");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path) -> StoryGitRepository {
        StoryGitRepository::create(&folder.join("served"), &folder.join("work"), "team/app")
            .expect("a repository")
    }

    #[test]
    fn the_same_commits_have_the_same_hashes() {
        let one = tempfile::tempdir().expect("one");
        let two = tempfile::tempdir().expect("two");
        let commit = |folder: &Path| repository(folder).commit(&[("a/b", "c")], "first");
        assert_eq!(commit(one.path()).expect("a commit"), commit(two.path()).expect("a commit"));
    }

    #[test]
    fn branches_and_tags_stay_where_they_are_while_commits_go_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = repository(folder.path());
        let first = repository.commit(&[("a", "1"), ("b", "1")], "first").expect("a commit");
        repository.tag("v1").expect("a tag");
        repository.branch("next").expect("a branch");
        let second = repository.delete(&["a"], "second").expect("a commit");
        assert_ne!(first, second);
        assert_eq!(repository.hash("main").expect("main"), first);
        assert_eq!(repository.hash("v1").expect("v1"), first);
        assert_eq!(repository.hash("next").expect("next"), second);
        assert_eq!(repository.git(&["ls-tree", "--name-only", "next"]).expect("a list"), "b");
        repository.switch("main").expect("back");
        assert_eq!(repository.git(&["ls-files"]).expect("a list"), "a\nb");
    }
}
