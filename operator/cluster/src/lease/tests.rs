//! Tests of the next action about a Lease, for a table of Leases and ages. Elsewhere: real Leases (`e2e/tests/leader.rs`).

use super::*;

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

fn election(identity: &str) -> ElectionSettings {
    ElectionSettings {
        namespace: "flux-system".to_owned(),
        name: "windlass-leader-election".to_owned(),
        identity: identity.to_owned(),
        duration: Duration::from_secs(35),
        renew_deadline: Duration::from_secs(30),
        retry: Duration::from_secs(5),
    }
}

fn written(chosen: LeaseAction) -> LeaseSpec {
    match chosen {
        LeaseAction::Write(spec) => spec,
        LeaseAction::Wait => panic!("it waits"),
    }
}

#[test]
fn a_lease_of_another_is_left_alone_until_it_was_seen_unchanged_for_its_duration() {
    let theirs = election("a").claim(NOW);
    let young = Duration::from_millis(34_900);
    let old = Duration::from_secs(35);
    assert_eq!(election("b").next(&theirs, young, NOW), LeaseAction::Wait);
    let ours = written(election("b").next(&theirs, old, NOW));
    assert_eq!(holder(&ours), "b");
    assert_eq!(ours.lease_transitions, Some(1));
}

#[test]
fn the_duration_that_counts_is_the_one_that_the_holder_wrote() {
    let mut theirs = election("a").claim(NOW);
    theirs.lease_duration_seconds = Some(3600);
    assert_eq!(election("b").next(&theirs, Duration::from_secs(3599), NOW), LeaseAction::Wait);
    theirs.lease_duration_seconds = Some(-1);
    assert_ne!(election("b").next(&theirs, Duration::ZERO, NOW), LeaseAction::Wait);
}

#[test]
fn who_comes_back_under_the_same_name_goes_on_at_once() {
    let mut before = election("a").claim(NOW);
    before.lease_transitions = Some(7);
    let later = NOW + jiff::SignedDuration::from_secs(2);
    let after = written(election("a").next(&before, Duration::ZERO, later));
    assert_eq!(after.lease_transitions, Some(7));
    assert_eq!(after.acquire_time, Some(MicroTime(NOW)));
    assert_eq!(after.renew_time, Some(MicroTime(later)));
}

#[test]
fn a_released_lease_is_free_at_once() {
    let held = election("a").claim(NOW);
    let released = ElectionSettings::released(&held, NOW);
    assert_eq!((holder(&released), released.lease_duration_seconds), ("", Some(1)));
    let ours = written(election("b").next(&released, Duration::ZERO, NOW));
    assert_eq!(ours.lease_transitions, Some(1));
}

#[test]
fn a_storage_address_counts_while_the_process_that_wrote_it_holds_the_lease() {
    let spec = Some(election("a").claim(NOW));
    let mut lease = Lease { metadata: ObjectMeta::default(), spec };
    assert_eq!(storage_address(&lease), None);
    election("a").advertise(&mut lease.metadata, "windlass-0.svc:9090");
    assert_eq!(storage_address(&lease), Some("windlass-0.svc:9090"));
    for identity in ["b", "", "a windlass-0.svc:9090"] {
        lease.spec = Some(election(identity).claim(NOW));
        assert_eq!(storage_address(&lease), None, "{identity}");
    }
}

#[test]
fn an_empty_lease_is_free() {
    let ours = written(election("b").next(&LeaseSpec::default(), Duration::ZERO, NOW));
    assert_eq!(holder(&ours), "b");
}

#[test]
fn what_was_sent_is_known_when_it_comes_back() {
    let sent = election("a").claim(now());
    let text = serde_json::to_string(&sent).unwrap();
    assert_eq!(serde_json::from_str::<LeaseSpec>(&text).unwrap(), sent);
}
