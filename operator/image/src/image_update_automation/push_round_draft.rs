//! The draft of a round's commits: what each automation changes, in which commit, and how the draft changes if an automation
//! is taken out.
//!
//! Each automation edits the files as the automations before it left them. Automations with equal author, key and message
//! share a commit. The exception is an automation that has read a file as a later commit edited it, since sharing would change
//! the order of the edits. So each commit has exactly the edits of its automations, and does not depend on edits of later
//! commits.
//! Elsewhere: editing (`rewrite`), making and pushing the commits (`push_round`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git::push::{CommitIdentity, GitFileChange, NewCommitMetadata};
use image::ImageValueChange;
use jiff::Timestamp;

use super::recommit_pause::CommittedValues;
use super::rewrite::IgnoredMarkers;

/// The most bytes of all changes in a round, which are held in memory until the push. An automation whose changes would exceed
/// it is for the next round.
const MAX_ROUND_BYTES: usize = 32 << 20;

/// The memory of a change or a finding besides its strings.
const CHANGE_OVERHEAD: usize = 96;

/// The number of an edit in the order of the round's edits.
pub(super) type PushRoundEditNumber = usize;

/// The author, key and message of a commit. Automations with equal labels share a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitAttributes {
    pub(super) author: CommitIdentity,
    /// The index of the key among the signers of the round. `None` if the commit is not signed.
    pub(super) signer: Option<usize>,
    pub(super) message: Arc<str>,
}

impl CommitAttributes {
    pub(super) fn details(&self, at: Timestamp) -> NewCommitMetadata {
        let author = self.author.clone();
        NewCommitMetadata {
            committer: author.clone(),
            author,
            message: self.message.to_string(),
            at,
        }
    }
}

/// The changes by one automation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AutomationEdit<M> {
    pub(super) member: M,
    /// The files after it, by their paths from the root.
    pub(super) files: BTreeMap<String, GitFileChange>,
    /// The values that it sets, each once.
    pub(super) changes: Vec<ImageValueChange>,
    /// The same values with their places.
    pub(super) values: CommittedValues,
    /// The earlier edits whose files this edit has read. If one of them is taken out, this edit might be different.
    pub(super) relied: BTreeSet<PushRoundEditNumber>,
    /// Files that were left out and markers that set nothing.
    pub(super) findings: IgnoredMarkers,
}

impl<M> AutomationEdit<M> {
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
        let findings = self.findings.listed.iter().map(|it| it.len() + CHANGE_OVERHEAD);
        let all: usize = files.chain(changes).chain(findings).sum();
        all + self.values.size()
    }
}

/// An edit of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PushRoundDraftEdit<M> {
    pub(super) number: PushRoundEditNumber,
    pub(super) edit: AutomationEdit<M>,
}

/// A commit and the automations that share it, in the order of their edits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommitDraft<M> {
    pub(super) label: CommitAttributes,
    pub(super) members: Vec<PushRoundDraftEdit<M>>,
}

/// An automation that was taken out of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WithdrawnAutomation<M> {
    pub(super) member: M,
    /// Whether the automation was taken out because its own run is no longer current. Otherwise it relied on an edit that was
    /// taken out.
    pub(super) is_outdated: bool,
}

/// The edits of a round that were taken out of its commits.
#[derive(Debug, Default)]
pub(super) struct WithdrawnEdits(BTreeSet<PushRoundEditNumber>);

impl WithdrawnEdits {
    /// Whether one of the edits in `relied` was taken out.
    pub(super) fn affects(&self, relied: &BTreeSet<PushRoundEditNumber>) -> bool {
        !self.0.is_disjoint(relied)
    }

    /// Takes all edits of a commit out.
    pub(super) fn add<M>(&mut self, commit: &CommitDraft<M>) {
        self.0.extend(commit.members.iter().map(|it| it.number));
    }
}

