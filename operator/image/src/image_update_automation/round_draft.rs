//! The commits of a round before they are made: what each automation changes, in which commit that is, and what follows if an
//! automation is taken out.
//!
//! Each automation edits the files as those before it left them. Those with equal author, key and message share a commit, unless
//! one of them edits a file that a later commit has edited: the order of the edits would be another one. So each commit has
//! exactly the edits of its automations, and a file of it has no edits of later commits.
//! Elsewhere: editing (`rewrite`), making and pushing the commits (`push_round`).

use std::collections::{BTreeMap, BTreeSet};

use git::push::{CommitDetails, CommitIdentity, GitFileChange};
use image::ImageValueChange;
use jiff::Timestamp;

/// Bytes of all that the automations of a round change: they are held in memory until the round is pushed. One whose changes
/// would exceed it is of the next round.
const MAX_ROUND_BYTES: usize = 32 << 20;

/// What a change or a finding takes beside its strings.
const CHANGE_OVERHEAD: usize = 96;

/// What automations have in common that share a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitLabel {
    pub(super) author: CommitIdentity,
    /// The place of the key among the signers of the round; `None` if the commit is not signed.
    pub(super) signer: Option<usize>,
    pub(super) message: String,
}

impl CommitLabel {
    pub(super) fn details(&self, at: Timestamp) -> CommitDetails {
        let author = self.author.clone();
        CommitDetails { committer: author.clone(), author, message: self.message.clone(), at }
    }
}

/// What one automation changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemberEdit<M> {
    pub(super) member: M,
    /// The files after it, by their paths from the root.
    pub(super) files: BTreeMap<String, GitFileChange>,
    /// The values that it sets, each once.
    pub(super) changes: Vec<ImageValueChange>,
    /// Files that were left out and markers that set nothing.
    pub(super) findings: Vec<String>,
}

impl<M> MemberEdit<M> {
    /// About how much memory it takes.
    fn size(&self) -> usize {
        let file = |path: &String, change: &GitFileChange| match change {
            GitFileChange::Write { bytes, .. } => path.len() + bytes.len(),
            GitFileChange::Remove => path.len(),
        };
        let files = self.files.iter().map(|(path, change)| file(path, change));
        let changes = self.changes.iter().map(|change| {
            let ImageValueChange { old_value, new_value, setter } = change;
            old_value.len() + new_value.len() + setter.len() + CHANGE_OVERHEAD
        });
        let findings = self.findings.iter().map(|finding| finding.len() + CHANGE_OVERHEAD);
        files.chain(changes).chain(findings).sum()
    }
}

/// A commit and the automations that share it, in the order of their edits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommitDraft<M> {
    pub(super) label: CommitLabel,
    pub(super) members: Vec<MemberEdit<M>>,
}

/// An automation that was taken out of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WithdrawnMember<M> {
    pub(super) member: M,
    /// Whether that is because its own run is due no more; else it has edited files of one that was taken out.
    pub(super) is_outdated: bool,
}

impl<M> CommitDraft<M> {
    /// Takes automations out: those that are outdated, and those that edited one of the withdrawn files, which have edits of
    /// automations that were taken out. Their own files are withdrawn then, too.
    pub(super) fn withdraw(
        &mut self,
        withdrawn_files: &mut BTreeSet<String>,
        is_outdated: impl Fn(&M) -> bool,
    ) -> Vec<WithdrawnMember<M>> {
        let mut withdrawn = Vec::new();
        for edit in std::mem::take(&mut self.members) {
            let is_outdated = is_outdated(&edit.member);
            if is_outdated || edit.files.keys().any(|path| withdrawn_files.contains(path)) {
                withdrawn_files.extend(edit.files.into_keys());
                withdrawn.push(WithdrawnMember { member: edit.member, is_outdated });
            } else {
                self.members.push(edit);
            }
        }
        withdrawn
    }

