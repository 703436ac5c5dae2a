//! The checker: it finds the type of an expression with declared variables, or reports what is wrong.
//!
//! Here: the walk over the syntax tree. Elsewhere: types ([`crate::expression_types`]), and functions
//! ([`crate::overloads`]).
//!
//! Source of the semantics: cel-go's `checker` package, configured so that all elements of a list or map have one type.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr,
    SelectExpr,
};

use crate::expression_types::{CelType, TypeParameterBindings, most_general};
use crate::overloads::{self, CelFunction};
use crate::parse::{CelSyntaxProblem, ParsedExpression, complaint_at};

/// Finds the type of an expression. Each of its variables is a map from text to any value.
pub(crate) fn check(
    parsed: &ParsedExpression,
    source: &str,
    variables: &[&str],
) -> Result<CelType, Vec<CelSyntaxProblem>> {
    let globals: BTreeMap<String, CelType> = variables
        .iter()
        .map(|name| ((*name).to_owned(), CelType::map(CelType::String, CelType::Dyn)))
        .collect();
    let mut checker = CelTypeChecker {
        parsed,
        source,
        scopes: vec![globals],
        types: BTreeMap::new(),
        bindings: TypeParameterBindings::default(),
        params: 0,
        complaints: Vec::new(),
    };
    let found = checker.check(&parsed.root);
    if checker.bindings.is_exhausted() {
        let text = "the types of the expression are too large to be checked".to_owned();
        return Err(vec![CelSyntaxProblem { line: 0, column: 0, text }]);
    }
    if checker.complaints.is_empty() {
        checker.homogeneous(&parsed.root);
    }
    if checker.complaints.is_empty() {
        return Ok(checker.bindings.substitute(&found, true));
    }
    checker.complaints.sort_by_key(|it| (it.line, it.column));
    Err(checker.complaints)
}

/// The type that the name of a type denotes, such as `int`. `None` if no type has this name.
pub(crate) fn named_type(name: &str) -> Option<CelType> {
    let param = |name: &str| CelType::Param(name.into());
    Some(match name {
        "bool" => CelType::Bool,
        "bytes" => CelType::Bytes,
        "double" => CelType::Double,
        "int" => CelType::Int,
        "uint" => CelType::Uint,
        "string" => CelType::String,
        "null_type" => CelType::Null,
        "list" => CelType::list(param("A")),
        "map" => CelType::map(param("A"), param("B")),
        "type" => CelType::Of(None),
        "google.protobuf.Duration" => CelType::Duration,
        "google.protobuf.Timestamp" => CelType::Timestamp,
        "optional_type" => CelType::optional(param("A")),
        _ => return None,
    })
}

/// The dotted name that a chain of field selections spells, such as `a.b.c`. `None` if the expression is anything else.
pub(crate) fn qualified_name(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified_name(&select.operand)?, select.field))
        }
        _ => None,
    }
}

struct CelTypeChecker<'s> {
    parsed: &'s ParsedExpression,
    source: &'s str,
    /// The variables of each scope, the innermost scope last.
    scopes: Vec<BTreeMap<String, CelType>>,
    types: BTreeMap<u64, CelType>,
    bindings: TypeParameterBindings,
    params: usize,
    complaints: Vec<CelSyntaxProblem>,
}

