//! Prints the findings of a plan as a SARIF 2.1.0 log. Forges show such a log next to the changed files.
//!
//! Elsewhere: which changes are findings (`plan_finding.rs`).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::change_plan::{ChangePlan, PlanObjectReference};
use crate::plan_finding::{PlanFinding, PlanFindingKind};
use crate::untrusted_text::{clean_line, plain_name};

/// The characters that are encoded in the path of a URI.
const URI_PATH_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The findings of a plan as a SARIF 2.1.0 log, with one result for each finding.
///
/// The fingerprint of a result depends on the rule, the applier and the object, but not on numbers in the message.
pub fn sarif_log(plan: &ChangePlan) -> Value {
    let rules = PlanFindingKind::ALL
        .map(|rule| json!({"id": rule.name(), "shortDescription": {"text": rule.description()}}));
    let results: Vec<Value> = plan.findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "windlass plan", "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(finding: &PlanFinding) -> Value {
    let subject = |it: &Option<PlanObjectReference>| {
        it.as_ref().map(|it| plain_name(&it.subject())).unwrap_or_default()
    };
    let applier = subject(&finding.applier);
    let object = subject(&finding.object);
    let subjects = [&applier, &object].into_iter().filter(|it| !it.is_empty());
    let subjects: Vec<&str> = subjects.map(String::as_str).collect();
    let prefix: String = subjects.iter().map(|it| format!("{it}: ")).collect();
    // For an object the message identifies the finding. The messages about an applier contain numbers and errors, so they are
    // left out of the fingerprint.
    let of_object = finding.object.as_ref().map_or("", |_| finding.message.as_str());
    let identity = format!("{}\n{applier}\n{object}\n{of_object}", finding.rule.name());
    let fingerprint = hex::encode(Sha256::digest(identity));
    let mut result = json!({
        "ruleId": finding.rule.name(),
        "ruleIndex": PlanFindingKind::ALL.iter().position(|rule| *rule == finding.rule),
        "level": finding.level.name(),
        "message": {"text": format!("{prefix}{}", plain_message(&finding.message))},
        "partialFingerprints": {"planFinding/v1": fingerprint},
    });
    let mut location = json!({});
    if let Some(file) = &finding.file {
        let uri = utf8_percent_encode(file, URI_PATH_CHARACTERS).to_string();
        location["physicalLocation"] =
            json!({"artifactLocation": {"uri": uri}, "region": {"startLine": 1}});
    }
    if !subjects.is_empty() {
        let logical =
            subjects.iter().map(|it| json!({"fullyQualifiedName": it, "kind": "resource"}));
        location["logicalLocations"] = logical.collect();
    }
    if location != json!({}) {
        result["locations"] = json!([location]);
    }
    result
}

/// A message on one line, without links, placeholders and mentions of users.
fn plain_message(message: &str) -> String {
    let letters = clean_line(message);
    let letter = |letter: char| match letter {
        '[' | '{' => "(".to_owned(),
        ']' | '}' => ")".to_owned(),
        '<' | '>' | '`' => "'".to_owned(),
        '@' => " at ".to_owned(),
        letter => letter.to_string(),
    };
    letters.chars().map(letter).collect()
}
