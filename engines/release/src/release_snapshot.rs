//! Entries of `status.history`: the revisions that a HelmRelease remembers, each with a digest that identifies the stored
//! record.
//!
//! Semantics: helm-controller 1.6 `internal/release` and `api/v2 Snapshots`.
//! Elsewhere: the JSON of the parts ([`crate::record`]), when a snapshot is taken ([`crate::operation_status_changes`]).

use std::collections::BTreeMap;

use helm::manifests::HookEvent;
use helm::values;
use reconcile::{ReleaseHistoryRevision, Time};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::record::{
    FAILED, JsonEncodeError, OrderedJsonFields, ReleaseRecord, RevisionStatus, SUCCEEDED,
    hook_json, info_json, metadata_json,
};
use crate::time_json::optional;

/// The version of the digest format. Entries without a version are not verified.
pub const API_VERSION: &str = "v2";

/// How many snapshots are kept if none of them can be rolled back to.
const MAX_HISTORY_SNAPSHOTS: usize = 5;

/// The action that made a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum SnapshotAction {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    UninstallRemediation,
}

/// A revision in the memory of a HelmRelease. Its JSON is that of `status.history`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSnapshot {
    /// [`API_VERSION`], or the version of an older controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The digest of the stored record: `sha256:…`.
    pub digest: String,
    /// The release.
    pub name: String,
    /// The namespace of the release's objects.
    pub namespace: String,
    /// The revision.
    pub version: i64,
    /// The status of the revision, in Helm's words.
    pub status: String,
    /// The operation that made the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<SnapshotAction>,
    /// The chart's name.
    pub chart_name: String,
    /// The chart's version.
    pub chart_version: String,
    /// The `appVersion` of the chart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// The digest of the values.
    pub config_digest: String,
    /// When the first revision was begun.
    #[serde(with = "optional")]
    pub first_deployed: Option<Time>,
    /// When this revision was begun.
    #[serde(with = "optional")]
    pub last_deployed: Option<Time>,
    /// When the removal was begun.
    #[serde(default, with = "optional")]
    pub deleted: Option<Time>,
    /// The results of its tests; `None` before they were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_hooks: Option<BTreeMap<String, Option<TestHookStatus>>>,
    /// The digest of the artifact that the chart came from.
    #[serde(rename = "ociDigest", default, skip_serializing_if = "String::is_empty")]
    pub oci_digest: String,
}

/// The result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestHookStatus {
    /// When the test was begun.
    #[serde(default, with = "optional")]
    pub last_started: Option<Time>,
    /// When the test ended.
    #[serde(default, with = "optional")]
    pub last_completed: Option<Time>,
    /// The result of the test, in Helm's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
}

/// Which tests are run, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFilter {
    /// A test's name.
    pub name: String,
    /// Whether the named test is left out. If any filters are not of this kind, only the tests that they name are run.
    pub exclude: bool,
}

/// Whether filters leave a test in.
pub fn is_selected(name: &str, filters: &[TestFilter]) -> bool {
    let mut included = filters.iter().filter(|it| !it.exclude).peekable();
    let is_out = filters.iter().any(|it| it.exclude && it.name == name);
    !is_out && (included.peek().is_none() || included.any(|it| it.name == name))
}

/// Why a record has no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotDigestError {
    /// The record cannot be written as JSON.
    #[error("the digest of release {0} cannot be computed: {1}")]
    Encode(String, JsonEncodeError),
    /// The values cannot be written as JSON.
    #[error("the digest of the values of release {0} cannot be computed: {1}")]
    Values(String, values::NotJsonError),
}

