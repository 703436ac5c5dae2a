//! Evaluates pipelines, commands and operands.

use golang::GoRuntimeValue;
use golang::value::{GoType, SizedInteger};

use super::{MAX_NODE_TEXT_BYTES, Result, TemplateRun};
use crate::parse::{NodeListSpan, TemplateNodeForm, TemplateNodeId};
use crate::reflect_value::ReflectedValue;

impl<'s> TemplateRun<'s, '_> {
    /// Evaluates a pipeline. Its variables stay declared.
    ///
    /// It recurses for a pipeline in parentheses. The budget bounds the depth.
    pub(super) fn pipeline(
        &mut self,
        dot: &ReflectedValue,
        id: TemplateNodeId,
    ) -> Result<ReflectedValue> {
        self.node = Some(id);
        let Some(pipe) = self.pipe(id) else { return Ok(ReflectedValue::ABSENT) };
        self.budget.enter().map_err(|limit| self.limit(limit))?;
        let mut last = None;
        for command in self.ids(pipe.commands) {
            last = Some(self.command(dot, *command, last)?.unboxed());
        }
        self.budget.leave();
        let value = last.unwrap_or(ReflectedValue::ABSENT);
        for name in self.names(pipe.variables) {
            let name = self.name(*name);
            if pipe.is_assignment {
                self.assign(name, value.clone())?;
            } else {
                self.variables.push((name, value.clone()));
            }
        }
        Ok(value)
    }

    fn refuse_arguments(
        &self,
        arguments: &[TemplateNodeId],
        last: Option<&ReflectedValue>,
    ) -> Result<()> {
        if arguments.len() > 1 || last.is_some() {
            // An operand that is an argument has no arguments itself, and gets no value from a pipe.
            let first =
                arguments.first().map(|id| self.tree.source.shown(*id, MAX_NODE_TEXT_BYTES));
            let shown = first.unwrap_or_default();
            return Err(self.error(format!("can't give argument to non-function {shown}")));
        }
        Ok(())
    }

    fn command(
        &mut self,
        dot: &ReflectedValue,
        id: TemplateNodeId,
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        let TemplateNodeForm::Command(arguments) = self.form(id) else {
            return Ok(ReflectedValue::ABSENT);
        };
        let arguments = self.ids(arguments);
        let Some(first) = arguments.first() else { return Ok(ReflectedValue::ABSENT) };
        match self.form(*first) {
            TemplateNodeForm::Field(names) => {
                self.node = Some(*first);
                let names = self.names(names);
                return self.chain(dot, dot.clone(), *first, names, arguments, last);
            }
            TemplateNodeForm::Chain(..) => return self.chained(dot, *first, arguments, last),
            TemplateNodeForm::Identifier(name, callee) => {
                self.node = Some(*first);
                return self.function(dot, name, callee, id, arguments, last);
            }
            TemplateNodeForm::Pipe(_) => {
                self.refuse_arguments(arguments, last.as_ref())?;
                return self.pipeline(dot, *first);
            }
            TemplateNodeForm::Variable(_) => {
                return self.variable_node(dot, *first, arguments, last);
            }
            _ => {}
        }
        self.node = Some(*first);
        self.refuse_arguments(arguments, last.as_ref())?;
        match self.form(*first) {
            TemplateNodeForm::Bool(truth) => Ok(ReflectedValue::plain(GoRuntimeValue::Bool(truth))),
            TemplateNodeForm::Dot => Ok(dot.clone()),
            TemplateNodeForm::Nil => Err(self.error("nil is not a command")),
            TemplateNodeForm::Number(number, text) => self.constant(*first, number, text),
            TemplateNodeForm::String(_, text) => Ok(ReflectedValue::plain(GoRuntimeValue::String(
                self.tree.source.string(text).clone(),
            ))),
            _ => {
                let shown = self.tree.source.shown(*first, MAX_NODE_TEXT_BYTES);
                Err(self.error(format!("can't evaluate command {shown:?}")))
            }
        }
    }

    /// Evaluates a number whose type does not follow from its position.
    fn constant(
        &mut self,
        id: TemplateNodeId,
        number: u32,
        text: NodeListSpan,
    ) -> Result<ReflectedValue> {
        self.node = Some(id);
        let number = self.tree.source.number(number);
        let text = self.name(text);
        let is_hexadecimal = text.len() > 2
            && (text.starts_with("0x") || text.starts_with("0X"))
            && !text.contains(['p', 'P']);
        let looks_float =
            text.contains(['.', 'e', 'E', 'p', 'P']) && !is_hexadecimal && !text.starts_with('\'');
        let value = match (number.complex, number.float, number.int) {
            (Some((real, imaginary)), ..) => GoRuntimeValue::Complex(real, imaginary),
            (None, Some(float), _) if looks_float => GoRuntimeValue::Float(float),
            (None, _, Some(int)) => GoRuntimeValue::int(int),
            (None, _, None) if number.uint.is_some() => {
                return Err(self.error(format!("{text} overflows int")));
            }
            (None, _, None) => return Ok(ReflectedValue::ABSENT),
        };
        Ok(ReflectedValue::plain(value))
    }

    /// Evaluates an operand with fields after it, such as a parenthesis.
    fn chained(
        &mut self,
        dot: &ReflectedValue,
        id: TemplateNodeId,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        self.node = Some(id);
        let TemplateNodeForm::Chain(operand, names) = self.form(id) else {
            return Ok(ReflectedValue::ABSENT);
        };
        let receiver = self.argument(dot, None, operand)?;
        self.chain(dot, receiver, id, self.names(names), arguments, last)
    }

    fn variable_node(
        &mut self,
        dot: &ReflectedValue,
        id: TemplateNodeId,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        self.node = Some(id);
        let TemplateNodeForm::Variable(names) = self.form(id) else {
            return Ok(ReflectedValue::ABSENT);
        };
        let Some((name, fields)) = self.names(names).split_first() else {
            return Ok(ReflectedValue::ABSENT);
        };
        let value = self.variable(self.name(*name))?;
        if fields.is_empty() {
            self.refuse_arguments(arguments, last.as_ref())?;
            return Ok(value);
        }
        self.chain(dot, value, id, fields, arguments, last)
    }

    /// Evaluates an argument. If a type is given, the value has that type.
    pub(super) fn argument(
        &mut self,
        dot: &ReflectedValue,
        wanted: Option<&GoType>,
        id: TemplateNodeId,
    ) -> Result<ReflectedValue> {
        self.node = Some(id);
        let value = match self.form(id) {
            TemplateNodeForm::Dot => dot.clone(),
            TemplateNodeForm::Nil => {
                let wanted = wanted.unwrap_or(&GoType::Any);
                if wanted.can_be_nil() {
                    return Ok(zero(wanted));
                }
                return Err(self.error(format!("cannot assign nil to {wanted}")));
            }
            TemplateNodeForm::Field(names) => {
                self.chain(dot, dot.clone(), id, self.names(names), &[], None)?
            }
            TemplateNodeForm::Variable(_) => self.variable_node(dot, id, &[], None)?,
            TemplateNodeForm::Pipe(_) => self.pipeline(dot, id)?,
            TemplateNodeForm::Identifier(name, callee) => {
                self.function(dot, name, callee, id, &[], None)?
            }
            TemplateNodeForm::Chain(..) => self.chained(dot, id, &[], None)?,
            _ => return self.literal(wanted.unwrap_or(&GoType::Any), id),
        };
        self.validate(value, wanted)
    }

    /// Converts a literal to a type.
    fn literal(&mut self, wanted: &GoType, id: TemplateNodeId) -> Result<ReflectedValue> {
        let form = self.form(id);
        let source = &self.tree.source;
        let shown = |run: &Self| run.tree.source.shown(id, MAX_NODE_TEXT_BYTES);
        let value = match (wanted, form) {
            (GoType::Any | GoType::Reflected, TemplateNodeForm::Bool(truth))
            | (GoType::Bool, TemplateNodeForm::Bool(truth)) => GoRuntimeValue::Bool(truth),
            (GoType::Any | GoType::Reflected, TemplateNodeForm::Number(number, text)) => {
                let slot = self.constant(id, number, text)?;
                return Ok(slot);
            }
            (
                GoType::Any | GoType::Reflected | GoType::String,
                TemplateNodeForm::String(_, text),
            ) => GoRuntimeValue::String(source.string(text).clone()),
            (GoType::Float64, TemplateNodeForm::Number(number, _)) => {
                match source.number(number).float {
                    Some(float) => GoRuntimeValue::Float(float),
                    None => return Err(self.error(expected(wanted, &shown(self)))),
                }
            }
            (GoType::Complex128, TemplateNodeForm::Number(number, _)) => {
                match source.number(number).complex {
                    Some((real, imaginary)) => GoRuntimeValue::Complex(real, imaginary),
                    None => return Err(self.error(expected(wanted, &shown(self)))),
                }
            }
            (GoType::Integer(kind), TemplateNodeForm::Number(number, _)) => {
                let number = source.number(number);
                let known = match kind.is_signed() {
                    true => number.int,
                    false => number.uint.map(|uint| uint as i64),
                };
                match known {
                    Some(int) => GoRuntimeValue::Integer(SizedInteger::new(*kind, int)),
                    None => return Err(self.error(expected(wanted, &shown(self)))),
                }
            }
            (GoType::Slice(_) | GoType::Map(_) | GoType::Func(_) | GoType::Named(..), _)
            | (GoType::Any | GoType::Reflected, _) => {
                let shown = shown(self);
                return Err(self.error(format!("can't handle {shown} for arg of type {wanted}")));
            }
            _ => return Err(self.error(expected(wanted, &shown(self)))),
        };
        Ok(ReflectedValue::plain(value))
    }

    /// Checks that a value can have a type, and converts it.
    pub(super) fn validate(
        &self,
        slot: ReflectedValue,
        wanted: Option<&GoType>,
    ) -> Result<ReflectedValue> {
        let Some(wanted) = wanted else { return Ok(slot) };
        if slot.is_absent() {
            if wanted.can_be_nil() {
                return Ok(zero(wanted));
            }
            return Err(self.error(format!("invalid value; expected {wanted}")));
        }
        match wanted {
            GoType::Reflected => return Ok(slot),
            GoType::Any => return Ok(ReflectedValue::of(slot.into_value(), &GoType::Any)),
            _ => {}
        }
        let given = if slot.is_nil_interface() { None } else { slot.value().assign(wanted) };
        match given {
            Some(value) => Ok(ReflectedValue::plain(value)),
            None => {
                let got = if slot.is_nil_interface() {
                    "interface {}".to_owned()
                } else {
                    slot.value().type_name()
                };
                Err(self.error(format!("wrong type for value; expected {wanted}; got {got}")))
            }
        }
    }
}

/// The zero value of a type, as Go's `reflect.Zero`.
fn zero(wanted: &GoType) -> ReflectedValue {
    match wanted {
        GoType::Reflected => ReflectedValue::ABSENT,
        wanted => ReflectedValue::of(wanted.zero(), wanted),
    }
}

fn expected(wanted: &GoType, found: &str) -> String {
    let what = match wanted {
        GoType::Bool => "bool",
        GoType::String => "string",
        GoType::Integer(kind) if kind.is_signed() => "integer",
        GoType::Integer(_) => "unsigned integer",
        GoType::Float64 => "float",
        _ => "complex",
    };
    format!("expected {what}; found {found}")
}
