//! The metadata of an event: keys that are dropped on arrival, the key that identifies repetitions, and keys that the Alert
//! adds.
//!
//! Source of the semantics: notification-controller 1.9.3, `event_server.go` and `combineEventMetadata`.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::alert_dispatch::AlertWarningEvent;
use crate::api_objects::Alert;
use crate::case_folding::equal_fold;
use crate::event::{EVENT_GROUP, FluxEvent};

const CONFLICT: &str = "metadata key conflicts detected (please refer to the Alert API docs and \
                        Flux RFC 0008 for more information)";

impl FluxEvent {
    /// Drops metadata of other origins. It keeps keys with the prefix `event.toolkit.fluxcd.io/` or with the API group of the
    /// event's object, except `checksum` and `digest` of that group.
    pub fn clean_metadata(&mut self) {
        self.lacks_metadata = false;
        let excluded = [self.object.key("checksum"), self.object.key("digest")];
        let event_group = format!("{EVENT_GROUP}/");
        let object_group = self.object.key("");
        self.metadata.retain(|key, _| {
            !excluded.iter().any(|known| equal_fold(known, key))
                && (key.starts_with(&event_group) || key.starts_with(&object_group))
        });
    }

    /// The key for the rate limit. Events with the same key count as repetitions. Call [`FluxEvent::clean_metadata`] before.
    pub fn rate_key(&self) -> String {
        let object = &self.object;
        let mut key = format!(
            "event/name={}/namespace={}/kind={}/message={}",
            object.name, object.namespace, object.kind, self.message
        );
        for name in ["originRevision", "revision", "token"] {
            if let Some(value) = self.meta(&object.key(name)) {
                key.push_str(&format!("/{name}={value}"));
            }
        }
        hex::encode(Sha256::digest(key))
    }

    /// Drops metadata that only the rate limit uses.
    pub(crate) fn exclude_internal(&mut self) {
        let token = self.object.key("token");
        self.metadata.remove(&token);
    }

    /// Combines the metadata of the event, the Alert and the controller. Later ones take precedence.
    ///
    /// Returns a warning if several of them set the same key, or else `None`.
    pub(crate) fn combine_metadata(&mut self, alert: &Alert) -> Option<AlertWarningEvent> {
        let mut combined: BTreeMap<String, (String, Vec<&str>)> = BTreeMap::new();
        let mut add = |key: &str, value: &str, source| {
            let (known, sources) = combined.entry(key.to_owned()).or_default();
            value.clone_into(known);
            sources.push(source);
        };
        let event_group = format!("{EVENT_GROUP}/");
        for (key, value) in &self.metadata {
            if let Some(key) = key.strip_prefix(&event_group) {
                add(key, value, "involved object annotations");
            }
        }
        for (key, value) in &alert.spec.event_metadata {
            add(key, value, "Alert object .spec.eventMetadata");
        }
        if !alert.spec.summary.is_empty() {
            add("summary", &alert.spec.summary, "Alert object .spec.summary");
        }
        let object_group = self.object.key("");
        for (key, value) in &self.metadata {
            if let Some(key) = key.strip_prefix(&object_group) {
                add(key, value, "involved object controller metadata");
            }
        }
        let conflicts: BTreeMap<String, String> = combined
            .iter()
            .filter(|(_, (_, sources))| sources.len() > 1)
            .map(|(key, (_, sources))| (key.clone(), sources.join(", ")))
            .collect();
        if !combined.is_empty() {
            self.metadata = combined.into_iter().map(|(key, (value, _))| (key, value)).collect();
        }
        (!conflicts.is_empty()).then(|| AlertWarningEvent {
            reason: "MetadataAppendFailed",
            message: CONFLICT.to_owned(),
            annotations: conflicts,
        })
    }
}
