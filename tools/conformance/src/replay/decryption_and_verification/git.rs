//! Replays cases about signed commits and tags.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use golang::highest_version_selection::VersionRange;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use signatures::git::{
    CheckedOutCommit, GitTag, GitVerificationError, GitVerificationKeys, GitVerificationMode,
    verify,
};

use super::TrustCase;
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same, same_value};

/// Cases whose answers differ from the recorded ones, each with the reason.
pub(super) const EXCEPTIONS: [(&str, &str); 3] = [
    (
        "git-tag-name-mismatch-Tag",
        "a signed tag counts under the name that was signed, and under no other",
    ),
    (
        "git-mode-empty",
        "the commit is verified where Flux verifies nothing; the schema lets no empty mode through",
    ),
    (
        "git-semver-with-nested-tag-in-repo",
        "a tag of a tag elsewhere in the repository does not keep others from being checked out",
    ),
];

/// The time at which the cases are judged. They are made for any time from 2026 to 2089.
const VERIFICATION_UNIX_TIME: u64 = 1_800_000_000;

/// The answer that is recorded together with an error.
#[derive(Deserialize)]
struct AnswerBesideError {
    #[serde(default)]
    out: Value,
}

pub(super) fn judge(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let beside: AnswerBesideError = case.inputs()?;
    let (wanted, error) = match &case.answer {
        ReferenceAnswer::Out(wanted) => (wanted, None),
        ReferenceAnswer::Error(error) => (&beside.out, Some(error)),
        ReferenceAnswer::Panic | ReferenceAnswer::Elsewhere => {
            return Err(CaseFailure::NotRun("no answer is recorded".to_owned()));
        }
    };
    let Some(found) = found(recorded)? else {
        // The error text of a failed checkout comes from `git`, so it is not compared.
        return same(&wanted.to_string(), &json!({"checkout": "failed"}).to_string());
    };
    let commit = recorded.file("commit-object")?;
    let object = recorded.file("tag-object")?;
    let sha = hash("commit", &commit);
    let hash = hash("tag", &object);
    let is_annotated = found.sha == hash;
    if !is_annotated && found.sha != sha {
        return Err(CaseFailure::NotRun("the reference leads to neither object".to_owned()));
    }
    let object = is_annotated.then_some((hash.as_str(), object.as_slice()));
    let tag = found.tag.as_deref().map(|name| GitTag { name, object });
    let checkout = CheckedOutCommit { commit: (&sha, &commit), tag };
    let verified = verified(recorded, &checkout, &recorded.folder("keys/")?);
    let revision = found.revision(&sha);
    if let Some(error) = error {
        let verdict =
            verified.as_ref().map_or_else(|refused| refused.message.as_str(), String::as_str);
        same(error, verdict)?;
    }
    same_value(wanted, &answer(recorded, &checkout, revision, verified))
}

fn verified(
    recorded: &TrustCase,
    checkout: &CheckedOutCommit<'_>,
    keys: &BTreeMap<String, Vec<u8>>,
) -> Result<String, GitVerificationError> {
    if recorded.flag("missingSecret") {
        return Err(GitVerificationError::without_keys("secrets \"verify-keys\" not found"));
    }
    let keys = GitVerificationKeys::new(
        keys.iter().map(|(name, value)| (name.as_str(), value.as_slice())),
    );
    verify(
        GitVerificationMode::named(recorded.arg("mode")),
        checkout,
        &keys,
        VERIFICATION_UNIX_TIME,
    )
}

/// The answer in the form of the recording.
fn answer(
    recorded: &TrustCase,
    checkout: &CheckedOutCommit<'_>,
    revision: String,
    verified: Result<String, GitVerificationError>,
) -> Value {
    let mut answer = Map::new();
    let mut set = |name: &str, value: &str| answer.insert(name.to_owned(), Value::from(value));
    set("commit", checkout.commit.0);
    set("revision", &revision);
    if let Some(tag) = &checkout.tag {
        set("tag", &tag.to_string());
    }
    match verified {
        Ok(message) => {
            set("status", "True");
            set("reason", "Succeeded");
            set("message", &message);
            set("result", "2");
            set(
                "sourceVerificationMode",
                GitVerificationMode::named(recorded.arg("mode")).as_str(),
            );
        }
        Err(refused) => {
            set("status", "False");
            set("reason", refused.reason);
            set("message", &refused.message);
            set("result", "0");
        }
    }
    Value::Object(answer)
}

/// The Git object to which the field `spec.ref` of a GitRepository points.
struct GitReferenceTarget {
    /// The text before the commit in the revision.
    name: Option<String>,
    /// The name of the tag, if the target is one.
    tag: Option<String>,
    /// The hash of the object, which is a commit or a tag.
    sha: String,
}

impl GitReferenceTarget {
    /// The revision as the recorder requested it. A full name is without its first two parts.
    fn revision(&self, sha: &str) -> String {
        let name = self.name.as_deref().map(|name| match name.splitn(3, '/').collect::<Vec<_>>() {
            parts if name.starts_with("refs/") && parts.len() == 3 => parts[2].to_owned(),
            _ => name.to_owned(),
        });
        name.map_or_else(String::new, |name| format!("{name}@")) + &format!("sha1:{sha}")
    }
}

/// Finds a reference among those of the bundle. It gives none if the bundle does not have it.
fn found(recorded: &TrustCase) -> Result<Option<GitReferenceTarget>, CaseFailure> {
    let references = references(&recorded.file("repo.bundle")?);
    let given = |field: &str| {
        let value = recorded.args.get("ref").and_then(|it| it.get(field)).and_then(Value::as_str);
        value.map(str::to_owned)
    };
    let tags = || references.keys().filter_map(|name| name.strip_prefix("refs/tags/"));
    if let Some(sha) = given("commit") {
        return Ok(Some(GitReferenceTarget { name: given("branch"), tag: None, sha }));
    }
    let (name, full) = if let Some(name) = given("name") {
        let full = name.strip_suffix("^{}").unwrap_or(&name).to_owned();
        (name, full)
    } else if let Some(tag) = given("tag") {
        (tag.clone(), format!("refs/tags/{tag}"))
    } else if let Some(range) = given("semver") {
        let range =
            VersionRange::parse(&range).map_err(|error| CaseFailure::NotRun(error.to_string()))?;
        let Some(tag) = range.highest(tags()).pop() else { return Ok(None) };
        (tag.to_owned(), format!("refs/tags/{tag}"))
    } else {
        let branch = given("branch").unwrap_or_else(|| "master".to_owned());
        (branch.clone(), format!("refs/heads/{branch}"))
    };
    let tag = full.strip_prefix("refs/tags/").map(str::to_owned);
    Ok(references.get(&full).map(|sha| GitReferenceTarget {
        name: Some(name),
        tag,
        sha: sha.clone(),
    }))
}

/// The references in the header of a bundle, by their full names.
fn references(bundle: &[u8]) -> BTreeMap<String, String> {
    let lines = bundle.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let lines = lines.map(|line| String::from_utf8_lossy(line).into_owned());
    let pair =
        |line: String| line.split_once(' ').map(|(sha, name)| (name.to_owned(), sha.to_owned()));
    lines.skip(1).filter_map(pair).collect()
}

/// The hash of a Git object.
fn hash(kind: &str, object: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(format!("{kind} {}\0", object.len()).as_bytes());
    hash.update(object);
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
