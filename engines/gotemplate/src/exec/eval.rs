//! Values of pipelines, commands and operands.

use golang::GoRuntimeValue;
use golang::value::{Integer, Type};

use super::{MAX_NODE_TEXT_BYTES, Result, TemplateRun};
use crate::parse::{Form, Id, Span};
use crate::reflect_value::Slot;

impl<'s> TemplateRun<'s, '_> {
    /// The value of a pipeline; its variables stay declared.
    ///
    /// Recurses where a pipeline stands in parentheses, and is bounded by the budget.
    pub(super) fn pipeline(&mut self, dot: &Slot, id: Id) -> Result<Slot> {
        self.node = Some(id);
        let Some(pipe) = self.pipe(id) else { return Ok(Slot::ABSENT) };
        self.budget.enter().map_err(|limit| self.limit(limit))?;
        let mut last = None;
        for command in self.ids(pipe.commands) {
            last = Some(self.command(dot, *command, last)?.unboxed());
        }
        self.budget.leave();
        let value = last.unwrap_or(Slot::ABSENT);
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

    fn refuse_arguments(&self, arguments: &[Id], last: Option<&Slot>) -> Result<()> {
        if arguments.len() > 1 || last.is_some() {
            // Operands that are arguments themselves have no list, and nothing comes to them through a pipe.
            let first =
                arguments.first().map(|id| self.tree.source.shown(*id, MAX_NODE_TEXT_BYTES));
            let shown = first.unwrap_or_default();
            return Err(self.error(format!("can't give argument to non-function {shown}")));
        }
        Ok(())
    }

    fn command(&mut self, dot: &Slot, id: Id, last: Option<Slot>) -> Result<Slot> {
        let Form::Command(arguments) = self.form(id) else { return Ok(Slot::ABSENT) };
        let arguments = self.ids(arguments);
        let Some(first) = arguments.first() else { return Ok(Slot::ABSENT) };
        match self.form(*first) {
            Form::Field(names) => {
                self.node = Some(*first);
                let names = self.names(names);
                return self.chain(dot, dot.clone(), *first, names, arguments, last);
            }
            Form::Chain(..) => return self.chained(dot, *first, arguments, last),
            Form::Identifier(name, callee) => {
                self.node = Some(*first);
                return self.function(dot, name, callee, id, arguments, last);
            }
            Form::Pipe(_) => {
                self.refuse_arguments(arguments, last.as_ref())?;
                return self.pipeline(dot, *first);
            }
            Form::Variable(_) => return self.variable_node(dot, *first, arguments, last),
            _ => {}
        }
        self.node = Some(*first);
        self.refuse_arguments(arguments, last.as_ref())?;
        match self.form(*first) {
            Form::Bool(truth) => Ok(Slot::plain(GoRuntimeValue::Bool(truth))),
            Form::Dot => Ok(dot.clone()),
            Form::Nil => Err(self.error("nil is not a command")),
            Form::Number(number, text) => self.constant(*first, number, text),
            Form::String(_, text) => {
                Ok(Slot::plain(GoRuntimeValue::String(self.tree.source.string(text).clone())))
            }
            _ => {
                let shown = self.tree.source.shown(*first, MAX_NODE_TEXT_BYTES);
                Err(self.error(format!("can't evaluate command {shown:?}")))
            }
        }
    }

    /// A number, if its type does not follow from its position.
    fn constant(&mut self, id: Id, number: u32, text: Span) -> Result<Slot> {
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
            (None, _, None) => return Ok(Slot::ABSENT),
        };
        Ok(Slot::plain(value))
    }

    /// An operand with fields behind it that is neither a field nor a variable.
    fn chained(
        &mut self,
        dot: &Slot,
        id: Id,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Slot> {
        self.node = Some(id);
        let Form::Chain(operand, names) = self.form(id) else { return Ok(Slot::ABSENT) };
        let receiver = self.argument(dot, None, operand)?;
        self.chain(dot, receiver, id, self.names(names), arguments, last)
    }

    fn variable_node(
        &mut self,
        dot: &Slot,
        id: Id,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Slot> {
        self.node = Some(id);
        let Form::Variable(names) = self.form(id) else { return Ok(Slot::ABSENT) };
        let Some((name, fields)) = self.names(names).split_first() else {
            return Ok(Slot::ABSENT);
        };
        let value = self.variable(self.name(*name))?;
        if fields.is_empty() {
            self.refuse_arguments(arguments, last.as_ref())?;
            return Ok(value);
        }
        self.chain(dot, value, id, fields, arguments, last)
    }

    /// The value of an argument that is wanted as a type, or as it is.
    pub(super) fn argument(&mut self, dot: &Slot, wanted: Option<&Type>, id: Id) -> Result<Slot> {
        self.node = Some(id);
        let value = match self.form(id) {
            Form::Dot => dot.clone(),
            Form::Nil => {
                let wanted = wanted.unwrap_or(&Type::Any);
                if wanted.can_be_nil() {
                    return Ok(zero(wanted));
                }
                return Err(self.error(format!("cannot assign nil to {wanted}")));
            }
            Form::Field(names) => self.chain(dot, dot.clone(), id, self.names(names), &[], None)?,
            Form::Variable(_) => self.variable_node(dot, id, &[], None)?,
            Form::Pipe(_) => self.pipeline(dot, id)?,
            Form::Identifier(name, callee) => self.function(dot, name, callee, id, &[], None)?,
            Form::Chain(..) => self.chained(dot, id, &[], None)?,
            _ => return self.literal(wanted.unwrap_or(&Type::Any), id),
        };
        self.validate(value, wanted)
    }

    /// A literal as a type.
    fn literal(&mut self, wanted: &Type, id: Id) -> Result<Slot> {
        let form = self.form(id);
        let source = &self.tree.source;
        let shown = |run: &Self| run.tree.source.shown(id, MAX_NODE_TEXT_BYTES);
        let value = match (wanted, form) {
            (Type::Any | Type::Reflected, Form::Bool(truth)) | (Type::Bool, Form::Bool(truth)) => {
                GoRuntimeValue::Bool(truth)
            }
            (Type::Any | Type::Reflected, Form::Number(number, text)) => {
                let slot = self.constant(id, number, text)?;
                return Ok(slot);
            }
            (Type::Any | Type::Reflected | Type::String, Form::String(_, text)) => {
                GoRuntimeValue::String(source.string(text).clone())
            }
            (Type::Float64, Form::Number(number, _)) => match source.number(number).float {
                Some(float) => GoRuntimeValue::Float(float),
                None => return Err(self.error(expected(wanted, &shown(self)))),
            },
            (Type::Complex128, Form::Number(number, _)) => match source.number(number).complex {
                Some((real, imaginary)) => GoRuntimeValue::Complex(real, imaginary),
                None => return Err(self.error(expected(wanted, &shown(self)))),
            },
            (Type::Integer(kind), Form::Number(number, _)) => {
                let number = source.number(number);
                let known = match kind.is_signed() {
                    true => number.int,
                    false => number.uint.map(|uint| uint as i64),
                };
                match known {
                    Some(int) => GoRuntimeValue::Integer(Integer::new(*kind, int)),
                    None => return Err(self.error(expected(wanted, &shown(self)))),
                }
            }
            (Type::Slice(_) | Type::Map(_) | Type::Func(_) | Type::Named(..), _)
            | (Type::Any | Type::Reflected, _) => {
                let shown = shown(self);
                return Err(self.error(format!("can't handle {shown} for arg of type {wanted}")));
            }
            _ => return Err(self.error(expected(wanted, &shown(self)))),
        };
        Ok(Slot::plain(value))
    }

    /// Makes sure that a value can be given as a type, and gives it as that.
    pub(super) fn validate(&self, slot: Slot, wanted: Option<&Type>) -> Result<Slot> {
        let Some(wanted) = wanted else { return Ok(slot) };
        if slot.is_absent() {
            if wanted.can_be_nil() {
                return Ok(zero(wanted));
            }
            return Err(self.error(format!("invalid value; expected {wanted}")));
        }
        match wanted {
            Type::Reflected => return Ok(slot),
            Type::Any => return Ok(Slot::of(slot.into_value(), &Type::Any)),
            _ => {}
        }
        let given = if slot.is_nil_interface() { None } else { slot.value().assign(wanted) };
        match given {
            Some(value) => Ok(Slot::plain(value)),
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

/// Go's `reflect.Zero`.
fn zero(wanted: &Type) -> Slot {
    match wanted {
        Type::Reflected => Slot::ABSENT,
        wanted => Slot::of(wanted.zero(), wanted),
    }
}

fn expected(wanted: &Type, found: &str) -> String {
    let what = match wanted {
        Type::Bool => "bool",
        Type::String => "string",
        Type::Integer(kind) if kind.is_signed() => "integer",
        Type::Integer(_) => "unsigned integer",
        Type::Float64 => "float",
        _ => "complex",
    };
    format!("expected {what}; found {found}")
}
