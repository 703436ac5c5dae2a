//! The update of a repository by one automation: the values that it writes, how they are committed, and the result in Flux's
//! words.
//!
//! Elsewhere: fetching, committing and pushing, for the automations of a round together (`push_round`), whether an update is
//! due, and the status (the run), which values are set where (`rewrite`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git::Error;
use git::push::{CommitIdentity, PushError};
use golang::time::{GoTime, GoTimeZone};
use image::{
    CommitMessageData, CommitMessageEnvironment, CommitMessageError, ImageValueChange,
    PolicyResult, REQUIRED_STACK_BYTES, UpdateResult, commit_message,
};
use jiff::Timestamp;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use sources::source_condition_reasons::GIT_OPERATION_FAILED;
use windlass_cluster::error::chain;

use super::automation_git_repository::SigningKey;
use super::pull_request::BranchHead;
use super::recommit_pause::{CommittedValues, RecommitPause};
use super::rewrite::IgnoredMarkers;

/// Values could not be set. Parity(flux).
const UPDATE_FAILED: ConditionReason = ConditionReason::new("UpdateFailed");

/// The tag of a verified image would stand in a file without its digest.
const MARKER_WITHOUT_DIGEST: ConditionReason = ConditionReason::new("MarkerWithoutDigest");

/// The most markers without a digest that a message names.
const MAX_NAMED_MARKERS: usize = 5;

/// The template of the commit message has a field that is gone. Parity(flux).
const REMOVED_TEMPLATE_FIELD: ConditionReason = ConditionReason::new("RemovedTemplateField");

/// The update of one automation.
pub(super) struct AutomationUpdate {
    /// `spec.update.path`.
    pub(super) path: String,
    /// The values.
    pub(super) policies: Vec<PolicyResult>,
    /// Policies of the namespace that the selector leaves out, as `namespace:name`.
    pub(super) others: BTreeSet<String>,
    /// Policies whose images are verified, as `namespace:name`. Their tags may not be written without a digest.
    pub(super) verified: BTreeSet<String>,
    /// Policies whose images have to be verified and whose latest version is not, as `namespace:name`, and why.
    pub(super) unverified: BTreeMap<String, String>,
    /// The values that were committed a moment ago, and are not committed again yet.
    pub(super) recommit_pause: Option<RecommitPause>,
    /// The message and author of the commit.
    pub(super) commit: CommitMessageSettings,
    /// The key that signs the commit.
    pub(super) signing_key: Option<SigningKey>,
    /// Whether a pull request is proposed for a push branch that is not merged.
    pub(super) is_proposed: bool,
    /// The merge state of the push branch that an earlier update found.
    pub(super) known_merge: Option<PushBranchMergeState>,
}

/// The treatment of a push branch that is not the branch of the checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushBranchMode {
    /// Whether commits are made on top of an existing push branch, instead of on the checkout.
    pub(super) is_continued: bool,
    /// Whether a push branch that is not an ancestor of the new commit is overwritten.
    pub(super) is_forced: bool,
}

/// Whether everything of a push branch is in the branch of the checkout. It follows from the two commits alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushBranchMergeState {
    /// The commit of the push branch.
    pub(super) head: String,
    /// The commit of the branch of the checkout.
    pub(super) base: String,
    pub(super) is_merged: bool,
}

/// The message and author of a commit.
pub(super) struct CommitMessageSettings {
    /// The namespace of the automation.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// The template of the message.
    pub(super) template: String,
    /// The `.Values` of the message template.
    pub(super) values: BTreeMap<String, String>,
    /// The author and committer.
    pub(super) author: CommitIdentity,
}

/// The result of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AutomationUpdateReport {
    /// The revision of the source in which the files are up to date.
    pub(super) revision: String,
    /// The commit, if one was needed.
    pub(super) pushed: Option<PushedCommit>,
    /// The last commit of the push branch, if a pull request is to be proposed for it.
    pub(super) unmerged: Option<BranchHead>,
    /// Whether the push branch is merged, if that had to be found out for the pull request.
    pub(super) merge: Option<PushBranchMergeState>,
    /// Files that were left out and markers that set nothing.
    pub(super) findings: IgnoredMarkers,
}

