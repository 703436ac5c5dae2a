//! Evaluates HCL expressions within a limited number of steps.
//!
//! Elsewhere: finding references in expressions (`references.rs`), functions (`functions.rs`).

use ::hcl::expr::{
    BinaryOperator, Expression, ForExpr, ObjectKey, Operation, TraversalOperator, UnaryOperator,
};
use ::hcl::template::{Directive, Element, Strip, Template};
use serde_json::Value;

use super::functions;
use crate::error::{Error, Result};
use crate::state_values_merge::ValuesMap;

/// The most steps for the evaluation of all files. Each item of a list is a step, and so are 64 bytes of text.
const MAX_EVALUATION_STEPS: usize = 2_000_000;

/// The deepest nesting of expressions.
pub(super) const MAX_EXPRESSION_DEPTH: usize = 200;

/// The variables that an expression can use.
pub(super) struct HclScope<'s> {
    roots: Vec<(&'s str, &'s ValuesMap)>,
    /// The variables of `for` expressions, with the innermost last.
    variables: Vec<(String, Value)>,
}

impl<'s> HclScope<'s> {
    pub(super) fn new(root: &'s str, values: &'s ValuesMap, locals: Option<&'s ValuesMap>) -> Self {
        let mut roots = vec![(root, values)];
        roots.extend(locals.map(|locals| ("local", locals)));
        Self { roots, variables: Vec::new() }
    }

    fn with(&self, variables: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut all = self.variables.clone();
        all.extend(variables);
        Self { roots: self.roots.clone(), variables: all }
    }
}

/// A number in JSON. It is an integer if possible.
pub(super) fn number(float: f64) -> Result<Value> {
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number that fits")]
    if float.fract() == 0.0 && float.abs() < 9e15 {
        return Ok((float as i64).into());
    }
    serde_json::Number::from_f64(float)
        .map(Value::Number)
        .ok_or_else(|| "a number is too large".into())
}

/// Converts a value to a text, as HCL does.
pub(super) fn text(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err("the value is null, where a string is required".into()),
        Value::Array(_) | Value::Object(_) => Err("a string is required".into()),
    }
}

/// Converts a value to a number, as HCL does.
pub(super) fn float(value: &Value) -> Result<f64> {
    let float = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok().filter(|float: &f64| float.is_finite()),
        _ => None,
    };
    float.ok_or_else(|| "a number is required".into())
}

fn truth(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        _ => Err("a bool is required".into()),
    }
}

/// Whether two values are equal. The numbers 1 and 1.0 are equal.
pub(super) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|known| is_equal(value, known)))
        }
        (one, other) => one == other,
    }
}

/// Evaluates expressions of HCL, within a limit of steps and depth.
#[derive(Debug)]
pub(super) struct HclEvaluator {
    left: usize,
    depth: usize,
}

impl Default for HclEvaluator {
    fn default() -> Self {
        Self { left: MAX_EVALUATION_STEPS, depth: 0 }
    }
}

impl HclEvaluator {
    /// Takes steps from what is left for the evaluation. The error says that too few are left.
    pub(super) fn take(&mut self, steps: usize) -> Result<()> {
        let over = || Error::from(format!("more than {MAX_EVALUATION_STEPS} steps are needed"));
        self.left = self.left.checked_sub(steps).ok_or_else(over)?;
        Ok(())
    }