impl CelTypeChecker<'_> {
    fn complain(&mut self, id: u64, text: String) {
        if self.complaints.len() < 100 {
            self.complaints.push(complaint_at(&self.parsed.info, self.source, id, text));
        }
    }

    fn undeclared(&mut self, id: u64, name: &str) -> CelType {
        self.complain(id, format!("undeclared reference to '{name}' (in container '')"));
        CelType::Error
    }

    fn lookup(&self, name: &str) -> Option<CelType> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let declared = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        declared.cloned().or_else(|| named_type(name).map(|of| CelType::Of(Some(Arc::new(of)))))
    }

    fn new_param(&mut self) -> CelType {
        let name = format!("_var{}", self.params);
        self.params += 1;
        CelType::Param(name.into())
    }

    fn type_of(&self, expr: &IdedExpr) -> CelType {
        self.types.get(&expr.id).cloned().unwrap_or(CelType::Error)
    }

    fn check(&mut self, expr: &IdedExpr) -> CelType {
        let found = match &expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => CelType::Bool,
                LiteralValue::Bytes(_) => CelType::Bytes,
                LiteralValue::Double(_) => CelType::Double,
                LiteralValue::Int(_) => CelType::Int,
                LiteralValue::Null => CelType::Null,
                LiteralValue::String(_) => CelType::String,
                LiteralValue::UInt(_) => CelType::Uint,
            },
            Expr::Ident(name) => match self.lookup(name) {
                Some(found) => found,
                None => self.undeclared(expr.id, name),
            },
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Struct(message) => self.undeclared(expr.id, &message.type_name),
            Expr::Unspecified => CelType::Error,
        };
        self.types.insert(expr.id, found.clone());
        found
    }

    fn select(&mut self, expr: &IdedExpr, select: &SelectExpr) -> CelType {
        if let Some(found) = qualified_name(expr).and_then(|name| self.lookup(&name)) {
            return found;
        }
        let found = self.field(expr.id, &select.operand, false);
        if select.test { CelType::Bool } else { self.bindings.substitute(&found, false) }
    }

    /// The type of a field of an operand.
    fn field(&mut self, id: u64, operand: &IdedExpr, is_optional: bool) -> CelType {
        let operand = self.check(operand);
        let operand = self.bindings.substitute(&operand, false);
        let (target, was_optional) = operand.unwrapped();
        let found = match target {
            CelType::Map(of) => of.1.clone(),
            CelType::Param(_) => {
                self.bindings.assign(&CelType::Dyn, target);
                CelType::Dyn
            }
            CelType::Dyn | CelType::Error => CelType::Dyn,
            other => {
                self.complain(id, format!("type '{other}' does not support field selection"));
                CelType::Dyn
            }
        };
        if was_optional || is_optional { CelType::optional(found) } else { found }
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> CelType {
        if call.func_name == "_?._" {
            return self.optional_field(expr, call);
        }
        for arg in &call.args {
            self.check(arg);
        }
        let Some(target) = &call.target else {
            return match overloads::function(&call.func_name) {
                Some(function) => self.resolve(expr, call, &call.func_name, function, false),
                None => self.undeclared(expr.id, &call.func_name),
            };
        };
        let qualified = qualified_name(target).map(|prefix| format!("{prefix}.{}", call.func_name));
        if let Some(name) = qualified
            && let Some(function) = overloads::function(&name)
        {
            return self.resolve(expr, call, &name, function, false);
        }
        self.check(target);
        match overloads::function(&call.func_name) {
            Some(function) => self.resolve(expr, call, &call.func_name, function, true),
            None => self.undeclared(expr.id, &call.func_name),
        }
    }

    fn optional_field(&mut self, expr: &IdedExpr, call: &CallExpr) -> CelType {
        let [operand, field] = call.args.as_slice() else { return CelType::Error };
        if !matches!(&field.expr, Expr::Literal(LiteralValue::String(_))) {
            self.complain(field.id, "unsupported optional field selection".to_owned());
            return CelType::Error;
        }
        let found = self.field(expr.id, operand, true);
        self.bindings.substitute(&found, false)
    }

    fn resolve(
        &mut self,
        expr: &IdedExpr,
        call: &CallExpr,
        name: &str,
        function: &CelFunction,
        is_member: bool,
    ) -> CelType {
        let target = call.target.as_deref().filter(|_| is_member);
        let nodes: Vec<&IdedExpr> = target.into_iter().chain(&call.args).collect();
        let args: Vec<CelType> = nodes.iter().map(|node| self.type_of(node)).collect();
        if matches!(name, "_&&_" | "_||_") {
            return self.logic(&nodes, &args);
        }
        let mut result: Option<CelType> = None;
        for overload in function.overloads.iter().filter(|it| it.is_member == is_member) {
            let fresh: Vec<(&str, CelType)> =
                overload.generics.iter().map(|name| (*name, self.new_param())).collect();
            let rename = |name: &str| {
                let found = fresh.iter().find(|(own, _)| *own == name);
                found.map_or(CelType::Dyn, |(_, param)| param.clone())
            };
            let params: Vec<CelType> =
                overload.params.iter().map(|param| param.renamed(&rename)).collect();
            let of = overload.result.renamed(&rename);
            if self.bindings.assign_all(&args, &params) {
                let of = self.bindings.substitute(&of, false);
                result = Some(match result {
                    None => of,
                    Some(before) if before == CelType::Dyn || before == of => before,
                    Some(_) => CelType::Dyn,
                });
            }
        }
        result.unwrap_or_else(|| {
            let shown: Vec<String> =
                args.iter().map(|arg| self.bindings.substitute(arg, true).to_string()).collect();
            let signature = match shown.split_first() {
                Some((target, args)) if is_member => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            let text = format!("found no matching overload for '{name}' applied to '{signature}'");
            self.complain(expr.id, text);
            CelType::Error
        })
    }

    fn logic(&mut self, nodes: &[&IdedExpr], args: &[CelType]) -> CelType {
        let mut result = CelType::Bool;
        for (node, arg) in nodes.iter().zip(args) {
            if !self.bindings.assign(arg, &CelType::Bool) {
                self.complain(node.id, format!("expected type 'bool' but found '{arg}'"));
                result = CelType::Error;
            }
        }
        result
    }

    /// The type of an optional element of a list or map literal. An empty optional is left out.
    fn within_optional(&mut self, node: &IdedExpr, found: CelType) -> CelType {
        let (within, was_optional) = found.unwrapped();
        if !was_optional && *within != CelType::Dyn {
            let text = format!("expected type 'optional_type({within})' but found '{within}'");
            self.complain(node.id, text);
        }
        within.clone()
    }

    /// The common type of the elements so far and the next one.
    fn join(&mut self, before: Option<CelType>, found: CelType) -> CelType {
        let Some(before) = before else { return found };
        if self.bindings.assign(&before, &found) {
            return most_general(&before, &found).clone();
        }
        CelType::Dyn
    }

    fn list(&mut self, list: &ListExpr) -> CelType {
        let mut of = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut found = self.check(element);
            if list.optional_indices.binary_search(&index).is_ok() {
                found = self.within_optional(element, found);
            }
            of = Some(self.join(of, found));
        }
        CelType::list(of.unwrap_or_else(|| self.new_param()))
    }

    fn map(&mut self, map: &MapExpr) -> CelType {
        let mut key = None;
        let mut value = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let found = self.check(&entry.key);
            key = Some(self.join(key, found));
            let mut found = self.check(&entry.value);
            if entry.optional {
                found = self.within_optional(&entry.value, found);
            }
            value = Some(self.join(value, found));
        }
        let key = key.unwrap_or_else(|| self.new_param());
        CelType::map(key, value.unwrap_or_else(|| self.new_param()))
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> CelType {
        let range = self.check(&fold.iter_range);
        let accumulated = self.check(&fold.accu_init);
        let range = self.bindings.substitute(&range, false);
        self.scopes.push(BTreeMap::from([(fold.accu_var.clone(), accumulated.clone())]));
        let element = match &range {
            CelType::List(of) => (**of).clone(),
            CelType::Map(of) => of.0.clone(),
            CelType::Dyn | CelType::Error | CelType::Param(_) => {
                self.bindings.assign(&CelType::Dyn, &range);
                CelType::Dyn
            }
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(fold.iter_range.id, text);
                CelType::Error
            }
        };
        self.scopes.push(BTreeMap::from([(fold.iter_var.clone(), element)]));
        for (part, wanted) in [(&fold.loop_cond, &CelType::Bool), (&fold.loop_step, &accumulated)] {
            let found = self.check(part);
            if !self.bindings.assign(wanted, &found) {
                self.complain(part.id, format!("expected type '{wanted}' but found '{found}'"));
            }
        }
        self.scopes.pop();
        let result = self.check(&fold.result);
        self.scopes.pop();
        self.bindings.substitute(&result, false)
    }

    /// Parity(flux): elements of a list that is written down have one type, and so have keys and values of a map.
    /// Only the arguments of `format` are free.
    fn homogeneous(&mut self, expr: &IdedExpr) {
        match &expr.expr {
            Expr::Call(call) if call.func_name != "format" => {
                for arg in call.target.as_deref().into_iter().chain(&call.args) {
                    self.homogeneous(arg);
                }
            }
            Expr::Select(select) => self.homogeneous(&select.operand),
            Expr::List(list) => {
                let elements: Vec<(&IdedExpr, bool)> = list
                    .elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| {
                        (element, list.optional_indices.binary_search(&index).is_ok())
                    })
                    .collect();
                self.of_one_type(&elements);
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Some(entry),
                    EntryExpr::StructField(_) => None,
                });
                let (keys, values): (Vec<_>, Vec<_>) = entries
                    .map(|entry| ((&entry.key, false), (&entry.value, entry.optional)))
                    .unzip();
                self.of_one_type(&keys);
                self.of_one_type(&values);
            }
            Expr::Comprehension(fold) => {
                for part in [&fold.iter_range, &fold.accu_init, &fold.loop_step, &fold.result] {
                    self.homogeneous(part);
                }
            }
            _ => {}
        }
    }

    fn of_one_type(&mut self, elements: &[(&IdedExpr, bool)]) {
        let mut first: Option<CelType> = None;
        for (element, is_optional) in elements {
            let found = self.bindings.substitute(&self.type_of(element), true);
            let found = if *is_optional { found.unwrapped().0.clone() } else { found };
            match &first {
                Some(first) if *first != found => {
                    let text = format!("expected type '{first}' but found '{found}'");
                    self.complain(element.id, text);
                    break;
                }
                Some(_) => {}
                None => first = Some(found),
            }
        }
        for (element, _) in elements {
            self.homogeneous(element);
        }
    }
}
