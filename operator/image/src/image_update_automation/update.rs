//! An update of a repository: fetch, set values, commit, push, and all of that once more if another writer was faster.
//!
//! All of it blocks. Elsewhere: whether it is due and what is said of it (the run), which values are set where (`rewrite`),
//! objects and connections of Git (`sources::git`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use golang::time::{GoTime, GoTimeZone};
use image::{
    CommitData, CommitEnvironment, CommitMessageError, ImageSetterValues, ImageValueChange,
    PolicyResult, REQUIRED_STACK_BYTES, UpdateResult, commit_message,
};
use jiff::Timestamp;
use reconcile::{ConditionReason, RunOutcome, WakeTrigger};
use sources::git::push::{
    CommitDetails, CommitIdentity, CommitSigner, PushError, PushWorkspace, RejectionCause,
    UpdateRule, is_ancestor,
};
use sources::git::{
    Error, GitOperationContext as GitContext, GitReference, GitRevision, GitSnapshot, fetch, tip,
};
use sources::source_reasons::GIT_OPERATION_FAILED;
use windlass_cluster::error::chain;
use windlass_cluster::leadership::Leadership;
use windlass_runtime::time_limit::LONGEST_TIMEOUT;

use super::git_source::GitSource;
use super::pull_request::{BranchHead, unmerged_head};
use super::rewrite::{RepositoryFiles, RewrittenFiles};

/// Values could not be set. Parity(flux).
const UPDATE_FAILED: ConditionReason = ConditionReason::new("UpdateFailed");

/// The tag of a verified image would stand in a file without its digest.
const MARKER_WITHOUT_DIGEST: ConditionReason = ConditionReason::new("MarkerWithoutDigest");

/// How many markers without a digest are named.
const MAX_NAMED_MARKERS: usize = 5;

/// The template of the commit message has a field that is gone. Parity(flux).
const REMOVED_TEMPLATE_FIELD: ConditionReason = ConditionReason::new("RemovedTemplateField");

/// How often a push is tried in one run where others push to the same branch.
///
/// Differs(flux): there the next run tries.
const MAX_PUSH_ATTEMPTS: usize = 4;

/// What an update does.
pub(super) struct Update {
    /// Where from and where to.
    pub(super) source: GitSource,
    /// `spec.update.path`.
    pub(super) path: String,
    /// The values.
    pub(super) policies: Vec<PolicyResult>,
    /// Policies of the namespace that the selector leaves out, as `namespace:name`.
    pub(super) others: BTreeSet<String>,
    /// Policies whose images are verified, as `namespace:name`: their tags may not stand alone.
    pub(super) verified: BTreeSet<String>,
    /// Policies whose images have to be verified and whose latest version is not, as `namespace:name`.
    pub(super) unverified: BTreeSet<String>,
    /// Whether these values were committed a moment ago: then they are not committed once more yet.
    pub(super) is_recommit: bool,
    /// Whether this process may push. Its connections to the API server know that by themselves, those to others do not.
    pub(super) leadership: Leadership,
    /// How it is committed.
    pub(super) commit: CommitPlan,
    /// Whether a pull request is proposed for a push branch that is not merged.
    pub(super) is_proposed: bool,
    /// What an update before found of that.
    pub(super) known_merge: Option<MergeState>,
}

/// Whether everything of a push branch is in the branch of the checkout. It follows from the two commits alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeState {
    /// The commit of the push branch.
    head: String,
    /// The commit of the branch of the checkout.
    base: String,
    is_merged: bool,
}

/// What a commit says.
pub(super) struct CommitPlan {
    /// The namespace of the automation.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// The template of the message.
    pub(super) template: String,
    /// What the template has as `.Values`.
    pub(super) values: BTreeMap<String, String>,
    /// Who writes and commits.
    pub(super) author: CommitIdentity,
}

/// What an update came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpdateReport {
    /// The revision of the source in which the files are up to date.
    pub(super) revision: String,
    /// The commit, if one was needed.
    pub(super) pushed: Option<PushedCommit>,
    /// The last commit of the push branch, if a pull request is to be proposed for it.
    pub(super) unmerged: Option<BranchHead>,
    /// Whether the push branch is merged, if that had to be found out for the pull request.
    pub(super) merge: Option<MergeState>,
    /// Files that were left out and markers that set nothing.
    pub(super) findings: Vec<String>,
}

