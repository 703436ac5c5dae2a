//! Events: controllers post them about an object, and receivers of forwarded events parse them.
//!
//! Here: reading and writing an event like Go. Elsewhere: which Providers receive it (`alert_dispatch`).
//!
//! Source of the semantics: fluxcd/pkg/apis/event v1beta1, Go's `encoding/json`.

use std::collections::BTreeMap;
use std::fmt;

use golang::time::{GoTime, RFC3339};
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::case_folding::equal_fold;

/// The API group of metadata keys that apply to objects of all groups.
pub const EVENT_GROUP: &str = "event.toolkit.fluxcd.io";

/// The reason of an event about work that is not finished.
const PROGRESSING: &str = "Progressing";

/// The object that an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference {
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// The API version of the object, as `group/version`.
    pub api_version: String,
    /// The `resourceVersion` of the object that the event is about.
    pub resource_version: String,
    /// A part of the object.
    pub field_path: String,
}

impl ObjectReference {
    /// The API group; empty for core kinds and for an API version with more than two parts.
    pub fn group(&self) -> &str {
        match self.api_version.split_once('/') {
            Some((group, version)) if !version.contains('/') => group,
            _ => "",
        }
    }

    /// A metadata key in the API group of the object. For core kinds it begins with `/`.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.group())
    }

    /// The object as text in messages: `Kind/namespace/name`.
    pub(crate) fn display(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// `kind/name.namespace`, the heading of most messages.
    pub(crate) fn heading(&self) -> String {
        format!("{}/{}.{}", self.kind.to_lowercase(), self.name, self.namespace)
    }
}

/// The incident that a notification opens or resolves, for services that have their own incidents.
///
/// Differs(flux): it has no incidents. An event without one is sent as Flux sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotifiedIncident {
    /// The key by which the service identifies the incident. It does not change while the incident exists.
    pub key: String,
    /// Whether the incident is open. Otherwise it is resolved.
    pub is_open: bool,
    /// When the incident was opened, in seconds since 1970.
    pub since: i64,
    /// The class of the failure. It does not change while the incident exists.
    pub reason: String,
    /// The service's id for the message that opened the incident. Later messages are posted in its thread.
    pub thread: Option<String>,
}

/// An event that a controller reports about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FluxEvent {
    /// The object.
    pub object: ObjectReference,
    /// `info`, `error`, `trace`, or any other text.
    pub severity: String,
    /// The time of the event in seconds since 1970; none if it has no time.
    pub timestamp: Option<i64>,
    /// Nanoseconds after that second. Only spans use them.
    pub nanoseconds: u32,
    /// The message about the event.
    pub message: String,
    /// The reason, as one word.
    pub reason: String,
    /// Further data about the event.
    pub metadata: BTreeMap<String, String>,
    /// Whether the event was posted without metadata. Metadata without keys is a different case.
    pub lacks_metadata: bool,
    /// The controller.
    pub reporting_controller: String,
    /// The process of the controller.
    pub reporting_instance: String,
    /// The incident that the event is about. It is not part of the posted event.
    pub incident: Option<NotifiedIncident>,
}

/// Why a posted text is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body is no event: {0}")]
pub struct NotAnEventError(String);

impl FluxEvent {
    /// Reads a posted event. Names of members match in any case, and if a member occurs several times, the last one counts.
    ///
    /// Only the types are checked, so `{}` and `null` are valid events.
    ///
    /// # Errors
    /// If the text is not JSON or a member has another type.
    pub fn parse(body: &[u8]) -> Result<Self, NotAnEventError> {
        let text = String::from_utf8_lossy(body);
        let event: Option<Self> =
            serde_json::from_str(&text).map_err(|error| NotAnEventError(error.to_string()))?;
        Ok(event.unwrap_or_default())
    }

    /// Writes the event byte for byte like Go, because signatures are computed from these bytes.
    pub fn to_json(&self) -> Vec<u8> {
        crate::go_json_encoder::bytes(self)
    }

