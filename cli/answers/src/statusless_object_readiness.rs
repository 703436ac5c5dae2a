//! Finds out whether objects work whose kinds have no status. windlass checks whether something that they need is missing.
//!
//! Elsewhere: finding causes (engine `cause`), the table rows of other kinds (`object_row.rs`).

use cause::{ExaminedObjectState, StateExplanation, condition, object_references};
use objects::Object;
use serde_json::json;

use super::cause_facts::ClusterFactReader;
use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;

/// The maximum number of objects of a kind that are explained.
const MOST_EXPLAINED: usize = 200;

/// Whether a kind has no status, so windlass has to check its objects itself.
pub fn is_mute(target: &ResourceArgument) -> bool {
    let gvk = &target.resource.gvk;
    gvk.group == "notification.toolkit.fluxcd.io"
        && matches!(gvk.kind.as_str(), "Alert" | "Provider")
}

/// Adds a condition to each object without a status that does not work. The condition contains the cause that `windlass why`
/// would print.
///
/// # Errors
/// The API server did not respond.
pub async fn judged(
    site: &CommandScope,
    target: &ResourceArgument,
    objects: Vec<Object>,
) -> anyhow::Result<Vec<Object>> {
    let mut facts = ClusterFactReader::new(&site.cluster);
    let mut found = Vec::with_capacity(objects.len());
    for (at, object) in objects.into_iter().enumerate() {
        let has_said =
            condition(&object, "Ready").is_some() || !object_references::has_no_runs(&object);
        if has_said || at >= MOST_EXPLAINED {
            found.push(object);
            continue;
        }
        facts.knows(&target.resource, object.clone());
        let why = facts.explain(&object.id()).await?;
        found.push(with_failure(object, &why));
    }
    Ok(found)
}

/// Adds the condition that the object is not ready, if the cause is known.
fn with_failure(mut object: Object, why: &StateExplanation) -> Object {
    let cause = why.cause.as_ref().filter(|_| why.state == ExaminedObjectState::NotReady);
    if let Some(cause) = cause {
        let ready = json!({"type": "Ready", "status": "False", "reason": cause.problem.to_string(),
            "message": cause.line(&why.object), "lastTransitionTime": cause.since.map(|at| at.to_string())});
        object.fields_mut().insert("status".to_owned(), json!({"conditions": [ready]}));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_row::ObjectRow;

    fn target(version: &str, kind: &str) -> ResourceArgument {
        let resource = fake_cluster::answer_examples::resource(version, kind);
        ResourceArgument { resource, namespace: None, name: None }
    }

    #[tokio::test]
    async fn an_alert_or_a_provider_that_lacks_something_is_not_ready() {
        let provider = |name: &str, secret: &str| {
            json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
                "metadata": {"name": name, "namespace": "apps"},
                "spec": {"type": "slack", "channel": "a", "secretRef": {"name": secret}}})
        };
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there", "namespace": "apps"},
            "data": {"address": "aHR0cHM6Ly9h", "token": "YQ=="}});
        let incident = json!({"apiVersion": "notification.windlass.dev/v1alpha1", "kind": "Incident",
            "metadata": {"name": "a", "namespace": "apps"}, "spec": {"reason": "Delivery", "subject": {
                "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "name": "rejected"}},
            "status": {"state": "Open", "since": "2026-11-24T11:00:00Z", "message": "status 404"}});
        let objects = [
            provider("well", "there"),
            provider("broken", "absent"),
            provider("rejected", "there"),
        ];
        let all = objects.iter().cloned().chain([secret, incident]).collect();
        let (cluster, _) = fake_cluster::with_objects(all).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let target = target("notification.toolkit.fluxcd.io/v1beta3", "Provider");
        assert!(is_mute(&target));
        let objects = objects.map(|it| Object::new(it).unwrap()).to_vec();
        let found = judged(&site, &target, objects).await.unwrap();
        let row = |object: &Object| ObjectRow::of_any(object, jiff::Timestamp::now());
        assert_eq!(row(&found[0]).ready, "");
        let broken = row(&found[1]);
        assert_eq!(broken.ready, "False");
        assert!(broken.message.contains("Secret/apps/absent does not exist"), "{broken:?}");
        let rejected = row(&found[2]);
        assert_eq!((rejected.ready.as_str(), rejected.message.as_str()), ("False", "status 404"));
        assert_eq!(rejected.since.unwrap().to_string(), "2026-11-24T11:00:00Z");
    }
}
