//! Which notifications wait after restarts, kills, damage and failed writes.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::super::incident_notifications::{IncidentTransition, IncidentTransitionReference};
use super::*;

fn notification(severity: &str, message: &str) -> QueuedNotification {
    let event = notify::FluxEvent {
        severity: severity.to_owned(),
        message: message.to_owned(),
        timestamp: Some(1_700_000_000),
        nanoseconds: 7,
        ..notify::FluxEvent::default()
    };
    QueuedNotification::new("apps", "alert", "chat", &event, 1_700_000_000)
}

fn open(folder: &TempDir) -> (NotificationSpool, Vec<WaitingNotification>) {
    NotificationSpool::open(folder.path(), SpoolBounds::default())
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join(FOLDER).join("waiting.records")
}

fn file_len(folder: &TempDir) -> u64 {
    fs::metadata(file(folder)).unwrap().len()
}

/// Puts a notification about a success into the spool, and writes it.
fn put(spool: &NotificationSpool, message: &str) -> u64 {
    let number = spool.put(notification("info", message)).number.unwrap();
    let written = spool.write();
    assert!(written.iter().any(|it| it.number == number), "{message}");
    number
}

fn messages(spool: &NotificationSpool, found: &[WaitingNotification]) -> Vec<String> {
    let read = found.iter().filter_map(|waiting| spool.read(waiting.number));
    read.map(|it| it.event().message).collect()
}

/// The messages after a restart.
fn messages_found(folder: &TempDir) -> Vec<String> {
    let (spool, found) = open(folder);
    messages(&spool, &found)
}

#[test]
fn what_waits_is_there_after_a_restart_in_its_order_and_what_ended_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, found) = open(&folder);
    assert!(found.is_empty());
    for message in ["first", "second", "third"] {
        put(&spool, message);
    }
    spool.remove(1);
    assert!(spool.write().is_empty());
    drop(spool);
    let (spool, found) = open(&folder);
    assert_eq!(messages(&spool, &found), ["first", "third"]);
    let chat = ProviderKey { namespace: "apps".to_owned(), name: "chat".to_owned() };
    assert_eq!(found[0].provider, chat);
    let event = spool.read(found[0].number).unwrap().event();
    assert_eq!((event.timestamp, event.nanoseconds), (Some(1_700_000_000), 7));
    assert_eq!(put(&spool, "fourth"), 3);
}

#[test]
fn a_notification_is_given_out_once_and_only_after_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    for message in ["first", "second"] {
        spool.put(notification("info", message));
    }
    assert_eq!(file_len(&folder), 0);
    let written: Vec<u64> = spool.write().into_iter().map(|it| it.number).collect();
    assert_eq!(written, [0, 1]);
    assert!(file_len(&folder) > 0 && spool.write().is_empty());
    // One that comes to its end before it was written leaves no record.
    let length = file_len(&folder);
    spool.remove(spool.put(notification("info", "third")).number.unwrap());
    assert!(spool.write().is_empty());
    assert_eq!(file_len(&folder), length);
}

#[test]
fn a_killed_process_leaves_what_it_had_written_wherever_it_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    let mut lengths = Vec::new();
    for message in ["first", "second", "third"] {
        put(&spool, message);
        lengths.push(file_len(&folder));
    }
    spool.remove(0);
    spool.write();
    lengths.push(file_len(&folder));
    drop(spool);
    let written = fs::read(file(&folder)).unwrap();
    let expected: [&[&str]; 5] = [
        &[],
        &["first"],
        &["first", "second"],
        &["first", "second", "third"],
        &["second", "third"],
    ];
    let is_near = |end: usize| {
        end.is_multiple_of(40) || lengths.iter().any(|length| length.abs_diff(end as u64) < 3)
    };
    for end in (0..=written.len()).filter(|end| is_near(*end)) {
        fs::write(file(&folder), &written[..end]).unwrap();
        // A record without its line feed is whole.
        let whole = lengths.iter().filter(|length| **length <= end as u64 + 1).count();
        assert_eq!(messages_found(&folder), expected[whole], "{end} bytes");
        // What was cut off is removed, so that what follows is read.
        let (spool, _) = open(&folder);
        put(&spool, "later");
        drop(spool);
        let expected = [expected[whole], &["later"]].concat();
        assert_eq!(messages_found(&folder), expected, "{end} bytes and one more");
    }
}

