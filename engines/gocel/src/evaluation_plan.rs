//! Turns the syntax tree of an expression into a plan that can be evaluated.
//!
//! Here: names and selections become attributes, calls find their function, and literal patterns are compiled.
//! Elsewhere: evaluating the plan ([`crate::eval`]).
//!
//! Source of the semantics: cel-go's `interpreter` planner.

use std::cell::RefCell;
use std::sync::Arc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use golang::regexp::GoRegexp;
use golang::work_meter::{WorkAllowance, WorkMeter};

use crate::eval::{CelEvaluation, go_type};
use crate::expression_types::CelType;
use crate::overloads::{self, CallDispatch, CelFunction};
use crate::type_check::{named_type, qualified_name};
use crate::value::CelValue;

/// A node of the plan.
#[derive(Debug)]
pub(crate) enum CelPlanNode {
    Literal(CelLiteral),
    Attribute(CelAttribute),
    /// Whether the last field of the attribute exists (`has(…)`).
    Has(CelAttribute),
    And(Vec<Self>),
    Or(Vec<Self>),
    Equal {
        operands: Box<(Self, Self)>,
        negated: bool,
    },
    /// `or` and `orValue` of optional values.
    OrElse {
        operands: Box<(Self, Self)>,
        unwraps: bool,
    },
    Call(CelFunctionCall),
    List {
        elements: Vec<Self>,
        optional: Vec<usize>,
    },
    Map(Vec<(Self, Self, bool)>),
    Fold(Box<CelComprehension>),
    /// Appends a value to the list that a loop builds.
    Append {
        list: Arc<str>,
        value: Box<Self>,
    },
}

/// A literal value in the expression.
#[derive(Debug, Clone)]
pub(crate) enum CelLiteral {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A variable or value from which fields and elements are taken.
#[derive(Debug)]
pub(crate) struct CelAttribute {
    pub(crate) root: AttributeRoot,
    pub(crate) qualifiers: Vec<AttributeQualifier>,
}

/// The beginning of an attribute.
#[derive(Debug)]
pub(crate) enum AttributeRoot {
    /// A variable, or a type. Unless the checker resolved the name, longer dotted names are tried first.
    Name {
        name: String,
        is_checked: bool,
    },
    Value(Box<CelPlanNode>),
    Conditional(Box<(CelPlanNode, CelAttribute, CelAttribute)>),
}

/// A step from a value to its field or element, such as `.name` or `[0]`. With `optional`, the value may lack it.
#[derive(Debug)]
pub(crate) struct AttributeQualifier {
    pub(crate) key: Arc<CelPlanNode>,
    pub(crate) optional: bool,
}

/// A call of a function that evaluates all its arguments.
#[derive(Debug)]
pub(crate) struct CelFunctionCall {
    pub(crate) name: String,
    /// The function. `None` if no function has the name, which is an error only when it is called.
    pub(crate) function: Option<&'static CelFunction>,
    pub(crate) args: Vec<CelPlanNode>,
    /// The number that identifies the call in messages.
    pub(crate) id: u64,
    /// The compiled pattern of `matches`, if the pattern is a literal.
    pub(crate) pattern: Option<GoRegexp>,
}

/// A loop over a list or the keys of a map.
#[derive(Debug)]
pub(crate) struct CelComprehension {
    pub(crate) range: CelPlanNode,
    pub(crate) element: String,
    pub(crate) accumulator: String,
    pub(crate) start: CelPlanNode,
    pub(crate) condition: CelPlanNode,
    pub(crate) step: CelPlanNode,
    pub(crate) result: CelPlanNode,
}

/// Functions that are evaluated in advance if their argument is known.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Makes the plan of an expression. `is_checked` means that the checker has found its names.
///
/// # Errors
/// The expression calls an unknown function, or has an invalid pattern or a literal that cannot be converted. The words
/// are cel-go's.
pub(crate) fn plan(
    expr: &IdedExpr,
    is_checked: bool,
    run: &mut WorkMeter,
) -> Result<CelPlanNode, String> {
    CelPlanner { is_checked, run: RefCell::new(run) }.plan(expr)
}

/// What compiling a pattern costs, and what the compiled pattern may take. Large patterns are rare and expensive.
const SMALL_PATTERN: WorkAllowance = WorkAllowance { steps: 20_000, bytes: 128 << 10 };
const LARGE_PATTERN: WorkAllowance = WorkAllowance { steps: 2_000_000, bytes: 32 << 20 };

struct CelPlanner<'m> {
    is_checked: bool,
    run: RefCell<&'m mut WorkMeter>,
}

