//! Go's `text/template`, with the same output and the same errors as Go 1.26 and 1.27.
//!
//! A text is parsed once into a [`TemplateSet`] of named templates. The templates can be run any number of times, from
//! any thread. Values are `golang::Value`. Functions other than Go's own come from the caller ([`TemplateFunctions`]).
//! The result of a run depends only on the set, its data and its functions. [`TemplateLimits`] bounds the run.
//!
//! Here: templates. Elsewhere: values and their text (`golang`), and the functions for charts. This crate knows nothing
//! of Kubernetes.

mod builtin;
mod caller_functions;
mod error;
mod exec;
mod limits;
mod parse;
mod reflect_value;
mod template_set;
#[cfg(test)]
mod tests;

pub use caller_functions::{FunctionCallContext, TemplateFunctions};
pub use error::{
    TemplateExecError, TemplateFunctionError, TemplateLimitError, TemplateLocation,
    TemplateParseError,
};
pub use limits::{REQUIRED_STACK_BYTES, TemplateBudget, TemplateLimits};
pub use template_set::{MissingKeyPolicy, ParsedTemplate, Template, TemplateSet};
