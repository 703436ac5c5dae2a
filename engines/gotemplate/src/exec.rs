//! Runs templates.
//!
//! Open actions, loops and templates are kept in a list and not on the stack, so that templates can run each other as
//! deep as Go allows.
//!
//! Here: the walk over a template. Elsewhere: values of expressions (`exec/eval.rs`), fields (`exec/field.rs`), and
//! calls (`exec/call.rs`).

mod call;
mod eval;
mod field;

use std::any::Any;

use golang::GoRuntimeValue;
use golang::value::{GoSlice, GoType, ReflectKind, SizedInteger, pointee};

use crate::error::{
    TemplateExecError, TemplateFunctionError, TemplateLimitError, TemplateLocation,
};
use crate::limits::TemplateBudget;
use crate::parse::{
    ControlBranch, ControlKeyword, NodeListSpan, TemplateNodeForm, TemplateNodeId,
    TemplatePipeline, TemplateTree,
};
use crate::reflect_value::ReflectedValue;
use crate::template_set::TemplateSet;

type Result<T> = std::result::Result<T, Box<TemplateExecError>>;

/// The initial capacity of the output. It is enough for most included templates.
const INITIAL_OUTPUT_BYTES: usize = 512;

/// How many bytes a copied key and value take.
const COPIED_ENTRY_BYTES: usize = 20;

/// How many bytes of an expression a message shows.
const MAX_NODE_TEXT_BYTES: usize = 64 << 10;

/// Runs a template of a set, within the rest of the budget.
pub(crate) fn run(
    set: &TemplateSet,
    name: &str,
    data: GoRuntimeValue,
    host: &dyn Any,
    budget: &mut TemplateBudget,
) -> std::result::Result<Vec<u8>, TemplateFunctionError> {
    let Some(tree) = set.get(name) else {
        return Err(TemplateFunctionError::NoTemplate {
            template: name.to_owned(),
            set: set.name().to_owned(),
        });
    };
    run_tree(set, tree, data, host, budget)
}

/// Runs a template that need not be in the set.
pub(crate) fn run_tree(
    set: &TemplateSet,
    tree: &TemplateTree,
    data: GoRuntimeValue,
    host: &dyn Any,
    budget: &mut TemplateBudget,
) -> std::result::Result<Vec<u8>, TemplateFunctionError> {
    budget.enter()?;
    let dot = ReflectedValue::plain(data);
    let mut run = TemplateRun {
        set,
        host,
        tree,
        node: None,
        variables: vec![("$", dot.clone())],
        base: 0,
        depth: 0,
        output: Vec::with_capacity(INITIAL_OUTPUT_BYTES),
        frames: Vec::new(),
        budget,
    };
    let ended = run.begin(tree.root, dot).and_then(|()| run.finish());
    let output = std::mem::take(&mut run.output);
    run.budget.leave();
    ended?;
    Ok(output)
}

