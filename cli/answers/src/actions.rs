//! What a person asks windlass to do with one object. The command line and the pages send the same requests, which are here.
//!
//! A request says who asks, and is about the object that was read. The API server decides who may ask. Below: each request.
//! Elsewhere: which objects are meant and what is waited for (`windlass-cli`), forms (`windlass-web`).

pub mod change_rollback;
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

/// The field manager of what a person asks for, by a command or on a page: an end of a suspension counts only if the same
/// manager set both.
pub const MANAGER: &str = "windlass-cli";

/// Users with this prefix are ServiceAccounts, which neither approve nor roll back a change.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An answer to what waits for an approval.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalAnswer<'a> {
    /// Why, for others; may be empty.
    pub comment: &'a str,
    /// The objects of a Plan that stay in the cluster.
    pub keep: &'a [String],
    /// Whether it is a rejection.
    pub is_rejection: bool,
}

/// An object that is to be changed, as it was read.
#[derive(Clone, Copy)]
pub struct ObjectToChange<'a> {
    /// Where it is.
    pub site: &'a CommandScope,
    /// Its kind.
    pub target: &'a ResourceArgument,
    /// The object.
    pub object: &'a Object,
    /// Whether it is changed only while it has the version that was read. Otherwise it is changed while it has the same uid.
    pub is_of_version: bool,
}

impl ObjectToChange<'_> {
    /// Patches the object. Annotations say who asks, for audits; the patch may say why.
    ///
    /// # Errors
    /// The API server refuses it, such as a field that the kind does not have or another version, or does not respond.
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

/// A patch of the object with this uid that says who asks. What an earlier user said does not hold for it.
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
