//! The changes that a user requests for one object. Commands and web pages both send the requests of this module.
//!
//! A request names the user, and it applies only to the object that the user has seen. The API server decides who may send the
//! request.
//! Below: each kind of request. Elsewhere: choosing the object and waiting for results (`windlass-cli`), web forms
//! (`windlass-web`).

pub mod change_rollback;
pub mod incident_silence;
pub mod lifecycle_approval;
pub mod plan_approval;
pub mod reconciliation;
pub mod suspension;

use ::reconcile::{REQUESTED_BY, REQUESTED_REASON};
use objects::Object;
use serde_json::Value;

use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use windlass_cluster::ClusterError;

/// The field manager of user requests, from commands and from pages. The end of a suspension counts only if this manager also
/// set the suspension.
pub const MANAGER: &str = "windlass-cli";

/// The prefix of ServiceAccount user names. ServiceAccounts may neither approve an operation nor roll back a change, and silence
/// no Incident.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A user's answer to an operation that waits for approval.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalAnswer<'a> {
    /// The user's comment for others. It may be empty.
    pub comment: &'a str,
    /// The objects of a Plan that stay in the cluster.
    pub keep: &'a [String],
    /// Whether the user rejects the operation instead of approving it.
    pub is_rejection: bool,
}

/// An object to change, in the version that was read.
#[derive(Clone, Copy)]
pub struct ObjectToChange<'a> {
    /// The cluster and the namespace of the object.
    pub site: &'a CommandScope,
    /// The kind of the object.
    pub target: &'a ResourceArgument,
    /// The object.
    pub object: &'a Object,
    /// Whether the change requires the resourceVersion that was read. Otherwise, it only requires the same UID.
    pub is_of_version: bool,
}

impl ObjectToChange<'_> {
    /// Patches the object. windlass adds annotations that name the user for audits. `patch` may contain the reason.
    ///
    /// # Errors
    /// The API server refuses the patch or does not respond. It refuses for example an unknown field or another
    /// resourceVersion.
    pub async fn change(&self, patch: &Value) -> Result<Object, ClusterError> {
        let Self { site, target, object, is_of_version } = *self;
        let user = site.cluster.own_name().await.ok();
        let mut patch = requested(patch.clone(), object.uid(), user);
        if is_of_version {
            patch["metadata"]["resourceVersion"] = version(object).into();
        }
        let namespace = object.namespace();
        let name = object.name();
        let resource = &target.resource;
        site.cluster.merge_patch_strictly(resource, namespace, name, &patch, MANAGER).await
    }
}

/// The resourceVersion of an object.
#[must_use]
pub fn version(object: &Object) -> &str {
    object.meta("resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Adds the user's name and the UID to a patch. The reason and the name of an earlier user are removed, because they do not
/// apply to this request.
fn requested(mut patch: Value, uid: &str, user: Option<String>) -> Value {
    patch["metadata"]["uid"] = uid.into();
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[REQUESTED_BY] = user.into();
    annotations[REQUESTED_REASON] = annotations[REQUESTED_REASON].take();
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_says_who_asks_and_never_who_asked_before() {
        let of = |patch: Value, user: Option<&str>| requested(patch, "u", user.map(str::to_owned));
        let patch = of(json!({"spec": {"suspend": false}}), Some("alice"));
        let annotations = json!({REQUESTED_BY: "alice", REQUESTED_REASON: null});
        assert_eq!(patch["metadata"], json!({"uid": "u", "annotations": annotations}));
        let asked = json!({"metadata": {"annotations": {"a": "b", REQUESTED_REASON: "mended"}}});
        let annotations = json!({"a": "b", REQUESTED_BY: null, REQUESTED_REASON: "mended"});
        assert_eq!(of(asked, None)["metadata"]["annotations"], annotations);
    }
}