/// A commit that the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushedCommit {
    /// Its hash.
    pub(super) commit: String,
    /// Its message.
    pub(super) message: String,
    /// When it was made, in seconds since 1970.
    pub(super) committed: i64,
    /// The values that it sets, each once.
    pub(super) changes: Vec<ImageValueChange>,
}

/// What one attempt came to.
enum Attempt {
    /// The repository is up to date.
    Done(UpdateReport),
    /// It is not, and may not be brought up to date yet.
    Postponed,
    /// Another writer was faster.
    Outdated(RunOutcome),
    /// The server did not say whether it has the commit.
    Unanswered(PushedCommit, RunOutcome),
}

/// The commit that an update builds on.
struct Base {
    snapshot: GitSnapshot,
    /// What may be at the branch before.
    rule: UpdateRule,
    /// The revision that was fetched, or would be if the push branch did not exist.
    revision: GitRevision,
    /// Whether it is the push branch, which may have been merged since.
    is_push_branch: bool,
}

/// What an attempt has of the spec and of the process.
struct Tools<'t> {
    git: &'t GitContext,
    setters: ImageSetterValues,
    signer: Option<CommitSigner>,
}

fn wake_of(error: &Error) -> WakeTrigger {
    match error {
        Error::Busy { busy, .. } => WakeTrigger::at(busy.until),
        _ => WakeTrigger::default(),
    }
}

/// Parity(flux): these words are before every cause.
pub(super) fn not_fetched(error: &Error) -> RunOutcome {
    let text = format!("failed to checkout source: {}", chain(error));
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, wake_of(error))
}

/// Parity(flux): these words are before every cause.
fn not_applied(why: &str) -> RunOutcome {
    let text = format!("failed to apply policies: {why}");
    RunOutcome::Failed(UPDATE_FAILED, text, WakeTrigger::default())
}

/// Tags that would stand without the digest that was verified. Nothing is committed, also not of other policies.
///
/// It is retried, since a commit to the repository may help.
fn without_digest(markers: &[String]) -> RunOutcome {
    let more = if markers.len() > MAX_NAMED_MARKERS { ", and more" } else { "" };
    let named: Vec<&str> = markers.iter().take(MAX_NAMED_MARKERS).map(String::as_str).collect();
    let text = format!(
        "failed to apply policies: images are verified, and a tag can be moved afterwards, so that the digest has to stand \
         in the same file: {}{more}",
        named.join(", ")
    );
    RunOutcome::Failed(MARKER_WITHOUT_DIGEST, text, WakeTrigger::default())
}

/// Parity(flux): these words are before every cause.
fn not_committed(why: &str) -> RunOutcome {
    let text = format!("failed to update source: {why}");
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, WakeTrigger::default())
}

/// Parity(flux): these words are before every cause.
fn not_pushed(error: &PushError) -> RunOutcome {
    let wake = match error {
        PushError::Failed(error) | PushError::Unanswered(error) => wake_of(error),
        _ => WakeTrigger::default(),
    };
    let text = format!("failed to update source: failed to push to remote: {}", chain(error));
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, wake)
}

impl Update {
    /// Brings the repository up to date; `None` if it is not, and may not be brought up to date yet.
    ///
    /// # Errors
    /// Says in Flux's words what failed. If the server has a commit nevertheless, the next update finds it.
    pub(super) fn run(&self, git: &GitContext) -> Result<Option<UpdateReport>, RunOutcome> {
        let setters = ImageSetterValues::new(&self.policies)
            .map_err(|error| not_applied(&error.to_string()))?
            .requiring_digests(self.verified.iter().cloned());
        let signer = self.source.signing_key.as_ref().map(|key| key.signer()).transpose()?;
        let tools = Tools { git, setters, signer };
        let began = Instant::now();
        // A hook of the server may take longer than several attempts, so that any of them may be accepted.
        let mut unanswered = Vec::new();
        let mut attempts = 1;
        loop {
            let failure = match self.attempt(&tools, &unanswered)? {
                Attempt::Done(report) => return Ok(Some(report)),
                Attempt::Postponed => return Ok(None),
                Attempt::Outdated(failure) => failure,
                Attempt::Unanswered(pushed, failure) => {
                    unanswered.push(pushed);
                    failure
                }
            };
            if attempts == MAX_PUSH_ATTEMPTS || began.elapsed() > LONGEST_TIMEOUT {
                return Err(failure);
            }
            attempts += 1;
        }
    }