impl CelPlanner<'_> {
    /// Compiles a literal pattern once.
    fn pattern(&self, pattern: &str) -> Result<GoRegexp, String> {
        let spend = |cost: WorkAllowance| {
            let mut run = self.run.borrow_mut();
            run.steps(cost.steps).and_then(|()| run.bytes(cost.bytes)).map_err(|_| {
                "too many or too large regular expressions; use fewer or simpler ones".to_owned()
            })
        };
        spend(SMALL_PATTERN)?;
        let compiled = GoRegexp::new(pattern).map_err(|error| error.to_string())?;
        if !compiled.is_small() {
            spend(LARGE_PATTERN)?;
        }
        Ok(compiled)
    }

    fn plan(&self, expr: &IdedExpr) -> Result<CelPlanNode, String> {
        Ok(match &expr.expr {
            Expr::Literal(literal) => CelPlanNode::Literal(literal_of(literal)),
            Expr::Ident(name) => CelPlanNode::Attribute(CelAttribute {
                root: AttributeRoot::Name {
                    name: name.strip_prefix('.').unwrap_or(name).to_owned(),
                    is_checked: self.is_checked,
                },
                qualifiers: Vec::new(),
            }),
            // The checker has resolved this as a name.
            Expr::Select(_)
                if self.is_checked
                    && let Some(name) = qualified_name(expr)
                    && named_type(&name).is_some() =>
            {
                let root = AttributeRoot::Name { name, is_checked: true };
                CelPlanNode::Attribute(CelAttribute { root, qualifiers: Vec::new() })
            }
            Expr::Select(select) => {
                let mut attribute = self.attribute(&select.operand)?;
                let key = CelPlanNode::Literal(CelLiteral::String(select.field.as_str().into()));
                attribute.qualify(&Arc::new(key), false);
                if select.test {
                    CelPlanNode::Has(attribute)
                } else {
                    CelPlanNode::Attribute(attribute)
                }
            }
            Expr::Call(call) => self.call(expr.id, call)?,
            Expr::List(list) => CelPlanNode::List {
                elements: self.plan_all(&list.elements)?,
                optional: list.optional_indices.clone(),
            },
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let key = self.plan(&entry.key)?;
                        let value = self.plan(&entry.value)?;
                        entries.push((key, value, entry.optional));
                    }
                }
                CelPlanNode::Map(entries)
            }
            Expr::Comprehension(fold) => CelPlanNode::Fold(Box::new(self.fold(fold)?)),
            // Differs(cel-go): messages of Protocol Buffers cannot be made.
            Expr::Struct(message) => return Err(format!("unknown type: {}", message.type_name)),
            Expr::Unspecified => return Err("unsupported expr".to_owned()),
        })
    }

    fn plan_all<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e IdedExpr>,
    ) -> Result<Vec<CelPlanNode>, String> {
        exprs.into_iter().map(|expr| self.plan(expr)).collect()
    }

    fn attribute(&self, expr: &IdedExpr) -> Result<CelAttribute, String> {
        Ok(CelAttribute::of(self.plan(expr)?))
    }

    fn fold(&self, fold: &ComprehensionExpr) -> Result<CelComprehension, String> {
        Ok(CelComprehension {
            range: self.plan(&fold.iter_range)?,
            element: fold.iter_var.clone(),
            accumulator: fold.accu_var.clone(),
            start: self.plan(&fold.accu_init)?,
            condition: self.plan(&fold.loop_cond)?,
            step: self.plan(&fold.loop_step)?,
            result: self.plan(&fold.result)?,
        })
    }

    fn call(&self, id: u64, call: &CallExpr) -> Result<CelPlanNode, String> {
        let mut name = call.func_name.clone();
        let mut target = call.target.as_deref();
        if let Some(prefix) = target.and_then(qualified_name) {
            let qualified = format!("{prefix}.{name}");
            if overloads::function(&qualified).is_some() {
                (name, target) = (qualified, None);
            }
        }
        let mut args = self.plan_all(target.into_iter().chain(&call.args))?;
        match (name.as_str(), args.len()) {
            ("_&&_", _) => return Ok(CelPlanNode::And(args)),
            ("_||_", _) => return Ok(CelPlanNode::Or(args)),
            ("or" | "orValue", 2) => {
                let unwraps = name == "orValue";
                return Ok(CelPlanNode::OrElse { operands: pair(&mut args)?, unwraps });
            }
            ("_==_" | "_!=_", 2) => {
                let negated = name == "_!=_";
                return Ok(CelPlanNode::Equal { operands: pair(&mut args)?, negated });
            }
            ("_[_]" | "_[?_]" | "_?._", 2) => {
                let (operand, key) = *pair(&mut args)?;
                if is_constant(&key) {
                    check_key(&key)?;
                }
                let mut attribute = CelAttribute::of(operand);
                attribute.qualify(&Arc::new(key), name != "_[_]");
                return Ok(CelPlanNode::Attribute(attribute));
            }
            ("_?_:_", 3) => {
                let [condition, yes, no] = <[CelPlanNode; 3]>::try_from(args)
                    .map_err(|_| "no such overload: _?_:_(...)".to_owned())?;
                let branches = (condition, CelAttribute::of(yes), CelAttribute::of(no));
                let root = AttributeRoot::Conditional(Box::new(branches));
                return Ok(CelPlanNode::Attribute(CelAttribute { root, qualifiers: Vec::new() }));
            }
            ("_+_", 2) => {
                if let Some(list) = accumulator_of(&args)
                    && let Some(CelPlanNode::List { elements, .. }) = args.get_mut(1)
                    && let Some(value) = elements.pop()
                {
                    return Ok(CelPlanNode::Append { list, value: Box::new(value) });
                }
            }
            _ => {}
        }
        let function = overloads::function(&name);
        if let Some(form) = unimplemented(function, args.len()) {
            return Err(format!("no such overload: {name}{form}"));
        }
        let pattern = match (name.as_str(), args.get(1)) {
            ("matches", Some(CelPlanNode::Literal(CelLiteral::String(pattern)))) => {
                Some(self.pattern(pattern)?)
            }
            _ => None,
        };
        let node = CelPlanNode::Call(CelFunctionCall { name, function, args, id, pattern });
        if is_constant(&node) {
            CelEvaluation::of_constants(&node).map_err(|fault| fault.to_string())?;
        }
        Ok(node)
    }
}

