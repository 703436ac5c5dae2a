//! Why an object is not what it should be, as deep as the cluster tells: its Pods' containers, their scheduling, events.
//!
//! Elsewhere: what a Pod says (engine `cause`, which `windlass why` asks, too).
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
    let deep = pods.iter().find_map(cause::pod::trouble).map(|it| it.to_string());
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
    let Some(selector) = cause::pod::selector(&member.object) else { return Vec::new() };
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
    let (pod, container) = pods.iter().find_map(|pod| Some((pod, cause::pod::failed(pod)?)))?;
    let printed = cluster.last_lines(pod.namespace(), pod.name(), container).await.ok()?;
    let line = printed.lines().rev().find(|line| !line.trim().is_empty())?;
    let line: String = line.chars().filter(|letter| !letter.is_control()).collect();
    Some(shortened(&without_credentials(&masked(&line))))
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
