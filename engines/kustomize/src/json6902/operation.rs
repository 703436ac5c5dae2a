//! The operations of a patch, with the quirks and words of json-patch v4.

use std::collections::BTreeMap;

use golang::strconv::atoi;

use super::text_preserving_json::JsonPatchValue;
use super::{Error, MAX_DEPTH};
use crate::budget::BuildBudget;

/// Steps that an operation costs, which may move all items of a list.
const STEPS_PER_OPERATION: usize = 1_000;

const MISSING: &str = "missing value";
const FAILED: &str = "test failed";
const INVALID_INDEX: &str = "invalid index referenced";

/// One operation with its fields as they were read.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonPatchOperation(pub(super) BTreeMap<String, JsonPatchValue>);

/// The result of an operation on a list or object. The text is the innermost part of an error.
type ContainerOperationResult<T> = Result<T, String>;

impl JsonPatchOperation {
    /// Applies the operation. `added` counts the bytes that operations have added.
    pub(super) fn apply(
        &self,
        root: &mut JsonPatchValue,
        added: &mut usize,
        budget: &BuildBudget,
    ) -> Result<(), Error> {
        budget.steps(STEPS_PER_OPERATION)?;
        let kind =
            self.0.get("op").and_then(JsonPatchValue::as_string).unwrap_or("unknown".to_owned());
        match kind.as_str() {
            "add" | "replace" => {
                if let Some(value) = self.0.get("value") {
                    grow(added, value, budget)?;
                }
                if kind == "add" { self.add(root) } else { self.replace(root) }
            }
            "remove" => self.remove(root),
            "move" => self.move_value(root),
            "test" => self.test(root),
            "copy" => self.copy(root, added, budget),
            _ => Err(Error::Kind(kind)),
        }
    }

    fn text(&self, field: &str) -> Result<String, String> {
        match self.0.get(field) {
            None | Some(JsonPatchValue::Null | JsonPatchValue::AddedNull) => {
                // Parity(kustomize): only one of the two has a comma.
                let comma = if field == "from" { "," } else { "" };
                Err(format!("operation{comma} missing {field} field: {MISSING}"))
            }
            Some(json) => json.as_string().ok_or_else(|| json.not_a("string").to_string()),
        }
    }

    /// The value of the operation. Its null is different from a null that was read.
    fn value(&self) -> JsonPatchValue {
        match self.0.get("value") {
            None => JsonPatchValue::Null,
            Some(JsonPatchValue::Null) => JsonPatchValue::AddedNull,
            Some(json) => json.clone(),
        }
    }

    fn add(&self, root: &mut JsonPatchValue) -> Result<(), Error> {
        let path = self.text("path").map_err(|_| {
            Error::Operation(format!("add operation failed to decode path: {MISSING}"))
        })?;
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "add operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        let value = self.value();
        check_depth(&path, &value)?;
        add(container, &key, value).map_err(|problem| {
            Error::Operation(format!("error in add for path: '{path}': {problem}"))
        })
    }

    fn remove(&self, root: &mut JsonPatchValue) -> Result<(), Error> {
        let path = self.text("path").map_err(|_| {
            Error::Operation(format!("remove operation failed to decode path: {MISSING}"))
        })?;
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        remove(container, &key).map(|_| ()).map_err(|problem| {
            Error::Operation(format!("error in remove for path: '{path}': {problem}"))
        })
    }

