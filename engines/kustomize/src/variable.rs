//! `vars`: replaces `$(NAME)` in fields by the value of a field of another object.

use std::collections::{BTreeMap, BTreeSet};

use golang::strconv::{FloatTextFormat, format_float};
use goyaml::v3::{YamlNode, YamlNodeKind, YamlNodeStyle};

use crate::budget::BuildBudget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::fieldspec::FieldSpec;
use crate::kustomization::VariableEntry;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::BuildResource;
use crate::resource_id::ResourceId;
use crate::resources::BuildResources;
use crate::yaml_path;

/// The steps for comparing a variable with a reference.
const STEPS_PER_COMPARISON: usize = 16;

/// The variables, keyed by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct KustomizeVariables(BTreeMap<String, VariableEntry>);

impl KustomizeVariables {
    /// Adds variables.
    ///
    /// # Errors
    /// A variable of the same name exists.
    pub(crate) fn add(&mut self, variables: impl IntoIterator<Item = VariableEntry>) -> Result<()> {
        for variable in variables {
            if self.0.contains_key(&variable.name) {
                return Err(Error::new(format!("var '{}' already encountered", variable.name)));
            }
            self.0.insert(variable.name.clone(), variable.with_defaults());
        }
        Ok(())
    }

    /// Adds the variables of another layer.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn merge(&mut self, others: Self) -> Result<()> {
        self.add(others.0.into_values())
    }
}

/// Records on each object which variables read it.
///
/// # Errors
/// Several objects match a variable.
pub(crate) fn mark(
    resources: &mut BuildResources,
    variables: &[VariableEntry],
    schema: &OpenApiSchemas,
) -> Result<()> {
    for variable in variables {
        let object = &variable.object;
        let gvk = object.resolved();
        let is_cluster_scoped = schema.is_namespaced(&gvk.api_version(), &gvk.kind) == Some(false);
        let name = object.name.clone();
        let namespace = object.namespace.clone();
        let wanted = ResourceId { gvk, name, namespace, is_cluster_scoped };
        let is_exact = is_cluster_scoped || !wanted.namespace.is_empty();
        let fits = |id: &ResourceId| {
            if is_exact {
                id.is_same(&wanted)
            } else {
                id.gvk == wanted.gvk && id.name == wanted.name
            }
        };
        match resources.any_id(fits, schema)?.as_slice() {
            [] => {}
            [at] => resources.list_mut()[*at].variables.push(variable.name.clone()),
            several => {
                return Err(Error::new(format!(
                    "found {} resId matches for var {variable} (unable to disambiguate)",
                    several.len()
                )));
            }
        }
    }
    Ok(())
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq)]
enum VariableValue {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A list or a map, which no text can hold.
    Other,
}

/// Puts the values of variables into fields.
///
/// # Errors
/// A variable has no value, or a field does not hold strings.
pub(crate) fn resolve(
    resources: &mut BuildResources,
    variables: &KustomizeVariables,
    specs: &[FieldSpec],
    logs: &mut Vec<String>,
) -> Result<()> {
    let budget = resources.budget();
    let mut values = BTreeMap::new();
    for (name, variable) in &variables.0 {
        let marks = |resource: &BuildResource| 1 + resource.variables.len();
        budget.steps(STEPS_PER_COMPARISON * resources.list().iter().map(marks).sum::<usize>())?;
        values.insert(name.as_str(), value_of(variable, resources.list())?);
    }
    if values.is_empty() {
        return Ok(());
    }
    let mut replacer =
        VariableReplacer { values: &values, used: BTreeSet::new(), logs, budget: &budget };
    for resource in resources.list_mut() {
        for spec in specs {
            field_edit::walk(&mut resource.node, spec, None, &budget, |node| replacer.set(node))?;
        }
    }
    let used = replacer.used;
    let unused: Vec<&str> = values.keys().copied().filter(|name| !used.contains(*name)).collect();
    if !unused.is_empty() {
        let unused = unused.join(",");
        logs.push(format!("well-defined vars that were never replaced: {unused}"));
    }
    Ok(())
}

fn value_of(variable: &VariableEntry, resources: &[BuildResource]) -> Result<VariableValue> {
    let reads = |resource: &&BuildResource| resource.variables.contains(&variable.name);
    let Some(resource) = resources.iter().find(reads) else {
        return Err(Error::new(format!(
            "var '{variable}' cannot be mapped to a field in the set of known resources"
        )));
    };
    field_value(&resource.node, &variable.field.path).ok_or_else(|| {
        let text =
            format!("field specified in var '{variable}' not found in corresponding resource");
        Error::new(text)
    })
}

