//! Reads a text into the syntax tree of the `cel` crate, and shows errors as cel-go shows them.
//!
//! Here: positions in the text, and the macros of optional values. Elsewhere: the limit of nesting
//! ([`crate::syntax_depth`]), types ([`crate::type_check`]), and the plan ([`crate::evaluation_plan`]).

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SourceInfo,
};
use cel::parser::Parser;

use crate::syntax_depth::{self, MAX_DEPTH, UnreadableExpression};

/// How many characters an expression may have. Source: cel-go's parser.
pub(crate) const MAX_CHARACTERS: usize = 100_000;
/// How many nodes a syntax tree may have after `optMap` and `optFlatMap` are expanded. Each of these macros repeats its
/// target.
///
/// Differs(cel-go): cel-go has no such limit, and forty of these macros in a row end its process.
const MAX_NODES: usize = 500_000;

/// A syntax error, with its position in the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CelSyntaxProblem {
    /// The line, counted from 1. It is 0 for an error about the whole text.
    pub(crate) line: usize,
    /// How many characters precede the position in its line.
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// A parsed expression: its syntax tree, and the places of its parts in the text.
pub(crate) struct ParsedExpression {
    pub(crate) root: IdedExpr,
    pub(crate) info: SourceInfo,
}

/// Reads the text of an expression. The error lists everything that is wrong with the syntax.
pub(crate) fn parse(source: &str) -> Result<ParsedExpression, Vec<CelSyntaxProblem>> {
    let complain = |text: String| vec![CelSyntaxProblem { line: 0, column: 0, text }];
    let characters = source.chars().count();
    if characters > MAX_CHARACTERS {
        return Err(complain(format!(
            "expression code point size exceeds limit: size: {characters}, limit {MAX_CHARACTERS}"
        )));
    }
    syntax_depth::check(source).map_err(|fault| match fault {
        UnreadableExpression::TooDeep => {
            complain(format!("expression recursion limit exceeded: {MAX_DEPTH}"))
        }
        UnreadableExpression::NoToken(at) => vec![no_token(source, at)],
    })?;
    let parser = Parser::new().enable_optional_syntax(true).max_recursion_depth(MAX_DEPTH as u16);
    let (mut root, info) = parser.parse_with_source_info(source).map_err(|errors| {
        let mut complaints: Vec<CelSyntaxProblem> = errors
            .errors
            .into_iter()
            .map(|error| CelSyntaxProblem {
                line: usize::try_from(error.pos.0).unwrap_or_default(),
                column: usize::try_from(error.pos.1).unwrap_or_default().saturating_sub(1),
                text: error.msg,
            })
            .collect();
        // For a text that ends too early, the tree reports a second error in other words.
        if complaints.iter().any(|it| it.text.starts_with("Syntax error")) {
            complaints.retain(|it| !it.text.starts_with("Incomplete"));
        }
        complaints.sort();
        complaints
    })?;
    expand(&mut root).map_err(|fault| match fault {
        MacroExpansionError::TooLarge => complain(
            "optMap and optFlatMap make the expression too large; use fewer of them in a row"
                .to_owned(),
        ),
        MacroExpansionError::NoVariable(id, name) => vec![complaint_at(
            &info,
            source,
            id,
            format!("{name}() variable name must be a simple identifier"),
        )],
    })?;
    Ok(ParsedExpression { root, info })
}

/// The error for a position at which no token begins.
fn no_token(source: &str, at: usize) -> CelSyntaxProblem {
    let (before, rest) = source.split_at_checked(at).unwrap_or((source, ""));
    let shown: String = rest.chars().take_while(|it| *it != '\n').take(30).collect();
    CelSyntaxProblem {
        line: before.matches('\n').count() + 1,
        column: before.rsplit('\n').next().unwrap_or_default().chars().count(),
        text: format!("Syntax error: token recognition error at: '{shown}'"),
    }
}

