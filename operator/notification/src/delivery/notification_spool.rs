//! Keeps waiting notifications in a file, so that a restart does not lose them.
//!
//! The file has a record for each notification that waits, and one for each that was sent or given up. Records are appended:
//! those that came since the last write are written together ([`NotificationSpool::write`]), and a notification is sent only
//! after that. If the process ends before it learns the answer, the notification is sent once more, and none is lost. If the
//! disk takes no records, notifications wait in memory. The file is flushed to the disk later, once for many records, so a
//! machine that fails may lose the last ones. When most of the file is about ended notifications, it is written anew.
//!
//! A damaged record loses its own notification only, or sends it a second time if the record was about its end.
//!
//! If the spool is full, the namespace with the most waiting notifications makes room, so that no tenant drives out the
//! notifications of others.
//! Here: which notifications wait, and in which form. Below: the file (`spool_file`) and its records (`spool_records`), opening
//! it and trying again (`spool_recovery`), files of earlier versions (`earlier_layout`), which namespace makes room (`quota`).
//! Elsewhere: when records are written (`notification_queue`), in which order notifications are sent (`provider_queues`).

mod earlier_layout;
mod quota;
mod spool_file;
mod spool_records;
mod spool_recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use self::earlier_layout::EarlierNotifications;
use self::quota::SpoolUsageByNamespace;
use self::spool_file::{SpoolFile, read_content};
use self::spool_records::{RecordPlace, SpoolFilePart, SpoolRecord};
pub(super) use self::spool_recovery::{FORMER_PROCESS_TIME, SpoolOpenResult};
use super::incident_notifications::IncidentNotificationKey;
use super::provider_queues::ProviderKey;
use super::queued_notification::{QueuedNotification, WaitingNotification};

/// The folder in that of the artifacts.
const FOLDER: &str = ".notifications";

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

struct SpoolEntry {
    provider: ProviderKey,
    is_error: bool,
    bytes: u64,
    step: Option<IncidentNotificationKey>,
    /// The notification, if it has no record or is short enough to be in memory as well.
    kept: Option<Arc<QueuedNotification>>,
    /// Where its record is.
    place: Option<RecordPlace>,
}

/// A new notification that has no record in the file yet.
struct UnwrittenNotification {
    record: Vec<u8>,
    waiting: WaitingNotification,
}

/// What has changed since the last write.
#[derive(Default)]
struct SpoolChanges {
    /// The new notifications, by number. One that comes to its end before it was written needs no record.
    added: BTreeMap<u64, UnwrittenNotification>,
    /// The notifications that came to their end after they were written.
    ended: Vec<u64>,
}

#[derive(Default)]
struct SpoolState {
    entries: BTreeMap<u64, SpoolEntry>,
    shares: SpoolUsageByNamespace,
    next: u64,
    /// The number of the first notification of this process, if its file could not be opened at the start.
    first: u64,
    /// The bytes of the notifications in memory.
    kept: u64,
    changes: SpoolChanges,
    /// The bytes of the records of waiting notifications.
    live: u64,
    /// The file in which the records of waiting notifications are.
    reader: Option<Arc<File>>,
}

/// The record of a notification, and where it is.
struct WrittenRecord {
    number: u64,
    place: RecordPlace,
}

/// From where the record of a notification comes when the file is written anew.
enum RecordSource {
    File(RecordPlace),
    Memory(Arc<QueuedNotification>),
}

impl RecordSource {
    fn record(&self, number: u64, file: &File) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::File(place) => spool_records::framed(&read_content(file, *place)?),
            Self::Memory(notification) => {
                spool_records::added(number, &serde_json::to_vec(&**notification)?)
            }
        })
    }
}

/// A store of waiting notifications in a file, so that they survive a restart of the process.
/// If the disk rejects a write, the notification waits in memory.
#[derive(Default)]
pub(super) struct NotificationSpool {
    bounds: SpoolBounds,
    folder: PathBuf,
    state: Mutex<SpoolState>,
    /// The file, if it can be used. It is locked before `state`.
    file: Mutex<Option<SpoolFile>>,
    /// The files of an earlier version, until their notifications have records.
    earlier: Mutex<EarlierNotifications>,
    /// Whether notifications wait in memory only, because the disk does not take them.
    is_unsaved: AtomicBool,
    /// Whether that is so because another process uses the file.
    is_used_elsewhere: AtomicBool,
}

/// Whether a notification was put into the spool, and which others were dropped for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpoolPutResult {
    /// The number of the notification. `None` if there was no room.
    pub(super) number: Option<u64>,
    /// The notifications that were dropped to make room.
    pub(super) dropped: Vec<DroppedNotification>,
}

