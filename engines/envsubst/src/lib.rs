//! Post-build substitution: `${name}` in a text becomes a value, with the shell expressions that
//! `github.com/fluxcd/pkg/envsubst` knows, its errors and its oddities.
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
//! What stands for `d`, `n`, `length`, `p`, `t` or `r` may be an expression itself; only `d` may join several.
//! A text ends at its first NUL character.
//!
//! Here: one text and the variables. Elsewhere: which objects are substituted and where variables come from (the
//! controller), what the text means as YAML (`goyaml`).

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

/// What a variable is that has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsetVariablePolicy {
    /// The empty text.
    Empty,
    /// An error, save where the expression gives a default: Flux's strict mode.
    Error,
}

/// Replaces the expressions of a text; `lookup` gives the value of a name.
///
/// Names are letters and digits of any script and `_`; values are not looked through for expressions.
/// Neither text nor values have to be UTF-8, and lengths that split a character give text that is not.
///
/// # Errors
/// The text is not a sequence of known expressions (checked before any variable is looked up), a required variable is
/// not set, a part has a negative length, or a limit is reached. No error holds a value.
pub fn substitute<'v>(
    text: &[u8],
    lookup: impl Fn(&str) -> Option<&'v [u8]>,
    unset: UnsetVariablePolicy,
    limits: SubstitutionLimits,
) -> Result<Vec<u8>, Error> {
    let nodes = parse::parse(text, &limits)?;
    substitution_run::run(&nodes, &lookup, unset, limits)
}
