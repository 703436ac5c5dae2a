//! The phases of an operation at which a lifecycle may hold it.
//!
//! Elsewhere: when an operation reaches them (engine `release`).

use serde::{Deserialize, Serialize};

macro_rules! phases {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A phase of an operation at which a lifecycle may hold it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum LifecycleHoldPhase {
            $($(#[$doc])* $name,)*
        }

        impl LifecycleHoldPhase {
            /// All phases, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The spelling in the API.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

phases! {
    /// Before anything of a first revision is written.
    PreInstall,
    /// After a first revision is applied and healthy, and its hooks have run.
    PostInstall,
    /// Before anything of another revision is written.
    PreUpgrade,
    /// After another revision is applied and healthy, and its hooks have run.
    PostUpgrade,
    /// Before a rollback applies anything.
    PreRollback,
    /// After a rollback.
    PostRollback,
    /// Before anything is deleted.
    PreDelete,
    /// After everything was deleted.
    PostDelete,
    /// After health and tests, before the object is ready and its dependents are reconciled.
    Promote,
}

impl LifecycleHoldPhase {
    /// Reads a phase from its name in the API; `None` if there is no such phase.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_found_by_their_spelling() {
        for phase in LifecycleHoldPhase::ALL {
            assert_eq!(LifecycleHoldPhase::parse(phase.as_str()), Some(*phase));
            let written = serde_json::to_value(phase).unwrap();
            assert_eq!(written, phase.as_str(), "the journal spells it as the API does");
        }
        assert_eq!(
            (LifecycleHoldPhase::parse(""), LifecycleHoldPhase::parse("preinstall")),
            (None, None)
        );
    }
}
