//! The value of the text after `=`.
//!
//! Elsewhere: the beginning and end of a text (`parser.rs`).

use golang::GoRuntimeValue;

use super::{Error, SetValueMode};

/// The value of a text, in the modes in which each text is one value.
pub(super) fn read(mode: &mut SetValueMode<'_>, text: String) -> Result<GoRuntimeValue, Error> {
    match mode {
        SetValueMode::Typed => Ok(typed(text)),
        SetValueMode::Strings | SetValueMode::Literal | SetValueMode::Json => {
            Ok(GoRuntimeValue::from(text))
        }
        SetValueMode::File(read) => read(&text).map(GoRuntimeValue::String).map_err(Error::File),
    }
}

fn typed(text: String) -> GoRuntimeValue {
    if folds_to(&text, "true") {
        return GoRuntimeValue::Bool(true);
    }
    if folds_to(&text, "false") {
        return GoRuntimeValue::Bool(false);
    }
    if folds_to(&text, "null") {
        return GoRuntimeValue::Nil;
    }
    let is_number = text == "0" || !text.starts_with('0');
    match text.parse() {
        Ok(number) if is_number => GoRuntimeValue::int64(number),
        Ok(_) | Err(_) => GoRuntimeValue::from(text),
    }
}

/// Go's `strings.EqualFold` with one of the three words: the long s is an `s` to it.
fn folds_to(text: &str, word: &str) -> bool {
    let folded =
        |character: char| if character == 'ſ' { 's' } else { character.to_ascii_lowercase() };
    text.chars().map(folded).eq(word.chars())
}

#[cfg(test)]
mod tests {
    use super::{SetValueMode, read};

    #[test]
    fn strings_have_the_types_that_helm_gives_them() {
        for (text, wanted) in [
            ("0", "int64 0"),
            ("-0", "int64 0"),
            ("+80", "int64 80"),
            ("00", "string 00"),
            ("007", "string 007"),
            ("-07", "int64 -7"),
            ("1.5", "string 1.5"),
            ("9223372036854775808", "string 9223372036854775808"),
            ("1_0", "string 1_0"),
            ("FALſE", "bool false"),
            ("Null", "<nil> <nil>"),
            ("", "string "),
        ] {
            let value = read(&mut SetValueMode::Typed, text.to_owned()).unwrap();
            let got = golang::fmt::sprintf("%T %v", &[value.clone(), value]).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), wanted, "{text}");
        }
    }
}
