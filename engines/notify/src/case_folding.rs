//! Comparison of texts in any case, by Unicode's simple folding as Go has it.

/// Whether two texts are the same but for the case of their characters.
pub(crate) fn equal_fold(one: &str, other: &str) -> bool {
    one.chars().map(fold).eq(other.chars().map(fold))
}

/// One character for all cases of a character: also `ſ` and the Kelvin sign fold to ASCII letters.
fn fold(character: char) -> char {
    lower(upper(lower(character)))
}

fn lower(character: char) -> char {
    single(character.to_lowercase()).unwrap_or(character)
}

fn upper(character: char) -> char {
    single(character.to_uppercase()).unwrap_or(character)
}

fn single(mut mapped: impl Iterator<Item = char>) -> Option<char> {
    mapped.next().filter(|_| mapped.next().is_none())
}
