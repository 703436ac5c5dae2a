//! To which other values an expression of HCL refers, which decides the order of evaluation.

use std::collections::BTreeSet;

use ::hcl::expr::{Conditional, Expression, ObjectKey, Operation, TraversalOperator};
use ::hcl::template::{Directive, Element, Template};

use super::evaluate::MAX_EXPRESSION_DEPTH;
use crate::error::Result;

/// The names to which an expression refers under a root.
pub(super) fn references(
    expression: &Expression,
    root: &str,
    found: &mut BTreeSet<String>,
    depth: usize,
) -> Result<()> {
    if depth > MAX_EXPRESSION_DEPTH {
        return Err(format!("expressions are nested more than {MAX_EXPRESSION_DEPTH} deep").into());
    }
    let mut each = |expression: &Expression| references(expression, root, found, depth + 1);
    match expression {
        Expression::Array(items) => items.iter().try_for_each(each),
        Expression::Object(entries) => entries.iter().try_for_each(|(key, value)| {
            if let ObjectKey::Expression(key) = key {
                each(key)?;
            }
            each(value)
        }),
        Expression::TemplateExpr(template) => {
            let template = Template::from_expr(template).map_err(|error| error.to_string())?;
            template_references(&template, root, found, depth + 1)
        }
        Expression::Traversal(traversal) => {
            if let (Expression::Variable(variable), Some(TraversalOperator::GetAttr(name))) =
                (&traversal.expr, traversal.operators.first())
                && variable.as_str() == root
            {
                found.insert(name.as_str().to_owned());
                return Ok(());
            }
            each(&traversal.expr)?;
            traversal.operators.iter().try_for_each(|operator| match operator {
                TraversalOperator::Index(index) => each(index),
                _ => Ok(()),
            })
        }
        Expression::FuncCall(call) => call.args.iter().try_for_each(each),
        Expression::Parenthesis(inner) => each(inner),
        Expression::Conditional(conditional) => {
            let Conditional { cond_expr, true_expr, false_expr } = &**conditional;
            [cond_expr, true_expr, false_expr].into_iter().try_for_each(each)
        }
        Expression::Operation(operation) => match &**operation {
            Operation::Unary(unary) => each(&unary.expr),
            Operation::Binary(binary) => {
                [&binary.lhs_expr, &binary.rhs_expr].into_iter().try_for_each(each)
            }
        },
        Expression::ForExpr(all) => {
            let optional = all.key_expr.iter().chain(&all.cond_expr);
            [&all.collection_expr, &all.value_expr].into_iter().chain(optional).try_for_each(each)
        }
        _ => Ok(()),
    }
}

fn template_references(
    template: &Template,
    root: &str,
    found: &mut BTreeSet<String>,
    depth: usize,
) -> Result<()> {
    if depth > MAX_EXPRESSION_DEPTH {
        return Err(format!("expressions are nested more than {MAX_EXPRESSION_DEPTH} deep").into());
    }
    for element in template.elements() {
        match element {
            Element::Literal(_) => {}
            Element::Interpolation(inner) => references(&inner.expr, root, found, depth + 1)?,
            Element::Directive(directive) => match &**directive {
                Directive::If(choice) => {
                    references(&choice.cond_expr, root, found, depth + 1)?;
                    for inner in [Some(&choice.true_template), choice.false_template.as_ref()]
                        .into_iter()
                        .flatten()
                    {
                        template_references(inner, root, found, depth + 1)?;
                    }
                }
                Directive::For(each) => {
                    references(&each.collection_expr, root, found, depth + 1)?;
                    template_references(&each.template, root, found, depth + 1)?;
                }
            },
        }
    }
    Ok(())
}
