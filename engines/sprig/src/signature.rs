//! Signatures as Go writes them.

use std::sync::Arc;

use golang::value::{IntKind, ReflectKind, Signature, Type};

/// Parses `func(int, ...interface {}) (string, error)`; `None` for signatures that no function here has.
pub(crate) fn parse(text: &str) -> Option<Signature> {
    let (params, result) = text.strip_prefix("func(")?.split_once(") ")?;
    let result = result
        .strip_prefix('(')
        .map_or(Some(result), |pair| pair.strip_suffix(", error)"))
        .and_then(read)?;
    if params.is_empty() {
        return Some(Signature::new([], result));
    }
    let mut types = Vec::new();
    let mut is_variadic = false;
    for param in params.split(", ") {
        is_variadic = param.starts_with("...");
        types.push(read(param.trim_start_matches("..."))?);
    }
    Some(Signature { params: types, is_variadic, result })
}

/// A type by its name.
fn read(name: &str) -> Option<Type> {
    if let Some(item) = name.strip_prefix("[]") {
        return Some(Type::Slice(Arc::new(read(item)?)));
    }
    if let Some(item) = name.strip_prefix("map[string]") {
        return Some(Type::Map(Arc::new(read(item)?)));
    }
    Some(match name {
        "interface {}" => Type::Any,
        "bool" => Type::Bool,
        "string" => Type::String,
        "float64" => Type::Float64,
        "int" => Type::INT,
        "int64" => Type::INT64,
        "uint8" => Type::Integer(IntKind::Uint8),
        "uint32" => Type::Integer(IntKind::Uint32),
        "time.Time" | "sprig.certificate" => Type::Named(name.into(), ReflectKind::Struct),
        "time.Duration" => Type::Named(name.into(), ReflectKind::Integer(IntKind::Int64)),
        "*semver.Version" => Type::Named(name.into(), ReflectKind::Pointer),
        _ => return None,
    })
}
