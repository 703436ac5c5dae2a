//! The template functions for regular expressions.
//!
//! Differs(helm 4): bytes that are not UTF-8 become U+FFFD here, in matches and in the remaining text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::regexp::{Error, GoRegexp, quote_meta};
use golang::value::{GoSlice, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError};
use parking_lot::Mutex;

use crate::arguments::{SprigResult, TEXT_OVERHEAD_BYTES, int, made, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};

/// The most compiled patterns that are cached.
const MAX_KEPT: usize = 32;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("mustRegexFind", "func(string, string) (string, error)", must_find),
    bounded("mustRegexFindAll", "func(string, string, int) ([]string, error)", must_find_all),
    bounded("mustRegexMatch", "func(string, string) (bool, error)", must_match),
    bounded(
        "mustRegexReplaceAll",
        "func(string, string, string) (string, error)",
        must_replace_all,
    ),
    bounded(
        "mustRegexReplaceAllLiteral",
        "func(string, string, string) (string, error)",
        must_replace_all_literal,
    ),
    bounded("mustRegexSplit", "func(string, string, int) ([]string, error)", must_split),
    bounded("regexFind", "func(string, string) string", find),
    bounded("regexFindAll", "func(string, string, int) []string", find_all),
    bounded("regexMatch", "func(string, string) bool", is_match),
    plain("regexQuoteMeta", "func(string) string", quote),
    bounded("regexReplaceAll", "func(string, string, string) string", replace_all),
    bounded("regexReplaceAllLiteral", "func(string, string, string) string", replace_all_literal),
    bounded("regexSplit", "func(string, string, int) []string", split),
];

/// The first match; an empty text if there is none.
fn find(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = compile(call, args)?;
    found(call, &regexp, args)
}

/// The first match; an empty text if there is none.
fn must_find(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = must_compile(call, args)?;
    found(call, &regexp, args)
}

fn found(
    call: &mut FunctionCallContext<'_>,
    regexp: &GoRegexp,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let text = searched(call, regexp, text(args, 1))?;
    let found = regexp.find(&text).unwrap_or_default();
    call.produce(found.len() + TEXT_OVERHEAD_BYTES)?;
    Ok(GoRuntimeValue::from(found))
}

/// All matches up to a limit. A negative number means no limit.
fn find_all(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = compile(call, args)?;
    all_found(call, &regexp, args)
}

/// All matches up to a limit. A negative number means no limit.
fn must_find_all(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = must_compile(call, args)?;
    all_found(call, &regexp, args)
}

fn all_found(
    call: &mut FunctionCallContext<'_>,
    regexp: &GoRegexp,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let text = searched(call, regexp, text(args, 1))?;
    let found = regexp.find_all_while(&text, Some(limit(args)), |left| again(call, left))?;
    strings(call, found)
}

/// Whether a text has a match; false if the pattern is not valid.
fn is_match(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    match must_match(call, args) {
        Err(TemplateFunctionError::Message(_)) => Ok(GoRuntimeValue::Bool(false)),
        outcome => outcome,
    }
}

/// Whether a text has a match.
fn must_match(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = must_compile(call, args)?;
    let text = searched(call, &regexp, text(args, 1))?;
    Ok(GoRuntimeValue::Bool(regexp.is_match(&text)))
}

/// Replaces all matches in a text. In the replacement, `${1}` stands for a group.
fn replace_all(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = compile(call, args)?;
    replaced(call, args, &regexp, false)
}

/// Replaces all matches in a text. In the replacement, `${1}` stands for a group.
fn must_replace_all(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = must_compile(call, args)?;
    replaced(call, args, &regexp, false)
}

/// A text with something in place of all matches.
fn replace_all_literal(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = compile(call, args)?;
    replaced(call, args, &regexp, true)
}

/// A text with something in place of all matches.
fn must_replace_all_literal(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let regexp = must_compile(call, args)?;
    replaced(call, args, &regexp, true)
}

fn replaced(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
    regexp: &GoRegexp,
    is_literal: bool,
) -> SprigResult {
    let source = searched(call, regexp, text(args, 1))?;
    let replacement = String::from_utf8_lossy(text(args, 2));
    let mut made = 0;
    let next = |left: usize, length: usize| -> Result<(), ReplacementFailure> {
        call.produce(length - std::mem::replace(&mut made, length))?;
        Ok(again(call, left)?)
    };
    let result = match is_literal {
        true => regexp.replace_all_literal_while(&source, &replacement, next),
        false => regexp.replace_all_while(&source, &replacement, next),
    };
    let result = result.map_err(|ReplacementFailure(failure)| failure)?;
    call.produce(result.len() - made + TEXT_OVERHEAD_BYTES)?;
    Ok(GoRuntimeValue::from(result))
}

/// The error with which a replacement by a regular expression failed.
struct ReplacementFailure(TemplateFunctionError);

impl From<TemplateFunctionError> for ReplacementFailure {
    fn from(failure: TemplateFunctionError) -> Self {
        Self(failure)
    }
}

impl From<Error> for ReplacementFailure {
    fn from(error: Error) -> Self {
        Self(error.to_string().into())
    }
}

/// Splits a text at all matches into a limited number of parts. A negative number means no limit.
fn split(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = compile(call, args)?;
    parts(call, &regexp, args)
}

/// Splits a text at all matches into a limited number of parts. A negative number means no limit.
fn must_split(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let regexp = must_compile(call, args)?;
    parts(call, &regexp, args)
}

fn parts(
    call: &mut FunctionCallContext<'_>,
    regexp: &GoRegexp,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let text = searched(call, regexp, text(args, 1))?;
    let parts = regexp.split_while(&text, Some(limit(args)), |left| again(call, left))?;
    strings(call, parts)
}

