//! Compares texts without regard to upper and lower case, by Unicode's simple folding as Go does.

/// Whether two texts are equal apart from upper and lower case.
pub(crate) fn equal_fold(one: &str, other: &str) -> bool {
    one.chars().map(fold).eq(other.chars().map(fold))
}

/// Maps all cases of a character to the same character. `ſ` and the Kelvin sign are mapped to ASCII letters, too.
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
