//! Rules over several snapshots. Single snapshots are covered by recorded answers (`cargo xtask conformance`).

use super::*;

fn snapshot(version: i64, status: &str, tests: Option<&[(&str, &str)]>) -> ReleaseSnapshot {
    let test_hooks = tests.map(|tests| {
        let hook =
            |phase: &str| TestHookStatus { phase: phase.to_owned(), ..TestHookStatus::default() };
        tests.iter().map(|(name, phase)| ((*name).to_owned(), Some(hook(phase)))).collect()
    });
    ReleaseSnapshot { version, status: status.to_owned(), test_hooks, ..ReleaseSnapshot::default() }
}

fn history(all: &[(i64, &str)]) -> Vec<ReleaseSnapshot> {
    all.iter().map(|(version, status)| snapshot(*version, status, None)).collect()
}

fn versions(history: &[ReleaseSnapshot]) -> Vec<i64> {
    history.iter().map(|it| it.version).collect()
}

#[test]
fn the_previous_one_is_the_newest_that_was_deployed_before_the_latest() {
    let previous = |all: &[(i64, &str)]| previous(&history(all), false).map(|it| it.version);
    assert_eq!(previous(&[]), None);
    assert_eq!(previous(&[(1, "deployed")]), None);
    assert_eq!(previous(&[(1, "superseded"), (3, "failed"), (2, "deployed")]), Some(2));
    assert_eq!(previous(&[(1, "superseded"), (3, "deployed"), (2, "failed")]), Some(1));
    assert_eq!(previous(&[(1, "failed"), (2, "failed")]), None);
}

#[test]
fn a_failed_test_makes_it_no_target_unless_tests_are_ignored() {
    let failed = Some([("t", "Failed")].as_slice());
    let all = [snapshot(3, "failed", None), snapshot(2, "superseded", failed)];
    assert_eq!(previous(&all, false), None);
    assert_eq!(previous(&all, true).map(|it| it.version), Some(2));
}

#[test]
fn it_is_tested_when_all_went_well_or_one_went_wrong() {
    type TestHookPhases = Option<&'static [(&'static str, &'static str)]>;
    let cases: [(TestHookPhases, bool); 6] = [
        (None, false),
        (Some(&[]), true),
        (Some(&[("a", "Succeeded")]), true),
        (Some(&[("a", "Succeeded"), ("b", "")]), false),
        (Some(&[("a", "Running"), ("b", "Failed")]), true),
        (Some(&[("a", "Unknown")]), false),
    ];
    for (tests, wanted) in cases {
        assert_eq!(snapshot(1, "deployed", tests).is_tested(), wanted, "{tests:?}");
    }
}

#[test]
fn history_is_cut_behind_the_previous_one_or_after_five() {
    let mut all = history(&[(1, "superseded"), (2, "superseded"), (3, "failed"), (4, "deployed")]);
    truncate(&mut all, false);
    assert_eq!(versions(&all), [4, 3, 2]);
    let mut failed: Vec<ReleaseSnapshot> =
        (1..=8).map(|version| snapshot(version, "failed", None)).collect();
    truncate(&mut failed, false);
    assert_eq!(versions(&failed), [8, 7, 6, 5, 4]);
    let mut all = history(&[(1, "superseded"), (2, "deployed")]);
    truncate_to_newest(&mut all);
    assert_eq!(versions(&all), [2, 1]);
    truncate(&mut Vec::new(), false);
}

#[test]
fn filters_take_in_or_leave_out() {
    let filter = |name: &str, exclude| TestFilter { name: name.to_owned(), exclude };
    let selected = |filters: &[TestFilter]| {
        ["a", "b", "c"].into_iter().filter(|name| is_selected(name, filters)).collect::<String>()
    };
    assert_eq!(selected(&[]), "abc");
    assert_eq!(selected(&[filter("a", false)]), "a");
    assert_eq!(selected(&[filter("a", true)]), "bc");
    assert_eq!(selected(&[filter("a", true), filter("a", false), filter("b", false)]), "b");
}

#[test]
fn an_entry_of_flux_is_read_and_written_again() {
    let text = r#"{"apiVersion":"v2","digest":"sha256:0","name":"web","namespace":"apps","version":3,"status":"deployed","action":"uninstall-remediation","chartName":"c","chartVersion":"1.2.3","appVersion":"9","configDigest":"sha256:1","firstDeployed":"2026-02-03T04:05:06Z","lastDeployed":"2026-02-03T04:05:07Z","deleted":null,"testHooks":{"t":{"lastStarted":"2026-02-03T04:05:06Z","lastCompleted":null,"phase":"Running"},"u":null},"ociDigest":"sha256:2"}"#;
    let snapshot: ReleaseSnapshot = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&snapshot).unwrap(), text);
}
