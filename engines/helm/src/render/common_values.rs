//! `common.Values`: the Go type of the outermost values that templates see.
//!
//! Elsewhere: the tables in these values, which are plain maps.

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::{FunctionSignature, GoFunction, GoMap, GoObject, GoType, ReflectKind};

use crate::values::to_json;

const NAME: &str = "common.Values";

/// How many bytes a value takes as JSON.
const JSON_VALUE_BYTES: usize = 80;

/// A map whose Go type has a name and methods.
#[derive(Debug)]
pub(super) struct CommonValuesMap(GoMap);

impl CommonValuesMap {
    pub(super) fn value(map: GoMap) -> GoRuntimeValue {
        GoRuntimeValue::object(Self(map))
    }
}

/// A plain map of Go with these entries.
pub(super) fn of<const ENTRY_COUNT: usize>(
    entries: [(&str, GoRuntimeValue); ENTRY_COUNT],
) -> GoMap {
    GoMap::new(GoType::Any, entries.map(|(name, value)| (name.into(), value)))
}

impl GoObject for CommonValuesMap {
    fn type_name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Map
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::Map(self.0.clone()))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let named = || GoType::Named(NAME.into(), ReflectKind::Map);
        let text = |result| FunctionSignature::new([GoType::String], result);
        Some(match name {
            "AsMap" => GoFunction::new(FunctionSignature::new([], GoType::map()), move |_| {
                // Parity(helm 4): an empty table is given as a new one.
                Ok(if self.0.is_empty() {
                    GoRuntimeValue::Map(GoMap::default())
                } else {
                    GoRuntimeValue::Map(self.0.clone())
                })
            }),
            "YAML" => {
                GoFunction::metered(FunctionSignature::new([], GoType::String), move |meter, _| {
                    // The map is converted to JSON first, and then to a text.
                    sprig::walk(meter, &GoRuntimeValue::Map(self.0.clone()), JSON_VALUE_BYTES)?;
                    let json = to_json(&self.0).map_err(|error| error.to_string())?;
                    let text = goyaml::emit(&json).map_err(|error| error.to_string())?;
                    meter.bytes(text.len() as u64)?;
                    Ok(text.into())
                })
            }
            "Table" => GoFunction::new(text(named()), move |arguments| {
                at(&self.0, &argument(arguments)).map(Self::value)
            }),
            "PathValue" => GoFunction::new(text(GoType::Any), move |arguments| {
                value_at(&self.0, &argument(arguments))
            }),
            "Encode" => {
                let writer = GoType::Named("io.Writer".into(), ReflectKind::Invalid);
                let signature = FunctionSignature::new([writer], GoType::Any);
                GoFunction::new(signature, |_| Err("there is nothing to write to".to_owned()))
            }
            _ => return None,
        })
    }
}

fn argument(arguments: &[GoRuntimeValue]) -> String {
    match arguments.first() {
        Some(GoRuntimeValue::String(text)) => text.lossy().into_owned(),
        _ => String::new(),
    }
}

/// The table at a path with dots.
pub(super) fn at(table: &GoMap, path: &str) -> Result<GoMap, String> {
    let mut table = table.clone();
    for name in path.split('.') {
        let found = table.get(name.as_bytes()).map(|value| value.underlying());
        table = match found {
            Some(GoRuntimeValue::Map(inner)) => inner,
            _ => return Err(format!("{} is not a table", quoted(name))),
        };
    }
    Ok(table)
}

fn value_at(table: &GoMap, path: &str) -> Result<GoRuntimeValue, String> {
    if path.is_empty() {
        return Err("YAML path cannot be empty".to_owned());
    }
    let (tables, name) = path.rsplit_once('.').map_or((None, path), |(a, b)| (Some(a), b));
    let table = tables.map_or_else(|| Ok(table.clone()), |tables| at(table, tables));
    match table.ok().and_then(|table| table.get(name.as_bytes())) {
        Some(value) if !matches!(value, GoRuntimeValue::Map(_)) => Ok(value),
        _ => Err(format!("{} is not a value", quoted(name))),
    }
}

fn quoted(text: &str) -> String {
    let quoted = golang::strconv::quote(text.as_bytes(), golang::strconv::QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}
