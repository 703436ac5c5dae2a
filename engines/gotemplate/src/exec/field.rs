//! Evaluates fields of maps and objects, and methods.

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::value::ReflectKind;

use super::{Result, TemplateRun};
use crate::parse::{NodeListSpan, TemplateNodeId};
use crate::reflect_value::ReflectedValue;
use crate::template_set::MissingKeyPolicy;

impl<'s> TemplateRun<'s, '_> {
    /// Evaluates `.X.Y.Z` of a receiver. If the last name is a method, it gets the arguments.
    pub(super) fn chain(
        &mut self,
        dot: &ReflectedValue,
        receiver: ReflectedValue,
        node: TemplateNodeId,
        names: &'s [NodeListSpan],
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        let Some((final_name, names)) = names.split_last() else { return Ok(receiver) };
        let mut receiver = receiver;
        for name in names {
            receiver = self.field(dot, &receiver, node, *name, &[], None)?;
        }
        self.field(dot, &receiver, node, *final_name, arguments, last)
    }

    fn field(
        &mut self,
        dot: &ReflectedValue,
        receiver: &ReflectedValue,
        node: TemplateNodeId,
        name: NodeListSpan,
        arguments: &'s [TemplateNodeId],
        last: Option<ReflectedValue>,
    ) -> Result<ReflectedValue> {
        let has_arguments = arguments.len() > 1 || last.is_some();
        if let (GoRuntimeValue::Map(map), false) = (receiver.value(), has_arguments)
            && let Some(value) = map.get(self.tree.source.text(name))
        {
            return Ok(ReflectedValue::of(value, map.item_type()));
        }
        let name = self.name(name);
        let quoted = || {
            String::from_utf8_lossy(&quote(name.as_bytes(), QuotingStyle::Printable)).into_owned()
        };
        if receiver.is_absent() {
            if self.set.missing_key() == MissingKeyPolicy::Error {
                return Err(self.error(format!("nil data; no entry for key {}", quoted())));
            }
            return Ok(ReflectedValue::ABSENT);
        }
        if receiver.is_nil_interface() {
            let held = receiver.held_name();
            return Err(self.error(format!("nil pointer evaluating {held}.{name}")));
        }
        let map = match receiver.value() {
            GoRuntimeValue::Object(object) => {
                if let Some(method) = Arc::clone(object).method(name) {
                    let signature = method.signature();
                    let values = self.arguments(dot, name, signature, arguments, last)?;
                    let values: Vec<GoRuntimeValue> =
                        values.into_iter().map(ReflectedValue::into_value).collect();
                    let result = method.call(self.budget.meter(), &values);
                    return self.result(name, node, result.map_err(Into::into), &signature.result);
                }
                if object.kind() == ReflectKind::Pointer && object.is_nil() {
                    let held = receiver.held_name();
                    return Err(self.error(format!("nil pointer evaluating {held}.{name}")));
                }
                if let Some(value) = object.field(name) {
                    if has_arguments {
                        let message =
                            format!("{name} has arguments but cannot be invoked as function");
                        return Err(self.error(message));
                    }
                    return Ok(match object.kind() {
                        ReflectKind::Pointer => ReflectedValue::addressable(value),
                        _ => ReflectedValue::plain(value),
                    });
                }
                if object.fields().iter().any(|(known, _)| *known == name) {
                    let struct_type = object.type_name().trim_start_matches('*');
                    let message =
                        format!("{name} is an unexported field of struct type {struct_type}");
                    return Err(self.error(message));
                }
                object.underlying()
            }
            value => Some(value.clone()),
        };
        let Some(GoRuntimeValue::Map(map)) = map else {
            let held = receiver.held_name();
            return Err(self.error(format!("can't evaluate field {name} in type {held}")));
        };
        if has_arguments {
            return Err(self.error(format!("{name} is not a method but has arguments")));
        }
        match (map.get(name.as_bytes()), self.set.missing_key()) {
            (Some(value), _) => Ok(ReflectedValue::of(value, map.item_type())),
            (None, MissingKeyPolicy::Default) => Ok(ReflectedValue::ABSENT),
            (None, MissingKeyPolicy::Zero) => {
                Ok(ReflectedValue::of(map.item_type().zero(), map.item_type()))
            }
            (None, MissingKeyPolicy::Error) => {
                Err(self.error(format!("map has no entry for key {}", quoted())))
            }
        }
    }
}
