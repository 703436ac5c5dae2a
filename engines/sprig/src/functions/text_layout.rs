//! The template functions for lines and lengths of strings: indenting, wrapping, repeating, truncating. Lengths are in bytes.

use golang::GoRuntimeValue;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{SprigResult, TEXT_OVERHEAD_BYTES, as_int, int, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("abbrev", "func(int, string) string", abbrev),
    plain("abbrevboth", "func(int, int, string) string", abbrevboth),
    bounded("indent", "func(int, string) string", indent),
    bounded("nindent", "func(int, string) string", nindent),
    bounded("repeat", "func(int, string) string", repeat),
    plain("substr", "func(int, int, string) string", substr),
    plain("trunc", "func(int, string) string", trunc),
    bounded("wrap", "func(int, string) string", wrap),
    bounded("wrapWith", "func(int, string, string) string", wrap_with),
];

/// Truncates a text to this many bytes, with an ellipsis if something is cut off.
fn abbrev(args: &[GoRuntimeValue]) -> SprigResult {
    let width = int(args, 0);
    let text = text(args, 1);
    if width < 4 {
        return Ok(GoRuntimeValue::string(text));
    }
    Ok(GoRuntimeValue::string(abbreviated(text, 0, width)))
}

/// Truncates a text on both sides, beginning near an offset, with an ellipsis where something is cut off.
fn abbrevboth(args: &[GoRuntimeValue]) -> SprigResult {
    let left = int(args, 0);
    let right = int(args, 1);
    let text = text(args, 2);
    if right < 4 || left > 0 && right < 7 {
        return Ok(GoRuntimeValue::string(text));
    }
    Ok(GoRuntimeValue::string(abbreviated(text, left, right)))
}

fn abbreviated(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    let len = as_int(text.len());
    if len <= width {
        return text.to_owned();
    }
    // The width is less than the length from here on.
    let kept = usize::try_from(width - 3).unwrap_or_default();
    let mut offset = offset.min(len);
    if len - offset.max(0) < width - 3 {
        offset = len - (width - 3);
    }
    if offset <= 4 {
        return [&text[..kept], b"..."].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + width - 3 < len {
        let from = usize::try_from(offset).unwrap_or_default();
        return [b"...", &*abbreviated(&text[from..], 0, width - 3)].concat();
    }
    [b"...", &text[text.len() - kept..]].concat()
}

/// Indents each line by this many spaces.
fn indent(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    indented(call, b"", args)
}

/// Begins a new line, and indents each line by this many spaces.
fn nindent(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    indented(call, b"\n", args)
}

fn indented(
    call: &mut FunctionCallContext<'_>,
    before: &[u8],
    args: &[GoRuntimeValue],
) -> SprigResult {
    let spaces = repetition(int(args, 0), 1)?;
    let text = text(args, 1);
    let lines = 1 + memchr::memchr_iter(b'\n', text).count();
    let length = spaces.saturating_mul(lines).saturating_add(before.len() + text.len());
    call.produce(length.saturating_add(TEXT_OVERHEAD_BYTES))?;
    call.work(lines + length / 64)?;
    let pad = vec![b' '; spaces];
    let mut indented = Vec::with_capacity(length);
    indented.extend_from_slice(before);
    indented.extend_from_slice(&pad);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        indented.extend_from_slice(line);
        if line.ends_with(b"\n") {
            indented.extend_from_slice(&pad);
        }
    }
    Ok(GoRuntimeValue::string(indented))
}

/// Repeats a text this many times.
fn repeat(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let text = text(args, 1);
    let count = repetition(int(args, 0), text.len())?;
    let length = count.saturating_mul(text.len());
    call.produce(length.saturating_add(TEXT_OVERHEAD_BYTES))?;
    call.work(length / 64)?;
    Ok(GoRuntimeValue::string(text.repeat(if text.is_empty() { 0 } else { count })))
}

/// How many times a text of this many bytes is repeated.
fn repetition(count: i64, len: usize) -> Result<usize, TemplateFunctionError> {
    if count < 0 {
        return Err("strings: negative Repeat count".into());
    }
    if as_int(len).checked_mul(count).is_none() {
        return Err("strings: Repeat output length overflow".into());
    }
    usize::try_from(count).map_err(|_| "strings: Repeat output length overflow".into())
}

/// The text between two positions. A negative first position means the beginning. A second position that is negative or too
/// large means the end.
fn substr(args: &[GoRuntimeValue]) -> SprigResult {
    let start = int(args, 0);
    let end = int(args, 1);
    let text = text(args, 2);
    let len = as_int(text.len());
    let bounds = format!("runtime error: slice bounds out of range [{start}:{end}]");
    let (from, to) = match (start < 0, end < 0 || end > len) {
        (true, _) if end > len => {
            return Err(format!(
                "runtime error: slice bounds out of range [:{end}] with length {len}"
            )
            .into());
        }
        (true, _) if end < 0 => {
            return Err(format!("runtime error: slice bounds out of range [:{end}]").into());
        }
        (true, _) => (0, end),
        (false, true) if start > len => {
            return Err(format!("runtime error: slice bounds out of range [{start}:{len}]").into());
        }
        (false, true) => (start, len),
        (false, false) => (start, end),
    };
    let range = usize::try_from(from).unwrap_or_default()..usize::try_from(to).unwrap_or_default();
    Ok(GoRuntimeValue::string(text.get(range).ok_or(bounds)?))
}

