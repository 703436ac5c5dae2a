//! The parsed form of templates, and its text in messages.
//!
//! All templates of one text share one list of nodes, so that nothing is nested in memory.

use std::sync::Arc;

use golang::strconv::{Quoting, quote};

use super::number::Number;

/// The place of a node in [`Source::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

/// A text and what it was parsed to.
#[derive(Debug)]
pub(crate) struct Source {
    /// The name under which the text was parsed, which messages begin with.
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<[u8]>,
    pub(crate) nodes: Vec<Node>,
}

/// One template of a text.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<Source>,
    pub(crate) root: Id,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Where it begins, in bytes; for some nodes Go has another place, and so have we.
    pub(crate) at: usize,
    pub(crate) form: Form,
}

#[derive(Debug)]
pub(crate) enum Form {
    List(Vec<Id>),
    /// A range of the text.
    Text(usize, usize),
    Action(Id),
    Pipe(Pipe),
    Command(Vec<Id>),
    Identifier(Arc<str>),
    /// The name with its dollar sign, and fields.
    Variable(Vec<Arc<str>>),
    Dot,
    Nil,
    Field(Vec<Arc<str>>),
    Chain(Id, Vec<Arc<str>>),
    Bool(bool),
    /// A number and its text.
    Number(Box<Number>, Arc<str>),
    /// A string: its text with quotes as a range, and what it means.
    String(usize, usize, golang::value::Str),
    Branch(Branch),
    Break,
    Continue,
    Template(Arc<str>, Option<Id>),
}

#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) is_assignment: bool,
    pub(crate) variables: Vec<Arc<str>>,
    pub(crate) commands: Vec<Id>,
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) control: Control,
    pub(crate) pipe: Id,
    pub(crate) list: Id,
    pub(crate) otherwise: Option<Id>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    If,
    Range,
    With,
}

impl Control {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

impl Source {
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Line, counted from one, and byte in the line, counted from zero, of a node.
    pub(crate) fn place(&self, id: Id) -> (usize, usize) {
        let before = &self.text[..self.node(id).at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        (line + 1, before.len() - start)
    }

    /// Whether a template holds nothing but white space.
    pub(crate) fn is_empty(&self, root: Id) -> bool {
        match &self.node(root).form {
            Form::List(ids) => ids.iter().all(|id| match &self.node(*id).form {
                Form::Text(start, end) => {
                    let text = self.text[*start..*end].trim_ascii_start();
                    // Beyond ASCII there is more white space.
                    text.first().is_none_or(|first| !(' '..='~').contains(&char::from(*first)))
                        && String::from_utf8_lossy(text).trim().is_empty()
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// The text of a node as Go prints it again, cut off after `limit` bytes.
    ///
    /// Works from a list of what is left to print, as nodes can be nested deeply.
    pub(crate) fn shown(&self, id: Id, limit: usize) -> String {
        let mut shown = Vec::new();
        let mut open = vec![Piece::Node(id)];
        while let Some(piece) = open.pop() {
            if shown.len() > limit {
                break;
            }
            match piece {
                Piece::Fixed(text) => shown.extend_from_slice(text.as_bytes()),
                Piece::Name(name) => shown.extend_from_slice(name.as_bytes()),
                Piece::Node(id) => {
                    let at = open.len();
                    self.show(&self.node(id).form, &mut shown, &mut open);
                    // They were pushed in the order of printing.
                    open[at..].reverse();
                }
            }
        }
        shown.truncate(limit);
        String::from_utf8_lossy(&shown).into_owned()
    }

    fn show<'a>(&'a self, form: &'a Form, shown: &mut Vec<u8>, open: &mut Vec<Piece<'a>>) {
        use Piece::{Fixed, Name};
        match form {
            Form::List(ids) => open.extend(ids.iter().map(|id| Piece::Node(*id))),
            Form::Text(start, end) | Form::String(start, end, _) => {
                shown.extend_from_slice(&self.text[*start..*end]);
            }
            Form::Action(pipe) => open.extend([Fixed("{{"), Piece::Node(*pipe), Fixed("}}")]),
            Form::Pipe(pipe) => {
                for (index, name) in pipe.variables.iter().enumerate() {
                    open.extend([Fixed(if index > 0 { ", " } else { "" }), Name(name)]);
                }
                if !pipe.variables.is_empty() {
                    open.push(Fixed(if pipe.is_assignment { " = " } else { " := " }));
                }
                for (index, id) in pipe.commands.iter().enumerate() {
                    open.extend([Fixed(if index > 0 { " | " } else { "" }), Piece::Node(*id)]);
                }
            }
            Form::Command(arguments) => {
                for (index, id) in arguments.iter().enumerate() {
                    open.push(Fixed(if index > 0 { " " } else { "" }));
                    self.show_operand(*id, open);
                }
            }
            Form::Identifier(name) | Form::Number(_, name) => open.push(Name(name)),
            Form::Variable(names) => {
                for (index, name) in names.iter().enumerate() {
                    open.extend([Fixed(if index > 0 { "." } else { "" }), Name(name)]);
                }
            }
            Form::Dot => open.push(Fixed(".")),
            Form::Nil => open.push(Fixed("nil")),
            Form::Field(names) => {
                open.extend(names.iter().flat_map(|name| [Fixed("."), Name(name)]));
            }
            Form::Chain(operand, names) => {
                self.show_operand(*operand, open);
                open.extend(names.iter().flat_map(|name| [Fixed("."), Name(name)]));
            }
            Form::Bool(truth) => open.push(Fixed(if *truth { "true" } else { "false" })),
            Form::Branch(branch) => {
                open.extend([Fixed("{{"), Fixed(branch.control.word()), Fixed(" ")]);
                open.extend([Piece::Node(branch.pipe), Fixed("}}"), Piece::Node(branch.list)]);
                if let Some(otherwise) = branch.otherwise {
                    open.extend([Fixed("{{else}}"), Piece::Node(otherwise)]);
                }
                open.push(Fixed("{{end}}"));
            }
            Form::Break => open.push(Fixed("{{break}}")),
            Form::Continue => open.push(Fixed("{{continue}}")),
            Form::Template(name, pipe) => {
                shown.extend_from_slice(b"{{template ");
                shown.extend_from_slice(&quote(name.as_bytes(), Quoting::Printable));
                if let Some(pipe) = pipe {
                    open.extend([Fixed(" "), Piece::Node(*pipe)]);
                }
                open.push(Fixed("}}"));
            }
        }
    }

    fn show_operand(&self, id: Id, open: &mut Vec<Piece<'_>>) {
        if matches!(self.node(id).form, Form::Pipe(_)) {
            open.extend([Piece::Fixed("("), Piece::Node(id), Piece::Fixed(")")]);
        } else {
            open.push(Piece::Node(id));
        }
    }
}

/// What is left to print.
enum Piece<'a> {
    Fixed(&'static str),
    Name(&'a str),
    Node(Id),
}
