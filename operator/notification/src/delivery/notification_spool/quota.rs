//! Counts how much of the spool each namespace takes, and decides which notification is dropped to make room.

use std::collections::{BTreeMap, BTreeSet};

/// The notifications of a namespace that wait.
#[derive(Default)]
struct NamespaceSpoolUsage {
    /// The notifications about successes and about failures. The oldest have the lowest numbers.
    well: BTreeSet<u64>,
    failures: BTreeSet<u64>,
    bytes: u64,
}

impl NamespaceSpoolUsage {
    fn count(&self) -> usize {
        self.well.len() + self.failures.len()
    }
}

/// The number and size of the waiting notifications of each namespace, from which the spool chooses
/// the one to drop when it is full.
#[derive(Default)]
pub(super) struct SpoolUsageByNamespace {
    of: BTreeMap<String, NamespaceSpoolUsage>,
    /// The number of waiting notifications.
    pub(super) count: usize,
    /// The bytes of the waiting notifications.
    pub(super) bytes: u64,
}

impl SpoolUsageByNamespace {
    /// Counts a notification that waits in the spool for the share of its namespace.
    pub(super) fn add(&mut self, namespace: &str, number: u64, is_error: bool, bytes: u64) {
        let share = self.of.entry(namespace.to_owned()).or_default();
        if is_error { &mut share.failures } else { &mut share.well }.insert(number);
        share.bytes += bytes;
        self.bytes += bytes;
        self.count += 1;
    }

    /// One that waited waits no longer.
    pub(super) fn remove(&mut self, namespace: &str, number: u64, bytes: u64) {
        let Some(share) = self.of.get_mut(namespace) else { return };
        if !share.well.remove(&number) && !share.failures.remove(&number) {
            return;
        }
        share.bytes -= bytes;
        self.bytes -= bytes;
        self.count -= 1;
        if share.count() == 0 {
            self.of.remove(namespace);
        }
    }

    /// The notification that is dropped for a new one of a namespace. `None` if the new one itself is dropped.
    ///
    /// It belongs to the namespace that would have the most notifications including the new one, or the most bytes if there
    /// are too many bytes. If several namespaces are equal, it belongs to the namespace of the new notification.
    pub(super) fn next(&self, own: &str, is_error: bool, bytes: Option<u64>) -> Option<u64> {
        let taken = |share: &NamespaceSpoolUsage| match bytes {
            Some(_) => share.bytes,
            None => share.count() as u64,
        };
        let with_new = self.of.get(own).map_or(0, taken).saturating_add(bytes.unwrap_or(1));
        let others = self.of.iter().filter(|(namespace, _)| *namespace != own);
        let largest = others.map(|(_, share)| share).max_by_key(|share| taken(share));
        let oldest = |numbers: &BTreeSet<u64>| numbers.first().copied();
        match largest.filter(|share| taken(share) > with_new) {
            Some(share) => oldest(&share.well).or_else(|| oldest(&share.failures)),
            None => {
                let share = self.of.get(own)?;
                oldest(&share.well).or_else(|| oldest(&share.failures).filter(|_| is_error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_that_has_most_makes_room_and_failures_go_last() {
        let mut shares = SpoolUsageByNamespace::default();
        for (namespace, number, is_error, bytes) in [
            ("a", 0, true, 10),
            ("a", 1, false, 10),
            ("a", 2, true, 10),
            ("b", 3, true, 500),
            ("b", 4, false, 10),
        ] {
            shares.add(namespace, number, is_error, bytes);
        }
        assert_eq!((shares.count, shares.bytes), (5, 540));
        // By number it is `a`, by length `b`.
        assert_eq!(shares.next("c", false, None), Some(1));
        assert_eq!(shares.next("c", false, Some(10)), Some(4));
        // Who would have as much as others makes room itself.
        assert_eq!(shares.next("b", true, None), Some(4));
        shares.remove("b", 4, 10);
        assert_eq!(shares.next("b", true, Some(1)), Some(3));
        assert_eq!(shares.next("b", false, Some(1)), None);
        assert_eq!(shares.next("c", false, Some(600)), None, "it has more than all others");
        for (namespace, number, bytes) in [("a", 0, 10), ("a", 1, 10), ("a", 2, 10), ("b", 3, 500)]
        {
            shares.remove(namespace, number, bytes);
            shares.remove(namespace, number, bytes);
        }
        assert_eq!((shares.count, shares.bytes, shares.of.len()), (0, 0, 0));
    }
}
