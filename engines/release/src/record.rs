//! The record of a release: the data that Helm 4.2 stores for each revision (`pkg/release/v1`).
//!
//! Here: the record and how an operation changes it. Below: its JSON, written (`record/encode.rs`) and read
//! (`record/decode.rs`). Elsewhere: the Secret that holds it ([`crate::storage`]), which revisions there are
//! ([`crate::revisions`]), its digest ([`crate::release_snapshot`]).

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use golang::time::{GoTimeZone, RFC3339_NANO};
use golang::value::GoMap;
use helm::chart::{Chart, ChartMetadata};
use helm::manifests::{HookEvent, ReleaseHook};
use reconcile::Time;

pub use decode::RecordDecodeError;
pub(crate) use encode::{
    OrderedJsonFields, hook as hook_json, info as info_json, metadata as metadata_json,
};
pub use golang::json::JsonEncodeError;

/// A stored revision of a release.
///
/// `Debug` shows only its identity, because values, manifests and notes may contain secrets.
#[derive(Clone)]
pub struct ReleaseRecord {
    /// The release.
    pub name: String,
    /// The namespace of objects that do not set one.
    pub namespace: String,
    /// The revision, from 1 on.
    pub version: i64,
    /// The state of the revision.
    pub info: RevisionInfo,
    /// The chart. Records that Helm wrote always have one.
    pub chart: Option<StoredChart>,
    /// The values of the user, without those of the chart.
    pub config: GoMap,
    /// The manifests in the order in which they are applied, each after a line `---`.
    pub manifest: String,
    /// The hooks, by kind.
    pub hooks: Vec<HookRecord>,
    /// `ssa`, `csa`, or empty in records of Helm 3, which means the latter.
    pub apply_method: String,
    /// Labels of the release that were set by users. They are not in the JSON, but on the Secret.
    pub labels: BTreeMap<String, String>,
}

impl fmt::Debug for ReleaseRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, namespace, version, info, .. } = self;
        write!(f, "{namespace}/{name}.v{version} {}", info.status)
    }
}

/// The times, the status and the notes of a revision.
#[derive(Clone, Default)]
pub struct RevisionInfo {
    /// When the first revision was begun.
    pub first_deployed: Option<GoTimestamp>,
    /// When this revision was begun.
    pub last_deployed: Option<GoTimestamp>,
    /// When the removal was begun.
    pub deleted: Option<GoTimestamp>,
    /// A description for users.
    pub description: String,
    /// The status of the revision.
    pub status: RevisionStatus,
    /// The notes for users after an installation.
    pub notes: String,
    /// A field that some Helm clients added. It is kept unchanged.
    pub resources: Option<GoMap>,
}

/// The status of a revision (`pkg/release/common Status`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RevisionStatus {
    /// No status.
    #[default]
    Unset,
    /// The objects of the revision are in the cluster.
    Deployed,
    /// The release was uninstalled and its history kept.
    Uninstalled,
    /// A later revision replaced this one.
    Superseded,
    /// Something went wrong.
    Failed,
    /// The release is being uninstalled, or that failed.
    Uninstalling,
    /// The revision is being installed.
    PendingInstall,
    /// The release is being upgraded to this revision.
    PendingUpgrade,
    /// The release is being rolled back to this revision.
    PendingRollback,
    /// `unknown`, or a word that Helm does not know.
    Other(String),
}

impl RevisionStatus {
    /// The word for the status in records and labels.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unset => "",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
            Self::Other(word) => word,
        }
    }

    /// Reads the word for a status.
    pub fn parse(word: &str) -> Self {
        let known = [
            Self::Unset,
            Self::Deployed,
            Self::Uninstalled,
            Self::Superseded,
            Self::Failed,
            Self::Uninstalling,
            Self::PendingInstall,
            Self::PendingUpgrade,
            Self::PendingRollback,
        ];
        known
            .into_iter()
            .find(|status| status.as_str() == word)
            .unwrap_or_else(|| Self::Other(word.to_owned()))
    }

    /// Whether an operation on the revision was begun and not ended.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

impl fmt::Display for RevisionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A time in Go's form, which keeps nanoseconds and the offset of the time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoTimestamp(golang::time::GoTime);

/// The second in which Go's zero time is.
const GO_ZERO_TIME_SECONDS: i64 = -62_135_596_800;

impl GoTimestamp {
    /// A time in UTC.
    pub fn new(time: Time) -> Self {
        let seconds = time.as_second();
        let nanos = time.subsec_nanosecond();
        Self(golang::time::GoTime::from_unix(seconds, nanos.into(), GoTimeZone::Utc))
    }

