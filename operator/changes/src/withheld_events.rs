//! Events that the verdict of a change replaces, and the event about the verdict.
//!
//! An Alert with the annotation gets one event about the source when its change has a verdict. It gets no events about members
//! while they are under way. Other events about members are sent as usual. Elsewhere: which Alerts select an event
//! (`notification_controller::delivery`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use changes::change_verdict::ChangeVerdict;
use crds::helmfile::Helmfile;
use crds::kustomize::{CrossNamespaceSourceReference, Kustomization};
use crds::notification::Alert;
use crds::source::{Bucket, ExternalArtifact, GitRepository, OCIRepository};
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use crds::{Artifact, ArtifactSource};
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::ObjectKey;

use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

use super::change_set_writer::{of_source, verdict_of};
use super::first_failure::first_failure;
use super::followed_change::FollowedChange;
use super::observed_sources::{ObservedSource, source_of};

/// The annotation of an Alert that gets the verdict of a change in place of events about members.
const CHANGE_SETS: &str = "windlass.dev/change-sets";

/// The reasons of events about verdicts.
const SUCCEEDED: &str = "ChangeSucceeded";
const FAILED: &str = "ChangeFailed";
const ROLLED_BACK: &str = "ChangeRolledBack";
const STALLED: &str = "ChangeStalled";

/// The longest message of a Kubernetes Event. A longer message is cut.
const EVENT_MESSAGE_BYTES: usize = 1024;

/// The members of changes that are under way, as the process that follows the changes last saw them.
#[derive(Default)]
pub(crate) struct OngoingChangeMembers {
    is_kept: AtomicBool,
    /// The kind, namespace and name of each member.
    members: Mutex<BTreeSet<[String; 3]>>,
    /// The uids of sources whose ChangeSets cannot be written, so that no verdict may come.
    rejected: Mutex<BTreeSet<String>>,
}

impl OngoingChangeMembers {
    /// Sets whether changes are followed, so that each will have a verdict.
    pub(crate) fn set_kept(&self, is_kept: bool) {
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    pub(crate) fn set_members(&self, members: BTreeSet<[String; 3]>) {
        *self.members.lock() = members;
    }

    pub(crate) fn set_rejected(&self, rejected: BTreeSet<String>) {
        *self.rejected.lock() = rejected;
    }
}

/// Whether an Alert gets verdicts.
#[must_use]
pub fn is_wanted(alert: &Alert) -> bool {
    alert.annotations().get(CHANGE_SETS).is_some_and(|text| text.trim() == "true")
}

/// Whether an event is about a verdict, by its reason.
#[must_use]
pub fn is_about_verdict(reason: &str) -> bool {
    [SUCCEEDED, FAILED, ROLLED_BACK, STALLED].contains(&reason)
}

/// The facts about an event that decide whether a verdict replaces it.
#[derive(Debug, Clone, Copy)]
pub struct WithheldEventCandidate<'e> {
    /// The kind of the object.
    pub kind: &'e str,
    /// The namespace of the object.
    pub namespace: &'e str,
    /// The name of the object.
    pub name: &'e str,
    /// The revision in the event, if it has one.
    pub revision: Option<&'e str>,
    /// Whether the event reports a failure.
    pub is_error: bool,
}

/// Whether an event is about a member of a change without a verdict, or about its source.
#[must_use]
pub fn is_replaced_by_verdict(context: &RunContext, event: &WithheldEventCandidate<'_>) -> bool {
    let under_way = context.shared::<OngoingChangeMembers>();
    if !under_way.is_kept.load(Ordering::Relaxed) {
        return false;
    }
    let WithheldEventCandidate { kind, namespace, name, revision, is_error } = *event;
    let member = [kind, namespace, name].map(str::to_owned);
    if under_way.members.lock().contains(&member) {
        return true;
    }
    let Some(revision) = revision else { return false };
    let source = match kind {
        kind if kind == Kustomization::kind(&()) => {
            let object = context.seen::<Kustomization>(namespace, name);
            object.and_then(|it| source_of(context, namespace, &it.spec.source_ref))
        }
        kind if kind == Helmfile::kind(&()) => {
            let object = context.seen::<Helmfile>(namespace, name);
            object.and_then(|it| source_of(context, namespace, it.spec.source_ref.as_ref()?))
        }
        // If a source fails to fetch, no change begins. Without users, a source has no change either.
        kind if !is_error => {
            let node = ObjectKey::new(SOURCES, kind, namespace, name);
            has_consumers(context, &node).then_some(node)
        }
        _ => None,
    };
    source.is_some_and(|source| awaits_verdict(context, &source, revision))
}

