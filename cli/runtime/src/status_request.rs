//! Writes what a user requests into the status of an object, such as the silence of an Incident or the rollback of a change.
//!
//! The CustomResourceDefinition of an earlier version does not know each of these fields. The API server then refuses the
//! request, or drops the field and reports success.

use anyhow::bail;
use serde_json::Value;

use windlass_cluster::ClusterConnection;
use windlass_cluster::discovery::ApiResourceLocation;

/// Sends a merge patch with a request in its status. Succeeds only if the API server has stored each of its fields.
///
/// # Errors
/// The definition in the cluster does not know a field of the request, or the API server refuses or does not respond.
pub async fn write(
    cluster: &ClusterConnection,
    resource: &ApiResourceLocation,
    namespace: &str,
    name: &str,
    patch: &Value,
    manager: &str,
) -> anyhow::Result<()> {
    let written =
        cluster.merge_patch_status_strictly(resource, namespace, name, patch, manager).await;
    match written {
        Ok(object) => {
            let asked = patch.get("status").unwrap_or(&Value::Null);
            match dropped_field(asked, object.get("status"), "status") {
                Some(field) => bail!("`{field}` was not stored: {}", older_definition(resource)),
                None => Ok(()),
            }
        }
        Err(error) if is_about_unknown_field(&error.to_string()) => {
            bail!("the API server refuses the request: {error}: {}", older_definition(resource))
        }
        Err(error) => Err(error.into()),
    }
}

/// What the cause is, and what to do.
fn older_definition(resource: &ApiResourceLocation) -> String {
    format!(
        "the CustomResourceDefinition {}.{} of this cluster is older than this command; update it with `windlass install` of this \
         version and the flags of the installation, or with the chart of this version, and try again",
        resource.plural, resource.gvk.group
    )
}

/// Whether the API server refuses a request because of a field that the definition does not have.
fn is_about_unknown_field(message: &str) -> bool {
    message.contains("unknown field")
}

/// The path of the first requested field that the answer of the API server lacks. A requested null means a removal, so it is
/// never missing. `None` if all fields are there.
fn dropped_field(asked: &Value, answer: Option<&Value>, path: &str) -> Option<String> {
    match asked {
        Value::Null => None,
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            dropped_field(value, answer.and_then(|it| it.get(key)), &format!("{path}.{key}"))
        }),
        _ => answer.is_none().then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use objects::Gvk;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_the_api_server_dropped_is_found() {
        let asked = json!({"silence": {"user": "alice", "reason": "known"}, "lift": null});
        let found = |answer: Value| dropped_field(&asked, Some(&answer), "status");
        assert_eq!(found(asked.clone()), None);
        let whole = json!({"silence": {"user": "alice", "reason": "known"}, "state": "Open"});
        assert_eq!(found(whole), None);
        let user = "status.silence.reason".to_owned();
        assert_eq!(found(json!({"silence": {"user": "alice"}})), Some(user));
        assert!(found(json!({"state": "Open"})).is_some());
        assert!(dropped_field(&asked, None, "status").is_some());
    }

    #[test]
    fn an_older_definition_is_named_with_the_command_that_updates_it() {
        let resource = ApiResourceLocation {
            gvk: Gvk::new("notification.windlass.dev/v1alpha1", "Incident"),
            plural: "incidents".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let text = older_definition(&resource);
        assert!(text.contains("incidents.notification.windlass.dev"), "{text}");
        assert!(text.contains("`windlass install`"), "{text}");
        // As Kubernetes 1.35 says it.
        assert!(is_about_unknown_field("strict decoding error: unknown field \"status.silence\""));
        assert!(!is_about_unknown_field("incidents \"a\" is forbidden"));
    }
}
