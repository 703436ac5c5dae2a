//! Whether something that an object manages may be removed now: the one gate of every path that prunes, uninstalls, recreates
//! or deletes it with the object.
//!
//! The functions of the program that delete managed objects take a [`RemovalPermit`], which only this gate makes.
//! Elsewhere: lifecycles, which are asked before anything is deleted (engine `lifecycle`; the tasks of an operation on a
//! release, the run of a Kustomization), what a window is (`change_window.rs`).

use crate::Time;

/// Why something is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemovalCause {
    /// The object that applies it is deleted.
    #[default]
    OwnerDeleted,
    /// It is no longer among what the object applies.
    Pruned,
    /// It is created again at once, because a field that cannot be changed is to change.
    Recreated,
    /// It is what a failed operation left behind.
    Remediated,
    /// The operation that removes it was permitted, and comes to its end.
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
    /// Why it is to be removed.
    pub cause: RemovalCause,
    /// Whether the object is suspended.
    pub is_owner_suspended: bool,
    /// Whether the object to be removed is itself suspended, or marked to be kept.
    pub is_suspended: bool,
    /// From when on the windows of the object are closed.
    pub closes: Option<Time>,
    /// Whether a Freeze held the object when the run began.
    pub is_frozen: bool,
}

/// Why something may not be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// The object, or what is to be removed, is suspended. If the object is deleted, what is to be removed stays for good.
    Suspended,
    /// No window is open.
    WindowClosed,
    /// A Freeze denies.
    Frozen,
}

/// Permission to remove an object. Functions that remove take one, and only [`RemovalGate`] creates it.
///
/// ```compile_fail
/// let permit = reconcile::RemovalPermit { cause: reconcile::RemovalCause::Pruned };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalPermit {
    cause: RemovalCause,
}

impl RemovalPermit {
    /// Why it is to be removed.
    #[must_use]
    pub fn cause(self) -> RemovalCause {
        self.cause
    }
}

impl RemovalGate {
    /// The permission for a removal that begins at `now`.
    ///
    /// # Errors
    /// The reason why it may not begin. A deletion of the object waits for no window and no Freeze, nor does what undoes a
    /// failure.
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

    /// The permission of an operation that a journal shows to be under way: it was asked when it began, comes to its end and
    /// is not asked again.
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
