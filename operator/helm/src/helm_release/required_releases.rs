//! The annotation `release.windlass.dev/requires` of a HelmRelease. Before a run writes anything, each required release has to
//! be deployed in a version of its range.
//!
//! The required releases are Helm releases and need no HelmRelease, so releases of the `helm` command count as well. Cycles
//! are not detected. Windlass reads their records as the applying identity, in their storage namespaces.
//! Elsewhere: dependencies on objects (`spec.dependsOn`, `windlass_runtime::dependency_gate`).

use std::fmt;

use golang::semver::{SemverVersion, VersionConstraint};
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, Time, condition_reason};
use release::ReleaseRevisions;

use crate::release_runner::storage::ReleaseStorage;
use windlass_cluster::ClusterConnection;

/// The annotation with required releases. An entry is `NAME` or `NAMESPACE/NAME`, optionally with a range of versions of its
/// chart. Entries are separated by `;`.
pub(super) const REQUIRES: &str = "release.windlass.dev/requires";

/// The most releases that may be required.
const MAX_REQUIRED_RELEASES: usize = 16;

const INVALID: ConditionReason = ConditionReason::new("InvalidRequirement");

/// A release that has to be there.
#[derive(Debug)]
pub(super) struct RequiredRelease {
    /// The namespace of its records.
    namespace: String,
    name: String,
    /// The text of the range, and its parsed form.
    range: Option<(String, VersionConstraint)>,
}

impl fmt::Display for RequiredRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Parses the annotation. The records of a release without a namespace are in `storage`.
///
/// # Errors
/// The text names the invalid entry and the reason.
fn parse(text: &str, storage: &str) -> Result<Vec<RequiredRelease>, String> {
    let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
    let mut all = Vec::new();
    for entry in entries {
        let (release, range) = entry.split_once(char::is_whitespace).unwrap_or((entry, ""));
        let (namespace, name) = release.split_once('/').unwrap_or((storage, release));
        let is_name = |text: &str| {
            let is_plain =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !text.is_empty() && text.chars().all(is_plain)
        };
        if !is_name(namespace) || !is_name(name) {
            return Err(format!(
                "`{entry}` does not begin with NAME or NAMESPACE/NAME of a release"
            ));
        }
        let range = Some(range.trim()).filter(|range| !range.is_empty());
        let range = range
            .map(|range| match VersionConstraint::parse(range) {
                Ok(constraint) => Ok((range.to_owned(), constraint)),
                Err(error) => Err(format!("`{range}` is not a range of versions: {error}")),
            })
            .transpose()?;
        all.push(RequiredRelease { namespace: namespace.to_owned(), name: name.to_owned(), range });
        if all.len() > MAX_REQUIRED_RELEASES {
            return Err(format!("more than {MAX_REQUIRED_RELEASES} releases are required"));
        }
    }
    Ok(all)
}

/// The reason why a requirement is not met: the release is not deployed, or its chart has another version. `None` if it is
/// met.
fn missing(required: &RequiredRelease, revisions: &ReleaseRevisions) -> Option<String> {
    let Some(deployed) = revisions.deployed() else {
        let has_none = revisions.last().is_none() && revisions.unreadable_last().is_none();
        let RequiredRelease { namespace, name, .. } = required;
        return Some(match has_none {
            true => format!("no records of release {name} in storage namespace {namespace}"),
            false => format!("release {required} is not deployed"),
        });
    };
    let (range, constraint) = required.range.as_ref()?;
    let version = deployed.record.metadata().map_or("", |metadata| metadata.version.as_str());
    let is_met = SemverVersion::parse(version).is_ok_and(|version| constraint.matches(&version));
    (!is_met).then(|| {
        format!("release {required} has version {version} of its chart, which is not in the range `{range}`")
    })
}

/// The releases that a HelmRelease in the namespace `own` requires. Their records are in `storage`. If `is_blocked`, they may
/// not be in other namespaces than `own`.
///
/// # Errors
/// The annotation cannot be read, or names another namespace although that is not allowed.
pub(super) fn of(
    annotation: Option<&String>,
    own: &str,
    storage: &str,
    is_blocked: bool,
) -> Result<Vec<RequiredRelease>, RunOutcome> {
    let Some(text) = annotation else { return Ok(Vec::new()) };
    let wrong =
        |reason, why: String| RunOutcome::Stalled(reason, format!("annotation {REQUIRES}: {why}"));
    let all = parse(text, storage).map_err(|error| wrong(INVALID, error))?;
    match all.iter().find(|it| is_blocked && it.namespace != own) {
        Some(foreign) => Err(wrong(
            condition_reason::ACCESS_DENIED,
            format!(
                "can't access release '{foreign}': cross-namespace references have been blocked by \
                 --no-cross-namespace-refs; require a release in namespace {own}"
            ),
        )),
        None => Ok(all),
    }
}

