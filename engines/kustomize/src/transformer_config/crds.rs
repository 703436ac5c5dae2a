//! Additions to the configuration from the files of `crds`: OpenAPI definitions with vendor extensions.

use serde_json::{Map, Value};

use super::{NameReference, TransformerConfig, add};
use crate::budget::{self, BuildBudget};
use crate::error::{Error, ErrorContext as _, Result};
use crate::fieldspec::FieldSpec;
use crate::resource_id::Gvk;

/// How deeply definitions may be nested. Differs(kustomize): it has no limit but its stack.
const MAX_DEPTH: usize = 100;

/// The most properties that are examined, because definitions may refer to each other repeatedly.
const MAX_PROPERTIES: usize = 100_000;

/// The configuration in a file.
///
/// # Errors
/// The file is not YAML or JSON, or holds something other than definitions.
pub(super) fn config(text: &[u8], path: &str, budget: &BuildBudget) -> Result<TransformerConfig> {
    let unable = || format!("unable to parse open API definition from '{path}'");
    let limits = budget.reading(text.len())?;
    let value = if text.first() == Some(&b'{') {
        let parsed = serde_json::from_slice(text);
        parsed.map_err(|error| Error::new(error.to_string())).within(unable)?
    } else {
        let parsed = goyaml::to_json_within(text, &limits);
        parsed
            .map_err(|error| Error::new(format!("error converting YAML to JSON: {error}")))
            .within(unable)?
    };
    let _document = budget.hold(budget::weight_of_value(&value))?;
    let definitions = match value {
        Value::Null => Map::new(),
        Value::Object(definitions) => definitions,
        other => return Err(misfit(&other, "accumulator.nameToApiMap")).within(unable),
    };
    let wrong = definitions.values().find(|value| !value.is_object() && !value.is_null());
    if let Some(wrong) = wrong {
        return Err(misfit(wrong, "accumulator.OpenAPIDefinition")).within(unable);
    }
    let mut left = MAX_PROPERTIES;
    let mut config = TransformerConfig::default();
    for (name, definition) in &definitions {
        let properties = properties(definition);
        let has = |name| properties.is_some_and(|properties| properties.contains_key(name));
        if !(has("kind") && has("apiVersion") && has("metadata")) {
            continue;
        }
        let kind = name.rsplit('.').next().unwrap_or(name);
        let mut reader = CrdsTransformerConfigReader {
            definitions: &definitions,
            kind,
            config: TransformerConfig::default(),
            left: &mut left,
            budget,
        };
        reader.read(name, &[])?;
        let found = reader.config;
        config.merge(found, budget)?;
    }
    Ok(config)
}

fn misfit(value: &Value, go_type: &str) -> Error {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Error::new(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {got} into Go value of type {go_type}"
    ))
}

fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = value.as_object()?;
    fields.get(name).or_else(|| {
        fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

fn properties(definition: &Value) -> Option<&Map<String, Value>> {
    field(definition, "Schema")?.get("properties")?.as_object()
}

struct CrdsTransformerConfigReader<'d, 'l> {
    definitions: &'d Map<String, Value>,
    kind: &'d str,
    config: TransformerConfig,
    left: &'l mut usize,
    budget: &'l BuildBudget,
}

impl CrdsTransformerConfigReader<'_, '_> {
    fn read(&mut self, name: &str, path: &[&str]) -> Result<()> {
        let Some(properties) = self.definitions.get(name).and_then(properties) else {
            return Ok(());
        };
        if path.len() >= MAX_DEPTH || *self.left < properties.len() {
            return Err(Error::new(format!("the definition of `{name}` goes on without end")));
        }
        *self.left -= properties.len();
        self.budget.steps(1_000 * properties.len())?;
        for (property, schema) in properties {
            let path = [path, &[property]].concat();
            let extension = |name: &str| schema.get(name).and_then(Value::as_str);
            let spec = |path: &[&str]| FieldSpec {
                kind: self.kind.to_owned().into(),
                path: path.join("/").into(),
                ..FieldSpec::default()
            };
            if extension("x-kubernetes-annotation").is_some() {
                add(&mut self.config.common_annotations, spec(&path), self.budget)?;
            }
            if extension("x-kubernetes-label-selector").is_some() {
                add(&mut self.config.common_labels, spec(&path), self.budget)?;
            }
            if extension("x-kubernetes-identity").is_some() {
                add(&mut self.config.name_prefix, spec(&path), self.budget)?;
            }
            let version = extension("x-kubernetes-object-ref-api-version");
            if let (Some(version), Some(kind)) =
                (version, extension("x-kubernetes-object-ref-kind"))
            {
                let key = extension("x-kubernetes-object-ref-name-key").unwrap_or("name");
                let target =
                    Gvk { kind: kind.to_owned(), version: version.to_owned(), ..Gvk::default() };
                let referrers = vec![spec(&[path.as_slice(), &[key]].concat())];
                self.config.add_reference(NameReference { target, referrers }, self.budget)?;
            }
            if let Some(reference) = extension("$ref") {
                self.read(reference, &path)?;
            }
        }
        Ok(())
    }
}
