//! Decides whether an object may remove another object that it manages. Every path that prunes, uninstalls, recreates or
//! deletes managed objects asks this gate.
//!
//! The functions of the program that delete managed objects take a [`RemovalPermit`], which only this gate creates.
//! Elsewhere: lifecycles, which are checked before any deletion (engine `lifecycle`; the tasks of an operation on a release,
//! the run of a Kustomization), change windows (`change_window.rs`).

use crate::Time;

/// Why a managed object is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemovalCause {
    /// The owner of the managed object is deleted.
    #[default]
    OwnerDeleted,
    /// The managed object is no longer among the objects that the owner applies.
    Pruned,
    /// The managed object is created again at once, because an immutable field of it must change.
    Recreated,
    /// The managed object was left behind by a failed operation.
    Remediated,
    /// An operation that was permitted earlier removes the managed object.
    UnderWay,
}

impl RemovalCause {
    /// Whether a closed window, or a Freeze, holds a removal for this cause.
    fn waits_for_window(self) -> bool {
        match self {
            Self::Pruned | Self::Recreated => true,
            Self::OwnerDeleted | Self::Remediated | Self::UnderWay => false,
        }
    }
}

/// The facts that decide whether a removal may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalGate {
    /// Why the managed object is to be removed.
    pub cause: RemovalCause,
    /// Whether the object is suspended.
    pub is_owner_suspended: bool,
    /// Whether the object to be removed is itself suspended, or marked to be kept.
    pub is_suspended: bool,
    /// The time at which the windows of the owner close.
    pub closes: Option<Time>,
    /// Whether a Freeze held the object when the run began.
    pub is_frozen: bool,
}

/// Why a managed object may not be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// The owner or the managed object is suspended. If the owner is deleted, the managed object stays permanently.
    Suspended,
    /// No window is open.
    WindowClosed,
    /// A Freeze denies.
    Frozen,
}

/// The permission to remove a managed object. Functions that remove objects require it, and only [`RemovalGate`] creates it.
///
/// ```compile_fail
/// let permit = reconcile::RemovalPermit { cause: reconcile::RemovalCause::Pruned };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalPermit {
    cause: RemovalCause,
}

impl RemovalPermit {
    /// Why the managed object is to be removed.
    #[must_use]
    pub fn cause(self) -> RemovalCause {
        self.cause
    }
}

impl RemovalGate {
    /// Permits a removal that begins at `now`.
    ///
    /// # Errors
    /// Why the removal may not begin. Neither the deletion of the owner nor the undoing of a failure waits for a window or
    /// Freeze.
    pub fn permit(self, now: Time) -> Result<RemovalPermit, RemovalRefusal> {
        let Self { cause, is_owner_suspended, is_suspended, closes, is_frozen } = self;
        let is_closed = closes.is_some_and(|at| at <= now);
        if cause == RemovalCause::UnderWay {
            return Ok(Self::permit_under_way());
        }
        if is_owner_suspended || is_suspended {
            return Err(RemovalRefusal::Suspended);
        }
        match (is_closed, is_frozen) {
            (true, _) if cause.waits_for_window() => Err(RemovalRefusal::WindowClosed),
            (false, true) if cause.waits_for_window() => Err(RemovalRefusal::Frozen),
            _ => Ok(RemovalPermit { cause }),
        }
    }

    /// The permission for the removals of an operation that, according to its journal, has already begun. The gate permitted
    /// the operation at its beginning. The operation is completed without another check.
    #[must_use]
    pub fn permit_under_way() -> RemovalPermit {
        RemovalPermit { cause: RemovalCause::UnderWay }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CAUSES: [RemovalCause; 5] = [
        RemovalCause::OwnerDeleted,
        RemovalCause::Pruned,
        RemovalCause::Recreated,
        RemovalCause::Remediated,
        RemovalCause::UnderWay,
    ];

    #[test]
    fn every_removal_that_begins_asks_both_suspensions_and_most_ask_windows() {
        let now = Time::UNIX_EPOCH;
        let later = now.saturating_add(Duration::from_secs(1)).unwrap();
        for cause in CAUSES {
            for is_owner_suspended in [false, true] {
                for is_suspended in [false, true] {
                    for closes in [None, Some(now), Some(later)] {
                        let is_frozen = false;
                        let gate = RemovalGate {
                            cause,
                            is_owner_suspended,
                            is_suspended,
                            closes,
                            is_frozen,
                        };
                        let asks_windows =
                            matches!(cause, RemovalCause::Pruned | RemovalCause::Recreated);
                        let expected = match (is_owner_suspended || is_suspended, closes) {
                            _ if cause == RemovalCause::UnderWay => Ok(cause),
                            (true, _) => Err(RemovalRefusal::Suspended),
                            (false, Some(at)) if at == now && asks_windows => {
                                Err(RemovalRefusal::WindowClosed)
                            }
                            (false, _) => Ok(cause),
                        };
                        assert_eq!(
                            gate.permit(now).map(RemovalPermit::cause),
                            expected,
                            "{gate:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_freeze_holds_what_windows_hold() {
        let now = Time::UNIX_EPOCH;
        for cause in CAUSES {
            let closed = RemovalGate {
                cause,
                is_owner_suspended: false,
                is_suspended: false,
                closes: Some(now),
                is_frozen: false,
            };
            let frozen = RemovalGate { closes: None, is_frozen: true, ..closed };
            let is_held = closed.permit(now).is_err();
            let expected = is_held.then_some(RemovalRefusal::Frozen);
            assert_eq!(frozen.permit(now).err(), expected, "{cause:?}");
            let suspended = RemovalGate { is_owner_suspended: true, ..frozen };
            assert_eq!(suspended.permit(now).is_err(), cause != RemovalCause::UnderWay);
        }
    }
}
