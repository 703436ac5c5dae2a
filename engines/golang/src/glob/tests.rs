//! Globs and what they match, as gobwas/glob 0.2.3 and Go 1.26 answer.

use proptest::prelude::*;

use super::*;

fn matches(glob: &str, text: &str) -> bool {
    Glob::new(glob, &['/']).unwrap().is_match(text).unwrap()
}

#[test]
fn stars_stop_at_separators_and_two_do_not() {
    for (glob, text) in [
        ("*", "a"),
        ("*", ""),
        ("**", "a/b"),
        ("conf/*", "conf/a"),
        ("conf/**", "conf/a/b"),
        ("**.{yaml,json}", "a/b.json"),
        ("a?c", "abc"),
        ("[!a-b]x", "cx"),
        (r"star\*", "star*"),
        ("{a,{b,ab}}.txt", "ab.txt"),
        ("{a", "a"),
        ("a,b}", "a,b}"),
    ] {
        assert!(matches(glob, text), "{glob} {text}");
    }
    for (glob, text) in
        [("*", "a/b"), ("conf/*", "conf/a/b"), ("a?c", "a/c"), ("**/a", "a"), ("[^a]", "b")]
    {
        assert!(!matches(glob, text), "{glob} {text}");
    }
    assert!(!Glob::new("*", &[]).unwrap().is_match("a/b").is_ok_and(|is_match| !is_match));
}

#[test]
fn the_shortcuts_of_gobwas_decide_what_matches() {
    // A pattern's meaning and its matches differ here, and charts depend on the matches.
    assert!(!matches("{**,x}/d.yaml", "a/b/d.yaml"));
    assert!(!matches("a*{b,}", "a"));
    assert!(!matches("{}.txt", ".txt"));
    assert!(!matches("{*,*****", ""));
    assert!(!matches("a{}", "a"));
    assert!(!matches("[xy]é[xy]", "xéy") && matches("[xy]e[xy]", "xey"));
    assert!(matches("ab*ba", "abba") && !matches("ab*ba", "aba"));
    assert!(matches("ab**ba", "aba"));
}

#[test]
fn a_glob_that_is_none_says_why_in_gobwas_words() {
    for (glob, wanted) in [
        ("[", "unexpected end of input"),
        ("[!]", "could not parse range"),
        ("[a-", "unexpected end of input"),
        ("[a-bc]", "expected close range character"),
        ("[z-a]", "hi character 'a' should be greater than lo 'z'"),
        ("\u{fffd}", "could not read rune"),
    ] {
        assert_eq!(Glob::new(glob, &['/']).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn path_match_is_gos() {
    for (pattern, name, wanted) in [
        ("*.yaml", "a.yaml", Ok(true)),
        ("*", "a/b", Ok(false)),
        ("a/*/c", "a/b/c", Ok(true)),
        ("[^a-c]?", "dé", Ok(true)),
        (r"\*[\]-a]", "*_", Ok(true)),
        ("a*b*c", "axbxbxc", Ok(true)),
        ("", "", Ok(true)),
        ("[", "", Err(BadPathPattern)),
        ("[]a]", "]", Err(BadPathPattern)),
        ("[-]", "-", Err(BadPathPattern)),
        ("a[", "b", Err(BadPathPattern)),
        (r"a\", "a", Err(BadPathPattern)),
    ] {
        assert_eq!(path_match(pattern, name), wanted, "{pattern}");
    }
}

#[test]
fn what_is_too_much_is_an_error() {
    assert_eq!(Glob::new(&"a".repeat(MAX_GLOB + 1), &[]).unwrap_err(), Error::TooLong);
    assert_eq!(Glob::new(&"{".repeat(MAX_NESTING + 1), &[]).unwrap_err(), Error::NestsTooDeeply);
    let stars = Glob::new(&"*a".repeat(20), &['/']).unwrap();
    assert_eq!(stars.is_match(&format!("/{}", "a".repeat(60))), Err(Error::TooManySteps));
    // Choosing how to match stays quick for the longest globs, and matching ends.
    let alternating = Glob::new(&"?[ab]*".repeat(MAX_GLOB / 6), &['/']).unwrap();
    assert_eq!(alternating.is_match(&"ab".repeat(MAX_GLOB)), Err(Error::TooManySteps));
}

proptest! {
    #[test]
    fn no_glob_and_no_text_panics(
        glob in r"[\[\]{},*?!\\a-bé/-]{0,16}",
        text in "[a-bé/*.]{0,10}",
    ) {
        if let Ok(glob) = Glob::new(&glob, &['/', 'é']) {
            prop_assert!(glob.is_match(&text).is_ok());
        }
        let _answer = path_match(&glob, &text);
    }

    #[test]
    fn path_match_finds_a_name_that_is_spelled_out(name in "[a-cé*?\\[\\]-]{0,12}") {
        let spelled: String = name.chars().flat_map(|character| ['\\', character]).collect();
        prop_assert_eq!(path_match(&spelled, &name), Ok(true));
    }
}
