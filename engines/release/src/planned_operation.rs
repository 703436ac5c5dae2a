//! An operation that is about to begin and may have to wait for the approval of a user, and how users read of it.
//!
//! A rollback that undoes a failure is not among them: it removes what the failed operation made, and belongs to the Plan of
//! that.
//! Elsewhere: when it is judged ([`crate::helm_release_planner`]), which changes wait and how much may be deleted (engine
//! `apply`, `result_changes` and `deletion_budget`), what of it is in the cluster (the program).

use crate::settings::ReleaseDesiredState;

/// An operation that is about to begin, by what it would delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedOperation {
    /// Nothing.
    Install {
        /// The revision that it will be.
        version: i64,
    },
    /// Objects that the current revision has, and the desired one does not have.
    Upgrade {
        /// The revision that it will be.
        version: i64,
    },
    /// Objects that a revision has, and the one that a user requests to roll back to does not have.
    Rollback {
        /// The newest revision.
        from: i64,
        /// The one that is rolled back to.
        to: i64,
    },
    /// All objects of a release that is not desired any more.
    Uninstall {
        /// The newest revision.
        version: i64,
        /// Whether another release takes its place.
        is_replaced: bool,
    },
    /// All objects of a release whose upgrade failed, where uninstalling is the remediation.
    Remediation {
        /// The newest revision.
        version: i64,
    },
}

impl PlannedOperation {
    /// Names the operation, for approvals: another chart, other values or another spec make another one.
    pub fn operation(self, desired: &ReleaseDesiredState) -> String {
        match self {
            Self::Install { .. } => format!("install {}", desired.inputs),
            Self::Upgrade { .. } => format!("upgrade {}", desired.inputs),
            Self::Rollback { from, to } => format!("rollback {from}->{to}"),
            Self::Uninstall { version, .. } => format!("uninstall {version}"),
            Self::Remediation { version } => format!("remediation {version}"),
        }
    }

    /// What does not have the objects, for people: a chart, a revision of the release, or of the source of the helmfile.
    pub fn revision(self, desired: &ReleaseDesiredState) -> String {
        match self {
            Self::Install { .. } | Self::Upgrade { .. } | Self::Remediation { .. } => {
                format!("{}@{}", desired.chart_name, desired.chart_version)
            }
            Self::Rollback { to, .. } => format!("revision {to}"),
            Self::Uninstall { .. } => desired.origin.revision.clone(),
        }
    }

    /// The operation, for people: the subject of "… would delete …" and "… waits for approval …".
    pub fn subject(self, desired: &ReleaseDesiredState) -> String {
        let name = &desired.spec.target.name;
        match self {
            Self::Install { .. } => {
                format!("the installation of release {name} from {}", self.revision(desired))
            }
            Self::Upgrade { .. } => {
                format!("the upgrade of release {name} to {}", self.revision(desired))
            }
            Self::Rollback { to, .. } => {
                format!("the rollback of release {name} to revision {to}")
            }
            Self::Uninstall { is_replaced: true, .. } => {
                format!("the uninstall of the release whose place {name} takes")
            }
            Self::Uninstall { is_replaced: false, .. } => {
                format!("the uninstall of release {name}")
            }
            Self::Remediation { .. } => {
                format!("the uninstall that is to undo the failed upgrade of release {name}")
            }
        }
    }

    /// How to keep the objects, for people.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Install { .. } | Self::Upgrade { .. } => {
                "to keep them, release a chart and values that have them, or set the annotation \
                 helm.sh/resource-policy: keep on those that are to stay"
            }
            Self::Rollback { .. } => "to keep them, remove the annotation windlass.dev/rollback",
            Self::Uninstall { is_replaced: true, .. } => {
                "to keep them, give the release its former name, namespaces and chart again"
            }
            Self::Uninstall { is_replaced: false, .. } => {
                "to keep them, have the helmfile install the release again"
            }
            Self::Remediation { .. } => {
                "to keep them, release a chart and values that work, or set \
                 spec.upgrade.remediation.strategy: rollback"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::desired;

    #[test]
    fn an_approval_of_an_upgrade_is_for_one_chart_and_its_values() {
        let upgrade = PlannedOperation::Upgrade { version: 2 };
        let operation = |version: &str, values: &str| upgrade.operation(&desired(version, values));
        assert_eq!(operation("2.0.0", "a"), operation("2.0.0", "a"));
        assert_ne!(operation("2.0.0", "a"), operation("3.0.0", "a"));
        assert_ne!(operation("2.0.0", "a"), operation("2.0.0", "b"));
        let again = PlannedOperation::Upgrade { version: 3 };
        assert_eq!(again.operation(&desired("2.0.0", "a")), operation("2.0.0", "a"), "a retry");
        let install = PlannedOperation::Install { version: 1 };
        assert_ne!(install.operation(&desired("2.0.0", "a")), operation("2.0.0", "a"));
        assert_eq!(
            install.subject(&desired("2.0.0", "a")),
            "the installation of release web from c@2.0.0"
        );
        assert_eq!(
            upgrade.subject(&desired("2.0.0", "a")),
            "the upgrade of release web to c@2.0.0"
        );
    }
}