/// The text that is hashed: the record without the files of its chart and without test hooks.
///
/// # Errors
/// The record cannot be written as JSON.
pub fn observation(
    record: &ReleaseRecord,
    oci_digest: &str,
) -> Result<String, SnapshotDigestError> {
    let text = || {
        let mut fields = OrderedJsonFields::new();
        fields.text("name", &record.name)?;
        fields.number("version", record.version);
        fields.raw("info", &info_json(&record.info)?);
        let metadata = record.metadata().map_or_else(|| Ok("{}".to_owned()), metadata_json)?;
        fields.raw("chartMetadata", &metadata);
        let config = match record.config.is_empty() {
            true => golang::GoRuntimeValue::Nil,
            false => golang::GoRuntimeValue::Map(record.config.clone()),
        };
        fields.value("config", &config)?;
        fields.text("manifest", &record.manifest)?;
        let hooks = record.hooks.iter().filter(|hook| !hook.is_for(HookEvent::Test));
        let hooks = hooks.map(hook_json).collect::<Result<Vec<_>, _>>()?;
        let hooks = if hooks.is_empty() { "null".into() } else { format!("[{}]", hooks.join(",")) };
        fields.raw("hooks", &hooks);
        fields.text("namespace", &record.namespace)?;
        fields.some_text("ociDigest", oci_digest)?;
        Ok(fields.end()? + "\n")
    };
    text().map_err(|error| SnapshotDigestError::Encode(record.full_name(), error))
}

/// The digest by which a record is known again.
///
/// # Errors
/// The record has no JSON.
pub fn digest(record: &ReleaseRecord, oci_digest: &str) -> Result<String, SnapshotDigestError> {
    let text = observation(record, oci_digest)?;
    Ok(format!("sha256:{}", hex::encode(Sha256::digest(text))))
}

/// A time as a snapshot has it, in whole seconds. `None` if there is no valid time.
fn second(time: &Option<crate::record::GoTimestamp>) -> Option<Time> {
    time.as_ref().and_then(crate::record::GoTimestamp::whole_second)
}

impl ReleaseSnapshot {
    /// A snapshot of a record, without the results of its tests.
    ///
    /// # Errors
    /// The record has no JSON.
    pub fn of(
        record: &ReleaseRecord,
        action: Option<SnapshotAction>,
        oci_digest: &str,
    ) -> Result<Self, SnapshotDigestError> {
        let config_digest = values::digest(&record.config)
            .map_err(|error| SnapshotDigestError::Values(record.full_name(), error))?;
        let metadata = record.metadata().cloned().unwrap_or_default();
        Ok(Self {
            api_version: API_VERSION.to_owned(),
            digest: digest(record, oci_digest)?,
            name: record.name.clone(),
            namespace: record.namespace.clone(),
            version: record.version,
            status: record.info.status.as_str().to_owned(),
            action,
            chart_name: metadata.name,
            chart_version: metadata.version,
            app_version: metadata.app_version,
            config_digest,
            first_deployed: second(&record.info.first_deployed),
            last_deployed: second(&record.info.last_deployed),
            deleted: second(&record.info.deleted),
            test_hooks: None,
            oci_digest: oci_digest.to_owned(),
        })
    }

    /// The release and its revision as text: `namespace/name.v1`.
    pub fn full_name(&self) -> String {
        format!("{}/{}.v{}", self.namespace, self.name, self.version)
    }

    /// The revision as an entry of a history, with the action that made it.
    pub fn made(&self) -> ReleaseHistoryRevision {
        let action = match self.action {
            Some(SnapshotAction::Rollback) => "rollback",
            _ => "",
        };
        ReleaseHistoryRevision::new(self.version, &self.status, action)
    }

    /// The chart and its version as text: `name@version`.
    pub fn versioned_chart(&self) -> String {
        format!("{}@{}", self.chart_name, self.chart_version)
    }

    /// Whether the snapshot is of the revision of this record.
    pub fn targets(&self, record: &ReleaseRecord) -> bool {
        (&self.name, &self.namespace, self.version)
            == (&record.name, &record.namespace, record.version)
    }

    /// Whether the snapshot is of this revision in its present state, judged by metadata.
    pub(crate) fn tells_of(&self, record: &ReleaseRecord) -> bool {
        self.targets(record)
            && self.status == record.info.status.as_str()
            && self.last_deployed == second(&record.info.last_deployed)
    }

    /// Whether a record is the one that the snapshot was taken of. Snapshots of older controllers match any record.
    ///
    /// # Errors
    /// The record cannot be written as JSON.
    pub fn matches(&self, record: &ReleaseRecord) -> Result<SnapshotMatch, SnapshotDigestError> {
        if self.api_version != API_VERSION {
            return Ok(SnapshotMatch::Same);
        }
        if self.digest.strip_prefix("sha256:").is_none_or(|hex| hex.len() != 64) {
            return Ok(SnapshotMatch::NoDigest);
        }
        let is_same = digest(record, &self.oci_digest)? == self.digest;
        Ok(if is_same { SnapshotMatch::Same } else { SnapshotMatch::Other })
    }