struct TemplateRun<'s, 'b> {
    set: &'s TemplateSet,
    host: &'b dyn Any,
    /// The template that is being run.
    tree: &'s TemplateTree,
    /// The node that error messages are about.
    node: Option<TemplateNodeId>,
    variables: Vec<(&'s str, ReflectedValue)>,
    /// The index of the first variable of this template.
    base: usize,
    depth: usize,
    output: Vec<u8>,
    frames: Vec<ExecFrame<'s>>,
    budget: &'b mut TemplateBudget,
}

/// An open part of the walk.
enum ExecFrame<'s> {
    /// The nodes that remain to be walked.
    List { ids: std::slice::Iter<'s, TemplateNodeId>, dot: ReflectedValue },
    /// The end of a block. This number of variables is kept.
    Block(usize),
    Range {
        pipe: TemplatePipeline,
        items: RangeItems,
        body: TemplateNodeId,
        kept: usize,
        declared: usize,
    },
    /// The end of a template, with the state of the template that ran it.
    Template { tree: &'s TemplateTree, node: Option<TemplateNodeId>, base: usize, kept: usize },
}

/// The items over which a `range` loops.
enum RangeItems {
    Count {
        next: u64,
        end: u64,
        like: SizedInteger,
    },
    List(GoSlice, usize),
    Bytes(golang::value::GoString, usize),
    Map(std::vec::IntoIter<(golang::value::GoString, GoRuntimeValue)>, GoType),
    /// The entries of a map whose keys are not strings.
    Entries(std::vec::IntoIter<(GoRuntimeValue, GoRuntimeValue)>),
}

impl Iterator for RangeItems {
    type Item = (ReflectedValue, ReflectedValue);

    fn next(&mut self) -> Option<(ReflectedValue, ReflectedValue)> {
        let count = |index: &mut usize| {
            *index += 1;
            ReflectedValue::plain(GoRuntimeValue::int(*index as i64 - 1))
        };
        match self {
            Self::Count { next, end, like } => {
                let number = SizedInteger::new(like.kind(), *next as i64);
                *next += 1;
                (*next <= *end).then(|| {
                    (ReflectedValue::ABSENT, ReflectedValue::plain(GoRuntimeValue::Integer(number)))
                })
            }
            Self::List(list, index) => {
                let item = list.items().get(*index)?.clone();
                Some((count(index), ReflectedValue::of(item, list.item_type())))
            }
            Self::Bytes(bytes, index) => {
                let byte = i64::from(*bytes.get(*index)?);
                let byte = SizedInteger::new(golang::value::IntegerKind::Uint8, byte);
                Some((count(index), ReflectedValue::plain(GoRuntimeValue::Integer(byte))))
            }
            Self::Map(entries, held) => {
                let (key, item) = entries.next()?;
                Some((
                    ReflectedValue::plain(GoRuntimeValue::String(key)),
                    ReflectedValue::of(item, held),
                ))
            }
            Self::Entries(entries) => {
                let (key, item) = entries.next()?;
                Some((ReflectedValue::plain(key), ReflectedValue::plain(item)))
            }
        }
    }
}

impl<'s> TemplateRun<'s, '_> {
    // Errors.

    /// Go's error at the node that was examined last.
    fn error(&self, message: impl Into<String>) -> Box<TemplateExecError> {
        let place = self.node.map(|id| {
            let source = &self.tree.source;
            let (line, column) = source.place(id);
            let mut node = source.shown(id, MAX_NODE_TEXT_BYTES);
            node.truncate(node.floor_char_boundary(self.budget.words(node.len())));
            TemplateLocation { source: source.name.to_string(), line, column, node }
        });
        let template = self.tree.name.to_string();
        Box::new(TemplateExecError { template, place, message: message.into(), source: None })
    }

    fn failure(
        &self,
        message: impl Into<String>,
        source: TemplateFunctionError,
    ) -> Box<TemplateExecError> {
        let source = match source {
            // The text only had the rest of the output's limit.
            TemplateFunctionError::Limit(TemplateLimitError::Value(
                golang::fmt::Error::TooLong(most),
            )) if most == self.budget.room() => {
                TemplateFunctionError::Limit(TemplateLimitError::Output(self.budget.limits.output))
            }
            other => other,
        };
        let mut error = self.error(message);
        error.source = Some(Box::new(source));
        error
    }

    fn limit(&self, limit: TemplateLimitError) -> Box<TemplateExecError> {
        self.failure("", TemplateFunctionError::Limit(limit))
    }

    fn step(&mut self) -> Result<()> {
        self.work(1)
    }

    fn work(&mut self, steps: usize) -> Result<()> {
        self.budget.steps(steps).map_err(|limit| self.limit(limit))
    }

    fn form(&self, id: TemplateNodeId) -> TemplateNodeForm {
        self.tree.source.form(id)
    }

    fn ids(&self, span: NodeListSpan) -> &'s [TemplateNodeId] {
        self.tree.source.ids(span)
    }

