//! From text to templates.
//!
//! Here: the entry. Elsewhere: tokens (`parse/lex.rs`), grammar (`parse/parser.rs`), numbers
//! (`parse/number.rs`), the parsed form (`parse/node.rs`).

mod lex;
mod node;
mod number;
mod parser;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use node::{
    ControlBranch, ControlKeyword, NodeListSpan, TemplateNodeForm, TemplateNodeId,
    TemplatePipeline, TemplateTree,
};
pub(crate) use number::TemplateNumber;

use crate::error::TemplateParseError;
use crate::function::TemplateFunctions;

/// What parsing depends on besides the text.
pub(crate) struct ParseSettings<'a> {
    pub(crate) left: &'a str,
    pub(crate) right: &'a str,
    /// How deep blocks and parentheses may be nested.
    pub(crate) nesting: usize,
    pub(crate) functions: &'a TemplateFunctions,
}

/// Parses a text to its own template, and all templates in it by name.
pub(crate) fn parse(
    name: &str,
    text: &[u8],
    settings: &ParseSettings<'_>,
) -> Result<(TemplateTree, BTreeMap<Arc<str>, TemplateTree>), TemplateParseError> {
    parser::TemplateParser::new(name, text, settings).run()
}
