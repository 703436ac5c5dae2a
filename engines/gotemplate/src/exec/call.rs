//! Calls functions: the number and types of arguments, and the results.

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::value::{FunctionSignature, GoType};

use super::{MAX_NODE_TEXT_BYTES, Result, TemplateRun};
use crate::builtin::BuiltinFunction;
use crate::caller_functions::{FunctionCallContext, TemplateCallee};
use crate::error::TemplateFunctionError;
use crate::parse::{NodeListSpan, TemplateNodeId};
use crate::reflect_value::ReflectedValue;

/// How many bytes of text a step covers. Each function is assumed to scan all of its string arguments at full speed.
/// Slower functions charge for their own work, and so do those that read lists and maps.
const SCANNED_BYTES_PER_STEP: usize = 64;

/// The total length of the strings among some values.
fn strings<'v>(values: impl Iterator<Item = &'v GoRuntimeValue>) -> usize {
    values.filter_map(GoRuntimeValue::bytes).map(|text| text.len()).sum()
}

impl<'s> TemplateRun<'s, '_> {
    /// Calls a function. `node` is the node that an error is about. The first of `arguments`, if there are any, is the
    /// function name itself.
    pub(super) fn function(
        &mut self,
        dot: &ReflectedValue,
        name: NodeListSpan,
        callee: TemplateCallee,
        node: TemplateNodeId,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        self.step()?;
        let set = self.set;
        let name = self.name(name);
        let place = match callee {
            TemplateCallee::Given(place) => place,
            TemplateCallee::Go(builtin) => {
                return self.builtin(dot, builtin, name, node, arguments, last);
            }
        };
        // Another set may have parsed the template that runs here.
        let functions = set.functions();
        let entry = functions.at(place, name.as_bytes()).or_else(|| functions.get(name));
        let Some(entry) = entry else {
            let name = quote(name.as_bytes(), QuotingStyle::Printable);
            let name = String::from_utf8_lossy(&name);
            return Err(self.error(format!("{name} is not a defined function")));
        };
        let signature = &entry.signature;
        let values = self.arguments(dot, name, signature, arguments, last)?;
        let values: Vec<GoRuntimeValue> =
            values.into_iter().map(ReflectedValue::into_value).collect();
        let given = strings(values.iter());
        let counted = self.budget.steps(given / SCANNED_BYTES_PER_STEP);
        let mut call = FunctionCallContext { set, host: self.host, budget: self.budget };
        let result = counted
            .map_err(TemplateFunctionError::from)
            .and_then(|()| (entry.body)(&mut call, &values));
        self.result(name, node, result, &signature.result)
    }

    fn builtin(
        &mut self,
        dot: &ReflectedValue,
        builtin: BuiltinFunction,
        name: &str,
        node: TemplateNodeId,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        let signature = builtin.signature();
        if let Some(until) = builtin.stops_at() {
            return self.junction(dot, name, signature, until, arguments, last);
        }
        let callee = self.callee(builtin, arguments, last.as_ref());
        let values = self.arguments(dot, name, signature, arguments, last)?;
        let counted = self
            .budget
            .steps(strings(values.iter().map(ReflectedValue::value)) / SCANNED_BYTES_PER_STEP);
        let result = counted
            .map_err(TemplateFunctionError::from)
            .and_then(|()| builtin.call(&values, callee.as_deref(), self.budget));
        match result {
            Ok(slot) => Ok(slot),
            Err(failure) => self.result(name, node, Err(failure), &signature.result),
        }
    }

    /// The name by which a message of the function `call` refers to its first argument. `None` for any other function.
    fn callee(
        &self,
        builtin: BuiltinFunction,
        arguments: &[TemplateNodeId],
        last: Option<&ReflectedValue>,
    ) -> Option<String> {
        if builtin != BuiltinFunction::Call {
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

    /// The result of a call, with the type in which it is held, or its error.
    pub(super) fn result(
        &mut self,
        name: &str,
        node: TemplateNodeId,
        result: std::result::Result<GoRuntimeValue, TemplateFunctionError>,
        held: &GoType,
    ) -> Result<ReflectedValue> {
        result.map(|value| ReflectedValue::of(value, held)).map_err(|failure| {
            self.node = Some(node);
            self.failure(format!("error calling {name}: "), failure)
        })
    }

    fn count(
        &self,
        name: &str,
        signature: &FunctionSignature,
        given: usize,
        has_last: bool,
    ) -> Result<()> {
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

    /// The arguments of a call, converted to the types of the parameters.
    pub(super) fn arguments(
        &mut self,
        dot: &ReflectedValue,
        name: &str,
        signature: &FunctionSignature,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<Vec<ReflectedValue>> {
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

    /// Evaluates `and` and `or`. Arguments after the deciding one are not evaluated.
    fn junction(
        &mut self,
        dot: &ReflectedValue,
        name: &str,
        signature: &FunctionSignature,
        until: bool,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        let arguments = arguments.get(1..).unwrap_or_default();
        self.count(name, signature, arguments.len(), last.is_some())?;
        let mut value = ReflectedValue::ABSENT;
        for id in arguments {
            value = self.argument(dot, Some(&GoType::Reflected), *id)?;
            if value.value().is_true() == until {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}
