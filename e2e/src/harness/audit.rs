//! Who wrote what, as the API server's audit log has it.
//!
//! Elsewhere: what is logged (`crate::control_plane`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Story, StoryObject};

/// How long the API server may take to log a request.
const LOG_LIMIT: Duration = Duration::from_secs(120);

/// A request that could have changed something, whether it did or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedWriteRequest {
    /// When the API server received it, RFC 3339 with microseconds: strings compare as times.
    pub at: String,
    /// Who sent it: what its user agent has in parentheses.
    pub by: String,
    /// For example `patch kustomizations/app/status`.
    pub what: String,
}

impl AuditedWriteRequest {
    /// Requests that windlass made in a namespace, but those about Leases.
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

/// The object that windlass created by a request, as `jobs/migrate`.
fn creation(event: &Value, namespace: &str) -> Option<String> {
    let object = &event["objectRef"];
    let is_ours = event["userAgent"].as_str()?.starts_with("windlass/");
    let is_done = event["verb"] == "create" && event["responseStatus"]["code"] == 201;
    let name = object["name"].as_str()?;
    (is_ours && is_done && object["namespace"] == namespace)
        .then(|| format!("{}/{name}", object["resource"].as_str().unwrap_or_default()))
}

/// What windlass made of an object by a request that was not a dry-run: `created configmaps/a`, `changed …` or
/// `removed …`. Its own kinds, their records and Events are left out.
fn change(event: &Value, namespace: &str) -> Option<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let is_ours = word(&event["userAgent"]).starts_with("windlass/");
    let is_tried = word(&event["requestURI"]).contains("dryRun=All");
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

/// What windlass made of a ConfigMap by a request that was not a dry-run, with what the API server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedConfigMapWrite {
    /// When the API server received the request, RFC 3339 with microseconds: strings compare as times.
    pub at: String,
    /// `created`, `changed` or `removed`.
    pub action: String,
    /// The name of the ConfigMap.
    pub name: String,
    /// What it has at the key `value` afterwards; `None` if it has none or was removed.
    pub value: Option<String>,
    /// Its resourceVersion afterwards: a request that changed nothing leaves it as it was.
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

impl Story {
    /// What windlass made of ConfigMaps in the story's namespace so far, in the order in which it was received. What left an
    /// object as it was is not among it.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn config_map_writes(&self) -> Result<Vec<AuditedConfigMapWrite>> {
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        let text = std::fs::read_to_string(path)?;
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

    /// What windlass made of objects in the story's namespace so far, in the order in which it was received.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn changes(&self) -> Result<Vec<String>> {
        Ok(self.timed_changes()?.into_iter().map(|(_, change)| change).collect())
    }

    /// The same, with the time at which each was received, RFC 3339.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn timed_changes(&self) -> Result<Vec<(String, String)>> {
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        let text = std::fs::read_to_string(path)?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let changes = events.filter_map(|event| {
            let at = event["requestReceivedTimestamp"].as_str().unwrap_or_default().to_owned();
            Some((at, change(&event, &self.namespace)?))
        });
        Ok(changes.collect())
    }

    /// How often windlass created objects of these resources in the story's namespace, by resource and name.
    ///
    /// # Errors
    /// There is no audit log.
    pub fn creations(&self, resources: &[&str]) -> Result<BTreeMap<String, usize>> {
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        let text = std::fs::read_to_string(path)?;
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

    /// Waits until the log has all requests that were answered before: a request is logged after its answer was sent, so that
    /// what it changed may be seen earlier. Before requests are counted, so that those of before are not taken for later ones.
    ///
    /// # Errors
    /// There is no audit log, or it does not grow.
    pub async fn await_log(&self) -> Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        let mark = format!("{}-mark-{}", self.namespace, COUNT.fetch_add(1, Ordering::Relaxed));
        self.read(&StoryObject::config_map(&mark)).await?;
        self.await_until("the audit log to have a request", LOG_LIMIT, async || {
            Ok(std::fs::read_to_string(path)?.contains(&mark).then_some(()))
        })
        .await
    }

    /// What windlass wrote in the story's namespace so far, in the order in which it was received.
    ///
    /// Requests are logged once they are answered, so what is under way is not there yet.
    pub fn writes(&self) -> Result<Vec<AuditedWriteRequest>> {
        let path = self.bed.audit_log().context("this cluster has no audit log of ours")?;
        // Only what is named is read as JSON; the last line may be half written.
        let text = std::fs::read_to_string(path)?;
        let named = text.lines().filter(|line| line.contains(&self.namespace));
        let events = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut writes: Vec<AuditedWriteRequest> =
            events.filter_map(|event| AuditedWriteRequest::of(&event, &self.namespace)).collect();
        writes.sort_by(|a, b| a.at.cmp(&b.at));
        Ok(writes)
    }
}
