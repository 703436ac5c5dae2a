//! Values in HCL: evaluates the `environment_values` and `locals` blocks of all HCL files of an environment together.
//!
//! Here: files, and the order of evaluation. Below: expressions (`hcl/evaluate.rs`, `hcl/references.rs`), functions
//! (`hcl/functions.rs`).
//! Elsewhere: the syntax (`hcl-rs`).

mod evaluate;
mod functions;
mod references;

use std::collections::{BTreeMap, BTreeSet};

use ::hcl::{Attribute, Body, Structure};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::state_values_merge::ValuesMap;
use evaluate::{HclEvaluator, HclScope};
use references::references;

/// The longest file, in bytes. The parser has no limit of its own.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The deepest nesting of brackets.
const MAX_BRACKET_DEPTH: usize = 64;

/// The most consecutive operators in one expression, because each one needs stack space in the parser.
const MAX_CONSECUTIVE_OPERATORS: usize = 512;

/// HCL files of one environment.
#[derive(Debug, Default)]
pub(crate) struct HclFiles {
    files: Vec<HclFile>,
}

#[derive(Debug)]
struct HclFile {
    path: String,
    values: Vec<Attribute>,
    locals: Vec<Attribute>,
}

impl HclFiles {
    /// Reads a file in HCL and adds its values and locals. The error names the file.
    pub(crate) fn add(&mut self, path: &str, text: &[u8]) -> Result<()> {
        let text =
            std::str::from_utf8(text).map_err(|error| Error::from(format!("{path}: {error}")))?;
        check(text).map_err(|error| error.at(path))?;
        let body: Body =
            ::hcl::parse(text).map_err(|error| Error::from(format!("{path}: {error}")))?;
        let mut file = HclFile { path: path.to_owned(), values: Vec::new(), locals: Vec::new() };
        let mut has_locals = false;
        for structure in body {
            let Structure::Block(block) = structure else {
                return Err(format!(
                    "{path}: an attribute is not expected here, only `values` and `locals`"
                )
                .into());
            };
            if !block.labels.is_empty() {
                return Err(format!(
                    "{path}: no labels are expected for {}",
                    block.identifier.as_str()
                )
                .into());
            }
            let target = match block.identifier.as_str() {
                "values" => &mut file.values,
                "locals" if has_locals => {
                    return Err(format!(
                        "{path}: a file can only support exactly 1 `locals` block"
                    )
                    .into());
                }
                "locals" => {
                    has_locals = true;
                    &mut file.locals
                }
                other => {
                    return Err(
                        format!("{path}: blocks of type {other:?} are not expected here").into()
                    );
                }
            };
            let mut names = BTreeSet::new();
            for structure in block.body {
                let Structure::Attribute(attribute) = structure else {
                    return Err(
                        format!("{path}: blocks are not allowed in `values` and `locals`").into()
                    );
                };
                if !names.insert(attribute.key.as_str().to_owned()) {
                    return Err(format!(
                        "{path}: {} is defined twice in a block",
                        attribute.key.as_str()
                    )
                    .into());
                }
                target.push(attribute);
            }
        }
        self.files.push(file);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The values of all files. If several files define a name, the definitions are merged.
    pub(crate) fn evaluate(&self) -> Result<ValuesMap> {
        let mut evaluator = HclEvaluator::default();
        let mut locals = Vec::new();
        for file in &self.files {
            let definitions = file.locals.iter().map(|local| (local, 0)).collect();
            locals.push(evaluate(&mut evaluator, definitions, "local", &[])?);
        }
        let definitions = self.files.iter().enumerate();
        let definitions = definitions
            .flat_map(|(index, file)| file.values.iter().map(move |value| (value, index)))
            .collect();
        let values = evaluate(&mut evaluator, definitions, "hv", &locals).map_err(|error| {
            match self.files.as_slice() {
                [file] => error.at(&file.path),
                _ => error,
            }
        })?;
        Ok(values.into_iter().map(|(key, value)| (key, as_floats(value))).collect())
    }
}

/// Rejects a text that would need too much stack space in the parser.
fn check(text: &str) -> Result<()> {
    if text.len() > MAX_FILE_BYTES {
        return Err(format!("it is longer than {MAX_FILE_BYTES} bytes").into());
    }
    let mut depth = 0_usize;
    let mut operators = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'\n' => operators = 0,
            b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'?' | b'&' | b'|' | b'=' | b'<' | b'>' => {
                operators += 1;
            }
            _ => {}
        }
        if depth > MAX_BRACKET_DEPTH || operators > MAX_CONSECUTIVE_OPERATORS {
            return Err(format!(
                "expressions are nested more than {MAX_BRACKET_DEPTH} deep, or too long"
            )
            .into());
        }
    }
    Ok(())
}

