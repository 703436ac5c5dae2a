//! Decodes the objects of lists and watch events one by one, so that an unreadable object does not affect the others.
//!
//! Lists and events are split without recursion, at any depth that an API server stores (up to 10 000 levels). The metadata of
//! an object is read even if the object itself cannot be read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::unused_managed_fields;

/// The deepest nesting that is read into memory, which is the limit of `serde_json`. Deeper values would be dropped, cloned
/// and compared by recursion, which could overflow the stack.
const MAX_NESTING_DEPTH: usize = 127;

/// The `Accept` header for a list with only the metadata of objects.
pub(super) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The `Accept` header for an object with only its metadata.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The annotation of the bookmark after the last initial event of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How many objects a page of a list has.
pub(super) const OBJECTS_PER_PAGE: usize = 500;

/// The most objects of a list.
pub(super) const LIST_LIMIT: usize = 1_000_000;

/// The depth to which an object is kept if its deeper parts are not used.
const MAX_RETAINED_DEPTH: usize = 100;

/// The metadata that objects of every kind have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMetadata {
    /// The name of the object (`metadata.name`).
    pub name: String,
    /// The namespace. Empty if the object is cluster-scoped.
    pub namespace: String,
    /// The uid of the object (`metadata.uid`).
    pub uid: String,
    /// The generation of the spec (`metadata.generation`). It is 0 for kinds that have none.
    pub generation: i64,
    /// The resourceVersion of the object.
    pub resource_version: String,
    /// The labels of the object.
    pub labels: Option<BTreeMap<String, String>>,
    /// When the deletion of the object began.
    pub deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct MetadataEnvelope {
    #[serde(default)]
    metadata: ObjectMetadata,
}

/// An object that exists but cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct UnreadableObject {
    /// The metadata, which can always be read.
    pub meta: ObjectMetadata,
    /// The `status.conditions` of the object, if they can be read.
    pub conditions: Value,
    /// Why the object cannot be read, in words for a user.
    pub why: String,
}

/// An object of one of windlass's kinds. If it cannot be read, only its metadata and conditions are here.
#[derive(Debug, Clone)]
pub enum DecodedObject<K> {
    /// The object. Its `managedFields` have only the parts that windlass uses.
    Read(K),
    /// The object does not fit into its type.
    Unreadable(Box<UnreadableObject>),
}

/// The metadata of an object of any kind.
#[derive(Debug, Clone)]
pub struct MetadataOnly {
    /// The namespace. Empty if the object is cluster-scoped.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    version: String,
    /// The metadata. Without `managedFields` if they are nested too deeply.
    pub metadata: Value,
}

/// A whole object of any kind.
#[derive(Debug, Clone)]
pub struct FullObject {
    version: String,
    /// The object. `None` if it cannot be read.
    pub value: Option<Value>,
}

impl FullObject {
    /// An object that was already read.
    pub fn of(value: Value) -> Self {
        Self { version: String::new(), value: Some(value) }
    }
}

/// A form in which objects of a list or watch are decoded, such as whole objects or only metadata.
pub trait ObjectDecodeForm: Sized + Send + 'static {
    /// Decodes one object.
    ///
    /// # Errors
    /// The JSON is not an object of this form.
    fn read(json: &[u8]) -> Result<Self, serde_json::Error>;

    /// The resourceVersion of the object.
    fn version(&self) -> &str;
}

impl<K: super::windlass_kind::WindlassKind> ObjectDecodeForm for DecodedObject<K> {
    fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        match object::<K>(json) {
            Ok(mut object) => {
                unused_managed_fields::keep_needed(&mut object);
                Ok(Self::Read(object))
            }
            Err(error) => {
                let meta = meta(json)?;
                let conditions = conditions(json);
                let why = why(json, &error);
                Ok(Self::Unreadable(Box::new(UnreadableObject { meta, conditions, why })))
            }
        }
    }

    fn version(&self) -> &str {
        match self {
            Self::Read(object) => object.meta().resource_version.as_deref().unwrap_or_default(),
            Self::Unreadable(object) => &object.meta.resource_version,
        }
    }
}

impl ObjectDecodeForm for FullObject {
    fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let version = meta(json)?.resource_version;
        Ok(Self { version, value: object(json).ok() })
    }

    fn version(&self) -> &str {
        &self.version
    }
}

/// An object of any kind. Values that are nested too deeply are null.
#[derive(Debug)]
pub struct DepthPrunedObject(pub Value);

impl ObjectDecodeForm for DepthPrunedObject {
    fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let whole = serde_json::from_slice(json);
        whole.or_else(|_| serde_json::from_slice(&pruned(json))).map(Self)
    }

    fn version(&self) -> &str {
        self.0.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
    }
}

/// An object of any kind as the API server sent it. Only its metadata is decoded.
#[derive(Debug)]
pub struct RawObject {
    /// The metadata of the object.
    pub meta: ObjectMetadata,
    /// The JSON of the object, at any depth.
    pub json: Vec<u8>,
}

