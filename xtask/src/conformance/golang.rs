//! The small languages of Go programs: version ranges.

use ::golang::semver::{Constraint, Version};
use serde::Deserialize;

use super::Topic;
use super::case::{Case, Judgement, same};

pub(super) const TOPICS: [Topic; 1] =
    [Topic { name: "misc/semver", path: "misc/semver.jsonl", judge: semver, exceptions: &[] }];

/// A constraint and versions between commas; the answer is one word for each version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    input: (String, String),
    go: String,
}

fn semver(case: Case) -> Judgement {
    let Range { input: (constraint, versions), go } = case.inputs()?;
    let Ok(constraint) = Constraint::parse(&constraint) else { return same(&go, "ERR") };
    let words = versions.split(',').map(|version| match Version::parse(version) {
        Ok(version) if constraint.matches(&version) => "true",
        Ok(_) => "false",
        Err(_) => "bad",
    });
    same(&go, &words.collect::<Vec<_>>().join(" "))
}
