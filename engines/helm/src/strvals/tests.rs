//! What the recorded cases do not cover: limits, bytes, arbitrary text.

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoString, GoType};
use proptest::prelude::*;

use super::{Error, SetValueMode, set};

fn table() -> GoMap {
    GoMap::new(GoType::Any, [])
}

fn shown(values: GoMap) -> String {
    String::from_utf8_lossy(&golang::fmt::sprintf("%v", &[GoRuntimeValue::Map(values)]).unwrap())
        .into_owned()
}

#[test]
fn a_file_keeps_its_bytes_and_the_text_around_becomes_utf8() {
    let values = table();
    let mut read = |name: &str| Ok(GoString::from([name.as_bytes(), b"\xff"].concat()));
    set(&values, b"a\xff\xff=x", SetValueMode::File(&mut read)).unwrap();
    let Some(GoRuntimeValue::String(text)) = values.get("a\u{fffd}\u{fffd}".as_bytes()) else {
        panic!("{values:?}")
    };
    assert_eq!(&*text, b"x\xff");
}

#[test]
fn a_name_that_ends_early_sets_nothing_more_and_is_no_error() {
    for (text, wanted) in [("a[0", "map[]"), ("a[0]", "map[a:[]]"), ("a.", "map[]"), ("", "map[]")]
    {
        let values = table();
        set(&values, text, SetValueMode::Typed).unwrap();
        assert_eq!(shown(values), wanted, "{text}");
    }
}

#[test]
fn names_that_lead_too_deep_are_refused() {
    for step in ["[0]", "[0].a"] {
        let text = format!("a{}=1", step.repeat(100_000));
        assert_eq!(set(&table(), text, SetValueMode::Typed), Err(Error::TooDeep));
    }
    let text = format!("a{}=1", "[0]".repeat(200));
    set(&table(), text, SetValueMode::Typed).unwrap();
}

#[test]
fn lists_that_would_fill_the_memory_are_refused() {
    let text: String = (0..1000).map(|name| format!("a{name}[65536]=1,")).collect();
    assert_eq!(set(&table(), text, SetValueMode::Strings), Err(Error::TooLarge));
    let text = "a[65536]=1,".repeat(100_000);
    assert_eq!(set(&table(), text, SetValueMode::Strings), Err(Error::TooLarge));
}

proptest! {
    #[test]
    fn no_text_panics(text in r#"([ab.,=\[\]{}01"\\-]|\PC){0,40}"#, before in "[ab.=0,\\[\\]]{0,12}") {
        for mode in [SetValueMode::Typed, SetValueMode::Strings, SetValueMode::Json, SetValueMode::Literal] {
            let values = table();
            drop(set(&values, &before, SetValueMode::Typed));
            drop(set(&values, &text, mode));
        }
    }
}
