//! The effects of Go's detour: Go turns a value into JSON and reads that JSON as YAML.
//!
//! Here: the values that Go's YAML reader refuses, and the change of a text with U+0085. All other texts survive the
//! detour unchanged, so this crate does not take it. Elsewhere: writing floats (`number`), writing (`super`), and
//! reading YAML (the crate's root).

use std::borrow::Cow;
use std::vec;

use super::emittable_value::{EmittableValue, EmittableView};
use crate::go_format;

/// How deep collections may be nested.
pub(super) const MAX_DEPTH: usize = 10_000;
/// How many characters a key may have in JSON, quotes included.
const MAX_KEY: usize = 1_024;
/// The only line break of YAML 1.1 that JSON does not escape.
const NEXT_LINE: char = '\u{85}';

/// Why Go cannot read its own JSON back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonRereadError {
    #[error("yaml: control characters are not allowed")]
    ControlCharacter,
    #[error("yaml: {}exceeded max depth of {MAX_DEPTH}", place(*.0))]
    Depth(usize),
    /// A key is too long or has a line break, so the reader does not expect its colon.
    #[error("yaml: {}did not find expected ',' or '}}'", place(*.0))]
    Key(usize),
    #[error("yaml: {}found unexpected document indicator", place(*.0))]
    DocumentIndicator(usize),
    /// A limit of this crate. Go has none.
    #[error("yaml: the text is longer than {} MiB", super::MAX_OUTPUT >> 20)]
    Length,
    /// JSON cannot represent the value.
    #[error("{0}")]
    Value(String),
}

impl JsonRereadError {
    /// The error for a float that is infinite or not a number.
    pub(super) fn not_json(float: f64) -> Self {
        Self::Value(format!("json: unsupported value: {}", go_format::float64(float)))
    }
}

/// The words by which Go names a line. The first line is not named.
fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// Finds the reason, if any, for which Go refuses to read the JSON of this value.
///
/// Differs(go-yaml v2): a forbidden character counts before everything else, wherever it stands;
/// Go's reader runs ahead by half a KiB only, so a fault long before the character comes first.
pub(super) fn check<T: EmittableValue>(value: &T) -> Result<(), JsonRereadError> {
    let mut reader = JsonRereader { line: 0, refusal: None };
    let mut open: Vec<RemainingJsonItems<T>> = Vec::new();
    reader.node(value, &mut open)?;
    while let Some(innermost) = open.last_mut() {
        let next = match innermost {
            RemainingJsonItems::Items(items) => items.next(),
            RemainingJsonItems::Entries(entries) => match entries.next() {
                Some((key, value)) => {
                    reader.key(key.as_ref())?;
                    Some(value)
                }
                None => None,
            },
        };
        match next {
            Some(value) => reader.node(&value, &mut open)?,
            None => drop(open.pop()),
        }
        if open.len() > MAX_DEPTH {
            // Only a line that is not the first gets counted from one.
            let line = if reader.line == 0 { 0 } else { reader.line + 1 };
            reader.refuse(JsonRereadError::Depth(line));
            // What lies deeper may refuse everything without end.
            if open.len() > 2 * MAX_DEPTH {
                break;
            }
        }
    }
    reader.refusal.map_or(Ok(()), Err)
}

/// Whether a string may be refused or changed by the detour.
pub(super) fn is_suspicious(text: &str) -> bool {
    // The first bytes of all characters for which that is true.
    text.bytes().any(|byte| matches!(byte, 0x7f | 0xc2 | 0xef))
}

/// Whether a key may be refused.
pub(super) fn is_suspicious_key(key: &str) -> bool {
    is_suspicious(key) || may_be_long(key)
}

/// The rest of a collection.
enum RemainingJsonItems<T: EmittableValue> {
    Items(vec::IntoIter<T>),
    Entries(vec::IntoIter<(T::Text, T)>),
}

/// The part of Go's YAML reader that JSON can affect.
struct JsonRereader {
    /// The number of line breaks so far.
    line: usize,
    /// The first refusal that is not about a character.
    refusal: Option<JsonRereadError>,
}

impl JsonRereader {
    fn refuse(&mut self, refusal: JsonRereadError) {
        self.refusal.get_or_insert(refusal);
    }

