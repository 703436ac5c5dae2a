//! Requests the rollback of a change. All members of the change go back to their previous revision.
//!
//! The operator pins each member. This request is written to the status of the ChangeSet with the user's name. The included
//! admission policy verifies that name (`deploy/policies/change-sets.yaml`).
//! Elsewhere: carrying out the rollback (`windlass_changes`).

use anyhow::{Context as _, bail, ensure};
use crds::windlass_release::ChangeSet;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

use super::{MANAGER, SERVICE_ACCOUNT_PREFIX};
use crate::change_sets::{find, newer};
use crate::command_scope::CommandScope;
use windlass_cli_runtime::status_request;
use windlass_cli_runtime::table::clean;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// A request to roll back a change, with its reason.
#[derive(Clone, Copy)]
pub struct ChangeRollbackRequest<'r> {
    /// The change, in the version that was read.
    pub change: &'r ChangeSet,
    /// The user's reason.
    pub reason: Option<&'r str>,
    /// Whether the request requires the resourceVersion that was read. Otherwise, it only requires the same UID.
    pub is_of_version: bool,
}

impl ChangeRollbackRequest<'_> {
    /// Sends the request.
    ///
    /// # Errors
    /// The user is a ServiceAccount or may not list ChangeSets, or the change is not the newest of its source. Another user
    /// requested the rollback before, the API server refuses, or the definitions in the cluster are older.
    pub async fn make(&self, site: &CommandScope) -> anyhow::Result<()> {
        let change = self.change;
        let user = site.cluster.own_name().await.context("cannot tell who rolls back")?;
        ensure!(!user.is_empty(), "the API server does not name this user");
        ensure!(
            !user.starts_with(SERVICE_ACCOUNT_PREFIX),
            "{user} is a ServiceAccount, which cannot roll back a change"
        );
        let namespace = change.metadata.namespace.clone().unwrap_or_default();
        let place = CommandScope { cluster: site.cluster.clone(), namespace: namespace.clone() };
        let known = find(&place, "").await?;
        ensure!(
            known.left_out.is_empty(),
            "whether a newer change was applied is not known, so nothing is rolled back: {}",
            known.left_out.join("; ")
        );
        check(change, &known.changes)?;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = self.patch(&user, &now);
        let resource = resource::<ChangeSet>();
        let name = change.name_any();
        let cluster = &site.cluster;
        status_request::write(cluster, &resource, &namespace, &name, &patch, MANAGER).await
    }

    /// The patch with the request. It contains the UID, so it applies only to the object that was read.
    fn patch(&self, user: &str, now: &str) -> Value {
        let mut rollback = json!({"user": user, "at": now});
        if let Some(reason) = self.reason.filter(|reason| !reason.trim().is_empty()) {
            rollback["reason"] = reason.into();
        }
        let mut metadata = json!({"uid": self.change.uid()});
        if self.is_of_version {
            metadata["resourceVersion"] = self.change.resource_version().into();
        }
        json!({"metadata": metadata, "status": {"rollback": rollback}})
    }
}

/// Checks that a change can be rolled back. `known` are the changes in its namespace.
fn check(change: &ChangeSet, known: &[ChangeSet]) -> anyhow::Result<()> {
    let name = change.name_any();
    if let Some(newer) = newer(known, change) {
        bail!(
            "{} is newer than change {} of the same source, and applied: roll that back, or push what you want",
            clean(&newer.name_any()),
            clean(&name)
        );
    }
    let status = change.status.as_ref();
    ensure!(status.is_some(), "change {} has just begun: try again", clean(&name));
    let asked = status.and_then(|it| it.rollback.as_ref());
    if let Some(asked) = asked {
        bail!(
            "{} has asked for the rollback of change {} already",
            clean(&asked.user),
            clean(&name)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, sequence: i64, status: &Value) -> ChangeSet {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop", "uid": "c",
                "resourceVersion": "7"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:1", "digest": "d", "sequence": sequence},
            "status": status}))
        .unwrap()
    }

    #[test]
    fn only_the_newest_change_of_a_source_is_rolled_back_and_once() {
        let old = change("a", 1, &json!({"verdict": "Failed"}));
        let new = change("b", 2, &json!({"verdict": "Failed"}));
        let known = [new.clone(), old.clone()];
        assert!(check(&new, &known).is_ok());
        let text = check(&old, &known).unwrap_err().to_string();
        assert!(text.contains("b is newer than change a"), "{text}");
        let asked = change("b", 2, &json!({"rollback": {"user": "bob"}}));
        let text = check(&asked, &known).unwrap_err().to_string();
        assert!(text.starts_with("bob has asked for the rollback"), "{text}");
    }

    #[test]
    fn the_request_names_the_user_and_the_object_and_where_asked_its_version() {
        let change = change("b", 2, &json!({}));
        let patch = |is_of_version: bool| {
            let request =
                ChangeRollbackRequest { change: &change, reason: Some(" "), is_of_version };
            request.patch("alice", "2026-11-30T09:00:00Z")
        };
        let rollback = json!({"rollback": {"user": "alice", "at": "2026-11-30T09:00:00Z"}});
        let of_uid = json!({"metadata": {"uid": "c"}, "status": rollback});
        assert_eq!(patch(false), of_uid);
        let of_version =
            json!({"metadata": {"uid": "c", "resourceVersion": "7"}, "status": rollback});
        assert_eq!(patch(true), of_version);
    }
}