/// Evaluates definitions in the order of their references to each other under `root`.
///
/// Each definition is given with the index of its locals.
fn evaluate(
    evaluator: &mut HclEvaluator,
    definitions: Vec<(&Attribute, usize)>,
    root: &str,
    locals: &[ValuesMap],
) -> Result<ValuesMap> {
    let mut left: BTreeMap<&str, Vec<(&Attribute, usize)>> = BTreeMap::new();
    for (attribute, file) in definitions {
        left.entry(attribute.key.as_str()).or_default().push((attribute, file));
    }
    let mut needs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, definitions) in &left {
        let mut found = BTreeSet::new();
        for (attribute, _) in definitions {
            references(&attribute.expr, root, &mut found, 0)?;
        }
        if let Some(unknown) = found.iter().find(|needed| !left.contains_key(needed.as_str())) {
            return Err(
                format!("variables {name:?} depend(s) on undefined vars {unknown:?}").into()
            );
        }
        needs.insert(name, found);
    }
    let mut done = ValuesMap::new();
    while !left.is_empty() {
        let is_ready = |name: &&&str| {
            needs
                .get(**name)
                .is_none_or(|needs| needs.iter().all(|needed| done.contains_key(needed)))
        };
        let Some(name) = left.keys().find(is_ready).copied() else {
            let names: Vec<&str> = left.into_keys().collect();
            return Err(
                format!("variables refer to each other in a circle: {}", names.join(", ")).into()
            );
        };
        let mut merged: Option<Value> = None;
        for (attribute, file) in left.remove(name).unwrap_or_default() {
            let scope = HclScope::new(root, &done, locals.get(file));
            let value = evaluator.value(&attribute.expr, &scope).map_err(|error| {
                Error::from(format!("error when trying to evaluate variable {name}: {error}"))
            })?;
            merged = Some(match merged {
                None => value,
                Some(below) => merge(below, value),
            });
        }
        done.insert(name.to_owned(), merged.unwrap_or_default());
    }
    Ok(done)
}

/// Merges a later definition into an earlier one. A null keeps the earlier value, and objects are merged.
fn merge(below: Value, over: Value) -> Value {
    match (below, over) {
        (below, Value::Null) => below,
        (Value::Object(mut below), Value::Object(over)) => {
            for (key, value) in over {
                let known = below.remove(&key);
                let merged = match known {
                    Some(known) => merge(known, value),
                    None => value,
                };
                below.insert(key, merged);
            }
            Value::Object(below)
        }
        (_, over) => over,
    }
}

/// Parity(helmfile 1.8): the values pass through JSON, so that all numbers are floats.
fn as_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number
            .as_f64()
            .and_then(serde_json::Number::from_f64)
            .map_or(Value::Null, Value::Number),
        Value::Array(items) => items.into_iter().map(as_floats).collect(),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key, as_floats(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(strings: &[&str]) -> Result<Value> {
        let mut files = HclFiles::default();
        for (index, text) in strings.iter().enumerate() {
            files.add(&format!("{index}.hcl"), text.as_bytes())?;
        }
        files.evaluate().map(Value::Object)
    }

    #[test]
    fn values_refer_to_each_other_and_later_files_are_merged() {
        let one = "locals {\n  s = \"x\"\n}\nvalues {\n  a = \"v-${local.s}\"\n  b = hv.c\n  m = { k = 1, j = 2 }\n}\n";
        let two = "values {\n  c = upper(\"y\")\n  m = { k = 3 }\n  a = null\n}\n";
        let wanted = json!({"a": "v-x", "b": "Y", "c": "Y", "m": {"k": 3.0, "j": 2.0}});
        assert_eq!(values(&[one, two]), Ok(wanted));
    }

    #[test]
    fn circles_unknown_names_and_deep_nesting_are_errors() {
        assert!(
            values(&["values {\n  a = hv.b\n  b = hv.a\n}\n"])
                .unwrap_err()
                .to_string()
                .contains("circle")
        );
        assert!(
            values(&["values {\n  a = hv.nope\n}\n"])
                .unwrap_err()
                .to_string()
                .contains("undefined")
        );
        assert!(values(&[&format!("values {{\n  a = {}1\n}}\n", "(".repeat(100_000))]).is_err());
        let long = "values {\n  a = [for i in range(1000): [for j in range(1000): [for k in range(1000): k]]]\n}\n";
        assert!(values(&[long]).unwrap_err().to_string().contains("steps"));
    }

    #[test]
    fn expressions_are_those_of_hcl() {
        let text = r#"values {
  heredoc = <<-EOT
    one
      two
  EOT
  pick = 3 > 2 && !false ? "yes" : "no"
  list = [for x in [1, 2, 3] : x * 2 if x > 1]
  map  = { for k, v in { a = 1, b = 2 } : upper(k) => v + 1 }
  splat = [{ n = 1 }, { n = 2 }][*].n
  text = "a\n\"${1 + 1}\" %{ if true }t%{ else }f%{ endif }"
  safe = try(hv.map.zz, "none")
  neg = -(5 % 3) / 2
}
"#;
        let wanted = json!({
            "heredoc": "one\n  two\n", "pick": "yes", "list": [4.0, 6.0], "map": {"A": 2.0, "B": 3.0},
            "splat": [1.0, 2.0], "text": "a\n\"2\" t", "safe": "none", "neg": -1.0
        });
        assert_eq!(values(&[text]), Ok(wanted));
    }
}
