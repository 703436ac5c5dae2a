//! Properties of records, and how operations change them. Their JSON is covered by recorded answers (`cargo xtask
//! conformance`).

use super::*;

fn record(json: &str) -> ReleaseRecord {
    ReleaseRecord::from_json(json.as_bytes()).unwrap()
}

#[test]
fn debug_shows_neither_values_nor_manifests() {
    let record = record(
        r#"{"name":"web","namespace":"apps","version":1,"info":{"status":"deployed","notes":"hunter2"},"config":{"password":"hunter2"},"manifest":"hunter2"}"#,
    );
    assert_eq!(format!("{record:?}"), "apps/web.v1 deployed");
}

#[test]
fn a_status_is_its_word() {
    for word in ["deployed", "pending-install", "uninstalling", "unknown", "odd", ""] {
        assert_eq!(RevisionStatus::parse(word).as_str(), word);
    }
    assert!(
        RevisionStatus::parse("pending-rollback").is_pending()
            && !RevisionStatus::Uninstalling.is_pending()
    );
}

#[test]
fn a_hook_is_deleted_as_it_asks_and_crds_never_are() {
    let hook = |kind: &str, policies: &[&str]| HookRecord {
        kind: kind.to_owned(),
        delete_policies: policies.iter().map(|it| (*it).to_owned()).collect(),
        ..HookRecord::default()
    };
    let asked = |hook: &HookRecord| {
        use HookDeletePolicy::{BeforeHookCreation, HookFailed, HookSucceeded};
        [BeforeHookCreation, HookSucceeded, HookFailed].map(|policy| hook.is_deleted(policy))
    };
    assert_eq!(asked(&hook("Job", &[])), [true, false, false]);
    assert_eq!(asked(&hook("Job", &["hook-failed", "hook-succeeded"])), [false, true, true]);
    assert_eq!(asked(&hook("Job", &["odd"])), [false; 3]);
    assert_eq!(asked(&hook("CustomResourceDefinition", &["hook-succeeded"])), [false; 3]);
}

#[test]
fn a_run_of_a_hook_is_recorded_from_beginning_to_end() {
    let mut record = record(r#"{"hooks":[{"name":"h","last_run":{"phase":""}}]}"#);
    let at = |second| Time::from_second(second).unwrap();
    record.apply(&RecordContentChange::HookStarted { hook: 0, at: at(1) });
    record.apply(&RecordContentChange::HookStarted { hook: 7, at: at(1) });
    record.apply(&RecordContentChange::HookEnded { hook: 0, succeeded: false, at: at(2) });
    assert_eq!(
        record.to_json().unwrap(),
        r#"{"info":{},"hooks":[{"name":"h","last_run":{"started_at":"1970-01-01T00:00:01Z","completed_at":"1970-01-01T00:00:02Z","phase":"Failed"},"delete_policies":["before-hook-creation"]}]}"#
    );
    record.apply(&RecordContentChange::HookNotBegun { hook: 0 });
    assert_eq!(
        record.to_json().unwrap(),
        r#"{"info":{},"hooks":[{"name":"h","last_run":{"phase":""},"delete_policies":["before-hook-creation"]}]}"#
    );
}

#[test]
fn times_keep_their_zone_and_lose_their_zeros() {
    for (text, wanted) in [
        ("2026-02-03T04:05:06.100Z", "2026-02-03T04:05:06.1Z"),
        ("2026-02-03T04:05:06.000000001+02:00", "2026-02-03T04:05:06.000000001+02:00"),
        ("2026-02-03T04:05:06+00:00", "2026-02-03T04:05:06Z"),
    ] {
        assert_eq!(GoTimestamp::parse(text).unwrap().unwrap().text(), wanted);
    }
    for text in ["", "0001-01-01T00:00:00Z"] {
        assert_eq!(GoTimestamp::parse(text), Ok(None));
    }
    assert!(GoTimestamp::parse("soon").is_err());
}

#[test]
fn numbers_are_floats_as_in_go() {
    let record = record(r#"{"config":{"a":1.0,"b":9007199254740993,"c":1e21,"d":-0.0,"e":1e-7}}"#);
    assert_eq!(
        record.to_json().unwrap(),
        r#"{"info":{},"config":{"a":1,"b":9007199254740992,"c":1e+21,"d":-0,"e":1e-7}}"#
    );
}
