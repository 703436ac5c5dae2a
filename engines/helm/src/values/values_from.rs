//! The values of a HelmRelease: those in its spec, those that `valuesFrom` names, and their digest.
//!
//! Elsewhere: reading ConfigMaps and Secrets (the caller, as a function), and target paths (`crate::strvals`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoSlice};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::json::exact_json;
use super::table::{copied, dismantle, empty};
use super::{Error, NotJsonError, ValuesBudget};
use crate::strvals::{self, ListReplacement, SetValueMode};

/// One entry of a HelmRelease's `spec.valuesFrom`.
#[derive(Debug, Clone, Default)]
pub struct ValuesReference {
    /// The kind: `ConfigMap` or `Secret`.
    pub kind: String,
    /// The name of the object, in the namespace of the HelmRelease.
    pub name: String,
    /// The key in its data. `None` means `values.yaml`.
    pub values_key: Option<String>,
    /// The path, in the language of `--set`, where the data is set as one value. If it is empty, the data is YAML.
    pub target_path: String,
    /// Whether the object or the key may be missing.
    pub optional: bool,
    /// Whether the data is set at the target path unchanged, as a string.
    pub literal: bool,
}

impl ValuesReference {
    fn key(&self) -> &str {
        self.values_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("values.yaml")
    }
}

/// The data of a ConfigMap or Secret.
pub type ValuesReferenceData = BTreeMap<String, Vec<u8>>;

/// The result of reading a ConfigMap or Secret.
#[derive(Debug, Clone)]
pub enum ValuesReferenceLookup {
    /// The data of the object.
    Data(ValuesReferenceData),
    /// The object does not exist. The text is the API server's message.
    Absent(String),
}

/// Reads a ConfigMap or Secret by kind and name. The error is the complete message for the user.
pub type ValuesReferenceReader<'l> =
    dyn FnMut(&str, &str) -> Result<ValuesReferenceLookup, String> + 'l;

/// Why the values of a HelmRelease could not be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesReferenceError {
    /// A reference cannot be resolved.
    #[error(transparent)]
    Unresolved(Box<UnresolvedValuesReference>),
    /// Reading an object failed.
    #[error("{0}")]
    Lookup(String),
    /// There are too many values, or they are nested too deeply.
    #[error(transparent)]
    Limit(#[from] Error),
}

/// A reference that cannot be resolved. The messages are Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not resolve{}{} chart values reference '{namespace}/{name}' with key '{key}': {problem}",
    if *optional { " optional" } else { "" },
    if kind.is_empty() { String::new() } else { format!(" {kind}") }
)]
pub struct UnresolvedValuesReference {
    /// Whether the object or the key may be missing.
    pub optional: bool,
    /// The kind in the reference.
    pub kind: String,
    /// The namespace in which the object was searched.
    pub namespace: String,
    /// The name in the reference.
    pub name: String,
    /// The key in the reference.
    pub key: String,
    /// The problem of the reference.
    pub problem: ValuesReferenceProblem,
}

/// The problem of a reference. Messages contain no values. An error about a target path names keys, and these may come
/// from the data if it has a comma.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesReferenceProblem {
    /// The object does not exist. The text is the API server's message.
    #[error("{0}")]
    Absent(String),
    /// The data of the object has no such key.
    #[error("key not found")]
    NoKey,
    /// The kind is neither ConfigMap nor Secret.
    #[error("unsupported values reference kind")]
    Kind,
    /// The data is not YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(#[from] goyaml::Error),
    /// The data is YAML but not a table.
    #[error(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {0} into Go value of type common.Values"
    )]
    NotTable(&'static str),
    /// The value cannot be set at the target path.
    #[error(transparent)]
    TargetPath(#[from] strvals::Error),
}

/// Reads the values in a YAML text, as Helm reads a values file. An empty text has no values.
///
/// # Errors
/// The text is not YAML, or not a table.
pub fn read(text: &[u8]) -> Result<GoMap, ValuesReferenceProblem> {
    let json = goyaml::to_json(text)?;
    let found = match &json {
        Json::Null => return Ok(empty()),
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    match GoRuntimeValue::from_json(&json) {
        GoRuntimeValue::Map(table) => Ok(table),
        _ => Err(ValuesReferenceProblem::NotTable(found)),
    }
}

/// The merged values of a HelmRelease. `inline` wins over the references, and later references win over earlier ones.
///
/// Parity(flux): a target path changes lists and tables of the inline values if the references have none at that path.
/// An item of an inline list is thus replaced. All other values at a target path lose against the inline values.
///
/// # Errors
/// A reference cannot be resolved. An optional reference is only an error if the data exists and is invalid.
pub fn compose(
    namespace: &str,
    inline: &GoMap,
    references: &[ValuesReference],
    lookup: &mut ValuesReferenceReader<'_>,
) -> Result<GoMap, ValuesReferenceError> {
    // Setting a target path changes tables of the inline values that both share, as in Flux. Therefore this is a copy.
    let inline = copied(inline, &mut ValuesBudget::new())?;
    let mut known: BTreeMap<(&str, &str), Option<ValuesReferenceData>> = BTreeMap::new();
    let mut result = empty();
    for reference in references {
        let failed = |problem| {
            ValuesReferenceError::Unresolved(Box::new(UnresolvedValuesReference {
                optional: reference.optional,
                kind: reference.kind.clone(),
                namespace: namespace.to_owned(),
                name: reference.name.clone(),
                key: reference.key().to_owned(),
                problem,
            }))
        };
        if !matches!(reference.kind.as_str(), "ConfigMap" | "Secret") {
            return Err(failed(ValuesReferenceProblem::Kind));
        }
        let place = (reference.kind.as_str(), reference.name.as_str());
        // An object is read once, so all references to it see the same version.
        let mut absent = "resource not found".to_owned();
        let found = match known.entry(place) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                match lookup(place.0, place.1).map_err(ValuesReferenceError::Lookup)? {
                    ValuesReferenceLookup::Data(data) => unknown.insert(Some(data)),
                    ValuesReferenceLookup::Absent(text) => {
                        absent = text;
                        unknown.insert(None)
                    }
                }
            }
        };
        let data = match found {
            Some(data) => data.get(reference.key()).ok_or(ValuesReferenceProblem::NoKey),
            None => Err(ValuesReferenceProblem::Absent(absent)),
        };
        let data = match data {
            Ok(data) => data,
            Err(_) if reference.optional => continue,
            Err(problem) => return Err(failed(problem)),
        };
        if reference.target_path.is_empty() {
            let values = read(data).map_err(failed)?;
            result = above(&values, &result, 0, &mut ValuesBudget::new())?;
        } else {
            result = above(&inline, &result, 0, &mut ValuesBudget::new())?;
            let replaced = put(&result, reference, data).map_err(|error| failed(error.into()))?;
            let replaced = replaced.iter().map(|list| (list.before.address(), &list.after));
            replace_lists(&inline, &replaced.collect());
        }
    }
    let all = above(&inline, &result, 0, &mut ValuesBudget::new())?;
    Ok(copied(&all, &mut ValuesBudget::new()).inspect_err(|_| dismantle(&all))?)
}

