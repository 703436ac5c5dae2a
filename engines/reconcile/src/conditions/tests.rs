//! The laws of conditions, over every outcome and any status before.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::{ObjectKey, condition_reason};

const OWNED: &[&str] = &["Healthy"];

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

fn condition(
    kind: &str,
    status: ConditionStatus,
    why: &str,
    message: &str,
    second: i64,
) -> StatusCondition {
    StatusCondition {
        kind: kind.into(),
        status,
        observed_generation: 1,
        last_transition_time: at(second),
        reason: why.into(),
        message: message.into(),
    }
}

fn lines(conditions: &[StatusCondition]) -> String {
    let line = |c: &StatusCondition| {
        let StatusCondition {
            kind, status, observed_generation: generation, reason, message, ..
        } = c;
        let second = c.last_transition_time.as_second();
        format!("{kind}={status:?} {reason} {message:?} generation {generation} since {second}\n")
    };
    conditions.iter().map(line).collect()
}

fn check(before: &[StatusCondition], outcome: &RunOutcome, expected: &Expect) {
    expected.assert_eq(&lines(&StatusConditions::since(before, 2, at(100), OWNED).finish(outcome)));
}

fn outcomes() -> impl Strategy<Value = RunOutcome> {
    let why = prop::sample::select(vec![
        condition_reason::SUCCEEDED,
        condition_reason::PROGRESSING,
        condition_reason::PROGRESSING_WITH_RETRY,
        condition_reason::DEPENDENCY_CYCLE,
    ]);
    (0..5, why, "[ab]{0,1}", any::<bool>()).prop_map(|(variant, why, text, is_timed)| {
        let on = NextRunTrigger::on([ObjectKey::new("apps", "Deployment", "a", "x")]);
        let wake = if is_timed { on.and_at(at(200)) } else { on };
        match variant {
            0 => RunOutcome::Settled(why, text),
            1 => RunOutcome::Running(why, text, wake),
            2 => RunOutcome::Blocked(why, text, wake),
            3 => RunOutcome::Failed(why, text, wake),
            _ => RunOutcome::Stalled(why, text),
        }
    })
}

fn befores() -> impl Strategy<Value = Vec<StatusCondition>> {
    let kinds = vec![READY, RECONCILING, STALLED, "Healthy", "Foreign", "acme.io/Audited"];
    let kind = prop::sample::select(kinds);
    let status = prop::sample::select(vec![
        ConditionStatus::True,
        ConditionStatus::False,
        ConditionStatus::Unknown,
    ]);
    let why = prop::sample::select(vec!["Succeeded", "Progressing", "NotOurs"]);
    let one = (kind, status, why, "[ab]{0,1}", 0..90i64)
        .prop_map(|(kind, status, why, text, second)| condition(kind, status, why, &text, second));
    prop::collection::vec(one, 0..8)
}

proptest! {
    #[test]
    fn conditions_never_contradict_each_other(before in befores(), outcome in outcomes()) {
        let after = StatusConditions::since(&before, 2, at(100), OWNED).finish(&outcome);
        let is_true = |kind| StatusCondition::is(&after, kind, ConditionStatus::True);
        let claims = [READY, RECONCILING, STALLED].into_iter().filter(|kind| is_true(kind)).count();
        prop_assert_eq!(claims, 1, "exactly one of the three is True");
        prop_assert_eq!(is_true(READY), outcome.is_settled());
        for abnormal in [RECONCILING, STALLED] {
            prop_assert_eq!(StatusCondition::find(&after, abnormal).is_some(), is_true(abnormal));
        }
        prop_assert!(StatusCondition::find(&after, READY).is_some());
    }

    #[test]
    fn every_type_occurs_once_and_in_flux_order(before in befores(), outcome in outcomes()) {
        let after = StatusConditions::since(&before, 2, at(100), OWNED).keep("Healthy").finish(&outcome);
        let rank = |c: &StatusCondition| {
            let place = [STALLED, RECONCILING, READY].iter().position(|kind| *kind == c.kind);
            (place.unwrap_or(3), c.kind.clone())
        };
        prop_assert!(after.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])));
    }

    #[test]
    fn conditions_of_others_are_carried_over_untouched(before in befores(), outcome in outcomes()) {
        let after = StatusConditions::since(&before, 2, at(100), OWNED).finish(&outcome);
        for kind in ["Foreign", "acme.io/Audited"] {
            prop_assert_eq!(StatusCondition::find(&before, kind), StatusCondition::find(&after, kind));
        }
        prop_assert!(StatusCondition::find(&after, "Healthy").is_none());
    }

    #[test]
    fn saying_the_same_again_changes_nothing(before in befores(), outcome in outcomes()) {
        let once = StatusConditions::since(&before, 2, at(100), OWNED).finish(&outcome);
        prop_assert_eq!(&StatusConditions::since(&once, 2, at(300), OWNED).finish(&outcome), &once);
        let newer = StatusConditions::since(&once, 3, at(300), OWNED).finish(&outcome);
        let times = |all: &[StatusCondition]| -> Vec<Time> {
            all.iter().map(|condition| condition.last_transition_time).collect()
        };
        prop_assert_eq!(times(&newer), times(&once));
        prop_assert_eq!(StatusCondition::find(&newer, READY).unwrap().observed_generation, 3);
    }

    #[test]
    fn nothing_of_a_suspended_object_is_under_way_or_unknown(before in befores()) {
        let since = |before| StatusConditions::since(before, 2, at(100), OWNED);
        let after = since(&before).finish_suspended("waiting").unwrap_or_else(|| before.clone());
        prop_assert!(StatusCondition::find(&after, RECONCILING).is_none());
        for kind in [READY, STALLED, "Healthy"] {
            prop_assert!(!StatusCondition::is(&after, kind, ConditionStatus::Unknown), "{}", kind);
        }
        for kind in ["Foreign", "acme.io/Audited"] {
            prop_assert_eq!(StatusCondition::find(&before, kind), StatusCondition::find(&after, kind));
        }
        let was_known = StatusCondition::find(&before, READY).filter(|it| it.status != ConditionStatus::Unknown);
        if was_known.is_some() {
            prop_assert_eq!(was_known, StatusCondition::find(&after, READY));
        }
        prop_assert_eq!(since(&after).finish_suspended("waiting"), None);
    }

    #[test]
    fn a_condition_survives_json(before in befores()) {
        let text = serde_json::to_string(&before).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<StatusCondition>>(&text).unwrap(), before);
    }
}

