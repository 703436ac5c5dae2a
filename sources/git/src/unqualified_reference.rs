//! Whether a name without a prefix is a branch, a tag or a commit.
//!
//! Elsewhere: references with a known kind (`reference`).

use super::{Error, GitReference, GitRemote};

/// Calls `ask` with the references that Git finds for a name, in Git's order: the full name, a tag, a branch. The hash of a
/// commit stands for that commit alone, and an empty name for the default branch.
///
/// # Errors
/// [`Error::NoSuchRef`] if no reference has this name, or an error of `ask`.
pub fn named<T>(
    remote: &GitRemote,
    name: &str,
    mut ask: impl FnMut(&GitReference) -> Result<T, Error>,
) -> Result<T, Error> {
    let candidates = candidates(name);
    let mut last = None;
    for candidate in &candidates {
        match ask(candidate) {
            Err(error @ Error::NoSuchRef { .. }) => last = Some(error),
            otherwise => return otherwise,
        }
    }
    let missing = || Error::NoSuchRef {
        remote: remote.url.to_string(),
        reference: format!("branch, tag or commit `{name}`"),
    };
    Err(last.filter(|_| candidates.len() == 1).unwrap_or_else(missing))
}

fn candidates(name: &str) -> Vec<GitReference> {
    let is_hash = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name {
        "" | "HEAD" => vec![GitReference::Name("HEAD".to_owned())],
        sha if is_hash => {
            vec![GitReference::Commit { sha: sha.to_ascii_lowercase(), branch: None, name: None }]
        }
        name if name.starts_with("refs/") => vec![GitReference::Name(name.to_owned())],
        name => {
            // Git tries `refs/` first, which is of use only where more of the name is given.
            let full = name.contains('/').then(|| GitReference::Name(format!("refs/{name}")));
            let short = [GitReference::Tag(name.to_owned()), GitReference::Branch(name.to_owned())];
            full.into_iter().chain(short).collect()
        }
    }
}
