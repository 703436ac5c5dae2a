//! The parsed form of templates, and its text in messages.
//!
//! All templates of one text share one list of nodes, so that nothing is nested in memory.

use std::sync::Arc;

use golang::strconv::{QuotingStyle, quote};

use super::number::TemplateNumber;
use crate::caller_functions::TemplateCallee;

/// The index of a node in [`TemplateTextAndNodes::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateNodeId(pub(super) u32);

/// A span of one of the lists of a [`TemplateTextAndNodes`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeListSpan {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl NodeListSpan {
    fn of<T>(self, items: &[T]) -> &[T] {
        &items[self.start as usize..self.end as usize]
    }
}

/// A text and its parsed nodes.
///
/// A name is a span of the text, and the children of a node are a span of a list. Nodes are thus small, and a text
/// needs a few allocations instead of some for each node.
#[derive(Debug)]
pub(crate) struct TemplateTextAndNodes {
    /// The name of the text. Error messages begin with it.
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<[u8]>,
    pub(super) nodes: Vec<TemplateNode>,
    /// The children of all nodes. The children of one node are in a row.
    pub(super) ids: Vec<TemplateNodeId>,
    /// The names within the text. The names of one node are in a row.
    pub(super) names: Vec<NodeListSpan>,
    pub(super) numbers: Vec<TemplateNumber>,
    /// The values of string literals.
    pub(super) strings: Vec<golang::value::GoString>,
    /// The names of templates in `template` actions.
    pub(super) templates: Vec<Arc<str>>,
}

/// One template of a text.
#[derive(Debug, Clone)]
pub(crate) struct TemplateTree {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<TemplateTextAndNodes>,
    pub(crate) root: TemplateNodeId,
}

#[derive(Debug)]
pub(crate) struct TemplateNode {
    /// The position of the node in the text, in bytes. For some nodes it is not the beginning, as in Go.
    pub(super) at: u32,
    pub(super) form: TemplateNodeForm,
}

