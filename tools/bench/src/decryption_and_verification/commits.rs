//! Verifies a signed commit many times with the keys of a Secret, like a GitRepository does.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::git_server::StoryGitRepository;
use e2e::signing_key::SigningKey;
use signatures::git::{CheckedOutCommit, GitVerificationKeys, GitVerificationMode, verify};

/// Makes a signed commit, and measures each of its verifications.
///
/// # Errors
/// When the commit cannot be made, or its signature is not valid.
pub(super) fn times(
    repository: &StoryGitRepository,
    signer: &SigningKey,
    count: u16,
) -> anyhow::Result<Vec<Duration>> {
    signer.sign(repository)?;
    let hash = repository.commit(&[("app.yaml", "kind: ConfigMap\n")], "Signed")?;
    // The helper trims the output of `git`, but the object ends with a line break.
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
