//! Fields of live objects that other clients may change. They do not count as drift, and windlass never writes them
//! back.
//!
//! Source: `jsondiff` and `manager_apply` of fluxcd/pkg/ssa 0.76. Here: which objects a rule is for, and what a rule
//! changes in a comparison and in a manifest. Elsewhere: the origin of the rules (the program).

use golang::regexp::GoRegexp;
use objects::{LabelSelector, Object};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::drift_comparison::has_drifted;
use crate::field_takeover::{is_in, take_over_except};

/// Selects the objects that a rule is for. An empty field selects all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriftIgnoreTarget {
    /// A regular expression of Go that has to match the whole API group.
    pub group: String,
    /// A regular expression for the whole API version.
    pub version: String,
    /// A regular expression for the whole kind.
    pub kind: String,
    /// A regular expression for the whole name.
    pub name: String,
    /// A regular expression for the whole namespace.
    pub namespace: String,
    /// A selector over labels.
    pub labels: String,
    /// A selector over annotations.
    pub annotations: String,
}

/// Why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriftIgnoreRuleError {
    /// A field is not a valid regular expression.
    #[error("target.{field} is not a valid regular expression: {problem}")]
    Regexp {
        /// The name of the field.
        field: &'static str,
        /// Go's message about it.
        problem: String,
    },
    /// A field is not a valid selector.
    #[error("target.{field}: {problem}")]
    Selector {
        /// The name of the field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A path is not a JSON pointer (RFC 6901).
    #[error(
        "`{0}` is not a JSON pointer to a field, such as /spec/replicas; use ~1 for a slash in a name"
    )]
    Pointer(String),
}

/// Rules that were read from a spec, ready to be matched with objects.
#[derive(Debug, Default)]
pub struct DriftIgnoreRules(Vec<IgnoreRule>);

#[derive(Debug)]
struct IgnoreRule {
    patterns: Vec<(DriftIgnoreSelectorField, GoRegexp)>,
    labels: Option<LabelSelector>,
    annotations: Option<LabelSelector>,
    paths: Vec<JsonPointer>,
}

#[derive(Debug, Clone, Copy)]
enum DriftIgnoreSelectorField {
    Group,
    Version,
    Kind,
    Name,
    Namespace,
}

impl DriftIgnoreRules {
    /// Builds the rules from targets, each with the paths of its ignored fields.
    ///
    /// # Errors
    /// The error names the part of a rule that cannot be read.
    pub fn new(given: &[(DriftIgnoreTarget, Vec<String>)]) -> Result<Self, DriftIgnoreRuleError> {
        given
            .iter()
            .map(|(target, paths)| IgnoreRule::new(target, paths))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether no rule matches this object.
    pub fn leave_alone(&self, manifest: &Object) -> bool {
        self.paths(manifest).next().is_none()
    }

    /// Whether the rules ignore a field of an object, with everything below it. `path` has the parts of the field's
    /// JSON pointer.
    pub fn ignores(&self, manifest: &Object, path: &[&str]) -> bool {
        self.paths(manifest).any(|pointer| is_in(&pointer.0, path))
    }

    /// The digest of a manifest together with the ignored fields, so that it changes when the rules ignore other fields
    /// of it.
    pub fn digest(&self, manifest: &Object, digest: &str) -> String {
        let paths: Vec<String> =
            self.paths(manifest).map(|path| format!("/{}", path.0.join("/"))).collect();
        match paths.is_empty() {
            true => digest.to_owned(),
            false => {
                let text = format!("{digest} {}", paths.join(" "));
                hex::encode(Sha256::digest(text))
            }
        }
    }

    fn paths<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = &'a JsonPointer> {
        self.0.iter().filter(|rule| rule.is_for(object)).flat_map(|rule| &rule.paths)
    }

    /// Whether applying would change fields that are not ignored; see [`has_drifted`].
    ///
    /// Rules are matched with the answer to the dry-run.
    pub fn have_drifted(&self, live: &Object, dry_run: &Object) -> bool {
        if self.leave_alone(dry_run) {
            return has_drifted(live, dry_run);
        }
        let without = |object: &Object| {
            let mut rest = object.clone();
            for path in self.paths(dry_run) {
                path.remove(rest.fields_mut());
            }
            rest
        };
        has_drifted(&without(live), &without(dry_run))
    }