#[test]
fn a_settled_object_is_ready_and_nothing_else() {
    let before = [condition(RECONCILING, ConditionStatus::True, "Progressing", "building", 50)];
    check(
        &before,
        &RunOutcome::Settled(
            condition_reason::RECONCILIATION_SUCCEEDED,
            "Applied revision: main@sha1:1".into(),
        ),
        &expect![[r#"
            Ready=True ReconciliationSucceeded "Applied revision: main@sha1:1" generation 2 since 100
        "#]],
    );
}

#[test]
fn a_running_object_is_reconciling_and_not_known_to_be_ready() {
    check(
        &[condition(
            RECONCILING,
            ConditionStatus::True,
            "Progressing",
            "Running health checks",
            50,
        )],
        &RunOutcome::Running(
            condition_reason::PROGRESSING,
            "Running health checks".into(),
            NextRunTrigger::at(at(9)),
        ),
        &expect![[r#"
            Reconciling=True Progressing "Running health checks" generation 2 since 50
            Ready=Unknown Progressing "Running health checks" generation 2 since 100
        "#]],
    );
}

#[test]
fn a_blocked_or_failed_object_will_be_retried() {
    let expected = expect![[r#"
        Reconciling=True ProgressingWithRetry "no" generation 2 since 100
        Ready=False BuildFailed "no" generation 2 since 50
    "#]];
    let before = [condition(READY, ConditionStatus::False, "BuildFailed", "no", 50)];
    check(
        &before,
        &RunOutcome::Failed(condition_reason::BUILD_FAILED, "no".into(), NextRunTrigger::at(at(9))),
        &expected,
    );
    check(
        &before,
        &RunOutcome::Blocked(
            condition_reason::BUILD_FAILED,
            "no".into(),
            NextRunTrigger::at(at(9)),
        ),
        &expected,
    );
}

#[test]
fn an_object_that_is_suspended_in_the_middle_says_where() {
    let before = [
        condition(RECONCILING, ConditionStatus::True, "Progressing", "Running health checks", 50),
        condition(READY, ConditionStatus::Unknown, "Progressing", "Running health checks", 50),
        condition("Healthy", ConditionStatus::Unknown, "Progressing", "Running health checks", 50),
    ];
    let after = StatusConditions::since(&before, 2, at(100), OWNED)
        .finish_suspended("suspended while waiting for the health of revision main@sha1:1");
    expect![[r#"
        Ready=False Suspended "suspended while waiting for the health of revision main@sha1:1" generation 2 since 100
    "#]]
    .assert_eq(&lines(&after.unwrap()));
}

#[test]
fn a_stalled_object_says_so_with_the_reason_of_ready() {
    let before = [condition(RECONCILING, ConditionStatus::True, "ProgressingWithRetry", "a", 50)];
    check(
        &before,
        &RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, "spec.decryption".into()),
        &expect![[r#"
            Stalled=True UnsupportedField "spec.decryption" generation 2 since 100
            Ready=False UnsupportedField "spec.decryption" generation 2 since 100
        "#]],
    );
}

#[test]
fn a_change_of_status_reason_or_message_is_a_transition() {
    let was = condition(READY, ConditionStatus::True, "Succeeded", "a", 50);
    for (outcome, since) in [
        (RunOutcome::Settled(condition_reason::SUCCEEDED, "a".into()), 50),
        (RunOutcome::Settled(condition_reason::SUCCEEDED, "b".into()), 100),
        (RunOutcome::Settled(condition_reason::RECONCILIATION_SUCCEEDED, "a".into()), 100),
        (RunOutcome::Stalled(condition_reason::SUCCEEDED, "a".into()), 100),
    ] {
        let after =
            StatusConditions::since(std::slice::from_ref(&was), 2, at(100), OWNED).finish(&outcome);
        let ready = StatusCondition::find(&after, READY).unwrap();
        assert_eq!(ready.last_transition_time, at(since), "{outcome:?}");
    }
}

#[test]
fn a_condition_of_the_kind_is_set_kept_or_dropped() {
    let before = [condition("Healthy", ConditionStatus::Unknown, "Progressing", "waiting", 50)];
    let since = || StatusConditions::since(&before, 2, at(100), OWNED);
    let healthy = |all: &[StatusCondition]| StatusCondition::find(all, "Healthy").cloned();
    let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, String::new());

    // When waiting began is read from here, so the same words must not move the time.
    let again =
        since().set("Healthy", ConditionStatus::Unknown, condition_reason::PROGRESSING, "waiting");
    let again = healthy(&again.finish(&settled)).unwrap();
    assert_eq!((again.last_transition_time, again.observed_generation), (at(50), 2));

    let kept = since().keep("Healthy").finish_progress(condition_reason::PROGRESSING, "building");
    assert_eq!(healthy(&kept).as_ref(), before.first());
    assert!(StatusCondition::is(&kept, READY, ConditionStatus::Unknown));

    let set = since().keep("Healthy").set(
        "Healthy",
        ConditionStatus::True,
        condition_reason::SUCCEEDED,
        "passed",
    );
    assert_eq!(healthy(&set.finish(&settled)).unwrap().message, "passed");

    assert_eq!(healthy(&since().finish(&settled)), None);
    assert_eq!(
        healthy(&StatusConditions::since(&[], 2, at(1), OWNED).keep("Healthy").finish(&settled)),
        None
    );
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "Ready is derived from the rest"))]
fn ready_cannot_be_set_past_the_outcome() {
    let stalled = RunOutcome::Stalled(condition_reason::INVALID_PATH, String::new());
    let after = StatusConditions::since(&[], 1, at(1), OWNED)
        .set(READY, ConditionStatus::True, condition_reason::SUCCEEDED, "")
        .finish(&stalled);
    assert!(StatusCondition::is(&after, READY, ConditionStatus::False));
}

#[test]
fn a_message_is_cut_at_the_limit_of_the_crd_and_never_inside_a_character() {
    for (text, len) in [("a".repeat(32768), 32768), ("a".repeat(32769), 32768)] {
        let after = StatusConditions::since(&[], 1, at(1), OWNED)
            .finish(&RunOutcome::Settled(condition_reason::SUCCEEDED, text));
        assert_eq!(after[0].message.len(), len);
    }
    let outcome =
        RunOutcome::Settled(condition_reason::SUCCEEDED, format!("a{}", "ü".repeat(20000)));
    let after = StatusConditions::since(&[], 1, at(1), OWNED).finish(&outcome);
    assert!(after[0].message.len() <= 32768 && after[0].message.ends_with("üü…"));
    // A cut message compares with itself.
    let again = StatusConditions::since(&after, 1, at(5), OWNED).finish(&outcome);
    assert_eq!(again, after);
}

#[test]
fn the_json_is_that_of_metav1() {
    let now = "2027-03-04T05:06:07.89Z".parse().unwrap();
    let after = StatusConditions::since(&[], 3, now, OWNED)
        .finish(&RunOutcome::Settled(condition_reason::SUCCEEDED, "stored artifact".into()));
    expect![[r#"[{"type":"Ready","status":"True","observedGeneration":3,"lastTransitionTime":"2027-03-04T05:06:07Z","reason":"Succeeded","message":"stored artifact"}]"#]]
        .assert_eq(&serde_json::to_string(&after).unwrap());

    let foreign = r#"{"type":"X","status":"Unknown","lastTransitionTime":"2027-03-04T06:06:07+01:00","reason":"R","message":""}"#;
    let read: StatusCondition = serde_json::from_str(foreign).unwrap();
    assert_eq!(read.last_transition_time, after[0].last_transition_time);
    assert!(!serde_json::to_string(&read).unwrap().contains("observedGeneration"));

    let wrong = foreign.replace("2027-03-04T06", "yesterday");
    let error = serde_json::from_str::<StatusCondition>(&wrong).unwrap_err().to_string();
    assert!(error.contains("is not an RFC 3339 time"), "{error}");
}

fn mark(status: ConditionStatus, text: &str) -> AnnotationCondition {
    AnnotationCondition {
        kind: WINDOW,
        status,
        reason: condition_reason::CLOSED,
        text: text.into(),
    }
}

#[test]
fn marks_are_replaced_and_everything_else_stays() {
    let before = [
        condition("Foreign", ConditionStatus::True, "Fine", "", 1),
        condition(READY, ConditionStatus::True, "Succeeded", "done", 2),
        condition(HOLD, ConditionStatus::True, "Suspended", "suspended", 3),
        condition(WINDOW, ConditionStatus::False, "Closed", "as before", 4),
    ];
    let since = || StatusConditions::since(&before, 1, at(100), OWNED);
    let marked =
        since().marked(&[mark(ConditionStatus::False, "as before")]).finish_as_before().unwrap();
    expect![[r#"
        Ready=True Succeeded "done" generation 1 since 2
        Foreign=True Fine "" generation 1 since 1
        windlass.dev/Window=False Closed "as before" generation 1 since 4
    "#]]
    .assert_eq(&lines(&marked));
    // A run that does not call `marked` leaves the marks as they are.
    let run = since().finish(&RunOutcome::Settled(condition_reason::SUCCEEDED, "done".into()));
    assert!(
        StatusCondition::is(&run, HOLD, ConditionStatus::True)
            && StatusCondition::is(&run, WINDOW, ConditionStatus::False)
    );
}

#[test]
fn conditions_that_say_the_same_are_not_written_again() {
    let before = [
        condition(WINDOW, ConditionStatus::False, "Closed", "closed", 4),
        condition(READY, ConditionStatus::True, "Succeeded", "done", 2),
    ];
    let since = || StatusConditions::since(&before, 1, at(100), OWNED);
    assert_eq!(since().marked(&[mark(ConditionStatus::False, "closed")]).finish_as_before(), None);
    let other =
        since().marked(&[mark(ConditionStatus::False, "still closed")]).finish_as_before().unwrap();
    assert_eq!(StatusCondition::find(&other, WINDOW).unwrap().last_transition_time, at(100));
    assert_eq!(
        StatusConditions::since(&[], 1, at(100), OWNED).marked(&[]).finish_as_before(),
        None
    );
    let gone = since().marked(&[]).finish_as_before().unwrap();
    assert_eq!(gone.len(), 1);
}

#[test]
fn an_action_under_way_is_named_whatever_ready_still_says() {
    let before = [
        condition(STALLED, ConditionStatus::True, "Spec", "wrong", 1),
        condition(RECONCILING, ConditionStatus::True, "Progressing", "upgrading", 2),
        condition(READY, ConditionStatus::True, "Succeeded", "done", 3),
    ];
    let since = || StatusConditions::since(&before, 1, at(100), OWNED);
    let conditions = since().progressing(Some("upgrading")).finish_as_before().unwrap();
    expect![[r#"
        Reconciling=True Progressing "upgrading" generation 1 since 2
        Ready=True Succeeded "done" generation 1 since 3
    "#]]
    .assert_eq(&lines(&conditions));
    let running = RunOutcome::Running(
        condition_reason::PROGRESSING,
        "1 of 2 is ready".into(),
        NextRunTrigger::default(),
    );
    let conditions = since().progressing(Some("rolling back")).finish(&running);
    expect![[r#"
        Reconciling=True Progressing "rolling back" generation 1 since 100
        Ready=Unknown Progressing "1 of 2 is ready" generation 1 since 100
    "#]]
    .assert_eq(&lines(&conditions));
}

#[test]
fn ready_keeps_the_words_of_a_failure_that_is_not_retried() {
    let failure = Some((condition_reason::FAILED, "the Job failed"));
    let stalled =
        RunOutcome::Stalled(condition_reason::INVALID_SCHEDULE, "retries exhausted".into());
    let conditions =
        StatusConditions::since(&[], 1, at(100), OWNED).failing(failure).finish(&stalled);
    expect![[r#"
        Stalled=True InvalidSchedule "retries exhausted" generation 1 since 100
        Ready=False Failed "the Job failed" generation 1 since 100
    "#]]
    .assert_eq(&lines(&conditions));
    let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, "done".into());
    let conditions =
        StatusConditions::since(&[], 1, at(100), OWNED).failing(failure).finish(&settled);
    assert_eq!(conditions[0].message, "done");
}
