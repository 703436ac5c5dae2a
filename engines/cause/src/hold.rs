//! Suspensions of an object, from its spec and its annotations.

use objects::Object;
use reconcile::{Hold, Time};

use crate::condition::is_set;

/// A suspension in force; its hold, if it has one.
pub fn suspension(object: &Object, now: Time) -> Option<Option<Hold>> {
    let hold = hold(object);
    let is_expired = hold.as_ref().is_some_and(|hold| hold.is_expired(now));
    (is_set(object, "suspend") && !is_expired).then_some(hold)
}

/// What the annotations say about a suspension.
pub fn hold(object: &Object) -> Option<Hold> {
    Hold::of(|key| object.annotation(key))
}