    /// The JSON patch of [`crate::take_over`] for all fields of `live` but those that these rules ignore. `None` if
    /// nothing has to be taken over.
    ///
    /// Differs(flux): in Flux ignored fields become ours, too, so that an object is applied each time that `kubectl`
    /// has set one, and one that the manifest does not have is removed.
    pub fn take_over(
        &self,
        manifest: &Object,
        live: &Object,
        manager: &str,
        overrides: &[String],
    ) -> Option<Value> {
        let ignored: Vec<&[String]> = self.paths(manifest).map(|path| path.0.as_slice()).collect();
        take_over_except(&ignored, live, manager, overrides)
    }

    /// The manifest to apply to a live object: an ignored field that differs keeps its live value, or is left out if
    /// another manager applied it, so that the other manager keeps it.
    ///
    /// Differs(flux): a field that the live object lacks is left out too, where Flux applies a null.
    pub fn payload(&self, manifest: &Object, live: &Object, manager: &str) -> Object {
        let mut payload = manifest.clone();
        for path in self.paths(manifest) {
            let wanted = path.get(manifest.fields());
            let found = path.get(live.fields());
            let Some(wanted) = wanted else { continue };
            match found {
                Some(found) if found == wanted => {}
                Some(found) if !is_applied_by_another(live, path, manager) => {
                    path.replace(payload.fields_mut(), found.clone());
                }
                Some(_) | None => path.remove(payload.fields_mut()),
            }
        }
        payload
    }
}

impl IgnoreRule {
    fn new(target: &DriftIgnoreTarget, paths: &[String]) -> Result<Self, DriftIgnoreRuleError> {
        let mut patterns = Vec::new();
        for (part, field, pattern) in [
            (DriftIgnoreSelectorField::Group, "group", &target.group),
            (DriftIgnoreSelectorField::Version, "version", &target.version),
            (DriftIgnoreSelectorField::Kind, "kind", &target.kind),
            (DriftIgnoreSelectorField::Name, "name", &target.name),
            (DriftIgnoreSelectorField::Namespace, "namespace", &target.namespace),
        ] {
            if pattern.is_empty() {
                continue;
            }
            let compiled = GoRegexp::new(&format!("^(?:{pattern})$")).map_err(|error| {
                DriftIgnoreRuleError::Regexp { field, problem: error.to_string() }
            })?;
            patterns.push((part, compiled));
        }
        let selector = |field, text: &str| match text {
            "" => Ok(None),
            text => LabelSelector::parse(text)
                .map(Some)
                .map_err(|problem| DriftIgnoreRuleError::Selector { field, problem }),
        };
        Ok(Self {
            patterns,
            labels: selector("labelSelector", &target.labels)?,
            annotations: selector("annotationSelector", &target.annotations)?,
            paths: paths.iter().map(|path| JsonPointer::parse(path)).collect::<Result<_, _>>()?,
        })
    }

    fn is_for(&self, object: &Object) -> bool {
        let gvk = object.gvk();
        let matches = |(part, pattern): &(DriftIgnoreSelectorField, GoRegexp)| {
            pattern.is_match(match part {
                DriftIgnoreSelectorField::Group => &gvk.group,
                DriftIgnoreSelectorField::Version => &gvk.version,
                DriftIgnoreSelectorField::Kind => &gvk.kind,
                DriftIgnoreSelectorField::Name => object.name(),
                DriftIgnoreSelectorField::Namespace => object.namespace(),
            })
        };
        self.patterns.iter().all(matches)
            && self.labels.as_ref().is_none_or(|s| s.selects(|key| object.label(key)))
            && self.annotations.as_ref().is_none_or(|s| s.selects(|key| object.annotation(key)))
    }
}

/// A JSON pointer (RFC 6901) to a field or an item of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct JsonPointer(Vec<String>);

impl JsonPointer {
    fn parse(text: &str) -> Result<Self, DriftIgnoreRuleError> {
        let parts = text.strip_prefix('/').filter(|rest| !rest.is_empty());
        let Some(parts) = parts else { return Err(DriftIgnoreRuleError::Pointer(text.to_owned())) };
        Ok(Self(parts.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect()))
    }