/// The kind of a node, with its content. Names are spans of the text; [`TemplateTextAndNodes::name`] gives them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TemplateNodeForm {
    List(NodeListSpan),
    Text(NodeListSpan),
    Action(TemplateNodeId),
    Pipe(TemplatePipeline),
    Command(NodeListSpan),
    /// A function: its name, and the function that the name denotes.
    Identifier(NodeListSpan, TemplateCallee),
    /// A variable: the name with its dollar sign, and fields.
    Variable(NodeListSpan),
    Dot,
    Nil,
    Field(NodeListSpan),
    Chain(TemplateNodeId, NodeListSpan),
    Bool(bool),
    /// A number: its index in [`TemplateTextAndNodes::numbers`], and its text.
    Number(u32, NodeListSpan),
    /// A string: its text with quotes, and the index of its value in [`TemplateTextAndNodes::strings`].
    String(NodeListSpan, u32),
    Branch(ControlBranch),
    Break,
    Continue,
    /// A `template` action: the index of the name in [`TemplateTextAndNodes::templates`], and the data.
    Template(u32, Option<TemplateNodeId>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TemplatePipeline {
    pub(crate) is_assignment: bool,
    pub(crate) variables: NodeListSpan,
    pub(crate) commands: NodeListSpan,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlBranch {
    pub(crate) control: ControlKeyword,
    pub(crate) pipe: TemplateNodeId,
    pub(crate) list: TemplateNodeId,
    pub(crate) otherwise: Option<TemplateNodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlKeyword {
    If,
    Range,
    With,
}

impl ControlKeyword {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

impl TemplateTextAndNodes {
    pub(crate) fn form(&self, id: TemplateNodeId) -> TemplateNodeForm {
        self.nodes[id.0 as usize].form
    }

    /// The children of a list or a command, or the commands of a pipeline.
    pub(crate) fn ids(&self, span: NodeListSpan) -> &[TemplateNodeId] {
        span.of(&self.ids)
    }

    /// The names of a variable or of fields, or the declared names of a pipeline. [`TemplateTextAndNodes::name`] gives the
    /// text of each.
    pub(crate) fn names(&self, span: NodeListSpan) -> &[NodeListSpan] {
        span.of(&self.names)
    }

    /// The text of a name or a number. Both are always UTF-8.
    pub(crate) fn name(&self, span: NodeListSpan) -> &str {
        std::str::from_utf8(self.text(span)).unwrap_or_default()
    }

    pub(crate) fn text(&self, span: NodeListSpan) -> &[u8] {
        span.of(&self.text)
    }

    pub(crate) fn number(&self, at: u32) -> &TemplateNumber {
        &self.numbers[at as usize]
    }

    pub(crate) fn string(&self, at: u32) -> &golang::value::GoString {
        &self.strings[at as usize]
    }

    pub(crate) fn template(&self, at: u32) -> &str {
        &self.templates[at as usize]
    }

    /// The line of a node, counted from one, and its byte within the line, counted from zero.
    pub(crate) fn place(&self, id: TemplateNodeId) -> (usize, usize) {
        let at = self.nodes[id.0 as usize].at as usize;
        let before = &self.text[..at.min(self.text.len())];
        let line = memchr::memchr_iter(b'\n', before).count();
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        (line + 1, before.len() - start)
    }

    /// Whether a template only contains white space.
    pub(crate) fn is_empty(&self, root: TemplateNodeId) -> bool {
        match self.form(root) {
            TemplateNodeForm::List(ids) => self.ids(ids).iter().all(|id| match self.form(*id) {
                TemplateNodeForm::Text(span) => {
                    let text = self.text(span).trim_ascii_start();
                    // There is more white space outside of ASCII.
                    text.first().is_none_or(|first| !(' '..='~').contains(&char::from(*first)))
                        && String::from_utf8_lossy(text).trim().is_empty()
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// The text of a node as Go prints it, cut after `limit` bytes.
    ///
    /// Nodes can be nested deeply, so a list of remaining parts replaces recursion.
    pub(crate) fn shown(&self, id: TemplateNodeId, limit: usize) -> String {
        let mut shown = Vec::new();
        let mut open = vec![PrintPiece::Node(id)];
        while let Some(piece) = open.pop() {
            if shown.len() > limit {
                break;
            }
            match piece {
                PrintPiece::Fixed(text) => shown.extend_from_slice(text.as_bytes()),
                PrintPiece::Name(name) => shown.extend_from_slice(name.as_bytes()),
                PrintPiece::Node(id) => {
                    let at = open.len();
                    self.show(self.form(id), &mut shown, &mut open);
                    // They were pushed in the order of printing.
                    open[at..].reverse();
                }
            }
        }
        shown.truncate(limit);
        String::from_utf8_lossy(&shown).into_owned()
    }

    fn show<'a>(
        &'a self,
        form: TemplateNodeForm,
        shown: &mut Vec<u8>,
        open: &mut Vec<PrintPiece<'a>>,
    ) {
        use PrintPiece::{Fixed, Name};
        let named = |name: &NodeListSpan| Name(self.name(*name));
        match form {
            TemplateNodeForm::List(ids) => {
                open.extend(self.ids(ids).iter().map(|id| PrintPiece::Node(*id)));
            }
            TemplateNodeForm::Text(span)
            | TemplateNodeForm::String(span, _)
            | TemplateNodeForm::Number(_, span) => {
                shown.extend_from_slice(self.text(span));
            }
            TemplateNodeForm::Action(pipe) => {
                open.extend([Fixed("{{"), PrintPiece::Node(pipe), Fixed("}}")]);
            }
            TemplateNodeForm::Pipe(pipe) => {
                let variables = self.names(pipe.variables);
                for (index, name) in variables.iter().enumerate() {
                    open.extend([Fixed(if index > 0 { ", " } else { "" }), named(name)]);
                }
                if !variables.is_empty() {
                    open.push(Fixed(if pipe.is_assignment { " = " } else { " := " }));
                }
                for (index, id) in self.ids(pipe.commands).iter().enumerate() {
                    open.extend([Fixed(if index > 0 { " | " } else { "" }), PrintPiece::Node(*id)]);
                }
            }
            TemplateNodeForm::Command(arguments) => {
                for (index, id) in self.ids(arguments).iter().enumerate() {
                    open.push(Fixed(if index > 0 { " " } else { "" }));
                    self.show_operand(*id, open);
                }
            }
            TemplateNodeForm::Identifier(name, _) => open.push(named(&name)),
            TemplateNodeForm::Variable(names) => {
                for (index, name) in self.names(names).iter().enumerate() {
                    open.extend([Fixed(if index > 0 { "." } else { "" }), named(name)]);
                }
            }
            TemplateNodeForm::Dot => open.push(Fixed(".")),
            TemplateNodeForm::Nil => open.push(Fixed("nil")),
            TemplateNodeForm::Field(names) => {
                open.extend(self.names(names).iter().flat_map(|name| [Fixed("."), named(name)]));
            }
            TemplateNodeForm::Chain(operand, names) => {
                self.show_operand(operand, open);
                open.extend(self.names(names).iter().flat_map(|name| [Fixed("."), named(name)]));
            }
            TemplateNodeForm::Bool(truth) => open.push(Fixed(if truth { "true" } else { "false" })),
            TemplateNodeForm::Branch(branch) => {
                open.extend([Fixed("{{"), Fixed(branch.control.word()), Fixed(" ")]);
                open.extend([
                    PrintPiece::Node(branch.pipe),
                    Fixed("}}"),
                    PrintPiece::Node(branch.list),
                ]);
                if let Some(otherwise) = branch.otherwise {
                    open.extend([Fixed("{{else}}"), PrintPiece::Node(otherwise)]);
                }
                open.push(Fixed("{{end}}"));
            }
            TemplateNodeForm::Break => open.push(Fixed("{{break}}")),
            TemplateNodeForm::Continue => open.push(Fixed("{{continue}}")),
            TemplateNodeForm::Template(name, pipe) => {
                let name = self.template(name);
                shown.extend_from_slice(b"{{template ");
                shown.extend_from_slice(&quote(name.as_bytes(), QuotingStyle::Printable));
                if let Some(pipe) = pipe {
                    open.extend([Fixed(" "), PrintPiece::Node(pipe)]);
                }
                open.push(Fixed("}}"));
            }
        }
    }

    fn show_operand(&self, id: TemplateNodeId, open: &mut Vec<PrintPiece<'_>>) {
        if matches!(self.form(id), TemplateNodeForm::Pipe(_)) {
            open.extend([PrintPiece::Fixed("("), PrintPiece::Node(id), PrintPiece::Fixed(")")]);
        } else {
            open.push(PrintPiece::Node(id));
        }
    }
}

/// A part that remains to be printed.
enum PrintPiece<'a> {
    Fixed(&'static str),
    Name(&'a str),
    Node(TemplateNodeId),
}