/// A notification that waits no longer, because another one needs its room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DroppedNotification {
    pub(super) number: u64,
    pub(super) provider: ProviderKey,
}

impl NotificationSpool {
    /// Opens the spool in the storage folder, and returns the waiting notifications in the order in which they came. If that is
    /// not possible, notifications wait in memory until [`Self::recover`] succeeds. It blocks.
    pub(super) fn open(storage: &Path, bounds: SpoolBounds) -> (Self, Vec<WaitingNotification>) {
        let spool = Self { bounds, folder: storage.join(FOLDER), ..Self::default() };
        let opened = spool.open_file(&mut spool.file.lock());
        match opened {
            Ok(opened) => (spool, opened.found),
            Err(error) => {
                spool.report_failure(&error);
                let first = spool_recovery::first_number_without_file();
                *spool.state.lock() = SpoolState { first, next: first, ..SpoolState::default() };
                (spool, Vec::new())
            }
        }
    }

    /// The notifications about incidents that wait.
    pub(super) fn steps(&self) -> BTreeSet<IncidentNotificationKey> {
        self.state.lock().entries.values().filter_map(|entry| entry.step.clone()).collect()
    }

    /// The number of waiting notifications.
    pub(super) fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Whether more than three quarters of the room are taken.
    pub(super) fn is_nearly_full(&self) -> bool {
        let SpoolUsageByNamespace { count, bytes, .. } = self.state.lock().shares;
        count > self.bounds.notifications / 4 * 3 || bytes > self.bounds.bytes / 4 * 3
    }

    /// Adds a notification to the spool, which is sent once [`Self::write`] returns it. If there is no room, the namespace
    /// with the most waiting notifications loses one, which may be the new one's namespace. It loses its oldest notification
    /// about a success, or if there is none, its oldest one about a failure.
    pub(super) fn put(&self, notification: QueuedNotification) -> SpoolPutResult {
        let text = serde_json::to_vec(&notification).unwrap_or_default();
        let bytes = text.len() as u64;
        let is_error = notification.is_error();
        let mut put = SpoolPutResult::default();
        let mut state = self.state.lock();
        let own = &notification.namespace;
        // Without room, the new notification is dropped itself.
        if !state.make_room(self.bounds, own, is_error, bytes, &mut put.dropped) {
            return put;
        }
        let number = state.next;
        state.next = number.saturating_add(1);
        let notification = Arc::new(notification);
        let waiting = WaitingNotification::new(number, &notification);
        let record = spool_records::added(number, &text);
        // Until the notification has a record, it is in memory.
        let entry = SpoolEntry::new(&notification, bytes);
        state.insert(number, SpoolEntry { kept: Some(notification), ..entry });
        state.changes.added.insert(number, UnwrittenNotification { record, waiting });
        put.number = Some(number);
        put
    }

    /// Writes records about what has changed since the last call, and returns the new notifications, which may be sent now. It
    /// blocks.
    pub(super) fn write(&self) -> Vec<WaitingNotification> {
        let mut file = self.file.lock();
        let mut state = self.state.lock();
        let changes = std::mem::take(&mut state.changes);
        let is_empty = state.entries.is_empty();
        drop(state);
        if let Some(file) = &mut *file {
            let written = if is_empty { self.clear(file) } else { self.append(file, &changes) };
            self.report(file, written);
        }
        changes.added.into_values().map(|added| added.waiting).collect()
    }

    /// Flushes the records that were written since the last call to the disk. It blocks.
    pub(super) fn flush(&self) {
        let unflushed = self.file.lock().as_mut().and_then(SpoolFile::unflushed);
        // Meanwhile, others may write.
        if let Some(Err(error)) = unflushed.map(|file| file.sync_data()) {
            tracing::error!(error = %error, "failed to flush the file of waiting notifications to the disk");
        }
    }

    fn clear(&self, file: &mut SpoolFile) -> io::Result<()> {
        file.clear()?;
        self.remove_earlier_files();
        Ok(())
    }

    fn append(&self, file: &mut SpoolFile, changes: &SpoolChanges) -> io::Result<()> {
        if file.lacks_records() {
            // These records would not be all, so the next write is one of all notifications.
            return if file.may_be_replaced() { self.rewrite(file) } else { Ok(()) };
        }
        let mut records: Vec<u8> =
            changes.ended.iter().flat_map(|number| spool_records::ended(*number)).collect();
        let mut written = Vec::new();
        for (number, UnwrittenNotification { record, .. }) in &changes.added {
            let place = RecordPlace::of_record(record, records.len() as u64);
            written.push(WrittenRecord { number: *number, place });
            records.extend_from_slice(record);
        }
        if records.is_empty() {
            return Ok(());
        }
        let begin = file.append(&records)?;
        let live = {
            let mut state = self.state.lock();
            for WrittenRecord { number, place } in written {
                let offset = begin + place.offset;
                state.written(number, RecordPlace { offset, ..place });
            }
            state.reader = Some(file.reader());
            state.live
        };
        let is_due = file.is_mostly_dead(live) && file.may_be_replaced();
        if is_due { self.rewrite(file) } else { Ok(()) }
    }

