//! Upper and lower case of single characters, for Unicode 15.0.
//!
//! Rust's own mappings may give several characters for one, and are for later versions.

use super::is_print;

/// The capital form of a character, by Go's `unicode.ToUpper`.
pub fn to_upper(character: char) -> char {
    let upper = character.to_uppercase();
    if upper.len() == 1 {
        return known(character, upper);
    }
    match character {
        // Greek letters with an iota below have capitals with an iota, too.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            offset(character, 8)
        }
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => offset(character, 9),
        _ => character,
    }
}

/// Go's `unicode.ToTitle`: the capital letter at the beginning of a word.
pub fn to_title(character: char) -> char {
    match character {
        // One character stands for two letters, and only the first becomes a capital.
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        // Georgian only has capitals for whole words.
        '\u{10d0}'..='\u{10ff}' => character,
        _ => to_upper(character),
    }
}

/// The small form of a character, by Go's `unicode.ToLower`.
pub fn to_lower(character: char) -> char {
    match character {
        'İ' => 'i',
        _ => known(character, character.to_lowercase()),
    }
}

/// Go's `strings.ToUpper` of UTF-8. The number of characters stays the same.
pub fn upper(text: &str) -> String {
    text.chars().map(to_upper).collect()
}

/// Go's `strings.ToLower` of UTF-8. The position of a letter in its word does not matter.
pub fn lower(text: &str) -> String {
    text.chars().map(to_lower).collect()
}

/// The result of a mapping, if this version of Unicode has both characters. Otherwise the character itself.
fn known(character: char, mut mapping: impl Iterator<Item = char>) -> char {
    match mapping.next() {
        Some(mapped) if is_print(character) && is_print(mapped) => mapped,
        _ => character,
    }
}

fn offset(character: char, by: u32) -> char {
    char::from_u32(u32::from(character) + by).unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::{lower, to_lower, to_title, to_upper, upper};

    /// A digest of a mapping: FNV-1a over the code points that it changes and what they become.
    fn digest(convert: fn(char) -> char) -> u64 {
        let changed = ('\0'..=char::MAX).filter(|character| convert(*character) != *character);
        let codes = changed.flat_map(|character| [character, convert(character)].map(u32::from));
        codes.flat_map(u32::to_be_bytes).fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn letters_change_one_for_one() {
        let cases = [('a', 'A'), ('ß', 'ß'), ('ω', 'Ω'), ('ᾀ', 'ᾈ'), ('ῳ', 'ῼ'), ('ﬁ', 'ﬁ')];
        for (lower, upper) in cases {
            assert_eq!(to_upper(lower), upper, "{lower}");
        }
        for (upper, lower) in [('A', 'a'), ('İ', 'i'), ('Σ', 'σ'), ('ẞ', 'ß'), ('Ⅷ', 'ⅷ')]
        {
            assert_eq!(to_lower(upper), lower, "{upper}");
        }
    }

    #[test]
    fn texts_keep_their_length() {
        // As Go 1.26 has them.
        for (text, in_capitals, in_small) in [
            ("straße", "STRAßE", "straße"),
            ("Straße weiß", "STRAßE WEIß", "straße weiß"),
            ("ŉ", "ŉ", "ŉ"),
            ("ﬁn", "ﬁN", "ﬁn"),
            ("ΑΣ", "ΑΣ", "ασ"),
            ("İstanbul", "İSTANBUL", "istanbul"),
        ] {
            assert_eq!((&*upper(text), &*lower(text)), (in_capitals, in_small));
        }
    }

    #[test]
    fn every_letter_is_changed_as_go_does() {
        // Computed by a Go program over all of Unicode.
        assert_eq!(
            [to_upper, to_lower, to_title].map(digest),
            [0x38ef_7baa_16a5_233d, 0xe631_cec2_ae67_3814, 0xd5db_e671_4c00_c5c1]
        );
    }
}
