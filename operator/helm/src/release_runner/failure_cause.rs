//! Why an object is not what it should be, as deep as the cluster tells: its Pods' containers, their scheduling, events.
//!
//! Elsewhere: what a Pod says (engine `cause`, which `windlass why` asks, too).
//!
//! Differs(flux): there a failed wait names the object and its state alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use apply::ObjectHealth;
use cause::object_event::last_seen;
use cause::pod::PodTrouble;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;
use sources::remote_bases::without_credentials;

use super::manifest_objects::ManifestObject;
use windlass_cluster::ClusterConnection;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::workload_pods::WorkloadPods;

/// The longest cause, in characters.
const MAX_TEXT: usize = 500;

/// The most objects that are not ready for which warnings are read.
const MOST_UNREADY: usize = 4;

/// The most warnings that are read about an object, or about the ReplicaSets of its namespace.
const MOST_WARNINGS: usize = 6_400;

/// The deepest cause that is found. `None` if no cause is known, or the cluster does not answer.
pub(super) async fn of(
    cluster: &ClusterConnection,
    member: &ManifestObject,
    report: &ObjectHealth,
) -> Option<String> {
    let own = (!report.message.is_empty() && report.status != apply::HealthStatus::NotFound)
        .then(|| report.words().to_owned());
    // The message names the object itself.
    let text_of = |trouble: PodTrouble| match is_pod(member) {
        true => trouble.within_pod(),
        false => trouble.to_string(),
    };
    let now = jiff::Timestamp::now();
    let mut unready = Vec::new();
    let mut pods = WorkloadPods::of(cluster, &member.object).await;
    let deep = find_pod(cluster, member, &mut pods, |pod| {
        if unready.len() < MOST_UNREADY && !apply::health::read(pod, &[], now).is_current() {
            unready.push(pod.name().to_owned());
        }
        cause::pod::trouble(pod).map(text_of)
    });
    let deep = deep.await;
    let event = match deep {
        None => last_warning(cluster, member, &mut pods, &unready).await,
        Some(_) => None,
    };
    let text = match (own, deep.or(event)) {
        (Some(own), Some(deep)) => format!("{own}; {deep}"),
        (own, deep) => own.or(deep)?,
    };
    Some(shortened(&text))
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn is_pod(member: &ManifestObject) -> bool {
    (member.id.group.as_str(), member.id.kind.as_str()) == ("", "Pod")
}

/// Returns the first answer of `check` for one of the object's Pods. These are the object itself, or the Pods that it selects.
/// `None` if `check` answers for no Pod, or if the Pods cannot be read.
async fn find_pod<T>(
    cluster: &ClusterConnection,
    member: &ManifestObject,
    pods: &mut WorkloadPods<'_>,
    mut check: impl FnMut(&Object) -> Option<T>,
) -> Option<T> {
    let ManifestObject { id, resource, .. } = member;
    match is_pod(member) {
        true => check(&cluster.get(resource, &id.namespace, &id.name).await.ok()??),
        false => pods.find(check).await,
    }
}

/// The last line that a failed container printed. `None` if the cluster does not answer.
///
/// A long line is cut. Users and passwords in addresses are hidden, and so are the values in `masked`. The line may still
/// contain secrets that only the container knows.
pub(super) async fn last_line(
    cluster: &ClusterConnection,
    member: &ManifestObject,
    masked: impl Fn(&str) -> String,
) -> Option<String> {
    let failed = |pod: &Object| {
        let container = cause::pod::failed(pod)?.to_owned();
        Some((pod.name().to_owned(), container))
    };
    let mut pods = WorkloadPods::of(cluster, &member.object).await;
    let (pod, container) = find_pod(cluster, member, &mut pods, failed).await?;
    let printed = cluster.last_lines(&member.id.namespace, &pod, &container).await.ok()?;
    let line = printed.lines().rev().find(|line| !line.trim().is_empty())?;
    let line: String = line.chars().filter(|letter| !letter.is_control()).collect();
    Some(shortened(&without_credentials(&masked(&line))))
}

/// The newest warning event about an object, about its Pods that are not ready, or about its current ReplicaSets. `None` if
/// there is none, or if events cannot be read.
async fn last_warning(
    cluster: &ClusterConnection,
    member: &ManifestObject,
    pods: &mut WorkloadPods<'_>,
    unready: &[String],
) -> Option<String> {
    let ObjectId { namespace, name, kind, .. } = &member.id;
    let resource = cluster.resource(&Gvk::new("v1", "Event")).await.ok()?;
    let mut about = vec![named(kind, name)];
    if kind != "Pod" {
        about.extend(unready.iter().map(|pod| named("Pod", pod)));
    }
    if kind == "Deployment" {
        // windlass may not list ReplicaSets, so ReplicaSets of other objects are among the results.
        about.push("involvedObject.kind=ReplicaSet".to_owned());
    }
    let mut newest: BTreeMap<[String; 2], Object> = BTreeMap::new();
    for about in about {
        let query = ObjectQuery {
            resource: &resource,
            namespace,
            label_selector: "",
            field_selector: &format!("type=Warning,{about}"),
        };
        let keep_newest = |event: &Object| {
            let about = involved(event);
            let known = newest.get(&about);
            let is_newest = known.is_none_or(|it| last_seen(it) <= last_seen(event));
            if is_newest && !(kind == "Deployment" && is_of_other_replica_set(&about, name)) {
                newest.insert(about, event.clone());
            }
            None::<()>
        };
        // A list that fails leaves the others.
        drop(cluster.find_object(query, MOST_WARNINGS, keep_newest).await);
    }
    let mut newest: Vec<([String; 2], Object)> = newest.into_iter().collect();
    newest.sort_by_key(|(_, event)| Reverse(last_seen(event)));
    for ([kind, name], event) in newest {
        if kind == "ReplicaSet" && pods.replaces(&name).await {
            continue;
        }
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        return Some(format!("{}: {}", text("reason"), text("message")));
    }
    None
}

/// Kind and name of the object that an event is about.
fn involved(event: &Object) -> [String; 2] {
    let of = event.get("involvedObject").unwrap_or(&Value::Null);
    ["kind", "name"].map(|key| of[key].as_str().unwrap_or_default().to_owned())
}

/// Whether an object is a ReplicaSet that does not belong to the Deployment. A Deployment's ReplicaSets are named after it,
/// followed by a hash.
fn is_of_other_replica_set([kind, name]: &[String; 2], deployment: &str) -> bool {
    let hash = name.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    kind == "ReplicaSet" && hash.is_none_or(|hash| hash.contains('-'))
}

/// The field selector of events about an object.
fn named(kind: &str, name: &str) -> String {
    format!("involvedObject.kind={kind},involvedObject.name={name}")
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use apply::HealthStatus;
    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use fake_cluster::answering;
    use windlass_cluster::discovery::ApiResourceLocation;

    fn member() -> ManifestObject {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        let object = Object::new(object).unwrap();
        let gvk = object.gvk();
        let plural = "deployments".to_owned();
        let resource = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
        ManifestObject { id: object.id(), object, resource }
    }

    fn event(kind: &str, name: &str, at: &str) -> Value {
        json!({"metadata": {"name": name}, "type": "Warning", "reason": "Failed", "message": name,
            "involvedObject": {"kind": kind, "name": name}, "eventTime": at})
    }

    const KINDS: &str = r#"{"groupVersion": "v1", "resources": [
        {"name": "pods", "singularName": "", "kind": "Pod", "namespaced": true, "verbs": ["list"]},
        {"name": "events", "singularName": "", "kind": "Event", "namespaced": true, "verbs": ["list"]}]}"#;

    #[tokio::test]
    async fn only_warnings_about_the_object_its_unready_pods_and_replica_sets_are_read() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let cluster = answering(move |(request, _)| {
            let Some((path, query)) = request.split_once('?') else {
                return (200, Body::from(KINDS));
            };
            let query = percent_encoding::percent_decode_str(query).decode_utf8_lossy();
            recorded.lock().push(query.clone().into_owned());
            let is_last = query.contains("continue=");
            let items = match (path.ends_with("/pods"), query.contains("kind=ReplicaSet")) {
                (true, _) => json!([
                    {"metadata": {"name": "web-1-a"}, "status": {"phase": "Pending"}},
                    {"metadata": {"name": "web-1-b"}, "status": {"phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True"}]}}]),
                // Those of other Deployments fill pages.
                (false, true) if !is_last => {
                    let other = event("ReplicaSet", "api-1", "2026-01-04T00:00:00Z");
                    let page = json!({"metadata": {"continue": "x"}, "items": vec![other; 300]});
                    return (200, Body::from(page.to_string()));
                }
                (false, true) => json!([
                    event("ReplicaSet", "web-1", "2026-01-02T00:00:00Z"),
                    event("ReplicaSet", "web-0", "2026-01-01T00:00:00Z"),
                    event("ReplicaSet", "webshop-1", "2026-01-03T00:00:00Z"),
                    event("ReplicaSet", "web-shop-1", "2026-01-03T00:00:00Z")
                ]),
                (false, false) => json!([event("Pod", "web-1-a", "2026-01-01T00:00:00Z")]),
            };
            (200, Body::from(json!({"items": items}).to_string()))
        })
        .await;
        let report = ObjectHealth { status: HealthStatus::InProgress, ..ObjectHealth::not_found() };
        let report = ObjectHealth { message: String::new(), ..report };
        let cause = of(&cluster, &member(), &report).await;
        assert_eq!(cause.as_deref(), Some("Failed: web-1"));
        let asked = asked.lock();
        let selectors: Vec<&str> =
            asked.iter().filter_map(|it| it.split_once("fieldSelector=")).map(|it| it.1).collect();
        assert_eq!(
            selectors,
            [
                "",
                "type=Warning,involvedObject.kind=Deployment,involvedObject.name=web",
                "type=Warning,involvedObject.kind=Pod,involvedObject.name=web-1-a",
                "type=Warning,involvedObject.kind=ReplicaSet",
                "type=Warning,involvedObject.kind=ReplicaSet&continue=x",
            ]
        );
    }

    #[tokio::test]
    async fn neither_pods_nor_warnings_of_a_replica_set_that_is_replaced_are_the_cause() {
        let controlled = |kind: &str, name: &str, owner: &str, by: &str, revision: &str| {
            let version = if kind == "Pod" { "v1" } else { "apps/v1" };
            json!({"apiVersion": version, "kind": kind, "status": {"phase": "Pending"},
                "metadata": {"name": name, "namespace": "shop",
                    "annotations": {"deployment.kubernetes.io/revision": revision},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": by,
                        "controller": true}]}})
        };
        let cluster = answering(move |(request, _)| {
            let set = |name: &str, revision: &str| {
                controlled("ReplicaSet", name, "Deployment", "web", revision)
            };
            let answer = match () {
                () if request.contains("/replicasets/web-1") => set("web-1", "1"),
                () if request.contains("/replicasets/web-2") => set("web-2", "2"),
                () if request.contains("/deployments/web") => {
                    json!({"apiVersion": "apps/v1", "kind": "Deployment",
                        "metadata": {"name": "web", "namespace": "shop",
                            "annotations": {"deployment.kubernetes.io/revision": "2"}}})
                }
                () if request.contains("/pods?") => {
                    json!({"items": [controlled("Pod", "web-1-a", "ReplicaSet", "web-1", "")]})
                }
                () if request.contains("web-1-a") => {
                    json!({"items": [event("Pod", "web-1-a", "2026-01-04T00:00:00Z")]})
                }
                () if request.contains("ReplicaSet") => json!({"items": [
                    event("ReplicaSet", "web-1", "2026-01-03T00:00:00Z"),
                    event("ReplicaSet", "web-2", "2026-01-02T00:00:00Z")]}),
                () if request.contains("/events?") => json!({"items": []}),
                () => return (200, Body::from(KINDS)),
            };
            (200, Body::from(answer.to_string()))
        })
        .await;
        let report = ObjectHealth { status: HealthStatus::InProgress, ..ObjectHealth::not_found() };
        let report = ObjectHealth { message: String::new(), ..report };
        let cause = of(&cluster, &member(), &report).await;
        assert_eq!(cause.as_deref(), Some("Failed: web-2"));
    }

    #[tokio::test]
    async fn a_pod_in_trouble_is_found_behind_many_that_are_well() {
        let cluster = answering(|(request, _)| {
            let Some((_, query)) = request.split_once("/pods?") else {
                return (200, Body::from(KINDS));
            };
            let waiting =
                json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}});
            let troubled = json!({"metadata": {"name": "web-9"},
                "status": {"containerStatuses": [{"name": "app", "state": waiting}]}});
            let well = json!({"metadata": {"name": "web-1"}, "status": {"phase": "Running"}});
            let page = match query.contains("continue=") {
                true => json!({"items": [troubled]}),
                false => json!({"metadata": {"continue": "x"}, "items": vec![well; 64]}),
            };
            (200, Body::from(page.to_string()))
        })
        .await;
        let report = ObjectHealth { status: HealthStatus::InProgress, ..ObjectHealth::not_found() };
        let report = ObjectHealth { message: String::new(), ..report };
        let cause = of(&cluster, &member(), &report).await.unwrap();
        assert!(cause.contains("Pod web-9 ImagePullBackOff: no such tag"), "{cause}");
    }

    #[tokio::test]
    async fn a_pod_is_not_named_by_its_own_cause() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "check", "namespace": "shop"},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "main",
                "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}});
        let object = Object::new(pod.clone()).unwrap();
        let cluster = answering(move |(request, _)| match request.contains("/pods/check") {
            true => (200, Body::from(pod.to_string())),
            false => (200, Body::from(KINDS)),
        })
        .await;
        let gvk = object.gvk();
        let plural = "pods".to_owned();
        let resource = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
        let member = ManifestObject { id: object.id(), object, resource };
        let report = ObjectHealth {
            status: HealthStatus::Failed,
            message: String::new(),
            ..ObjectHealth::not_found()
        };
        let cause = of(&cluster, &member, &report).await;
        assert_eq!(cause.as_deref(), Some("container 'main' ended with exit code 3 (Error)"));
    }
}
