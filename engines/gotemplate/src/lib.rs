//! Go's `text/template`: the same output and the same errors, of Go 1.26 and 1.27.
//!
//! Strings are parsed into a [`TemplateSet`] of named templates once and run any number of times, from any thread.
//! Values are `golang::Value`; functions beyond those of Go's own come from the caller ([`TemplateFunctions`]).
//! A run is a function of the set, its data and what functions do, and is bounded by [`TemplateLimits`].
//!
//! Here: templates. Elsewhere: values and their text (`golang`), functions that charts know. Kubernetes is not known.

mod builtin;
mod error;
mod exec;
mod function;
mod limits;
mod parse;
mod reflect_value;
mod template_set;
#[cfg(test)]
mod tests;

pub use error::{
    TemplateExecError, TemplateFunctionError, TemplateLimitError, TemplateLocation,
    TemplateParseError,
};
pub use function::{FunctionCallContext, TemplateFunctions};
pub use limits::{REQUIRED_STACK_BYTES, TemplateBudget, TemplateLimits};
pub use template_set::{MissingKeyPolicy, ParsedTemplate, Template, TemplateSet};
