//! The template functions for random strings and numbers. They use only the random numbers of the environment.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use golang::value::GoString;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{TEXT_OVERHEAD_BYTES, int, text};
use crate::function_table::{SprigFunctionEntry, random};
use crate::template_environment::RandomBytesEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    random("randAlpha", "func(int) string", rand_alpha),
    random("randAlphaNum", "func(int) string", rand_alpha_num),
    random("randAscii", "func(int) string", rand_ascii),
    random("randNumeric", "func(int) string", rand_numeric),
    random("randBytes", "func(int) (string, error)", rand_bytes),
    random("randInt", "func(int, int) int", rand_int),
    random("shuffle", "func(string) string", shuffle),
    random("uuidv4", "func() string", uuidv4),
];

/// The steps for requesting random bytes.
const DRAW_COST: usize = 200;

/// Random letters. As with the related functions, the text is empty if the number is negative.
fn rand_alpha(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    characters(template_environment, call, int(args, 0), u8::is_ascii_alphabetic)
}

/// A text of random letters and digits, with the length that a template asks for.
fn rand_alpha_num(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    characters(template_environment, call, int(args, 0), u8::is_ascii_alphanumeric)
}

/// Random printable ASCII characters, including the space.
fn rand_ascii(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    characters(template_environment, call, int(args, 0), |byte| matches!(byte, b' '..=b'~'))
}

/// A text of random digits, with the length that a template asks for.
fn rand_numeric(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    characters(template_environment, call, int(args, 0), u8::is_ascii_digit)
}

/// As many random bytes as a template asks for, in base64.
fn rand_bytes(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let count =
        usize::try_from(int(args, 0)).map_err(|_| "runtime error: makeslice: len out of range")?;
    call.produce(count.div_ceil(3).saturating_mul(4).saturating_add(TEXT_OVERHEAD_BYTES))?;
    call.work(count)?;
    let mut bytes = vec![0; count];
    template_environment.fill(&mut bytes);
    Ok(GoRuntimeValue::from(STANDARD.encode(bytes)))
}

/// An integer from the first up to, but not, the second.
fn rand_int(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(DRAW_COST)?;
    let first = int(args, 0);
    let end = int(args, 1);
    match u64::try_from(end.wrapping_sub(first)) {
        Ok(count @ 1..) => {
            Ok(GoRuntimeValue::int(first.wrapping_add(below(template_environment, count) as i64)))
        }
        Ok(0) | Err(_) => Err("invalid argument to Intn".into()),
    }
}

/// The characters of a text in another order.
fn shuffle(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    // Each character takes a random number and the memory of a character.
    call.work(text.len().saturating_mul(16))?;
    call.produce(text.len().saturating_mul(5).saturating_add(TEXT_OVERHEAD_BYTES))?;
    let mut characters: Vec<char> = GoString::from(text).replaced().chars().collect();
    for last in (1..characters.len()).rev() {
        let other = below(template_environment, last as u64 + 1) as usize;
        characters.swap(last, other);
    }
    Ok(GoRuntimeValue::from(String::from_iter(characters)))
}

/// A UUID of version 4.
fn uuidv4(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    _: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(DRAW_COST)?;
    call.produce(36 + TEXT_OVERHEAD_BYTES)?;
    let mut bytes = [0; 16];
    template_environment.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut out = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        _ = write!(out, "{dash}{byte:02x}");
    }
    Ok(GoRuntimeValue::from(out))
}

/// Random ASCII characters that `wanted` accepts, all with the same probability.
fn characters(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    count: i64,
    is_wanted: fn(&u8) -> bool,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    // Go's error for a negative number is dropped by sprig.
    let count = usize::try_from(count).unwrap_or(0);
    call.produce(count.saturating_add(TEXT_OVERHEAD_BYTES))?;
    // Most random bytes are rejected, because they are not wanted characters.
    call.work(count.saturating_mul(4))?;
    let mut out = Vec::with_capacity(count);
    let mut random = [0; 256];
    while out.len() < count {
        template_environment.fill(&mut random);
        let wanted = random.iter().map(|byte| byte & 0x7f).filter(is_wanted);
        out.extend(wanted.take(count - out.len()));
    }
    Ok(GoRuntimeValue::string(out))
}

/// A number below another, each as likely as the others.
fn below(template_environment: RandomBytesEnvironment<'_>, end: u64) -> u64 {
    // Above the last whole multiple the small remainders would be more likely.
    let multiple = u64::MAX - u64::MAX % end;
    loop {
        let mut random = [0; 8];
        template_environment.fill(&mut random);
        let random = u64::from_le_bytes(random);
        if random < multiple {
            return random % end;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::test_rendering::{check, render};

    fn check_characters(template: &str, count: usize, is_wanted: fn(char) -> bool) {
        let text = render(template);
        assert_eq!(text.chars().count(), count, "{template}: {text}");
        assert!(text.chars().all(is_wanted), "{template}: {text}");
        assert_ne!(text, render(template), "the same twice");
    }

    #[test]
    fn strings_have_the_length_and_the_characters_that_are_asked_for() {
        check_characters("{{ randAlpha 50 }}", 50, |c| c.is_ascii_alphabetic());
        check_characters("{{ randAlphaNum 64 }}", 64, |c| c.is_ascii_alphanumeric());
        check_characters("{{ randAscii 300 }}", 300, |c| matches!(c, ' '..='~'));
        check_characters("{{ randNumeric 30 }}", 30, |c| c.is_ascii_digit());
        check("{{ randAlpha 0 }}{{ randNumeric -1 }}", "");
    }

    #[test]
    fn bytes_are_counted_before_they_are_encoded() {
        check("{{ randBytes 3 | len }} {{ randBytes 16 | b64dec | len }}", "4 16");
        check(
            "{{ randBytes -1 }}",
            "error calling randBytes: runtime error: makeslice: len out of range",
        );
        check(
            "{{ randBytes 9223372036854775807 }}",
            "error calling randBytes: the output is longer than 268435456 bytes",
        );
    }

    #[test]
    fn integers_lie_between_their_bounds() {
        check("{{ randInt 5 6 }} {{ randInt -3 -2 }}", "5 -3");
        check("{{ randInt 6 5 }}", "error calling randInt: invalid argument to Intn");
        let seen: std::collections::BTreeSet<String> =
            (0..100).map(|_| render("{{ randInt 1 4 }}")).collect();
        assert_eq!(Vec::from_iter(seen), ["1", "2", "3"]);
    }

    #[test]
    fn shuffling_keeps_all_characters() {
        let text = render(r#"{{ shuffle "abcdefghijklmnopqrstuvwxyz日" }}"#);
        let mut sorted: Vec<char> = text.chars().collect();
        sorted.sort_unstable();
        assert_eq!(String::from_iter(sorted), "abcdefghijklmnopqrstuvwxyz日");
        assert_ne!(text, "abcdefghijklmnopqrstuvwxyz日");
        check(r#"{{ shuffle "" }}"#, "");
    }

    #[test]
    fn a_uuid_says_its_version() {
        let uuid = render("{{ uuidv4 }}");
        let bytes = uuid.as_bytes();
        assert_eq!((uuid.len(), bytes[8], bytes[14], bytes[23]), (36, b'-', b'4', b'-'));
        assert!(matches!(bytes[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
    }
}
