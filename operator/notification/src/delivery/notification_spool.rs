//! Keeps waiting notifications in files, so that a restart does not lose them.
//!
//! A notification has its file before it is sent, and the file is deleted when the notification is sent or given up. If the
//! process ends before it learns the answer, the notification is sent once more, and none is lost. If the disk takes no file,
//! notifications wait in memory. Windlass does not flush the files to the disk, so a machine that fails may lose the last
//! ones.
//!
//! If the spool is full, the namespace with the most waiting notifications makes room, so that no tenant drives out the
//! notifications of others.
//! Here: files, and which notifications wait for which Provider. Everything here may block. Below: which namespace makes room
//! (`notification_spool/quota.rs`). Elsewhere: in which order they are sent (`provider_queues`).

mod quota;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::quota::SpoolUsageByNamespace;
use super::incident_notifications::{
    IncidentNotificationKey, IncidentTransition, IncidentTransitionReference,
};
use super::provider_queues::ProviderKey;

/// The folder in that of the artifacts.
const FOLDER: &str = ".notifications";

/// The name of a file that is not completely written.
const UNFINISHED: &str = ".unfinished";

/// The limits of the notifications that wait for all Providers together.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpoolBounds {
    pub(super) notifications: usize,
    pub(super) bytes: u64,
}

impl Default for SpoolBounds {
    fn default() -> Self {
        Self { notifications: 10_000, bytes: 64 << 20 }
    }
}

/// How many bytes of stored notifications are also in memory, since most are sent at once.
const ALSO_KEPT: u64 = 1 << 20;

/// The largest notification in bytes. The limit is needed because the Alert and the controller write metadata of any length.
/// Messages are shorter.
pub(super) const MAX_NOTIFICATION_BYTES: usize = 256 << 10;

/// The notification of an Alert to its Provider, about an event that the Alert selected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuedNotification {
    /// The namespace of Alert and Provider.
    pub(super) namespace: String,
    pub(super) alert: String,
    pub(super) provider: String,
    /// The time when the notification began to wait, in seconds since 1970.
    pub(super) since: i64,
    /// The incident that the notification is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incident: Option<IncidentTransitionReference>,
    /// The event in the form in which it is posted.
    event: Value,
    nanoseconds: u32,
}

impl QueuedNotification {
    /// A notification about an event, with all its metadata.
    pub(super) fn new(
        namespace: &str,
        alert: &str,
        provider: &str,
        event: &notify::FluxEvent,
        since: i64,
    ) -> Self {
        let [namespace, alert, provider] = [namespace, alert, provider].map(str::to_owned);
        let nanoseconds = event.nanoseconds;
        let event = serde_json::to_value(event).unwrap_or_default();
        Self { namespace, alert, provider, since, incident: None, event, nanoseconds }
    }

    /// The same notification, marked as one about an incident.
    pub(super) fn about(self, incident: IncidentTransitionReference) -> Self {
        Self { incident: Some(incident), ..self }
    }

    /// The event.
    pub(super) fn event(&self) -> notify::FluxEvent {
        let event = notify::FluxEvent::deserialize(&self.event).unwrap_or_default();
        let incident = self.incident.as_ref().map(IncidentTransitionReference::incident);
        notify::FluxEvent {
            nanoseconds: self.nanoseconds,
            lacks_metadata: false,
            incident,
            ..event
        }
    }

    /// The identity of the notification, if it is about an incident.
    pub(super) fn step(&self) -> Option<IncidentNotificationKey> {
        let mark = self.incident.clone()?;
        let [namespace, alert, provider] =
            [&self.namespace, &self.alert, &self.provider].map(Clone::clone);
        Some(IncidentNotificationKey { namespace, alert, provider, mark })
    }

    /// Whether the notification reports the end of an incident.
    pub(super) fn ends_incident(&self) -> bool {
        self.incident.as_ref().is_some_and(|mark| mark.saying == IncidentTransition::Resolved)
    }

    pub(super) fn provider_key(&self) -> ProviderKey {
        ProviderKey { namespace: self.namespace.clone(), name: self.provider.clone() }
    }

