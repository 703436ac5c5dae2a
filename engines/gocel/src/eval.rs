//! Evaluates the plan of an expression.
//!
//! Here: variables, fields and elements, logic, loops, and choosing the function of a call. Elsewhere: the functions
//! ([`crate::functions`]), and the budget ([`crate::budget`]).
//!
//! Source of the semantics: cel-go's `interpreter` package.

use std::rc::Rc;

use golang::work_meter::WorkMeter;
use serde_json::{Map, Value as Json};

use crate::budget::{CelBudget, CelError};
use crate::evaluation_plan::{
    AttributeQualifier, AttributeRoot, CelAttribute, CelComprehension, CelFunctionCall, CelLiteral,
    CelPlanNode,
};
use crate::functions;
use crate::overloads::CallDispatch;
use crate::type_check::named_type;
use crate::value::{CelList, CelMapEntries, CelValue};

/// The variables of an expression.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpressionVariables<'a> {
    /// The fields of one object are the variables.
    Fields(&'a Map<String, Json>),
    /// Values with names are the variables.
    Named(&'a [(&'a str, &'a Json)]),
    None,
}

impl<'a> ExpressionVariables<'a> {
    fn get(self, name: &str) -> Option<&'a Json> {
        match self {
            Self::Fields(fields) => fields.get(name),
            Self::Named(values) => values.iter().find(|(own, _)| *own == name).map(|(_, v)| *v),
            Self::None => None,
        }
    }
}

type EvalResult<'a> = Result<CelValue<'a>, CelError>;

/// One evaluation of an expression: its variables and what is left of its budget.
pub(crate) struct CelEvaluation<'a> {
    variables: ExpressionVariables<'a>,
    /// The variables of loops, the innermost last. An accumulator may hold an error, which a logical operator can
    /// ignore later.
    locals: Vec<(&'a str, EvalResult<'a>)>,
    budget: CelBudget,
}

