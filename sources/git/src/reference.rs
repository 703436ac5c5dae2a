//! The requested reference of a repository. Elsewhere: the name of the result (`revision`).

use std::fmt;

use gix::hash::ObjectId;
use golang::highest_version_selection::VersionRange;
use golang::semver::VersionConstraintError;

use super::Error;
use super::error::shown;

/// The requested reference of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitReference {
    /// The tip of a branch.
    Branch(String),
    /// The commit of a tag. An annotated tag is resolved to its commit.
    Tag(String),
    /// A full name, such as `refs/pull/1/head`. An annotated tag is resolved to its commit.
    Name(String),
    /// The highest tag in a range of versions.
    Semver(VersionRange),
    /// One commit by its hash.
    Commit {
        /// All forty hexadecimal digits.
        sha: String,
        /// The branch that must contain the commit, if it is given.
        branch: Option<String>,
        /// A full name for the revision, in place of the branch's name. It is not checked.
        name: Option<String>,
    },
}

impl Default for GitReference {
    /// The default of Flux, which is the branch `master`.
    fn default() -> Self {
        Self::Branch("master".to_owned())
    }
}

impl fmt::Display for GitReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch `{name}`"),
            Self::Tag(name) => write!(f, "tag `{name}`"),
            Self::Name(name) => write!(f, "reference `{name}`"),
            Self::Semver(range) => write!(f, "tag in range `{range}`"),
            Self::Commit { sha, .. } => write!(f, "commit `{sha}`"),
        }
    }
}

/// A checked [`GitReference`], as the remote is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RemoteReferenceQuery {
    /// A full reference name, such as `refs/heads/main`.
    Named(String),
    /// The tag of the highest version.
    Highest(VersionRange),
    /// A commit, by its hash alone.
    Commit(ObjectId),
    /// A commit that a full branch name leads to.
    CommitOn(ObjectId, String),
    /// A commit that the server refuses to send by its hash alone. All branches and tags are fetched to find it.
    CommitAnywhere(ObjectId),
}

impl GitReference {
    /// The query for the highest tag in a range of versions.
    ///
    /// # Errors
    /// [`Error::InvalidReference`] if it is not a range.
    pub fn semver(range: &str) -> Result<Self, Error> {
        let refused =
            |error: VersionConstraintError| invalid("version range", range, error.to_string());
        VersionRange::parse(range).map(Self::Semver).map_err(refused)
    }

    /// Checks names and hash by the rules of Git, without any request.
    ///
    /// # Errors
    /// [`Error::InvalidReference`], with the reason.
    pub fn check(&self) -> Result<(), Error> {
        self.wanted().map(drop)
    }

    /// Checks names and hash.
    pub(super) fn wanted(&self) -> Result<RemoteReferenceQuery, Error> {
        Ok(match self {
            Self::Branch(name) => {
                RemoteReferenceQuery::Named(full_name("branch", "refs/heads/", name)?)
            }
            Self::Tag(name) => RemoteReferenceQuery::Named(full_name("tag", "refs/tags/", name)?),
            // Parity(flux): a tag may be asked for with Git's suffix `^{}`, which means the commit; that is the result
            // anyway.
            Self::Name(name) => {
                let is_tag = name.starts_with("refs/tags/");
                let bare = name.strip_suffix("^{}").filter(|_| is_tag).unwrap_or(name);
                if !bare.contains('/') && bare != "HEAD" {
                    let reason = "it must start with refs/, as in `refs/heads/main`";
                    return Err(invalid("full reference", name, reason.to_owned()));
                }
                RemoteReferenceQuery::Named(full_name("full reference", "", bare)?)
            }
            Self::Semver(range) => RemoteReferenceQuery::Highest(range.clone()),
            Self::Commit { sha, branch: None, .. } => RemoteReferenceQuery::Commit(hash(sha)?),
            Self::Commit { sha, branch: Some(branch), .. } => RemoteReferenceQuery::CommitOn(
                hash(sha)?,
                full_name("branch", "refs/heads/", branch)?,
            ),
        })
    }
}

/// The full name of a reference, checked.
pub(super) fn full_name(kind: &'static str, prefix: &str, name: &str) -> Result<String, Error> {
    let full = format!("{prefix}{name}");
    match gix::validate::reference::name(full.as_str().into()) {
        Ok(_) => Ok(full),
        Err(error) => Err(invalid(kind, name, error.to_string().to_lowercase())),
    }
}

/// The commit of a hash with all of its digits.
pub(super) fn hash(sha: &str) -> Result<ObjectId, Error> {
    ObjectId::from_hex(sha.as_bytes()).map_err(|_malformed| {
        let reason = "a commit must be the full SHA of 40 hexadecimal digits";
        invalid("commit", sha, reason.to_owned())
    })
}

fn invalid(kind: &'static str, name: &str, reason: String) -> Error {
    Error::InvalidReference { kind, name: shown(name), reason }
}

/// The present commit of a reference at a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceTip {
    /// The commit: forty hexadecimal digits in lower case.
    pub sha: String,
    /// The full name of the reference, such as `refs/heads/main` or `refs/tags/v1.2.3`. Empty for a bare commit.
    pub refname: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(reference: &GitReference, expected: &Expect) {
        expected.assert_eq(&match reference.wanted() {
            Ok(wanted) => format!("{wanted:?}"),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn names_that_git_would_not_take_are_refused() {
        check(&GitReference::Branch("a/b".into()), &expect![[r#"Named("refs/heads/a/b")"#]]);
        check(
            &GitReference::Branch("a..b".into()),
            &expect!["`a..b` is not a valid branch: reference name cannot contain repeated dots"],
        );
        check(
            &GitReference::Branch("a\nb".into()),
            &expect![[r#"`ab` is not a valid branch: reference name contains invalid byte: "\n""#]],
        );
        check(
            &GitReference::Tag(String::new()),
            &expect!["`` is not a valid tag: reference name cannot end with a slash"],
        );
        check(
            &GitReference::Commit { sha: "abc".into(), branch: None, name: None },
            &expect![
                "`abc` is not a valid commit: a commit must be the full SHA of 40 hexadecimal digits"
            ],
        );
    }

    #[test]
    fn a_full_reference_is_taken_as_it_is() {
        let name = |name: &str| GitReference::Name(name.into());
        check(&name("refs/pull/1/head"), &expect![[r#"Named("refs/pull/1/head")"#]]);
        check(&name("HEAD"), &expect![[r#"Named("HEAD")"#]]);
        check(&name("refs/tags/v1^{}"), &expect![[r#"Named("refs/tags/v1")"#]]);
        check(
            &name("refs/heads/v1^{}"),
            &expect![[
                r#"`refs/heads/v1^{}` is not a valid full reference: reference name contains invalid byte: "^""#
            ]],
        );
        check(
            &name("main"),
            &expect![
                "`main` is not a valid full reference: it must start with refs/, as in `refs/heads/main`"
            ],
        );
        check(
            &name("/refs/heads/main"),
            &expect![
                "`/refs/heads/main` is not a valid full reference: reference name cannot start with a slash"
            ],
        );
        check(
            &name("refs/heads/main/"),
            &expect![
                "`refs/heads/main/` is not a valid full reference: reference name cannot end with a slash"
            ],
        );
    }

    #[test]
    fn a_text_that_is_no_range_is_refused_with_the_reason() {
        let message = GitReference::semver("latest").unwrap_err().to_string();
        assert!(message.starts_with("`latest` is not a valid version range: "), "{message}");
    }
}