    fn is_error(&self) -> bool {
        self.event["severity"] == "error"
    }
}

struct SpoolEntry {
    namespace: String,
    bytes: u64,
    step: Option<IncidentNotificationKey>,
    /// The notification, if it has no file or is short enough to be in memory as well.
    kept: Option<Arc<QueuedNotification>>,
}

#[derive(Default)]
struct SpoolState {
    entries: BTreeMap<u64, SpoolEntry>,
    shares: SpoolUsageByNamespace,
    next: u64,
    /// The bytes of the notifications in memory.
    kept: u64,
}

/// A store of waiting notifications, one file for each, so that they survive a restart of the process.
/// If the disk rejects a write, the notification waits in memory.
#[derive(Default)]
pub(super) struct NotificationSpool {
    folder: PathBuf,
    bounds: SpoolBounds,
    state: Mutex<SpoolState>,
}

/// Whether a notification was put into the spool, and how many were dropped for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpoolPutResult {
    /// The number of the notification. `None` if there was no room.
    pub(super) number: Option<u64>,
    /// How many notifications were dropped to make room. The new one may be among them.
    pub(super) dropped: usize,
}

impl NotificationSpool {
    /// Opens the spool in the storage folder, and returns the waiting notifications in the order in which they came.
    /// Unreadable files are removed.
    pub(super) fn open(storage: &Path, bounds: SpoolBounds) -> (Self, Vec<(u64, ProviderKey)>) {
        let folder = storage.join(FOLDER);
        let mut state = SpoolState::default();
        let mut found = Vec::new();
        if let Err(error) = prepare(&folder) {
            tracing::error!(folder = %folder.display(), error = %error, "cannot keep notifications on the disk; they wait in memory");
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            let is_finished = path.extension().is_some_and(|it| it == "json");
            let read = number.filter(|_| is_finished).and_then(|number| {
                let (notification, bytes) = read(&path).ok()?;
                Some((number, notification, bytes))
            });
            let Some((number, notification, bytes)) = read else {
                tracing::info!(file = %path.display(), "removed a file that is no notification");
                drop(fs::remove_file(&path));
                continue;
            };
            state.next = state.next.max(number.saturating_add(1));
            state.insert(number, &notification, bytes, None);
            found.push((number, notification.provider_key()));
        }
        found.sort_by_key(|(number, _)| *number);
        (Self { folder, bounds, state: Mutex::new(state) }, found)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.json"))
    }

    /// The notifications about incidents that wait.
    pub(super) fn steps(&self) -> BTreeSet<IncidentNotificationKey> {
        self.state.lock().entries.values().filter_map(|entry| entry.step.clone()).collect()
    }

    /// The number of waiting notifications.
    pub(super) fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Adds a notification to the spool. If there is no room, the namespace with the most waiting notifications loses one,
    /// which may be the new one's namespace. It loses its oldest notification about a success, or if there is none, its oldest
    /// one about a failure.
    pub(super) fn put(&self, notification: QueuedNotification) -> SpoolPutResult {
        let text = serde_json::to_vec(&notification).unwrap_or_default();
        let bytes = text.len() as u64;
        let is_error = notification.is_error();
        let mut put = SpoolPutResult::default();
        let mut gone = Vec::new();
        let number = {
            let mut state = self.state.lock();
            loop {
                let is_full = state.shares.count >= self.bounds.notifications;
                if !is_full && state.shares.bytes + bytes <= self.bounds.bytes {
                    break;
                }
                put.dropped += 1;
                let own = &notification.namespace;
                let Some(number) = state.shares.next(own, is_error, (!is_full).then_some(bytes))
                else {
                    // The new notification is dropped itself.
                    gone.iter().for_each(|number| drop(fs::remove_file(self.path(*number))));
                    return put;
                };
                state.forget(number);
                gone.push(number);
            }
            let number = state.next;
            state.next = state.next.saturating_add(1);
            // Until the notification has a file, it is in memory, so that the worker of its Provider finds it.
            let notification = Arc::new(notification);
            state.insert(number, &notification, bytes, Some(notification.clone()));
            number
        };
        gone.iter().for_each(|number| drop(fs::remove_file(self.path(*number))));
        match self.write(number, &text) {
            Ok(()) => {
                // Otherwise the notification came to its end meanwhile.
                if !self.state.lock().written(number) {
                    drop(fs::remove_file(self.path(number)));
                }
            }
            Err(error) => {
                tracing::error!(error = %error, "failed to keep a notification on the disk; it waits in memory");
            }
        }
        put.number = Some(number);
        put
    }

