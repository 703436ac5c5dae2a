//! Makes the commits of a round. Each automation sets its values in the files as the automations before it left them, and the
//! commits contain the changed files.
//!
//! A failed, changed, suspended or deleted automation is left out, and the others go on.
//! Elsewhere: which automations share a commit (`push_round_draft`), pushing them (`push_round`).

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use git::push::{CommitSigner, PushError, PushWorkspace};
use git::{Error, GitRemote};
use image::ImageSetterValues;
use jiff::Timestamp;
use reconcile::{ObjectKey, RunOutcome};
use windlass_cluster::error::chain;

use super::automation_git_repository::SigningKey;
use super::automation_update::{
    AutomationUpdate, AutomationUpdateReport, PushedCommit, not_applied, not_committed,
};
use super::push_round_base::{AutomationRewrite, PushRoundBase, PushRoundBaseFiles};
use super::push_round_draft::{
    AutomationEdit, CommitAttributes, CommitDraft, PushRoundDraft, PushRoundDraftEdit,
    PushRoundEditNumber, WithdrawnEdits,
};
use super::recommit_pause::CommittedValues;
use super::rewrite::{IgnoredMarkers, RewrittenFiles};

/// How long a round sets values before it puts off the remaining automations. The longer a push comes after its fetch, the
/// more likely another writer is faster.
const MAX_PLANNING_TIME: Duration = Duration::from_secs(20);

/// The update of one automation.
pub(super) struct PushRoundUpdate {
    pub(super) automation: ObjectKey,
    pub(super) update: AutomationUpdate,
    /// Whether the automation was changed, suspended or deleted since.
    pub(super) is_outdated: Box<dyn Fn() -> bool + Send>,
}

/// The outcome of the update of one automation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AutomationUpdateOutcome {
    /// The repository is up to date.
    Done(AutomationUpdateReport),
    /// The update was not made, because another run of the automation is due.
    Postponed,
    /// The update was not made, and waits until this time, because another writer took back the last commit a moment ago.
    Undone { until: Timestamp },
    /// The update is for the next round. This round had no room for it, or it relies on an edit that was left out.
    PutOff,
    /// The update is for a round of its own. The server declined its commit together with those of others, and the round has
    /// pushed often enough.
    PutOffAlone,
    /// The server declined its commit. In Flux's words.
    Declined(RunOutcome),
    /// The update failed, in Flux's words. If the server has the commit nevertheless, the next update finds it.
    Failed(RunOutcome),
}

/// The outcomes of updates, by automation.
pub(super) type AutomationUpdateOutcomes = BTreeMap<ObjectKey, AutomationUpdateOutcome>;

/// An update and the inputs that it needs.
pub(super) struct PreparedAutomationUpdate<'r> {
    pub(super) round_update: &'r PushRoundUpdate,
    setters: ImageSetterValues,
    /// The index of the signer among the signers of the round.
    signer: Option<usize>,
}

/// A signing key, and the signer that was made of it.
pub(super) struct KeySigner<'r> {
    key: &'r SigningKey,
    signer: CommitSigner,
}

/// The changes that are to be committed, before commits are made.
pub(super) struct PushRoundPlan<'r> {
    draft: PushRoundDraft<&'r PreparedAutomationUpdate<'r>>,
    unchanged: Vec<UnchangedUpdate<'r>>,
    /// The outcomes of updates that have ended.
    outcomes: AutomationUpdateOutcomes,
}

/// An update that changes nothing in the files as the updates before it left them.
struct UnchangedUpdate<'r> {
    prepared: &'r PreparedAutomationUpdate<'r>,
    /// The edits that it has read. Without one of them, the update might change something.
    relied: BTreeSet<PushRoundEditNumber>,
    findings: IgnoredMarkers,
}

/// The result of an update that holds once the server has the commits of the round.
pub(super) struct FinishedUpdate<'r> {
    pub(super) prepared: &'r PreparedAutomationUpdate<'r>,
    /// The commit with its changes. `None` if the update changed nothing.
    pub(super) pushed: Option<PushedCommit>,
    /// Whether the update holds only if the server has the commits of other automations.
    pub(super) rests_on_commits: bool,
    pub(super) findings: IgnoredMarkers,
}

impl FinishedUpdate<'_> {
    /// Whether the update holds only with the commits of the round.
    pub(super) fn needs_commits(&self) -> bool {
        self.pushed.is_some() || self.rests_on_commits
    }
}

/// The commits of a round.
pub(super) struct PushRoundCommits<'r> {
    /// The newest commit of the round, or its base if it has no commits.
    pub(super) head: String,
    pub(super) finished: Vec<FinishedUpdate<'r>>,
    /// The outcomes of updates that ended, independent of the push.
    pub(super) outcomes: AutomationUpdateOutcomes,
}