    pub(crate) fn is_progressing(&self) -> bool {
        self.reason == PROGRESSING
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// The value of a key in the event's metadata. `None` if the key is missing.
    pub(crate) fn meta(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// The revision for a commit status. A key that a user set takes precedence, even if its value is empty. `None` if
    /// the event has no revision.
    pub fn revision(&self) -> Option<&str> {
        ["commit", "originRevision", "revision"].into_iter().find_map(|key| self.meta(key))
    }

    /// Seconds since 1970. An event without a time has Go's zero time.
    pub(crate) fn unix(&self) -> i64 {
        self.timestamp.unwrap_or_else(|| GoTime::zero().unix())
    }

    /// The time as text. An event without a time has Go's zero time.
    pub(crate) fn rfc3339(&self) -> String {
        rfc3339(self.unix())
    }
}

/// A time as text, given in seconds since 1970.
pub(crate) fn rfc3339(unix: i64) -> String {
    GoTime::from_unix(unix, 0, golang::time::GoTimeZone::Utc).format(RFC3339)
}

struct NonEmptyMapEntries<'a>(&'a [(&'a str, &'a str)]);

impl Serialize for NonEmptyMapEntries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in self.0.iter().filter(|(_, value)| !value.is_empty()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Serialize for ObjectReference {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        NonEmptyMapEntries(&[
            ("kind", &self.kind),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
            ("apiVersion", &self.api_version),
            ("resourceVersion", &self.resource_version),
            ("fieldPath", &self.field_path),
        ])
        .serialize(to)
    }
}

impl Serialize for FluxEvent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("involvedObject", &self.object)?;
        map.serialize_entry("severity", &self.severity)?;
        map.serialize_entry("timestamp", &self.timestamp.map(|_| self.rfc3339()))?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("reason", &self.reason)?;
        if !self.metadata.is_empty() {
            map.serialize_entry("metadata", &self.metadata)?;
        }
        map.serialize_entry("reportingController", &self.reporting_controller)?;
        if !self.reporting_instance.is_empty() {
            map.serialize_entry("reportingInstance", &self.reporting_instance)?;
        }
        map.end()
    }
}

/// A text, where `null` leaves the current value.
fn text<'de, A: MapAccess<'de>>(from: &mut A, into: &mut String) -> Result<(), A::Error> {
    if let Some(text) = from.next_value::<Option<String>>()? {
        *into = text;
    }
    Ok(())
}

impl<'de> Deserialize<'de> for ObjectReference {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = ObjectReference;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object reference")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut read = ObjectReference::default();
                while let Some(name) = from.next_key::<String>()? {
                    let into = [
                        ("kind", &mut read.kind),
                        ("namespace", &mut read.namespace),
                        ("name", &mut read.name),
                        ("uid", &mut read.uid),
                        ("apiVersion", &mut read.api_version),
                        ("resourceVersion", &mut read.resource_version),
                        ("fieldPath", &mut read.field_path),
                    ];
                    match into.into_iter().find(|(known, _)| equal_fold(known, &name)) {
                        Some((_, into)) => text(&mut from, into)?,
                        None => drop(from.next_value::<de::IgnoredAny>()?),
                    }
                }
                Ok(read)
            }
        }
        from.deserialize_map(Members)
    }
}

impl ObjectReference {
    /// Takes over the members of a later value. If a member occurs twice, Go reads both into the same struct.
    fn merge(&mut self, later: Self) {
        let take = |mine: &mut String, theirs: String| {
            if !theirs.is_empty() {
                *mine = theirs;
            }
        };
        take(&mut self.kind, later.kind);
        take(&mut self.namespace, later.namespace);
        take(&mut self.name, later.name);
        take(&mut self.uid, later.uid);
        take(&mut self.api_version, later.api_version);
        take(&mut self.resource_version, later.resource_version);
        take(&mut self.field_path, later.field_path);
    }
}

impl<'de> Deserialize<'de> for FluxEvent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = FluxEvent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut event = FluxEvent { lacks_metadata: true, ..FluxEvent::default() };
                while let Some(name) = from.next_key::<String>()? {
                    let into = [
                        ("severity", &mut event.severity),
                        ("message", &mut event.message),
                        ("reason", &mut event.reason),
                        ("reportingController", &mut event.reporting_controller),
                        ("reportingInstance", &mut event.reporting_instance),
                    ];
                    if let Some((_, into)) =
                        into.into_iter().find(|(known, _)| equal_fold(known, &name))
                    {
                        text(&mut from, into)?;
                    } else if equal_fold("involvedObject", &name) {
                        event.object.merge(from.next_value::<Option<_>>()?.unwrap_or_default());
                    } else if equal_fold("timestamp", &name) {
                        let time: Option<String> = from.next_value()?;
                        let time = time.map(|time| moment(&time)).transpose()?.flatten();
                        event.timestamp = time.map(|(seconds, _)| seconds);
                        event.nanoseconds = time.map_or(0, |(_, nanoseconds)| nanoseconds);
                    } else if equal_fold("metadata", &name) {
                        let read: Option<BTreeMap<String, Option<String>>> = from.next_value()?;
                        event.lacks_metadata = read.is_none();
                        match read {
                            Some(read) => event.metadata.extend(
                                read.into_iter().map(|(key, it)| (key, it.unwrap_or_default())),
                            ),
                            None => event.metadata.clear(),
                        }
                    } else {
                        let _: de::IgnoredAny = from.next_value()?;
                    }
                }
                Ok(event)
            }
        }
        from.deserialize_map(Members)
    }
}

/// Seconds and nanoseconds of a time; none for Go's zero time, which is written as null.
fn moment<E: de::Error>(text: &str) -> Result<Option<(i64, u32)>, E> {
    let time = GoTime::parse(RFC3339, text, &golang::time::GoTimeZone::Utc)
        .map_err(|error| E::custom(format!("{error}")))?;
    let unix = time.unix();
    Ok((unix != GoTime::zero().unix()).then_some((unix, time.nanosecond())))
}
