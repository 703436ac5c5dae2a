//! Replays cases about revisions in their old and new forms, and about the choice among many versions.

use git::revision;
use golang::highest_version_selection::{VersionRange, chart_version};
use golang::semver::VersionConstraintError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::case::{Case, CaseJudgement, nil};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevisionParseCase {
    r#in: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionChoiceCase {
    constraint: String,
    #[serde(deserialize_with = "nil")]
    tags: Vec<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "parse" => {
            let RevisionParseCase { r#in: text } = case.inputs()?;
            let hash = revision::hash(&text);
            case.judge(Ok(json!({
                "digest": revision::digest(hash),
                "hash": hash,
                "legacyArtifact": revision::modern_artifact(&text),
                "pointer": revision::pointer(&text),
                "transform": revision::modern(&text),
            })))
        }
        "tag" => {
            let VersionChoiceCase { constraint, tags } = case.inputs()?;
            let range = VersionRange::parse(&constraint);
            let first = |range: VersionRange| {
                range.highest(tags.iter().map(String::as_str)).first().map(|it| (*it).to_owned())
            };
            case.judge(answer(&constraint, range.map(first)))
        }
        "chart" => {
            let VersionChoiceCase { constraint, tags } = case.inputs()?;
            let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
            let chosen = chart_version(&constraint, &tags);
            case.judge(answer(&constraint, chosen.map(|it| it.map(str::to_owned))))
        }
        _ => Err(case.unsupported(&[])),
    }
}

/// Replaces windlass's words about an invalid constraint by Go's.
fn answer(
    constraint: &str,
    chosen: Result<Option<String>, VersionConstraintError>,
) -> Result<Value, String> {
    match chosen {
        Ok(Some(tag)) => Ok(Value::String(tag)),
        Ok(None) => Err("no match".to_owned()),
        Err(VersionConstraintError::Improper(_)) => {
            Err(format!("improper constraint: {constraint:?}"))
        }
        Err(other) => Err(other.to_string()),
    }
}