#[test]
fn a_damaged_record_loses_its_own_notification_and_the_file_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    for message in ["first", "second", "third"] {
        put(&spool, message);
    }
    drop(spool);
    let mut damaged = fs::read(file(&folder)).unwrap();
    let at = damaged.windows(8).position(|it| it == b"\"second\"").unwrap();
    damaged[at] ^= 1;
    fs::write(file(&folder), &damaged).unwrap();
    let (spool, found) = open(&folder);
    assert_eq!(messages(&spool, &found), ["first", "third"]);
    assert!(file_len(&folder) < damaged.len() as u64, "the damaged record is still there");
    // One that is damaged while the process runs is lost as well, and waits no longer.
    drop(spool);
    let (spool, found) = open(&folder);
    let mut damaged = fs::read(file(&folder)).unwrap();
    let at = damaged.windows(5).position(|it| it == b"third").unwrap();
    damaged[at] ^= 1;
    fs::write(file(&folder), &damaged).unwrap();
    assert_eq!(messages(&spool, &found), ["first"]);
    assert_eq!(spool.len(), 1);
}

#[test]
fn the_file_is_empty_when_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    let number = put(&spool, "first");
    assert!(file_len(&folder) > 0);
    spool.remove(number);
    spool.write();
    assert_eq!(file_len(&folder), 0);
    put(&spool, "second");
    drop(spool);
    assert_eq!(messages_found(&folder), ["second"]);
}

#[test]
fn the_file_is_written_anew_when_most_of_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    put(&spool, "old");
    let message = "x".repeat(39_000);
    let mut longest = 0;
    for _ in 0..200 {
        let number = put(&spool, &message);
        spool.remove(number);
        spool.write();
        longest = longest.max(file_len(&folder));
    }
    // 200 notifications have more than seven MiB.
    assert!((1 << 19..2 << 20).contains(&longest), "{longest}");
    put(&spool, "new");
    assert_eq!(spool.read(0).unwrap().event().message, "old");
    drop(spool);
    assert_eq!(messages_found(&folder), ["old", "new"]);
}

#[test]
fn what_came_or_ended_while_the_file_was_written_anew_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    for message in ["first", "second"] {
        put(&spool, message);
    }
    spool.put(notification("info", "third"));
    spool.remove(0);
    {
        let mut file = spool.file.lock();
        spool.rewrite(file.as_mut().unwrap()).unwrap();
    }
    spool.remove(1);
    assert_eq!(spool.write().len(), 1);
    drop(spool);
    assert_eq!(messages_found(&folder), ["third"]);
}

#[test]
fn what_an_earlier_version_left_is_taken_over_once() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(FOLDER);
    fs::create_dir_all(&place).unwrap();
    // As earlier versions wrote it.
    let text = |message: &str| {
        format!(
            r#"{{"namespace":"apps","alert":"alert","provider":"chat","since":1700000000,"event":{{"involvedObject":{{"kind":"Kustomization","name":"app"}},"message":"{message}","reason":"","reportingController":"","severity":"error","timestamp":"2023-11-14T22:13:20Z"}},"nanoseconds":7}}"#
        )
    };
    for (name, text) in [
        ("00000000000000000002.json", text("second")),
        ("00000000000000000010.json", text("third")),
        ("00000000000000000001.json", text("first")),
        ("00000000000000000009.json", "{".to_owned()),
        ("00000000000000000008.unfinished", text("unfinished")),
        ("x.json", text("unnamed")),
    ] {
        fs::write(place.join(name), text).unwrap();
    }
    let (spool, found) = open(&folder);
    assert_eq!(messages(&spool, &found), ["first", "second", "third"]);
    let event = spool.read(found[0].number).unwrap().event();
    assert_eq!((event.timestamp, event.nanoseconds), (Some(1_700_000_000), 7));
    assert_eq!((event.object.name.as_str(), event.severity.as_str()), ("app", "error"));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "the files are still there");
    spool.remove(found[1].number);
    spool.write();
    drop(spool);
    assert_eq!(messages_found(&folder), ["first", "third"]);
}

#[test]
fn what_an_earlier_version_left_is_not_taken_over_again_if_it_ended_without_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(FOLDER);
    // The file cannot be written anew.
    fs::create_dir_all(place.join("waiting.unfinished").join("in the way")).unwrap();
    let text = serde_json::to_vec(&notification("error", "first")).unwrap();
    fs::write(place.join("00000000000000000001.json"), text).unwrap();
    let (spool, found) = open(&folder);
    assert_eq!(messages(&spool, &found), ["first"]);
    spool.remove(found[0].number);
    spool.write();
    drop(spool);
    assert!(messages_found(&folder).is_empty());
}

fn opened_step() -> IncidentTransitionReference {
    IncidentTransitionReference {
        namespace: "apps".to_owned(),
        name: "i".to_owned(),
        uid: "u".to_owned(),
        opened: 7,
        reason: "Build".to_owned(),
        saying: IncidentTransition::Opened,
        thread: None,
    }
}