    /// The files of the commit, which its members do not have any more then.
    pub(super) fn take_files(&mut self) -> BTreeMap<String, GitFileChange> {
        let mut files = BTreeMap::new();
        for edit in &mut self.members {
            files.append(&mut edit.files);
        }
        files
    }
}

/// The place of a commit, and of an edit in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EditPlace {
    commit: usize,
    member: usize,
}

/// The commits of a round, the oldest first.
#[derive(Debug)]
pub(super) struct RoundDraft<M> {
    commits: Vec<CommitDraft<M>>,
    /// The last edit of each file.
    last_edits: BTreeMap<String, EditPlace>,
    /// What all edits take.
    size: usize,
}

impl<M> Default for RoundDraft<M> {
    fn default() -> Self {
        Self { commits: Vec::new(), last_edits: BTreeMap::new(), size: 0 }
    }
}

impl<M> RoundDraft<M> {
    /// Whether nothing is to be committed.
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// A file as the edits left it; `None` if none of them changed it.
    pub(super) fn file(&self, path: &str) -> Option<&[u8]> {
        let EditPlace { commit, member } = self.last_edits.get(path)?;
        let edit = self.commits.get(*commit)?.members.get(*member)?;
        match edit.files.get(path)? {
            GitFileChange::Write { bytes, .. } => Some(bytes),
            GitFileChange::Remove => None,
        }
    }

    /// Adds what an automation changes to the commit of its label, or as a commit of its own. Gives the automation back if there
    /// is no room for its changes; there is for those of the first one.
    pub(super) fn add(&mut self, label: CommitLabel, edit: MemberEdit<M>) -> Option<M> {
        let size = self.size.saturating_add(edit.size());
        if size > MAX_ROUND_BYTES && !self.is_empty() {
            return Some(edit.member);
        }
        self.size = size;
        let last = edit.files.keys().filter_map(|path| self.last_edits.get(path));
        let last = last.map(|place| place.commit).max().unwrap_or_default();
        let shared = self.commits.iter().rposition(|commit| commit.label == label);
        let commit = shared.filter(|shared| *shared >= last).unwrap_or_else(|| {
            self.commits.push(CommitDraft { label, members: Vec::new() });
            self.commits.len() - 1
        });
        let members = self.commits.get_mut(commit).map(|commit| &mut commit.members)?;
        let place = EditPlace { commit, member: members.len() };
        self.last_edits.extend(edit.files.keys().map(|path| (path.clone(), place)));
        members.push(edit);
        None
    }

    /// The commits, the oldest first.
    pub(super) fn into_commits(self) -> Vec<CommitDraft<M>> {
        self.commits
    }
}

#[cfg(test)]
mod tests {
    use git::push::GitFileMode;

    use super::*;

    fn label(message: &str) -> CommitLabel {
        let [name, email] = ["Bot", "bot@example.com"].map(str::to_owned);
        let message = message.to_owned();
        CommitLabel { author: CommitIdentity { name, email }, signer: None, message }
    }