    fn node<T: EmittableValue>(
        &mut self,
        value: &T,
        open: &mut Vec<RemainingJsonItems<T>>,
    ) -> Result<(), JsonRereadError> {
        match value.view() {
            EmittableView::Text(text) | EmittableView::Time(text) => self.string(text.as_ref())?,
            EmittableView::List(items) => open.push(RemainingJsonItems::Items(items.into_iter())),
            // JSON has its keys in this order.
            EmittableView::Map(mut entries) => {
                entries.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
                open.push(RemainingJsonItems::Entries(entries.into_iter()));
            }
            EmittableView::Fields(entries) => {
                open.push(RemainingJsonItems::Entries(entries.into_iter()));
            }
            EmittableView::Refused(reason) => return Err(JsonRereadError::Value(reason)),
            EmittableView::Float(float) if !float.is_finite() => {
                return Err(JsonRereadError::not_json(float));
            }
            EmittableView::Null
            | EmittableView::Bool(_)
            | EmittableView::Int(_)
            | EmittableView::Uint(_)
            | EmittableView::Float(_)
            | EmittableView::Binary(_) => {}
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), JsonRereadError> {
        if text.chars().any(is_forbidden) {
            return Err(JsonRereadError::ControlCharacter);
        }
        let mut lines = text.split(NEXT_LINE).skip(1).peekable();
        while let Some(line) = lines.next() {
            self.line += 1;
            let marker = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
            // On the last line a quote may follow, which makes it text.
            let is_broken = lines.peek().is_some();
            if marker.is_some_and(|rest| rest.starts_with(' ') || rest.is_empty() && is_broken) {
                self.refuse(JsonRereadError::DocumentIndicator(self.line + 1));
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &str) -> Result<(), JsonRereadError> {
        let first = self.line;
        self.string(key)?;
        let is_long = may_be_long(key) && 2 + key.chars().map(json_length).sum::<usize>() > MAX_KEY;
        if self.line > first || is_long {
            self.refuse(JsonRereadError::Key(self.line));
        }
        Ok(())
    }
}

/// Whether a key may be too long. No character takes more than six characters in JSON.
fn may_be_long(key: &str) -> bool {
    key.len() > MAX_KEY / 6 - 1
}

/// Whether JSON does not escape a character although YAML forbids it.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

/// How many characters Go's JSON takes for this one.
fn json_length(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '<' | '>' | '&' | '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => 6,
        _ => 1,
    }
}

/// A string as YAML reads it from JSON. Lines that U+0085 separates are joined.
pub(super) fn folded(text: &str) -> Cow<'_, str> {
    let mut lines = text.split(NEXT_LINE).peekable();
    let first = lines.next().unwrap_or_default();
    if lines.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = first.trim_end_matches(' ').to_owned();
    let mut breaks = 0;
    while let Some(line) = lines.next() {
        breaks += 1;
        let is_last = lines.peek().is_none();
        let line = line.trim_start_matches(' ');
        let line = if is_last { line } else { line.trim_end_matches(' ') };
        if line.is_empty() && !is_last {
            continue;
        }
        // One break reads as a space, and each further one as a line feed.
        match breaks {
            1 => out.push(' '),
            _ => out.extend(std::iter::repeat_n('\n', breaks - 1)),
        }
        breaks = 0;
        out.push_str(line);
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check_refusal(value: &Value, wanted: &str) {
        let text = check(&value).map_or_else(|refusal| refusal.to_string(), |()| "fine".to_owned());
        assert_eq!(text, wanted);
    }

    #[test]
    fn text_broken_by_next_lines_is_folded() {
        let check = |text: &str, wanted: &str| assert_eq!(folded(text), wanted);
        check("x  \u{85}  y", "x y");
        check("x \u{85}\u{85}  \u{85} y \u{85}", "x\n\ny ");
        check(" \u{85} ", " ");
        check("\u{85}\u{85}", "\n");
        check("\n\u{85}\tx ", "\n \tx ");
        assert!(matches!(folded("x \u{2028} y"), Cow::Borrowed(_)));
    }

    #[test]
    fn characters_that_yaml_forbids_are_refused_before_all_else() {
        let wanted = "yaml: control characters are not allowed";
        check_refusal(&json!({ "a\u{85}": 1, "b": ["\u{7f}"] }), wanted);
        check_refusal(&json!({ "\u{9f}": 1 }), wanted);
        check_refusal(&json!("\u{ffff}"), wanted);
        check_refusal(&json!("\u{0}\u{1f}\u{a0}\u{feff}\u{1ffff}"), "fine");
    }

    #[test]
    fn a_key_may_have_1024_characters_in_json() {
        let wanted = "yaml: did not find expected ',' or '}'";
        check_refusal(&json!({ "k".repeat(1022): 1 }), "fine");
        check_refusal(&json!({ "é".repeat(1022): 1 }), "fine");
        check_refusal(&json!({ "k".repeat(1023): 1 }), wanted);
        check_refusal(&json!({ "<".repeat(170): 1 }), "fine");
        check_refusal(&json!({ "<".repeat(171): 1 }), wanted);
        check_refusal(&json!({ "\n".repeat(512): 1 }), wanted);
    }

    #[test]
    fn refusals_name_the_line_as_go_does() {
        let key = "did not find expected ',' or '}'";
        let marker = "found unexpected document indicator";
        check_refusal(&json!({ "b\u{85}": 1 }), &format!("yaml: line 1: {key}"));
        check_refusal(
            &json!({ "a": "\u{85}\u{85}", "b\u{85}": 1 }),
            &format!("yaml: line 3: {key}"),
        );
        check_refusal(
            &json!({ "a": "\u{85}--- ", "b\u{85}": 1 }),
            &format!("yaml: line 2: {marker}"),
        );
        check_refusal(&json!("x\u{85} \u{85}...\u{85}"), &format!("yaml: line 3: {marker}"));
        check_refusal(&json!(["x\u{85}---", "--- \u{85}---\t"]), "fine");
    }
}