/// Checks that all required releases are deployed, and names the missing ones.
///
/// # Errors
/// A release is missing, or its records cannot be read. The check is repeated at `retry_at`.
pub(super) async fn check(
    cluster: &ClusterConnection,
    required: &[RequiredRelease],
    retry_at: Time,
) -> Result<(), RunOutcome> {
    let blocked = |text: String| {
        RunOutcome::Blocked(
            condition_reason::DEPENDENCY_NOT_READY,
            text,
            NextRunTrigger::at(retry_at),
        )
    };
    let mut all = Vec::new();
    for release in required {
        let revisions = async {
            let storage =
                ReleaseStorage::new(cluster, &release.namespace, &release.name, "").await?;
            storage.revisions().await
        };
        match revisions.await {
            Ok(revisions) => all.extend(missing(release, &revisions)),
            Err(error) => all.push(format!("cannot read release {release}: {error}")),
        }
    }
    if all.is_empty() { Ok(()) } else { Err(blocked(format!("requires: {}", all.join("; ")))) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use release::record::{RevisionInfo, RevisionStatus, StoredChart};
    use release::{ReleaseRecord, ReleaseRevision};

    use super::*;

    fn revisions(version: &str, status: RevisionStatus) -> ReleaseRevisions {
        let metadata = helm::chart::ChartMetadata {
            version: version.to_owned(),
            ..helm::chart::ChartMetadata::default()
        };
        let record = ReleaseRecord {
            name: "db".to_owned(),
            namespace: "data".to_owned(),
            version: 1,
            info: RevisionInfo { status, ..RevisionInfo::default() },
            chart: Some(StoredChart { metadata: Some(metadata), ..StoredChart::default() }),
            config: golang::value::GoMap::default(),
            manifest: String::new(),
            hooks: Vec::new(),
            apply_method: String::new(),
            labels: Default::default(),
        };
        ReleaseRevisions::new(
            vec![ReleaseRevision { record: Arc::new(record), journal: None }],
            Vec::new(),
        )
    }

    #[test]
    fn releases_are_required_by_name_and_range() {
        let all = parse(" db >=2.0.0 <3 ; monitoring/prometheus; ", "data").unwrap();
        let shown: Vec<String> = all.iter().map(RequiredRelease::to_string).collect();
        assert_eq!(shown, ["data/db", "monitoring/prometheus"]);
        assert_eq!(all[0].range.as_ref().map(|it| it.0.as_str()), Some(">=2.0.0 <3"));
        assert!(all[1].range.is_none());
        assert!(parse("", "data").unwrap().is_empty());
        for (text, part) in [
            ("a/b/c", "does not begin with"),
            ("/a", "does not begin with"),
            ("DB", "does not begin with"),
            ("db new", "is not a range of versions"),
            (&"a;".repeat(17), "more than 16"),
        ] {
            let error = parse(text, "data").unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn under_lockdown_only_releases_of_the_own_namespace_are_required() {
        let read = |text: &str, storage: &str, is_blocked: bool| {
            of(Some(&text.to_owned()), "apps", storage, is_blocked).map(|all| all.len())
        };
        let denied = |text: &str, storage: &str| match read(text, storage, true) {
            Err(RunOutcome::Stalled(reason, text)) if reason == condition_reason::ACCESS_DENIED => {
                text
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(read("db; apps/web", "apps", true).unwrap(), 2);
        assert_eq!(read("db; data/web", "data", false).unwrap(), 2);
        assert_eq!(of(None, "apps", "apps", true).unwrap().len(), 0);
        let text = denied("db; data/web >1", "apps");
        assert!(text.contains("annotation release.windlass.dev/requires: can't access"), "{text}");
        assert!(text.contains("'data/web'") && text.contains("namespace apps"), "{text}");
        // Nor by records that are elsewhere.
        assert!(denied("db", "data").contains("'data/db'"));
        assert!(matches!(read("DB", "apps", true), Err(RunOutcome::Stalled(INVALID, _))));
    }

    #[test]
    fn what_is_missing_is_named() {
        let required = &parse("db >=2.0.0", "data").unwrap()[0];
        assert_eq!(missing(required, &revisions("2.1.0", RevisionStatus::Deployed)), None);
        let text = missing(required, &revisions("1.9.0", RevisionStatus::Deployed)).unwrap();
        assert_eq!(
            text,
            "release data/db has version 1.9.0 of its chart, which is not in the range `>=2.0.0`"
        );
        let text = missing(required, &revisions("2.1.0", RevisionStatus::Failed)).unwrap();
        assert_eq!(text, "release data/db is not deployed");
        let text = missing(required, &ReleaseRevisions::default()).unwrap();
        assert_eq!(text, "no records of release db in storage namespace data");
        let any = &parse("db", "data").unwrap()[0];
        assert_eq!(missing(any, &revisions("odd", RevisionStatus::Deployed)), None);
    }
}
