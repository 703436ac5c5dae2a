//! The Git repository of a recorded case, behind a Git server on loopback.
//!
//! This module makes the commits of a case, and describes new commits and references. `e2e::git_server` is the
//! server, and `signing_keys` checks signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use serde::Deserialize;
use serde_json::{Value, json};

use super::signing_keys::signature_kind;
use crate::replay::case::nil;

/// The time of all commits of a case. It is fixed, so that the same commit always has the same hash.
const COMMIT_SECONDS: usize = 1_767_225_600;

/// The mode of a file for which a case gives only the content.
const PLAIN_MODE: &str = "100644";

/// A hook that moves a branch during a push, once, as the file `race` says. Git lets no hook update a reference
/// during a push, which it knows by three variables, so the hook unsets them. Then it notes the push options, unless
/// the move makes Git reject the push.
const RECORDING_HOOK: &str = r#"#!/bin/sh
raced=
if [ -f race ]; then
  read -r raced hash < race
  rm race
  (
    unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
    git update-ref "$raced" "$hash"
  )
fi
while read -r old new name; do
  if [ "$name" = "$raced" ]; then exit 0; fi
done
at=0
while [ "$at" -lt "${GIT_PUSH_OPTION_COUNT:-0}" ]; do
  eval "printf '%s\n' \"\$GIT_PUSH_OPTION_$at\"" >> push-options
  at=$((at + 1))
done
"#;

/// A hook that rejects every push.
const REFUSING_HOOK: &str = "#!/bin/sh\nexit 1\n";

/// The content of the Git server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GitInputs {
    #[serde(deserialize_with = "nil")]
    pub(super) commits: Vec<CommitInputs>,
    /// Tags, each with the branch of its commit.
    #[serde(deserialize_with = "nil")]
    tags: BTreeMap<String, String>,
    /// The credentials as `user:password`.
    basic: Option<String>,
    /// Whether the server rejects every push.
    reject: bool,
    /// A commit that another writer makes when the first push begins.
    pub(super) race: Option<CommitInputs>,
}

/// A commit of the case, or the deletion of a branch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CommitInputs {
    pub(super) branch: String,
    /// The branch from which a new branch begins.
    from: Option<String>,
    message: String,
    #[serde(deserialize_with = "nil")]
    files: BTreeMap<String, Value>,
    #[serde(deserialize_with = "nil")]
    remove: Vec<String>,
    /// How the branch begins anew, if it does.
    reset: Option<BranchReset>,
    drop: bool,
}

/// How a branch begins anew.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum BranchReset {
    /// At the branch `from`, or without a parent.
    Anew(bool),
    /// At this branch.
    At(String),
}

/// The references, with the hashes of their commits.
pub(super) type References = BTreeMap<String, String>;

/// A repository with its server. Both end when it is dropped.
pub(super) struct CaseGitRepository {
    server: GitServer,
    repository: StoryGitRepository,
    /// The commits in the order of their labels.
    labels: Vec<String>,
    /// The commit of the other writer, until the first push begins.
    race: Option<CommitInputs>,
    /// The hash of that commit.
    raced: Option<String>,
}

impl CaseGitRepository {
    /// # Errors
    /// There is no server, or Git refuses a commit.
    pub(super) fn start(inputs: &GitInputs) -> anyhow::Result<Self> {
        let access = match inputs.basic.as_deref().and_then(|it| it.split_once(':')) {
            Some((user, password)) => {
                GitReadAccess::Basic { user: user.to_owned(), password: password.to_owned() }
            }
            None => GitReadAccess::Open,
        };
        let server = GitServer::start(access)?;
        let repository = server.repository("repo")?;
        repository.git(&["config", "receive.advertisePushOptions", "true"])?;
        repository.git(&["config", "receive.denyDeleteCurrent", "ignore"])?;
        let hooks = repository.path().join("hooks");
        fs::create_dir_all(&hooks)?;
        let hook = hooks.join("pre-receive");
        fs::write(&hook, if inputs.reject { REFUSING_HOOK } else { RECORDING_HOOK })?;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
        let race = inputs.race.clone();
        let mut case = Self { server, repository, labels: Vec::new(), race, raced: None };
        for commit in &inputs.commits {
            case.commit(commit)?;
        }
        for (tag, branch) in &inputs.tags {
            case.repository.git(&["tag", tag, &format!("refs/heads/{branch}")])?;
        }
        Ok(case)
    }

