//! An operation that is about to begin and may need the approval of a user, and its description for users.
//!
//! A rollback that undoes a failure is not included. It removes the objects of the failed operation, and belongs to the Plan of
//! that operation.
//! Elsewhere: when it is judged ([`crate::helm_release_planner`]), which changes need approval and how much may be deleted
//! (engine `apply`, `planned_changes` and `deletion_budget`), which objects are in the cluster (the program).

use crate::release_spec::ReleaseDesiredState;

/// An operation that is about to begin. It determines which objects would be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedOperation {
    /// Deletes nothing.
    Install {
        /// The number of the new revision.
        version: i64,
    },
    /// Deletes objects that the current revision has and the desired one lacks.
    Upgrade {
        /// The number of the new revision.
        version: i64,
    },
    /// Deletes objects that the present revision has and the requested one lacks.
    Rollback {
        /// The newest revision.
        from: i64,
        /// The revision to roll back to.
        to: i64,
    },
    /// Deletes all objects of a release that is not desired any more.
    Uninstall {
        /// The newest revision.
        version: i64,
        /// Whether another release replaces this one.
        is_replaced: bool,
    },
    /// Deletes all objects of a release whose upgrade failed, if the remediation is to uninstall it.
    Remediation {
        /// The newest revision.
        version: i64,
    },
}

impl PlannedOperation {
    /// The identity of the operation for approvals. Another chart, other values or another spec give another identity.
    pub fn operation(self, desired: &ReleaseDesiredState) -> String {
        match self {
            Self::Install { .. } => format!("install {}", desired.inputs),
            Self::Upgrade { .. } => format!("upgrade {}", desired.inputs),
            Self::Rollback { from, to } => format!("rollback {from}->{to}"),
            Self::Uninstall { version, .. } => format!("uninstall {version}"),
            Self::Remediation { version } => format!("remediation {version}"),
        }
    }

    /// The revision that lacks the deleted objects, for messages: a chart, a revision of the release, or of the helmfile's
    /// source.
    pub fn revision(self, desired: &ReleaseDesiredState) -> String {
        match self {
            Self::Install { .. } | Self::Upgrade { .. } | Self::Remediation { .. } => {
                format!("{}@{}", desired.chart_name, desired.chart_version)
            }
            Self::Rollback { to, .. } => format!("revision {to}"),
            Self::Uninstall { .. } => desired.origin.revision.clone(),
        }
    }

    /// The operation in messages: the subject of "… would delete …" and "… waits for approval …".
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

    /// How a user can keep the objects.
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
    use crate::simulated_cluster::desired;

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
