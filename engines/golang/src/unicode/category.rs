//! Less common categories of characters, for Unicode 15.0.
//!
//! They come from Rust and `regex`, which know later versions. Characters that were added since are left out.

use std::sync::LazyLock;

use regex::Regex;

use super::{is_letter, is_print};

/// Whether a character is a capital letter, by Go's `unicode.IsUpper`.
pub fn is_upper(character: char) -> bool {
    // Rust also accepts symbols that look like capital letters.
    character.is_uppercase() && is_letter(character)
}

/// Whether a character is a small letter, by Go's `unicode.IsLower`.
pub fn is_lower(character: char) -> bool {
    // Rust also accepts symbols, marks and modifier letters that look like small letters.
    let modifies = matches!(
        u32::from(character),
        0xaa | 0xba
            | 0x2b0..=0x2e4
            | 0x37a
            | 0x10fc
            | 0x1d2c..=0x1d6a
            | 0x1d78
            | 0x1d9b..=0x1dbf
            | 0x2071
            | 0x207f
            | 0x2090..=0x209c
            | 0x2c7c..=0x2c7d
            | 0xa69c..=0xa69d
            | 0xa770
            | 0xa7f2..=0xa7f4
            | 0xa7f8..=0xa7f9
            | 0xab5c..=0xab5f
            | 0xab69
            | 0x10780..=0x107ba
            | 0x1e030..=0x1e06d
    );
    // U+0295 stopped being one later.
    character == '\u{295}' || character.is_lowercase() && is_letter(character) && !modifies
}

/// Go's `unicode.IsTitle`: one character that stands for two letters, the first of them a capital.
pub fn is_title(character: char) -> bool {
    matches!(
        u32::from(character),
        0x1c5 | 0x1c8
            | 0x1cb
            | 0x1f2
            | 0x1f88..=0x1f8f
            | 0x1f98..=0x1f9f
            | 0x1fa8..=0x1faf
            | 0x1fbc
            | 0x1fcc
            | 0x1ffc
    )
}

/// Whether a character is punctuation, by Go's `unicode.IsPunct`.
pub fn is_punct(character: char) -> bool {
    static PUNCTUATION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\p{P}").expect("it is a category of Unicode"));
    if character.is_ascii() {
        return character.is_ascii_punctuation() && !"$+<=>^`|~".contains(character);
    }
    let mut text = [0; 4];
    is_print(character) && PUNCTUATION.is_match(character.encode_utf8(&mut text))
}

/// Go's `unicode.IsNumber`: digits of all scripts, fractions, and numerals.
pub fn is_number(character: char) -> bool {
    character.is_numeric() && is_print(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest of a category: FNV-1a over the code points that are in it.
    fn digest(is_in: fn(char) -> bool) -> u64 {
        let codes = ('\0'..=char::MAX).filter(|character| is_in(*character)).map(u32::from);
        codes.flat_map(u32::to_be_bytes).fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn every_character_is_in_the_categories_that_go_has_it_in() {
        // Computed by a Go program over all of Unicode.
        let categories = [is_upper, is_lower, is_title, is_punct, is_number];
        let wanted: [u64; 5] = [
            0x65d8_62d3_691c_6c3d,
            0x60f9_f598_d9c3_85ee,
            0x0d74_ee69_d70f_54b6,
            0xbbec_8660_93e1_7169,
            0xaa31_030a_6332_f993,
        ];
        for (category, wanted) in categories.into_iter().zip(wanted) {
            assert_eq!(digest(category), wanted);
        }
    }
}
