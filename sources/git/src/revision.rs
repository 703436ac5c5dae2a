//! The revision of an artifact from Git, and the older forms of revisions.
//!
//! Elsewhere: the requested reference (`reference`).

use std::fmt;

use super::reference::{GitReference, ReferenceTip};

/// A commit with the name by which it was requested. Flux writes this as the revision of an artifact.
///
/// `Display` gives `main@sha1:…`, `v1.0@sha1:…`, `refs/pull/1/head@sha1:…` or, for a bare commit, `sha1:…`. Equal revisions
/// mean that there is nothing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRevision {
    /// Branch, tag or full name, if there was one.
    pub name: Option<String>,
    /// The commit: forty hexadecimal digits in lower case.
    pub sha: String,
}

impl GitRevision {
    /// The revision of the commit that was found for a reference.
    pub fn new(reference: &GitReference, tip: &ReferenceTip) -> Self {
        let name = match reference {
            GitReference::Branch(name) | GitReference::Tag(name) | GitReference::Name(name) => {
                Some(name.clone())
            }
            GitReference::Semver(_) => {
                Some(tip.refname.strip_prefix("refs/tags/").unwrap_or(&tip.refname).to_owned())
            }
            // Parity(flux): a full name beside a commit is not examined, it only names the revision.
            GitReference::Commit { branch, name, .. } => name.clone().or_else(|| branch.clone()),
        };
        Self { name, sha: tip.sha.clone() }
    }
}

impl fmt::Display for GitRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}@")?;
        }
        write!(f, "sha1:{}", self.sha)
    }
}

/// A revision in today's form; `main/<hash>` and a bare hash were written before.
///
/// Parity(flux): `TransformRevision` of its Git package; text that is not a hash gets the algorithm `<unknown>`.
pub fn modern(revision: &str) -> String {
    if revision.is_empty() || revision.contains(':') {
        return revision.to_owned();
    }
    match pointer(revision) {
        "" => digest(hash(revision)),
        name => format!("{name}@{}", digest(hash(revision))),
    }
}

/// The name in a revision of any form. Empty if there is none.
pub fn pointer(revision: &str) -> &str {
    if let Some((name, _)) = revision.rsplit_once('@') {
        return name;
    }
    match revision.rsplit_once('/') {
        Some((name, _)) if name != "HEAD" => name,
        Some(_) | None => "",
    }
}

/// The hash in a revision of any form. If there is none, the text in its place.
pub fn hash(revision: &str) -> &str {
    let after = |mark: char| revision.rsplit_once(mark).map(|(_, hash)| hash);
    after(':').or_else(|| after('/')).unwrap_or(revision)
}

/// A hash with its algorithm in front.
///
/// Parity(flux): only forty digits are known, as SHA-1; nothing looks whether they are digits.
pub fn digest(hash: &str) -> String {
    match hash.len() {
        0 => String::new(),
        40 => format!("sha1:{hash}"),
        _ => format!("<unknown>:{hash}"),
    }
}

/// The revision of an artifact in today's form, of any kind of source.
///
/// Parity(flux): `TransformLegacyRevision` of the source API, which unlike [`modern`] knows SHA-256 and does not change
/// text that is not a hash.
pub fn modern_artifact(revision: &str) -> String {
    if revision.contains(':') {
        return revision.to_owned();
    }
    if let Some((name, hash)) = revision.rsplit_once('/')
        && let Some(algorithm) = algorithm(hash)
    {
        return match name {
            "HEAD" => format!("{algorithm}:{hash}"),
            name => format!("{name}@{algorithm}:{hash}"),
        };
    }
    match algorithm(revision) {
        Some(algorithm) => format!("{algorithm}:{revision}"),
        None => revision.to_owned(),
    }
}

fn algorithm(hash: &str) -> Option<&'static str> {
    let is_hash = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match hash.len() {
        40 if is_hash => Some("sha1"),
        64 if is_hash => Some("sha256"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use golang::highest_version_selection::VersionRange;

    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn revisions_read_as_flux_writes_them() {
        let commit = |branch: Option<&str>, name: Option<&str>| GitReference::Commit {
            sha: SHA.to_owned(),
            branch: branch.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        let pull = "refs/pull/1/head";
        for (reference, expected) in [
            (GitReference::default(), format!("master@sha1:{SHA}")),
            (GitReference::Branch("feature/x".into()), format!("feature/x@sha1:{SHA}")),
            (GitReference::Tag("v1".into()), format!("v1@sha1:{SHA}")),
            (GitReference::Name(pull.into()), format!("{pull}@sha1:{SHA}")),
            (
                GitReference::Semver(VersionRange::parse("1.x").unwrap()),
                format!("v1.2.3@sha1:{SHA}"),
            ),
            (commit(None, None), format!("sha1:{SHA}")),
            (commit(Some("main"), None), format!("main@sha1:{SHA}")),
            (commit(Some("main"), Some(pull)), format!("{pull}@sha1:{SHA}")),
        ] {
            let tip = ReferenceTip { sha: SHA.to_owned(), refname: "refs/tags/v1.2.3".to_owned() };
            assert_eq!(GitRevision::new(&reference, &tip).to_string(), expected);
        }
    }

    #[test]
    fn an_older_revision_is_the_same_one_in_todays_words() {
        for transform in [modern, modern_artifact] {
            assert_eq!(transform(&format!("main/{SHA}")), format!("main@sha1:{SHA}"));
            assert_eq!(transform(&format!("HEAD/{SHA}")), format!("sha1:{SHA}"));
            assert_eq!(transform(&format!("main@sha1:{SHA}")), format!("main@sha1:{SHA}"));
        }
        assert_eq!(modern("main"), "<unknown>:main");
        assert_eq!(modern_artifact("main"), "main");
    }
}
