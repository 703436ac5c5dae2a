//! The commit that a round builds on, with its files. It is fetched once for all automations of the round.
//!
//! All of it blocks. Elsewhere: commits on top of it and the push (`push_round`), which values are set where (`rewrite`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use git::push::{ReferenceUpdateRule, is_ancestor};
use git::{
    CommitTreeListing, Error, GitOperationContext as GitContext, GitReference, GitRevision,
    GitSnapshot, TreeEntry, TreeEntryKind, fetch, tip,
};
use image::ImageSetterValues;
use reconcile::RunOutcome;
use windlass_cluster::error::chain;

use super::automation_git_repository::AutomationGitRepository;
use super::automation_update::{
    AutomationUpdate, PushBranchMergeState, PushBranchMode, not_applied, not_fetched,
    without_digest,
};
use super::push_round_draft::{PushRoundDraft, PushRoundEditNumber};
use super::rewrite::{RepositoryFiles, RewrittenFiles};

/// The commit that a round builds on.
pub(super) struct PushRoundBase {
    pub(super) snapshot: GitSnapshot,
    /// The rule for the former commit of the branch, under which the push may update it.
    pub(super) rule: ReferenceUpdateRule,
    /// The revision that was fetched, or would be if the push branch did not exist.
    pub(super) revision: GitRevision,
    /// Whether the base is the push branch, which may have been merged since.
    pub(super) is_push_branch: bool,
}

impl PushRoundBase {
    /// What is fetched, or the push branch where it exists and is another one.
    ///
    /// Parity(flux): a push branch is not brought up to date with the branch that is fetched, and counts for nothing if it is
    /// not continued.
    pub(super) fn of(
        source: &AutomationGitRepository,
        mode: PushBranchMode,
        git: &GitContext,
    ) -> Result<Self, Error> {
        let AutomationGitRepository { remote, reference, push, .. } = source;
        if push.is_checkout {
            let snapshot = fetch(remote, reference, git)?;
            let revision = snapshot.revision.clone();
            let rule = ReferenceUpdateRule::FastForward;
            return Ok(Self { snapshot, rule, revision, is_push_branch: false });
        }
        let branch = GitReference::Branch(push.branch.clone());
        let head = match tip(remote, &branch, git) {
            Ok(tip) => Some(tip.sha),
            Err(Error::NoSuchRef { .. }) => None,
            Err(error) => return Err(error),
        };
        let checkout = tip(remote, reference, git)?;
        let is_checkout = head.as_deref() == Some(checkout.sha.as_str());
        if head.is_none() || is_checkout || !mode.is_continued {
            return Self::on_checkout(source, head, mode, git);
        }
        let snapshot = fetch(remote, &branch, git)?;
        let rule = ReferenceUpdateRule::OverwriteOnly(Some(snapshot.commit.sha.clone()));
        let revision = GitRevision::new(reference, &checkout);
        Ok(Self { snapshot, rule, revision, is_push_branch: true })
    }

    /// The base of a round that builds on the fetched commit, for a push to a branch that is at `head` or does not exist.
    pub(super) fn on_checkout(
        source: &AutomationGitRepository,
        head: Option<String>,
        mode: PushBranchMode,
        git: &GitContext,
    ) -> Result<Self, Error> {
        let snapshot = fetch(&source.remote, &source.reference, git)?;
        let revision = snapshot.revision.clone();
        let rule = match mode.is_forced {
            true => ReferenceUpdateRule::OverwriteOnly(head),
            false => ReferenceUpdateRule::FastForward,
        };
        Ok(Self { snapshot, rule, revision, is_push_branch: false })
    }

    /// The same as [`Self::is_merged`], without fetching a history for commits that are known.
    pub(super) fn merge_state(
        &self,
        source: &AutomationGitRepository,
        known: Option<&PushBranchMergeState>,
        git: &GitContext,
    ) -> Result<PushBranchMergeState, RunOutcome> {
        let head = &self.snapshot.commit.sha;
        let checkout = &self.revision.sha;
        if let Some(known) = known
            && known.head == *head
            && known.base == *checkout
        {
            return Ok(known.clone());
        }
        let is_merged = self.is_merged(source, git)?;
        Ok(PushBranchMergeState { head: head.clone(), base: checkout.clone(), is_merged })
    }

    /// Whether everything of the push branch is in what is fetched, so that it begins anew there and needs no pull request.
    ///
    /// Differs(flux): there commits pile up on a branch that was merged and not deleted.
    pub(super) fn is_merged(
        &self,
        source: &AutomationGitRepository,
        git: &GitContext,
    ) -> Result<bool, RunOutcome> {
        let head = &self.snapshot.commit.sha;
        match is_ancestor(&source.remote, &self.revision.sha, head, git) {
            // If the history is too long for the server or the limits, the branch is continued, as in Flux. The forge knows
            // which commits are merged.
            Err(Error::TooLarge { .. } | Error::TimedOut { .. } | Error::Refused { .. }) => {
                Ok(false)
            }
            known => known.map_err(|error| not_fetched(&error)),
        }
    }
}

/// The files of the commit that a round builds on.
pub(super) struct PushRoundBaseFiles<'b> {
    snapshot: &'b GitSnapshot,
    entries: BTreeMap<&'b str, &'b TreeEntry>,
    kinds: BTreeMap<&'b str, TreeEntryKind>,
}

/// The changes by one automation to the files of a round.
pub(super) struct AutomationRewrite {
    pub(super) files: RewrittenFiles,
    /// The earlier edits whose files this automation has read.
    pub(super) relied: BTreeSet<PushRoundEditNumber>,
}

impl<'b> PushRoundBaseFiles<'b> {
    pub(super) fn new(snapshot: &'b GitSnapshot, listing: &'b CommitTreeListing) -> Self {
        let entries: BTreeMap<_, _> =
            listing.entries.iter().map(|entry| (entry.path.as_str(), entry)).collect();
        let kinds = entries.iter().map(|(path, entry)| (*path, entry.kind)).collect();
        Self { snapshot, entries, kinds }
    }

    /// Sets the values of an automation in the files, as the automations before it left them.
    ///
    /// # Errors
    /// The outcome says in Flux's words why nothing is updated.
    pub(super) fn rewritten<M>(
        &self,
        update: &AutomationUpdate,
        setters: &ImageSetterValues,
        draft: &PushRoundDraft<M>,
    ) -> Result<AutomationRewrite, RunOutcome> {
        // Each automation may read as many bytes as if it were alone.
        self.snapshot.restart_reading();
        let files = RepositoryFiles {
            kinds: &self.kinds,
            path: &update.path,
            others: &update.others,
            unverified: &update.unverified,
        };
        let relied = RefCell::new(BTreeSet::new());
        let rewritten = files.rewrite(setters, |path| {
            if let Some(file) = draft.file(path) {
                relied.borrow_mut().insert(file.edit);
                return Ok(file.bytes.to_vec());
            }
            match self.entries.get(path) {
                Some(entry) => self.snapshot.read(entry).map_err(|error| chain(&error)),
                None => Err(format!("`{path}` is not in the repository")),
            }
        });
        let files = rewritten.map_err(|why| not_applied(&why))?;
        if files.without_digest.is_empty() {
            return Ok(AutomationRewrite { files, relied: relied.into_inner() });
        }
        Err(without_digest(&files.without_digest))
    }
}