    fn attempt(
        &self,
        tools: &Tools<'_>,
        unanswered: &[PushedCommit],
    ) -> Result<Attempt, RunOutcome> {
        let mut base = self.base(tools.git).map_err(|error| not_fetched(&error))?;
        let mut files = self.rewritten(&base.snapshot, tools)?;
        let is_head = |pushed: &&PushedCommit| pushed.commit == base.snapshot.commit.sha;
        if let Some(pushed) = unanswered.iter().find(is_head) {
            return self.done(&base, Some(pushed.clone()), files.findings, tools.git);
        }
        if self.is_recommit && !files.changes.is_empty() {
            return Ok(Attempt::Postponed);
        }
        if base.is_push_branch && !files.changes.is_empty() && self.is_merged(&base, tools.git)? {
            let head = Some(base.snapshot.commit.sha.clone());
            base = self.on_checkout(head, tools.git).map_err(|error| not_fetched(&error))?;
            files = self.rewritten(&base.snapshot, tools)?;
        }
        let RewrittenFiles { changes, result, findings, .. } = files;
        if changes.is_empty() {
            return self.done(&base, None, findings, tools.git);
        }
        let message = self.commit.message(&result)?;
        let remote = &self.source.remote;
        let mut workspace = PushWorkspace::on(&base.snapshot, remote)
            .map_err(|error| not_committed(&chain(&error)))?;
        let details = self.commit.details(message.clone());
        let commit = workspace
            .commit(&changes, &details, tools.signer.as_ref())
            .map_err(|error| not_committed(&chain(&error)))?;
        let Some(commit) = commit else {
            return self.done(&base, None, findings, tools.git);
        };
        // The files are in the pack, and need not be here as well while the server takes its time.
        drop(changes);
        let changes = result.changes().into_iter().cloned().collect();
        drop(result);
        let committed = details.at.as_second();
        let pushed = PushedCommit { commit, message, committed, changes };
        let request = self.source.push.request(base.rule.clone());
        // A process that was stopped for a while has old results, and the leader may have pushed newer ones before the fetch.
        // What the leader pushes after the fetch makes the server reject this push.
        if !self.leadership.may_act() {
            return Err(not_committed("this process is not the leader; commit not pushed"));
        }
        match workspace.push(&request, remote, tools.git) {
            Ok(_) => self.done(&base, Some(pushed), findings, tools.git),
            Err(error) => self.not_accepted(&error, pushed),
        }
    }

    /// What a push that failed means: whether another attempt may help at once.
    fn not_accepted(&self, error: &PushError, pushed: PushedCommit) -> Result<Attempt, RunOutcome> {
        let failure = not_pushed(error);
        match error {
            PushError::Unanswered(_) => Ok(Attempt::Unanswered(pushed, failure)),
            // That another reference, to which the refspec leads, is elsewhere is not changed by fetching.
            PushError::Rejected(rejection)
                if rejection.cause == RejectionCause::Outdated
                    && rejection
                        .references
                        .iter()
                        .any(|it| it.name == self.source.push.branch_reference()) =>
            {
                Ok(Attempt::Outdated(failure))
            }
            _ => Err(failure),
        }
    }

    /// The end of an attempt after which the repository is up to date.
    fn done(
        &self,
        base: &Base,
        pushed: Option<PushedCommit>,
        findings: Vec<String>,
        git: &GitContext,
    ) -> Result<Attempt, RunOutcome> {
        let revision = match &pushed {
            Some(pushed) if self.source.push.is_checkout => {
                GitRevision { sha: pushed.commit.clone(), ..base.revision.clone() }
            }
            _ => base.revision.clone(),
        };
        let revision = revision.to_string();
        let mut merge = None;
        let unmerged = if self.is_proposed {
            let found = base.is_push_branch.then(|| BranchHead {
                committed: base.snapshot.committed(),
                message: base.snapshot.message(),
            });
            unmerged_head(pushed.as_ref(), found, || {
                let state = self.merge_state(base, git)?;
                let is_merged = state.is_merged;
                merge = Some(state);
                Ok::<bool, RunOutcome>(is_merged)
            })?
        } else {
            None
        };
        Ok(Attempt::Done(UpdateReport { revision, pushed, unmerged, merge, findings }))
    }