    /// The URL of the server, without the path of the repository.
    pub(super) fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// Runs `git` in the repository, and returns its output.
    fn git(&self, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .env("GIT_DIR", self.repository.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env_remove("GIT_WORK_TREE")
            .env_remove("GIT_INDEX_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start `git`")?;
        let mut stdin = child.stdin.take().context("`git` has no input")?;
        stdin.write_all(input)?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`git {}` failed: {said}", arguments.join(" "));
        Ok(output.stdout)
    }

    fn text(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.git(arguments, b"")?).into_owned())
    }

    /// Makes a commit, or deletes a branch.
    ///
    /// # Errors
    /// Git fails.
    pub(super) fn commit(&mut self, inputs: &CommitInputs) -> anyhow::Result<()> {
        let branch = format!("refs/heads/{}", inputs.branch);
        if inputs.drop {
            self.git(&["update-ref", "-d", &branch], b"")?;
            return Ok(());
        }
        let made = self.import(inputs)?;
        if !self.labels.contains(&made) {
            self.labels.push(made);
        }
        Ok(())
    }

    /// Makes a commit and moves its branch there.
    fn import(&self, inputs: &CommitInputs) -> anyhow::Result<String> {
        let branch = format!("refs/heads/{}", inputs.branch);
        let known = self.references()?;
        let head = |name: &str| known.get(&format!("refs/heads/{name}"));
        let from = inputs.from.as_deref().and_then(head);
        let parent = match &inputs.reset {
            None | Some(BranchReset::Anew(false)) => known.get(&branch).or(from),
            Some(BranchReset::Anew(true)) => from,
            Some(BranchReset::At(other)) => Some(head(other).context("no branch to reset to")?),
        };
        let mut stream =
            format!("commit {branch}\ncommitter Case <case@example.com> {COMMIT_SECONDS} +0000\n");
        stream.push_str(&format!("data {}\n{}\n", inputs.message.len(), inputs.message));
        if let Some(parent) = parent {
            stream.push_str(&format!("from {parent}\n"));
        }
        for path in &inputs.remove {
            stream.push_str(&format!("D {path}\n"));
        }
        let mut stream = stream.into_bytes();
        for (path, file) in &inputs.files {
            let (mode, content) = file_of(file)?;
            stream.extend(format!("M {mode} inline {path}\ndata {}\n", content.len()).bytes());
            stream.extend(content);
            stream.push(b'\n');
        }
        self.git(&["fast-import", "--quiet", "--force", "--date-format=raw"], &stream)?;
        self.references()?.remove(&branch).context("the branch has no commit")
    }

    /// Prepares the race of the case, which happens when the next push begins. It does nothing if the race is over.
    ///
    /// # Errors
    /// Git fails.
    pub(super) fn prepare_race(&mut self) -> anyhow::Result<()> {
        let Some(race) = &self.race else { return Ok(()) };
        let branch = format!("refs/heads/{}", race.branch);
        let before = self.references()?.remove(&branch);
        let made = self.import(race)?;
        match before {
            Some(before) => self.git(&["update-ref", &branch, &before], b"")?,
            None => self.git(&["update-ref", "-d", &branch], b"")?,
        };
        fs::write(self.repository.path().join("race"), format!("{branch} {made}\n"))?;
        self.raced = Some(made);
        Ok(())
    }

    /// The race at the next push: the branch, and the commit to which the other writer moves it. `None` if no race comes.
    pub(super) fn coming_race(&self) -> Option<(&str, &str)> {
        Some((self.race.as_ref()?.branch.as_str(), self.raced.as_deref()?))
    }

    /// The number in the label of the next commit.
    pub(super) fn next_label(&self) -> usize {
        self.labels.len() + 1
    }

    /// The regular text files of a commit, by their paths.
    ///
    /// # Errors
    /// Git does not list the files.
    pub(super) fn files(&self, commit: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let listed = self.text(&["ls-tree", "-r", "-z", commit])?;
        let mut files = BTreeMap::new();
        for line in listed.split_terminator('\0') {
            // The line is `<mode> blob <hash>`, a tab and the path.
            let (entry, path) = line.split_once('\t').context("an entry without a path")?;
            let fields: Vec<&str> = entry.split(' ').collect();
            let [mode, "blob", blob] = fields[..] else { continue };
            let content = self.git(&["cat-file", "blob", blob], b"")?;
            if mode.starts_with("100")
                && let Ok(text) = String::from_utf8(content)
            {
                files.insert(path.to_owned(), text);
            }
        }
        Ok(files)
    }

    /// Whether `ancestor` is the commit itself or one of its ancestors.
    pub(super) fn leads_to(&self, commit: &str, ancestor: &str) -> bool {
        self.git(&["merge-base", "--is-ancestor", ancestor, commit], b"").is_ok()
    }

    /// # Errors
    /// Git does not list them.
    pub(super) fn references(&self) -> anyhow::Result<References> {
        let listed = self.text(&["for-each-ref", "--format=%(refname) %(objectname)"])?;
        let lines = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect())
    }

    /// The new commits since the last call. Each gets a label.
    ///
    /// # Errors
    /// Git does not list the commits.
    pub(super) fn new_commits(&mut self) -> anyhow::Result<Vec<Value>> {
        let has_raced = self.raced.is_some() && !self.repository.path().join("race").exists();
        if has_raced {
            self.race = None;
            self.labels.extend(self.raced.take());
        }
        let all = self.text(&["rev-list", "--reverse", "--topo-order", "--all"])?;
        let known: BTreeSet<&str> = self.labels.iter().map(String::as_str).collect();
        let new = all.lines().filter(|hash| !known.contains(hash));
        let new: Vec<String> = new.map(str::to_owned).collect();
        let commits = new.iter().map(|hash| self.described(hash)).collect();
        self.labels.extend(new);
        commits
    }

    fn described(&self, hash: &str) -> anyhow::Result<Value> {
        let bytes = self.git(&["cat-file", "commit", hash], b"")?;
        let commit = String::from_utf8_lossy(&bytes);
        let (head, message) = commit.split_once("\n\n").context("a commit has no message")?;
        let values = |name: &str| -> Vec<String> {
            let of_name =
                head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            of_name.map(str::to_owned).collect()
        };
        let identity = |name: &str| {
            let line = values(name).into_iter().next().unwrap_or_default();
            // The time and its zone are the last two words.
            line.rsplitn(3, ' ').nth(2).unwrap_or_default().to_owned()
        };
        Ok(json!({
            "commit": hash,
            "parents": values("parent"),
            "author": identity("author"),
            "committer": identity("committer"),
            "message": message,
            "signature": signature_kind(hash, &bytes)?,
            "files": self.changed_files(hash)?,
        }))
    }

    /// The files that differ from the first parent of a commit. A deleted file is null.
    fn changed_files(&self, hash: &str) -> anyhow::Result<BTreeMap<String, Value>> {
        let command = ["diff-tree", "--root", "--no-commit-id", "--no-renames", "-r", "-z", hash];
        let changed = self.text(&command)?;
        let parts: Vec<&str> = changed.split('\0').collect();
        let mut files = BTreeMap::new();
        for pair in parts.chunks_exact(2) {
            let [change, path] = pair[..] else { continue };
            // The line is `:<mode> <mode> <hash> <hash> <status>`.
            let fields: Vec<&str> = change.split(' ').collect();
            let [_, mode, _, blob, status] = fields[..] else { continue };
            let content = if status == "D" {
                Value::Null
            } else {
                let text = self.text(&["cat-file", "blob", blob])?;
                if mode == PLAIN_MODE {
                    json!(text)
                } else {
                    json!({"mode": mode, "content": text})
                }
            };
            files.insert(path.to_owned(), content);
        }
        Ok(files)
    }

    /// The options of the pushes since the last call.
    ///
    /// # Errors
    /// The notes of the hook cannot be read.
    pub(super) fn push_options(&self) -> anyhow::Result<Vec<String>> {
        let place = self.repository.path().join("push-options");
        if !place.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&place)?;
        fs::remove_file(&place)?;
        let mut options: Vec<String> = text.lines().map(str::to_owned).collect();
        options.sort();
        Ok(options)
    }

    /// A text with hashes in place of labels: `<c2>`, or `<c2:7>` for the first seven digits.
    pub(super) fn with_hashes(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (at, hash) in self.labels.iter().enumerate() {
            let number = at + 1;
            let short = hash.get(..7).unwrap_or(hash);
            text = text.replace(&format!("<c{number}>"), hash);
            text = text.replace(&format!("<c{number}:7>"), short);
        }
        text
    }
}

/// The mode and the content of a file of a case.
fn file_of(file: &Value) -> anyhow::Result<(&'static str, Vec<u8>)> {
    let text = |value: &Value| value.as_str().map(|text| text.as_bytes().to_vec());
    if let Some(content) = text(file) {
        return Ok((PLAIN_MODE, content));
    }
    if let Some(target) = text(&file["symlink"]) {
        return Ok(("120000", target));
    }
    if let Some(encoded) = text(&file["base64"]) {
        return Ok((PLAIN_MODE, STANDARD.decode(encoded)?));
    }
    let mode = if file["exec"] == true { "100755" } else { PLAIN_MODE };
    Ok((mode, text(&file["text"]).with_context(|| format!("no file: {file}"))?))
}