/// A commit that the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushedCommit {
    /// The hash of the commit.
    pub(super) commit: String,
    /// The message of the commit.
    pub(super) message: Arc<str>,
    /// The time of the commit, in seconds since 1970.
    pub(super) committed: i64,
    /// The values that it sets, each once.
    pub(super) changes: Vec<ImageValueChange>,
    /// The same values with their places.
    pub(super) values: CommittedValues,
}

fn wake_of(error: &Error) -> NextRunTrigger {
    match error {
        Error::Busy { busy, .. } => NextRunTrigger::at(busy.until),
        _ => NextRunTrigger::default(),
    }
}

/// Parity(flux): these words are before every cause.
pub(super) fn not_fetched(error: &Error) -> RunOutcome {
    let text = format!("failed to checkout source: {}", chain(error));
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, wake_of(error))
}

/// Parity(flux): these words are before every cause.
pub(super) fn not_applied(why: &str) -> RunOutcome {
    let text = format!("failed to apply policies: {why}");
    RunOutcome::Failed(UPDATE_FAILED, text, NextRunTrigger::default())
}

/// The outcome of an update that would write tags without the verified digest. Nothing is committed, not even for other
/// policies.
///
/// The update is retried, since a commit to the repository may help.
pub(super) fn without_digest(markers: &[String]) -> RunOutcome {
    let more = if markers.len() > MAX_NAMED_MARKERS { ", and more" } else { "" };
    let named: Vec<&str> = markers.iter().take(MAX_NAMED_MARKERS).map(String::as_str).collect();
    let text = format!(
        "failed to apply policies: images are verified, and a tag can be moved afterwards, so that the digest has to stand \
         in the same file: {}{more}",
        named.join(", ")
    );
    RunOutcome::Failed(MARKER_WITHOUT_DIGEST, text, NextRunTrigger::default())
}

/// Parity(flux): these words are before every cause.
pub(super) fn not_committed(why: &str) -> RunOutcome {
    let text = format!("failed to update source: {why}");
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, NextRunTrigger::default())
}

pub(super) fn not_pushed(error: &PushError) -> RunOutcome {
    let wake = match error {
        PushError::Failed(error) | PushError::Unanswered(error) => wake_of(error),
        _ => NextRunTrigger::default(),
    };
    unpushed(&chain(error), wake)
}

/// Parity(flux): these words are before every cause.
pub(super) fn unpushed(why: &str, wake: NextRunTrigger) -> RunOutcome {
    let text = format!("failed to update source: failed to push to remote: {why}");
    RunOutcome::Failed(GIT_OPERATION_FAILED, text, wake)
}

impl CommitMessageSettings {
    /// The message of a commit of these changes.
    pub(super) fn message(&self, changed: &UpdateResult) -> Result<String, RunOutcome> {
        let now = Timestamp::now();
        let nanoseconds = i64::from(now.subsec_nanosecond());
        let environment = CommitMessageEnvironment {
            now: GoTime::from_unix(now.as_second(), nanoseconds, GoTimeZone::Utc),
            random: Arc::new(windlass_runtime::random_bytes::fill),
        };
        let values = Some(&self.values).filter(|values| !values.is_empty());
        let data =
            CommitMessageData { namespace: &self.namespace, name: &self.name, changed, values };
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
}

impl PushedCommit {
    /// What is said of it, with so many bytes of its message at most. Parity(flux): these are its words.
    pub(super) fn text(&self, branch: &str, refspec: Option<&str>, most: usize) -> String {
        let Self { commit, message, .. } = self;
        let message = message.get(..message.floor_char_boundary(most)).unwrap_or_default();
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

    fn plan(template: &str) -> CommitMessageSettings {
        let [namespace, name, email] = ["apps", "web", "a@example.com"].map(str::to_owned);
        CommitMessageSettings {
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
            PushedCommit {
                commit,
                message: message.into(),
                committed: 0,
                changes: Vec::new(),
                values: CommittedValues::default(),
            }
        };
        assert_eq!(
            pushed("one\ntwo").text("main", None, 100),
            "pushed commit '0123456' to branch 'main'\none\ntwo"
        );
        assert!(pushed("ä".repeat(9).as_str()).text("main", None, 3).ends_with("'main'\nä"));
        assert_eq!(
            pushed("").text("auto", Some("HEAD:refs/for/main"), 100),
            "pushed commit '0123456' to branch 'auto' and refspecs 'HEAD:refs/for/main'"
        );
    }
}
