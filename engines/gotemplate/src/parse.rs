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

pub(crate) use node::{Branch, Control, Form, Id, Pipe, Span, Tree};
pub(crate) use number::Number;

use crate::error::ParseError;
use crate::function::Functions;

/// What parsing depends on besides the text.
pub(crate) struct Settings<'a> {
    pub(crate) left: &'a str,
    pub(crate) right: &'a str,
    /// How deep blocks and parentheses may be nested.
    pub(crate) nesting: usize,
    pub(crate) functions: &'a Functions,
}

/// Parses a text to its own template, and all templates in it by name.
pub(crate) fn parse(
    name: &str,
    text: &[u8],
    settings: &Settings<'_>,
) -> Result<(Tree, BTreeMap<Arc<str>, Tree>), ParseError> {
    parser::Parser::new(name, text, settings).run()
}
