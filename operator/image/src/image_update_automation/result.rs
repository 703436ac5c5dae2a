//! The result of a run of an automation, and the status, events and log lines about it.
//!
//! Elsewhere: conditions, which are derived from the outcome (`crate::run`).

use std::collections::BTreeMap;

use crds::Time;
use crds::image::{ImageRef, ImageUpdateAutomationStatus};
use image::ImageValueChange;
use jiff::Timestamp;
use notify::{PullRequest, PullRequestOutcome};
use reconcile::{
    ConditionReason, ConditionStatus, MARKERS_IGNORED, ObjectKey, RunOutcome, StatusConditions,
    condition_reason,
};
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::audit::cut;

use super::UP_TO_DATE;
use super::automation_update::{AutomationUpdateReport, PushedCommit};
use super::rewrite::{IgnoredMarkers, shown};

/// The reason of the condition about files and markers without effect, and of an event about the same.
///
/// Differs(flux): there nothing is said of them.
const MARKERS_WITHOUT_EFFECT: ConditionReason = ConditionReason::new(MARKERS_IGNORED);

/// Bytes of an event about a commit, which has the whole message of the commit.
const MAX_EVENT_BYTES: usize = 16 << 10;

/// Bytes of the list of changes with which an event comes.
const MAX_CHANGES_BYTES: usize = 4 << 10;

/// Changes of a commit that are logged.
const MAX_LOGGED_CHANGES: usize = 100;

/// The metadata key of an event with the values that policies set.
const CHANGES_KEY: &str = "image.toolkit.fluxcd.io/changes";

/// The findings of a run that came to its end.
pub(super) struct AutomationResult {
    /// The results that the files have.
    pub(super) policies: BTreeMap<String, ImageRef>,
    /// The report of the update. `None` if nothing changed since the last run, or the update may not be made yet.
    pub(super) update: Option<AutomationUpdateReport>,
    /// The time until which the update may not be made, because another writer took back the last commit a moment ago.
    pub(super) undone_until: Option<Timestamp>,
    /// The branch to which commits go.
    pub(super) branch: String,
    /// The refspec by which the commits are also pushed to another reference.
    pub(super) refspec: Option<String>,
    /// The pull request of the branch, or the reason why there is none. `None` if none is due.
    pub(super) pull_request: Option<Result<PullRequest, RunOutcome>>,
}

impl AutomationResult {
    /// The outcome of the run: the files are up to date, or will be; but the pull request may have failed.
    ///
    /// Differs(flux): there is no pause, and `Ready` says nothing of another writer.
    pub(super) fn outcome(&self) -> RunOutcome {
        if let Some(until) = self.undone_until {
            return RunOutcome::Settled(condition_reason::SUCCEEDED, undone_text(until));
        }
        let text = match &self.pull_request {
            Some(Err(failure)) => return failure.clone(),
            Some(Ok(pull_request)) => {
                format!("{UP_TO_DATE}; {}", pull_request_text(pull_request))
            }
            None => UP_TO_DATE.to_owned(),
        };
        RunOutcome::Settled(condition_reason::SUCCEEDED, text)
    }

    /// The commit that was pushed.
    pub(super) fn pushed(&self) -> Option<&PushedCommit> {
        self.update.as_ref()?.pushed.as_ref()
    }

    /// Adds a commit that an earlier run pushed and that the status does not name, because it could not be written.
    pub(super) fn complete(&mut self, unreported: &mut Option<PushedCommit>) {
        let earlier = unreported.take();
        if let Some(update) = &mut self.update
            && update.pushed.is_none()
        {
            update.pushed = earlier;
        }
    }

    /// Writes the findings into the status.
    pub(super) fn show(&self, status: &mut ImageUpdateAutomationStatus, now: Timestamp) {
        let Some(update) = &self.update else { return };
        status.observed_policies.clone_from(&self.policies);
        status.observed_source_revision = Some(update.revision.clone());
        if let Some(pushed) = &update.pushed {
            status.last_push_commit = Some(pushed.commit.clone());
            status.last_push_time = Some(Time(now));
        }
    }

    /// The event about a commit that was pushed.
    pub(super) fn event(&self, pushed: &PushedCommit) -> ObjectEvent {
        let message = pushed.text(&self.branch, self.refspec.as_deref(), MAX_EVENT_BYTES);
        let changes: Vec<String> =
            pushed.changes.iter().take(MAX_LOGGED_CHANGES).map(change_text).collect();
        let changes = cut(&changes.join("; "), MAX_CHANGES_BYTES);
        ObjectEvent {
            severity: EventSeverity::Info,
            reason: condition_reason::SUCCEEDED.to_string(),
            message: cut(&message, MAX_EVENT_BYTES),
            metadata: BTreeMap::from([(CHANGES_KEY.to_owned(), changes)]),
        }
    }
}

