//! Text as base64 and base32, and digests.

use std::fmt::Write as _;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{TEXT_OVERHEAD_BYTES, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("b64enc", "func(string) string", b64enc),
    bounded("b64dec", "func(string) string", b64dec),
    bounded("b32enc", "func(string) string", b32enc),
    bounded("b32dec", "func(string) string", b32dec),
    plain("sha1sum", "func(string) string", sha1sum),
    plain("sha256sum", "func(string) string", sha256sum),
    plain("sha512sum", "func(string) string", sha512sum),
    plain("adler32sum", "func(string) string", adler32sum),
];

/// A text in base64, with padding.
fn b64enc(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    call.work(text.len() / 8)?;
    call.produce(text.len().div_ceil(3) * 4 + TEXT_OVERHEAD_BYTES)?;
    Ok(GoRuntimeValue::from(STANDARD.encode(text)))
}

/// Decodes base64. If the text is not valid, the result is the error's text.
fn b64dec(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    call.work(text.len() / 2)?;
    call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
    Ok(decode64(text).map_or_else(GoRuntimeValue::from, GoRuntimeValue::string))
}

/// A text in base32, with padding.
fn b32enc(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    call.work(text.len())?;
    call.produce(text.len().div_ceil(5) * 8 + TEXT_OVERHEAD_BYTES)?;
    let mut out = String::new();
    for chunk in text.chunks(5) {
        let mut group = [0; 8];
        group[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(group);
        for digit in 0..8 {
            let is_padding = digit * 5 >= chunk.len() * 8;
            let value = (bits >> (35 - 5 * digit)) as usize & 31;
            out.push(if is_padding { '=' } else { char::from(BASE32_ALPHABET[value]) });
        }
    }
    Ok(GoRuntimeValue::from(out))
}

/// Decodes base32. If the text is not valid, the result is the error's text.
fn b32dec(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    call.work(text.len())?;
    call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
    let corrupt = |at| format!("illegal base32 data at input byte {at}");
    Ok(decode32(text).map_or_else(|at| GoRuntimeValue::from(corrupt(at)), GoRuntimeValue::string))
}

/// The SHA-1 of a text, in hexadecimal.
fn sha1sum(args: &[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(sum(&SHA1_FOR_LEGACY_USE_ONLY, args))
}

/// The SHA-256 of a text, in hexadecimal.
fn sha256sum(args: &[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(sum(&SHA256, args))
}

/// The SHA-512 of a text, in hexadecimal.
fn sha512sum(args: &[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(sum(&SHA512, args))
}

/// The Adler-32 of a text, in decimal.
fn adler32sum(args: &[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError> {
    // The largest prime below 2^16.
    const ADLER32_MODULUS: u32 = 65_521;
    let mut low = 1;
    let mut high = 0;
    for byte in text(args, 0).iter() {
        low = (low + u32::from(*byte)) % ADLER32_MODULUS;
        high = (high + low) % ADLER32_MODULUS;
    }
    Ok(GoRuntimeValue::from((high << 16 | low).to_string()))
}

fn sum(algorithm: &'static Algorithm, args: &[GoRuntimeValue]) -> GoRuntimeValue {
    let mut out = String::new();
    for byte in digest(algorithm, text(args, 0)).as_ref() {
        _ = write!(out, "{byte:02x}");
    }
    GoRuntimeValue::from(out)
}

/// The bytes of a text in base64 with padding, or Go's message. Line ends between the digits are ignored.
pub(super) fn decode64(text: &[u8]) -> Result<Vec<u8>, String> {
    let corrupt = |at: usize| format!("illegal base64 data at input byte {at}");
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(is_end) {
            at += 1;
        }
        at
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    loop {
        let mut bits = 0_u32;
        let mut digits = 0;
        while digits < 4 {
            let Some(byte) = text.get(at) else {
                return if digits == 0 { Ok(out) } else { Err(corrupt(at - digits)) };
            };
            at += 1;
            match byte {
                b'\n' | b'\r' => continue,
                b'=' if digits < 2 => return Err(corrupt(at - 1)),
                b'=' => break,
                _ => {}
            }
            let value = digit64(*byte).ok_or_else(|| corrupt(at - 1))?;
            bits = bits << 6 | u32::from(value);
            digits += 1;
        }
        let [_, bytes @ ..] = (bits << (6 * (4 - digits))).to_be_bytes();
        out.extend_from_slice(&bytes[..digits - 1]);
        if digits == 4 {
            continue;
        }
        if digits == 2 {
            at = skip(at);
            match text.get(at) {
                None => return Err(corrupt(text.len())),
                Some(b'=') => at += 1,
                Some(_) => return Err(corrupt(at - 1)),
            }
        }
        at = skip(at);
        return if at < text.len() { Err(corrupt(at)) } else { Ok(out) };
    }
}

fn digit64(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// The digits of base32.
const BASE32_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The bytes of a text in base32, or where Go finds an error.
fn decode32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> =
        text.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    let mut rest = text.as_slice();
    let place = |rest: &[u8]| text.len() - rest.len();
    while !rest.is_empty() {
        let mut bits = 0_u64;
        let mut digits = 0;
        while digits < 8 {
            let Some((byte, after)) = rest.split_first() else { return Err(place(rest) - digits) };
            rest = after;
            // Parity(go): padding counts near the end only, and what follows it is not examined.
            if *byte == b'=' && digits >= 2 && rest.len() < 8 {
                if rest.len() + digits < 7 {
                    return Err(text.len());
                }
                let wrong = rest.iter().take(7 - digits).position(|byte| *byte != b'=');
                if let Some(wrong) = wrong {
                    return Err(place(rest) + wrong - 1);
                }
                if matches!(digits, 3 | 6) {
                    return Err(place(rest) - 1);
                }
                let bytes = (bits << (5 * (8 - digits))).to_be_bytes();
                out.extend_from_slice(&bytes[3..3 + digits * 5 / 8]);
                return Ok(out);
            }
            let value = BASE32_ALPHABET.iter().position(|known| known == byte);
            bits = bits << 5 | value.ok_or(place(rest) - 1)? as u64;
            digits += 1;
        }
        out.extend_from_slice(&bits.to_be_bytes()[3..]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::test_rendering::check;

    #[test]
    fn base64_is_go_s() {
        check(r#"{{ b64enc "é日😀" }}"#, "w6nml6Xwn5iA");
        check(r#"{{ b64dec "aGVs\nbG8=" }}"#, "hello");
        check(r#"{{ b64dec "aGVsbG8" }}"#, "illegal base64 data at input byte 4");
        check(r#"{{ b64dec "a-_b" }}"#, "illegal base64 data at input byte 1");
        check(r#"{{ b64dec "aA==aA==" }}"#, "illegal base64 data at input byte 4");
        check(r#"{{ b64dec "aA=" }}"#, "illegal base64 data at input byte 3");
    }

    #[test]
    fn base32_is_go_s() {
        check(r#"{{ b32enc "é日" }} {{ b32enc "hello!" }}"#, "YOU6NF5F NBSWY3DPEE======");
        check(r#"{{ b32dec "NBSWY3DPEE======" }}"#, "hello!");
        check(r#"{{ b32dec "nbswy3dp" }}"#, "illegal base32 data at input byte 0");
        check(r#"{{ b32dec "NBSWY3D" }}"#, "illegal base32 data at input byte 0");
    }

    #[test]
    fn digests_are_hexadecimal_and_adler_s_is_decimal() {
        check(r#"{{ sha1sum "abc" }}"#, "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(
            r#"{{ sha256sum "Hello, wörld" }}"#,
            "d4c1cd3d701a582f3b421050364d34890f76282098bbc1e58b5a2e772df05d66",
        );
        check(r#"{{ substr 0 8 (sha512sum "abc") }}"#, "ddaf35a1");
        check(r#"{{ adler32sum "日本" }} {{ adler32sum "" }}"#, "260506705 1");
    }
}