    fn names(&self, span: NodeListSpan) -> &'s [NodeListSpan] {
        self.tree.source.names(span)
    }

    fn name(&self, span: NodeListSpan) -> &'s str {
        self.tree.source.name(span)
    }

    fn pipe(&self, id: TemplateNodeId) -> Option<TemplatePipeline> {
        match self.form(id) {
            TemplateNodeForm::Pipe(pipe) => Some(pipe),
            _ => None,
        }
    }

    // The walk.

    fn begin(&mut self, list: TemplateNodeId, dot: ReflectedValue) -> Result<()> {
        self.node = Some(list);
        if let TemplateNodeForm::List(ids) = self.form(list) {
            self.frames.push(ExecFrame::List { ids: self.ids(ids).iter(), dot });
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                ExecFrame::List { ids, dot } => match ids.next() {
                    Some(id) => {
                        let dot = dot.clone();
                        self.step()?;
                        self.walk(*id, dot)?;
                    }
                    None => {
                        self.frames.pop();
                    }
                },
                ExecFrame::Range { pipe, items, body, kept, declared } => {
                    let pipe = *pipe;
                    let body = *body;
                    let kept = *kept;
                    let declared = *declared;
                    match items.next() {
                        Some((index, item)) => self.iterate(pipe, body, declared, index, item)?,
                        None => {
                            self.variables.truncate(kept);
                            self.frames.pop();
                        }
                    }
                }
                ExecFrame::Block(kept) => {
                    self.variables.truncate(*kept);
                    self.frames.pop();
                }
                ExecFrame::Template { tree, node, base, kept } => {
                    (self.tree, self.node, self.base) = (*tree, *node, *base);
                    self.variables.truncate(*kept);
                    self.depth -= 1;
                    self.frames.pop();
                }
            }
        }
        Ok(())
    }

    fn walk(&mut self, id: TemplateNodeId, dot: ReflectedValue) -> Result<()> {
        self.node = Some(id);
        match self.form(id) {
            TemplateNodeForm::Text(text) => self.write_text(text),
            TemplateNodeForm::Action(pipe) => {
                let value = self.pipeline(&dot, pipe)?;
                if self.pipe(pipe).is_some_and(|pipe| self.names(pipe.variables).is_empty()) {
                    self.node = Some(id);
                    self.print(id, value)?;
                }
                Ok(())
            }
            TemplateNodeForm::Branch(branch) if branch.control == ControlKeyword::Range => {
                self.range(branch, dot)
            }
            TemplateNodeForm::Branch(branch) => {
                let kept = self.variables.len();
                let value = self.pipeline(&dot, branch.pipe)?;
                self.frames.push(ExecFrame::Block(kept));
                if value.value().is_true() {
                    let dot = if branch.control == ControlKeyword::With { value } else { dot };
                    return self.begin(branch.list, dot);
                }
                branch.otherwise.map_or(Ok(()), |otherwise| self.begin(otherwise, dot))
            }
            TemplateNodeForm::Template(name, pipe) => self.template(name, pipe, &dot),
            TemplateNodeForm::Break => {
                self.leave_body();
                if let Some(ExecFrame::Range { kept, .. }) = self.frames.pop() {
                    self.variables.truncate(kept);
                }
                Ok(())
            }
            TemplateNodeForm::Continue => {
                self.leave_body();
                Ok(())
            }
            _ => Err(self.error(format!(
                "unknown node: {}",
                self.tree.source.shown(id, MAX_NODE_TEXT_BYTES)
            ))),
        }
    }

    /// Closes everything within the innermost `range`.
    fn leave_body(&mut self) {
        while !matches!(self.frames.last(), None | Some(ExecFrame::Range { .. })) {
            self.frames.pop();
        }
    }

    fn write_text(&mut self, text: NodeListSpan) -> Result<()> {
        let text = self.tree.source.text(text);
        self.work(text.len() / 64)?;
        self.budget.produce(text.len()).map_err(|limit| self.limit(limit))?;
        self.output.extend_from_slice(text);
        Ok(())
    }

    fn print(&mut self, id: TemplateNodeId, slot: ReflectedValue) -> Result<()> {
        let value = match printable(&slot) {
            Some(value) => value,
            None => {
                let shown = self.tree.source.shown(id, MAX_NODE_TEXT_BYTES);
                return Err(self.error(format!("can't print {shown} of type {}", slot.held_name())));
            }
        };
        let text = match &value {
            GoRuntimeValue::String(text) => Ok(std::borrow::Cow::Borrowed(&**text)),
            value => golang::fmt::sprint_within(std::slice::from_ref(value), self.budget.text())
                .map(std::borrow::Cow::Owned),
        };
        let text = text.map_err(|error| self.failure("", error.into()))?;
        self.work(text.len() / 64)?;
        self.budget.produce(text.len()).map_err(|limit| self.limit(limit))?;
        self.output.extend_from_slice(&text);
        Ok(())
    }

    fn template(
        &mut self,
        name: u32,
        pipe: Option<TemplateNodeId>,
        dot: &ReflectedValue,
    ) -> Result<()> {
        let name = self.tree.source.template(name);
        let Some(tree) = self.set.get(name) else {
            let name =
                golang::strconv::quote(name.as_bytes(), golang::strconv::QuotingStyle::Printable);
            let name = String::from_utf8_lossy(&name);
            return Err(self.error(format!("template {name} not defined")));
        };
        let limit = self.budget.limits.templates;
        if self.depth >= limit {
            return Err(self.error(format!("exceeded maximum template depth ({limit})")));
        }
        let dot = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => ReflectedValue::ABSENT,
        };
        let kept = self.variables.len();
        self.frames.push(ExecFrame::Template {
            tree: self.tree,
            node: self.node,
            base: self.base,
            kept,
        });
        (self.tree, self.base) = (tree, kept);
        self.depth += 1;
        self.variables.push(("$", dot.clone()));
        self.begin(tree.root, dot)
    }

    fn range(&mut self, branch: ControlBranch, dot: ReflectedValue) -> Result<()> {
        let kept = self.variables.len();
        let value = self.pipeline(&dot, branch.pipe)?;
        let Some(pipe) = self.pipe(branch.pipe) else { return Ok(()) };
        // A loop over a map sees the map as it is at the beginning, so the entries are copied.
        let copied = match value.value().underlying() {
            GoRuntimeValue::Map(map) => map.len(),
            GoRuntimeValue::Object(object) => object.entries().map_or(0, |entries| entries.len()),
            _ => 0,
        };
        let bytes = copied.saturating_mul(COPIED_ENTRY_BYTES);
        self.budget.produce(bytes).map_err(|limit| self.limit(limit))?;
        self.work(copied)?;
        let items = self.items(&value, self.names(pipe.variables).len())?;
        if let Some(items) = items {
            let declared = self.variables.len();
            self.node = Some(branch.list);
            self.frames.push(ExecFrame::Range { pipe, items, body: branch.list, kept, declared });
            return Ok(());
        }
        self.frames.push(ExecFrame::Block(kept));
        branch.otherwise.map_or(Ok(()), |otherwise| self.begin(otherwise, dot))
    }

    /// The items of a `range`. `None` if there are none.
    fn items(&self, slot: &ReflectedValue, variables: usize) -> Result<Option<RangeItems>> {
        let value = slot.value().underlying();
        let shown = || {
            let text =
                golang::fmt::sprint_within(std::slice::from_ref(slot.value()), self.budget.text());
            text.map(|text| String::from_utf8_lossy(&text).into_owned())
                .map_err(|error| self.failure("", error.into()))
        };
        Ok(match value {
            GoRuntimeValue::Nil => None,
            GoRuntimeValue::Integer(integer) if variables > 1 => {
                let shown = match integer.kind().is_signed() {
                    true => integer.signed().to_string(),
                    false => integer.unsigned().to_string(),
                };
                let message = format!("can't use {shown} to iterate over more than one variable");
                return Err(self.error(message));
            }
            GoRuntimeValue::Integer(like) => {
                let end = if like.kind().is_signed() {
                    u64::try_from(like.signed()).unwrap_or(0)
                } else {
                    like.unsigned()
                };
                (end > 0).then_some(RangeItems::Count { next: 0, end, like })
            }
            GoRuntimeValue::List(list) => (!list.is_empty()).then_some(RangeItems::List(list, 0)),
            GoRuntimeValue::Bytes(bytes) => {
                (!bytes.is_empty()).then_some(RangeItems::Bytes(bytes, 0))
            }
            GoRuntimeValue::Map(map) => (!map.is_empty())
                .then(|| RangeItems::Map(map.entries().into_iter(), map.item_type().clone())),
            GoRuntimeValue::Object(object) => match object.entries() {
                Some(entries) => {
                    (!entries.is_empty()).then(|| RangeItems::Entries(entries.into_iter()))
                }
                None if object.is_nil() => None,
                None => return Err(self.error(format!("range can't iterate over {}", shown()?))),
            },
            _ => return Err(self.error(format!("range can't iterate over {}", shown()?))),
        })
    }

    fn iterate(
        &mut self,
        pipe: TemplatePipeline,
        body: TemplateNodeId,
        declared: usize,
        index: ReflectedValue,
        item: ReflectedValue,
    ) -> Result<()> {
        self.step()?;
        self.variables.truncate(declared);
        let (index_name, item_name) = match self.names(pipe.variables) {
            [index, item] => (Some(index), Some(item)),
            [item] => (None, Some(item)),
            _ => (None, None),
        };
        if pipe.is_assignment {
            if let Some(name) = index_name {
                self.assign(self.name(*name), index)?;
            }
            if let Some(name) = item_name {
                self.assign(self.name(*name), item.clone())?;
            }
        } else {
            // The pipeline declared these variables last, in this order.
            let names = [item_name.map(|_| item.clone()), index_name.map(|_| index)];
            for (back, slot) in names.into_iter().enumerate() {
                let at = declared.checked_sub(back + 1);
                if let (Some(slot), Some(at)) = (slot, at) {
                    self.variables[at].1 = slot;
                }
            }
        }
        self.begin(body, item)
    }

    // Variables.

    fn assign(&mut self, name: &str, slot: ReflectedValue) -> Result<()> {
        let known = self.variables[self.base..].iter_mut().rev().find(|(known, _)| *known == name);
        match known {
            Some((_, held)) => *held = slot,
            None => return Err(self.error(format!("undefined variable: {name}"))),
        }
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<ReflectedValue> {
        let mut known = self.variables[self.base..].iter().rev();
        let at = known.position(|(known, _)| *known == name);
        let Some(at) = at else {
            return Err(self.error(format!("undefined variable: {name}")));
        };
        let slot = self.variables[self.variables.len() - 1 - at].1.clone();
        // Most templates have only a few variables.
        if at >= 16 {
            self.work(at / 16)?;
        }
        Ok(slot)
    }
}

/// The value that is printed. `None` if the value cannot be printed.
pub(crate) fn printable(slot: &ReflectedValue) -> Option<GoRuntimeValue> {
    match slot.value() {
        GoRuntimeValue::Nil if slot.is_nil_interface() => Some(GoRuntimeValue::Nil),
        GoRuntimeValue::Nil => Some(GoRuntimeValue::from("<no value>")),
        GoRuntimeValue::Function(_) => None,
        GoRuntimeValue::Object(object) => {
            let is_pointer = object.kind() == ReflectKind::Pointer;
            if is_pointer && object.is_nil() {
                return Some(GoRuntimeValue::Nil);
            }
            let text = if is_pointer || slot.is_addressable() {
                object.addressed_text()
            } else {
                object.text()
            };
            Some(
                text.map_or_else(
                    || GoRuntimeValue::Object(pointee(object)),
                    GoRuntimeValue::String,
                ),
            )
        }
        value => Some(value.clone()),
    }
}
