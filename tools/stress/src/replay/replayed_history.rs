//! The last commits of a clone, made anew with changed manifests in a repository that the test bed serves.
//!
//! Elsewhere: what is changed in them (`manifest_rewriting`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use e2e::git_server::StoryGitRepository;

use super::manifest_rewriting::ManifestRewriting;

/// The branch of all commits that were made anew. What the cluster follows is another one, which moves along them.
const HISTORY_BRANCH: &str = "replayed";

/// The branch that the cluster follows.
const SERVED_BRANCH: &str = "refs/heads/main";

/// The largest file that is changed: larger ones are no manifests.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// A commit that was made anew.
#[derive(Debug)]
pub(super) struct ReplayedCommit {
    /// How the commit of the clone is shown: its short hash and the first line of its message.
    pub(super) original: String,
    /// The hash of the new one.
    pub(super) sha: String,
}

/// The commits, the oldest first.
#[derive(Debug)]
pub(super) struct ReplayedHistory {
    /// A commit without files, before the first one.
    pub(super) empty: String,
    /// Those that were made anew.
    pub(super) commits: Vec<ReplayedCommit>,
}

impl ReplayedHistory {
    /// Makes the last commits of a clone anew, with one more than there are steps between them.
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

/// Has the cluster follow a commit from its next fetch on.
///
/// # Errors
/// Git fails.
pub(super) fn serve(repository: &StoryGitRepository, sha: &str) -> anyhow::Result<()> {
    repository.git(&["update-ref", SERVED_BRANCH, sha]).map(drop)
}

/// A clone of the repository for `windlass plan`, whose remote is where the cluster fetches.
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

/// The URL from which a clone was made; none if it does not have one.
pub(super) fn remote_url(clone: &Path) -> Option<String> {
    git_in(clone, &["config", "--get", "remote.origin.url"]).ok().filter(|it| !it.is_empty())
}

/// Runs Git in a folder, and gives what it prints.
///
/// # Errors
/// What it says on standard error.
pub(super) fn git_in(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.context("cannot start `git`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`git {}` failed: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Lets the repository read the objects of a clone where they are.
fn share_objects(clone: &Path, repository: &StoryGitRepository) -> anyhow::Result<()> {
    let path = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
    let objects = git_in(clone, &path)?;
    let file = repository.path().join("objects/info/alternates");
    fs::write(&file, format!("{objects}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A file that is changed.
struct RewrittenFile {
    path: String,
    text: String,
}

/// The files of the work tree that are changed.
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
