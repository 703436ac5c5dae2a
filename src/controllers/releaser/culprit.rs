//! Why an object is not what it should be, as deep as the cluster tells: its Pods' containers, their scheduling, events.
//!
//! Differs(flux): there a failed wait names the object and its state alone.

use apply::Report;
use objects::{Gvk, Object};
use serde_json::Value;
use sources::bases::without_credentials;

use super::members::Member;
use crate::cluster::Cluster;

/// How long a cause may be, in characters.
const MAX_TEXT: usize = 500;

/// The deepest cause that is found; none where nothing more is known, or the cluster does not tell.
pub(super) async fn of(cluster: &Cluster, member: &Member, report: &Report) -> Option<String> {
    let own = (!report.message.is_empty() && report.status != apply::Health::NotFound)
        .then(|| report.message.clone());
    let pods = pods_of(cluster, member).await;
    let deep = pods.iter().find_map(of_pod);
    let event = match deep {
        None => last_warning(cluster, member, &pods).await,
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

/// The Pods that an object stands for: itself, or those that it selects.
async fn pods_of(cluster: &Cluster, member: &Member) -> Vec<Object> {
    let pods = Gvk::new("v1", "Pod");
    let Ok(resource) = cluster.resource(&pods).await else { return Vec::new() };
    let namespace = member.id.namespace.as_str();
    if (member.id.group.as_str(), member.id.kind.as_str()) == ("", "Pod") {
        let pod = cluster.get(&resource, namespace, &member.id.name).await;
        return pod.ok().flatten().into_iter().collect();
    }
    let selector = match (member.id.group.as_str(), member.id.kind.as_str()) {
        ("batch", "Job") => format!("batch.kubernetes.io/job-name={}", member.id.name),
        _ => {
            let labels = member.object.get("spec").and_then(|it| it.get("selector"));
            let labels = labels.and_then(|it| it.get("matchLabels")).and_then(Value::as_object);
            let strings: Vec<String> = labels
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
                .collect();
            strings.join(",")
        }
    };
    if selector.is_empty() {
        return Vec::new();
    }
    cluster.list(&resource, namespace, &selector).await.unwrap_or_default()
}

/// The last line that a container printed that failed; none where the cluster does not tell.
///
/// The beginnings of long lines only. Users and passwords of addresses are hidden, and what `masked` hides; it may hold
/// secrets that nobody but the container knows.
pub(super) async fn last_line(
    cluster: &Cluster,
    member: &Member,
    masked: impl Fn(&str) -> String,
) -> Option<String> {
    let pods = pods_of(cluster, member).await;
    let (pod, container) = pods.iter().find_map(|pod| {
        let mut containers = containers(pod);
        let failed = containers.find(|it| exit_code(it).is_some_and(|code| code != 0))?;
        Some((pod, failed.get("name")?.as_str()?))
    })?;
    let printed = cluster.last_lines(pod.namespace(), pod.name(), container).await.ok()?;
    let line = printed.lines().rev().find(|line| !line.trim().is_empty())?;
    let line: String = line.chars().filter(|letter| !letter.is_control()).collect();
    Some(shortened(&without_credentials(&masked(&line))))
}

/// The states of a Pod's containers, in the order in which they are started.
fn containers(pod: &Object) -> impl Iterator<Item = &Value> {
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let all = statuses.into_iter().filter_map(move |key| pod.get("status")?.get(key)?.as_array());
    all.flatten()
}

/// How a container ended, now or before it was started again.
fn ended(container: &Value) -> Option<&Value> {
    let state = container.get("state").and_then(|it| it.get("terminated"));
    state.or_else(|| container.get("lastState")?.get("terminated"))
}

fn exit_code(container: &Value) -> Option<i64> {
    ended(container)?.get("exitCode")?.as_i64()
}

/// What a Pod says is in its way.
fn of_pod(pod: &Object) -> Option<String> {
    let status = pod.get("status")?;
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    for container in containers(pod) {
        let name = text(container, "name");
        let waiting = container.get("state").and_then(|it| it.get("waiting"));
        let (ended, exit) = (ended(container), exit_code(container));
        if let Some(waiting) = waiting.filter(|it| text(it, "reason") != "ContainerCreating") {
            let (reason, message) = (text(waiting, "reason"), text(waiting, "message"));
            let code = exit.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            return Some(format!(
                "container '{name}' of Pod {} {reason}{code}: {message}",
                pod.name()
            ));
        }
        if let (Some(code), Some(ended)) = (exit.filter(|code| *code != 0), ended) {
            let (reason, message) = (text(ended, "reason"), text(ended, "message"));
            return Some(format!(
                "container '{name}' of Pod {} ended with exit code {code} ({reason}): {message}",
                pod.name()
            ));
        }
    }
    let conditions = status.get("conditions").and_then(Value::as_array);
    let unscheduled = conditions
        .into_iter()
        .flatten()
        .find(|it| text(it, "type") == "PodScheduled" && text(it, "status") == "False")?;
    Some(format!("Pod {} is not scheduled: {}", pod.name(), text(unscheduled, "message")))
}

/// The newest warning about an object or its Pods.
async fn last_warning(cluster: &Cluster, member: &Member, pods: &[Object]) -> Option<String> {
    let resource = cluster.resource(&Gvk::new("v1", "Event")).await.ok()?;
    let events = cluster.list(&resource, &member.id.namespace, "").await.ok()?;
    let field = |event: &Object, path: [&str; 2]| -> String {
        let value = event.get(path[0]).and_then(|it| it.get(path[1]));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let text = |event: &Object, key: &str| {
        event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is_about = |event: &&Object| {
        let (kind, name) =
            (field(event, ["involvedObject", "kind"]), field(event, ["involvedObject", "name"]));
        let is_own = kind == member.id.kind && name == member.id.name;
        let is_below = kind == "ReplicaSet" && name.starts_with(&format!("{}-", member.id.name));
        is_own || is_below || (kind == "Pod" && pods.iter().any(|pod| pod.name() == name))
    };
    let warnings = events.iter().filter(|it| text(it, "type") == "Warning").filter(is_about);
    let last = warnings.max_by_key(|it| text(it, "lastTimestamp"))?;
    Some(format!("{}: {}", text(last, "reason"), text(last, "message")))
}
