//! The record of a release: what Helm 4.2 stores of each revision (`pkg/release/v1`).
//!
//! Here: the record and how an operation changes it. Below: its JSON, written (`record/json.rs`) and read
//! (`record/decode.rs`). Elsewhere: the Secret that holds it ([`crate::storage`]), which revisions there are
//! ([`crate::revisions`]), its digest ([`crate::release_snapshot`]).

mod decode;
mod json;
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
pub use golang::json::JsonEncodeError;
pub(crate) use json::{
    OrderedJsonFields, hook as hook_json, info as info_json, metadata as metadata_json,
};

/// A revision of a release, as it is stored.
///
/// `Debug` shows what identifies it only: values, manifests and notes may hold secrets.
#[derive(Clone)]
pub struct ReleaseRecord {
    /// The release.
    pub name: String,
    /// The namespace of its objects that do not set one.
    pub namespace: String,
    /// The revision, from 1 on.
    pub version: i64,
    /// What became of it.
    pub info: RevisionInfo,
    /// The chart; records of Helm have one.
    pub chart: Option<StoredChart>,
    /// The values that were given, without those of the chart.
    pub config: GoMap,
    /// The manifests, in the order in which they are applied, each after a line `---`.
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
    /// When this one was begun.
    pub last_deployed: Option<GoTimestamp>,
    /// When it was begun to be removed.
    pub deleted: Option<GoTimestamp>,
    /// For people.
    pub description: String,
    /// Its status.
    pub status: RevisionStatus,
    /// What a person reads after an installation.
    pub notes: String,
    /// What a client of Helm once added; kept as it is.
    pub resources: Option<GoMap>,
}

/// The status of a revision (`pkg/release/common Status`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RevisionStatus {
    /// No status.
    #[default]
    Unset,
    /// Its objects are in the cluster.
    Deployed,
    /// It was removed and its history kept.
    Uninstalled,
    /// A later one took its place.
    Superseded,
    /// Something went wrong.
    Failed,
    /// It is being removed, or that went wrong.
    Uninstalling,
    /// It is being installed.
    PendingInstall,
    /// It is being upgraded to.
    PendingUpgrade,
    /// It is being rolled back to.
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

/// A time as Go writes it: nanoseconds and the offset of its zone are kept.
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

/// A chart as a record has it: without the charts in it, which Helm does not store.
#[derive(Debug, Clone, Default)]
pub struct StoredChart {
    /// Its `Chart.yaml`.
    pub metadata: Option<ChartMetadata>,
    /// Its `Chart.lock`.
    pub lock: Option<StoredChartLock>,
    /// Its templates; none and an empty list are not the same to JSON.
    pub templates: Option<Vec<StoredFile>>,
    /// Its values, with those imported from the charts in it.
    pub values: Option<GoMap>,
    /// Its `values.schema.json`.
    pub schema: Option<Arc<[u8]>>,
    /// When that was last changed.
    pub schema_changed: Option<GoTimestamp>,
    /// Its other files.
    pub files: Option<Vec<StoredFile>>,
    /// When it was last changed.
    pub changed: Option<GoTimestamp>,
}

impl StoredChart {
    /// The part of a record about a chart whose dependencies were processed.
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

/// What a record has of `Chart.lock`.
#[derive(Debug, Clone, Default)]
pub struct StoredChartLock {
    /// When it was written.
    pub generated: Option<GoTimestamp>,
    /// Of what was listed and what was chosen.
    pub digest: String,
    /// What was chosen; none and an empty list are not the same to JSON.
    pub dependencies: Option<Vec<helm::chart::ChartDependency>>,
}

/// A file of a stored chart.
#[derive(Debug, Clone, Default)]
pub struct StoredFile {
    /// Its path in the chart.
    pub name: String,
    /// Its bytes.
    pub data: Arc<[u8]>,
    /// When it was last changed.
    pub changed: Option<GoTimestamp>,
}

/// A hook as a record has it.
#[derive(Debug, Clone, Default)]
pub struct HookRecord {
    /// The object's name.
    pub name: String,
    /// The object's kind.
    pub kind: String,
    /// The file that it was rendered from.
    pub path: String,
    /// Its text.
    pub manifest: String,
    /// When it is run, in Helm's words.
    pub events: Vec<String>,
    /// Its last run.
    pub last_run: HookRunRecord,
    /// Lower ones come first.
    pub weight: i64,
    /// When it is deleted, in Helm's words, with those that Helm does not know.
    pub delete_policies: Vec<String>,
    /// When its logs are shown, likewise.
    pub output_log_policies: Vec<String>,
}

impl HookRecord {
    /// Whether the hook is run at this moment of an operation.
    pub fn is_for(&self, event: HookEvent) -> bool {
        self.events.iter().any(|word| word == event.as_str())
    }

    /// Whether the object of the hook is deleted on this occasion.
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
    /// Before it is created.
    BeforeHookCreation,
    /// Once all hooks of an event have succeeded, or a later one has failed.
    HookSucceeded,
    /// Once it has failed.
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
    /// When it was begun.
    pub started: Option<GoTimestamp>,
    /// When it ended.
    pub completed: Option<GoTimestamp>,
    /// How it went: `Unknown`, `Running`, `Succeeded`, `Failed`; empty before the first run.
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
pub enum RecordChange {
    /// A hook, by its place in the record, is about to be created.
    HookStarted {
        /// Its place.
        hook: usize,
        /// When.
        at: Time,
    },
    /// A hook that was about to be created was not: it counts as if it had never been due.
    HookNotBegun {
        /// Its place.
        hook: usize,
    },
    /// A hook ended, well or badly.
    HookEnded {
        /// Its place.
        hook: usize,
        /// Whether it did what it should.
        succeeded: bool,
        /// When.
        at: Time,
    },
    /// The release gets another status.
    Status {
        /// Where.
        status: RevisionStatus,
        /// For people; `None` leaves the description as it was.
        description: Option<String>,
        /// When the removal began, where that is what happens.
        deleted: Option<Time>,
    },
}

impl ReleaseRecord {
    /// Applies a change. A hook that the record does not have changes nothing.
    pub fn apply(&mut self, change: &RecordChange) {
        match change {
            RecordChange::HookStarted { hook, at } => {
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
            RecordChange::HookNotBegun { hook } => {
                if let Some(hook) = self.hooks.get_mut(*hook) {
                    hook.last_run = HookRunRecord::default();
                }
            }
            RecordChange::HookEnded { hook, succeeded, at } => {
                if let Some(hook) = self.hooks.get_mut(*hook) {
                    hook.last_run.completed = Some(GoTimestamp::new(*at));
                    hook.last_run.phase = if *succeeded { SUCCEEDED } else { FAILED }.to_owned();
                }
            }
            RecordChange::Status { status, description, deleted } => {
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
