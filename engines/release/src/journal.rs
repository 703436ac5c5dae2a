//! The journal of an operation on a release: its progress, stored together with the record of its revision.
//!
//! It is JSON in the annotation [`ANNOTATION`] on the Secret of the record. Helm does not read the annotation, and drops it
//! when Helm writes the record. Each write uses the `resourceVersion` that was read. A conflict means that another client works
//! on the release, and ends the run.
//!
//! The tasks of an operation follow from the action, its [`OperationPlan`] and the hooks of the record ([`crate::operation`]).
//! None of these change during the operation, so the journal only needs the position in the list of tasks.
//!
//! Here: the journal and its format. Elsewhere: the tasks, and the code that advances the position.

use lifecycle::{HoldingLifecycle, LifecycleEventAnswer};
use reconcile::Time;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::operation_origin::OperationOrigin;
use crate::time_json;

/// The annotation that holds the journal.
pub const ANNOTATION: &str = "windlass.dev/release-journal";
/// The annotation on the object of a hook with the [`OperationJournal::id`] of the operation that created the object.
pub const HOOK_ANNOTATION: &str = "windlass.dev/release-operation";

/// The longest text in the journal, in bytes.
const MAX_TEXT: usize = 8 << 10;
/// The most created objects that are recorded for a cleanup.
const MAX_CREATED: usize = 1000;
/// The most taken-over objects that are recorded.
const MAX_ADOPTED: usize = 1000;
/// The most faults that are recorded.
const MAX_FAULTS: usize = 16;

/// An operation on a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A first revision.
    Install,
    /// The next revision, of a chart.
    Upgrade,
    /// The next revision gets the content of an earlier one.
    Rollback,
    /// The tests of the last revision.
    Test,
    /// The release is uninstalled.
    Uninstall,
    /// The release is uninstalled because its last revision failed.
    UninstallRemediation,
}

impl OperationKind {
    /// The name of the operation in Flux's messages and statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Test => "test",
            // Parity(flux): the name does not distinguish a remediation from an ordinary uninstallation.
            Self::Uninstall | Self::UninstallRemediation => "uninstall",
        }
    }

    /// Whether the operation undoes a failed one.
    pub(crate) fn is_remediation(self) -> bool {
        matches!(self, Self::Rollback | Self::UninstallRemediation)
    }

    /// Whether the operation makes a revision of the desired chart.
    pub fn is_release(self) -> bool {
        matches!(self, Self::Install | Self::Upgrade)
    }

    /// Whether the operation removes the release.
    pub fn is_removal(self) -> bool {
        matches!(self, Self::Uninstall | Self::UninstallRemediation)
    }
}

/// The objects that are waited for after all were applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseWaitPolicy {
    /// Waits for no objects.
    Nothing,
    /// Waits for objects to be ready. Jobs count as ready once they exist.
    Objects,
    /// Objects are ready, and Jobs are over.
    #[default]
    ObjectsAndJobs,
}

/// How the deletion of an object treats its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they are Kubernetes' words")]
pub enum UninstallPropagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

impl UninstallPropagation {
    /// The spelling in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The decisions that were made when an operation began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationPlan {
    /// Whether hooks are run.
    pub hooks: bool,
    /// Whether objects are waited for.
    pub wait: ReleaseWaitPolicy,
    /// Whether created objects are deleted if the operation fails.
    pub cleanup: bool,
    /// Whether the operation keeps all objects with data, even if the owner changes before it ends. It is set for the rollback
    /// after a failure if the owner's annotation asks for one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_data: bool,
    /// Whether records stay after the release is uninstalled.
    pub keep_history: bool,
    /// How the deletion of an object treats its dependents.
    pub propagation: UninstallPropagation,
    /// For a test, the indexes of the hooks to run; `None` runs all.
    pub selected: Option<Vec<usize>>,
    /// How long each hook and each wait may take, in milliseconds.
    pub timeout_ms: u64,
    /// The lifecycles that hold the operation at its phases, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldingLifecycle>,
}

impl Default for OperationPlan {
    fn default() -> Self {
        Self {
            hooks: true,
            wait: ReleaseWaitPolicy::default(),
            cleanup: false,
            holds_data: false,
            keep_history: false,
            propagation: UninstallPropagation::default(),
            selected: None,
            timeout_ms: 300_000,
            holds: Vec::new(),
        }
    }
}