/// Whether an applier uses a source.
fn has_consumers(context: &RunContext, source: &ObjectKey) -> bool {
    let names = |namespace: Option<String>, named: &CrossNamespaceSourceReference| {
        source_of(context, &namespace.unwrap_or_default(), named).as_ref() == Some(source)
    };
    let kustomizations = context.store::<Kustomization>().state();
    kustomizations.iter().any(|it| names(it.namespace(), &it.spec.source_ref))
        || context
            .store::<Helmfile>()
            .state()
            .iter()
            .any(|it| it.spec.source_ref.as_ref().is_some_and(|named| names(it.namespace(), named)))
}

/// Whether the change of this revision has no verdict yet.
fn awaits_verdict(context: &RunContext, source: &ObjectKey, revision: &str) -> bool {
    let Some((uid, artifact)) = seen_source(context, source) else { return false };
    if context.shared::<OngoingChangeMembers>().rejected.lock().contains(&uid) {
        return false;
    }
    let table = context.shared::<WatchedObjectCache<ChangeSet>>();
    let own = of_source(&table, &source.namespace, &uid);
    let Some(change) = own.iter().rev().find(|it| it.spec.revision == revision) else {
        // The change was not noticed yet.
        return true;
    };
    let is_newest = own.last().is_some_and(|it| it.spec.sequence == change.spec.sequence);
    match is_newest {
        true => verdict_of(change) == ChangeSetVerdict::Progressing,
        // A revision that comes back is a new change.
        false => artifact.revision == revision,
    }
}

/// The uid and the artifact of a source, as the watch last saw them. `None` if the source or its artifact does not exist, or if
/// no watch sees the kind.
fn seen_source(context: &RunContext, source: &ObjectKey) -> Option<(String, Artifact)> {
    fn seen<K: WindlassKind + ArtifactSource>(
        context: &RunContext,
        source: &ObjectKey,
    ) -> Option<(String, Artifact)> {
        let object = context.seen::<K>(&source.namespace, &source.name)?;
        Some((object.uid()?, object.artifact()?.clone()))
    }
    match source.kind.as_str() {
        "Bucket" => seen::<Bucket>(context, source),
        "ExternalArtifact" => seen::<ExternalArtifact>(context, source),
        "GitRepository" => seen::<GitRepository>(context, source),
        "OCIRepository" => seen::<OCIRepository>(context, source),
        _ => None,
    }
}

/// Announces the verdict of a change on its source, if an Alert gets verdicts. A superseded change is not announced, because
/// the next verdict covers it.
pub(crate) fn announce(context: &RunContext, change: &FollowedChange, source: &ObservedSource) {
    if !context.store::<Alert>().state().iter().any(|alert| is_wanted(alert)) {
        return;
    }
    if let Some(event) = event(change, first_failure(context, change).as_deref()) {
        context.events.announce_about(source.about.clone(), source.controller, event);
    }
}

/// The event about the verdict of a change. `failure` is the first member that failed, with its cause. `None` if the verdict is
/// not announced.
fn event(change: &FollowedChange, failure: Option<&str>) -> Option<ObjectEvent> {
    let (reason, severity) = match change.verdict() {
        ChangeVerdict::Succeeded => (SUCCEEDED, EventSeverity::Info),
        ChangeVerdict::Failed => (FAILED, EventSeverity::Error),
        ChangeVerdict::RolledBack => (ROLLED_BACK, EventSeverity::Error),
        ChangeVerdict::Stalled => (STALLED, EventSeverity::Error),
        ChangeVerdict::Progressing | ChangeVerdict::Superseded => return None,
    };
    let subject = change.spec.commit.as_ref().map(|it| format!(" ({})", it.subject));
    let failure = failure.map(|failure| format!("; {failure}"));
    let text = format!(
        "change {} of revision {}{}: {}{}",
        change.name,
        change.spec.revision,
        subject.unwrap_or_default(),
        change.message(),
        failure.unwrap_or_default()
    );
    let message = match change.way_back() {
        Some(command) => with_command(text, &command),
        None => text,
    };
    let metadata = BTreeMap::from([
        (format!("{SOURCES}/revision"), change.spec.revision.clone()),
        (format!("{SOURCES}/change"), change.name.clone()),
    ]);
    Some(ObjectEvent { severity, reason: reason.to_owned(), message, metadata })
}

