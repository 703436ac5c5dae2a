//! The pull request that merges a push branch into the branch that is fetched. It decides whether a pull request is due, its
//! text, and the reaction to a failure.
//!
//! Elsewhere: the forge (`windlass_runtime::pull_request_proposal`, `notify::PullRequestUpsert`), when it is proposed
//! (the run), status and events about it (`result`).

use crds::image::ImageUpdateAutomation;
use git::GitReference;
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use notify::{PullRequestError, PullRequestProposal};
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use windlass_runtime::audit::cut;

use super::automation_update::PushedCommit;

/// The annotation of an automation that names the Provider at whose forge the push branch gets a pull request.
pub(super) const PULL_REQUEST: &str = "windlass.dev/pull-request";

/// The annotation cannot be used.
const INVALID_PULL_REQUEST: ConditionReason = ConditionReason::new("InvalidPullRequest");

/// The forge did not open or update the pull request.
const PULL_REQUEST_FAILED: ConditionReason = ConditionReason::new("PullRequestFailed");

/// Longest name of an object.
const MAX_NAME_BYTES: usize = 253;

/// The most bytes of the message about a failure, which quotes the forge.
const MAX_FAILURE_BYTES: usize = 4 << 10;

/// Bytes of a branch in a message.
const MAX_SHOWN_BRANCH_BYTES: usize = 300;

/// The unchecked name of the Provider in the annotation of an automation. `None` if the automation has no such annotation.
pub(super) fn annotated_provider(object: &ImageUpdateAutomation) -> Option<&str> {
    object.annotations().get(PULL_REQUEST).map(|name| name.trim())
}

/// Whether an object can have this name.
fn is_name(name: &str) -> bool {
    let is_valid = |it: char| matches!(it, 'a'..='z' | '0'..='9' | '-' | '.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_valid)
}

/// The name of the Provider in the annotation. `None` if no object can have that name.
pub(super) fn named_provider(object: &ImageUpdateAutomation) -> Option<&str> {
    annotated_provider(object).filter(|name| is_name(name))
}

/// Only another annotation or spec helps.
fn invalid(why: &str) -> RunOutcome {
    RunOutcome::Stalled(INVALID_PULL_REQUEST, format!("annotation {PULL_REQUEST}: {why}"))
}

/// The target of a pull request: the branches, the repository and its forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PullRequestTarget {
    /// The name of the Provider, of the namespace of the automation.
    pub(super) provider: String,
    /// The URL to which windlass pushes.
    pub(super) repository: String,
    /// The branch that is fetched, into which the pull request merges.
    pub(super) base: String,
    /// The push branch.
    pub(super) head: String,
}

/// The last commit of a push branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BranchHead {
    /// The time of the commit, by the clock of its committer, in seconds since 1970.
    pub(super) committed: i64,
    /// The message of the commit.
    pub(super) message: String,
}

/// A forge that did not open or update a pull request, and at what time it may receive the next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForgePause {
    target: PullRequestTarget,
    until: Timestamp,
    failure: RunOutcome,
}

impl PullRequestTarget {
    /// The target of a pull request from the push branch `head` into the fetched `reference`.
    ///
    /// # Errors
    /// The annotation names no object, or there are not two different branches.
    pub(super) fn new(
        provider: &str,
        reference: &GitReference,
        head: &str,
        repository: String,
    ) -> Result<Self, RunOutcome> {
        if provider.is_empty() {
            return Err(invalid(
                "it is empty; set it to the name of a Provider of the same namespace, or remove it",
            ));
        }
        if !is_name(provider) {
            return Err(invalid(
                "its value is not the name of an object; set it to the name of a Provider of the same namespace",
            ));
        }
        let base = match reference {
            GitReference::Branch(branch) => Some(branch.as_str()),
            GitReference::Name(name) => name.strip_prefix("refs/heads/"),
            GitReference::Tag(_) | GitReference::Semver(_) | GitReference::Commit { .. } => None,
        };
        let Some(base) = base else {
            let what = cut(&reference.to_string(), MAX_SHOWN_BRANCH_BYTES);
            return Err(invalid(&format!(
                "a pull request is merged into a branch, and the checkout is {what}; set \
                 spec.git.checkout.ref.branch, or remove the annotation"
            )));
        };
        if base == head {
            let branch = cut(base, MAX_SHOWN_BRANCH_BYTES);
            return Err(invalid(&format!(
                "commits are pushed to branch `{branch}`, which is the one of the checkout; set spec.git.push.branch to \
                 another branch, or remove the annotation"
            )));
        }
        let [provider, base, head] = [provider, base, head].map(str::to_owned);
        Ok(Self { provider, repository, base, head })
    }

    /// The outcome if the Provider does not exist. `is_watched` says whether its creation wakes the automation.
    pub(super) fn not_found(&self, namespace: &str, is_watched: bool) -> RunOutcome {
        let provider = &self.provider;
        let why = format!(
            "Provider {namespace}/{provider} not found; create it, or correct or remove the annotation"
        );
        match invalid(&why) {
            RunOutcome::Stalled(reason, text) if !is_watched => {
                RunOutcome::Failed(reason, text, NextRunTrigger::default())
            }
            outcome => outcome,
        }
    }

