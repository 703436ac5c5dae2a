//! Formats one changed object like `helm diff`: a line with the action, and then lines with marks.

use apply::secret_mask::mask;
use objects::{Object, ObjectId};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// Fields that the API server sets on every write.
const SERVER_FIELDS: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "uid",
    "deletionGracePeriodSeconds",
];

/// The annotation in which kubectl stores a copy of an object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The options of the output.
pub(super) struct DiffDisplayOptions<'s> {
    /// The namespace that is printed for objects without one.
    pub(super) namespace: &'s str,
    /// The number of lines around a change. 0 for all lines.
    pub(super) context: usize,
    /// Whether the values of Secrets are printed instead of masked.
    pub(super) reveals: bool,
    /// The kinds that are left out.
    pub(super) suppressed: &'s [String],
    /// Whether Secrets are left out.
    pub(super) suppresses_secrets: bool,
}

impl DiffDisplayOptions<'_> {
    /// The text of a change. `None` if the object does not change.
    ///
    /// # Errors
    /// An object cannot be written as YAML, or the values of a Secret cannot be masked.
    pub(super) fn text(
        &self,
        id: &ObjectId,
        mut before: Option<Object>,
        mut after: Option<Object>,
    ) -> anyhow::Result<Option<String>> {
        let group = before.as_ref().or(after.as_ref()).map(Object::api_version).unwrap_or_default();
        let group = group.split('/').next().unwrap_or_default().to_owned();
        let is_changed = match (&mut before, &mut after) {
            (Some(before), Some(after)) => {
                clean(before);
                clean(after);
                before != after
            }
            (before, after) => {
                before.iter_mut().chain(after.iter_mut()).for_each(clean);
                true
            }
        };
        if !is_changed {
            return Ok(None);
        }
        let what = match (&before, &after) {
            (None, _) => "has been added",
            (_, None) => "has been removed",
            _ => "has changed",
        };
        let namespace = if id.namespace.is_empty() { self.namespace } else { &id.namespace };
        let head = format!("{namespace}, {}, {} ({group}) {what}", id.name, id.kind);
        let is_secret = id.kind == "Secret" && id.group.is_empty();
        if self.suppressed.contains(&id.kind) || is_secret && self.suppresses_secrets {
            return Ok(Some(format!("{head}, but is not shown\n\n")));
        }
        if is_secret && !self.reveals {
            hide(&mut before, &mut after)?;
        }
        let before = yaml(before)?;
        let after = yaml(after)?;
        Ok(Some(format!("{head}:\n{}\n", self.lines(&before, &after))))
    }

    fn lines(&self, before: &str, after: &str) -> String {
        let diff = TextDiff::from_lines(before, after);
        let mut text = String::new();
        let radius = if self.context == 0 { usize::MAX / 4 } else { self.context };
        for (index, group) in diff.grouped_ops(radius).iter().enumerate() {
            if index > 0 {
                text.push_str("...\n");
            }
            for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
                text.push_str(match change.tag() {
                    ChangeTag::Delete => "- ",
                    ChangeTag::Insert => "+ ",
                    ChangeTag::Equal => "  ",
                });
                text.push_str(change.value());
            }
        }
        text
    }
}

/// Removes the fields that the API server adds.
fn clean(object: &mut Object) {
    for field in SERVER_FIELDS {
        object.metadata_mut().remove(field);
    }
    object.fields_mut().remove("status");
    let annotations = object.metadata_mut().get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

/// Masks the values of a Secret. It stays visible which values change.
fn hide(before: &mut Option<Object>, after: &mut Option<Object>) -> anyhow::Result<()> {
    for object in before.iter_mut().chain(after.iter_mut()) {
        let given = object.fields_mut().get_mut("stringData").and_then(Value::as_object_mut);
        given.into_iter().flat_map(|map| map.values_mut()).for_each(|value| *value = "***".into());
    }
    match (before, after) {
        (Some(before), Some(after)) => mask(before.fields_mut(), after.fields_mut())?,
        (Some(alone), None) | (None, Some(alone)) => {
            mask(alone.fields_mut(), &mut serde_json::Map::new())?;
        }
        (None, None) => {}
    }
    Ok(())
}

fn yaml(object: Option<Object>) -> anyhow::Result<String> {
    object.map_or(Ok(String::new()), |object| Ok(goyaml::emit_with_escapes(&object.into_value())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, data: &Value, version: &str) -> Object {
        let metadata = json!({"name": "a", "namespace": "n", "resourceVersion": version});
        let value = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
        Object::new(value).unwrap()
    }

    fn shown(
        kind: &str,
        before: Option<&Value>,
        after: Option<&Value>,
        suppress: &[String],
    ) -> Option<String> {
        let look = DiffDisplayOptions {
            namespace: "other",
            context: 1,
            reveals: false,
            suppressed: suppress,
            suppresses_secrets: false,
        };
        let id = object(kind, &json!({}), "0").id();
        let made = |data: Option<&Value>, version| data.map(|data| object(kind, data, version));
        look.text(&id, made(before, "1"), made(after, "2")).unwrap()
    }

    #[test]
    fn only_what_changes_is_shown() {
        let one = json!({"a": "1", "b": "1"});
        let two = json!({"a": "2", "b": "1"});
        assert_eq!(shown("ConfigMap", Some(&one), Some(&one), &[]), None);
        assert_eq!(
            shown("ConfigMap", Some(&one), Some(&two), &[]).unwrap(),
            "n, a, ConfigMap (v1) has changed:\n  data:\n-   a: \"1\"\n+   a: \"2\"\n    b: \"1\"\n\n"
        );
        let removed = shown("ConfigMap", Some(&one), None, &[]).unwrap();
        assert!(removed.starts_with("n, a, ConfigMap (v1) has been removed:\n- apiVersion: v1\n"));
        let added = shown("ConfigMap", None, Some(&one), &["ConfigMap".to_owned()]).unwrap();
        assert_eq!(added, "n, a, ConfigMap (v1) has been added, but is not shown\n\n");
    }

    #[test]
    fn values_of_secrets_are_masked() {
        let one = json!({"a": "c2VjcmV0", "b": "eA=="});
        let two = json!({"a": "b3RoZXI=", "b": "eA=="});
        for (before, after) in [(Some(&one), Some(&two)), (Some(&one), None), (None, Some(&two))] {
            let text = shown("Secret", before, after, &[]).unwrap();
            assert!(!text.contains("c2VjcmV0") && !text.contains("b3RoZXI="), "{text}");
            assert!(text.contains("***"), "{text}");
        }
        let text = shown("Secret", Some(&one), Some(&two), &[]).unwrap();
        assert!(text.contains("-   a: '*** (before)'\n+   a: '*** (after)'\n"), "{text}");
    }
}