impl<'r> PreparedAutomationUpdate<'r> {
    pub(super) fn new(
        round_update: &'r PushRoundUpdate,
        signers: &mut Vec<KeySigner<'r>>,
    ) -> Result<Self, RunOutcome> {
        let update = &round_update.update;
        let setters = ImageSetterValues::new(&update.policies)
            .map_err(|error| not_applied(&error.to_string()))?
            .requiring_digests(update.verified.iter().cloned());
        let signer = update.signing_key.as_ref().map(|key| place_of_signer(key, signers));
        Ok(Self { round_update, setters, signer: signer.transpose()? })
    }

    pub(super) fn automation(&self) -> ObjectKey {
        self.round_update.automation.clone()
    }

    fn is_outdated(&self) -> bool {
        (self.round_update.is_outdated)()
    }
}

/// The index of the signer for a key. Equal keys have the same index.
fn place_of_signer<'r>(
    key: &'r SigningKey,
    signers: &mut Vec<KeySigner<'r>>,
) -> Result<usize, RunOutcome> {
    if let Some(known) = signers.iter().position(|it| it.key == key) {
        return Ok(known);
    }
    let signer = key.signer()?;
    signers.push(KeySigner { key, signer });
    Ok(signers.len() - 1)
}

/// The edit of one update.
enum AutomationUpdateEdit {
    /// The update changes nothing.
    Nothing(AutomationRewrite),
    /// Files, in a commit of this label.
    Files(CommitAttributes, AutomationRewrite),
    /// The update is not to be made now.
    Postponed,
    /// The update is not to be made before this time.
    Undone(Timestamp),
}

/// Sets the values of an update in the files, as the updates before it left them.
///
/// # Errors
/// The reason why this update fails.
fn edited(
    prepared: &PreparedAutomationUpdate<'_>,
    files: &PushRoundBaseFiles<'_>,
    workspace: &mut PushWorkspace<'_>,
    draft: &PushRoundDraft<&PreparedAutomationUpdate<'_>>,
) -> Result<AutomationUpdateEdit, RunOutcome> {
    if prepared.is_outdated() {
        return Ok(AutomationUpdateEdit::Postponed);
    }
    let update = &prepared.round_update.update;
    let rewrite = files.rewritten(update, &prepared.setters, draft)?;
    let RewrittenFiles { changes, result, .. } = &rewrite.files;
    if changes.is_empty() {
        return Ok(AutomationUpdateEdit::Nothing(rewrite));
    }
    if let Some(pause) = update.recommit_pause.as_ref().filter(|pause| pause.applies_to(result)) {
        return Ok(AutomationUpdateEdit::Undone(pause.until));
    }
    let message = update.commit.message(result)?.into();
    // A change that cannot be written fails here, only for this update.
    let differs = workspace.differs(changes).map_err(|error| not_committed(&chain(&error)))?;
    // A file that equals the base may differ in an earlier commit of the draft.
    if !differs && !draft.differs(changes) {
        return Ok(AutomationUpdateEdit::Nothing(rewrite));
    }
    let author = update.commit.author.clone();
    let label = CommitAttributes { author, signer: prepared.signer, message };
    Ok(AutomationUpdateEdit::Files(label, rewrite))
}

impl<'r> PushRoundPlan<'r> {
    /// Sets the values of each update in the files, as the updates before it left them.
    ///
    /// # Errors
    /// The failure affects all updates of the round.
    pub(super) fn of(
        part: &[&'r PreparedAutomationUpdate<'r>],
        base: &PushRoundBase,
        remote: &GitRemote,
    ) -> Result<Self, RunOutcome> {
        let snapshot = &base.snapshot;
        let listing = snapshot.entries().map_err(|error| not_applied(&chain(&error)))?;
        let files = PushRoundBaseFiles::new(snapshot, &listing);
        let mut workspace =
            PushWorkspace::on(snapshot, remote).map_err(|error| not_committed(&chain(&error)))?;
        let mut plan = Self {
            draft: PushRoundDraft::default(),
            unchanged: Vec::new(),
            outcomes: AutomationUpdateOutcomes::new(),
        };
        let began = Instant::now();
        for (number, prepared) in part.iter().copied().enumerate() {
            if number > 0 && began.elapsed() > MAX_PLANNING_TIME {
                plan.outcomes.insert(prepared.automation(), AutomationUpdateOutcome::PutOff);
                continue;
            }
            let edit = || edited(prepared, &files, &mut workspace, &plan.draft);
            let edit = catch_unwind(AssertUnwindSafe(edit));
            let interrupted = |_| Err(not_applied("setting values was interrupted, retrying"));
            match edit.unwrap_or_else(interrupted) {
                Ok(edit) => plan.add(prepared, edit),
                Err(failure) => {
                    let outcome = AutomationUpdateOutcome::Failed(failure);
                    plan.outcomes.insert(prepared.automation(), outcome);
                }
            }
        }
        Ok(plan)
    }

    /// Whether there is nothing to commit.
    pub(super) fn is_empty(&self) -> bool {
        self.draft.is_empty()
    }

