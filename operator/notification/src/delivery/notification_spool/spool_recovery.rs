//! Opens the file of waiting notifications, also later than at the start of the process: while it cannot be used, notifications
//! wait in memory, and [`NotificationSpool::recover`] retries. A step of an incident that is in the file and in memory is one
//! notification.
//!
//! The numbers of these notifications are higher than all in the file, so what the file has keeps its place before them.
//! Elsewhere: when that is retried (`notification_queue`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::earlier_layout::EarlierNotifications;
use super::spool_file::SpoolFile;
use super::{
    DroppedNotification, NotificationSpool, SpoolBounds, SpoolEntry, SpoolState, read_notification,
};
use crate::delivery::incident_notifications::IncidentNotificationKey;
use crate::delivery::queued_notification::WaitingNotification;

/// How long a process that uses the file may take to end: a little more than the `terminationGracePeriodSeconds` of the
/// manifests.
pub(in crate::delivery) const FORMER_PROCESS_TIME: Duration = Duration::from_secs(12);

/// What a file had when it was opened.
#[derive(Debug, Default)]
pub(in crate::delivery) struct SpoolOpenResult {
    /// The notifications that waited in it, in the order in which they came.
    pub(in crate::delivery) found: Vec<WaitingNotification>,
    /// The notifications that were dropped, because those in the file and those in memory were too many together.
    pub(in crate::delivery) dropped: Vec<DroppedNotification>,
}

impl NotificationSpool {
    /// Whether notifications wait in memory only, because the disk does not take them.
    pub(in crate::delivery) fn is_unsaved(&self) -> bool {
        self.is_unsaved.load(Ordering::Relaxed)
    }

    /// Whether another process uses the file.
    pub(in crate::delivery) fn is_used_elsewhere(&self) -> bool {
        self.is_used_elsewhere.load(Ordering::Relaxed)
    }

    /// Whether the file could not be opened yet. It may have notifications of earlier processes.
    pub(in crate::delivery) fn is_unopened(&self) -> bool {
        self.state.lock().reader.is_none()
    }

    /// Tries again to keep on the disk what waits in memory only. It blocks.
    pub(in crate::delivery) fn recover(&self) -> SpoolOpenResult {
        let mut file = self.file.lock();
        if file.is_none() {
            let opened = self.open_file(&mut file);
            return opened.inspect_err(|error| self.report_failure(error)).unwrap_or_default();
        }
        let lacking = file.as_mut().filter(|it| it.lacks_records() && it.may_be_replaced());
        if let Some(file) = lacking {
            let written = self.rewrite(file);
            self.report(file, written);
        }
        SpoolOpenResult::default()
    }

    /// Opens the file into its locked slot, and takes over the notifications in it. Those that wait in memory are written after
    /// them.
    pub(super) fn open_file(&self, slot: &mut Option<SpoolFile>) -> io::Result<SpoolOpenResult> {
        let mut file = SpoolFile::open(&self.folder)?;
        let mut loaded = SpoolState::default();
        let mut found = BTreeMap::new();
        let is_at_start = self.state.lock().next == 0;
        let is_intact = match loaded.load(&file, &mut found) {
            Ok(is_intact) => is_intact,
            // It is written anew below, without what cannot be read now.
            Err(error) if !is_at_start => return Err(error),
            Err(error) => {
                tracing::error!(error = %error, "failed to read the file of waiting notifications to its end");
                // The next start may be able to read what follows, so it stays.
                true
            }
        };
        let mut earlier = EarlierNotifications::read(&self.folder);
        let notifications = std::mem::take(&mut earlier.notifications);
        let has_earlier = !notifications.is_empty();
        loaded.import(notifications, &mut found);
        let mut state = self.state.lock();
        let opened = match is_at_start {
            true => {
                *state = loaded;
                SpoolOpenResult { found: found.into_values().collect(), dropped: Vec::new() }
            }
            false => state.take_over(loaded, found, self.bounds),
        };
        let live = state.live;
        drop(state);
        *self.earlier.lock() = earlier;
        if !is_intact || has_earlier || !is_at_start || file.is_mostly_dead(live) {
            let written = self.rewrite(&mut file);
            if written.is_err() && (has_earlier || !is_at_start) {
                file.needs_records();
            }
            self.report(&file, written);
        }
        *slot = Some(file);
        self.is_used_elsewhere.store(false, Ordering::Relaxed);
        Ok(opened)
    }

