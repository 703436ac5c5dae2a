//! Which objects a target means.

use super::ResourceSelector;
use super::labels::LabelSelector;

#[test]
fn expressions_mean_all_of_a_name() {
    let selector = ResourceSelector { name: "a|b".to_owned(), ..ResourceSelector::default() };
    let matcher = selector.compile().expect("a valid expression");
    assert!(matcher.matches_name("a") && matcher.matches_name("b"));
    assert!(!matcher.matches_name("ab") && !matcher.matches_name("a-1"));
    assert!(matcher.matches_kind("", "v1", "Pod") && matcher.matches_namespace(""));
}

#[test]
fn label_selectors_are_those_of_kubernetes() {
    let label = |key: &str| match key {
        "app" => Some("web"),
        "weight" => Some("7"),
        "in" => Some("notin"),
        _ => None,
    };
    let matches = |text: &str| LabelSelector::parse(text).map(|selector| selector.matches(label));
    for (text, expected) in [
        ("", true),
        ("app", true),
        ("!app", false),
        ("app=web, weight>6", true),
        ("app in (web,db),!canary", true),
        ("app notin (web)", false),
        ("other notin (web)", true),
        ("other != web", true),
        ("in in (notin)", true),
        ("weight<7", false),
        ("app=", false),
    ] {
        assert_eq!(matches(text), Ok(expected), "{text}");
    }
    for (text, expected) in [
        ("app=web,", "found '', expected: identifier after ','"),
        (
            "app web",
            "unable to parse requirement: found 'web', expected: '=', '!=', '==', 'in', notin'",
        ),
        ("=web", "found '=', expected: !, identifier, or 'end of string'"),
    ] {
        assert_eq!(
            LabelSelector::parse(text).map_err(|error| error.to_string()),
            Err(expected.to_owned())
        );
    }
}