impl<M> CommitDraft<M> {
    /// Takes automations out of the draft: outdated ones, and automations that relied on an edit that was taken out.
    pub(super) fn withdraw(
        &mut self,
        withdrawn_edits: &mut WithdrawnEdits,
        is_outdated: impl Fn(&M) -> bool,
    ) -> Vec<WithdrawnAutomation<M>> {
        let mut withdrawn = Vec::new();
        for PushRoundDraftEdit { number, edit } in std::mem::take(&mut self.members) {
            let is_outdated = is_outdated(&edit.member);
            if is_outdated || withdrawn_edits.affects(&edit.relied) {
                withdrawn_edits.0.insert(number);
                withdrawn.push(WithdrawnAutomation { member: edit.member, is_outdated });
            } else {
                self.members.push(PushRoundDraftEdit { number, edit });
            }
        }
        withdrawn
    }

    /// The files of the commit, which its members do not have any more then.
    pub(super) fn take_files(&mut self) -> BTreeMap<String, GitFileChange> {
        let mut files = BTreeMap::new();
        for it in &mut self.members {
            files.append(&mut it.edit.files);
        }
        files
    }
}

/// The place of a commit, and of an edit in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CommitMemberIndex {
    commit: usize,
    member: usize,
}

/// A file as the edits of a round left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushRoundDraftFile<'d> {
    pub(super) bytes: &'d [u8],
    /// The last edit of the file.
    pub(super) edit: PushRoundEditNumber,
}

/// The commits of a round, the oldest first.
#[derive(Debug)]
pub(super) struct PushRoundDraft<M> {
    commits: Vec<CommitDraft<M>>,
    /// The place of each edit, by its number.
    places: Vec<CommitMemberIndex>,
    /// The last edit of each file.
    last_edits: BTreeMap<String, PushRoundEditNumber>,
    /// The memory of all edits.
    size: usize,
}

impl<M> Default for PushRoundDraft<M> {
    fn default() -> Self {
        Self { commits: Vec::new(), places: Vec::new(), last_edits: BTreeMap::new(), size: 0 }
    }
}