    /// The commit to build on: what is fetched, or the push branch where it exists and is another one.
    ///
    /// Parity(flux): a push branch is not brought up to date with the branch that is fetched.
    fn base(&self, git: &GitContext) -> Result<Base, Error> {
        let GitSource { remote, reference, push, .. } = &self.source;
        if push.is_checkout {
            let snapshot = fetch(remote, reference, git)?;
            let revision = snapshot.revision.clone();
            let rule = UpdateRule::FastForward;
            return Ok(Base { snapshot, rule, revision, is_push_branch: false });
        }
        let branch = GitReference::Branch(push.branch.clone());
        let head = match tip(remote, &branch, git) {
            Ok(tip) => Some(tip.sha),
            Err(Error::NoSuchRef { .. }) => None,
            Err(error) => return Err(error),
        };
        let checkout = tip(remote, reference, git)?;
        if head.is_none() || head.as_deref() == Some(checkout.sha.as_str()) {
            return self.on_checkout(head, git);
        }
        let snapshot = fetch(remote, &branch, git)?;
        let rule = UpdateRule::OverwriteOnly(Some(snapshot.commit.sha.clone()));
        let revision = GitRevision::new(reference, &checkout);
        Ok(Base { snapshot, rule, revision, is_push_branch: true })
    }

    /// What is fetched, to be pushed to a branch that is at `head` or that is not there.
    fn on_checkout(&self, head: Option<String>, git: &GitContext) -> Result<Base, Error> {
        let snapshot = fetch(&self.source.remote, &self.source.reference, git)?;
        let revision = snapshot.revision.clone();
        let rule = UpdateRule::OverwriteOnly(head);
        Ok(Base { snapshot, rule, revision, is_push_branch: false })
    }

    /// The same as [`Self::is_merged`], without fetching a history for commits that are known.
    fn merge_state(&self, base: &Base, git: &GitContext) -> Result<MergeState, RunOutcome> {
        let head = &base.snapshot.commit.sha;
        let checkout = &base.revision.sha;
        if let Some(known) = &self.known_merge
            && known.head == *head
            && known.base == *checkout
        {
            return Ok(known.clone());
        }
        let is_merged = self.is_merged(base, git)?;
        Ok(MergeState { head: head.clone(), base: checkout.clone(), is_merged })
    }

    /// Whether everything of the push branch is in what is fetched, so that it begins anew there and needs no pull request.
    ///
    /// Differs(flux): there commits pile up on a branch that was merged and not deleted.
    fn is_merged(&self, base: &Base, git: &GitContext) -> Result<bool, RunOutcome> {
        let head = &base.snapshot.commit.sha;
        match is_ancestor(&self.source.remote, &base.revision.sha, head, git) {
            // Where the history is too long for the server or for the limits, the branch goes on as in Flux, and the forge
            // knows what of it is merged.
            Err(Error::TooLarge { .. } | Error::TimedOut { .. } | Error::Refused { .. }) => {
                Ok(false)
            }
            known => known.map_err(|error| not_fetched(&error)),
        }
    }

    fn rewritten(
        &self,
        snapshot: &GitSnapshot,
        tools: &Tools<'_>,
    ) -> Result<RewrittenFiles, RunOutcome> {
        let listing = snapshot.entries().map_err(|error| not_applied(&chain(&error)))?;
        let entries: BTreeMap<_, _> =
            listing.entries.iter().map(|entry| (entry.path.as_str(), entry)).collect();
        let kinds = entries.iter().map(|(path, entry)| (*path, entry.kind)).collect();
        let files = RepositoryFiles {
            kinds: &kinds,
            path: &self.path,
            others: &self.others,
            unverified: &self.unverified,
        };
        let rewritten = files.rewrite(&tools.setters, |path| match entries.get(path) {
            Some(entry) => snapshot.read(entry).map_err(|error| chain(&error)),
            None => Err(format!("`{path}` is not in the repository")),
        });
        let rewritten = rewritten.map_err(|why| not_applied(&why))?;
        if rewritten.without_digest.is_empty() {
            return Ok(rewritten);
        }
        Err(without_digest(&rewritten.without_digest))
    }
}

