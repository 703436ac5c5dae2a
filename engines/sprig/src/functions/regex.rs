//! Regular expressions.
//!
//! Differs(helm 4): bytes that are not UTF-8 are U+FFFD here, in what is found and in what is left.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use golang::Value;
use golang::regexp::{Error, Regexp, quote_meta};
use golang::value::{List, Type};
use gotemplate::{Call, Failure};

use crate::arguments::{Outcome, int, made, text};
use crate::table::{Entry, bounded, plain};

/// How many patterns stay compiled.
const MAX_KEPT: usize = 32;

pub(crate) const ENTRIES: &[Entry] = &[
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

/// The first match; an empty text for none.
fn find(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = compile(call, args)?;
    found(call, &regexp, args)
}

/// The first match; an empty text for none.
fn must_find(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = must_compile(call, args)?;
    found(call, &regexp, args)
}

fn found(call: &mut Call<'_>, regexp: &Regexp, args: &[Value]) -> Outcome {
    let text = String::from_utf8_lossy(text(args, 1));
    let found = regexp.find(&text).unwrap_or_default();
    call.produce(found.len())?;
    Ok(Value::from(found))
}

/// At most so many matches, all of them for a negative number.
fn find_all(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = compile(call, args)?;
    all_found(call, &regexp, args)
}

/// At most so many matches, all of them for a negative number.
fn must_find_all(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = must_compile(call, args)?;
    all_found(call, &regexp, args)
}

fn all_found(call: &mut Call<'_>, regexp: &Regexp, args: &[Value]) -> Outcome {
    let text = String::from_utf8_lossy(text(args, 1));
    strings(call, regexp.find_all(&text, Some(limit(args))))
}

/// Whether a text has a match; no text has one of what is no pattern.
fn is_match(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    match must_match(call, args) {
        Err(Failure::Message(_)) => Ok(Value::Bool(false)),
        outcome => outcome,
    }
}

/// Whether a text has a match.
fn must_match(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let text = String::from_utf8_lossy(text(args, 1));
    Ok(Value::Bool(must_compile(call, args)?.is_match(&text)))
}

/// A text with something in place of all matches, in which `${1}` stands for a group.
fn replace_all(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = compile(call, args)?;
    replaced(call, args, &regexp, Regexp::replace_all)
}

/// A text with something in place of all matches, in which `${1}` stands for a group.
fn must_replace_all(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = must_compile(call, args)?;
    replaced(call, args, &regexp, Regexp::replace_all)
}

/// A text with something in place of all matches.
fn replace_all_literal(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = compile(call, args)?;
    replaced(call, args, &regexp, Regexp::replace_all_literal)
}

/// A text with something in place of all matches.
fn must_replace_all_literal(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = must_compile(call, args)?;
    replaced(call, args, &regexp, Regexp::replace_all_literal)
}

fn replaced(
    call: &mut Call<'_>,
    args: &[Value],
    regexp: &Regexp,
    replace: fn(&Regexp, &str, &str) -> Result<String, Error>,
) -> Outcome {
    let [text, replacement] = [1, 2].map(|at| String::from_utf8_lossy(text(args, at)));
    let result = replace(regexp, &text, &replacement).map_err(|error| error.to_string())?;
    call.produce(result.len())?;
    Ok(Value::from(result))
}

/// The parts of a text between all matches, at most so many; a negative number is no limit.
fn split(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = compile(call, args)?;
    parts(call, &regexp, args)
}

/// The parts of a text between all matches, at most so many; a negative number is no limit.
fn must_split(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let regexp = must_compile(call, args)?;
    parts(call, &regexp, args)
}

fn parts(call: &mut Call<'_>, regexp: &Regexp, args: &[Value]) -> Outcome {
    let text = String::from_utf8_lossy(text(args, 1));
    strings(call, regexp.split(&text, Some(limit(args))))
}

/// A pattern that matches a text alone.
fn quote(args: &[Value]) -> Outcome {
    Ok(Value::from(quote_meta(&String::from_utf8_lossy(text(args, 0)))))
}

/// More matches than this are not kept; a run cannot have so many texts.
const MOST: usize = 16 << 20;

/// How many matches or parts are wanted.
fn limit(args: &[Value]) -> usize {
    usize::try_from(int(args, 2)).map_or(MOST, |limit| limit.min(MOST))
}

/// `[]string`, which is nil when it is empty.
fn strings(call: &mut Call<'_>, texts: Vec<&str>) -> Outcome {
    if texts.is_empty() {
        return Ok(Value::List(List::nil(Type::String)));
    }
    made(call, texts.len())?;
    call.produce(texts.iter().map(|text| text.len()).sum())?;
    Ok(Value::strings(texts))
}

/// The pattern, which comes first; Go panics where it is none.
fn compile(call: &mut Call<'_>, args: &[Value]) -> Result<Arc<Regexp>, Failure> {
    let pattern = pattern(call, args)?;
    compiled(&pattern).map_err(|error| error.as_panic(&pattern).into())
}

/// The pattern, which comes first.
fn must_compile(call: &mut Call<'_>, args: &[Value]) -> Result<Arc<Regexp>, Failure> {
    let pattern = pattern(call, args)?;
    compiled(&pattern).map_err(|error| error.to_string().into())
}

/// A pattern that is ready to be used. The small ones are kept, as charts use the same few again and again.
fn compiled(pattern: &str) -> Result<Arc<Regexp>, Error> {
    static KEPT: Mutex<BTreeMap<String, Arc<Regexp>>> = Mutex::new(BTreeMap::new());
    // Nothing panics while the map is held.
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept().get(pattern) {
        return Ok(Arc::clone(known));
    }
    let regexp = Arc::new(Regexp::new(pattern)?);
    if regexp.is_small() {
        let mut kept = kept();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), Arc::clone(&regexp));
    }
    Ok(regexp)
}

/// The text of the pattern, counted as the work that it makes together with the text that is searched.
fn pattern<'v>(call: &mut Call<'_>, args: &'v [Value]) -> Result<Cow<'v, str>, Failure> {
    let pattern = text(args, 0);
    call.work(50 + pattern.len() * 20 + text(args, 1).len() / 16)?;
    Ok(String::from_utf8_lossy(pattern))
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