    /// Writes the file anew, with the records of waiting notifications only. Those that were added since the last write get
    /// theirs at the next one.
    fn rewrite(&self, file: &mut SpoolFile) -> io::Result<()> {
        let sources = self.state.lock().sources();
        let former = file.reader();
        let mut written = Vec::new();
        let mut offset = 0;
        file.replace(sources.iter().map(|(number, source)| {
            let record = source.record(*number, &former)?;
            let place = RecordPlace::of_record(&record, offset);
            written.push(WrittenRecord { number: *number, place });
            offset += record.len() as u64;
            Ok(record)
        }))?;
        let mut state = self.state.lock();
        state.live = 0;
        for WrittenRecord { number, place } in written {
            state.written(number, place);
        }
        state.reader = Some(file.reader());
        drop(state);
        self.remove_earlier_files();
        Ok(())
    }

    /// Removes the files of an earlier version, since their notifications have records or have come to their end.
    fn remove_earlier_files(&self) {
        std::mem::take(&mut *self.earlier.lock()).remove_files();
    }

    /// A waiting notification, if it is in memory. `None` if it is only on the disk, or does not wait.
    pub(super) fn in_memory(&self, number: u64) -> Option<Arc<QueuedNotification>> {
        self.state.lock().entries.get(&number)?.kept.clone()
    }

    /// Reads a waiting notification. `None` if it was dropped to make room for others. It blocks.
    pub(super) fn read(&self, number: u64) -> Option<Arc<QueuedNotification>> {
        let (place, file) = {
            let state = self.state.lock();
            let entry = state.entries.get(&number)?;
            if let Some(kept) = &entry.kept {
                return Some(kept.clone());
            }
            (entry.place, state.reader.clone())
        };
        let found = match (place, file) {
            (Some(place), Some(file)) => read_notification(&file, place),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        // The notification was dropped meanwhile.
        if !self.state.lock().entries.contains_key(&number) {
            return None;
        }
        match found {
            Ok(notification) => Some(Arc::new(notification)),
            Err(error) => {
                tracing::error!(error = %error, "failed to read a notification, which is lost");
                self.remove(number);
                None
            }
        }
    }

    /// A notification has come to its end. The next [`Self::write`] records that.
    pub(super) fn remove(&self, number: u64) {
        self.state.lock().forget(number);
    }
}

impl SpoolEntry {
    /// An entry for a notification that is neither in memory nor in the file.
    fn new(notification: &QueuedNotification, bytes: u64) -> Self {
        let provider = notification.provider_key();
        let is_error = notification.is_error();
        Self { provider, is_error, bytes, step: notification.step(), kept: None, place: None }
    }
}

impl SpoolState {
    /// Reads the file after it was opened, and collects the waiting notifications. Returns false if the file has to be written
    /// anew, because a part of it is damaged.
    ///
    /// # Errors
    /// The file cannot be read to its end. What was read until there is collected.
    fn load(
        &mut self,
        file: &SpoolFile,
        found: &mut BTreeMap<u64, WaitingNotification>,
    ) -> io::Result<bool> {
        let mut damaged = Vec::new();
        let read = file.scan(|part| {
            let is_read = match spool_records::parse(part.content) {
                Some(SpoolRecord::Added { number, text }) => {
                    self.load_added(number, text, part.place, found)
                }
                Some(SpoolRecord::Ended { number }) => {
                    self.next = self.next.max(number.saturating_add(1));
                    self.forget(number);
                    found.remove(&number);
                    true
                }
                None => false,
            };
            if !is_read {
                let SpoolFilePart { place, has_end, .. } = part;
                damaged.push(DamagedRecord { place, has_end });
            }
        });
        // The file has these changes.
        self.changes = SpoolChanges::default();
        self.reader = Some(file.reader());
        read?;
        // If the file cannot be read to its end, it is read again later, and its damage is reported then.
        damaged.iter().for_each(DamagedRecord::report);
        Ok(damaged.is_empty())
    }

