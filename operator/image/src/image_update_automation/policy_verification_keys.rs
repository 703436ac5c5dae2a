//! The verification keys that are in the Secrets of verified policies now. Each Secret is read once for all automations that
//! need it.
//!
//! Elsewhere: which Secrets a policy names (`policies`), with which keys a version was verified
//! (`crate::verified_image_versions`).

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use tokio::time::{Instant, timeout_at};
use windlass_runtime::run_context::RunContext;

use crate::image_verification::ImageVerificationKeySecretReference;
use crate::verified_image_versions::{KeyFingerprints, fingerprint};

/// The time limit for reading all Secrets together.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The most Secrets that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// The keys in Secrets, by `namespace/name` of the Secret.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyVerificationKeys(BTreeMap<String, VerificationKeyReadResult>);

/// The result of reading a Secret.
#[derive(Debug, Clone)]
enum VerificationKeyReadResult {
    /// Keys with this fingerprint.
    Fingerprint(String),
    /// The Secret does not exist.
    NotFound,
    /// The Secret could not be read, for this reason.
    Unread(String),
}

impl PolicyVerificationKeys {
    /// Reads some Secrets. A Secret that cannot be read only affects the policies that need it.
    pub(super) async fn read(
        context: &RunContext,
        secrets: BTreeMap<String, ImageVerificationKeySecretReference>,
    ) -> Self {
        let deadline = Instant::now() + READ_TIMEOUT;
        let reads: Vec<_> =
            secrets.into_values().map(|secret| read_one(context, secret, deadline)).collect();
        let read: Vec<(String, VerificationKeyReadResult)> =
            stream::iter(reads).buffer_unordered(READS_AT_ONCE).collect().await;
        Self(read.into_iter().collect())
    }

    /// These keys, and the keys in `other` for Secrets that were not read here.
    pub(super) fn or(&self, other: &Self) -> Self {
        let mut all = other.0.clone();
        all.extend(self.0.clone());
        Self(all)
    }

    /// The fingerprints of the Secrets that exist. `None` if one of the Secrets was not read yet.
    ///
    /// # Errors
    /// One of the Secrets could not be read.
    pub(super) fn of(
        &self,
        secrets: &[ImageVerificationKeySecretReference],
    ) -> Result<Option<KeyFingerprints>, RunOutcome> {
        let mut fingerprints = KeyFingerprints::new();
        for secret in secrets {
            let place = secret.place();
            match self.0.get(&place) {
                None => return Ok(None),
                Some(VerificationKeyReadResult::NotFound) => {}
                Some(VerificationKeyReadResult::Fingerprint(keys)) => {
                    fingerprints.insert(place, keys.clone());
                }
                Some(VerificationKeyReadResult::Unread(why)) => {
                    let text =
                        format!("failed to get secret '{place}', which has keys of images: {why}");
                    let of_condition = condition_reason::DEPENDENCY_NOT_READY;
                    return Err(RunOutcome::Failed(of_condition, text, NextRunTrigger::default()));
                }
            }
        }
        Ok(Some(fingerprints))
    }
}

async fn read_one(
    context: &RunContext,
    secret: ImageVerificationKeySecretReference,
    deadline: Instant,
) -> (String, VerificationKeyReadResult) {
    let read = context.cluster.secret(&secret.namespace, &secret.name);
    let reading = match timeout_at(deadline, read).await {
        Ok(Ok(Some((keys, _)))) => VerificationKeyReadResult::Fingerprint(fingerprint(&keys)),
        Ok(Ok(None)) => VerificationKeyReadResult::NotFound,
        Ok(Err(error)) => VerificationKeyReadResult::Unread(error.to_string()),
        Err(_) => {
            let seconds = READ_TIMEOUT.as_secs();
            VerificationKeyReadResult::Unread(format!(
                "the API server did not respond within {seconds}s"
            ))
        }
    };
    (secret.place(), reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PolicyVerificationKeys {
        /// What reading some Secrets would give; a failure is one of the API server.
        pub(in crate::image_update_automation) fn found<const N: usize>(
            all: [(&str, Result<Option<&str>, &str>); N],
        ) -> Self {
            let reading = |found: Result<Option<&str>, &str>| match found {
                Ok(Some(keys)) => VerificationKeyReadResult::Fingerprint(keys.to_owned()),
                Ok(None) => VerificationKeyReadResult::NotFound,
                Err(why) => VerificationKeyReadResult::Unread(why.to_owned()),
            };
            Self(all.into_iter().map(|(place, found)| (place.to_owned(), reading(found))).collect())
        }
    }

    fn secret(name: &str) -> ImageVerificationKeySecretReference {
        let [namespace, name] = ["apps", name].map(str::to_owned);
        ImageVerificationKeySecretReference { namespace, name, advice: "create it" }
    }

    #[test]
    fn a_secret_that_could_not_be_read_concerns_only_who_needs_it() {
        let keys = PolicyVerificationKeys::found([
            ("apps/a", Ok(Some("1"))),
            ("apps/gone", Ok(None)),
            ("apps/slow", Err("503")),
        ]);
        let expected = KeyFingerprints::from([("apps/a".to_owned(), "1".to_owned())]);
        assert_eq!(keys.of(&[secret("a"), secret("gone")]), Ok(Some(expected)));
        let failure = keys.of(&[secret("a"), secret("slow")]).unwrap_err();
        let text = "failed to get secret 'apps/slow', which has keys of images: 503";
        assert_eq!(failure.text(), text);
        assert!(matches!(failure, RunOutcome::Failed(..)), "{failure:?}");
        assert_eq!(keys.of(&[secret("other")]), Ok(None), "it was not asked for");
    }

    #[test]
    fn what_was_read_last_counts_and_before_it_what_a_member_read() {
        let of_member =
            PolicyVerificationKeys::found([("apps/a", Ok(Some("old"))), ("apps/b", Ok(Some("b")))]);
        let keys = PolicyVerificationKeys::found([("apps/a", Ok(None))]).or(&of_member);
        let expected = KeyFingerprints::from([("apps/b".to_owned(), "b".to_owned())]);
        assert_eq!(keys.of(&[secret("a"), secret("b")]), Ok(Some(expected)));
    }
}