impl ObjectDecodeForm for RawObject {
    fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self { meta: meta(json)?, json: json.to_vec() })
    }

    fn version(&self) -> &str {
        &self.meta.resource_version
    }
}

impl ObjectDecodeForm for MetadataOnly {
    fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct MetadataField {
            metadata: Value,
        }
        let meta = meta(json)?;
        let metadata = match serde_json::from_slice::<MetadataField>(json) {
            Ok(whole) => whole.metadata,
            // Only `managedFields` can be nested that deeply. Without them, the fingerprint differs from that of any whole
            // metadata.
            Err(_) => serde_json::json!({"name": meta.name, "namespace": meta.namespace,
                "uid": meta.uid, "resourceVersion": meta.resource_version, "labels": meta.labels}),
        };
        let ObjectMetadata { name, namespace, resource_version: version, .. } = meta;
        Ok(Self { namespace, name, version, metadata })
    }

    fn version(&self) -> &str {
        &self.version
    }
}

/// Decodes a whole object. If the object is being deleted, values that are nested too deeply are left out. The deletion does
/// not need them, and must not wait until a user repairs the object.
///
/// # Errors
/// The object is nested too deeply or does not fit its type.
pub fn object<K: DeserializeOwned>(json: &[u8]) -> Result<K, serde_json::Error> {
    match serde_json::from_slice(json) {
        Err(_) if depth(json) > MAX_NESTING_DEPTH && meta(json)?.deletion_timestamp.is_some() => {
            serde_json::from_slice(&pruned(json))
        }
        other => other,
    }
}

fn meta(json: &[u8]) -> Result<ObjectMetadata, serde_json::Error> {
    serde_json::from_slice::<MetadataEnvelope>(json).map(|object| object.metadata)
}

fn conditions(json: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct StatusField {
        status: StatusConditions,
    }
    #[derive(Deserialize)]
    struct StatusConditions {
        conditions: Value,
    }
    serde_json::from_slice::<StatusField>(json).map_or(Value::Null, |it| it.status.conditions)
}

/// Why an object cannot be read, in words for a user.
pub fn why(json: &[u8], error: &serde_json::Error) -> String {
    match depth(json) {
        depth if depth > MAX_NESTING_DEPTH => {
            format!(
                "it is nested {depth} levels deep, and at most {MAX_NESTING_DEPTH} are supported"
            )
        }
        _ => error.to_string(),
    }
}

/// Calls `each` with the position and the byte of each structural character in a JSON text. Strings are skipped.
fn walk(json: &[u8], mut each: impl FnMut(usize, u8)) {
    let mut is_text = false;
    let mut is_escaped = false;
    for (at, &byte) in json.iter().enumerate() {
        match (is_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (true, b'"') => is_text = false,
            (true, _) => {}
            (false, b'"') => is_text = true,
            (false, byte) => each(at, byte),
        }
    }
}

fn depth(json: &[u8]) -> usize {
    let mut now = 0_usize;
    let mut deepest = 0;
    walk(json, |_, byte| match byte {
        b'{' | b'[' => {
            now += 1;
            deepest = deepest.max(now);
        }
        b'}' | b']' => now = now.saturating_sub(1),
        _ => {}
    });
    deepest
}

/// The same JSON with null for every value below the kept depth.
fn pruned(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut now = 0_usize;
    let mut from = 0;
    walk(json, |at, byte| match byte {
        b'{' | b'[' => {
            now += 1;
            if now == MAX_RETAINED_DEPTH + 1 {
                out.extend_from_slice(json.get(from..at).unwrap_or_default());
                out.extend_from_slice(b"null");
            }
        }
        b'}' | b']' => {
            if now == MAX_RETAINED_DEPTH + 1 {
                from = at + 1;
            }
            now = now.saturating_sub(1);
        }
        _ => {}
    });
    out.extend_from_slice(json.get(from..).unwrap_or_default());
    out
}

/// Splits one level of a JSON text into its values.
struct JsonLevelReader<'a> {
    rest: &'a [u8],
}

impl<'a> JsonLevelReader<'a> {
    fn mark(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.mark() == Some(wanted);
        if found {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        found
    }

    /// The next value as undecoded bytes. `serde_json` skips it without recursion.
    fn value(&mut self) -> Result<&'a [u8], serde_json::Error> {
        let mut values = serde_json::Deserializer::from_slice(self.rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(malformed("a value is missing")),
        }
        let (value, rest) = self.rest.split_at(values.byte_offset().min(self.rest.len()));
        self.rest = rest;
        Ok(value)
    }
}

fn malformed(why: &str) -> serde_json::Error {
    serde::de::Error::custom(why)
}

/// The fields of a JSON object, with undecoded values.
fn members(json: &[u8]) -> Result<Vec<(String, &[u8])>, serde_json::Error> {
    let mut parts = JsonLevelReader { rest: json };
    let mut all = Vec::new();
    if !parts.take(b'{') {
        return Err(malformed("it is not an object"));
    }
    while !parts.take(b'}') {
        let name = serde_json::from_slice(parts.value()?)?;
        if !parts.take(b':') {
            return Err(malformed("a colon is missing"));
        }
        all.push((name, parts.value()?));
        if !parts.take(b',') && parts.mark() != Some(b'}') {
            return Err(malformed("a comma is missing"));
        }
    }
    Ok(all)
}