/// A text with the command that rolls a change back at its end, so that an engineer on call needs only the message. If the
/// whole is too long, the text is cut and not the command.
fn with_command(mut text: String, command: &str) -> String {
    const CUT: &str = " ...";
    let end = format!("; to take it back: {command}");
    let room = EVENT_MESSAGE_BYTES.saturating_sub(end.len());
    if text.len() > room {
        text.truncate(text.floor_char_boundary(room.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text + &end
}

#[cfg(test)]
mod tests {
    use crds::notification::AlertSpec;
    use crds::windlass_release::{ChangeSetCommit, ChangeSetSpec, ChangeSetStatus};

    use super::*;

    #[test]
    fn the_command_is_whole_however_long_the_text_before_it_is() {
        let command = "windlass rollback change/fleet-2-x -n shop";
        assert_eq!(with_command("a".to_owned(), command), format!("a; to take it back: {command}"));
        let long = with_command("界".repeat(400), command);
        assert!(long.len() <= EVENT_MESSAGE_BYTES, "{}", long.len());
        assert!(long.ends_with(&format!("界 ...; to take it back: {command}")), "{long}");
    }

    #[test]
    fn an_alert_is_sent_verdicts_if_its_annotation_says_so() {
        let with = |text: &str| {
            let mut alert = Alert::new("a", AlertSpec::default());
            alert.metadata.annotations = Some([(CHANGE_SETS.to_owned(), text.to_owned())].into());
            is_wanted(&alert)
        };
        assert!(with("true") && with(" true ") && !with("false") && !with(""));
        assert!(!is_wanted(&Alert::new("a", AlertSpec::default())));
    }

    #[test]
    fn the_event_names_change_commit_and_verdict_and_a_superseded_change_has_none() {
        let change = |verdict: &str| {
            let commit = ChangeSetCommit { subject: "Scale".to_owned(), ..Default::default() };
            let spec = ChangeSetSpec {
                revision: "main@sha1:2".to_owned(),
                commit: Some(commit),
                sequence: 2,
                ..ChangeSetSpec::default()
            };
            let status = serde_json::json!({"verdict": verdict});
            let status: ChangeSetStatus = serde_json::from_value(status).unwrap();
            let since = jiff::Timestamp::UNIX_EPOCH;
            FollowedChange::new("shop", "fleet-2-x", spec, Some(&status), since)
        };
        let failed = event(&change("Failed"), None).unwrap();
        assert_eq!((failed.reason.as_str(), failed.severity), (FAILED, EventSeverity::Error));
        assert_eq!(
            failed.message,
            "change fleet-2-x of revision main@sha1:2 (Scale): it changes no applier; to take it back: windlass rollback \
             change/fleet-2-x -n shop"
        );
        let succeeded = event(&change("Succeeded"), None).unwrap();
        assert!(!succeeded.message.contains("windlass rollback"), "{}", succeeded.message);
        assert!(is_about_verdict(&failed.reason) && !is_about_verdict("HealthCheckFailed"));
        assert_eq!(failed.metadata["source.toolkit.fluxcd.io/revision"], "main@sha1:2");
        let cause = "ks/web failed: health check failed after 15s";
        let named = event(&change("Failed"), Some(cause)).unwrap().message;
        let end = format!("; {cause}; to take it back: windlass rollback change/fleet-2-x -n shop");
        assert!(named.ends_with(&end), "{named}");
        for verdict in ["Superseded", "Progressing"] {
            assert!(event(&change(verdict), None).is_none(), "{verdict}");
        }
    }
}
