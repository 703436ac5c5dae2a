//! The recorded answers of Flux, judged as `cargo xtask conformance` judges them.

#[expect(dead_code, reason = "other topics need the rest")]
#[path = "../../../tools/conformance/src/replay/case.rs"]
mod case;
#[path = "../../../tools/conformance/src/replay/image.rs"]
mod judge;

use case::{Case, CaseFailure, CaseJudgement};

/// As the replay knows it.
struct Topic {
    name: &'static str,
    path: &'static str,
    judge: fn(Case) -> CaseJudgement,
    exceptions: &'static [(&'static str, &'static str)],
}

/// The cases that are in the project, by their file.
const RECORDED: [(&str, &str); 6] = [
    ("image/tags.jsonl", include_str!("../../../e2e/conformance/image/tags.jsonl")),
    ("image/policy.jsonl", include_str!("../../../e2e/conformance/image/policy.jsonl")),
    ("image/should-scan.jsonl", include_str!("../../../e2e/conformance/image/should-scan.jsonl")),
    ("image/reference.jsonl", include_str!("../../../e2e/conformance/image/reference.jsonl")),
    (
        "image/commit-template.jsonl",
        include_str!("../../../e2e/conformance/image/commit-template.jsonl"),
    ),
    ("image/setters.jsonl", include_str!("../../../e2e/conformance/image/setters.jsonl")),
];

/// The messages of the failed cases of a topic, and how many passed.
fn failures(topic: &Topic, cases: &str) -> (Vec<String>, usize) {
    let mut failures = Vec::new();
    let mut passed = 0;
    for (at, line) in cases.lines().enumerate() {
        let Ok(case) = Case::parse(&format!("line {at}"), line.as_bytes()) else {
            failures.push(format!("{}: line {at} is no JSON object", topic.name));
            continue;
        };
        let name = format!("{}: {}", topic.name, case.name);
        let is_exception = topic.exceptions.iter().any(|(known, _)| *known == case.name);
        match case.judge_each_answer(topic.judge) {
            Ok(()) => passed += 1,
            Err(_) if is_exception => {}
            Err(CaseFailure::Mismatch { wanted, got }) => {
                failures.push(format!("{name}\n  wanted {wanted:?}\n  got    {got:?}"));
            }
            Err(failure) => failures.push(format!("{name}: {failure:?}")),
        }
    }
    (failures, passed)
}

#[test]
fn every_recorded_case_is_answered_as_recorded() {
    let replay = || {
        for (path, cases) in RECORDED {
            let topic = judge::TOPICS.into_iter().find(|topic| topic.path == path).unwrap();
            let (failures, passed) = failures(&topic, cases);
            assert!(
                failures.is_empty(),
                "{} failed, {passed} passed:\n{}",
                failures.len(),
                failures.join("\n")
            );
            assert!(passed > 20, "{path} has {passed} cases");
        }
    };
    let thread = std::thread::Builder::new().stack_size(image::REQUIRED_STACK_BYTES);
    thread.spawn(replay).unwrap().join().unwrap();
}
