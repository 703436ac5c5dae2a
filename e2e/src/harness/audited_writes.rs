//! Finds out from the audit log of the API server which program wrote which object.
//!
//! Elsewhere: reading the log (`super::audit_log`), its settings (`crate::control_plane`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::audit_log::AuditLogPosition;
use super::{Story, StoryObject};

/// How long the API server may take to log a request.
const LOG_LIMIT: Duration = Duration::from_secs(120);

/// A request that could change an object, even if it changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedWriteRequest {
    /// When the API server received the request. It is RFC 3339 with microseconds, so times can be compared as strings.
    pub at: String,
    /// The program that sent the request: the text in parentheses in its user agent.
    pub by: String,
    /// The request, for example `patch kustomizations/app/status`.
    pub what: String,
}

impl AuditedWriteRequest {
    /// Reads an audit event. Returns `None` unless it is a write request of windlass in this namespace, and not about a Lease.
    fn of(event: &Value, namespace: &str) -> Option<Self> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let verb = word(&event["verb"]);
        let object = &event["objectRef"];
        let is_write =
            ["create", "update", "patch", "delete", "deletecollection"].contains(&&*verb);
        let agent = event["userAgent"].as_str()?.strip_prefix("windlass/")?;
        if !is_write || object["namespace"] != namespace || object["resource"] == "leases" {
            return None;
        }
        let by = agent.split_once('(')?.1.trim_end_matches(')').to_owned();
        let mut what = format!("{verb} {}", word(&object["resource"]));
        for part in [&object["name"], &object["subresource"]] {
            if let Some(part) = part.as_str() {
                what.push('/');
                what.push_str(part);
            }
        }
        Some(Self { at: word(&event["requestReceivedTimestamp"]), by, what })
    }
}

/// Whether a request changes nothing. A deletion says so in its body, and other requests in their address.
fn is_dry_run(event: &Value) -> bool {
    let address = event["requestURI"].as_str().unwrap_or_default();
    let body = event["requestObject"]["dryRun"].as_array();
    address.contains("dryRun=All") || body.is_some_and(|it| !it.is_empty())
}

/// The object that windlass created with the request of an audit event, as `jobs/migrate`. `None` if the request created no
/// object in the namespace, or if it was not from windlass.
fn creation(event: &Value, namespace: &str) -> Option<String> {
    let object = &event["objectRef"];
    let is_ours = event["userAgent"].as_str()?.starts_with("windlass/");
    let is_done = event["verb"] == "create" && event["responseStatus"]["code"] == 201;
    let name = object["name"].as_str()?;
    (is_ours && is_done && object["namespace"] == namespace)
        .then(|| format!("{}/{name}", object["resource"].as_str().unwrap_or_default()))
}

/// The change that windlass made to an object: `created configmaps/a`, `changed …` or `removed …`. `None` for dry-runs,
/// subresources, Events, and the kinds and records of windlass.
fn change(event: &Value, namespace: &str) -> Option<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let is_ours = word(&event["userAgent"]).starts_with("windlass/");
    let is_tried = is_dry_run(event);
    let code = event["responseStatus"]["code"].as_u64()?;
    let group = word(&object["apiGroup"]);
    let is_own = group.ends_with("fluxcd.io") || group.ends_with("windlass.dev");
    let resource = word(&object["resource"]);
    let name = word(&object["name"]);
    let subresource = !object["subresource"].is_null();
    let is_record = resource == "events" || name.starts_with("sh.helm.release.");
    let is_left_out = !is_ours || is_tried || is_own || is_record || subresource;
    if is_left_out || object["namespace"] != namespace || !(200..300).contains(&code) {
        return None;
    }
    let action = match (word(&event["verb"]).as_str(), code) {
        ("create", _) | ("patch", 201) => "created",
        ("patch" | "update", _) => "changed",
        ("delete", _) => "removed",
        _ => return None,
    };
    Some(format!("{action} {resource}/{name}"))
}

/// A change that windlass made to a ConfigMap, with the answer of the API server. Dry-runs do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedConfigMapWrite {
    /// When the API server received the request. It is RFC 3339 with microseconds, so times can be compared as strings.
    pub at: String,
    /// The change: `created`, `changed` or `removed`.
    pub action: String,
    /// The name of the ConfigMap.
    pub name: String,
    /// The value of the key `value` after the change. `None` if the key is missing or the ConfigMap was removed.
    pub value: Option<String>,
    /// The resourceVersion after the change. A request that changes nothing keeps the old one.
    pub version: String,
}

impl AuditedConfigMapWrite {
    fn of(event: &Value, namespace: &str) -> Option<Self> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let change = change(event, namespace)?;
        let (action, object) = change.split_once(' ')?;
        let after = &event["responseObject"];
        let value = after["data"]["value"].as_str().filter(|_| action != "removed");
        Some(Self {
            at: word(&event["requestReceivedTimestamp"]),
            action: action.to_owned(),
            name: object.strip_prefix("configmaps/")?.to_owned(),
            value: value.map(ToOwned::to_owned),
            version: word(&after["metadata"]["resourceVersion"]),
        })
    }
}

/// The successful deletion of an object by any client. Both times are RFC 3339 with microseconds, so they can be compared as
/// strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedDeletion {
    /// When the API server received the first request for the deletion.
    pub requested: String,
    /// When the API server received the last request that changed the object. If the object no longer exists, this request
    /// completed the deletion: it was the deletion itself, or it removed the last finalizer.
    pub last_change: String,
}