    fn write(&self, number: u64, text: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{number:020}{UNFINISHED}"));
        let written = fs::write(&unfinished, text);
        let written = written.and_then(|()| fs::rename(&unfinished, self.path(number)));
        // On a full disk, the unfinished file has to be removed to make room.
        written.inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    /// Reads a waiting notification. `None` if it was dropped to make room for others.
    pub(super) fn read(&self, number: u64) -> Option<Arc<QueuedNotification>> {
        if let Some(kept) = self.state.lock().entries.get(&number)?.kept.clone() {
            return Some(kept);
        }
        let found = read(&self.path(number));
        // The notification was dropped meanwhile.
        if !self.state.lock().entries.contains_key(&number) {
            return None;
        }
        match found {
            Ok((notification, _)) => Some(Arc::new(notification)),
            Err(error) => {
                tracing::error!(error = %error, "failed to read a notification, which is lost");
                self.remove(number);
                None
            }
        }
    }

    /// A notification has come to its end.
    pub(super) fn remove(&self, number: u64) {
        let known = self.state.lock().forget(number);
        if known {
            drop(fs::remove_file(self.path(number)));
        }
    }
}

impl SpoolState {
    fn insert(
        &mut self,
        number: u64,
        notification: &QueuedNotification,
        bytes: u64,
        kept: Option<Arc<QueuedNotification>>,
    ) {
        let namespace = notification.namespace.clone();
        self.shares.add(&namespace, number, notification.is_error(), bytes);
        let step = notification.step();
        self.kept += if kept.is_some() { bytes } else { 0 };
        self.entries.insert(number, SpoolEntry { namespace, bytes, step, kept });
    }

    /// A notification is in its file. Returns whether it still waits.
    fn written(&mut self, number: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        if self.kept > ALSO_KEPT && entry.kept.take().is_some() {
            self.kept -= entry.bytes;
        }
        true
    }

    fn forget(&mut self, number: u64) -> bool {
        let Some(SpoolEntry { namespace, bytes, kept, .. }) = self.entries.remove(&number) else {
            return false;
        };
        self.kept -= if kept.is_some() { bytes } else { 0 };
        self.shares.remove(&namespace, number, bytes);
        true
    }
}

fn prepare(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

fn read(path: &Path) -> io::Result<(QueuedNotification, u64)> {
    let text = fs::read(path)?;
    Ok((serde_json::from_slice(&text)?, text.len() as u64))
}

#[cfg(test)]
mod tests {
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

    fn messages(spool: &NotificationSpool, numbers: &[(u64, ProviderKey)]) -> Vec<String> {
        let read = numbers.iter().filter_map(|(number, _)| spool.read(*number));
        read.map(|it| it.event().message).collect()
    }

    #[test]
    fn what_waits_is_there_after_a_restart_in_its_order_and_what_ended_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, found) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        assert!(found.is_empty());
        for message in ["first", "second", "third"] {
            spool.put(notification("info", message));
        }
        spool.remove(1);
        let (spool, found) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        assert_eq!(messages(&spool, &found), ["first", "third"]);
        assert_eq!(
            found[0].1,
            ProviderKey { namespace: "apps".to_owned(), name: "chat".to_owned() }
        );
        let event = spool.read(found[0].0).unwrap().event();
        assert_eq!((event.timestamp, event.nanoseconds), (Some(1_700_000_000), 7));
        assert_eq!(spool.put(notification("info", "fourth")).number, Some(3));
    }