/// The first bytes of a text, up to a number. A negative number selects the last bytes.
fn trunc(args: &[GoRuntimeValue]) -> SprigResult {
    let count = int(args, 0);
    let text = text(args, 1);
    let kept = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(GoRuntimeValue::string(match (count < 0, kept < text.len()) {
        (_, false) => text,
        (true, true) => &text[text.len() - kept..],
        (false, true) => &text[..kept],
    }))
}

/// Wraps a text to lines of this many bytes. Longer words stay whole.
fn wrap(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    wrapped(call, text(args, 1), int(args, 0), b"\n", false)
}

/// Wraps a text to lines of this many bytes, with a given separator between lines. Longer words are cut.
fn wrap_with(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let between = text(args, 1);
    let between = if between.is_empty() { b"\n" } else { between };
    wrapped(call, text(args, 2), int(args, 0), between, true)
}

fn wrapped(
    call: &mut FunctionCallContext<'_>,
    text: &[u8],
    width: i64,
    between: &[u8],
    cuts: bool,
) -> SprigResult {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    call.work(text.len() / 2)?;
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.len() > width {
        if let Some(after) = rest.strip_prefix(b" ") {
            rest = after;
            continue;
        }
        let space = rest[..=width].iter().rposition(|byte| *byte == b' ');
        let next = || rest[width..].iter().position(|byte| *byte == b' ').map(|at| at + width);
        let (line, after) = match (space, cuts) {
            (None, true) => rest.split_at(width),
            (None, false) => match next() {
                Some(space) => (&rest[..space], &rest[space + 1..]),
                None => break,
            },
            (Some(space), _) => (&rest[..space], &rest[space + 1..]),
        };
        call.produce(line.len() + between.len())?;
        lines.extend_from_slice(line);
        lines.extend_from_slice(between);
        rest = after;
    }
    call.produce(rest.len())?;
    lines.extend_from_slice(rest);
    Ok(GoRuntimeValue::string(lines))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn strings_are_cut_off() {
        check(&[
            (r#"{{ abbrev 5 "quiet garden" }} {{ abbrev 3 "abcd" }}"#, "qu... abcd"),
            (r#"{{ abbrevboth 5 10 "1234 5678 9123" }}"#, "...5678..."),
            (r#"{{ abbrevboth 30 10 "alpha river stone" }}"#, "...r stone"),
            (
                r#"{{ substr 1 3 "hello" }} {{ substr -1 3 "hello" }} {{ substr 2 -1 "hello" }}"#,
                "el hel llo",
            ),
            (
                r#"{{ substr 3 2 "hello" }}"#,
                "error: error calling substr: runtime error: slice bounds out of range [3:2]",
            ),
            (
                r#"{{ substr -1 9 "abc" }}"#,
                "error: error calling substr: runtime error: slice bounds out of range [:9] with length 3",
            ),
            (r#"{{ trunc 3 "hello" }} {{ trunc -3 "hello" }} {{ trunc -9 "abc" }}"#, "hel llo abc"),
        ]);
    }

    #[test]
    fn lines_are_made() {
        check(&[
            (r#"{{ indent 2 "a\nb\n" }}|"#, "  a\n  b\n  |"),
            (r#"{{ nindent 1 "" }}|"#, "\n |"),
            (
                r#"{{ nindent -2 "x" }}"#,
                "error: error calling nindent: strings: negative Repeat count",
            ),
            (r#"{{ repeat 3 "ab" }}{{ repeat 0 "x" }}"#, "ababab"),
            (r#"{{ wrap 5 "hello world foo" }}"#, "hello\nworld\nfoo"),
            (r#"{{ wrap 3 "abcdefg hi" }}"#, "abcdefg\nhi"),
            (r#"{{ wrapWith 3 "|" "abcdefg hi" }}"#, "abc|def|g|hi"),
        ]);
    }

    #[test]
    fn no_text_exhausts_the_process() {
        let long = "error calling repeat: the output is longer than 268435456 bytes";
        check(&[
            (r#"{{ repeat 9000000000 "abc" }}"#, &format!("error: {long}")),
            (
                r#"{{ range until 40 }}{{ $_ := repeat 100000000 "a" }}{{ end }}"#,
                &format!("error: {long}"),
            ),
            (
                r#"{{ repeat 9223372036854775807 "abc" }}"#,
                "error: error calling repeat: strings: Repeat output length overflow",
            ),
        ]);
    }
}
