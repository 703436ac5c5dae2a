//! Post-build substitution: replaces `${name}` in a text by the value of a variable. It supports the shell expressions
//! of `github.com/fluxcd/pkg/envsubst`, with its errors and its oddities.
//!
//! | form | becomes |
//! |---|---|
//! | `${v}` | the value; of an unset variable as [`UnsetVariablePolicy`] says |
//! | `${v:-d}` `${v:=d}` `${v=d}` `${v:+d}` `${v:?d}` | the value, or `d` when it is unset or empty: all five are one |
//! | `${#v}` | length in bytes |
//! | `${v^}` `${v^^}` `${v,}` `${v,,}` | first letter or all in upper or lower case |
//! | `${v:n}` `${v:n:length}` | part in bytes; a negative `n` (of a nested expression: `:-` is a default) counts from the end |
//! | `${v#p}` `${v##p}` `${v%p}` `${v%%p}` | without the shortest or longest beginning or end that matches the glob `p` |
//! | `${v/t/r}` `${v//t/r}` `${v/#t/r}` `${v/%t/r}` | the text `t` replaced: first, all, at the beginning, at the end |
//! | `$$` | `$`, so `$${v}` is the text `${v}` |
//!
//! The parts `d`, `n`, `length`, `p`, `t` and `r` may themselves be expressions. Only `d` may join several of them. A
//! text ends at its first NUL character.
//!
//! Here: one text and its variables. Elsewhere: which objects are substituted, and the source of the variables (the
//! controller); YAML (`goyaml`).

mod error;
mod limits;
mod parse;
mod scan;
mod substitution_run;
#[cfg(test)]
mod tests;
mod variables;

pub use error::{Error, LimitError, SyntaxError};
pub use limits::SubstitutionLimits;
pub use variables::{InvalidVariableName, SubstitutionVariables};

/// The value of a variable that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsetVariablePolicy {
    /// An unset variable has the empty text as its value.
    Empty,
    /// An unset variable is an error, unless the expression has a default. This is Flux's strict mode.
    Error,
}

/// Replaces the expressions in a text. `lookup` returns the value of the variable with a given name.
///
/// Names consist of letters and digits of any script and `_`. Expressions within values are not replaced. The text and
/// the values need not be UTF-8. A length that splits a character gives text that is not UTF-8.
///
/// # Errors
/// The text has an invalid expression (checked before any variable is looked up), a required variable is not set, a
/// part has a negative length, or a limit is reached. No error contains a value.
pub fn substitute<'v>(
    text: &[u8],
    lookup: impl Fn(&str) -> Option<&'v [u8]>,
    unset: UnsetVariablePolicy,
    limits: SubstitutionLimits,
) -> Result<Vec<u8>, Error> {
    let nodes = parse::parse(text, &limits)?;
    substitution_run::run(&nodes, &lookup, unset, limits)
}