enum MacroExpansionError {
    TooLarge,
    NoVariable(u64, &'static str),
}

/// Expands `optMap` and `optFlatMap`. Returns the number of nodes after that.
fn expand(expr: &mut IdedExpr) -> Result<usize, MacroExpansionError> {
    let mut nodes = 1usize;
    let mut within = |expr: &mut IdedExpr| -> Result<usize, MacroExpansionError> {
        let own = expand(expr)?;
        nodes += own;
        if nodes > MAX_NODES { Err(MacroExpansionError::TooLarge) } else { Ok(own) }
    };
    match &mut expr.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut().map(&mut within).transpose()?.unwrap_or(0);
            for arg in &mut call.args {
                within(arg)?;
            }
            let name = match (call.func_name.as_str(), call.args.len()) {
                ("optMap", 2) => "optMap",
                ("optFlatMap", 2) => "optFlatMap",
                _ => return Ok(nodes),
            };
            if let Some(of) = call.target.take() {
                // The target is repeated, and ten nodes are added around it.
                nodes += target + 10;
                if nodes > MAX_NODES {
                    return Err(MacroExpansionError::TooLarge);
                }
                expr.expr = optional_map(expr.id, name, *of, &mut call.args)?;
            }
        }
        Expr::Select(select) => {
            within(&mut select.operand)?;
        }
        Expr::List(list) => {
            for element in &mut list.elements {
                within(element)?;
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    within(&mut entry.key)?;
                    within(&mut entry.value)?;
                }
            }
        }
        Expr::Struct(fields) => {
            for field in &mut fields.entries {
                if let EntryExpr::StructField(field) = &mut field.expr {
                    within(&mut field.value)?;
                }
            }
        }
        Expr::Comprehension(fold) => {
            let fold = &mut **fold;
            for part in [
                &mut fold.iter_range,
                &mut fold.accu_init,
                &mut fold.loop_cond,
                &mut fold.loop_step,
                &mut fold.result,
            ] {
                within(part)?;
            }
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
    Ok(nodes)
}

/// The expansion of `optMap`: `target.hasValue() ? optional.of(body with the variable as target.value()) :
/// optional.none()`.
fn optional_map(
    id: u64,
    name: &'static str,
    target: IdedExpr,
    args: &mut Vec<IdedExpr>,
) -> Result<Expr, MacroExpansionError> {
    let (Some(body), Some(variable)) = (args.pop(), args.pop()) else {
        return Err(MacroExpansionError::NoVariable(id, name));
    };
    let Expr::Ident(variable_name) = variable.expr else {
        return Err(MacroExpansionError::NoVariable(variable.id, name));
    };
    // The new nodes get ids that differ from each other and from those of the text.
    let mut fresh = id.wrapping_add(1 << 32);
    let mut node = |expr: Expr| {
        fresh = fresh.wrapping_add(1 << 32);
        IdedExpr { id: fresh, expr }
    };
    let call = |name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>| {
        Expr::Call(CallExpr { func_name: name.to_owned(), target: target.map(Box::new), args })
    };
    let has_value = node(call("hasValue", Some(target.clone()), Vec::new()));
    let value = node(call("value", Some(target), Vec::new()));
    let fold = Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: variable_name.clone(),
        accu_init: value,
        loop_cond: node(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: node(Expr::Ident(variable_name)),
        result: body,
    }));
    let fold = node(fold);
    let present = match name {
        "optMap" => node(call("optional.of", None, vec![fold])),
        _ => fold,
    };
    let absent = node(call("optional.none", None, Vec::new()));
    Ok(call("_?_:_", None, vec![has_value, present, absent]))
}

/// An error at the position of a node.
pub(crate) fn complaint_at(
    info: &SourceInfo,
    source: &str,
    id: u64,
    text: String,
) -> CelSyntaxProblem {
    let start = info.offset_for(id).map_or(0, |(start, _)| start as usize);
    let mut line = 1;
    let mut column = 0;
    for character in source.chars().take(start) {
        if character == '\n' {
            (line, column) = (line + 1, 0);
        } else {
            column += 1;
        }
    }
    CelSyntaxProblem { line, column, text }
}

/// Shows errors together with their lines. Source: cel-go's `common.Error`.
pub(crate) fn display(source: &str, complaints: &[CelSyntaxProblem]) -> String {
    let shown = complaints.iter().take(100).map(|complaint| {
        let CelSyntaxProblem { line, column, text } = complaint;
        if *line == 0 {
            return format!("ERROR: <input>:-1:0: {text}");
        }
        let mut shown = format!("ERROR: <input>:{line}:{}: {text}", column + 1);
        let Some(snippet) = line.checked_sub(1).and_then(|line| source.split('\n').nth(line))
        else {
            return shown;
        };
        if snippet.len() > 16384 {
            return shown;
        }
        let snippet = snippet.replace('\t', " ");
        let mut mark = String::new();
        let mut characters = snippet.chars();
        for character in characters.by_ref().take(*column) {
            mark.push(if character.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
        }
        let is_wide = characters.next().is_some_and(|character| character.len_utf8() > 1);
        mark.push(if is_wide { '\u{ff3e}' } else { '^' });
        shown.push_str(&format!("\n | {snippet}\n | {mark}"));
        shown
    });
    shown.collect::<Vec<_>>().join("\n")
}