/// Writes into the conditions which files and markers have no effect. If no files were read, the former message stays.
pub(super) fn show_ignored<'c>(
    result: Option<&AutomationResult>,
    conditions: StatusConditions<'c>,
) -> StatusConditions<'c> {
    let update = result.and_then(|result| result.update.as_ref());
    let Some(update) = update else { return conditions.keep(MARKERS_IGNORED) };
    let text = update.findings.text();
    if text.is_empty() {
        return conditions;
    }
    conditions.set(MARKERS_IGNORED, ConditionStatus::True, MARKERS_WITHOUT_EFFECT, &text)
}

/// The text of `Ready` about a pull request.
fn pull_request_text(pull_request: &PullRequest) -> String {
    let PullRequest { number, url, change } = pull_request;
    let state = match change {
        PullRequestOutcome::Created
        | PullRequestOutcome::Updated
        | PullRequestOutcome::Unchanged => "is open",
        PullRequestOutcome::Ended => {
            "was closed or merged, and windlass opens another one only for a newer commit"
        }
    };
    let separator = if url.is_empty() { "" } else { ": " };
    format!("pull request {number} {state}{separator}{url}")
}

/// The text of `Ready` while nothing may be committed. It names the time to the second, so it stays the same for the whole
/// pause.
fn undone_text(until: Timestamp) -> String {
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    format!(
        "another writer undid values that were committed a moment ago: they are committed again after {until}, or on request"
    )
}

fn change_text(change: &ImageValueChange) -> String {
    let ImageValueChange { old_value, new_value, setter } = change;
    format!("{}: {} -> {}", shown(setter), shown(old_value), shown(new_value))
}

/// Logs which policy changed which value.
pub(super) fn log_changes(node: &ObjectKey, pushed: &PushedCommit) {
    for change in pushed.changes.iter().take(MAX_LOGGED_CHANGES) {
        tracing::info!(
            controller_kind = node.kind,
            name = node.name,
            namespace = node.namespace,
            commit = pushed.commit,
            policy = shown(&change.setter),
            old = shown(&change.old_value),
            new = shown(&change.new_value),
            "image updated"
        );
    }
}