/// Merges two tables. Tables in both are merged, too, and for other values the upper one wins.
fn above(
    upper: &GoMap,
    lower: &GoMap,
    depth: usize,
    budget: &mut ValuesBudget,
) -> Result<GoMap, Error> {
    let both = empty();
    for (key, value) in lower.entries() {
        both.insert(key, value);
    }
    for (key, value) in upper.entries() {
        budget.spend(depth)?;
        let value = match (value, both.get(&key)) {
            (GoRuntimeValue::Map(upper), Some(GoRuntimeValue::Map(lower))) => {
                GoRuntimeValue::Map(above(&upper, &lower, depth + 1, budget)?)
            }
            (value, _) => value,
        };
        both.insert(key, value);
    }
    Ok(both)
}

/// Replaces lists in a table and the tables in it. `replaced` has the new lists by the addresses of the old ones.
///
/// Tables within lists need no change, because the old and the new list share them.
fn replace_lists(table: &GoMap, replaced: &BTreeMap<usize, &GoSlice>) {
    if replaced.is_empty() {
        return;
    }
    for (key, value) in table.entries() {
        match value {
            GoRuntimeValue::List(known) => {
                if let Some(after) = replaced.get(&known.address()) {
                    table.insert(key, GoRuntimeValue::List((*after).clone()));
                }
            }
            GoRuntimeValue::Map(inner) => replace_lists(&inner, replaced),
            _ => {}
        }
    }
}

/// Sets the data of a reference at its target path.
fn put(
    values: &GoMap,
    reference: &ValuesReference,
    data: &[u8],
) -> Result<Vec<ListReplacement>, strvals::Error> {
    let text = |data: &[u8]| [reference.target_path.as_bytes(), b"=", data].concat();
    if reference.literal {
        let mut escaped = Vec::with_capacity(data.len());
        for byte in data {
            if matches!(byte, b'\\' | b',' | b'[' | b']' | b'{' | b'}') {
                escaped.push(b'\\');
            }
            escaped.push(*byte);
        }
        return strvals::set_in_lists(values, text(&escaped), SetValueMode::Strings);
    }
    let is_quoted = |mark: u8| data.first() == Some(&mark) && data.last() == Some(&mark);
    if !is_quoted(b'\'') && !is_quoted(b'"') {
        return strvals::set_in_lists(values, text(data), SetValueMode::Typed);
    }
    let is_mark = |byte: &u8| matches!(byte, b'\'' | b'"');
    let from = data.iter().position(|byte| !is_mark(byte)).unwrap_or(data.len());
    let to = data.iter().rposition(|byte| !is_mark(byte)).map_or(from, |last| last + 1);
    strvals::set_in_lists(values, text(&data[from..to]), SetValueMode::Strings)
}

/// The values as the text that Flux hashes. It is empty if there are none.
///
/// # Errors
/// JSON cannot represent a value, or there are too many values.
pub fn yaml(values: &GoMap) -> Result<String, NotJsonError> {
    if values.is_empty() {
        return Ok(String::new());
    }
    let json = exact_json(values)?;
    goyaml::emit::emit_in_byte_order(&json).map_err(|_| Error::TooMany.into())
}

/// The digest of values that the history of a HelmRelease has as `configDigest`: `sha256:…`.
///
/// # Errors
/// As for [`yaml`].
pub fn digest(values: &GoMap) -> Result<String, NotJsonError> {
    Ok(format!("sha256:{}", hex::encode(Sha256::digest(yaml(values)?))))
}
