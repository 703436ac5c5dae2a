//! Whether something that an object manages may be removed now: the one gate of every path that prunes, uninstalls or
//! deletes it with the object.
//!
//! Elsewhere: lifecycles, which are asked when the removal begins (engine `lifecycle`), what a window is (`window.rs`).

use crate::Time;

/// Why something is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemovalCause {
    /// The object that applies it is deleted.
    #[default]
    OwnerDeleted,
    /// It is no longer among what the object applies.
    Pruned,
}

/// What a removal has to be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalGate {
    /// Why it is to be removed.
    pub cause: RemovalCause,
    /// Whether the object is suspended.
    pub is_owner_suspended: bool,
    /// Whether what is to be removed is suspended by itself.
    pub is_suspended: bool,
    /// From when on the windows of the object are closed.
    pub closes: Option<Time>,
}

/// Why something may not be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRefused {
    /// The object, or what is to be removed, is suspended. If the object is deleted, it stays for good.
    Suspended,
    /// No window is open.
    WindowClosed,
}

/// Permission to remove an object. Functions that remove take one, and only [`RemovalGate::permit`] creates it.
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
    /// Whether the removal may begin at `now`.
    ///
    /// # Errors
    /// Why not. What has begun comes to its end and is not asked about again. A deletion of the object waits for no window.
    pub fn permit(self, now: Time) -> Result<RemovalPermit, RemovalRefused> {
        let Self { cause, is_owner_suspended, is_suspended, closes } = self;
        let is_closed = closes.is_some_and(|at| at <= now);
        if is_owner_suspended || is_suspended {
            return Err(RemovalRefused::Suspended);
        }
        match cause {
            RemovalCause::Pruned if is_closed => Err(RemovalRefused::WindowClosed),
            RemovalCause::Pruned | RemovalCause::OwnerDeleted => Ok(RemovalPermit { cause }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_removal_asks_both_suspensions_and_pruning_asks_windows() {
        let now = Time::UNIX_EPOCH;
        let later = now.saturating_add(Duration::from_secs(1)).unwrap();
        for cause in [RemovalCause::Pruned, RemovalCause::OwnerDeleted] {
            for is_owner_suspended in [false, true] {
                for is_suspended in [false, true] {
                    for closes in [None, Some(now), Some(later)] {
                        let gate = RemovalGate { cause, is_owner_suspended, is_suspended, closes };
                        let expected = match (is_owner_suspended || is_suspended, cause, closes) {
                            (true, ..) => Err(RemovalRefused::Suspended),
                            (false, RemovalCause::Pruned, Some(at)) if at == now => {
                                Err(RemovalRefused::WindowClosed)
                            }
                            (false, ..) => Ok(cause),
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
}
