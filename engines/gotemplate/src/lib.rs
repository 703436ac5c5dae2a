//! Go's `text/template`: the same output and the same errors, of Go 1.26 and 1.27.
//!
//! Strings are parsed into a [`Set`] of named templates once and run any number of times, from any thread.
//! Values are `golang::Value`; functions beyond those of Go's own come from the caller ([`Functions`]).
//! A run is a function of the set, its data and what functions do, and is bounded by [`Limits`].
//!
//! Here: templates. Elsewhere: values and their text (`golang`), functions that charts know. Kubernetes is not known.

mod builtin;
mod error;
mod exec;
mod function;
mod limits;
mod parse;
mod set;
mod slot;
#[cfg(test)]
mod tests;

pub use error::{ExecError, Failure, LimitError, ParseError, Place};
pub use function::{Call, Functions};
pub use limits::{Budget, Limits, STACK};
pub use set::{MissingKey, Parsed, Set, Template};
