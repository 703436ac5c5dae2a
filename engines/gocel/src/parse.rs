//! From text to the syntax tree of the `cel` crate, with errors shown as cel-go shows them.
//!
//! Here: limits, places in the text, the macros of optional values. Elsewhere: types ([`crate::check`]), what is
//! evaluated ([`crate::plan`]).

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SourceInfo,
};
use cel::parser::Parser;

/// Characters of an expression. Source: cel-go's parser.
pub(crate) const MAX_CHARACTERS: usize = 100_000;
/// How deep an expression may nest.
///
/// Differs(cel-go): 250 there; parsing one level takes so much stack that a thread with 2 MiB would not hold it.
pub(crate) const MAX_DEPTH: usize = 64;

/// How many operators may follow one another, such as `a.b + c.d`.
const MAX_CHAIN: usize = 200;

/// A place in the text and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    /// From 1; 0 for one about the whole text.
    pub(crate) line: usize,
    /// Characters before it in the line.
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// A parsed expression.
pub(crate) struct Parsed {
    pub(crate) root: IdedExpr,
    pub(crate) info: SourceInfo,
}

/// Reads an expression.
pub(crate) fn parse(source: &str) -> Result<Parsed, Vec<Complaint>> {
    let complain = |text: String| vec![Complaint { line: 0, column: 0, text }];
    let characters = source.chars().count();
    if characters > MAX_CHARACTERS {
        return Err(complain(format!(
            "expression code point size exceeds limit: size: {characters}, limit {MAX_CHARACTERS}"
        )));
    }
    let too_deep = || complain(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    if is_too_deep(source) {
        return Err(too_deep());
    }
    let parser = Parser::new().enable_optional_syntax(true).max_recursion_depth(MAX_DEPTH as u16);
    let (mut root, info) = parser.parse_with_source_info(source).map_err(|errors| {
        let mut complaints: Vec<Complaint> = errors
            .errors
            .into_iter()
            .map(|error| Complaint {
                line: usize::try_from(error.pos.0).unwrap_or_default(),
                column: usize::try_from(error.pos.1).unwrap_or_default().saturating_sub(1),
                text: error.msg,
            })
            .collect();
        // The tree of a text that ends too early complains once more, in words of its own.
        if complaints.iter().any(|it| it.text.starts_with("Syntax error")) {
            complaints.retain(|it| !it.text.starts_with("Incomplete"));
        }
        complaints.sort();
        complaints
    })?;
    expand(&mut root, 0).map_err(|fault| match fault {
        Unexpandable::TooDeep => too_deep(),
        Unexpandable::NoVariable(id, name) => vec![complaint_at(
            &info,
            source,
            id,
            format!("{name}() variable name must be a simple identifier"),
        )],
    })?;
    Ok(Parsed { root, info })
}

/// Whether a text nests deeper than the parser and the walks over its tree can bear.
///
/// Counted are brackets that are open, and operators that lean on the one before: such a chain makes a tree as deep as
/// it is long. It ends at a logical operator, a comma or a condition. An upper bound is enough: texts that come near it
/// are no expressions of people.
fn is_too_deep(source: &str) -> bool {
    let mut chains = vec![0usize];
    let mut conditions = 0usize;
    let mut quote: Option<char> = None;
    let mut chars = source.chars();
    while let Some(character) = chars.next() {
        let mut chain = chains.pop().unwrap_or_default();
        let mut opened = false;
        match (quote, character) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(mark), _) if mark == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => {
                (chain, opened) = (chain + 1, true);
            }
            (None, ')' | ']' | '}') => chain = chains.pop().unwrap_or_default(),
            (None, '?') => (chain, conditions) = (0, conditions + 1),
            (None, ',' | ':' | '&' | '|') => chain = 0,
            (None, '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!') => chain += 1,
            (None, _) => {}
        }
        chains.push(chain);
        if opened {
            chains.push(0);
        }
        if chains.len() > MAX_DEPTH + 1 || chain > MAX_CHAIN || conditions > MAX_CHAIN {
            return true;
        }
    }
    false
}

enum Unexpandable {
    TooDeep,
    NoVariable(u64, &'static str),
}

/// Replaces `optMap` and `optFlatMap` by what they stand for, and makes sure that the tree may be walked.
fn expand(expr: &mut IdedExpr, depth: usize) -> Result<(), Unexpandable> {
    if depth > MAX_DEPTH + MAX_CHAIN {
        return Err(Unexpandable::TooDeep);
    }
    let next = depth + 1;
    match &mut expr.expr {
        Expr::Call(call) => {
            for arg in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                expand(arg, next)?;
            }
            let name = match (call.func_name.as_str(), call.args.len()) {
                ("optMap", 2) => "optMap",
                ("optFlatMap", 2) => "optFlatMap",
                _ => return Ok(()),
            };
            if let Some(target) = call.target.take() {
                expr.expr = optional_map(expr.id, name, *target, &mut call.args)?;
            }
        }
        Expr::Select(select) => expand(&mut select.operand, next)?,
        Expr::List(list) => {
            for element in &mut list.elements {
                expand(element, next)?;
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    expand(&mut entry.key, next)?;
                    expand(&mut entry.value, next)?;
                }
            }
        }
        Expr::Struct(fields) => {
            for field in &mut fields.entries {
                if let EntryExpr::StructField(field) = &mut field.expr {
                    expand(&mut field.value, next)?;
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
                expand(part, next)?;
            }
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
    Ok(())
}

/// `target.hasValue() ? optional.of(body with the variable as target.value()) : optional.none()`.
fn optional_map(
    id: u64,
    name: &'static str,
    target: IdedExpr,
    args: &mut Vec<IdedExpr>,
) -> Result<Expr, Unexpandable> {
    let (Some(body), Some(variable)) = (args.pop(), args.pop()) else {
        return Err(Unexpandable::NoVariable(id, name));
    };
    let Expr::Ident(variable_name) = variable.expr else {
        return Err(Unexpandable::NoVariable(variable.id, name));
    };
    // New nodes get ids that no node of the text has, and that differ from each other.
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

/// A complaint about a node.
pub(crate) fn complaint_at(info: &SourceInfo, source: &str, id: u64, text: String) -> Complaint {
    let start = info.offset_for(id).map_or(0, |(start, _)| start as usize);
    let (mut line, mut column) = (1, 0);
    for character in source.chars().take(start) {
        if character == '\n' {
            (line, column) = (line + 1, 0);
        } else {
            column += 1;
        }
    }
    Complaint { line, column, text }
}

/// Shows complaints with the lines that they are about. Source: cel-go's `common.Error`.
pub(crate) fn display(source: &str, complaints: &[Complaint]) -> String {
    let shown = complaints.iter().take(100).map(|complaint| {
        let Complaint { line, column, text } = complaint;
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
