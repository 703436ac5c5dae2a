//! Parses texts into templates.
//!
//! Here: the entry. Elsewhere: tokens (`parse/lex.rs`), the grammar (`parse/parser.rs`), numbers (`parse/number.rs`),
//! and the parsed form (`parse/node.rs`).

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

use crate::caller_functions::TemplateFunctions;
use crate::error::TemplateParseError;

/// The settings for parsing a text.
pub(crate) struct ParseSettings<'a> {
    pub(crate) left: &'a str,
    pub(crate) right: &'a str,
    /// How deep blocks and parentheses may be nested.
    pub(crate) nesting: usize,
    pub(crate) functions: &'a TemplateFunctions,
}

/// Parses a text into its own template and the templates that it defines, by name.
pub(crate) fn parse(
    name: &str,
    text: &[u8],
    settings: &ParseSettings<'_>,
) -> Result<(TemplateTree, BTreeMap<Arc<str>, TemplateTree>), TemplateParseError> {
    parser::TemplateParser::new(name, text, settings).run()
}