/// Why an operation failed or was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationFailure {
    /// The position in the list of tasks at which the operation failed.
    pub at: usize,
    /// Whether the object of a hook ended badly, rather than was not created.
    #[serde(default)]
    pub hook_ended: bool,
    /// The error, in Helm's words.
    pub text: String,
    /// Whether the failure counts and is remediated.
    pub counts: bool,
}

/// A kind of task that takes time and is not a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimedTaskKind {
    /// Objects are applied.
    Apply,
    /// Waits until objects are ready.
    Wait,
    /// Objects are deleted.
    Delete,
    /// Waits until objects are deleted.
    WaitGone,
    /// The objects that a failed operation created are deleted.
    CleanUp,
}

/// A task of an operation that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletedTask {
    /// Which.
    pub task: TimedTaskKind,
    /// When the task began.
    #[serde(with = "time_json")]
    pub started: Time,
    /// When the task ended.
    #[serde(with = "time_json")]
    pub ended: Time,
    /// Whether the task failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// The journal of an operation in progress, or of the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationJournal {
    /// The id of the operation: `NAME.vN.DIGITS`.
    pub id: String,
    /// The uid of the HelmRelease.
    pub owner: String,
    /// [`crate::ReleaseDesiredState::kube_context`] of its owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kube_context: String,
    /// The action.
    pub action: OperationKind,
    /// The digest of the desired state.
    pub inputs: String,
    /// For upgrades and rollbacks, the revision whose objects are compared with the new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<i64>,
    /// The revision that is rolled back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<i64>,
    /// The decisions that were made at the beginning.
    pub plan: OperationPlan,
    /// The value that the action's failure counter gets if the operation fails.
    pub attempt: i64,
    /// The value that the counter of all failures gets if the operation fails.
    pub failures: i64,
    /// The handled request to force an upgrade: the value of `reconcile.fluxcd.io/forceAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<String>,
    /// The digest of the artifact of the chart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub oci_digest: String,
    /// The inputs with which the operation was begun.
    #[serde(default, skip_serializing_if = "OperationOrigin::is_unknown")]
    pub origin: OperationOrigin,
    /// When the operation began.
    #[serde(with = "time_json")]
    pub started: Time,
    /// When the present task began.
    #[serde(with = "time_json")]
    pub since: Time,
    /// The position of the present task in the list. After a failure, the position in the list of tasks that follow the
    /// failure.
    pub at: usize,
    /// The uid of the present hook's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_uid: Option<String>,
    /// Whether the object of the present hook may have been created. This is written before the creation if the object may be
    /// deleted again before a run observes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hook_begun: bool,
    /// Inventory ids of the created objects, if they are deleted after a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created: Vec<String>,
    /// Inventory ids of objects that existed before they were applied, although the previous revision does not have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<String>,
    /// Errors that did not stop a removal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Tasks that are over, except hooks, which the record has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<CompletedTask>,
    /// How many objects the operation was to delete without the approval of a user.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletions: usize,
    /// The answers of lifecycles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<LifecycleEventAnswer>,
    /// Why the operation failed or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<OperationFailure>,
    /// When the operation ended.
    #[serde(default, with = "time_json::exact", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Whether the status of the HelmRelease reports its end.
    #[serde(default)]
    pub accounted: bool,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The annotation holds no journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the annotation `{ANNOTATION}` holds no journal: {0}")]
pub struct OperationJournalError(String);

