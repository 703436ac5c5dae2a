//! Go's built-in template functions.
//!
//! Here: their table, and the small functions. Elsewhere: comparisons (`builtin/compare.rs`), access to parts of values
//! (`builtin/access.rs`), and escapes (`builtin/escape.rs`). `and` and `or` are in `exec/call.rs`, because they do not
//! evaluate all of their arguments.

mod access;
mod compare;
mod escape;

use std::sync::LazyLock;

use golang::GoRuntimeValue;
use golang::fmt::{self, FormatLimits, sprint_within, sprintf_within, sprintln_within};
use golang::value::{FunctionSignature, GoType};

use crate::error::TemplateFunctionError;
use crate::exec::printable;
use crate::limits::TemplateBudget;
use crate::reflect_value::ReflectedValue;

/// A built-in function of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinFunction {
    And,
    Call,
    Eq,
    Ge,
    Gt,
    Html,
    Index,
    Js,
    Le,
    Len,
    Lt,
    Ne,
    Not,
    Or,
    Print,
    Printf,
    Println,
    Slice,
    UrlQuery,
}

/// All built-in functions, in the order of their declaration.
const ALL: [BuiltinFunction; 19] = [
    BuiltinFunction::And,
    BuiltinFunction::Call,
    BuiltinFunction::Eq,
    BuiltinFunction::Ge,
    BuiltinFunction::Gt,
    BuiltinFunction::Html,
    BuiltinFunction::Index,
    BuiltinFunction::Js,
    BuiltinFunction::Le,
    BuiltinFunction::Len,
    BuiltinFunction::Lt,
    BuiltinFunction::Ne,
    BuiltinFunction::Not,
    BuiltinFunction::Or,
    BuiltinFunction::Print,
    BuiltinFunction::Printf,
    BuiltinFunction::Println,
    BuiltinFunction::Slice,
    BuiltinFunction::UrlQuery,
];

/// The built-in function with this name. `None` if no built-in function has it.
pub(crate) fn find(name: &str) -> Option<BuiltinFunction> {
    Some(match name {
        "and" => BuiltinFunction::And,
        "call" => BuiltinFunction::Call,
        "eq" => BuiltinFunction::Eq,
        "ge" => BuiltinFunction::Ge,
        "gt" => BuiltinFunction::Gt,
        "html" => BuiltinFunction::Html,
        "index" => BuiltinFunction::Index,
        "js" => BuiltinFunction::Js,
        "le" => BuiltinFunction::Le,
        "len" => BuiltinFunction::Len,
        "lt" => BuiltinFunction::Lt,
        "ne" => BuiltinFunction::Ne,
        "not" => BuiltinFunction::Not,
        "or" => BuiltinFunction::Or,
        "print" => BuiltinFunction::Print,
        "printf" => BuiltinFunction::Printf,
        "println" => BuiltinFunction::Println,
        "slice" => BuiltinFunction::Slice,
        "urlquery" => BuiltinFunction::UrlQuery,
        _ => return None,
    })
}

impl BuiltinFunction {
    /// The types of the function's parameters and of its result.
    pub(crate) fn signature(self) -> &'static FunctionSignature {
        // Calls are frequent, so the few signatures are built only once.
        static SIGNATURES: LazyLock<[FunctionSignature; ALL.len()]> =
            LazyLock::new(|| ALL.map(BuiltinFunction::declared));
        &SIGNATURES[self as usize]
    }

    fn declared(self) -> FunctionSignature {
        use GoType::{Any, Bool, Reflected, String};
        match self {
            Self::And | Self::Or | Self::Call | Self::Index | Self::Slice => {
                FunctionSignature::variadic([Reflected, Reflected], Reflected)
            }
            Self::Eq => FunctionSignature::variadic([Reflected, Reflected], Bool),
            Self::Ge | Self::Gt | Self::Le | Self::Lt | Self::Ne => {
                FunctionSignature::new([Reflected, Reflected], Bool)
            }
            Self::Len => FunctionSignature::new([Reflected], GoType::INT),
            Self::Not => FunctionSignature::new([Reflected], Bool),
            Self::Printf => FunctionSignature::variadic([String, Any], String),
            Self::Html | Self::Js | Self::Print | Self::Println | Self::UrlQuery => {
                FunctionSignature::variadic([Any], String)
            }
        }
    }

    /// The truth value of an argument at which `and` or `or` stops. `None` for all other functions.
    pub(crate) fn stops_at(self) -> Option<bool> {
        match self {
            Self::And => Some(false),
            Self::Or => Some(true),
            _ => None,
        }
    }

    /// Calls the function with arguments of its signature. `callee` is how `call` names its first argument.
    pub(crate) fn call(
        self,
        arguments: &[ReflectedValue],
        callee: Option<&str>,
        budget: &mut TemplateBudget,
    ) -> Result<ReflectedValue, TemplateFunctionError> {
        let limits = budget.text();
        let (first, rest) = arguments.split_first().unwrap_or((&ReflectedValue::ABSENT, &[]));
        let values = || -> Vec<GoRuntimeValue> {
            arguments.iter().map(|slot| slot.value().clone()).collect()
        };
        let escaped = |escape: escape::EscapeFunction| -> Result<Vec<u8>, TemplateFunctionError> {
            let text = text_of(&values(), limits)?;
            escape(&text, limits.bytes).ok_or(fmt::Error::TooLong(limits.bytes).into())
        };
        let text = match self {
            Self::And | Self::Or => return Ok(first.clone()),
            Self::Call => return access::call(first, rest, callee.unwrap_or_default(), budget),
            Self::Index => return access::index(first, rest),
            Self::Slice => return access::slice(first, rest, budget),
            Self::Len => {
                return Ok(ReflectedValue::plain(GoRuntimeValue::int(access::len(first)?)));
            }
            Self::Not => {
                return Ok(ReflectedValue::plain(GoRuntimeValue::Bool(!first.value().is_true())));
            }
            Self::Eq | Self::Ge | Self::Gt | Self::Le | Self::Lt | Self::Ne => {
                let truth = compare::compare(self, first, rest, limits)?;
                return Ok(ReflectedValue::plain(GoRuntimeValue::Bool(truth)));
            }
            Self::Print => sprint_within(&values(), limits)?,
            Self::Println => sprintln_within(&values(), limits)?,
            Self::Printf => match values().split_first() {
                Some((GoRuntimeValue::String(format), values)) => {
                    sprintf_within(format, values, limits)?
                }
                _ => Vec::new(),
            },
            Self::Html => escaped(escape::html)?,
            Self::Js => escaped(escape::js)?,
            Self::UrlQuery => escaped(escape::url_query)?,
        };
        budget.steps(text.len() / 8)?;
        budget.produce(text.len())?;
        Ok(ReflectedValue::plain(GoRuntimeValue::string(text)))
    }
}

/// The text of values, as an action would print them.
fn text_of(
    values: &[GoRuntimeValue],
    limits: FormatLimits,
) -> Result<Vec<u8>, TemplateFunctionError> {
    if let [GoRuntimeValue::String(text)] = values {
        return Ok(text.to_vec());
    }
    let shown = |value: &GoRuntimeValue| {
        printable(&ReflectedValue::plain(value.clone())).unwrap_or_else(|| value.clone())
    };
    let shown: Vec<GoRuntimeValue> = values.iter().map(shown).collect();
    Ok(sprint_within(&shown, limits)?)
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn every_function_finds_its_own_signature() {
        for (index, builtin) in ALL.into_iter().enumerate() {
            assert_eq!((index, &builtin.declared()), (builtin as usize, builtin.signature()));
        }
    }
}