    /// The proposed pull request for a push branch that ends with this commit. Title and body depend on nothing else, so that
    /// automations with the same push branch do not replace each other's text.
    pub(super) fn proposal(&self, head: &BranchHead) -> PullRequestProposal {
        let message = head.message.replace('\0', "");
        let (title, body) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
        PullRequestProposal {
            repository: self.repository.clone(),
            base: self.base.clone(),
            head: self.head.clone(),
            committed: head.committed,
            title: title.trim().to_owned(),
            body: body.trim().to_owned(),
        }
    }

    /// The outcome of a run in which the forge failed. The commits are pushed, and the next run proposes them once more.
    pub(super) fn failure(&self, error: &PullRequestError, now: Timestamp) -> RunOutcome {
        let [base, head] = [&self.base, &self.head].map(|it| cut(it, MAX_SHOWN_BRANCH_BYTES));
        let cause = &error.message;
        let text = format!("pull request of branch `{head}` into `{base}`: {cause}");
        let until = error.retry_after.and_then(|delay| now.checked_add(delay).ok());
        let wake = until.map(NextRunTrigger::at).unwrap_or_default();
        RunOutcome::Failed(PULL_REQUEST_FAILED, cut(&text, MAX_FAILURE_BYTES), wake)
    }

    /// The outcome of a run that could not read the Provider.
    pub(super) fn unread(&self, namespace: &str, why: &str) -> RunOutcome {
        let text = format!(
            "annotation {PULL_REQUEST}: cannot read Provider {namespace}/{}: {why}",
            self.provider
        );
        RunOutcome::Failed(
            PULL_REQUEST_FAILED,
            cut(&text, MAX_FAILURE_BYTES),
            NextRunTrigger::default(),
        )
    }
}

impl ForgePause {
    /// The pause of pull requests after a failure. `None` if the forge requires no pause.
    pub(super) fn after(target: &PullRequestTarget, failure: &RunOutcome) -> Option<Self> {
        let until = failure.wake().and_then(NextRunTrigger::earliest)?;
        Some(Self { target: target.clone(), until, failure: failure.clone() })
    }

    /// The failure that began this pause, if the pause is for `target` and not over: the caller returns it and sends no
    /// request. `None` if a request may be sent.
    pub(super) fn failure(&self, target: &PullRequestTarget, now: Timestamp) -> Option<RunOutcome> {
        (self.target == *target && now < self.until).then(|| self.failure.clone())
    }
}