/// Whether a value is known without evaluation. Not all such values are recognized.
fn is_constant(node: &CelPlanNode) -> bool {
    match node {
        CelPlanNode::Literal(_) => true,
        CelPlanNode::List { elements, optional } => {
            optional.is_empty() && elements.iter().all(is_constant)
        }
        CelPlanNode::Map(entries) => entries.iter().all(|(key, value, is_optional)| {
            !is_optional && is_constant(key) && is_constant(value)
        }),
        CelPlanNode::Call(call) => {
            CONVERSIONS.contains(&call.name.as_str())
                && call.args.len() == 1
                && call.args.iter().all(is_constant)
        }
        _ => false,
    }
}

/// Refuses a key that no map can have.
fn check_key(key: &CelPlanNode) -> Result<(), String> {
    let value = CelEvaluation::of_constants(key).map_err(|fault| fault.to_string())?;
    match value {
        CelValue::Bool(_)
        | CelValue::Int(_)
        | CelValue::Uint(_)
        | CelValue::Double(_)
        | CelValue::String(_) => Ok(()),
        other => Err(format!("invalid qualifier type: {}", go_type(&other))),
    }
}

/// The name of the list that a loop builds, if the arguments of a sum append one element to it. `None` for any other
/// sum.
fn accumulator_of(args: &[CelPlanNode]) -> Option<Arc<str>> {
    let [
        CelPlanNode::Attribute(CelAttribute { root: AttributeRoot::Name { name, .. }, qualifiers }),
        added,
    ] = args
    else {
        return None;
    };
    let CelPlanNode::List { elements, optional } = added else { return None };
    // Only the loop's own variables begin with `@`.
    let fits = name.starts_with('@')
        && qualifiers.is_empty()
        && elements.len() == 1
        && optional.is_empty();
    fits.then(|| name.as_str().into())
}