    /// Reads RFC 3339. `None` stands for Go's zero time, and for the empty text that Helm 3 wrote for it.
    ///
    /// # Errors
    /// The message of Go.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let time = golang::time::GoTime::parse(RFC3339_NANO, text, &GoTimeZone::Utc)
            .map_err(|error| error.to_string())?;
        Ok((time.unix() != GO_ZERO_TIME_SECONDS || time.nanosecond() != 0).then_some(Self(time)))
    }

    /// The time in RFC 3339, with as many digits as are needed.
    pub fn text(&self) -> String {
        self.0.format(RFC3339_NANO)
    }

    /// The time as an instant; `None` if it is out of range.
    pub fn time(&self) -> Option<Time> {
        Time::new(self.0.unix(), i32::try_from(self.0.nanosecond()).ok()?).ok()
    }

    /// The time in whole seconds, as statuses carry it; `None` if it is out of range.
    pub fn whole_second(&self) -> Option<Time> {
        Time::from_second(self.0.unix()).ok()
    }
}

impl From<Time> for GoTimestamp {
    fn from(time: Time) -> Self {
        Self::new(time)
    }
}

/// A chart in a record, without its subcharts, which Helm does not store.
#[derive(Debug, Clone, Default)]
pub struct StoredChart {
    /// The content of `Chart.yaml`.
    pub metadata: Option<ChartMetadata>,
    /// The content of `Chart.lock`.
    pub lock: Option<StoredChartLock>,
    /// The templates. An absent list and an empty list are different in JSON.
    pub templates: Option<Vec<StoredFile>>,
    /// The values of the chart, including values imported from its subcharts.
    pub values: Option<GoMap>,
    /// The content of `values.schema.json`.
    pub schema: Option<Arc<[u8]>>,
    /// When the schema was last changed.
    pub schema_changed: Option<GoTimestamp>,
    /// The other files of the chart.
    pub files: Option<Vec<StoredFile>>,
    /// When the chart was last changed.
    pub changed: Option<GoTimestamp>,
}

impl StoredChart {
    /// The stored form of a chart whose dependencies were processed.
    ///
    /// Differs(helm 4): the times at which its files were changed are left out; nothing reads them.
    pub fn of(chart: &Chart) -> Self {
        let files = |files: &[helm::chart::ChartFile]| {
            let stored = files.iter().map(|file| StoredFile {
                name: file.name.clone(),
                data: Arc::clone(&file.data),
                changed: None,
            });
            (!files.is_empty()).then(|| stored.collect())
        };
        Self {
            metadata: Some(chart.metadata.clone()),
            lock: chart.lock.as_ref().map(|lock| StoredChartLock {
                generated: GoTimestamp::parse(&lock.generated).unwrap_or_default(),
                digest: lock.digest.clone(),
                dependencies: Some(lock.dependencies.clone()),
            }),
            templates: files(&chart.templates),
            values: Some(chart.values.clone()),
            schema: chart.schema.clone(),
            schema_changed: None,
            files: files(&chart.files),
            changed: None,
        }
    }
}

/// The part of `Chart.lock` that a record contains.
#[derive(Debug, Clone, Default)]
pub struct StoredChartLock {
    /// When the lock file was written.
    pub generated: Option<GoTimestamp>,
    /// A digest of the listed and the resolved dependencies.
    pub digest: String,
    /// The resolved dependencies. An absent list and an empty list are different in JSON.
    pub dependencies: Option<Vec<helm::chart::ChartDependency>>,
}

/// A file of a stored chart.
#[derive(Debug, Clone, Default)]
pub struct StoredFile {
    /// The path of the file in the chart.
    pub name: String,
    /// The content of the file.
    pub data: Arc<[u8]>,
    /// When the file was last changed.
    pub changed: Option<GoTimestamp>,
}

/// A hook in a record.
#[derive(Debug, Clone, Default)]
pub struct HookRecord {
    /// The object's name.
    pub name: String,
    /// The object's kind.
    pub kind: String,
    /// The template file of the hook.
    pub path: String,
    /// The rendered manifest of the hook.
    pub manifest: String,
    /// The events at which the hook runs, in Helm's words.
    pub events: Vec<String>,
    /// The last run of the hook.
    pub last_run: HookRunRecord,
    /// The weight of the hook. Hooks with lower weights run first.
    pub weight: i64,
    /// When the hook's object is deleted, in Helm's words. Words that Helm does not know are kept, too.
    pub delete_policies: Vec<String>,
    /// When the hook's logs are shown, in Helm's words.
    pub output_log_policies: Vec<String>,
}

impl HookRecord {
    /// Whether the hook is run at this moment of an operation.
    pub fn is_for(&self, event: HookEvent) -> bool {
        self.events.iter().any(|word| word == event.as_str())
    }

    /// Whether the hook's policies delete its object on this occasion.
    ///
    /// Parity(helm 4): CRDs are never deleted, and any word at all keeps the default away.
    pub fn is_deleted(&self, on: HookDeletePolicy) -> bool {
        let is_default =
            self.delete_policies.is_empty() && on == HookDeletePolicy::BeforeHookCreation;
        self.kind != "CustomResourceDefinition"
            && (is_default || self.delete_policies.iter().any(|word| word == on.as_str()))
    }
}