    fn edit(member: &'static str, paths: &[&str]) -> MemberEdit<&'static str> {
        let bytes = member.as_bytes();
        let change = GitFileChange::Write { bytes: bytes.to_vec(), mode: GitFileMode::AsBefore };
        let files = paths.iter().map(|path| ((*path).to_owned(), change.clone()));
        let files = files.collect();
        MemberEdit { member, files, changes: Vec::new(), findings: Vec::new() }
    }

    /// The messages and members of the commits of such edits.
    fn commits(edits: &[(&str, &'static str, &[&str])]) -> Vec<(String, Vec<&'static str>)> {
        let mut draft = RoundDraft::default();
        for &(message, member, paths) in edits {
            assert_eq!(draft.add(label(message), edit(member, paths)), None);
        }
        let members =
            |it: &CommitDraft<&'static str>| it.members.iter().map(|it| it.member).collect();
        let all = draft.into_commits();
        all.iter().map(|it| (it.label.message.clone(), members(it))).collect()
    }

    fn expected(message: &str, members: &[&'static str]) -> (String, Vec<&'static str>) {
        (message.to_owned(), members.to_vec())
    }

    #[test]
    fn those_with_the_same_label_share_a_commit_and_others_follow() {
        let edits: [(&str, &'static str, &[&str]); 3] =
            [("x", "one", &["1"]), ("y", "two", &["2"]), ("x", "three", &["3", "1"])];
        assert_eq!(commits(&edits), [expected("x", &["one", "three"]), expected("y", &["two"])]);
        let mut draft = RoundDraft::default();
        let of_other = CommitIdentity { name: "Other".to_owned(), ..label("x").author };
        for label in [
            label("x"),
            CommitLabel { signer: Some(0), ..label("x") },
            CommitLabel { author: of_other, ..label("x") },
        ] {
            assert_eq!(draft.add(label, edit("one", &["1"])), None);
        }
        assert_eq!(draft.into_commits().len(), 3, "another key, another author");
    }

    #[test]
    fn an_edit_on_top_of_a_later_commit_is_not_put_before_it() {
        let edits: [(&str, &'static str, &[&str]); 4] = [
            ("x", "one", &["1"]),
            ("y", "two", &["2"]),
            ("x", "three", &["2", "3"]),
            ("x", "four", &["4"]),
        ];
        assert_eq!(
            commits(&edits),
            [expected("x", &["one"]), expected("y", &["two"]), expected("x", &["three", "four"])]
        );
    }

    #[test]
    fn a_file_is_as_the_last_edit_left_it() {
        let mut draft = RoundDraft::default();
        assert_eq!(draft.file("1"), None);
        assert_eq!(draft.add(label("x"), edit("one", &["1", "2"])), None);
        assert_eq!(draft.add(label("x"), edit("two", &["1"])), None);
        assert_eq!(draft.file("1"), Some(b"two".as_slice()));
        assert_eq!(draft.file("2"), Some(b"one".as_slice()));
        let mut commit = draft.into_commits().remove(0);
        let files = commit.take_files();
        let mut expected = edit("one", &["2"]).files;
        expected.extend(edit("two", &["1"]).files);
        assert_eq!(files, expected);
    }

    #[test]
    fn what_was_built_on_an_automation_that_is_taken_out_goes_with_it() {
        let mut draft = RoundDraft::default();
        for (message, member, path) in
            [("x", "gone", "1"), ("x", "on it", "1"), ("x", "free", "2"), ("y", "later", "1")]
        {
            assert_eq!(draft.add(label(message), edit(member, &[path])), None);
        }
        let mut files = BTreeSet::new();
        let taken = draft.into_commits().into_iter().map(|mut commit| {
            let out = commit.withdraw(&mut files, |member| *member == "gone");
            let out: Vec<_> = out.iter().map(|it| (it.member, it.is_outdated)).collect();
            (out, commit.members.len())
        });
        let taken: Vec<_> = taken.collect();
        assert_eq!(
            taken,
            [(vec![("gone", true), ("on it", false)], 1), (vec![("later", false)], 0)]
        );
    }

    #[test]
    fn the_changes_of_a_round_are_bounded_but_for_those_of_the_first_one() {
        let large = |member: &'static str, bytes: usize| {
            let change =
                GitFileChange::Write { bytes: vec![b'x'; bytes], mode: GitFileMode::AsBefore };
            MemberEdit { files: BTreeMap::from([(member.to_owned(), change)]), ..edit(member, &[]) }
        };
        let mut draft = RoundDraft::default();
        assert_eq!(draft.add(label("x"), large("first", MAX_ROUND_BYTES)), None);
        assert_eq!(draft.add(label("x"), large("second", 1)), Some("second"));
        let mut draft = RoundDraft::default();
        assert_eq!(draft.add(label("x"), large("first", 1)), None);
        assert_eq!(draft.add(label("x"), large("second", MAX_ROUND_BYTES)), Some("second"));
        assert_eq!(draft.add(label("x"), large("third", 1)), None);
        assert_eq!(draft.file("second"), None);
    }
}
