//! Patterns and their answers, as Go 1.26 gives them, and the limits.

use proptest::prelude::*;

use super::*;

fn pattern(pattern: &str) -> GoRegexp {
    GoRegexp::new(pattern).unwrap()
}

/// What is wrong with a pattern, and where.
fn fault(pattern: &str) -> String {
    let error = GoRegexp::new(pattern).unwrap_err().to_string();
    error.strip_prefix("error parsing regexp: ").unwrap().to_owned()
}

#[test]
fn what_go_refuses_is_refused_in_its_words() {
    for (pattern, wanted) in [
        ("(", "missing closing ): `(`"),
        ("a(b", "missing closing ): `a(b`"),
        (")a", "unexpected ): `)a`"),
        ("[0-9", "missing closing ]: `[0-9`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a|*?", "missing argument to repetition operator: `*?`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}?b", "invalid nested repetition operator: `{2}{3}?`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"),
        ("(?<n", "invalid named capture: `(?<n`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Nobody}", r"invalid character class range: `\p{Nobody}`"),
        (r"\p", r"invalid character class range: `\p`"),
        (r"a\Z", r"invalid escape sequence: `\Z`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\xzé", r"invalid escape sequence: `\xzé`"),
        (r"a\", "trailing backslash at end of expression: ``"),
    ] {
        assert_eq!(fault(pattern), wanted, "{pattern}");
    }
}

#[test]
fn the_text_of_a_panic_quotes_the_pattern_as_go_does() {
    let error = GoRegexp::new("a`(").unwrap_err();
    assert_eq!(
        error.as_panic("a`("),
        "regexp: Compile(\"a`(\"): error parsing regexp: missing closing ): `a`(`"
    );
    assert!(error.as_panic("(").starts_with("regexp: Compile(`(`): "));
}

#[test]
fn classes_and_words_are_those_of_ascii() {
    assert_eq!(pattern(r"\d+").find_all("a1٣2", None), ["1", "2"]);
    assert_eq!(pattern(r"\bfoo\b").find_all("éfoo foo", None), ["foo", "foo"]);
    assert_eq!(pattern(r"\s+").find_all("a\u{b}b \t", None), [" \t"]);
    assert_eq!(pattern("[a&&b]").find_all("a&b", None), ["a", "&", "b"]);
    assert_eq!(pattern(r"(?i)[^\Dk]|k").find_all("k1\u{212a}", None), ["k", "1", "\u{212a}"]);
    assert_eq!(pattern(r"[^\x{d800}]").find_all("a\n", None), ["a", "\n"]);
    assert_eq!(pattern(r"\x{d800}|[\x{d800}-\x{dfff}]|\p{Cs}").find("a"), None);
    assert_eq!(pattern(r"\p{Old_Italic}|\p{^Lu}").find_all("𐌀A1", None), ["𐌀", "1"]);
}

#[test]
fn flags_last_to_the_end_of_their_group() {
    assert_eq!(pattern("(a(?i)b)c").find_all("aBc aBC", None), ["aBc"]);
    assert_eq!(pattern("(?U)a+|b+?").find_all("aabb", None), ["a", "a", "bb"]);
    assert_eq!(pattern("(?m)^a$").find_all("a\na", None), ["a", "a"]);
    assert_eq!(pattern("(?s).(?-s:.)").find_all("\na\n", None), ["\na"]);
}

#[test]
fn empty_matches_stand_where_go_puts_them() {
    assert_eq!(pattern("x*").find_all("axb", None), ["", "x", ""]);
    assert_eq!(pattern("x*").replace_all("abxc", "-").unwrap(), "-a-b-c-");
    assert_eq!(pattern("").find_all("aé", Some(2)), ["", ""]);
    assert_eq!(pattern("").split("aéb", None), ["a", "é", "b"]);
    assert_eq!(pattern(",").split("", None), [""]);
    assert_eq!(pattern(",").split("a,b,", None), ["a", "b", ""]);
    assert_eq!(pattern(",").split("a,b,c", Some(2)), ["a", "b,c"]);
    assert_eq!(pattern(",").split("a", Some(0)), Vec::<&str>::new());
}

#[test]
fn a_template_names_groups_as_long_as_it_can() {
    let pattern = pattern(r"(?P<first>\w)(?<second>\w)(x)?");
    for (template, wanted) in [
        ("$second$first", "ba"),
        ("${2}1", "b1"),
        ("$1x", ""),
        ("[$3]", "[]"),
        ("$$1", "$1"),
        ("$", "$"),
        ("${first", "${first"),
        ("$-", "$-"),
        ("$0$01", "ab"),
        ("$9", ""),
    ] {
        assert_eq!(pattern.replace_all("ab", template).unwrap(), wanted, "{template}");
        let expanded = pattern.expand_first("-ab!ab", template).unwrap();
        assert_eq!(expanded.as_deref(), Some(wanted), "{template}");
    }
    assert_eq!(pattern.expand_first("-", "x").unwrap(), None);
    assert_eq!(pattern.replace_all_literal("ab!", "$1").unwrap(), "$1!");
    assert_eq!(pattern.names(), ["", "first", "second", ""]);
    assert_eq!(pattern.find_groups("ab"), Some(vec![Some("ab"), Some("a"), Some("b"), None]));
}

#[test]
fn a_quoted_text_matches_itself() {
    let text = r"a.b*(c)[d]{e}^$|\?+-/é";
    assert_eq!(pattern(&format!("^{}$", quote_meta(text))).find(text), Some(text));
}

#[test]
fn what_is_too_much_is_an_error() {
    let nested = |depth| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(GoRegexp::new(&nested(MAX_NESTING - 1)).is_ok_and(|nested| nested.is_match("a")));
    let error = GoRegexp::new(&nested(MAX_NESTING)).unwrap_err();
    assert!(matches!(error, Error::Pattern { fault: RegexpErrorReason::NestsTooDeeply, .. }));
    // Groups that capture nothing do not nest.
    let plain = format!("{}a{}", "(?:".repeat(4000), ")".repeat(4000));
    assert!(pattern(&plain).is_match("a"));
    let alternating = format!("{}a{}", "(?:b|c(?:d".repeat(48), ")*)?".repeat(48));
    assert!(pattern(&alternating).is_match("cda"));
    for large in [r"(?:\pL{500}){2}".to_owned(), "a".repeat(MAX_PATTERN + 1)] {
        let error = GoRegexp::new(&large).unwrap_err();
        assert!(matches!(error, Error::Pattern { fault: RegexpErrorReason::TooLarge, .. }));
    }
    let text = "a".repeat(1 << 10);
    assert_eq!(pattern("a").replace_all_literal(&text, &"b".repeat(1 << 17)), Err(Error::TooLong));
}

proptest! {
    #[test]
    fn no_pattern_panics_and_what_compiles_is_used_safely(
        pattern in r"[\[\](){}|*+?^$\\a-fpPQEx0-9,:<>iUms é-]{0,24}",
        text in "[a-c0-9 é\n]{0,12}",
        template in r"[$\{\}0-9an]{0,8}",
    ) {
        if let Ok(regexp) = GoRegexp::new(&pattern) {
            let all = regexp.find_all(&text, None);
            prop_assert_eq!(all.is_empty(), !regexp.is_match(&text));
            prop_assert_eq!(regexp.find(&text), all.first().copied());
            prop_assert!(regexp.replace_all(&text, &template).is_ok());
            let _parts = regexp.split(&text, None);
        }
    }
}
