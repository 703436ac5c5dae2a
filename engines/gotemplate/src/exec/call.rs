//! Calls of functions: their number and types of arguments, and their results.

use golang::GoRuntimeValue;
use golang::strconv::{Quoting, quote};
use golang::value::{Signature, Type};

use super::{MAX_NODE_TEXT_BYTES, Result, TemplateRun};
use crate::builtin::Builtin;
use crate::error::FunctionError;
use crate::function::{Call, Callee};
use crate::parse::{Id, Span};
use crate::reflect_value::Slot;

/// Bytes of a text that are scanned in a step: each function is taken to examine all of the strings that it is given,
/// as fast as that can be done. What takes longer, and what is in lists and maps, functions count themselves.
const SCANNED_BYTES_PER_STEP: usize = 64;

/// How long the strings among some values are together.
fn strings<'v>(values: impl Iterator<Item = &'v GoRuntimeValue>) -> usize {
    values.filter_map(GoRuntimeValue::bytes).map(|text| text.len()).sum()
}

impl<'s> TemplateRun<'s, '_> {
    /// Calls a function; `node` is what an error of it is about. The first of `arguments`, if there are any, is the
    /// name itself.
    pub(super) fn function(
        &mut self,
        dot: &Slot,
        name: Span,
        callee: Callee,
        node: Id,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Slot> {
        self.step()?;
        let set = self.set;
        let name = self.name(name);
        let place = match callee {
            Callee::Given(place) => place,
            Callee::Go(builtin) => return self.builtin(dot, builtin, name, node, arguments, last),
        };
        // A set can run what another one has parsed.
        let functions = set.functions();
        let entry = functions.at(place, name.as_bytes()).or_else(|| functions.get(name));
        let Some(entry) = entry else {
            let name = quote(name.as_bytes(), Quoting::Printable);
            let name = String::from_utf8_lossy(&name);
            return Err(self.error(format!("{name} is not a defined function")));
        };
        let signature = &entry.signature;
        let values = self.arguments(dot, name, signature, arguments, last)?;
        let values: Vec<GoRuntimeValue> = values.into_iter().map(Slot::into_value).collect();
        let given = strings(values.iter());
        let counted = self.budget.steps(given / SCANNED_BYTES_PER_STEP);
        let mut call = Call { set, host: self.host, budget: self.budget };
        let result =
            counted.map_err(FunctionError::from).and_then(|()| (entry.body)(&mut call, &values));
        self.result(name, node, result, &signature.result)
    }

    fn builtin(
        &mut self,
        dot: &Slot,
        builtin: Builtin,
        name: &str,
        node: Id,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Slot> {
        let signature = builtin.signature();
        if let Some(until) = builtin.stops_at() {
            return self.junction(dot, name, signature, until, arguments, last);
        }
        let callee = self.callee(builtin, arguments, last.as_ref());
        let values = self.arguments(dot, name, signature, arguments, last)?;
        let counted =
            self.budget.steps(strings(values.iter().map(Slot::value)) / SCANNED_BYTES_PER_STEP);
        let result = counted
            .map_err(FunctionError::from)
            .and_then(|()| builtin.call(&values, callee.as_deref(), self.budget));
        match result {
            Ok(slot) => Ok(slot),
            Err(failure) => self.result(name, node, Err(failure), &signature.result),
        }
    }

    /// How `call` names its first argument.
    fn callee(&self, builtin: Builtin, arguments: &[Id], last: Option<&Slot>) -> Option<String> {
        if builtin != Builtin::Call {
            return None;
        }
        Some(match (arguments.get(1), last) {
            (Some(id), _) => self.tree.source.shown(*id, MAX_NODE_TEXT_BYTES),
            (None, Some(slot)) => match slot.value() {
                GoRuntimeValue::String(text) => text.lossy().into_owned(),
                _ => format!("<{} Value>", slot.held_name()),
            },
            (None, None) => String::new(),
        })
    }

    /// The result of a call as what it is held in, or its error.
    pub(super) fn result(
        &mut self,
        name: &str,
        node: Id,
        result: std::result::Result<GoRuntimeValue, FunctionError>,
        held: &Type,
    ) -> Result<Slot> {
        result.map(|value| Slot::of(value, held)).map_err(|failure| {
            self.node = Some(node);
            self.failure(format!("error calling {name}: "), failure)
        })
    }

    fn count(&self, name: &str, signature: &Signature, given: usize, has_last: bool) -> Result<()> {
        let all = given + usize::from(has_last);
        let fixed = signature.fixed();
        if signature.is_variadic && all < fixed {
            // Parity(go): the argument from the pipe is not counted here.
            let message =
                format!("wrong number of args for {name}: want at least {fixed} got {given}");
            return Err(self.error(message));
        }
        if !signature.is_variadic && all != fixed {
            let message = format!("wrong number of args for {name}: want {fixed} got {all}");
            return Err(self.error(message));
        }
        Ok(())
    }

    /// The arguments of a call, as the types of the parameters.
    pub(super) fn arguments(
        &mut self,
        dot: &Slot,
        name: &str,
        signature: &Signature,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Vec<Slot>> {
        let arguments = arguments.get(1..).unwrap_or_default();
        self.count(name, signature, arguments.len(), last.is_some())?;
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for (index, id) in arguments.iter().enumerate() {
            values.push(self.argument(dot, signature.param(index), *id)?);
        }
        if let Some(last) = last {
            values.push(self.validate(last, signature.param(arguments.len()))?);
        }
        Ok(values)
    }

    /// `and` and `or`, which do not evaluate arguments behind the one that decides.
    fn junction(
        &mut self,
        dot: &Slot,
        name: &str,
        signature: &Signature,
        until: bool,
        arguments: &'s [Id],
        last: Option<Slot>,
    ) -> Result<Slot> {
        let arguments = arguments.get(1..).unwrap_or_default();
        self.count(name, signature, arguments.len(), last.is_some())?;
        let mut value = Slot::ABSENT;
        for id in arguments {
            value = self.argument(dot, Some(&Type::Reflected), *id)?;
            if value.value().is_true() == until {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}
