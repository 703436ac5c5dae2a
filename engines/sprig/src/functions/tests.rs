//! What Helm 4 answered to templates that ask many functions at once.

use golang::GoRuntimeValue;
use gotemplate::{MissingKeyPolicy, TemplateSet};

use crate::testing::FixedTimeEnvironment;

const PROBES: &str = include_str!("../../../../e2e/conformance/helm/function-probes.txt");
const DATA: &str = include_str!("../../../../e2e/conformance/helm/function-probes-data.yaml");

/// A template, what it gave, and how it failed.
struct TemplateProbe<'t> {
    template: &'t str,
    output: String,
    error: Option<&'t str>,
}

fn probes() -> Vec<TemplateProbe<'static>> {
    let lines: Vec<&str> = PROBES.lines().collect();
    let mut probes = Vec::new();
    for pair in lines.chunks(2) {
        let [template, answer] = pair else { continue };
        let answer = answer.trim_start().strip_prefix("=> ").expect("an answer");
        let (output, error) = match answer.strip_prefix("OUT ") {
            Some(failed) => {
                let (output, error) = failed.split_once(" ERR ").expect("an error");
                (output, Some(error))
            }
            None => (answer, None),
        };
        let template = template.strip_suffix(' ').unwrap_or(template);
        probes.push(TemplateProbe { template, output: unquoted(output), error });
    }
    probes
}

/// The text of a Python string literal.
fn unquoted(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text[1..text.len() - 1].chars();
    while let Some(character) = rest.next() {
        let escaped = if character == '\\' { rest.next() } else { None };
        result.push(match escaped {
            None => character,
            Some('n') => '\n',
            Some('t') => '\t',
            Some(other) => other,
        });
    }
    result
}

#[test]
fn probes_give_what_helm_gave() {
    let functions = crate::functions::<FixedTimeEnvironment>();
    let mut asked = 0;
    for TemplateProbe { template, output, error } in probes() {
        let mut set =
            TemplateSet::new("t", functions.clone()).with_missing_key(MissingKeyPolicy::Zero);
        if set.parse("t", template.as_bytes()).is_err() {
            // Some ask functions that are not here.
            continue;
        }
        asked += 1;
        let data = GoRuntimeValue::from_json(&goyaml::to_json(DATA.as_bytes()).unwrap());
        let result = set.run_with("t", data, &FixedTimeEnvironment);
        match (result, error) {
            (Ok(text), None) => {
                assert_eq!(String::from_utf8_lossy(&text), output, "{template}");
            }
            (Err(failure), Some(error)) => assert_eq!(failure.to_string(), error, "{template}"),
            (Ok(text), Some(error)) => {
                panic!("{template}: {}, and not {error}", String::from_utf8_lossy(&text));
            }
            (Err(failure), None) => panic!("{template}: {failure}"),
        }
    }
    assert!(asked >= 70, "only {asked} probes were asked");
}

#[test]
fn every_signature_is_the_one_that_helm_has() {
    const SIGNATURES: &str = include_str!("../../../../e2e/conformance/helm/functions.tsv");
    for entry in super::ALL.iter().copied().flatten() {
        let line = format!("{}\t{}", entry.name, entry.signature);
        assert!(SIGNATURES.lines().any(|known| known == line), "{line}");
    }
}