impl<'a> CelEvaluation<'a> {
    /// Evaluates a plan. The run pays for it.
    pub(crate) fn run(
        plan: &'a CelPlanNode,
        variables: ExpressionVariables<'a>,
        run: &mut WorkMeter,
    ) -> EvalResult<'a> {
        let mut evaluation = Self { variables, locals: Vec::new(), budget: CelBudget::of(run) };
        let outcome = evaluation.eval(plan);
        evaluation.budget.give_back(run);
        outcome
    }

    /// Evaluates a plan that needs no variables.
    pub(crate) fn of_constants(plan: &'a CelPlanNode) -> EvalResult<'a> {
        let budget = CelBudget::default();
        Self { variables: ExpressionVariables::None, locals: Vec::new(), budget }.eval(plan)
    }

    fn eval(&mut self, node: &'a CelPlanNode) -> EvalResult<'a> {
        self.budget.spend(1)?;
        match node {
            CelPlanNode::Literal(literal) => Ok(literal_value(literal)),
            CelPlanNode::Attribute(attribute) => self.attribute(attribute, false),
            CelPlanNode::Has(attribute) => match self.attribute(attribute, true)? {
                CelValue::Optional(found) => Ok(CelValue::Bool(found.is_some())),
                other => Ok(other),
            },
            CelPlanNode::And(terms) => self.logic(terms, false),
            CelPlanNode::Or(terms) => self.logic(terms, true),
            CelPlanNode::Equal { operands, negated } => {
                let one = self.eval(&operands.0);
                let two = self.eval(&operands.1);
                let equal = one?.equals(&two?, &mut self.budget)?;
                Ok(CelValue::Bool(equal != *negated))
            }
            CelPlanNode::OrElse { operands, unwraps } => match self.eval(&operands.0)? {
                CelValue::Optional(None) => self.eval(&operands.1),
                CelValue::Optional(Some(value)) if *unwraps => Ok((*value).clone()),
                other => Ok(other),
            },
            CelPlanNode::Call(call) => self.call(call),
            CelPlanNode::List { elements, optional } => self.list(elements, optional),
            CelPlanNode::Map(entries) => self.map(entries),
            CelPlanNode::Fold(fold) => self.fold(fold),
            CelPlanNode::Append { list, value } => self.append(list, value),
        }
    }

    /// Evaluates `&&` or `||`. It stops at the first operand that decides. An error counts only if no operand decides.
    fn logic(&mut self, terms: &'a [CelPlanNode], decisive: bool) -> EvalResult<'a> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(CelValue::Bool(value)) if value == decisive => return Ok(CelValue::Bool(value)),
                Ok(CelValue::Bool(_)) => {}
                Err(fault @ CelError::TooExpensive { .. }) => return Err(fault),
                Ok(_) => error = error.or_else(|| Some(CelError::no_such_overload())),
                Err(fault) => error = error.or(Some(fault)),
            }
        }
        error.map_or(Ok(CelValue::Bool(!decisive)), Err)
    }

    fn list(&mut self, elements: &'a [CelPlanNode], optional: &[usize]) -> EvalResult<'a> {
        let mut values = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let value = self.eval(element)?;
            if optional.binary_search(&index).is_err() {
                values.push(value);
                continue;
            }
            match value {
                CelValue::Optional(found) => values.extend(found.map(|value| (*value).clone())),
                other => {
                    let shown = other.shown();
                    return Err(CelError::failed(format!(
                        "cannot initialize optional list element from non-optional value {shown}"
                    )));
                }
            }
        }
        Ok(CelValue::List(CelList::made(values)))
    }

    fn map(&mut self, entries: &'a [(CelPlanNode, CelPlanNode, bool)]) -> EvalResult<'a> {
        let mut made: Vec<(CelValue<'a>, CelValue<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let key = self.eval(key)?;
            let mut value = self.eval(value)?;
            let mut same = None;
            for (index, (own, _)) in made.iter().enumerate() {
                if own.type_name() == key.type_name() && own.equals(&key, &mut self.budget)? {
                    same = Some(index);
                }
            }
            if *is_optional {
                match value {
                    CelValue::Optional(Some(found)) => value = (*found).clone(),
                    CelValue::Optional(None) => {
                        same.map(|index| made.remove(index));
                        continue;
                    }
                    other => {
                        let key = key.shown();
                        let other = other.shown();
                        return Err(CelError::failed(format!(
                            "cannot initialize optional entry '{key}' from non-optional value {other}"
                        )));
                    }
                }
            }
            match same {
                Some(index) => made[index].1 = value,
                None => made.push((key, value)),
            }
        }
        Ok(CelValue::Map(CelMapEntries::Made(Rc::new(made))))
    }

    fn fold(&mut self, fold: &'a CelComprehension) -> EvalResult<'a> {
        let range = match self.eval(&fold.range)? {
            CelValue::List(list) => list,
            CelValue::Map(entries) => CelList::made(entries.keys(&mut self.budget)?),
            other => {
                let text = format!("got '{}', expected iterable type", go_type(&other));
                return Err(CelError::failed(text));
            }
        };
        let depth = self.locals.len();
        let start = self.eval(&fold.start);
        self.locals.push((&fold.accumulator, start));
        let outcome = self.turns(fold, &range, depth);
        self.locals.truncate(depth + 1);
        let outcome = outcome.and_then(|()| self.eval(&fold.result));
        self.locals.truncate(depth);
        outcome
    }

    fn turns(
        &mut self,
        fold: &'a CelComprehension,
        range: &CelList<'a>,
        accumulator: usize,
    ) -> Result<(), CelError> {
        for element in range.iter() {
            self.budget.spend(1)?;
            element.is_read(&mut self.budget)?;
            self.locals.truncate(accumulator + 1);
            self.locals.push((&fold.element, Ok(element)));
            match self.eval(&fold.condition) {
                Ok(CelValue::Bool(false)) => break,
                Err(fault @ CelError::TooExpensive { .. }) => return Err(fault),
                // Parity(cel-go): a condition that fails does not end the loop.
                _ => {}
            }
            let next = self.eval(&fold.step);
            if let Err(fault @ CelError::TooExpensive { .. }) = next {
                return Err(fault);
            }
            if let Some((_, held)) = self.locals.get_mut(accumulator) {
                *held = next;
            }
        }
        Ok(())
    }

    fn append(&mut self, list: &str, value: &'a CelPlanNode) -> EvalResult<'a> {
        let value = self.eval(value);
        let Some((_, held)) = self.locals.iter_mut().rev().find(|(name, _)| *name == list) else {
            return Err(CelError::NoSuchAttribute(list.to_owned()));
        };
        // Taken out, so that the list has one owner and grows in place.
        let before = std::mem::replace(held, Ok(CelValue::Null))?;
        let value = value?;
        let CelValue::List(CelList::Made(mut items)) = before else {
            return Err(CelError::no_such_overload());
        };
        self.budget.spend_bytes(size_of::<CelValue<'_>>())?;
        Rc::make_mut(&mut items).push(value);
        Ok(CelValue::List(CelList::Made(items)))
    }

    fn attribute(&mut self, attribute: &'a CelAttribute, is_test: bool) -> EvalResult<'a> {
        match &attribute.root {
            AttributeRoot::Name { name, is_checked } => {
                self.named(name, *is_checked, &attribute.qualifiers, is_test)
            }
            AttributeRoot::Value(node) => {
                let value = self.eval(node)?;
                self.qualified(value, &attribute.qualifiers, is_test)
            }
            AttributeRoot::Conditional(branches) => {
                let (condition, yes, no) = &**branches;
                match self.eval(condition)? {
                    CelValue::Bool(true) => self.attribute(yes, is_test),
                    CelValue::Bool(false) => self.attribute(no, is_test),
                    _ => Err(CelError::no_such_overload()),
                }
            }
        }
    }

    /// Parity(cel-go): of `a.b.c`, a variable `a.b.c` comes before the field `c` of `a.b`, and that before `b` of `a`.
    fn named(
        &mut self,
        name: &str,
        is_checked: bool,
        qualifiers: &'a [AttributeQualifier],
        is_test: bool,
    ) -> EvalResult<'a> {
        let dotted = if is_checked {
            Vec::new()
        } else {
            let strings = qualifiers.iter().map_while(|qualifier| match &*qualifier.key {
                CelPlanNode::Literal(CelLiteral::String(text)) => Some(&**text),
                _ => None,
            });
            strings.collect()
        };
        let mut longest = None;
        for taken in (0..=dotted.len()).rev() {
            let mut full = name.to_owned();
            for part in dotted.iter().take(taken) {
                full.push('.');
                full.push_str(part);
            }
            self.budget.spend_bytes(full.len())?;
            let rest = qualifiers.get(taken..).unwrap_or_default();
            if let Some(value) = self.variable(&full) {
                match self.qualified(value?, rest, is_test) {
                    // Parity(cel-go): if the key needs a missing variable, this variable counts as missing.
                    Err(CelError::NoSuchAttribute(_)) if longest.is_some() => continue,
                    outcome => return outcome,
                }
            }
            if rest.is_empty() && named_type(&full).is_some() {
                return Ok(CelValue::Type(full.into()));
            }
            longest.get_or_insert(full);
        }
        Err(CelError::NoSuchAttribute(longest.unwrap_or_default()))
    }

    fn variable(&mut self, name: &str) -> Option<EvalResult<'a>> {
        let local = self.locals.iter().rev().find(|(own, _)| *own == name);
        if let Some((_, value)) = local {
            return Some(value.clone());
        }
        let json = self.variables.get(name)?;
        Some(self.read(json))
    }

    fn read(&mut self, json: &'a Json) -> EvalResult<'a> {
        let value = CelValue::from_json(json);
        value.is_read(&mut self.budget)?;
        Ok(value)
    }

    /// Follows fields and elements of a value. Once one of them is optional, the result is an optional value.
    fn qualified(
        &mut self,
        value: CelValue<'a>,
        qualifiers: &'a [AttributeQualifier],
        is_test: bool,
    ) -> EvalResult<'a> {
        let mut value = value;
        let mut is_optional = false;
        if !qualifiers.is_empty()
            && let CelValue::Optional(found) = &value
        {
            let Some(found) = found else { return Ok(value) };
            (value, is_optional) = ((**found).clone(), true);
        }
        for (index, qualifier) in qualifiers.iter().enumerate() {
            let key = self.eval(&qualifier.key)?;
            is_optional |= qualifier.optional;
            let is_tested = is_test && index + 1 == qualifiers.len();
            let found = self.element(&value, &key, is_optional || is_tested)?;
            value = match found {
                _ if is_tested && !is_optional => return Ok(CelValue::Bool(found.is_some())),
                Some(found) => found,
                None => return Ok(CelValue::Optional(None)),
            };
        }
        Ok(if is_optional { CelValue::Optional(Some(Rc::new(value))) } else { value })
    }

    /// The element of a list or map with a key. `None` if the element is missing and that is not an error.
    fn element(
        &mut self,
        value: &CelValue<'a>,
        key: &CelValue<'a>,
        may_miss: bool,
    ) -> Result<Option<CelValue<'a>>, CelError> {
        self.budget.spend(1)?;
        if !matches!(
            key,
            CelValue::Bool(_)
                | CelValue::Int(_)
                | CelValue::Uint(_)
                | CelValue::Double(_)
                | CelValue::String(_)
        ) {
            return Err(CelError::failed(format!("invalid qualifier type: {}", go_type(key))));
        }
        let (found, missing) = match value {
            CelValue::Map(CelMapEntries::Data(entries)) => {
                let found = match key {
                    CelValue::String(key) => entries.get(&**key),
                    _ => None,
                };
                (found.map(|json| self.read(json)).transpose()?, "no such key")
            }
            CelValue::Map(entries) => (entries.get(key, &mut self.budget)?, "no such key"),
            CelValue::List(list) => {
                let index = functions::index(key)?;
                let found = usize::try_from(index).ok().and_then(|index| list.get(index));
                found.as_ref().map(|found| found.is_read(&mut self.budget)).transpose()?;
                (found, "index out of bounds")
            }
            _ => (None, "no such key"),
        };
        match found {
            None if !may_miss => Err(CelError::failed(format!("{missing}: {}", key.shown()))),
            found => Ok(found),
        }
    }

    fn call(&mut self, call: &'a CelFunctionCall) -> EvalResult<'a> {
        if call.name == "@not_strictly_false" {
            return match call.args.first().map(|arg| self.eval(arg)) {
                Some(Ok(CelValue::Bool(value))) => Ok(CelValue::Bool(value)),
                Some(Err(fault @ CelError::TooExpensive { .. })) => Err(fault),
                _ => Ok(CelValue::Bool(true)),
            };
        }
        let mut args = Vec::with_capacity(call.args.len());
        // Parity(cel-go): of one or two arguments all are evaluated before an error counts; the first one does.
        for arg in &call.args {
            args.push(self.eval(arg)?);
        }
        let receiver = matches!(
            args.first(),
            Some(CelValue::String(_) | CelValue::Timestamp(_) | CelValue::Duration(_))
        );
        let name = &call.name;
        let none = |text: String| {
            if receiver { CelError::no_such_overload() } else { CelError::failed(text) }
        };
        match call.function {
            None if args.len() > 2 => Err(none(format!("no such overload: {name} {}", call.id))),
            None => Err(none(format!("no such overload: {name}"))),
            Some(function) => match function.dispatch {
                CallDispatch::Single(_) => {
                    if !args.first().is_some_and(|first| functions::has_trait(name, first)) {
                        return Err(none(format!("no such overload: {name}")));
                    }
                    functions::call(call, args, &mut self.budget)
                }
                CallDispatch::Signature => {
                    let fits = function.overloads.iter().any(|overload| {
                        overload.params.len() == args.len()
                            && overload.params.iter().zip(&args).all(|(p, arg)| p.admits(arg))
                    });
                    // Parity(cel-go): these three examine their arguments themselves.
                    if !fits && matches!(&**name, "contains" | "startsWith" | "endsWith") {
                        return Err(CelError::no_such_overload());
                    }
                    if !fits {
                        let types: Vec<&str> = args.iter().map(CelValue::type_name).collect();
                        let text = format!("no such overload: {name}({})", types.join(", "));
                        return Err(CelError::failed(text));
                    }
                    functions::call(call, args, &mut self.budget)
                }
            },
        }
    }
}

fn literal_value<'a>(literal: &CelLiteral) -> CelValue<'a> {
    match literal {
        CelLiteral::Null => CelValue::Null,
        CelLiteral::Bool(value) => CelValue::Bool(*value),
        CelLiteral::Int(value) => CelValue::Int(*value),
        CelLiteral::Uint(value) => CelValue::Uint(*value),
        CelLiteral::Double(value) => CelValue::Double(*value),
        CelLiteral::String(value) => CelValue::text(value),
        CelLiteral::Bytes(value) => CelValue::Bytes((**value).into()),
    }
}

/// The name of the Go type of a value, which some messages show.
pub(crate) fn go_type(value: &CelValue<'_>) -> &'static str {
    match value {
        CelValue::Null => "types.Null",
        CelValue::Bool(_) => "types.Bool",
        CelValue::Int(_) => "types.Int",
        CelValue::Uint(_) => "types.Uint",
        CelValue::Double(_) => "types.Double",
        CelValue::String(_) => "types.String",
        CelValue::Bytes(_) => "types.Bytes",
        CelValue::List(CelList::Data(_)) => "[]interface {}",
        CelValue::List(_) => "*types.baseList",
        CelValue::Map(CelMapEntries::Data(_)) => "map[string]interface {}",
        CelValue::Map(_) => "*types.baseMap",
        CelValue::Duration(_) => "types.Duration",
        CelValue::Timestamp(_) => "types.Timestamp",
        CelValue::Type(_) => "*types.Type",
        CelValue::Optional(_) => "*types.Optional",
    }
}