    #[test]
    fn a_step_of_an_incident_is_known_while_it_waits_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        spool.put(notification("info", "of no incident"));
        let mark = IncidentTransitionReference {
            namespace: "apps".to_owned(),
            name: "i".to_owned(),
            uid: "u".to_owned(),
            opened: 7,
            reason: "Build".to_owned(),
            saying: IncidentTransition::Opened,
            thread: None,
        };
        let number = spool.put(notification("error", "opened").about(mark.clone())).number.unwrap();
        let step = spool.read(number).unwrap().step().unwrap();
        assert_eq!((step.alert.as_str(), &step.mark), ("alert", &mark));
        assert_eq!(spool.steps(), BTreeSet::from([step.clone()]));
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        assert_eq!(spool.steps(), BTreeSet::from([step]));
        let incident = spool.read(number).unwrap().event().incident.unwrap();
        assert_eq!((incident.key.as_str(), incident.is_open), ("u-7", true));
        spool.remove(number);
        assert!(spool.steps().is_empty());
    }

    #[test]
    fn only_so_much_of_what_is_in_files_is_in_memory_too() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        let message = "x".repeat(39_000);
        for _ in 0..50 {
            spool.put(notification("info", &message));
        }
        let state = spool.state.lock();
        let kept = state.entries.values().filter(|entry| entry.kept.is_some()).count();
        assert!(state.kept <= ALSO_KEPT && (20..50).contains(&kept), "{kept}, {}", state.kept);
        drop(state);
        for number in 0..50 {
            assert_eq!(spool.read(number).unwrap().event().message.len(), message.len());
            spool.remove(number);
        }
        assert_eq!(spool.state.lock().kept, 0);
    }

    #[test]
    fn what_is_no_notification_or_was_not_written_to_its_end_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        spool.put(notification("info", "good"));
        let place = folder.path().join(FOLDER);
        for name in ["00000000000000000009.json", "x.json", "00000000000000000008.unfinished"] {
            fs::write(place.join(name), "{").unwrap();
        }
        let (spool, found) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        assert_eq!(messages(&spool, &found), ["good"]);
        assert_eq!(fs::read_dir(place).unwrap().count(), 1);
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
        assert_eq!(refused, SpoolPutResult { number: None, dropped: 1 });
        let last = spool.put(notification("error", "e4"));
        assert_eq!((last.number.is_some(), last.dropped), (true, 1));
        let (spool, found) = NotificationSpool::open(folder.path(), bounds);
        assert_eq!(messages(&spool, &found), ["e2", "e3", "e4"]);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = SpoolBounds { notifications: 100, bytes: 5_000 };
        let (spool, _) = NotificationSpool::open(folder.path(), bounds);
        for _ in 0..20 {
            spool.put(notification("info", &"x".repeat(1_000)));
        }
        assert!(spool.state.lock().shares.bytes <= 5_000);
        assert!((2..5).contains(&spool.len()), "{}", spool.len());
    }

    #[test]
    fn where_the_disk_takes_nothing_notifications_wait_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FOLDER), "in the way").unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        let number = spool.put(notification("error", "kept")).number.unwrap();
        assert_eq!(spool.read(number).unwrap().event().message, "kept");
        spool.remove(number);
        assert_eq!(spool.len(), 0);
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
                assert!(put.number.is_some() && put.dropped <= 1, "{put:?}");
            }
            // Who has less than others gets room.
            assert!(spool.put(of("third", "three")).number.is_some());
            let (spool, found) = NotificationSpool::open(folder.path(), bounds);
            let messages = messages(&spool, &found);
            let short: Vec<_> = messages.iter().filter(|it| it.len() < 10).collect();
            assert_eq!(short, ["one", "two", "three"], "{bounds:?}");
            assert!(messages.len() <= bounds.notifications && messages.len() > 4, "{bounds:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_to_its_end_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, _) = NotificationSpool::open(folder.path(), SpoolBounds::default());
        fs::create_dir_all(spool.path(0).join("in the way")).unwrap();
        let number = spool.put(notification("info", "kept")).number.unwrap();
        assert_eq!(spool.read(number).unwrap().event().message, "kept");
        let left = fs::read_dir(folder.path().join(FOLDER)).unwrap().count();
        assert_eq!(left, 1, "the file that was begun is there");
    }
}