/// The last commit of the push branch, if the push branch has commits that the branch of the checkout lacks. A pull request is
/// proposed in that case. `found` is the last commit of the push branch before the update, if the update builds on it.
///
/// # Errors
/// It is not known whether the push branch is merged.
pub(super) fn unmerged_head<E>(
    pushed: Option<&PushedCommit>,
    found: Option<BranchHead>,
    is_merged: impl FnOnce() -> Result<bool, E>,
) -> Result<Option<BranchHead>, E> {
    if let Some(pushed) = pushed {
        let message = pushed.message.to_string();
        return Ok(Some(BranchHead { committed: pushed.committed, message }));
    }
    match found {
        Some(head) if !is_merged()? => Ok(Some(head)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::recommit_pause::CommittedValues;
    use super::*;

    fn target(
        provider: &str,
        reference: &GitReference,
        head: &str,
    ) -> Result<PullRequestTarget, RunOutcome> {
        PullRequestTarget::new(provider, reference, head, "https://git.io/acme/fleet".to_owned())
    }

    fn valid() -> PullRequestTarget {
        target("forge", &GitReference::Branch("main".to_owned()), "auto").unwrap()
    }

    fn head(message: &str) -> BranchHead {
        BranchHead { committed: 7, message: message.to_owned() }
    }

    #[test]
    fn the_push_branch_is_merged_into_the_branch_that_is_fetched() {
        for reference in [
            GitReference::Branch("main".to_owned()),
            GitReference::Name("refs/heads/main".to_owned()),
        ] {
            let target = target("forge", &reference, "auto").unwrap();
            assert_eq!(target, valid());
            assert_eq!((target.base.as_str(), target.head.as_str()), ("main", "auto"));
        }
    }

    #[test]
    fn a_wrong_annotation_is_stalled_with_what_to_do() {
        let main = GitReference::Branch("main".to_owned());
        let tag = GitReference::Tag("v1".to_owned());
        let change = GitReference::Name("refs/changes/1".to_owned());
        for (provider, reference, head, text) in [
            ("", &main, "auto", "it is empty; set it to the name of a Provider"),
            ("apps/forge", &main, "auto", "its value is not the name of an object; set it to"),
            ("forge", &main, "main", "set spec.git.push.branch to another branch, or remove"),
            ("forge", &tag, "auto", "set spec.git.checkout.ref.branch, or remove"),
            ("forge", &change, "auto", "set spec.git.checkout.ref.branch, or remove"),
        ] {
            let outcome = target(provider, reference, head).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(INVALID_PULL_REQUEST, _)), "{outcome:?}");
            let start = "annotation windlass.dev/pull-request: ";
            assert!(outcome.text().starts_with(start), "{outcome:?}");
            assert!(outcome.text().contains(text), "{outcome:?}");
        }
        let long = "x".repeat(1 << 18);
        let outcome = target(&long, &main, "auto").unwrap_err();
        assert!(outcome.text().len() < 1000, "a status has not the whole annotation");
    }

    #[test]
    fn a_provider_that_is_missing_is_retried_only_where_its_appearance_is_not_seen() {
        let text = "annotation windlass.dev/pull-request: Provider apps/forge not found; create it, or correct or remove \
                    the annotation";
        let stalled = valid().not_found("apps", true);
        assert_eq!(stalled, RunOutcome::Stalled(INVALID_PULL_REQUEST, text.to_owned()));
        let failed = valid().not_found("apps", false);
        assert_eq!(
            failed,
            RunOutcome::Failed(INVALID_PULL_REQUEST, text.to_owned(), NextRunTrigger::default())
        );
    }

    #[test]
    fn an_annotation_that_names_no_object_has_no_node() {
        let named = |annotations: Value| {
            let object: ImageUpdateAutomation = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "apps", "annotations": annotations},
                "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "a"}},
            }))
            .unwrap();
            let provider = annotated_provider(&object).map(str::to_owned);
            (provider, named_provider(&object).map(str::to_owned))
        };
        let of = |name: &str| named(json!({"windlass.dev/pull-request": name}));
        assert_eq!(named(json!({})), (None, None));
        assert_eq!(of(" forge "), (Some("forge".to_owned()), Some("forge".to_owned())));
        assert_eq!(of(" "), (Some(String::new()), None));
        assert_eq!(of("a/b"), (Some("a/b".to_owned()), None));
    }

    #[test]
    fn a_pull_request_is_proposed_for_what_was_pushed_and_for_what_is_not_merged() {
        let pushed = PushedCommit {
            commit: "0".repeat(40),
            message: "update".into(),
            committed: 7,
            changes: Vec::new(),
            values: CommittedValues::default(),
        };
        // The history of the branch is fetched only where nothing else tells.
        let unasked = || Err("asked");
        assert_eq!(unmerged_head(Some(&pushed), None, unasked), Ok(Some(head("update"))));
        let found = Some(head("before"));
        assert_eq!(unmerged_head(Some(&pushed), found.clone(), unasked), Ok(Some(head("update"))));
        assert_eq!(unmerged_head(None, None, unasked), Ok(None), "no push branch");
        assert_eq!(unmerged_head(None, found.clone(), unasked), Err("asked"));
        let merged = |is_merged: bool| unmerged_head::<&str>(None, found.clone(), || Ok(is_merged));
        assert_eq!(merged(false), Ok(found.clone()), "the pull request may be missing");
        assert_eq!(merged(true), Ok(None));
    }

    #[test]
    fn title_and_body_are_the_message_of_the_last_commit() {
        let said = |message: &str| {
            let proposal = valid().proposal(&head(message));
            assert_eq!((proposal.base.as_str(), proposal.head.as_str()), ("main", "auto"));
            assert_eq!(proposal.committed, 7);
            (proposal.title, proposal.body)
        };
        let expected = |title: &str, body: &str| (title.to_owned(), body.to_owned());
        assert_eq!(said("update"), expected("update", ""));
        assert_eq!(said("\r\n one\0 \r\n\r\ntwo\nthree\n"), expected("one", "two\nthree"));
        // The engine names the branches then.
        assert_eq!(said(" \n"), expected("", ""));
    }

    #[test]
    fn after_a_rate_limit_the_forge_receives_no_request_before_the_time_that_it_says() {
        let now: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
        let later: Timestamp = "2026-11-24T10:05:00Z".parse().unwrap();
        let error = |retry_after: Option<Duration>| {
            let message = "Provider apps/forge: too many requests".to_owned();
            PullRequestError { message, may_help: true, retry_after }
        };
        let failure = valid().failure(&error(Some(Duration::from_secs(300))), now);
        let text =
            "pull request of branch `auto` into `main`: Provider apps/forge: too many requests";
        let expected =
            RunOutcome::Failed(PULL_REQUEST_FAILED, text.to_owned(), NextRunTrigger::at(later));
        assert_eq!(failure, expected);
        let pause = ForgePause::after(&valid(), &failure).unwrap();
        assert_eq!(pause.failure(&valid(), now), Some(expected));
        assert_eq!(pause.failure(&valid(), later), None);
        let other = PullRequestTarget { provider: "other".to_owned(), ..valid() };
        assert_eq!(pause.failure(&other, now), None, "another Provider");
        let failure = valid().failure(&error(None), now);
        assert_eq!(ForgePause::after(&valid(), &failure), None, "the usual delay");
    }
}