#[test]
fn a_step_of_an_incident_is_known_while_it_waits_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    put(&spool, "of no incident");
    let mark = opened_step();
    let number = spool.put(notification("error", "opened").about(mark.clone())).number.unwrap();
    let step = spool.read(number).unwrap().step().unwrap();
    assert_eq!((step.alert.as_str(), &step.mark), ("alert", &mark));
    assert_eq!(spool.steps(), BTreeSet::from([step.clone()]));
    spool.write();
    drop(spool);
    let (spool, _) = open(&folder);
    assert_eq!(spool.steps(), BTreeSet::from([step]));
    let incident = spool.read(number).unwrap().event().incident.unwrap();
    assert_eq!((incident.key.as_str(), incident.is_open), ("u-7", true));
    spool.remove(number);
    assert!(spool.steps().is_empty());
}

#[test]
fn only_so_much_of_what_is_in_the_file_is_in_memory_too() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    let message = "x".repeat(39_000);
    for _ in 0..50 {
        put(&spool, &message);
    }
    let state = spool.state.lock();
    let kept = state.entries.values().filter(|entry| entry.kept.is_some()).count();
    assert!(state.kept <= ALSO_KEPT && (20..50).contains(&kept), "{kept}, {}", state.kept);
    drop(state);
    for number in 0..50 {
        assert_eq!(spool.read(number).unwrap().event().message.len(), message.len());
        spool.remove(number);
    }
    let state = spool.state.lock();
    assert_eq!((state.kept, state.live), (0, 0));
}

#[test]
fn the_oldest_about_what_went_well_makes_room_and_failures_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SpoolBounds { notifications: 3, bytes: 1 << 20 };
    let (spool, _) = NotificationSpool::open(folder.path(), bounds);
    for (severity, message) in
        [("error", "e1"), ("info", "i1"), ("info", "i2"), ("error", "e2"), ("error", "e3")]
    {
        assert!(spool.put(notification(severity, message)).number.is_some(), "{message}");
    }
    let refused = spool.put(notification("info", "i3"));
    assert_eq!(refused, SpoolPutResult::default(), "it would have to drive out a failure");
    let last = spool.put(notification("error", "e4"));
    let provider = ProviderKey { namespace: "apps".to_owned(), name: "chat".to_owned() };
    assert!(last.number.is_some());
    assert_eq!(last.dropped, [DroppedNotification { number: 0, provider }]);
    // What was dropped before it was written is not given out.
    assert_eq!(spool.write().len(), 3);
    drop(spool);
    assert_eq!(messages_found(&folder), ["e2", "e3", "e4"]);
}

#[test]
fn bytes_are_bounded_too_also_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SpoolBounds { notifications: 100, bytes: 5_000 };
    let (spool, _) = NotificationSpool::open(folder.path(), bounds);
    for _ in 0..20 {
        spool.put(notification("info", &"x".repeat(1_000)));
    }
    let state = spool.state.lock();
    let unwritten: usize = state.changes.added.values().map(|it| it.record.len()).sum();
    assert!(state.shares.bytes <= 5_000 && unwritten < 6_000 && state.changes.ended.is_empty());
    drop(state);
    assert!((2..5).contains(&spool.len()), "{}", spool.len());
    assert!(spool.is_nearly_full());
}

#[test]
fn where_the_disk_takes_nothing_notifications_wait_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FOLDER), "in the way").unwrap();
    let (spool, _) = open(&folder);
    let number = put(&spool, "kept");
    assert_eq!(spool.read(number).unwrap().event().message, "kept");
    spool.remove(number);
    assert_eq!(spool.len(), 0);
    assert!(spool.write().is_empty());
    let state = spool.state.lock();
    assert!(state.changes.added.is_empty() && state.changes.ended.is_empty());
}

/// Makes the folder unusable, as long as a file is in its place.
fn block(folder: &TempDir) {
    fs::rename(folder.path().join(FOLDER), folder.path().join("aside")).unwrap();
    fs::write(folder.path().join(FOLDER), "in the way").unwrap();
}

fn unblock(folder: &TempDir) {
    fs::remove_file(folder.path().join(FOLDER)).unwrap();
    fs::rename(folder.path().join("aside"), folder.path().join(FOLDER)).unwrap();
}

#[test]
fn a_file_that_can_be_opened_later_gets_what_waits_in_memory_after_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    put(&spool, "before");
    drop(spool);
    block(&folder);
    let (spool, found) = open(&folder);
    assert!(found.is_empty() && spool.is_unsaved());
    for message in ["first", "second"] {
        put(&spool, message);
    }
    assert!(spool.recover().found.is_empty() && spool.is_unsaved());
    unblock(&folder);
    let opened = spool.recover();
    assert_eq!(messages(&spool, &opened.found), ["before"]);
    assert!(opened.dropped.is_empty() && !spool.is_unsaved());
    put(&spool, "third");
    drop(spool);
    assert_eq!(messages_found(&folder), ["before", "first", "second", "third"]);
}

