//! Which revisions count as different, and which are deleted.

use super::*;
use crate::record::RevisionInfo;

fn revisions(all: &[(i64, &str)]) -> ReleaseRevisions {
    let known = all.iter().map(|(version, status)| {
        let info =
            RevisionInfo { status: RevisionStatus::parse(status), ..RevisionInfo::default() };
        let record = ReleaseRecord {
            name: "web".to_owned(),
            namespace: "apps".to_owned(),
            version: *version,
            info,
            chart: None,
            config: golang::value::GoMap::default(),
            manifest: String::new(),
            hooks: Vec::new(),
            apply_method: String::new(),
            labels: std::collections::BTreeMap::new(),
        };
        ReleaseRevision { record: Arc::new(record), journal: None }
    });
    ReleaseRevisions::new(known.collect(), Vec::new())
}

fn version(revision: Option<&ReleaseRevision>) -> Option<i64> {
    revision.map(|it| it.record.version)
}

#[test]
fn the_last_is_the_newest_and_the_deployed_one_the_newest_that_is() {
    let all = revisions(&[(10, "failed"), (2, "deployed"), (9, "deployed"), (1, "superseded")]);
    assert_eq!((version(all.last()), version(all.deployed())), (Some(10), Some(9)));
    assert_eq!(version(all.get(2)), Some(2));
    assert_eq!(version(revisions(&[]).last()), None);
}

#[test]
fn an_upgrade_compares_with_what_is_deployed_or_with_what_failed() {
    let current = |all: &[(i64, &str)]| version(revisions(all).current());
    assert_eq!(current(&[(1, "superseded"), (2, "deployed")]), Some(2));
    assert_eq!(current(&[(1, "deployed"), (2, "failed")]), Some(1));
    assert_eq!(current(&[(1, "failed"), (2, "failed")]), Some(2));
    assert_eq!(current(&[(1, "superseded")]), Some(1));
    assert_eq!(current(&[(1, "uninstalled")]), None);
    assert_eq!(current(&[(1, "deployed"), (2, "uninstalling")]), Some(1));
}

#[test]
fn the_oldest_make_room_but_never_the_one_that_is_deployed() {
    let all = revisions(&[(1, "superseded"), (2, "deployed"), (3, "failed"), (4, "failed")]);
    let none: [i64; 0] = [];
    assert_eq!(all.prunable(0), none);
    assert_eq!(all.prunable(5), none);
    assert_eq!(all.prunable(4), [1]);
    assert_eq!(all.prunable(3), [1, 3]);
    assert_eq!(all.prunable(1), [1, 3, 4]);
    assert_eq!(revisions(&[(1, "failed"), (2, "failed")]).prunable(2), [1]);
}

#[test]
fn only_a_broken_secret_that_is_newer_than_what_can_be_read_matters() {
    let broken = |version| BrokenReleaseRevision {
        secret: format!("s{version}"),
        version,
        problem: "p".into(),
    };
    let all = |versions: &[i64]| {
        let known = revisions(&[(3, "deployed")]).known;
        ReleaseRevisions::new(known, versions.iter().copied().map(broken).collect())
    };
    assert_eq!(all(&[1, 2]).unreadable_last(), None);
    assert_eq!(all(&[1, 4, 5]).unreadable_last().map(|it| it.version), Some(5));
    let none = ReleaseRevisions::new(Vec::new(), vec![broken(1)]);
    assert_eq!(none.unreadable_last().map(|it| it.version), Some(1));
}
