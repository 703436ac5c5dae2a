//! Replays cases about files that archives exclude. `tarball.rs` has the archives, and `revision.rs` revisions and
//! versions.

use std::collections::BTreeMap;

use artifacts::ignore::IgnoreMatcher;
use serde::Deserialize;
use tree::RelPath;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, nil, same};

mod revision;
pub(super) mod tarball;

pub(super) const TOPICS: [Topic; 3] = [
    Topic {
        name: "recorded/revision",
        path: "recorded/revision.jsonl",
        judge: revision::judge,
        exceptions: &[],
    },
    Topic {
        name: "recorded/sourceignore",
        path: "recorded/sourceignore.jsonl",
        judge: ignore,
        exceptions: &[],
    },
    Topic {
        name: "recorded/tarball",
        path: "recorded/tarball.jsonl",
        judge: tarball::tarball,
        exceptions: &[],
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SourceIgnoreCase {
    #[serde(default, deserialize_with = "nil")]
    ignore_files: BTreeMap<String, String>,
    spec_ignore: Option<String>,
    #[serde(deserialize_with = "nil")]
    paths: Vec<String>,
}

/// Judges each path by itself.
fn ignore(case: Case) -> CaseJudgement {
    let SourceIgnoreCase { ignore_files, spec_ignore, paths } = case.inputs()?;
    let wanted: Vec<bool> = case.list()?;
    if wanted.len() != paths.len() {
        return Err(CaseFailure::NotRun("paths and answers are not of one number".to_owned()));
    }
    let files: Result<Vec<_>, CaseFailure> =
        ignore_files.into_iter().map(|(folder, text)| Ok((inside(&folder)?, text))).collect();
    let matcher = match IgnoreMatcher::new(&files?, spec_ignore.as_deref()) {
        Ok(matcher) => matcher,
        Err(error) => return same("patterns", &format!("error: {error}")),
    };
    let mut all_wanted = Vec::new();
    let mut all_got = Vec::new();
    for (path, wanted) in paths.iter().zip(wanted) {
        let got = matcher.is_ignored(&inside(path)?, path.ends_with('/'));
        if got != wanted {
            all_wanted.push(format!("{path:?} {wanted}"));
            all_got.push(format!("{path:?} {got}"));
        }
    }
    same(&all_wanted.join(", "), &all_got.join(", "))
}

/// Reads a path inside of the tree.
///
/// # Errors
/// A case about a path outside of the tree is not run.
fn inside(path: &str) -> Result<RelPath, CaseFailure> {
    RelPath::parse(path)
        .map_err(|error| CaseFailure::NotRun(format!("a path that no tree has: {error}")))
}