    fn get<'a>(&self, fields: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        rest.iter().try_fold(fields.get(first)?, |value, part| match value {
            Value::Object(map) => map.get(part),
            Value::Array(items) => items.get(index(part)?),
            _ => None,
        })
    }

    /// The map or list in `fields` that holds the value at this pointer, and the last part of the pointer, which is the
    /// key or index of the value there. `None` if no such map or list exists.
    fn holder<'a>(&self, fields: &'a mut Map<String, Value>) -> Option<(JsonContainer<'a>, &str)> {
        let (last, parents) = self.0.split_last()?;
        let Some((first, between)) = parents.split_first() else {
            return Some((JsonContainer::Map(fields), last));
        };
        let holder =
            between.iter().try_fold(fields.get_mut(first)?, |value, part| match value {
                Value::Object(map) => map.get_mut(part),
                Value::Array(items) => items.get_mut(index(part)?),
                _ => None,
            })?;
        match holder {
            Value::Object(map) => Some((JsonContainer::Map(map), last)),
            Value::Array(items) => Some((JsonContainer::List(items), last)),
            _ => None,
        }
    }

    fn remove(&self, fields: &mut Map<String, Value>) {
        match self.holder(fields) {
            Some((JsonContainer::Map(map), name)) => {
                map.remove(name);
            }
            Some((JsonContainer::List(items), name)) => {
                if let Some(at) = index(name).filter(|at| *at < items.len()) {
                    items.remove(at);
                }
            }
            None => {}
        }
    }

    fn replace(&self, fields: &mut Map<String, Value>, value: Value) {
        let place = match self.holder(fields) {
            Some((JsonContainer::Map(map), name)) => map.get_mut(name),
            Some((JsonContainer::List(items), name)) => {
                index(name).and_then(|at| items.get_mut(at))
            }
            None => None,
        };
        if let Some(place) = place {
            *place = value;
        }
    }
}

enum JsonContainer<'a> {
    Map(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

fn index(part: &str) -> Option<usize> {
    part.parse().ok()
}

/// Whether another field manager applied a field of a live object, according to its managed fields.
fn is_applied_by_another(live: &Object, path: &JsonPointer, manager: &str) -> bool {
    let entries = live.meta("managedFields").and_then(Value::as_array);
    let applied: Vec<(&str, &Value)> = entries
        .into_iter()
        .flatten()
        .filter(|entry| {
            entry.get("operation").and_then(Value::as_str) == Some("Apply")
                && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
        })
        .filter_map(|entry| Some((entry.get("manager")?.as_str()?, entry.get("fieldsV1")?)))
        .collect();
    let mut others: Vec<&Value> =
        applied.iter().filter(|(who, _)| *who != manager).map(|(_, fields)| *fields).collect();
    let mut all: Vec<&Value> = applied.into_iter().map(|(_, fields)| fields).collect();
    let mut reached: Option<&Value> = None;
    for part in &path.0 {
        reached = match reached {
            None => live.get(part),
            Some(Value::Array(items)) => index(part).and_then(|at| items.get(at)),
            Some(value) => value.get(part),
        };
        // `managedFields` name items of lists by their keys. A number may be the name of a field, too.
        let key = match index(part) {
            Some(_) => reached.and_then(|item| key_of(item, &all)),
            None => Some(format!("f:{part}")),
        };
        let Some(key) = key else { return false };
        others = others.into_iter().filter_map(|fields| fields.get(&key)).collect();
        all = all.into_iter().filter_map(|fields| fields.get(&key)).collect();
    }
    !others.is_empty()
}

/// The key `k:{…}` under which `fields`, maps from `managedFields`, have a list item: the first in order whose fields
/// all equal those of `item`. `None` if no key fits.
fn key_of(item: &Value, fields: &[&Value]) -> Option<String> {
    let keys = fields.iter().filter_map(|fields| fields.as_object()).flat_map(Map::keys);
    keys.filter(|key| {
        let Some(text) = key.strip_prefix("k:") else { return false };
        let Ok(Value::Object(wanted)) = serde_json::from_str::<Value>(text) else { return false };
        wanted.iter().all(|(name, value)| item.get(name) == Some(value))
    })
    .min()
    .cloned()
}

#[cfg(test)]
mod tests;
