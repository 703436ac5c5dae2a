//! A signed commit, verified many times from its object and the keys of a Secret, as a GitRepository does it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::git_server::StoryGitRepository;
use e2e::signing_key::SigningKey;
use signatures::git::{CheckedOutCommit, GitVerificationKeys, GitVerificationMode, verify};

/// How long each verification of a commit takes that is made here.
///
/// # Errors
/// When it cannot be made, or is not verified.
pub(super) fn times(
    repository: &StoryGitRepository,
    signer: &SigningKey,
    count: u16,
) -> anyhow::Result<Vec<Duration>> {
    signer.sign(repository)?;
    let hash = repository.commit(&[("app.yaml", "kind: ConfigMap\n")], "Signed")?;
    // What `git` prints is trimmed, and the object ends with a line break.
    let object = format!("{}\n", repository.git(&["cat-file", "commit", &hash])?);
    let (name, key) = signer.public();
    let now = u64::try_from(jiff::Timestamp::now().as_second()).context("a time before 1970")?;
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let keys = GitVerificationKeys::new([(name, key.as_bytes())]);
        let checkout = CheckedOutCommit { commit: (&hash, object.as_bytes()), tag: None };
        verify(GitVerificationMode::Head, &checkout, &keys, now)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}