fn pair(args: &mut Vec<CelPlanNode>) -> Result<Box<(CelPlanNode, CelPlanNode)>, String> {
    match (args.pop(), args.pop()) {
        (Some(second), Some(first)) => Ok(Box::new((first, second))),
        _ => Err("no such overload".to_owned()),
    }
}

/// The form of a call with `args` arguments, for the message that no overload fits. `None` if an implementation of the
/// function may accept the call.
fn unimplemented(function: Option<&CelFunction>, args: usize) -> Option<&'static str> {
    let takes_any = match function {
        None => args != 0,
        Some(function) => match function.dispatch {
            CallDispatch::Single(arity) => arity == args,
            CallDispatch::Signature => match function.overloads.as_slice() {
                [only] => {
                    let arity = only.params.len();
                    // Functions with another number of arguments accept any arguments, and check them
                    // themselves.
                    let looks_itself = !matches!(arity, 1 | 2)
                        || matches!(only.params.get(1), Some(CelType::List(of)) if **of == CelType::Dyn);
                    arity == args || looks_itself
                }
                _ => true,
            },
        },
    };
    if takes_any {
        return None;
    }
    Some(match args {
        0 => "()",
        1 => "(arg)",
        2 => "(lhs, rhs)",
        _ => "(...)",
    })
}

fn literal_of(literal: &LiteralValue) -> CelLiteral {
    match literal {
        LiteralValue::Boolean(value) => CelLiteral::Bool(*value.inner()),
        LiteralValue::Bytes(value) => CelLiteral::Bytes(value.inner().into()),
        LiteralValue::Double(value) => CelLiteral::Double(*value.inner()),
        LiteralValue::Int(value) => CelLiteral::Int(*value.inner()),
        LiteralValue::Null => CelLiteral::Null,
        LiteralValue::String(value) => CelLiteral::String(value.inner().into()),
        LiteralValue::UInt(value) => CelLiteral::Uint(*value.inner()),
    }
}

impl CelAttribute {
    fn of(node: CelPlanNode) -> Self {
        match node {
            CelPlanNode::Attribute(attribute) => attribute,
            other => Self { root: AttributeRoot::Value(Box::new(other)), qualifiers: Vec::new() },
        }
    }

    /// Adds a field or element to the attribute. For a condition, it is added to both branches.
    fn qualify(&mut self, key: &Arc<CelPlanNode>, optional: bool) {
        if let AttributeRoot::Conditional(branches) = &mut self.root {
            branches.1.qualify(key, optional);
            branches.2.qualify(key, optional);
        } else {
            self.qualifiers.push(AttributeQualifier { key: key.clone(), optional });
        }
    }
}
