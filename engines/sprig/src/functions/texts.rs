//! Texts of values.

use golang::Value;
use golang::fmt::sprint;
use golang::strconv::{Quoting, quote as quoted};
use golang::value::{Str, Type};
use gotemplate::{Call, Failure};

use crate::arguments::{Outcome, any, items, text, text_of};
use crate::table::{Entry, bounded, plain};

pub(crate) const ENTRIES: &[Entry] = &[
    bounded("cat", "func(...interface {}) string", cat),
    bounded("join", "func(string, interface {}) string", join),
    bounded("quote", "func(...interface {}) string", quote),
    plain("sortAlpha", "func(interface {}) []string", sort_alpha),
    bounded("squote", "func(...interface {}) string", squote),
    plain("toString", "func(interface {}) string", to_string),
    plain("toStrings", "func(interface {}) []string", to_strings),
];

/// All values but nil with spaces between them, as Go prints them.
fn cat(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    spaced(call, args, |value| Ok(sprint(std::slice::from_ref(value))?))
}

/// All values but nil in quotes, with spaces between them.
fn quote(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    spaced(call, args, |value| Ok(quoted(&text_of(value)?, Quoting::Printable)))
}

/// All values but nil between apostrophes, with spaces between them; apostrophes inside stay as they are.
fn squote(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    spaced(call, args, |value| Ok([b"'", &*sprint(std::slice::from_ref(value))?, b"'"].concat()))
}

fn spaced(
    call: &mut Call<'_>,
    values: &[Value],
    show: impl Fn(&Value) -> Result<Vec<u8>, Failure>,
) -> Outcome {
    let mut result = Vec::new();
    let values = values.iter().filter(|value| !matches!(value, Value::Nil));
    for (index, value) in values.enumerate() {
        let shown = show(value)?;
        call.produce(shown.len() + 1)?;
        if index > 0 {
            result.push(b' ');
        }
        result.extend(shown);
    }
    Ok(Value::string(result))
}

/// The texts of a list with something between them; what is no list is one text.
fn join(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let separator = text(args, 0);
    let mut result = Vec::new();
    for (index, text) in strings(any(args, 1))?.iter().enumerate() {
        call.produce(separator.len() + text.len())?;
        if index > 0 {
            result.extend_from_slice(separator);
        }
        result.extend_from_slice(text);
    }
    Ok(Value::string(result))
}

/// The texts of a list byte by byte in order; what is no list is one text.
fn sort_alpha(args: &[Value]) -> Outcome {
    let value = any(args, 0);
    let mut texts = match items(value) {
        Some(_) => strings(value)?,
        None => vec![text_of(value)?],
    };
    texts.sort();
    Ok(Value::strings(texts))
}

/// The text of a value.
fn to_string(args: &[Value]) -> Outcome {
    Ok(Value::string(text_of(any(args, 0))?))
}

/// The texts of a list but for nil; what is no list is one text, and nil none.
fn to_strings(args: &[Value]) -> Outcome {
    match any(args, 0) {
        Value::List(list) if *list.item_type() == Type::String => Ok(Value::List(list.clone())),
        value => Ok(Value::strings(strings(value)?)),
    }
}

fn strings(value: &Value) -> Result<Vec<Str>, Failure> {
    let items = match value {
        Value::Nil => Vec::new(),
        value => items(value).unwrap_or_else(|| vec![value.clone()]),
    };
    items.iter().filter(|item| !matches!(item, Value::Nil)).map(text_of).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn values_become_texts() {
        check(&[
            (r#"{{ cat "a" nil 1 2.5 (list 1 nil) }}|{{ cat }}"#, "a 1 2.5 [1 <nil>]|"),
            (r#"{{ quote "a\"b" 5 nil true "\u200b" }}"#, r#""a\"b" "5" "true" "\u200b""#),
            (r#"{{ squote "it's" .nil 5 }}"#, "'it's' '5'"),
            (
                r#"{{ join "-" (list 1 2.5 true nil "x") }} {{ join "," "a" }} {{ join "," nil }}"#,
                "1-2.5-true-x a ",
            ),
            (
                r#"{{ sortAlpha (list "b" "a" 3 nil) }} {{ sortAlpha nil }} {{ sortAlpha 5 }}"#,
                "[3 a b] [<nil>] [5]",
            ),
            (
                r#"{{ toString 1.0 }} {{ toString nil }} {{ toString (semver "v1.2") }}"#,
                "1 <nil> 1.2.0",
            ),
            (r#"{{ toStrings (list 1 nil "a") }} {{ len (toStrings nil) }}"#, "[1 a] 0"),
        ]);
    }
}
