//! Copies the last commits of a clone with changed manifests into a repository that the test bed serves.
//!
//! `manifest_rewriting` changes the manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use e2e::git_server::StoryGitRepository;

use super::manifest_rewriting::ManifestRewriting;

/// The branch with all copied commits. The cluster follows another branch, which moves along these commits.
const HISTORY_BRANCH: &str = "replayed";

/// The branch that the cluster follows.
const SERVED_BRANCH: &str = "refs/heads/main";

/// The largest file that is changed. Larger files are not manifests.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// A commit that was copied from the original repository.
#[derive(Debug)]
pub(super) struct ReplayedCommit {
    /// The short hash and the first line of the message of the original commit.
    pub(super) original: String,
    /// The hash of the copied commit.
    pub(super) sha: String,
}

/// The copied commits, the oldest first.
#[derive(Debug)]
pub(super) struct ReplayedHistory {
    /// A commit without files, before the first one.
    pub(super) empty: String,
    /// The copied commits.
    pub(super) commits: Vec<ReplayedCommit>,
}

impl ReplayedHistory {
    /// Copies the last commits of a clone. There is one commit more than steps, because a step leads from one commit
    /// to the next.
    ///
    /// # Errors
    /// The clone has fewer commits, or Git fails.
    pub(super) fn make(
        clone: &Path,
        steps: usize,
        repository: &StoryGitRepository,
        rewriting: &mut ManifestRewriting,
    ) -> anyhow::Result<Self> {
        let format = ["log", "--first-parent", "--reverse", "--format=%H %h %s"];
        let count = format!("--max-count={}", steps + 1);
        let log = git_in(clone, &[&format[..], &[count.as_str(), "HEAD"]].concat())?;
        let lines: Vec<&str> = log.lines().collect();
        ensure!(lines.len() > 1, "{} has no two commits", clone.display());
        share_objects(clone, repository)?;
        repository.branch(HISTORY_BRANCH)?;
        let empty = repository.commit(&[], "nothing")?;
        let work_tree = PathBuf::from(repository.git(&["rev-parse", "--show-toplevel"])?);
        let mut commits = Vec::new();
        for line in lines {
            let (hash, original) =
                line.split_once(' ').context("Git lists a commit in another form")?;
            repository.git(&["read-tree", "--reset", "-u", hash])?;
            let files = rewritten_files(&work_tree, repository, rewriting)?;
            let files: Vec<(&str, &str)> = files.iter().map(|it| (&*it.path, &*it.text)).collect();
            let sha = repository.commit(&files, original)?;
            commits.push(ReplayedCommit { original: original.to_owned(), sha });
        }
        Ok(Self { empty, commits })
    }
}

/// Makes the served branch name a commit. The cluster gets it with its next fetch.
///
/// # Errors
/// Git fails.
pub(super) fn serve(repository: &StoryGitRepository, sha: &str) -> anyhow::Result<()> {
    repository.git(&["update-ref", SERVED_BRANCH, sha]).map(drop)
}

/// Makes a clone of the repository for `windlass plan`. Its remote is the URL from which the cluster fetches.
///
/// # Errors
/// Git fails.
pub(super) fn clone_for_plans(
    repository: &StoryGitRepository,
    served_url: &str,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let place = folder.join("clone");
    let from = repository.path().display().to_string();
    let to = place.display().to_string();
    git_in(folder, &["clone", "-q", "--no-checkout", "--branch", HISTORY_BRANCH, &from, &to])?;
    git_in(&place, &["remote", "set-url", "origin", served_url])?;
    Ok(place)
}

/// The URL from which a clone was made. `None` if the clone has no such remote.
pub(super) fn remote_url(clone: &Path) -> Option<String> {
    git_in(clone, &["config", "--get", "remote.origin.url"]).ok().filter(|it| !it.is_empty())
}

/// Runs Git in a folder, and returns its output.
///
/// # Errors
/// Git's message on stderr.
pub(super) fn git_in(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.context("cannot start `git`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`git {}` failed: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Lets the repository use the Git objects of a clone without copying them.
fn share_objects(clone: &Path, repository: &StoryGitRepository) -> anyhow::Result<()> {
    let path = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
    let objects = git_in(clone, &path)?;
    let file = repository.path().join("objects/info/alternates");
    fs::write(&file, format!("{objects}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A file of a commit whose text was changed for the test bed.
struct RewrittenFile {
    path: String,
    text: String,
}

/// The changed files of the work tree.
fn rewritten_files(
    work_tree: &Path,
    repository: &StoryGitRepository,
    rewriting: &mut ManifestRewriting,
) -> anyhow::Result<Vec<RewrittenFile>> {
    let listed = repository.git(&["ls-files", "-z"])?;
    let is_yaml = |path: &&str| path.ends_with(".yaml") || path.ends_with(".yml");
    let mut found = Vec::new();
    for path in listed.split('\0').filter(is_yaml) {
        let place = work_tree.join(path);
        let known = fs::symlink_metadata(&place);
        if !known.is_ok_and(|it| it.is_file() && it.len() <= MAX_MANIFEST_BYTES) {
            continue;
        }
        let text = fs::read(&place).with_context(|| format!("cannot read {path}"))?;
        if let Some(text) = rewriting.file(&text).with_context(|| path.to_owned())? {
            found.push(RewrittenFile { path: path.to_owned(), text });
        }
    }
    Ok(found)
}
