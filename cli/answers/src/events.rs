//! Lists the events of windlass's objects and of their sources.

use std::collections::BTreeSet;

use anyhow::ensure;
use cause::{last_seen, object_references};
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::command_scope::CommandScope;
use super::kind_argument::{self, ResourceArgument};

/// Which Kubernetes events a user selects: by their objects, by labels, and by type.
#[derive(Debug, Clone, Copy)]
pub struct EventQuery<'q> {
    /// The arguments that name an object. Events of its sources are included. If empty, all objects of windlass are selected.
    pub words: &'q [String],
    /// Without arguments, the label selector of the objects. Empty for all objects.
    pub labels: &'q str,
    /// The types of events. Empty for all types.
    pub types: &'q [String],
}

/// The Kubernetes events that were listed, the oldest first, and messages about those that could not be listed.
#[derive(Debug)]
pub struct ListedEvents {
    /// The events.
    pub events: Vec<Object>,
    /// Messages about events that could not be listed.
    pub left_out: Vec<String>,
    /// The selected object if it does not exist.
    pub gone: Option<ObjectId>,
}

/// Lists the selected events. A deleted object may still have events.
///
/// # Errors
/// Something cannot be read, or an object has no events and does not exist.
pub async fn listed(site: &CommandScope, query: &EventQuery<'_>) -> anyhow::Result<ListedEvents> {
    let (about, mut left_out) = about(site, query).await?;
    let (events, more) = gather(site, query, about.as_ref()).await?;
    left_out.extend(more);
    let absent = about.and_then(|it| it.absent);
    match absent {
        Some(absent) if events.is_empty() => Err(kind_argument::absent(site, &absent).await),
        absent => {
            let gone = absent.map(|absent| id_of(site, &absent));
            Ok(ListedEvents { events, left_out, gone })
        }
    }
}

/// The object that a command names.
fn id_of(site: &CommandScope, target: &ResourceArgument) -> ObjectId {
    let Gvk { group, kind, .. } = &target.resource.gvk;
    let name = target.name.as_deref().unwrap_or_default();
    ObjectId::new(site.namespace_of(target), name, group, kind)
}

/// The objects whose events are listed.
struct EventFilter {
    objects: BTreeSet<ObjectId>,
    /// The object that the command names, if it does not exist.
    absent: Option<ResourceArgument>,
    /// The namespaces of the events. `None` stands for the namespace of the command.
    namespaces: Vec<Option<String>>,
}

/// The selected object with its sources, or the objects that match the labels. Also returns messages about objects that could
/// not be listed.
async fn about(
    site: &CommandScope,
    query: &EventQuery<'_>,
) -> anyhow::Result<(Option<EventFilter>, Vec<String>)> {
    let EventQuery { words, labels, .. } = *query;
    let mut objects = BTreeSet::new();
    if !words.is_empty() {
        let target = kind_argument::one(&site.cluster, words).await?;
        ensure!(
            labels.is_empty(),
            "-l selects among objects that are not named: leave out the name or -l"
        );
        let id = id_of(site, &target);
        let found =
            site.cluster.get(&target.resource, site.namespace_of(&target), &id.name).await?;
        objects.extend(found.iter().flat_map(object_references::sources));
        objects.insert(id);
        let absent = found.is_none().then_some(target);
        let namespaces: BTreeSet<String> = objects.iter().map(|id| id.namespace.clone()).collect();
        let namespaces = namespaces.into_iter().map(Some).collect();
        return Ok((Some(EventFilter { objects, absent, namespaces }), Vec::new()));
    }
    if labels.is_empty() {
        return Ok((None, Vec::new()));
    }
    let mut left_out = Vec::new();
    for target in kind_argument::targets(&site.cluster, &["all".to_owned()]).await? {
        let refused = site.list(&target, labels, |found| {
            objects.extend(found.iter().map(Object::id));
            Ok(())
        });
        left_out.extend(refused.await?);
    }
    Ok((Some(EventFilter { objects, absent: None, namespaces: vec![None] }), left_out))
}

async fn gather(
    site: &CommandScope,
    query: &EventQuery<'_>,
    about: Option<&EventFilter>,
) -> anyhow::Result<(Vec<Object>, Vec<String>)> {
    let gvk = Gvk::new("v1", "Event");
    let resource = site.cluster.resource(&gvk).await?;
    let mut found: Vec<Object> = Vec::new();
    let mut left_out = Vec::new();
    let namespaces = about.map_or_else(|| vec![None], |it| it.namespaces.clone());
    for namespace in namespaces {
        let target = ResourceArgument { resource: resource.clone(), namespace, name: None };
        let refused = site.list(&target, "", |events| {
            let wanted = events.into_iter().filter(|it| {
                let is_it = |kind: &String| field(it, "type").eq_ignore_ascii_case(kind);
                let is_of_type = query.types.is_empty() || query.types.iter().any(is_it);
                let of = object_of(it);
                is_of_type
                    && about.map_or_else(
                        || object_references::is_reconciled(&of),
                        |about| about.objects.contains(&of),
                    )
            });
            found.extend(wanted);
            Ok(())
        });
        left_out.extend(refused.await?);
    }
    found.sort_by_key(last_seen);
    Ok((found, left_out))
}

/// A text field of an event. Empty if the field is missing.
pub fn field<'e>(event: &'e Object, key: &str) -> &'e str {
    event.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The object that an event is about.
pub fn object_of(event: &Object) -> ObjectId {
    let of = event.get("involvedObject").cloned().unwrap_or_default();
    let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let group = Gvk::new(&text("apiVersion"), "").group;
    ObjectId::new(&text("namespace"), &text("name"), &group, &text("kind"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_object_that_was_deleted_has_events_and_one_that_never_was_there_has_none() {
        let api_version = "kustomize.toolkit.fluxcd.io/v1";
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "shop.1", "namespace": "apps"}, "type": "Warning", "reason": "BuildFailed",
            "message": "missing file", "lastTimestamp": "2026-11-24T11:58:00Z",
            "involvedObject": {"apiVersion": api_version, "kind": "Kustomization", "namespace": "apps", "name": "shop"}});
        let other = json!({"apiVersion": api_version, "kind": "Kustomization",
            "metadata": {"name": "other", "namespace": "apps"}, "spec": {}});
        let (cluster, _) = fake_cluster::with_objects(vec![event, other]).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let found_for = async |word: &str| {
            let words = [word.to_owned()];
            listed(&site, &EventQuery { words: &words, labels: "", types: &[] }).await
        };
        let found = found_for("kustomization/shop").await.unwrap();
        assert_eq!(found.events.len(), 1);
        let subject = found.gone.map(|gone| gone.subject());
        assert_eq!(subject.as_deref(), Some("Kustomization/apps/shop"));
        let found = found_for("kustomization/other").await.unwrap();
        assert_eq!((found.events.len(), found.gone), (0, None));
        let error = found_for("kustomization/never").await.unwrap_err().to_string();
        assert!(error.starts_with("Kustomization/apps/never does not exist"), "{error}");
    }
}