impl OperationJournal {
    /// The journal of an operation that begins: the first attempt with no task done. The caller fills in inputs and plan.
    pub fn begin(id: String, owner: String, action: OperationKind, started: Time) -> Self {
        Self {
            id,
            owner,
            kube_context: String::new(),
            action,
            inputs: String::new(),
            base: None,
            target: None,
            plan: OperationPlan::default(),
            attempt: 1,
            failures: 1,
            force: None,
            oci_digest: String::new(),
            origin: OperationOrigin::default(),
            started,
            since: started,
            at: 0,
            hook_uid: None,
            hook_begun: false,
            created: Vec::new(),
            adopted: Vec::new(),
            faults: Vec::new(),
            passed: Vec::new(),
            deletions: 0,
            answers: Vec::new(),
            failure: None,
            ended: None,
            accounted: false,
        }
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// The annotation was changed by another client.
    pub fn parse(text: &str) -> Result<Self, OperationJournalError> {
        // The JSON has at most three levels. serde_json limits the nesting of other texts.
        serde_json::from_str(text).map_err(|error| OperationJournalError(error.to_string()))
    }

    /// The text of the annotation in which the journal is stored.
    pub fn text(&self) -> String {
        // No field has a key that is not text, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the operation still has something to do.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// The time after which the present task counts as late.
    pub fn deadline(&self) -> Time {
        let timeout = std::time::Duration::from_millis(self.plan.timeout_ms);
        self.since.saturating_add(timeout).unwrap_or(Time::MAX)
    }

    /// Records created objects. Objects beyond the limit stay in the cluster if the operation fails.
    pub(crate) fn remember_created(&mut self, created: &[String]) {
        self.created = created.iter().take(MAX_CREATED).cloned().collect();
    }

    /// Records objects that were taken over. Objects beyond the limit count as created in the audit.
    pub(crate) fn remember_adopted(&mut self, adopted: &[String]) {
        self.adopted = adopted.iter().take(MAX_ADOPTED).cloned().collect();
    }

    /// Remembers the present task, which is over.
    pub(crate) fn pass(&mut self, task: Option<TimedTaskKind>, ended: Time, failed: bool) {
        let started = self.since;
        self.passed.extend(task.map(|task| CompletedTask { task, started, ended, failed }));
    }

    pub(crate) fn add_fault(&mut self, text: &str) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(shortened(text));
        }
    }
}

/// A text that the journal can hold.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

/// The id of an operation on a revision. Every new operation has another id.
pub fn operation_id(
    release: &str,
    version: i64,
    action: OperationKind,
    inputs: &str,
    started: Time,
) -> String {
    let text = format!("{}\n{inputs}\n{started}", action.as_str());
    let digest = hex::encode(Sha256::digest(text));
    format!("{release}.v{version}.{}", &digest[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_back() {
        let journal = OperationJournal {
            id: "web.v2.0123456789ab".to_owned(),
            owner: "uid".to_owned(),
            kube_context: "east".to_owned(),
            action: OperationKind::UninstallRemediation,
            inputs: "sha256:0".to_owned(),
            base: Some(1),
            target: None,
            plan: OperationPlan { selected: Some(vec![1]), ..OperationPlan::default() },
            attempt: 1,
            failures: 2,
            force: Some("now".to_owned()),
            oci_digest: String::new(),
            origin: OperationOrigin { generation: 2, ..OperationOrigin::default() },
            started: Time::UNIX_EPOCH,
            since: "2026-02-03T04:05:06.789Z".parse().unwrap(),
            at: 3,
            hook_uid: Some("u".to_owned()),
            hook_begun: true,
            created: vec!["ns_a__Secret".to_owned()],
            adopted: vec!["ns_b__Secret".to_owned()],
            faults: vec!["a".to_owned()],
            passed: vec![CompletedTask {
                task: TimedTaskKind::Apply,
                started: Time::UNIX_EPOCH,
                ended: Time::UNIX_EPOCH,
                failed: true,
            }],
            deletions: 3,
            answers: Vec::new(),
            failure: Some(OperationFailure {
                at: 2,
                hook_ended: true,
                text: "b".to_owned(),
                counts: true,
            }),
            ended: Some(Time::UNIX_EPOCH),
            accounted: true,
        };
        assert_eq!(OperationJournal::parse(&journal.text()), Ok(journal));
    }

    #[test]
    fn what_is_no_journal_is_said() {
        for text in ["", "{", "[]", "{}", r#"{"id":1}"#] {
            let error = OperationJournal::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the annotation `windlass.dev/release-journal`"), "{error}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let short = shortened(&"é".repeat(MAX_TEXT));
        assert!(short.len() <= MAX_TEXT + 3 && short.ends_with("é…"));
        assert_eq!(shortened("a"), "a");
    }

    #[test]
    fn the_same_thing_done_twice_has_two_names() {
        let id = |second| {
            let started = Time::from_second(second).unwrap();
            operation_id("web", 1, OperationKind::Test, "sha256:0", started)
        };
        assert_ne!(id(1), id(2));
        assert!(id(1).starts_with("web.v1.") && id(1).len() == "web.v1.".len() + 12);
    }
}