/// A successful write request about an object, with dry-runs left out.
struct SuccessfulWrite {
    /// The resource and the name, as `configmaps/app`.
    object: String,
    at: String,
    is_deletion: bool,
}

impl SuccessfulWrite {
    /// Reads an audit event. Returns `None` unless the object is in the namespace, or is cluster-scoped with the namespace in its
    /// name.
    fn of(event: &Value, namespace: &str) -> Option<Self> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let name = object["name"].as_str()?;
        let is_of_story = match object["namespace"].as_str() {
            Some(place) => place == namespace,
            None => name.contains(namespace),
        };
        let code = event["responseStatus"]["code"].as_u64()?;
        let is_tried = is_dry_run(event);
        let verb = word(&event["verb"]);
        let is_write = ["create", "update", "patch", "delete"].contains(&&*verb);
        let is_done = is_write && !is_tried && (200..300).contains(&code);
        (is_of_story && is_done).then(|| Self {
            object: format!("{}/{name}", word(&object["resource"])),
            at: word(&event["requestReceivedTimestamp"]),
            is_deletion: verb == "delete",
        })
    }
}

impl Story {
    /// The deletions in the namespace of the story by any client, by resource and name, such as `configmaps/app`. Also those of
    /// cluster-scoped objects whose names contain the namespace.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn deletions(&self) -> Result<BTreeMap<String, AuditedDeletion>> {
        let text = self.logged()?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut writes: Vec<SuccessfulWrite> =
            events.filter_map(|it| SuccessfulWrite::of(&it, &self.namespace)).collect();
        writes.sort_by(|a, b| a.at.cmp(&b.at));
        let mut deletions: BTreeMap<String, AuditedDeletion> = BTreeMap::new();
        for SuccessfulWrite { object, at, is_deletion } in writes {
            if let Some(deletion) = deletions.get_mut(&object) {
                deletion.last_change = at;
            } else if is_deletion {
                deletions
                    .insert(object, AuditedDeletion { requested: at.clone(), last_change: at });
            }
        }
        Ok(deletions)
    }

    /// The changes that windlass made to ConfigMaps in the namespace of the story, in the order of the requests. Requests that
    /// changed nothing are left out.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn config_map_writes(&self) -> Result<Vec<AuditedConfigMapWrite>> {
        let text = self.logged()?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut writes: Vec<AuditedConfigMapWrite> =
            events.filter_map(|it| AuditedConfigMapWrite::of(&it, &self.namespace)).collect();
        writes.sort_by(|a, b| a.at.cmp(&b.at));
        let mut versions: BTreeMap<String, String> = BTreeMap::new();
        writes.retain(|write| {
            let before = versions.insert(write.name.clone(), write.version.clone());
            write.action == "removed" || before.as_ref() != Some(&write.version)
        });
        Ok(writes)
    }

    /// The changes that windlass made to objects in the namespace of the story, in the order of the requests.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn changes(&self) -> Result<Vec<String>> {
        Ok(self.timed_changes()?.into_iter().map(|(_, change)| change).collect())
    }

    /// The changes that windlass made to objects in the namespace of the story. Each has the time of its request in RFC 3339.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn timed_changes(&self) -> Result<Vec<(String, String)>> {
        let text = self.logged()?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let changes = events.filter_map(|event| {
            let at = event["requestReceivedTimestamp"].as_str().unwrap_or_default().to_owned();
            Some((at, change(&event, &self.namespace)?))
        });
        Ok(changes.collect())
    }

    /// How often windlass created objects of these resources in the namespace of the story, by resource and name.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn creations(&self, resources: &[&str]) -> Result<BTreeMap<String, usize>> {
        let text = self.logged()?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut counts = BTreeMap::new();
        for created in events.filter_map(|event| creation(&event, &self.namespace)) {
            let resource = created.split('/').next().unwrap_or_default();
            if resources.contains(&resource) {
                *counts.entry(created).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Waits until the log contains all requests that were answered before this call. The API server logs a request after its
    /// answer. A story calls this before it counts requests, so that it does not count earlier requests.
    ///
    /// # Errors
    /// There is no audit log, or the log does not grow.
    pub async fn await_log(&self) -> Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        let mark = format!("{}-mark-{}", self.namespace, COUNT.fetch_add(1, Ordering::Relaxed));
        let position = AuditLogPosition::at_end_of(path)?;
        self.read(&StoryObject::config_map(&mark)).await?;
        self.await_until("the audit log to have a request", LOG_LIMIT, async || {
            Ok(position.logged_since()?.contains(&mark).then_some(()))
        })
        .await
    }

    /// What the API server logged since the story began.
    fn logged(&self) -> Result<String> {
        self.log_begin.as_ref().context("this cluster has no audit log of ours")?.logged_since()
    }

    /// The write requests of windlass in the namespace of the story so far, in the order of arrival.
    ///
    /// The API server logs a request after its answer, so unanswered requests are missing.
    pub fn writes(&self) -> Result<Vec<AuditedWriteRequest>> {
        // Only lines with the name of the namespace are parsed as JSON.
        let text = self.logged()?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut writes: Vec<AuditedWriteRequest> =
            events.filter_map(|event| AuditedWriteRequest::of(&event, &self.namespace)).collect();
        writes.sort_by(|a, b| a.at.cmp(&b.at));
        Ok(writes)
    }
}