    /// Takes as many steps as a value has parts.
    pub(super) fn take_value(&mut self, value: &Value) -> Result<()> {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            self.take(1)?;
            match value {
                Value::String(text) => self.take(text.len() / 64)?,
                Value::Array(items) => left.extend(items),
                Value::Object(map) => left.extend(map.values()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, expression: &Expression, scope: &HclScope<'_>) -> Result<Value> {
        if self.depth >= MAX_EXPRESSION_DEPTH {
            return Err(
                format!("expressions are nested more than {MAX_EXPRESSION_DEPTH} deep").into()
            );
        }
        self.take(1)?;
        self.depth += 1;
        let value = self.inner(expression, scope);
        self.depth -= 1;
        value
    }

    fn inner(&mut self, expression: &Expression, scope: &HclScope<'_>) -> Result<Value> {
        Ok(match expression {
            Expression::Null => Value::Null,
            Expression::Bool(truth) => Value::Bool(*truth),
            Expression::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => int.into(),
                (None, Some(float)) => self::number(float)?,
                (None, None) => return Err("a number is too large".into()),
            },
            Expression::String(text) => Value::String(text.clone()),
            Expression::Array(items) => {
                items.iter().map(|item| self.value(item, scope)).collect::<Result<Vec<_>>>()?.into()
            }
            Expression::Object(entries) => {
                let mut map = ValuesMap::new();
                for (key, value) in entries {
                    let key = match key {
                        ObjectKey::Identifier(name) => name.as_str().to_owned(),
                        ObjectKey::Expression(key) => text(&self.value(key, scope)?)?,
                        _ => return Err("a key of this kind is not supported".into()),
                    };
                    map.insert(key, self.value(value, scope)?);
                }
                Value::Object(map)
            }
            Expression::TemplateExpr(template) => {
                let template = Template::from_expr(template).map_err(|error| error.to_string())?;
                self.template_value(&template, scope)?
            }
            Expression::Variable(name) => self.variable(name.as_str(), scope)?,
            Expression::Traversal(traversal) => {
                let value = self.value(&traversal.expr, scope)?;
                self.traverse(value, &traversal.operators, scope)?
            }
            Expression::FuncCall(call) => functions::call(self, call, scope)?,
            Expression::Parenthesis(inner) => self.value(inner, scope)?,
            Expression::Conditional(conditional) => {
                let holds = truth(&self.value(&conditional.cond_expr, scope)?)?;
                let chosen = if holds { &conditional.true_expr } else { &conditional.false_expr };
                self.value(chosen, scope)?
            }
            Expression::Operation(operation) => self.operation(operation, scope)?,
            Expression::ForExpr(each) => self.each(each, scope)?,
            _ => return Err("an expression of this kind is not supported".into()),
        })
    }

    fn variable(&mut self, name: &str, scope: &HclScope<'_>) -> Result<Value> {
        let of_for =
            scope.variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
        if let Some(value) = of_for {
            self.take_value(value)?;
            return Ok(value.clone());
        }
        match scope.roots.iter().find(|(root, _)| *root == name) {
            Some((_, values)) => {
                let value = Value::Object((*values).clone());
                self.take_value(&value)?;
                Ok(value)
            }
            None => Err(format!("there is no variable named {name:?}").into()),
        }
    }

    fn traverse(
        &mut self,
        mut value: Value,
        operators: &[TraversalOperator],
        scope: &HclScope<'_>,
    ) -> Result<Value> {
        for (at, operator) in operators.iter().enumerate() {
            self.take(1)?;
            value = match operator {
                TraversalOperator::GetAttr(name) => member(value, name.as_str())?,
                TraversalOperator::Index(index) => {
                    let index = self.value(index, scope)?;
                    match &value {
                        Value::Array(_) => item(value, float(&index)?)?,
                        _ => member(value, &text(&index)?)?,
                    }
                }
                #[expect(clippy::cast_precision_loss, reason = "no list is that long")]
                TraversalOperator::LegacyIndex(index) => item(value, *index as f64)?,
                TraversalOperator::AttrSplat | TraversalOperator::FullSplat => {
                    let items = match value {
                        Value::Null => Vec::new(),
                        Value::Array(items) => items,
                        other => vec![other],
                    };
                    let rest = operators.get(at + 1..).unwrap_or_default();
                    let items = items.into_iter().map(|item| self.traverse(item, rest, scope));
                    return items.collect::<Result<Vec<_>>>().map(Value::Array);
                }
            };
        }
        Ok(value)
    }

    fn operation(&mut self, operation: &Operation, scope: &HclScope<'_>) -> Result<Value> {
        let (operator, one, other) = match operation {
            Operation::Unary(unary) => {
                let value = self.value(&unary.expr, scope)?;
                return match unary.operator {
                    UnaryOperator::Neg => number(-float(&value)?),
                    UnaryOperator::Not => Ok(Value::Bool(!truth(&value)?)),
                };
            }
            Operation::Binary(binary) => {
                let one = self.value(&binary.lhs_expr, scope)?;
                (binary.operator, one, self.value(&binary.rhs_expr, scope)?)
            }
        };
        let floats = || Ok::<_, Error>((float(&one)?, float(&other)?));
        match operator {
            BinaryOperator::Eq => Ok(Value::Bool(is_equal(&one, &other))),
            BinaryOperator::NotEq => Ok(Value::Bool(!is_equal(&one, &other))),
            BinaryOperator::And => Ok(Value::Bool(truth(&one)? && truth(&other)?)),
            BinaryOperator::Or => Ok(Value::Bool(truth(&one)? || truth(&other)?)),
            BinaryOperator::LessEq => floats().map(|(one, other)| Value::Bool(one <= other)),
            BinaryOperator::GreaterEq => floats().map(|(one, other)| Value::Bool(one >= other)),
            BinaryOperator::Less => floats().map(|(one, other)| Value::Bool(one < other)),
            BinaryOperator::Greater => floats().map(|(one, other)| Value::Bool(one > other)),
            BinaryOperator::Plus => floats().and_then(|(one, other)| number(one + other)),
            BinaryOperator::Minus => floats().and_then(|(one, other)| number(one - other)),
            BinaryOperator::Mul => floats().and_then(|(one, other)| number(one * other)),
            BinaryOperator::Div | BinaryOperator::Mod => match floats()? {
                (_, 0.0) => Err("a division by zero".into()),
                (one, other) if operator == BinaryOperator::Div => number(one / other),
                (one, other) => number(one % other),
            },
        }
    }

    /// The keys and values of a collection.
    fn entries(
        &mut self,
        collection: &Expression,
        scope: &HclScope<'_>,
    ) -> Result<Vec<(Value, Value)>> {
        Ok(match self.value(collection, scope)? {
            Value::Array(items) => {
                items.into_iter().enumerate().map(|(index, item)| (index.into(), item)).collect()
            }
            Value::Object(map) => map.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            _ => return Err("only lists and objects have items".into()),
        })
    }

    fn each(&mut self, each: &ForExpr, scope: &HclScope<'_>) -> Result<Value> {
        let mut items = Vec::new();
        let mut map = ValuesMap::new();
        for (key, value) in self.entries(&each.collection_expr, scope)? {
            let key_name = each.key_var.as_ref().map(|name| (name.as_str().to_owned(), key));
            let names = key_name.into_iter().chain([(each.value_var.as_str().to_owned(), value)]);
            let scope = scope.with(names);
            if let Some(condition) = &each.cond_expr
                && !truth(&self.value(condition, &scope)?)?
            {
                continue;
            }
            let value = self.value(&each.value_expr, &scope)?;
            let Some(key) = &each.key_expr else {
                items.push(value);
                continue;
            };
            let key = text(&self.value(key, &scope)?)?;
            match (each.grouping, map.get_mut(&key)) {
                (true, Some(Value::Array(group))) => group.push(value),
                (true, _) => drop(map.insert(key, Value::Array(vec![value]))),
                (false, Some(_)) => return Err(format!("two items have the key {key:?}").into()),
                (false, None) => drop(map.insert(key, value)),
            }
        }
        Ok(if each.key_expr.is_some() { Value::Object(map) } else { Value::Array(items) })
    }

    /// The value of a template. A template that is only one `${…}` keeps the type of the inner value.
    fn template_value(&mut self, template: &Template, scope: &HclScope<'_>) -> Result<Value> {
        if let [Element::Interpolation(only)] = template.elements() {
            return self.value(&only.expr, scope);
        }
        self.template(template, false, false, scope).map(Value::String)
    }

    /// The text of a template. Blanks at its beginning and end are removed according to `strip_start` and `strip_end`.
    fn template(
        &mut self,
        template: &Template,
        strip_start: bool,
        strip_end: bool,
        scope: &HclScope<'_>,
    ) -> Result<String> {
        let elements = template.elements();
        let mut out = String::new();
        for (at, element) in elements.iter().enumerate() {
            let piece = match element {
                Element::Literal(literal) => {
                    let before = at.checked_sub(1).and_then(|at| elements.get(at));
                    let after = elements.get(at + 1);
                    let mut literal = literal.as_str();
                    if before.map_or(strip_start, |element| strips(element).strip_end()) {
                        literal = literal.trim_start();
                    }
                    if after.map_or(strip_end, |element| strips(element).strip_start()) {
                        literal = literal.trim_end();
                    }
                    literal.to_owned()
                }
                Element::Interpolation(inner) => text(&self.value(&inner.expr, scope)?)?,
                Element::Directive(directive) => self.directive(directive, scope)?,
            };
            self.take(1 + piece.len() / 64)?;
            out.push_str(&piece);
        }
        Ok(out)
    }

    fn directive(&mut self, directive: &Directive, scope: &HclScope<'_>) -> Result<String> {
        match directive {
            Directive::If(choice) => {
                let holds = truth(&self.value(&choice.cond_expr, scope)?)?;
                let middle = match choice.false_template {
                    Some(_) => choice.else_strip,
                    None => choice.endif_strip,
                };
                match (holds, &choice.false_template) {
                    (true, _) => {
                        let start = choice.if_strip.strip_end();
                        self.template(&choice.true_template, start, middle.strip_start(), scope)
                    }
                    (false, Some(other)) => {
                        let start = choice.else_strip.strip_end();
                        self.template(other, start, choice.endif_strip.strip_start(), scope)
                    }
                    (false, None) => Ok(String::new()),
                }
            }
            Directive::For(each) => {
                let start = each.for_strip.strip_end();
                let end = each.endfor_strip.strip_start();
                let mut out = String::new();
                for (key, value) in self.entries(&each.collection_expr, scope)? {
                    let key = each.key_var.as_ref().map(|name| (name.as_str().to_owned(), key));
                    let names =
                        key.into_iter().chain([(each.value_var.as_str().to_owned(), value)]);
                    out.push_str(&self.template(&each.template, start, end, &scope.with(names))?);
                }
                Ok(out)
            }
        }
    }
}

/// Whether an element removes blanks before and after it.
fn strips(element: &Element) -> Strip {
    let (first, last) = match element {
        Element::Literal(_) => return Strip::None,
        Element::Interpolation(inner) => return inner.strip,
        Element::Directive(directive) => match &**directive {
            Directive::If(choice) => (choice.if_strip, choice.endif_strip),
            Directive::For(each) => (each.for_strip, each.endfor_strip),
        },
    };
    Strip::from((first.strip_start(), last.strip_end()))
}

fn member(value: Value, name: &str) -> Result<Value> {
    match value {
        Value::Object(mut map) => map
            .remove(name)
            .ok_or_else(|| format!("this object does not have an attribute named {name:?}").into()),
        _ => Err(format!("this value does not have any attributes, such as {name:?}").into()),
    }
}

fn item(value: Value, index: f64) -> Result<Value> {
    let Value::Array(items) = value else { return Err("only lists have indexes".into()) };
    let none = || Error::from(format!("the list has no item {index}"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number from 0 on"
    )]
    let at = if index.fract() == 0.0 && index >= 0.0 { index as usize } else { return Err(none()) };
    items.into_iter().nth(at).ok_or_else(none)
}