    fn replace(&self, root: &mut JsonPatchValue) -> Result<(), Error> {
        let path = self.decoded("replace", "path")?;
        if path.is_empty() {
            let value = self.value();
            if !matches!(value, JsonPatchValue::Object(_) | JsonPatchValue::List(_)) {
                // Parity(kustomize): it wraps an error that is not there.
                return fail(
                    "replace operation value must be object or array: %!w(<nil>)".to_owned(),
                );
            }
            *root = value;
            return Ok(());
        }
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "replace operation does not apply: doc is missing path: {path}: {MISSING}"
            ));
        };
        if get(container, &key).is_err() {
            return fail(format!(
                "replace operation does not apply: doc is missing key: {path}: {MISSING}"
            ));
        }
        let value = self.value();
        check_depth(&path, &value)?;
        match container {
            JsonPatchValue::Object(fields) => {
                fields.insert(key, value);
            }
            JsonPatchValue::List(items) => {
                if let Ok(index) = item(items, &key) {
                    items[index] = value;
                }
            }
            JsonPatchValue::Null | JsonPatchValue::AddedNull | JsonPatchValue::Scalar(_) => {}
        }
        Ok(())
    }

    fn move_value(&self, root: &mut JsonPatchValue) -> Result<(), Error> {
        let from = self.decoded("move", "from")?;
        let Some((container, key)) = find(root, &from) else {
            return fail(format!(
                "move operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let in_move = |key: &str, problem| {
            Error::Operation(format!("error in move for path: '{key}': {problem}"))
        };
        get(container, &key).map_err(|problem| in_move(&key, problem))?;
        let value = remove(container, &key).map_err(|problem| in_move(&key, problem))?;
        let path = self.decoded("move", "path")?;
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "move operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        check_depth(&path, &value)?;
        add(container, &key, value).map_err(|problem| in_move(&path, problem))
    }

    fn test(&self, root: &mut JsonPatchValue) -> Result<(), Error> {
        let path = self.decoded("test", "path")?;
        let failed = || fail(format!("testing value {path} failed: {FAILED}"));
        let wanted = self.value();
        if path.is_empty() {
            return if is_equal(root, &wanted) { Ok(()) } else { failed() };
        }
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "test operation does not apply: is missing path: {path}: {MISSING}"
            ));
        };
        let found = get(container, &key).map_err(|problem| {
            Error::Operation(format!("error in test for path: '{path}': {problem}"))
        })?;
        let is_same = match (found, &wanted) {
            (JsonPatchValue::Null, JsonPatchValue::Null | JsonPatchValue::AddedNull) => true,
            (JsonPatchValue::Null, _) | (_, JsonPatchValue::Null) => false,
            (found, wanted) => is_equal(found, wanted),
        };
        if is_same { Ok(()) } else { failed() }
    }

    fn copy(
        &self,
        root: &mut JsonPatchValue,
        added: &mut usize,
        budget: &BuildBudget,
    ) -> Result<(), Error> {
        let from = self.decoded("copy", "from")?;
        let Some((container, key)) = find(root, &from) else {
            return fail(format!(
                "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let value = get(container, &key).map_err(|problem| {
            Error::Operation(format!("error in copy for from: '{from}': {problem}"))
        })?;
        grow(added, value, budget)?;
        let value = value.clone();
        let path = self.text("path").map_err(|_| {
            Error::Operation(format!("copy operation failed to decode path: {MISSING}"))
        })?;
        let Some((container, key)) = find(root, &path) else {
            return fail(format!(
                "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        check_depth(&path, &value)?;
        add(container, &key, value).map_err(|problem| {
            Error::Operation(format!("error while adding value during copy: {problem}"))
        })
    }

    /// The decoded path of an operation.
    fn decoded(&self, kind: &str, field: &str) -> Result<String, Error> {
        self.text(field).map_err(|problem| {
            Error::Operation(format!("{kind} operation failed to decode {field}: {problem}"))
        })
    }
}

/// Counts the size of a copied value before it is copied.
fn grow(added: &mut usize, value: &JsonPatchValue, budget: &BuildBudget) -> Result<(), Error> {
    let weight = value.weight();
    *added += weight;
    budget.steps(weight)?;
    // The sum is only reserved for a moment, to check that there is room. It is taken from the budget at the end.
    drop(budget.hold(*added)?);
    Ok(())
}

fn fail(text: String) -> Result<(), Error> {
    Err(Error::Operation(text))
}

/// The list or object that contains the end of a path, and the key in it. `None` if the path leads nowhere.
fn find<'j>(root: &'j mut JsonPatchValue, path: &str) -> Option<(&'j mut JsonPatchValue, String)> {
    let (_, path) = path.split_once('/')?;
    let mut parts: Vec<&str> = path.split('/').collect();
    let key = parts.pop()?;
    let mut json = root;
    for part in parts {
        let part = unescaped(part);
        json = match json {
            JsonPatchValue::Object(fields) => fields.get_mut(&part)?,
            JsonPatchValue::List(items) => {
                let index = item(items, &part).ok()?;
                &mut items[index]
            }
            JsonPatchValue::Null | JsonPatchValue::AddedNull | JsonPatchValue::Scalar(_) => {
                return None;
            }
        };
    }
    matches!(json, JsonPatchValue::Object(_) | JsonPatchValue::List(_))
        .then(|| (json, unescaped(key)))
}

/// Removes the escapes from a part of a path. Both escapes are replaced in one pass, so `~01` becomes `~1`.
fn unescaped(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut left = part;
    while let Some(at) = left.find('~') {
        out.push_str(&left[..at]);
        let (text, length) = match left.as_bytes().get(at + 1) {
            Some(b'0') => ("~", 2),
            Some(b'1') => ("/", 2),
            _ => ("~", 1),
        };
        out.push_str(text);
        left = &left[at + length..];
    }
    out.push_str(left);
    out
}

fn invalid_index(index: i64) -> String {
    format!("Unable to access invalid index: {index}: {INVALID_INDEX}")
}

/// The index of the item that a key means. A negative key counts from the end.
fn item(items: &[JsonPatchValue], key: &str) -> ContainerOperationResult<usize> {
    let index = atoi(key).map_err(|error| error.to_string())?;
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = if index < 0 { index.saturating_add(length) } else { index };
    // Parity(kustomize): the error names a negative index as it was written, one beyond the end too.
    usize::try_from(place).ok().filter(|place| *place < items.len()).ok_or(invalid_index(index))
}

fn get<'j>(
    container: &'j JsonPatchValue,
    key: &str,
) -> ContainerOperationResult<&'j JsonPatchValue> {
    match container {
        JsonPatchValue::Object(fields) => Ok(fields.get(key).unwrap_or(&JsonPatchValue::Null)),
        JsonPatchValue::List(items) => item(items, key).map(|index| &items[index]),
        JsonPatchValue::Null | JsonPatchValue::AddedNull | JsonPatchValue::Scalar(_) => {
            Ok(&JsonPatchValue::Null)
        }
    }
}