#[test]
fn a_step_that_a_file_opened_later_has_and_that_waits_in_memory_is_one_notification() {
    let folder = tempfile::tempdir().unwrap();
    let put_step = |spool: &NotificationSpool, message: &str| {
        spool.put(notification("error", message).about(opened_step()));
        spool.write();
    };
    let (spool, _) = open(&folder);
    put_step(&spool, "in the file");
    put(&spool, "of no incident");
    drop(spool);
    block(&folder);
    let (spool, _) = open(&folder);
    put_step(&spool, "in memory");
    unblock(&folder);
    let opened = spool.recover();
    assert_eq!(messages(&spool, &opened.found), ["of no incident"]);
    drop(spool);
    assert_eq!(messages_found(&folder), ["of no incident", "in memory"]);
}

#[test]
fn what_another_process_leaves_is_found_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (former, _) = open(&folder);
    let (spool, found) = open(&folder);
    assert!(found.is_empty() && spool.is_used_elsewhere() && spool.is_unopened());
    put(&former, "before");
    assert!(spool.recover().found.is_empty() && spool.is_used_elsewhere());
    drop(former);
    assert_eq!(messages(&spool, &spool.recover().found), ["before"]);
    assert!(!spool.is_used_elsewhere() && !spool.is_unopened() && !spool.is_unsaved());
}

#[test]
fn what_a_file_that_was_opened_later_has_counts_towards_the_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    for message in ["one", "two"] {
        put(&spool, message);
    }
    drop(spool);
    block(&folder);
    let bounds = SpoolBounds { notifications: 3, bytes: 1 << 20 };
    let (spool, _) = NotificationSpool::open(folder.path(), bounds);
    for message in ["three", "four"] {
        put(&spool, message);
    }
    unblock(&folder);
    let opened = spool.recover();
    assert_eq!(messages(&spool, &opened.found), ["two"]);
    assert_eq!((opened.dropped.len(), spool.len()), (1, 3));
    drop(spool);
    assert_eq!(messages_found(&folder), ["two", "three", "four"]);
}

#[test]
fn notifications_of_a_file_with_higher_numbers_get_others() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    // As if the clock had been set back since then.
    spool.state.lock().next = u64::MAX / 2;
    put(&spool, "before");
    drop(spool);
    block(&folder);
    let (spool, _) = open(&folder);
    put(&spool, "first");
    unblock(&folder);
    let opened = spool.recover();
    assert_eq!(messages(&spool, &opened.found), ["before"]);
    drop(spool);
    assert_eq!(messages_found(&folder), ["first", "before"]);
}

#[test]
fn what_could_not_be_written_is_written_when_the_file_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(&folder);
    put(&spool, "first");
    let number = spool.put(notification("info", "second")).number.unwrap();
    // As if the disk had not taken it.
    drop(std::mem::take(&mut spool.state.lock().changes));
    assert_eq!(spool.read(number).unwrap().event().message, "second");
    {
        let mut file = spool.file.lock();
        spool.rewrite(file.as_mut().unwrap()).unwrap();
    }
    drop(spool);
    assert_eq!(messages_found(&folder), ["first", "second"]);
}

#[test]
fn a_namespace_of_which_most_waits_drives_out_nothing_of_others() {
    let of = |namespace: &str, message: &str| {
        let namespace = namespace.to_owned();
        QueuedNotification { namespace, ..notification("error", message) }
    };
    for bounds in [
        SpoolBounds { notifications: 5, bytes: 1 << 20 },
        SpoolBounds { notifications: 1_000, bytes: 6_000 },
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), bounds);
        for message in ["one", "two"] {
            spool.put(of("quiet", message));
        }
        for _ in 0..50 {
            let put = spool.put(of("loud", &"x".repeat(1_000)));
            assert!(put.number.is_some() && put.dropped.len() <= 1, "{put:?}");
            spool.write();
        }
        // Who has less than others gets room.
        assert!(spool.put(of("third", "three")).number.is_some());
        spool.write();
        drop(spool);
        let messages = messages_found(&folder);
        let short: Vec<_> = messages.iter().filter(|it| it.len() < 10).collect();
        assert_eq!(short, ["one", "two", "three"], "{bounds:?}");
        assert!(messages.len() <= bounds.notifications && messages.len() > 4, "{bounds:?}");
    }
}
