//! Spaces out the wakes of an object whose awaited objects change often. Each wake costs a run and a read. The first change
//! wakes the object at once, and changes that follow soon share one wake.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reconcile::ObjectKey;

/// The least time between two wakes of an object.
const MIN_WAKE_INTERVAL: Duration = Duration::from_millis(400);

/// With this many objects or more, those that were woken long ago are forgotten.
const MAX_UNPRUNED_OBJECTS: usize = 1000;

/// When each object was woken last.
#[derive(Debug, Default)]
pub(crate) struct WakeIntervals(Mutex<BTreeMap<ObjectKey, LastWake>>);

#[derive(Debug, Clone, Copy)]
struct LastWake {
    at: Instant,
    /// Whether another wake is already planned.
    is_due: bool,
}

/// Whether an object is woken now, later, or by an already planned wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeDecision {
    /// Wake the object now.
    Now,
    /// Wake the object after this time, and then call [`WakeIntervals::called`].
    After(Duration),
    /// A wake is already planned and serves this change, too.
    Joined,
}

impl WakeIntervals {
    /// Decides when to wake an object after a change.
    #[must_use]
    pub(crate) fn call(&self, node: &ObjectKey, now: Instant) -> WakeDecision {
        let mut all = self.0.lock();
        if all.len() >= MAX_UNPRUNED_OBJECTS {
            all.retain(|_, last| last.is_due || now < last.at + MIN_WAKE_INTERVAL);
        }
        let Some(last) = all.get_mut(node) else {
            all.insert(node.clone(), LastWake { at: now, is_due: false });
            return WakeDecision::Now;
        };
        let earliest = last.at + MIN_WAKE_INTERVAL;
        if last.is_due {
            WakeDecision::Joined
        } else if now < earliest {
            last.is_due = true;
            WakeDecision::After(earliest - now)
        } else {
            last.at = now;
            WakeDecision::Now
        }
    }

    /// Notes that a delayed wake happened.
    pub(crate) fn called(&self, node: &ObjectKey, now: Instant) {
        let mut all = self.0.lock();
        all.insert(node.clone(), LastWake { at: now, is_due: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_wakes_comes_at_once_and_the_others_together() {
        let pace = WakeIntervals::default();
        let begin = Instant::now();
        let node = ObjectKey::new("apps", "Kustomization", "shop", "web");
        let other = ObjectKey::new("apps", "Kustomization", "shop", "other");
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(pace.call(&node, at(0)), WakeDecision::Now);
        assert_eq!(pace.call(&other, at(10)), WakeDecision::Now);
        assert_eq!(
            pace.call(&node, at(100)),
            WakeDecision::After(MIN_WAKE_INTERVAL - Duration::from_millis(100))
        );
        assert_eq!(pace.call(&node, at(200)), WakeDecision::Joined);
        pace.called(&node, at(400));
        assert_eq!(
            pace.call(&node, at(500)),
            WakeDecision::After(MIN_WAKE_INTERVAL - Duration::from_millis(100))
        );
        pace.called(&node, at(800));
        assert_eq!(pace.call(&node, at(5000)), WakeDecision::Now);
    }

    #[test]
    fn nodes_that_were_woken_long_ago_are_forgotten() {
        let pace = WakeIntervals::default();
        let begin = Instant::now();
        let node =
            |number: usize| ObjectKey::new("apps", "Kustomization", "shop", &number.to_string());
        for number in 0..MAX_UNPRUNED_OBJECTS {
            assert_eq!(pace.call(&node(number), begin), WakeDecision::Now);
        }
        assert_ne!(pace.call(&node(0), begin), WakeDecision::Now);
        assert_eq!(
            pace.call(&node(MAX_UNPRUNED_OBJECTS), begin + MIN_WAKE_INTERVAL),
            WakeDecision::Now
        );
        assert_eq!(pace.0.lock().len(), 2, "one of them is still to be woken");
    }
}
