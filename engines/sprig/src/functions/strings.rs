//! The template functions for strings: searching, trimming and replacing.
//!
//! Elsewhere: words and upper or lower case (`word_case.rs`), lines and lengths (`text_layout.rs`), splitting
//! (`string_parts.rs`), converting values to strings (`value_to_string.rs`).

use golang::GoRuntimeValue;
use golang::unicode::{decode, runes, to_lower, to_upper};
use gotemplate::FunctionCallContext;
use memchr::memmem;

use crate::arguments::{SprigResult, int, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("contains", "func(string, string) bool", contains),
    plain("hasPrefix", "func(string, string) bool", has_prefix),
    plain("hasSuffix", "func(string, string) bool", has_suffix),
    plain("hello", "func() string", hello),
    plain("lower", "func(string) string", lower),
    plain("plural", "func(string, string, int) string", plural),
    bounded("replace", "func(string, string, string) string", replace),
    plain("trim", "func(string) string", trim),
    plain("trimAll", "func(string, string) string", trim_all),
    plain("trimPrefix", "func(string, string) string", trim_prefix),
    plain("trimSuffix", "func(string, string) string", trim_suffix),
    plain("trimall", "func(string, string) string", trim_all),
    plain("upper", "func(string) string", upper),
];

/// Whether the first text is anywhere in the second.
fn contains(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(memmem::find(text(args, 1), text(args, 0)).is_some()))
}

/// Whether the second text begins with the first.
fn has_prefix(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(text(args, 1).starts_with(text(args, 0))))
}

/// Whether the second text ends with the first.
fn has_suffix(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(text(args, 1).ends_with(text(args, 0))))
}

/// A greeting: the function `hello` of templates, without arguments.
fn hello(_: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::from("Hello!"))
}

/// Converts a text to lower case.
fn lower(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(mapped(text(args, 0), to_lower))
}

/// Converts a text to upper case.
fn upper(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(mapped(text(args, 0), to_upper))
}

fn mapped(text: &[u8], map: fn(char) -> char) -> GoRuntimeValue {
    if text.is_ascii() {
        let ascii = |byte: &u8| u8::try_from(map(char::from(*byte))).unwrap_or(*byte);
        return GoRuntimeValue::string(text.iter().map(ascii).collect::<Vec<u8>>());
    }
    GoRuntimeValue::from(runes(text).map(map).collect::<String>())
}

/// The first text if the number is one, otherwise the second text.
fn plural(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(text(args, usize::from(int(args, 2) != 1))))
}

/// Replaces the first text by the second in the third. An empty first text matches around every character.
fn replace(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let old = text(args, 0);
    let new = text(args, 1);
    let source = text(args, 2);
    call.work(source.len() / 16)?;
    let mut replaced = Vec::new();
    let mut rest = source;
    let mut add = |part: &[u8]| {
        call.work(1)?;
        call.produce(part.len())?;
        replaced.extend_from_slice(part);
        Ok::<_, gotemplate::TemplateFunctionError>(())
    };
    if old.is_empty() {
        add(new)?;
        while !rest.is_empty() {
            let (character, after) = rest.split_at(decode(rest).1);
            add(character)?;
            add(new)?;
            rest = after;
        }
    } else {
        let mut from = 0;
        for at in memmem::find_iter(source, old) {
            add(&source[from..at])?;
            add(new)?;
            from = at + old.len();
        }
        add(&source[from..])?;
    }
    Ok(GoRuntimeValue::string(replaced))
}

/// Removes white space at both ends.
fn trim(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(trimmed(text(args, 0), char::is_whitespace)))
}

/// Removes the characters of the first text from both ends of the second.
fn trim_all(args: &[GoRuntimeValue]) -> SprigResult {
    let mut set: Vec<char> = runes(text(args, 0)).collect();
    set.sort_unstable();
    set.dedup();
    let is_cut = |character| set.binary_search(&character).is_ok();
    Ok(GoRuntimeValue::string(trimmed(text(args, 1), is_cut)))
}

/// Removes the first text from the beginning of the second.
fn trim_prefix(args: &[GoRuntimeValue]) -> SprigResult {
    let whole = text(args, 1);
    Ok(GoRuntimeValue::string(whole.strip_prefix(text(args, 0)).unwrap_or(whole)))
}

/// Removes the first text from the end of the second.
fn trim_suffix(args: &[GoRuntimeValue]) -> SprigResult {
    let whole = text(args, 1);
    Ok(GoRuntimeValue::string(whole.strip_suffix(text(args, 0)).unwrap_or(whole)))
}

fn trimmed(mut text: &[u8], is_cut: impl Fn(char) -> bool) -> &[u8] {
    while !text.is_empty() {
        let (character, length) = decode(text);
        if !is_cut(character) {
            break;
        }
        text = &text[length..];
    }
    while !text.is_empty() {
        let (character, length) = decode_last(text);
        if !is_cut(character) {
            break;
        }
        text = &text[..text.len() - length];
    }
    text
}

/// The last character, and its length in bytes.
fn decode_last(text: &[u8]) -> (char, usize) {
    let most = text.len().min(4);
    let tails = (1..=most).rev().map(|length| (length, decode(&text[text.len() - length..])));
    let whole = tails.filter(|(length, (_, taken))| length == taken).map(|(_, decoded)| decoded);
    whole.max_by_key(|(_, taken)| *taken).unwrap_or((char::REPLACEMENT_CHARACTER, 1))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn strings_are_searched_and_cut() {
        check(&[
            (
                r#"{{ contains "ar" "garden" }} {{ contains "" "" }} {{ contains "a" "" }}"#,
                "true true false",
            ),
            (r#"{{ hasPrefix "a" "abc" }} {{ hasSuffix "c" "abc" }}"#, "true true"),
            (r#"{{ hello }}"#, "Hello!"),
            (r#"{{ lower "ÀBİ" }} {{ upper "aßé" }}"#, "àbi AßÉ"),
            (r#"{{ upper "a\xff" }}"#, "A\u{fffd}"),
            (r#"{{ plural "one" "many" 1 }} {{ plural "one" "many" 0 }}"#, "one many"),
            (r#"{{ replace "a" "bb" "aca" }} {{ replace "" "-" "aé" }}"#, "bbcbb -a-é-"),
            (r#"[{{ trim "\u2003 a b\n" }}]"#, "[a b]"),
            (r#"{{ trimAll "$é" "é$5$é" }} {{ trimall "-" "--a-" }}"#, "5 a"),
            (r#"{{ trimPrefix "a" "ab" }} {{ trimSuffix "-" "a--" }}"#, "b a-"),
            (r#"{{ upper nil }}"#, "error: cannot assign nil to string"),
        ]);
    }
}