/// The undecoded elements of a JSON array. Null counts as an empty array.
fn elements(json: &[u8]) -> Result<Vec<&[u8]>, serde_json::Error> {
    let mut parts = JsonLevelReader { rest: json };
    let mut all = Vec::new();
    if json.trim_ascii() == b"null" {
        return Ok(all);
    }
    if !parts.take(b'[') {
        return Err(malformed("it is not an array"));
    }
    while !parts.take(b']') {
        all.push(parts.value()?);
        if !parts.take(b',') && parts.mark() != Some(b']') {
            return Err(malformed("a comma is missing"));
        }
    }
    Ok(all)
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct ObjectListPage<T> {
    pub(super) items: Vec<T>,
    /// The token of the next page. `None` after the last page.
    pub(super) next: Option<String>,
    /// The resourceVersion of the list.
    pub(super) version: Option<String>,
    /// How many objects follow after this page, as far as the API server knows.
    pub(super) remaining: u64,
}

impl<T: ObjectDecodeForm> ObjectListPage<T> {
    /// Decodes a page.
    ///
    /// # Errors
    /// The JSON is not a list.
    pub(super) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct ListMetadata {
            resource_version: Option<String>,
            r#continue: Option<String>,
            remaining_item_count: Option<i64>,
        }
        let mut items = None;
        let mut meta = ListMetadata::default();
        for (name, value) in members(json)? {
            match name.as_str() {
                "metadata" => meta = serde_json::from_slice(value)?,
                "items" => {
                    let read = elements(value)?.into_iter().map(T::read);
                    items = Some(read.collect::<Result<_, _>>()?);
                }
                _ => {}
            }
        }
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let next = said(meta.r#continue);
        let version = said(meta.resource_version);
        let remaining = meta.remaining_item_count.and_then(|it| u64::try_from(it).ok());
        let remaining = remaining.unwrap_or_default();
        // Objects that are missing on every page would count as deleted.
        let items = items.ok_or_else(|| malformed("it has no items, so it is not a list"))?;
        if remaining > 0 && next.is_none() {
            return Err(malformed("it says that objects follow, and not where"));
        }
        Ok(Self { items, next, version, remaining })
    }
}

/// One line of a watch.
#[derive(Debug)]
pub(super) enum WatchLine<T> {
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted.
    Deleted(T),
    /// Nothing happened up to this resourceVersion.
    Bookmark(String),
    /// As a bookmark, after the last of the initial events. All objects were sent before it.
    InitialEventsEnd(String),
    /// The watch failed.
    Error(Box<kube::core::Status>),
}

impl<T: ObjectDecodeForm> WatchLine<T> {
    /// Decodes a line.
    ///
    /// # Errors
    /// The JSON is not a watch event.
    pub(super) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut kind = String::new();
        let mut object = None;
        for (name, value) in members(json)? {
            match name.as_str() {
                "type" => kind = serde_json::from_slice(value)?,
                "object" => object = Some(value),
                // The API server sent a refusal instead of events.
                "kind" if value == b"\"Status\"" => {
                    return Ok(Self::Error(serde_json::from_slice(json)?));
                }
                _ => {}
            }
        }
        let object = object.ok_or_else(|| malformed("an event has no object"))?;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => T::read(object).map(Self::Applied),
            "DELETED" => T::read(object).map(Self::Deleted),
            "BOOKMARK" => bookmark(object),
            "ERROR" => serde_json::from_slice(object).map(Self::Error),
            _ => Err(malformed("an event has an unknown type")),
        }
    }
}

fn bookmark<T>(object: &[u8]) -> Result<WatchLine<T>, serde_json::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct BookmarkMetadata {
        resource_version: String,
        annotations: Value,
    }
    #[derive(Deserialize)]
    struct BookmarkObject {
        #[serde(default)]
        metadata: BookmarkMetadata,
    }
    let BookmarkObject { metadata } = serde_json::from_slice(object)?;
    let version = metadata.resource_version;
    let value = metadata.annotations.get(INITIAL_EVENTS_END).and_then(Value::as_str);
    Ok(match value == Some("true") {
        true => WatchLine::InitialEventsEnd(version),
        false => WatchLine::Bookmark(version),
    })
}

/// The namespace and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectIdentity {
    namespace: String,
    name: String,
}

impl ObjectIdentity {
    /// The identity of the object in a watch event.
    ///
    /// # Errors
    /// The JSON is not a watch event with an object.
    pub(super) fn in_event(json: &[u8]) -> Result<Self, serde_json::Error> {
        let object = members(json)?.into_iter().find(|(name, _)| name == "object");
        let (_, object) = object.ok_or_else(|| malformed("an event has no object"))?;
        let ObjectMetadata { namespace, name, .. } = meta(object)?;
        Ok(Self { namespace, name })
    }
}

#[cfg(test)]
mod tests;