impl CommitPlan {
    /// The message of a commit of these changes.
    fn message(&self, changed: &UpdateResult) -> Result<String, RunOutcome> {
        let now = Timestamp::now();
        let nanoseconds = i64::from(now.subsec_nanosecond());
        let environment = CommitEnvironment {
            now: GoTime::from_unix(now.as_second(), nanoseconds, GoTimeZone::Utc),
            random: Arc::new(windlass_runtime::random_bytes::fill),
        };
        let values = Some(&self.values).filter(|values| !values.is_empty());
        let data = CommitData { namespace: &self.namespace, name: &self.name, changed, values };
        let made = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("commit message".to_owned());
            let work = || commit_message(&self.template, &data, &environment);
            let thread = thread.stack_size(REQUIRED_STACK_BYTES).spawn_scoped(scope, work);
            thread.ok()?.join().ok()
        });
        match made {
            Some(Ok(message)) => Ok(message),
            Some(Err(error @ CommitMessageError::RemovedField { .. })) => {
                Err(RunOutcome::Stalled(REMOVED_TEMPLATE_FIELD, error.to_string()))
            }
            Some(Err(error)) => Err(not_committed(&error.to_string())),
            None => Err(not_committed("the commit message could not be made, retrying")),
        }
    }

    fn details(&self, message: String) -> CommitDetails {
        let author = self.author.clone();
        CommitDetails { committer: author.clone(), author, message, at: Timestamp::now() }
    }
}

impl PushedCommit {
    /// What is said of it. Parity(flux): these are its words.
    pub(super) fn text(&self, branch: &str, refspec: Option<&str>) -> String {
        let Self { commit, message, .. } = self;
        let short = commit.get(..7).unwrap_or(commit);
        let refspec = refspec.map(|refspec| format!(" and refspecs '{refspec}'"));
        let refspec = refspec.unwrap_or_default();
        let line_break = if message.is_empty() { "" } else { "\n" };
        format!("pushed commit '{short}' to branch '{branch}'{refspec}{line_break}{message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(template: &str) -> CommitPlan {
        let [namespace, name, email] = ["apps", "web", "a@example.com"].map(str::to_owned);
        CommitPlan {
            namespace,
            name,
            template: template.to_owned(),
            values: BTreeMap::from([("ticket".to_owned(), "OPS-1".to_owned())]),
            author: CommitIdentity { name: "Bot".to_owned(), email },
        }
    }

    #[test]
    fn a_message_is_that_of_the_template_and_a_field_that_is_gone_is_not_retried() {
        let message = |template: &str| plan(template).message(&UpdateResult::default());
        assert_eq!(message(""), Ok("Update from image update automation".to_owned()));
        let template = "{{ .AutomationObject }} {{ .Values.ticket }}";
        assert_eq!(message(template), Ok("apps/web OPS-1".to_owned()));
        let removed = message("{{ .Updated.Files }}").unwrap_err();
        assert!(matches!(removed, RunOutcome::Stalled(REMOVED_TEMPLATE_FIELD, _)), "{removed:?}");
        let failed = message("{{ .Nope }}").unwrap_err();
        assert!(matches!(failed, RunOutcome::Failed(GIT_OPERATION_FAILED, ..)), "{failed:?}");
        let text = failed.text();
        assert!(text.starts_with("failed to update source: failed to run template"), "{text}");
    }

    #[test]
    fn files_with_tags_alone_are_named_and_not_more_than_a_few() {
        let markers: Vec<String> = (0..7).map(|at| format!("{at}.yaml")).collect();
        let text = |count: usize| without_digest(&markers[..count]).text().to_owned();
        assert!(text(1).ends_with("in the same file: 0.yaml"), "{}", text(1));
        assert!(text(7).ends_with("0.yaml, 1.yaml, 2.yaml, 3.yaml, 4.yaml, and more"));
        assert_eq!(without_digest(&markers).reason(), MARKER_WITHOUT_DIGEST);
    }

    #[test]
    fn a_push_is_reported_in_the_words_of_flux() {
        let pushed = |message: &str| {
            let commit = "0123456789abcdef0123456789abcdef01234567".to_owned();
            let message = message.to_owned();
            PushedCommit { commit, message, committed: 0, changes: Vec::new() }
        };
        assert_eq!(
            pushed("one\ntwo").text("main", None),
            "pushed commit '0123456' to branch 'main'\none\ntwo"
        );
        assert_eq!(
            pushed("").text("auto", Some("HEAD:refs/for/main")),
            "pushed commit '0123456' to branch 'auto' and refspecs 'HEAD:refs/for/main'"
        );
    }
}