/// The event about files and markers without effect. `None` if it was reported already. `known` is the last reported text.
pub(super) fn ignored(known: &mut String, findings: &IgnoredMarkers) -> Option<ObjectEvent> {
    let message = findings.text();
    if message == *known {
        return None;
    }
    known.clone_from(&message);
    (!message.is_empty()).then(|| ObjectEvent {
        severity: EventSeverity::Info,
        reason: MARKERS_WITHOUT_EFFECT.to_string(),
        message,
        metadata: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use crds::image::ImageUpdateAutomation;
    use reconcile::NextRunTrigger;
    use serde_json::json;
    use windlass_cluster::announced_failures::FailureAnnouncement;

    use super::super::recommit_pause::CommittedValues;
    use super::*;
    use crate::image_kind_run::{KindSpecificConditions, report_with};

    fn version(tag: &str) -> ImageRef {
        ImageRef { name: "r.io/web".to_owned(), tag: tag.to_owned(), digest: None }
    }

    fn pushed() -> PushedCommit {
        let [old_value, new_value, setter] =
            ["r.io/web:1", "r.io/web:2", "apps:web"].map(str::to_owned);
        PushedCommit {
            commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
            message: "update".into(),
            committed: 0,
            changes: vec![ImageValueChange { old_value, new_value, setter }],
            values: CommittedValues::default(),
        }
    }

    /// What was done in an update without a pull request.
    fn update(
        revision: &str,
        pushed: Option<PushedCommit>,
        findings: &[String],
    ) -> AutomationResult {
        let revision = revision.to_owned();
        let findings = IgnoredMarkers::of(findings);
        result(Some(AutomationUpdateReport {
            revision,
            pushed,
            unmerged: None,
            merge: None,
            findings,
        }))
    }

    fn result(update: Option<AutomationUpdateReport>) -> AutomationResult {
        let policies = BTreeMap::from([("web".to_owned(), version("2"))]);
        let branch = "main".to_owned();
        AutomationResult {
            policies,
            update,
            undone_until: None,
            branch,
            refspec: None,
            pull_request: None,
        }
    }

    #[test]
    fn ready_says_which_pull_request_there_is_and_is_false_where_the_forge_failed() {
        let outcome = |pull_request| AutomationResult { pull_request, ..result(None) }.outcome();
        let settled =
            |text: &str| RunOutcome::Settled(condition_reason::SUCCEEDED, text.to_owned());
        let of = |change: PullRequestOutcome, url: &str| {
            outcome(Some(Ok(PullRequest { number: 7, url: url.to_owned(), change })))
        };
        assert_eq!(outcome(None), settled("repository up-to-date"), "Flux's words");
        let open = settled("repository up-to-date; pull request 7 is open: https://git.io/7");
        for change in [
            PullRequestOutcome::Created,
            PullRequestOutcome::Updated,
            PullRequestOutcome::Unchanged,
        ] {
            assert_eq!(of(change, "https://git.io/7"), open);
        }
        assert_eq!(
            of(PullRequestOutcome::Ended, ""),
            settled(
                "repository up-to-date; pull request 7 was closed or merged, and windlass opens another one only for a \
                 newer commit"
            )
        );
        let failure = RunOutcome::Failed(
            condition_reason::SUCCEEDED,
            "refused".to_owned(),
            NextRunTrigger::default(),
        );
        assert_eq!(outcome(Some(Err(failure.clone()))), failure);
    }

    #[test]
    fn a_commit_is_shown_in_the_status_until_the_next_one() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let mut status = ImageUpdateAutomationStatus::default();
        let update = |revision: &str, pushed| update(revision, pushed, &[]);
        update("main@sha1:2", Some(pushed())).show(&mut status, now);
        assert_eq!(status.last_push_commit, Some(pushed().commit));
        assert_eq!(status.last_push_time, Some(Time(now)));
        assert_eq!(status.observed_source_revision.as_deref(), Some("main@sha1:2"));
        assert_eq!(status.observed_policies["web"], version("2"));
        let before = status.clone();
        result(None).show(&mut status, now);
        assert_eq!(status, before, "nothing changed since the last run");
        update("main@sha1:3", None).show(&mut status, now);
        assert_eq!(status.observed_source_revision.as_deref(), Some("main@sha1:3"));
        assert_eq!(status.last_push_commit, before.last_push_commit);
    }

    #[test]
    fn a_commit_that_no_status_names_is_reported_by_the_next_run_once() {
        let update = |pushed| update("main@sha1:2", pushed, &[]);
        let mut unreported = Some(pushed());
        let mut next = update(None);
        next.complete(&mut unreported);
        assert_eq!((next.pushed(), &unreported), (Some(&pushed()), &None));
        let newer = PushedCommit { commit: "1".repeat(40), ..pushed() };
        let mut unreported = Some(pushed());
        let mut next = update(Some(newer.clone()));
        next.complete(&mut unreported);
        assert_eq!((next.pushed(), &unreported), (Some(&newer), &None));
        // The status names it after all: its write only lacked an answer.
        let mut unreported = Some(pushed());
        let mut next = result(None);
        next.complete(&mut unreported);
        assert_eq!((next.pushed(), &unreported), (None, &None));
    }

    #[test]
    fn the_event_of_a_commit_says_which_policy_set_what() {
        let event = result(None).event(&pushed());
        assert_eq!(event.message, "pushed commit '0123456' to branch 'main'\nupdate");
        assert_eq!(event.metadata[CHANGES_KEY], "apps:web: r.io/web:1 -> r.io/web:2");
        let long = PushedCommit { message: "x".repeat(1 << 20).into(), ..pushed() };
        assert!(result(None).event(&long).message.len() < 2 * MAX_EVENT_BYTES);
    }

    #[test]
    fn markers_without_effect_are_reported_once() {
        let mut known = String::new();
        let findings = IgnoredMarkers::of(&["a.yaml:1: no policy".to_owned()]);
        let event = ignored(&mut known, &findings).unwrap();
        assert_eq!(event.message, "markers without effect: a.yaml:1: no policy");
        assert_eq!(ignored(&mut known, &findings), None);
        assert_eq!(ignored(&mut known, &IgnoredMarkers::default()), None);
        assert!(ignored(&mut known, &findings).is_some());
    }

    #[test]
    fn markers_without_effect_are_a_condition_until_there_are_none() {
        let mut object: ImageUpdateAutomation = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "apps", "generation": 1},
            "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "a"}},
        }))
        .unwrap();
        let mut shown = |result: &AutomationResult| {
            let report = report_with(
                &object,
                &result.outcome(),
                FailureAnnouncement::Made,
                Timestamp::now(),
                KindSpecificConditions {
                    types: &[MARKERS_IGNORED],
                    set: &|it| show_ignored(Some(result), it),
                },
                |_| {},
            );
            let conditions = report.after.conditions.clone();
            object.status = Some(report.after);
            let found = conditions.into_iter().find(|it| it.type_ == MARKERS_IGNORED);
            found.map(|it| format!("{} {}", it.status, it.message))
        };
        let said = Some("True markers without effect: a.yaml:1: no policy".to_owned());
        let findings = ["a.yaml:1: no policy".to_owned()];
        assert_eq!(shown(&update("main@sha1:1", None, &findings)), said);
        assert_eq!(shown(&result(None)), said, "nothing was read");
        assert_eq!(shown(&update("main@sha1:2", None, &[])), None);
    }

    #[test]
    fn while_another_writer_is_given_time_ready_does_not_say_that_all_is_up_to_date() {
        let until: Timestamp = "2026-11-01T00:01:00.7Z".parse().unwrap();
        let outcome = AutomationResult { undone_until: Some(until), ..result(None) }.outcome();
        let text = "another writer undid values that were committed a moment ago: they are committed again after \
                    2026-11-01T00:01:00Z, or on request";
        assert_eq!(outcome, RunOutcome::Settled(condition_reason::SUCCEEDED, text.to_owned()));
    }
}