    /// Reports once when the disk begins to take no records, and once when it has all of them again.
    pub(super) fn report(&self, file: &SpoolFile, written: io::Result<()>) {
        match written {
            Err(error) if file.lacks_records() => self.report_failure(&error),
            Err(error) => {
                tracing::error!(folder = %self.folder.display(), error = %error, "failed to write the file of waiting notifications anew");
            }
            Ok(()) if !file.lacks_records() && self.is_unsaved.swap(false, Ordering::Relaxed) => {
                tracing::info!(folder = %self.folder.display(), "notifications are kept on the disk again");
            }
            Ok(()) => {}
        }
    }

    /// Reports once that the disk takes no records.
    pub(super) fn report_failure(&self, error: &io::Error) {
        let folder = self.folder.display();
        let is_used_elsewhere = error.kind() == io::ErrorKind::WouldBlock;
        self.is_used_elsewhere.store(is_used_elsewhere, Ordering::Relaxed);
        match self.is_unsaved.swap(true, Ordering::Relaxed) {
            false if is_used_elsewhere => {
                tracing::warn!(
                    folder = %folder,
                    "another process uses the file of waiting notifications; windlass waits for its end, at most {} s, and then \
                     sends notifications from memory; if two processes are to run, give each its own --storage-path",
                    FORMER_PROCESS_TIME.as_secs()
                );
            }
            true => {
                tracing::debug!(folder = %folder, error = %error, "still cannot keep notifications on the disk");
            }
            false => {
                tracing::error!(
                    folder = %folder,
                    error = %error,
                    "cannot keep notifications on the disk; they wait in memory, and a restart loses them: make the folder \
                     writable or free space, windlass retries every 10 s"
                );
            }
        }
    }
}

/// The number of the first notification of a process that cannot read its file: the time, in microseconds. No process gives out
/// more numbers than that, so those in the file are lower.
pub(super) fn first_number_without_file() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(1).max(1)
}

impl SpoolState {
    /// Takes over the notifications of a file that was opened late, before those that wait in memory. If they are too many
    /// together, some are dropped as by a new notification.
    fn take_over(
        &mut self,
        loaded: Self,
        mut found: BTreeMap<u64, WaitingNotification>,
        bounds: SpoolBounds,
    ) -> SpoolOpenResult {
        let mut opened = SpoolOpenResult::default();
        let mut taken = Vec::new();
        let first = self.first;
        let steps: BTreeSet<IncidentNotificationKey> =
            self.entries.values().filter_map(|entry| entry.step.clone()).collect();
        self.next = self.next.max(loaded.next);
        for (number, entry) in loaded.entries {
            let Some(waiting) = found.remove(&number) else { continue };
            // It was not seen to wait, so it was put a second time.
            if entry.step.as_ref().is_some_and(|step| steps.contains(step)) {
                continue;
            }
            let namespace = &entry.provider.namespace;
            if !self.make_room(bounds, namespace, entry.is_error, entry.bytes, &mut opened.dropped)
            {
                let provider = entry.provider;
                opened.dropped.push(DroppedNotification { number, provider });
                continue;
            }
            if number < first {
                self.insert(number, entry);
                taken.push(waiting);
                continue;
            }
            // The clock was set back. The notification gets another number, and so another record.
            let of_record = || {
                let read = read_notification(loaded.reader.as_ref()?, entry.place?);
                read.map(Arc::new).ok()
            };
            let Some(kept) = entry.kept.clone().or_else(of_record) else {
                tracing::error!("failed to read a notification, which is lost");
                continue;
            };
            let number = self.next;
            self.next = number.saturating_add(1);
            self.insert(number, SpoolEntry { kept: Some(kept), place: None, ..entry });
            taken.push(WaitingNotification { number, ..waiting });
        }
        self.reader = loaded.reader;
        // One that was taken over may have made room for a later one.
        opened.found =
            taken.into_iter().filter(|it| self.entries.contains_key(&it.number)).collect();
        opened
    }
}