impl<M> PushRoundDraft<M> {
    /// Whether there is nothing to commit.
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// A file as the edits left it. `None` if no edit changed it.
    pub(super) fn file(&self, path: &str) -> Option<PushRoundDraftFile<'_>> {
        let number = *self.last_edits.get(path)?;
        let CommitMemberIndex { commit, member } = self.places.get(number)?;
        let edit = &self.commits.get(*commit)?.members.get(*member)?.edit;
        match edit.files.get(path)? {
            GitFileChange::Write { bytes, .. } => Some(PushRoundDraftFile { bytes, edit: number }),
            GitFileChange::Remove => None,
        }
    }

    /// Whether a changed file is another one than the edits left.
    pub(super) fn differs(&self, changes: &BTreeMap<String, GitFileChange>) -> bool {
        changes.iter().any(|(path, change)| {
            let before = self.file(path);
            before.is_some_and(|before| match change {
                GitFileChange::Write { bytes, .. } => before.bytes != bytes,
                GitFileChange::Remove => true,
            })
        })
    }

    /// Adds the changes of an automation to the commit of its label, or as a commit of its own. Returns the automation if there
    /// is no room for its changes, and otherwise `None`. There is always room for the changes of the first automation.
    pub(super) fn add(
        &mut self,
        label: CommitAttributes,
        mut edit: AutomationEdit<M>,
    ) -> Option<M> {
        // The edit also relies on files that it overwrites.
        edit.relied.extend(edit.files.keys().filter_map(|path| self.last_edits.get(path)));
        let relied = edit.relied.iter().filter_map(|number| self.places.get(*number));
        let last = relied.map(|place| place.commit).max().unwrap_or_default();
        let shared = self.commits.iter().rposition(|commit| commit.label == label);
        let shared = shared.filter(|shared| *shared >= last);
        let of_label = if shared.is_some() { 0 } else { label.message.len() };
        let size = self.size.saturating_add(edit.size()).saturating_add(of_label);
        if size > MAX_ROUND_BYTES && !self.is_empty() {
            return Some(edit.member);
        }
        self.size = size;
        let commit = shared.unwrap_or_else(|| {
            self.commits.push(CommitDraft { label, members: Vec::new() });
            self.commits.len() - 1
        });
        let members = self.commits.get_mut(commit).map(|commit| &mut commit.members)?;
        let number = self.places.len();
        self.places.push(CommitMemberIndex { commit, member: members.len() });
        self.last_edits.extend(edit.files.keys().map(|path| (path.clone(), number)));
        members.push(PushRoundDraftEdit { number, edit });
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

    fn label(message: &str) -> CommitAttributes {
        let [name, email] = ["Bot", "bot@example.com"].map(str::to_owned);
        CommitAttributes {
            author: CommitIdentity { name, email },
            signer: None,
            message: message.into(),
        }
    }

    fn edit(member: &'static str, paths: &[&str]) -> AutomationEdit<&'static str> {
        let bytes = member.as_bytes();
        let change = GitFileChange::Write { bytes: bytes.to_vec(), mode: GitFileMode::AsBefore };
        let files = paths.iter().map(|path| ((*path).to_owned(), change.clone()));
        AutomationEdit {
            member,
            files: files.collect(),
            changes: Vec::new(),
            values: CommittedValues::default(),
            relied: BTreeSet::new(),
            findings: IgnoredMarkers::default(),
        }
    }

    /// The same of an automation that has read a file as others left it.
    fn reading(
        draft: &PushRoundDraft<&'static str>,
        path: &str,
        edit: AutomationEdit<&'static str>,
    ) -> AutomationEdit<&'static str> {
        let relied = draft.file(path).map(|file| file.edit).into_iter().collect();
        AutomationEdit { relied, ..edit }
    }

    /// The messages and members of the commits of such edits.
    fn commits(edits: &[(&str, &'static str, &[&str])]) -> Vec<(String, Vec<&'static str>)> {
        let mut draft = PushRoundDraft::default();
        for &(message, member, paths) in edits {
            assert_eq!(draft.add(label(message), edit(member, paths)), None);
        }
        let members =
            |it: &CommitDraft<&'static str>| it.members.iter().map(|it| it.edit.member).collect();
        let all = draft.into_commits();
        all.iter().map(|it| (it.label.message.to_string(), members(it))).collect()
    }

    fn expected(message: &str, members: &[&'static str]) -> (String, Vec<&'static str>) {
        (message.to_owned(), members.to_vec())
    }

    #[test]
    fn those_with_the_same_label_share_a_commit_and_others_follow() {
        let edits: [(&str, &'static str, &[&str]); 3] =
            [("x", "one", &["1"]), ("y", "two", &["2"]), ("x", "three", &["3", "1"])];
        assert_eq!(commits(&edits), [expected("x", &["one", "three"]), expected("y", &["two"])]);
        let mut draft = PushRoundDraft::default();
        let of_other = CommitIdentity { name: "Other".to_owned(), ..label("x").author };
        for label in [
            label("x"),
            CommitAttributes { signer: Some(0), ..label("x") },
            CommitAttributes { author: of_other, ..label("x") },
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
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.file("1"), None);
        assert_eq!(draft.add(label("x"), edit("one", &["1", "2"])), None);
        assert_eq!(draft.add(label("x"), edit("two", &["1"])), None);
        assert_eq!(draft.file("1"), Some(PushRoundDraftFile { bytes: b"two", edit: 1 }));
        assert_eq!(draft.file("2"), Some(PushRoundDraftFile { bytes: b"one", edit: 0 }));
        assert!(draft.differs(&edit("one", &["1"]).files), "the base may have just that");
        assert!(!draft.differs(&edit("two", &["1"]).files));
        assert!(!draft.differs(&edit("two", &["3"]).files), "nothing edited it");
        let mut commit = draft.into_commits().remove(0);
        let files = commit.take_files();
        let mut expected = edit("one", &["2"]).files;
        expected.extend(edit("two", &["1"]).files);
        assert_eq!(files, expected);
    }

    #[test]
    fn what_was_built_on_an_automation_that_is_taken_out_goes_with_it() {
        let mut draft = PushRoundDraft::default();
        for (message, member, path) in
            [("x", "gone", "1"), ("x", "on it", "1"), ("x", "free", "2"), ("y", "later", "1")]
        {
            assert_eq!(draft.add(label(message), edit(member, &[path])), None);
        }
        let mut edits = WithdrawnEdits::default();
        let taken = draft.into_commits().into_iter().map(|mut commit| {
            let out = commit.withdraw(&mut edits, |member| *member == "gone");
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
    fn what_was_read_as_an_automation_left_it_does_not_count_without_that_one() {
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.add(label("x"), edit("free", &["3"])), None);
        assert_eq!(draft.add(label("y"), edit("gone", &["1"])), None);
        // It has another file to edit, and nothing to change in the one that is right already.
        let other = reading(&draft, "1", edit("on it", &["2"]));
        let unchanged = other.relied.clone();
        assert_eq!(unchanged, BTreeSet::from([1]));
        assert_eq!(draft.add(label("x"), other), None);
        let commits = draft.into_commits();
        let labels: Vec<&str> = commits.iter().map(|it| &*it.label.message).collect();
        assert_eq!(labels, ["x", "y", "x"], "not before the commit that it relies on");
        let mut edits = WithdrawnEdits::default();
        let mut taken = Vec::new();
        for mut commit in commits {
            let out = commit.withdraw(&mut edits, |member| *member == "gone");
            taken.extend(out.into_iter().map(|it| it.member));
        }
        assert_eq!(taken, ["gone", "on it"]);
        assert!(edits.affects(&unchanged), "nor does it count that nothing was to be changed");
        assert!(!edits.affects(&BTreeSet::from([0])));
    }

    #[test]
    fn edits_of_a_commit_that_cannot_be_made_are_taken_out_together() {
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.add(label("x"), edit("one", &["1"])), None);
        assert_eq!(draft.add(label("x"), edit("two", &["2"])), None);
        let mut edits = WithdrawnEdits::default();
        draft.into_commits().iter().for_each(|commit| edits.add(commit));
        assert!(edits.affects(&BTreeSet::from([0])) && edits.affects(&BTreeSet::from([1])));
    }

    #[test]
    fn a_message_takes_room_once_for_all_that_share_it() {
        let long = "x".repeat(MAX_ROUND_BYTES / 2 + 1);
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.add(label(&long), edit("one", &["1"])), None);
        assert_eq!(draft.add(label(&long), edit("two", &["2"])), None);
        let other = format!("{long}y");
        assert_eq!(draft.add(label(&other), edit("three", &["3"])), Some("three"));
    }

    #[test]
    fn the_changes_of_a_round_are_bounded_but_for_those_of_the_first_one() {
        let large = |member: &'static str, bytes: usize| {
            let change =
                GitFileChange::Write { bytes: vec![b'x'; bytes], mode: GitFileMode::AsBefore };
            AutomationEdit {
                files: BTreeMap::from([(member.to_owned(), change)]),
                ..edit(member, &[])
            }
        };
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.add(label("x"), large("first", MAX_ROUND_BYTES)), None);
        assert_eq!(draft.add(label("x"), large("second", 1)), Some("second"));
        let mut draft = PushRoundDraft::default();
        assert_eq!(draft.add(label("x"), large("first", 1)), None);
        assert_eq!(draft.add(label("x"), large("second", MAX_ROUND_BYTES)), Some("second"));
        assert_eq!(draft.add(label("x"), large("third", 1)), None);
        assert_eq!(draft.file("second"), None);
    }
}
