//! How the last notification of each Provider ended. A Provider has no status, so its incident is derived from this.
//!
//! It is gone with the process: an Incident that is open stays so until a notification is accepted. Elsewhere: attempts
//! (`provider_queue`), the incidents (`incident`).

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reconcile::Time;

use super::attempt::{DeliveryAttempt, DeliveryOutcome};
use super::provider_queues::ProviderKey;

/// How the last notification of a Provider ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LastDelivery {
    /// The service accepted it.
    Accepted,
    /// A request failed for good, or several attempts failed.
    Failed {
        /// Since when the service has accepted none.
        since: Time,
        /// What the last attempt came to, without what the Secrets hold.
        message: String,
    },
}

/// The last result for each Provider to which this process has sent a notification.
#[derive(Default)]
pub(crate) struct LastDeliveries(Mutex<BTreeMap<ProviderKey, LastDelivery>>);

impl LastDeliveries {
    /// Records what an attempt says of the service of a Provider: nothing, if the service was not asked.
    pub(super) fn record(&self, provider: &ProviderKey, attempt: &DeliveryAttempt) {
        if !attempt.is_of_service {
            return;
        }
        match &attempt.outcome {
            DeliveryOutcome::Delivered(_) => self.accepted(provider),
            DeliveryOutcome::Refused(warning) | DeliveryOutcome::Later(warning, _) => {
                self.failed(provider, &warning.message);
            }
            DeliveryOutcome::Unwanted => {}
        }
    }

    /// The service of a Provider accepted a notification.
    fn accepted(&self, provider: &ProviderKey) {
        self.0.lock().insert(provider.clone(), LastDelivery::Accepted);
    }

    /// The service of a Provider did not accept a notification.
    fn failed(&self, provider: &ProviderKey, message: &str) {
        let mut all = self.0.lock();
        let since = match all.get(provider) {
            Some(LastDelivery::Failed { since, .. }) => *since,
            Some(LastDelivery::Accepted) | None => jiff::Timestamp::now(),
        };
        let message = super::logged(message).to_owned();
        all.insert(provider.clone(), LastDelivery::Failed { since, message });
    }

    /// Forgets the results of other Providers.
    pub(crate) fn retain(&self, is_kept: impl Fn(&ProviderKey) -> bool) {
        self.0.lock().retain(|provider, _| is_kept(provider));
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<ProviderKey, LastDelivery> {
        self.0.lock().clone()
    }

    /// Whether the last notification of a Provider failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.0.lock().values().any(|last| matches!(last, LastDelivery::Failed { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::alert_warnings::dispatch_failed;
    use super::*;

    fn provider(name: &str) -> ProviderKey {
        ProviderKey { namespace: "apps".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn what_did_not_come_from_a_request_says_nothing_of_the_service() {
        let warning = || dispatch_failed("404".to_owned());
        let refused = || DeliveryOutcome::Refused(warning());
        let later = || DeliveryOutcome::Later(warning(), None);
        let accepted = || DeliveryOutcome::Delivered(None);
        let sent = |outcome| DeliveryAttempt { outcome, is_of_service: true };
        let last = LastDeliveries::default();
        let chat = provider("chat");
        // It panicked or expired, or the Provider or the event is unsuitable.
        last.record(&chat, &DeliveryAttempt::unsent(refused()));
        last.record(&chat, &DeliveryAttempt::unsent(later()));
        assert!(last.all().is_empty());
        for failed in [refused(), later()] {
            last.record(&chat, &sent(failed));
            assert!(last.has_failures());
            // The service needs nothing of an event.
            last.record(&chat, &DeliveryAttempt::unsent(accepted()));
            last.record(&chat, &sent(DeliveryOutcome::Unwanted));
            assert!(last.has_failures());
            last.record(&chat, &sent(accepted()));
            assert!(!last.has_failures());
        }
    }

    #[test]
    fn the_failure_of_a_provider_that_is_gone_is_forgotten_and_that_of_another_stays() {
        let last = LastDeliveries::default();
        last.failed(&provider("gone"), "404");
        last.failed(&provider("chat"), "404");
        last.retain(|it| *it == provider("chat"));
        assert_eq!(last.all().into_keys().collect::<Vec<_>>(), [provider("chat")]);
        last.retain(|_| false);
        assert!(!last.has_failures());
    }

    #[test]
    fn a_failure_is_as_old_as_the_first_one_since_a_success_and_says_what_the_last_one_did() {
        let provider = provider("chat");
        let last = LastDeliveries::default();
        let failure = || match last.all().remove(&provider) {
            Some(LastDelivery::Failed { since, message }) => Some((since, message)),
            Some(LastDelivery::Accepted) | None => None,
        };
        last.failed(&provider, "404");
        let first = failure().unwrap();
        last.failed(&provider, "410");
        assert_eq!(failure(), Some((first.0, "410".to_owned())));
        assert!(last.has_failures());
        last.accepted(&provider);
        assert_eq!(last.all().get(&provider), Some(&LastDelivery::Accepted));
        assert!(!last.has_failures());
    }
}