    fn add(&mut self, prepared: &'r PreparedAutomationUpdate<'r>, edit: AutomationUpdateEdit) {
        let (label, rewrite) = match edit {
            AutomationUpdateEdit::Nothing(AutomationRewrite { files, relied }) => {
                let RewrittenFiles { findings, .. } = files;
                self.unchanged.push(UnchangedUpdate { prepared, relied, findings });
                return;
            }
            AutomationUpdateEdit::Postponed => {
                self.outcomes.insert(prepared.automation(), AutomationUpdateOutcome::Postponed);
                return;
            }
            AutomationUpdateEdit::Undone(until) => {
                self.outcomes
                    .insert(prepared.automation(), AutomationUpdateOutcome::Undone { until });
                return;
            }
            AutomationUpdateEdit::Files(label, rewrite) => (label, rewrite),
        };
        let AutomationRewrite { files: rewritten, relied } = rewrite;
        let RewrittenFiles { changes: files, result, findings, .. } = rewritten;
        let changes = result.changes().into_iter().cloned().collect();
        let values = CommittedValues::of(&result);
        let edit = AutomationEdit { member: prepared, files, changes, values, relied, findings };
        if let Some(excess) = self.draft.add(label, edit) {
            self.outcomes.insert(excess.automation(), AutomationUpdateOutcome::PutOff);
        }
    }
}

impl<'r> PushRoundCommits<'r> {
    /// Makes the commits of a plan.
    pub(super) fn made(
        workspace: &mut PushWorkspace<'_>,
        plan: PushRoundPlan<'r>,
        signers: &[KeySigner<'_>],
    ) -> Self {
        let PushRoundPlan { draft, unchanged, outcomes } = plan;
        let mut commits = Self { head: String::new(), finished: Vec::new(), outcomes };
        let mut withdrawn_edits = WithdrawnEdits::default();
        for mut draft in draft.into_commits() {
            for it in draft.withdraw(&mut withdrawn_edits, |member| member.is_outdated()) {
                let outcome = match it.is_outdated {
                    true => AutomationUpdateOutcome::Postponed,
                    false => AutomationUpdateOutcome::PutOff,
                };
                commits.outcomes.insert(it.member.automation(), outcome);
            }
            let files = draft.take_files();
            if draft.members.is_empty() {
                continue;
            }
            let details = draft.label.details(Timestamp::now());
            let signer = draft.label.signer.and_then(|place| signers.get(place));
            match workspace.commit(&files, &details, signer.map(|it| &it.signer)) {
                Ok(hash) => commits.add(draft, hash.as_deref(), details.at),
                Err(error) => {
                    withdrawn_edits.add(&draft);
                    commits.leave_out(&draft, &error);
                }
            }
        }
        for UnchangedUpdate { prepared, relied, findings } in unchanged {
            if withdrawn_edits.affects(&relied) {
                commits.outcomes.insert(prepared.automation(), AutomationUpdateOutcome::PutOff);
                continue;
            }
            let rests_on_commits = !relied.is_empty();
            let update = FinishedUpdate { prepared, pushed: None, rests_on_commits, findings };
            commits.finished.push(update);
        }
        commits.head = workspace.head().unwrap_or_default();
        commits
    }

    /// The updates that have commits.
    pub(super) fn committed(&self) -> impl Iterator<Item = &'r PreparedAutomationUpdate<'r>> {
        self.finished.iter().filter(|it| it.pushed.is_some()).map(|it| it.prepared)
    }

    /// Adds a commit. Without a hash, no file differed.
    fn add(
        &mut self,
        draft: CommitDraft<&'r PreparedAutomationUpdate<'r>>,
        hash: Option<&str>,
        at: Timestamp,
    ) {
        let CommitDraft { label, members } = draft;
        for PushRoundDraftEdit { edit, .. } in members {
            let AutomationEdit { member, changes, values, findings, .. } = edit;
            let pushed = hash.map(|hash| PushedCommit {
                commit: hash.to_owned(),
                message: Arc::clone(&label.message),
                committed: at.as_second(),
                changes,
                values,
            });
            // If no file differs, other automations have undone the edits of this one.
            let rests_on_commits = true;
            let update = FinishedUpdate { prepared: member, pushed, rests_on_commits, findings };
            self.finished.push(update);
        }
    }

    /// Handles a commit that cannot be made. A commit that is too large may fit without the other commits.
    fn leave_out(
        &mut self,
        draft: &CommitDraft<&'r PreparedAutomationUpdate<'r>>,
        error: &PushError,
    ) {
        let is_first = self.committed().next().is_none();
        let is_too_large = matches!(error, PushError::Failed(Error::TooLarge { .. }));
        let outcome = match is_too_large && !is_first {
            true => AutomationUpdateOutcome::PutOff,
            false => AutomationUpdateOutcome::Failed(not_committed(&chain(error))),
        };
        for it in &draft.members {
            self.outcomes.insert(it.edit.member.automation(), outcome.clone());
        }
    }
}