    /// Takes over the notification of a record. Returns false if it cannot be read.
    fn load_added(
        &mut self,
        number: u64,
        text: &[u8],
        place: RecordPlace,
        found: &mut BTreeMap<u64, WaitingNotification>,
    ) -> bool {
        self.next = self.next.max(number.saturating_add(1));
        let Ok(notification) = serde_json::from_slice::<QueuedNotification>(text) else {
            return false;
        };
        self.forget(number);
        let entry = SpoolEntry::new(&notification, text.len() as u64);
        self.insert(number, SpoolEntry { place: Some(place), ..entry });
        found.insert(number, WaitingNotification::new(number, &notification));
        true
    }

    /// Takes over the notifications of an earlier version, after all others. They have no records yet.
    fn import(
        &mut self,
        earlier: Vec<QueuedNotification>,
        found: &mut BTreeMap<u64, WaitingNotification>,
    ) {
        for notification in earlier {
            let number = self.next;
            self.next = number.saturating_add(1);
            let bytes = serde_json::to_vec(&notification).map_or(0, |text| text.len() as u64);
            let entry = SpoolEntry::new(&notification, bytes);
            found.insert(number, WaitingNotification::new(number, &notification));
            self.insert(number, SpoolEntry { kept: Some(Arc::new(notification)), ..entry });
        }
    }

    /// Drops notifications until there is room for another one of a namespace. Returns false if there is none.
    fn make_room(
        &mut self,
        bounds: SpoolBounds,
        own: &str,
        is_error: bool,
        bytes: u64,
        dropped: &mut Vec<DroppedNotification>,
    ) -> bool {
        loop {
            let is_full = self.shares.count >= bounds.notifications;
            if !is_full && self.shares.bytes + bytes <= bounds.bytes {
                return true;
            }
            let next = self.shares.next(own, is_error, (!is_full).then_some(bytes));
            let Some(number) = next else { return false };
            let provider = self.forget(number);
            dropped.extend(provider.map(|provider| DroppedNotification { number, provider }));
        }
    }

    fn insert(&mut self, number: u64, entry: SpoolEntry) {
        self.shares.add(&entry.provider.namespace, number, entry.is_error, entry.bytes);
        self.kept += if entry.kept.is_some() { entry.bytes } else { 0 };
        self.live += entry.place.map_or(0, RecordPlace::record_bytes);
        self.entries.insert(number, entry);
    }

    /// The notifications that have a record, or had to wait in memory because the disk took none.
    fn sources(&self) -> Vec<(u64, RecordSource)> {
        let added = &self.changes.added;
        let all = self.entries.iter().filter(|(number, _)| !added.contains_key(*number));
        let sources = all.filter_map(|(number, entry)| {
            let in_memory = || entry.kept.clone().map(RecordSource::Memory);
            let source = entry.place.map(RecordSource::File).or_else(in_memory)?;
            Some((*number, source))
        });
        sources.collect()
    }

    /// A notification has a record, unless it came to its end meanwhile.
    fn written(&mut self, number: u64, place: RecordPlace) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.place = Some(place);
        self.live += place.record_bytes();
        if self.kept > ALSO_KEPT && entry.kept.take().is_some() {
            self.kept -= entry.bytes;
        }
    }

    /// Removes a notification, and returns its Provider. `None` if it does not wait.
    fn forget(&mut self, number: u64) -> Option<ProviderKey> {
        let SpoolEntry { provider, bytes, kept, place, .. } = self.entries.remove(&number)?;
        self.kept -= if kept.is_some() { bytes } else { 0 };
        self.live -= place.map_or(0, RecordPlace::record_bytes);
        self.shares.remove(&provider.namespace, number, bytes);
        if self.changes.added.remove(&number).is_none() {
            self.changes.ended.push(number);
        }
        Some(provider)
    }
}

/// A part of the file that is no record.
struct DamagedRecord {
    place: RecordPlace,
    /// Whether its line has an end. Without one, the process ended while it wrote the line.
    has_end: bool,
}

impl DamagedRecord {
    fn report(&self) {
        let RecordPlace { offset, len } = self.place;
        if self.has_end {
            tracing::error!(
                offset,
                bytes = len,
                "a record in the file of waiting notifications is damaged; its notification is lost, or is sent a second time"
            );
        } else {
            tracing::info!(
                offset,
                bytes = len,
                "removed a record in the file of waiting notifications that was not completely written"
            );
        }
    }
}

fn read_notification(file: &File, place: RecordPlace) -> io::Result<QueuedNotification> {
    let content = read_content(file, place)?;
    match spool_records::parse(&content) {
        Some(SpoolRecord::Added { text, .. }) => Ok(serde_json::from_slice(text)?),
        Some(SpoolRecord::Ended { .. }) | None => Err(io::Error::other("its record is damaged")),
    }
}

#[cfg(test)]
mod tests;