impl From<&ReleaseHook> for HookRecord {
    fn from(hook: &ReleaseHook) -> Self {
        Self {
            name: hook.name.clone(),
            kind: hook.kind.clone(),
            path: hook.path.clone(),
            manifest: hook.manifest.clone(),
            events: hook.events.iter().map(|event| event.as_str().to_owned()).collect(),
            last_run: HookRunRecord::default(),
            weight: hook.weight,
            delete_policies: hook.delete_policies.clone(),
            output_log_policies: hook.output_log_policies.clone(),
        }
    }
}

/// When a hook's object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookDeletePolicy {
    /// Before the hook's object is created.
    BeforeHookCreation,
    /// Once all hooks of an event have succeeded, or a later hook has failed.
    HookSucceeded,
    /// Once the hook has failed.
    HookFailed,
}

impl HookDeletePolicy {
    /// The word for the policy in annotations and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeHookCreation => "before-hook-creation",
            Self::HookSucceeded => "hook-succeeded",
            Self::HookFailed => "hook-failed",
        }
    }
}

/// A run of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookRunRecord {
    /// When the run was begun.
    pub started: Option<GoTimestamp>,
    /// When the run ended.
    pub completed: Option<GoTimestamp>,
    /// The result of the last run: `Unknown`, `Running`, `Succeeded`, `Failed`; empty before the first run.
    pub phase: String,
}

/// The phase of a hook that runs.
pub const RUNNING: &str = "Running";
/// The phase of a hook that ended well.
pub const SUCCEEDED: &str = "Succeeded";
/// The phase of a hook that ended badly.
pub const FAILED: &str = "Failed";

/// One change that an operation makes to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordContentChange {
    /// A hook, by its place in the record, is about to be created.
    HookStarted {
        /// The hook's index.
        hook: usize,
        /// When this happened.
        at: Time,
    },
    /// A hook was about to be created but was not. It counts as if it had not been due.
    HookNotBegun {
        /// The hook's index.
        hook: usize,
    },
    /// A hook ended, well or badly.
    HookEnded {
        /// The hook's index.
        hook: usize,
        /// Whether the hook succeeded.
        succeeded: bool,
        /// When this happened.
        at: Time,
    },
    /// The release gets another status.
    Status {
        /// The new status.
        status: RevisionStatus,
        /// The description for users. `None` keeps the present one.
        description: Option<String>,
        /// For a removal, when it began.
        deleted: Option<Time>,
    },
}

impl ReleaseRecord {
    /// Applies a change. A hook that the record does not have changes nothing.
    pub fn apply(&mut self, change: &RecordContentChange) {
        match change {
            RecordContentChange::HookStarted { hook, at } => {
                if let Some(hook) = self.hooks.get_mut(*hook) {
                    // Parity(helm 4): the default becomes part of the record when the hook is run.
                    if hook.delete_policies.is_empty() {
                        let policy = HookDeletePolicy::BeforeHookCreation.as_str();
                        hook.delete_policies.push(policy.to_owned());
                    }
                    hook.last_run = HookRunRecord {
                        started: Some(GoTimestamp::new(*at)),
                        completed: None,
                        phase: RUNNING.to_owned(),
                    };
                }
            }
            RecordContentChange::HookNotBegun { hook } => {
                if let Some(hook) = self.hooks.get_mut(*hook) {
                    hook.last_run = HookRunRecord::default();
                }
            }
            RecordContentChange::HookEnded { hook, succeeded, at } => {
                if let Some(hook) = self.hooks.get_mut(*hook) {
                    hook.last_run.completed = Some(GoTimestamp::new(*at));
                    hook.last_run.phase = if *succeeded { SUCCEEDED } else { FAILED }.to_owned();
                }
            }
            RecordContentChange::Status { status, description, deleted } => {
                self.info.status = status.clone();
                if let Some(description) = description {
                    self.info.description.clone_from(description);
                }
                if let Some(at) = deleted {
                    self.info.deleted = Some(GoTimestamp::new(*at));
                }
            }
        }
    }

    /// `namespace/name.v1`, as Flux's messages name a revision.
    pub fn full_name(&self) -> String {
        format!("{}/{}.v{}", self.namespace, self.name, self.version)
    }

    /// `name@version` of the chart, as Flux's messages name it.
    pub fn versioned_chart(&self) -> String {
        let metadata = self.metadata();
        let (name, version) =
            metadata.map_or(("", ""), |it| (it.name.as_str(), it.version.as_str()));
        format!("{name}@{version}")
    }

    /// The metadata of the chart.
    pub fn metadata(&self) -> Option<&ChartMetadata> {
        self.chart.as_ref().and_then(|chart| chart.metadata.as_ref())
    }

    /// Whether the API server merges the objects of the revision (server-side apply).
    pub fn is_server_side(&self) -> bool {
        self.apply_method == "ssa"
    }
}
