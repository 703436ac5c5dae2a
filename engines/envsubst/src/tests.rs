//! What upstream answered to recorded strings, and that no text costs more than allowed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Recorded answers of upstream; the README beside them describes the lines.
const RECORDED: &str = include_str!("../../../e2e/conformance/recorded/envsubst.jsonl");

fn with(
    variables: &[(&str, &str)],
    text: &str,
    limits: SubstitutionLimits,
) -> Result<String, Error> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let lookup = |name: &str| variables.get(name).map(|value| value.as_bytes());
    substitute(text.as_bytes(), lookup, UnsetVariablePolicy::Empty, limits)
        .map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn every_recorded_case_is_answered_as_recorded() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in RECORDED.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let lookup = |name: &str| case["vars"].get(name)?.as_str().map(str::as_bytes);
        let unset = if case["strict"] == true {
            UnsetVariablePolicy::Error
        } else {
            UnsetVariablePolicy::Empty
        };
        let text = case["text"].as_str().unwrap();
        let got = substitute(text.as_bytes(), lookup, unset, SubstitutionLimits::default());
        let is_right = match (&got, &case["out"], &case["err"]) {
            (Ok(got), Value::String(out), _) => got == out.as_bytes(),
            (Err(got), _, Value::String(error)) => got.to_string() == *error,
            (Err(Error::NegativeLength(_)), ..) => case["panic"].is_string(),
            // The only output that is not UTF-8 is recorded in base64.
            (Ok(got), ..) => case["out_base64"] == "Z2/w" && got == b"go\xf0",
            (Err(_), ..) => false,
        };
        count += 1;
        if !is_right {
            wrong.push(format!("{line}\n  {got:?}\n"));
        }
    }
    assert!(count >= 385 && wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.concat());
}

#[test]
fn a_syntax_error_names_the_line_and_a_way_out() {
    let error =
        with(&[], "a: 1\nb: ${b}\nc: ${c:-\n  ${}}\n", SubstitutionLimits::default()).unwrap_err();
    assert_eq!(error, Error::Syntax { fault: SyntaxError::VariableName, line: 3 });
    assert_eq!(error.hint(), Some("write `$${` where the text `${` is meant"));
}

#[test]
fn an_empty_text_is_found_between_all_characters() {
    let replaced = |text| with(&[("v", "é1")], text, SubstitutionLimits::default()).unwrap();
    assert_eq!(replaced("${v//${e}/-}"), "-é-1-");
    assert_eq!(replaced("${v/${e}/-}"), "-é1");
    assert_eq!(replaced("${v/#${e}/-}"), "-é1");
    assert_eq!(replaced("${v/%${e}/-}"), "é1-");
    assert_eq!(replaced("${v//${e}/}"), "é1");
    assert_eq!(with(&[], "[${v//${e}/-}]", SubstitutionLimits::default()).unwrap(), "[-]");
}

#[test]
fn one_letter_becomes_one_letter() {
    let value = [("v", "ßﬁᾀİΣ")];
    assert_eq!(with(&value, "${v^^}", SubstitutionLimits::default()).unwrap(), "ßﬁᾈİΣ");
    assert_eq!(with(&value, "${v,,}", SubstitutionLimits::default()).unwrap(), "ßﬁᾀiσ");
}

#[test]
fn parts_of_values_have_no_bounds_to_overflow() {
    let max = i64::MAX;
    for (text, wanted) in [
        (format!("${{v:0:{max}}}"), "0123"),
        (format!("${{v:{max}:0}}"), ""),
        (format!("${{v:${{e:={}}}:2}}", i64::MIN), "01"),
        (format!("${{v:{max}0:1}}"), "0123"),
    ] {
        assert_eq!(
            with(&[("v", "0123")], &text, SubstitutionLimits::default()).unwrap(),
            wanted,
            "{text}"
        );
    }
    let error = Error::NegativeLength("v".to_owned());
    for text in [format!("${{v:1:{max}}}"), format!("${{v:1:{}}}", i64::MIN)] {
        assert_eq!(
            with(&[("v", "0123")], &text, SubstitutionLimits::default()),
            Err(error.clone()),
            "{text}"
        );
    }
}

/// So many defaults in one another.
fn nested(depth: usize) -> String {
    format!("{}end{}", "${a:=".repeat(depth), "}".repeat(depth))
}

#[test]
fn nesting_ends_before_the_stack_does() {
    let deep = || {
        let deepest = SubstitutionLimits { depth: usize::MAX, ..SubstitutionLimits::default() };
        assert_eq!(with(&[], &nested(SubstitutionLimits::MAX_DEPTH), deepest).unwrap(), "end");
        let deeper = nested(SubstitutionLimits::MAX_DEPTH + 1);
        let error = Error::Limit(LimitError::Depth(SubstitutionLimits::MAX_DEPTH));
        assert_eq!(with(&[], &deeper, deepest), Err(error.clone()));
        assert_eq!(with(&[], &"${a:=".repeat(1_000_000), deepest), Err(error));
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(deep).unwrap().join().unwrap();
    let shallow = SubstitutionLimits { depth: 2, ..SubstitutionLimits::default() };
    assert_eq!(with(&[], &nested(2).repeat(3), shallow).unwrap(), "endendend");
    assert_eq!(with(&[], &nested(3), shallow), Err(Error::Limit(LimitError::Depth(2))));
}

#[test]
fn text_that_multiplies_ends_at_the_limit() {
    let value = "a".repeat(1000);
    let text = "${v//a/".repeat(9) + "b" + &"}".repeat(9);
    let limits = SubstitutionLimits::default();
    assert_eq!(with(&[("v", &value)], &text, limits), Err(LimitError::Output(32 << 20).into()));
    let limits = SubstitutionLimits { output: 3000, ..limits };
    assert_eq!(with(&[("v", &value)], "${v}${v}${v}", limits).unwrap().len(), 3000);
    let error = Err(LimitError::Output(3000).into());
    assert_eq!(with(&[("v", &value)], "${v}${v}${v}!", limits), error);
    for text in ["${v^^}!", "${v%b}!", "${v//a/bbbb}", "${v/#a/${v}${v}${v}}"] {
        let limits = SubstitutionLimits { output: 1000, ..limits };
        assert!(with(&[("v", &value)], text, limits).is_err(), "{text}");
    }
}

#[test]
fn what_matches_badly_ends_at_the_limit() {
    let value = "a".repeat(100_000);
    let half = "a".repeat(50_000) + "b";
    let variables = [("v", value.as_str()), ("half", half.as_str())];
    let limits = SubstitutionLimits { steps: 2_000_000, ..SubstitutionLimits::default() };
    for text in ["${v#*b*c}", "${v%%c*b*}", "${v##*[x-z]*}", "${v//${half}/c}"] {
        let got = with(&variables, text, limits);
        assert!(got == Err(LimitError::Steps(2_000_000).into()), "{text}");
    }
    // What is written every day costs little, also for a long value.
    for text in ["${v#*a}", "${v##*a}", "${v%a*}", "${v%%b*}", "${v#b}", "${v##*/}"] {
        assert!(with(&variables, text, limits).is_ok(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(
        text in r"([ab]|[$][{]|[{}$#%/:=^,*?\[\]\\-]|[0-9]|é|\x00){0,40}",
        value in "[ab/*é0-9]{0,12}",
    ) {
        let lookup = |name: &str| (name == "a").then_some(value.as_bytes());
        for unset in [UnsetVariablePolicy::Empty, UnsetVariablePolicy::Error] {
            drop(substitute(text.as_bytes(), lookup, unset, SubstitutionLimits::default()));
        }
    }
}