/// The value of the field at a path such as `spec.ports[0].port`. `None` if there is no such value.
fn field_value(node: &YamlNode, path: &str) -> Option<VariableValue> {
    let mut parts = Vec::new();
    for part in yaml_path::split_brackets(path, '.') {
        let index = part.strip_suffix(']').and_then(|part| part.rsplit_once('['));
        match index {
            Some((name, index))
                if !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) =>
            {
                if !name.is_empty() {
                    parts.push(name.to_owned());
                }
                parts.push(index.to_owned());
            }
            _ => parts.push(part),
        }
    }
    let node = yaml_path::lookup(node, &parts).ok()??;
    if node.kind != YamlNodeKind::Scalar {
        return Some(VariableValue::Other);
    }
    let text = node.value.as_str();
    match node.tag.as_ref() {
        field_edit::INT => golang::strconv::atoi(text).ok().map(VariableValue::Int),
        "!!float" => golang::strconv::parse_float(text, 64).ok().map(VariableValue::Float),
        field_edit::BOOL => golang::strconv::parse_bool(text).ok().map(VariableValue::Bool),
        _ => Some(VariableValue::Text(text.to_owned())),
    }
}

struct VariableReplacer<'v> {
    values: &'v BTreeMap<&'v str, VariableValue>,
    used: BTreeSet<String>,
    logs: &'v mut Vec<String>,
    budget: &'v BuildBudget,
}

impl VariableReplacer<'_> {
    fn set(&mut self, node: &mut YamlNode) -> Result<()> {
        if field_edit::is_null(node) {
            return Ok(());
        }
        match node.kind {
            YamlNodeKind::Scalar => {
                if field_edit::is_string(node) {
                    self.replace(node)?;
                }
            }
            YamlNodeKind::Mapping => {
                for entry in node.content.chunks_exact_mut(2) {
                    let [key, value] = entry else { continue };
                    if !field_edit::is_string(key) {
                        let value = &key.value;
                        let tag = &key.tag;
                        let text = format!("invalid map key: value='{value}', tag='{tag}'");
                        return Err(Error::new(text));
                    }
                    if field_edit::is_string(value) {
                        self.replace(value)?;
                    }
                }
            }
            YamlNodeKind::Sequence => {
                for item in node.content.iter_mut() {
                    if !field_edit::is_string(item) {
                        return Err(Error::new("invalid value type expect a string"));
                    }
                    self.replace(item)?;
                }
            }
            YamlNodeKind::Document | YamlNodeKind::Alias => {
                return Err(Error::new("invalid type encountered")).within(|| "variable");
            }
        }
        Ok(())
    }

    fn replace(&mut self, node: &mut YamlNode) -> Result<()> {
        self.budget.steps(node.value.len())?;
        let (text, tag) = match self.replaced(&node.value)? {
            VariableValue::Text(text) => (text, field_edit::STR),
            VariableValue::Int(number) => (number.to_string(), field_edit::INT),
            VariableValue::Float(number) => {
                (format_float(number, FloatTextFormat::Fixed, None), "!!float")
            }
            VariableValue::Bool(claim) => (claim.to_string(), field_edit::BOOL),
            VariableValue::Other => return Ok(()),
        };
        node.value = text;
        node.tag = tag.into();
        node.style = YamlNodeStyle::default();
        Ok(())
    }

    /// Replaces the references in a text. A text that is a single reference becomes the value itself.
    fn replaced(&mut self, text: &str) -> Result<VariableValue> {
        let last = text.rfind(')');
        let mut result = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = rest.split_at(at);
            let after = &after[1..];
            if after.is_empty() {
                break;
            }
            result.push_str(before);
            // It is known whether a closing parenthesis follows at all, so that the rest need not be searched repeatedly.
            let has_end = last.is_some_and(|last| last > text.len() - after.len());
            let reference = after.strip_prefix('(').filter(|_| has_end);
            let reference = reference.and_then(|inner| inner.split_once(')'));
            if let Some((name, following)) = reference {
                let value = self.value(name)?;
                let is_all = text.len() == name.len() + 3;
                let shown = shown(&value);
                // The replaced reference is not part of the text any more.
                self.budget.grown(name.len() + 3, shown.len())?;
                if is_all {
                    return Ok(value);
                }
                result.push_str(&shown);
                rest = following;
            } else if let Some(following) = after.strip_prefix('$') {
                result.push('$');
                rest = following;
            } else {
                let next = after.chars().next().map_or(0, char::len_utf8);
                result.push('$');
                result.push_str(&after[..next]);
                rest = &after[next..];
            }
        }
        result.push_str(rest);
        Ok(VariableValue::Text(result))
    }

    fn value(&mut self, name: &str) -> Result<VariableValue> {
        Ok(match self.values.get(name) {
            None => VariableValue::Text(format!("$({name})")),
            Some(VariableValue::Other) => {
                let line = format!("MakePrimitiveReplacer: bad replacement type of {name}");
                self.budget.bytes(line.len())?;
                self.logs.push(line);
                VariableValue::Text(format!("$({name})"))
            }
            Some(value) => {
                if !self.used.contains(name) {
                    self.used.insert(name.to_owned());
                }
                value.clone()
            }
        })
    }
}

/// The text of a value within a text, in the form of Go's `%v`.
fn shown(value: &VariableValue) -> String {
    match value {
        VariableValue::Text(text) => text.clone(),
        VariableValue::Int(number) => number.to_string(),
        VariableValue::Float(number) => format_float(*number, FloatTextFormat::General, None),
        VariableValue::Bool(claim) => claim.to_string(),
        VariableValue::Other => String::new(),
    }
}
