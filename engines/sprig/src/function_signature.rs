//! Parses function signatures in Go's notation.

use std::sync::Arc;

use golang::value::{FunctionSignature, GoType, IntegerKind, ReflectKind};

/// Parses `func(int, ...interface {}) (string, error)`; `None` for a signature that no function of this crate has.
pub(crate) fn parse(text: &str) -> Option<FunctionSignature> {
    let (params, result) = text.strip_prefix("func(")?.split_once(") ")?;
    let result = result
        .strip_prefix('(')
        .map_or(Some(result), |pair| pair.strip_suffix(", error)"))
        .and_then(read)?;
    if params.is_empty() {
        return Some(FunctionSignature::new([], result));
    }
    let mut types = Vec::new();
    let mut is_variadic = false;
    for param in params.split(", ") {
        is_variadic = param.starts_with("...");
        types.push(read(param.trim_start_matches("..."))?);
    }
    Some(FunctionSignature { params: types, is_variadic, result })
}

/// Parses the name of a Go type. `None` if the type is not known.
fn read(name: &str) -> Option<GoType> {
    if let Some(item) = name.strip_prefix("[]") {
        return Some(GoType::Slice(Arc::new(read(item)?)));
    }
    if let Some(item) = name.strip_prefix("map[string]") {
        return Some(GoType::Map(Arc::new(read(item)?)));
    }
    Some(match name {
        "interface {}" => GoType::Any,
        "bool" => GoType::Bool,
        "string" => GoType::String,
        "float64" => GoType::Float64,
        "int" => GoType::INT,
        "int64" => GoType::INT64,
        "uint8" => GoType::Integer(IntegerKind::Uint8),
        "uint32" => GoType::Integer(IntegerKind::Uint32),
        "time.Time" | "sprig.certificate" => GoType::Named(name.into(), ReflectKind::Struct),
        "time.Duration" => GoType::Named(name.into(), ReflectKind::Integer(IntegerKind::Int64)),
        "*semver.Version" => GoType::Named(name.into(), ReflectKind::Pointer),
        _ => return None,
    })
}
