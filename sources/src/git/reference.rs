//! What is asked of a repository, and how the answer is named.

use std::fmt;

use gix::hash::ObjectId;

use super::Error;

/// What is asked of a repository.
///
/// Flux's other forms, `semver` and `name`, are not here yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The tip of a branch.
    Branch(String),
    /// What a tag points at, peeled to a commit.
    Tag(String),
    /// One commit by its hash.
    Commit {
        /// All forty hexadecimal digits.
        sha: String,
        /// When given, the branch that must lead to the commit.
        branch: Option<String>,
    },
}

impl Default for Reference {
    /// Flux's: the branch `master`.
    fn default() -> Self {
        Self::Branch("master".to_owned())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch `{name}`"),
            Self::Tag(name) => write!(f, "tag `{name}`"),
            Self::Commit { sha, .. } => write!(f, "commit `{sha}`"),
        }
    }
}

/// What is looked for among the references of a remote: a [`Reference`] that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A full reference name, such as `refs/heads/main`.
    Named(String),
    /// A commit, wherever it is.
    Commit(ObjectId),
    /// A commit that a full branch name leads to.
    CommitOn(ObjectId, String),
}

impl Reference {
    /// Checks names and hash.
    pub(super) fn wanted(&self) -> Result<Wanted, Error> {
        Ok(match self {
            Self::Branch(name) => Wanted::Named(full_name("branch", "refs/heads/", name)?),
            Self::Tag(name) => Wanted::Named(full_name("tag", "refs/tags/", name)?),
            Self::Commit { sha, branch: None } => Wanted::Commit(hash(sha)?),
            Self::Commit { sha, branch: Some(branch) } => {
                Wanted::CommitOn(hash(sha)?, full_name("branch", "refs/heads/", branch)?)
            }
        })
    }
}

fn full_name(kind: &'static str, prefix: &str, name: &str) -> Result<String, Error> {
    let full = format!("{prefix}{name}");
    match gix::validate::reference::name(full.as_str().into()) {
        Ok(_) => Ok(full),
        Err(error) => Err(Error::InvalidReference {
            kind,
            name: name.chars().filter(|c| !c.is_control()).take(200).collect(),
            reason: error.to_string().to_lowercase(),
        }),
    }
}

fn hash(sha: &str) -> Result<ObjectId, Error> {
    ObjectId::from_hex(sha.as_bytes()).map_err(|_malformed| Error::InvalidReference {
        kind: "commit",
        name: sha.chars().filter(|c| !c.is_control()).take(200).collect(),
        reason: "a commit is given by all 40 hexadecimal digits of its hash".to_owned(),
    })
}

/// What a remote has now under a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The commit: forty hexadecimal digits in lower case.
    pub sha: String,
    /// The full name it was found under, such as `refs/heads/main`; empty for a bare commit.
    pub refname: String,
}

/// A commit together with the name it was asked for by: what Flux writes as an artifact's revision.
///
/// `Display` gives `main@sha1:…`, `v1.0@sha1:…` or, for a bare commit, `sha1:…`.
/// Equal revisions mean that there is nothing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Branch or tag, if there was one.
    pub name: Option<String>,
    /// The commit: forty hexadecimal digits in lower case.
    pub sha: String,
}

impl Revision {
    /// The revision of what was found for a reference.
    pub fn new(reference: &Reference, sha: &str) -> Self {
        let name = match reference {
            Reference::Branch(name) | Reference::Tag(name) => Some(name.clone()),
            Reference::Commit { branch, .. } => branch.clone(),
        };
        Self { name, sha: sha.to_owned() }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}@")?;
        }
        write!(f, "sha1:{}", self.sha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn revisions_read_as_flux_writes_them() {
        let commit = |branch: Option<&str>| Reference::Commit {
            sha: SHA.to_owned(),
            branch: branch.map(str::to_owned),
        };
        for (reference, expected) in [
            (Reference::default(), format!("master@sha1:{SHA}")),
            (Reference::Branch("feature/x".into()), format!("feature/x@sha1:{SHA}")),
            (Reference::Tag("v1".into()), format!("v1@sha1:{SHA}")),
            (commit(None), format!("sha1:{SHA}")),
            (commit(Some("main")), format!("main@sha1:{SHA}")),
        ] {
            assert_eq!(Revision::new(&reference, SHA).to_string(), expected);
        }
    }

    fn check(reference: &Reference, expected: &Expect) {
        expected.assert_eq(&match reference.wanted() {
            Ok(wanted) => format!("{wanted:?}"),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn names_that_git_would_not_take_are_refused() {
        check(&Reference::Branch("a/b".into()), &expect![[r#"Named("refs/heads/a/b")"#]]);
        check(
            &Reference::Branch("a..b".into()),
            &expect!["`a..b` cannot be a branch: reference name cannot contain repeated dots"],
        );
        check(
            &Reference::Branch("a\nb".into()),
            &expect![[r#"`ab` cannot be a branch: reference name contains invalid byte: "\n""#]],
        );
        check(
            &Reference::Tag(String::new()),
            &expect!["`` cannot be a tag: reference name cannot end with a slash"],
        );
        check(
            &Reference::Commit { sha: "abc".into(), branch: None },
            &expect![
                "`abc` cannot be a commit: a commit is given by all 40 hexadecimal digits of its hash"
            ],
        );
    }
}