/// A pattern that matches a text alone.
fn quote(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::from(quote_meta(&String::from_utf8_lossy(text(args, 0)))))
}

/// The most matches that are kept. A run cannot hold more strings.
const MAX_REGEX_MATCHES: usize = 16 << 20;

/// The limit on matches or parts.
fn limit(args: &[GoRuntimeValue]) -> usize {
    usize::try_from(int(args, 2)).map_or(MAX_REGEX_MATCHES, |limit| limit.min(MAX_REGEX_MATCHES))
}

/// A `[]string`, which is nil if it is empty.
fn strings(call: &mut FunctionCallContext<'_>, strings: Vec<&str>) -> SprigResult {
    if strings.is_empty() {
        return Ok(GoRuntimeValue::List(GoSlice::nil(GoType::String)));
    }
    made(call, strings.len())?;
    call.produce(strings.iter().map(|text| text.len() + TEXT_OVERHEAD_BYTES).sum())?;
    Ok(GoRuntimeValue::strings(strings))
}

/// Compiles the pattern, which is the first argument. If it is not valid, the error is Go's panic.
fn compile(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<Arc<GoRegexp>, TemplateFunctionError> {
    let pattern = pattern(call, args)?;
    let regexp = compiled(&pattern).map_err(|error| error.as_panic(&pattern))?;
    weighed(call, regexp)
}

/// The pattern, which comes first.
fn must_compile(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<Arc<GoRegexp>, TemplateFunctionError> {
    let pattern = pattern(call, args)?;
    let regexp = compiled(&pattern).map_err(|error| error.to_string())?;
    weighed(call, regexp)
}

/// A large pattern is compiled each time.
fn weighed(
    call: &mut FunctionCallContext<'_>,
    regexp: Arc<GoRegexp>,
) -> Result<Arc<GoRegexp>, TemplateFunctionError> {
    if !regexp.is_small() {
        call.look()?;
        call.work(regexp.work())?;
    }
    Ok(regexp)
}

/// A compiled pattern. Small patterns are cached, because charts use the same few repeatedly.
fn compiled(pattern: &str) -> Result<Arc<GoRegexp>, Error> {
    static KEPT: Mutex<BTreeMap<String, Arc<GoRegexp>>> = Mutex::new(BTreeMap::new());
    // No code panics while the lock is held.
    let kept = || KEPT.lock();
    if let Some(known) = kept().get(pattern) {
        return Ok(Arc::clone(known));
    }
    let regexp = Arc::new(GoRegexp::new(pattern)?);
    if regexp.is_small() {
        let mut kept = kept();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), Arc::clone(&regexp));
    }
    Ok(regexp)
}

/// The text of the pattern. The work for compiling it is counted.
fn pattern<'v>(
    call: &mut FunctionCallContext<'_>,
    args: &'v [GoRuntimeValue],
) -> Result<Cow<'v, str>, TemplateFunctionError> {
    let pattern = text(args, 0);
    call.work(50 + pattern.len() * 20)?;
    Ok(String::from_utf8_lossy(pattern))
}

/// The text to search. Its cost is the number of pattern states for each byte, which is the worst case, because a search cannot
/// be interrupted.
fn searched<'v>(
    call: &mut FunctionCallContext<'_>,
    regexp: &GoRegexp,
    text: &'v [u8],
) -> Result<Cow<'v, str>, TemplateFunctionError> {
    call.look()?;
    call.work(text.len().saturating_mul(regexp.work()) / 2)?;
    // A byte that is not text is replaced by up to three bytes.
    call.has_room(text.len().saturating_mul(3))?;
    Ok(String::from_utf8_lossy(text))
}

/// Before another search in the rest of a text.
fn again(call: &mut FunctionCallContext<'_>, left: usize) -> Result<(), TemplateFunctionError> {
    call.look()?;
    call.work(1 + left / 1024)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn patterns_are_found_and_replaced() {
        check(&[
            (
                r#"{{ regexMatch "^a.*z$" "abcz" }} {{ regexMatch "(" "a" }} {{ mustRegexMatch "b" "abc" }}"#,
                "true false true",
            ),
            (r#"{{ regexFind "[0-9]+" "ab12" }}|{{ mustRegexFind "x" "a" }}|"#, "12||"),
            (
                r#"{{ regexFindAll "[a-z]+" "ab1cd2" -1 }} {{ mustRegexFindAll "[a-z]" "ab" 1 }} {{ regexFindAll "x" "a" -1 | toStrings | len }}"#,
                "[ab cd] [a] 0",
            ),
            (
                r#"{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }} {{ mustRegexReplaceAll "a(x*)b" "-ab-" "$1W" }}"#,
                "-W-xxW- --",
            ),
            (
                r#"{{ regexReplaceAllLiteral "a(x*)b" "-ab-" "${1}" }} {{ mustRegexReplaceAllLiteral "a" "a" "$" }}"#,
                "-${1}- $",
            ),
            (
                r#"{{ regexSplit "z+" "pizza" -1 }} {{ mustRegexSplit "," "a,b,c" 2 }} {{ regexQuoteMeta "1.2" }}"#,
                r"[pi a] [a b,c] 1\.2",
            ),
        ]);
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_go_s_words() {
        let reason = "error parsing regexp: missing closing ): `(`";
        check(&[
            (
                r#"{{ regexFind "(" "x" }}"#,
                &format!("error: error calling regexFind: regexp: Compile(`(`): {reason}"),
            ),
            (
                r#"{{ mustRegexSplit "(" "x" 1 }}"#,
                &format!("error: error calling mustRegexSplit: {reason}"),
            ),
        ]);
    }
}