    /// Whether the tests were run: all of them succeeded, or one failed. A chart without tests counts as tested.
    pub fn is_tested(&self) -> bool {
        let Some(hooks) = &self.test_hooks else { return false };
        let is = |hook: &Option<TestHookStatus>, phase: &str| {
            hook.as_ref().is_some_and(|hook| hook.phase == phase)
        };
        hooks.values().any(|hook| is(hook, FAILED))
            || hooks.values().all(|hook| is(hook, SUCCEEDED))
    }

    /// Whether a test ended badly.
    pub(crate) fn has_failed_test(&self) -> bool {
        let hooks = self.test_hooks.iter().flat_map(BTreeMap::values).flatten();
        hooks.into_iter().any(|hook| hook.phase == FAILED)
    }

    pub(crate) fn is_target_of_rollback(&self, ignore_tests: bool) -> bool {
        let status = RevisionStatus::parse(&self.status);
        matches!(status, RevisionStatus::Deployed | RevisionStatus::Superseded)
            && (ignore_tests || !self.has_failed_test())
    }
}

/// How a record compares with a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMatch {
    /// The record equals the stored one.
    Same,
    /// The record was changed by another client.
    Other,
    /// The digest of the snapshot uses an algorithm that is not supported.
    NoDigest,
}

/// The test hooks of a record that the filters select, by name, each with the times and the result of its last run.
pub fn test_hooks(
    record: &ReleaseRecord,
    filters: &[TestFilter],
) -> BTreeMap<String, Option<TestHookStatus>> {
    let second = |moment: &Option<crate::record::GoTimestamp>| {
        moment.as_ref().and_then(crate::record::GoTimestamp::whole_second)
    };
    let tests = record.hooks.iter().filter(|hook| hook.is_for(HookEvent::Test));
    let selected = tests.filter(|hook| is_selected(&hook.name, filters));
    let status = selected.map(|hook| {
        let run = &hook.last_run;
        let test = TestHookStatus {
            last_started: second(&run.started),
            last_completed: second(&run.completed),
            phase: run.phase.clone(),
        };
        (hook.name.clone(), Some(test))
    });
    status.collect()
}

/// The snapshot with the highest revision. `None` if the history is empty.
pub fn latest(history: &[ReleaseSnapshot]) -> Option<&ReleaseSnapshot> {
    history.iter().max_by_key(|snapshot| snapshot.version)
}

/// The newest snapshot before the latest that could be rolled back to. `None` if there is none.
pub fn previous(history: &[ReleaseSnapshot], ignore_tests: bool) -> Option<&ReleaseSnapshot> {
    let latest = latest(history)?.version;
    let mut seen_latest = false;
    let others = history.iter().filter(|snapshot| {
        let is_latest = snapshot.version == latest && !seen_latest;
        seen_latest |= is_latest;
        !is_latest && snapshot.is_target_of_rollback(ignore_tests)
    });
    others.max_by_key(|snapshot| snapshot.version)
}

/// Drops snapshots older than [`previous`], or without one, all but the five newest. The newest snapshot is first afterwards.
pub fn truncate(history: &mut Vec<ReleaseSnapshot>, ignore_tests: bool) {
    sort(history);
    if history.len() < 2 {
        return;
    }
    let previous = history[1..].iter().position(|it| it.is_target_of_rollback(ignore_tests));
    history.truncate(previous.map_or(MAX_HISTORY_SNAPSHOTS, |at| at + 2));
}

/// Truncates a history to its five newest snapshots, the newest first.
pub(crate) fn truncate_to_newest(history: &mut Vec<ReleaseSnapshot>) {
    sort(history);
    history.truncate(MAX_HISTORY_SNAPSHOTS);
}

/// Sorts the snapshots of a history, with the newest first.
pub fn sort(history: &mut [ReleaseSnapshot]) {
    history.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.version));
}

#[cfg(test)]
mod tests;