fn add(
    container: &mut JsonPatchValue,
    key: &str,
    value: JsonPatchValue,
) -> ContainerOperationResult<()> {
    let items = match container {
        JsonPatchValue::Object(fields) => {
            fields.insert(key.to_owned(), value);
            return Ok(());
        }
        JsonPatchValue::List(items) => items,
        JsonPatchValue::Null | JsonPatchValue::AddedNull | JsonPatchValue::Scalar(_) => {
            return Ok(());
        }
    };
    if key == "-" {
        items.push(value);
        return Ok(());
    }
    let index = atoi(key)
        .map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
    // The index is counted in the list after the insertion.
    let length = i64::try_from(items.len() + 1).unwrap_or(i64::MAX);
    let place = if index < 0 { index.saturating_add(length) } else { index };
    match usize::try_from(place).ok().filter(|place| *place <= items.len()) {
        Some(place) => {
            items.insert(place, value);
            Ok(())
        }
        None => Err(invalid_index(index)),
    }
}

fn remove(container: &mut JsonPatchValue, key: &str) -> ContainerOperationResult<JsonPatchValue> {
    match container {
        JsonPatchValue::Object(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        JsonPatchValue::List(items) => item(items, key).map(|index| items.remove(index)),
        JsonPatchValue::Null | JsonPatchValue::AddedNull | JsonPatchValue::Scalar(_) => {
            Ok(JsonPatchValue::Null)
        }
    }
}

/// Whether two values are equal. Scalars are compared as strings, so `1.0` does not equal `1`.
fn is_equal(found: &JsonPatchValue, wanted: &JsonPatchValue) -> bool {
    let mut left = vec![(found, wanted)];
    while let Some(pair) = left.pop() {
        match pair {
            (JsonPatchValue::Object(found), JsonPatchValue::Object(wanted)) => {
                if found.len() != wanted.len() {
                    return false;
                }
                for (key, value) in found {
                    let Some(other) = wanted.get(key) else { return false };
                    left.push((value, other));
                }
            }
            (JsonPatchValue::List(found), JsonPatchValue::List(wanted)) => {
                if found.len() != wanted.len() {
                    return false;
                }
                left.extend(found.iter().zip(wanted));
            }
            (found, wanted) => {
                if found != wanted {
                    return false;
                }
            }
        }
    }
    true
}

/// Rejects a value that would be nested too deeply at the end of a path.
fn check_depth(path: &str, value: &JsonPatchValue) -> Result<(), Error> {
    if path.matches('/').count() + value.depth() > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    Ok(())
}
