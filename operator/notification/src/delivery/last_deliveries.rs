//! Records how the last notification of each Provider ended. A Provider has no status, so its incident is derived from this
//! record.
//!
//! The record is lost when the process ends. An Incident that is open then stays open until the service accepts a
//! notification. Elsewhere: attempts (`provider_worker`), the incidents (`incident`).

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reconcile::Time;

use super::delivery_attempt::{DeliveryAttempt, DeliveryOutcome};
use super::provider_queues::ProviderKey;

/// The result of the last notification of a Provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LastDeliveryOutcome {
    /// The service accepted it.
    Accepted,
    /// A request failed for good, or several attempts failed.
    Failed {
        /// Since when the service has accepted no notification.
        since: Time,
        /// The error of the last attempt, without the values of Secrets.
        message: String,
    },
    /// The Provider of the last notification was deleted. No notification was sent to the new Provider of the same name.
    Replaced,
}

/// A result, and the uid of its Provider.
struct DeliveryOfProvider {
    uid: String,
    last: LastDeliveryOutcome,
}

/// The last result for each Provider to which this process has sent a notification.
#[derive(Default)]
pub(crate) struct LastDeliveries(Mutex<BTreeMap<ProviderKey, DeliveryOfProvider>>);

impl LastDeliveries {
    /// Records the result of an attempt for its Provider. It records nothing if the service was not asked.
    pub(super) fn record(&self, provider: &ProviderKey, attempt: &DeliveryAttempt) {
        let Some(uid) = &attempt.asked else { return };
        match &attempt.outcome {
            DeliveryOutcome::Delivered(_) => self.put(provider, uid, LastDeliveryOutcome::Accepted),
            DeliveryOutcome::Refused(warning) | DeliveryOutcome::Later(warning, _) => {
                self.failed(provider, uid, &warning.message);
            }
            DeliveryOutcome::Unwanted => {}
        }
    }

    fn put(&self, provider: &ProviderKey, uid: &str, last: LastDeliveryOutcome) {
        self.0.lock().insert(provider.clone(), DeliveryOfProvider { uid: uid.to_owned(), last });
    }

    /// The service of a Provider did not accept a notification.
    fn failed(&self, provider: &ProviderKey, uid: &str, message: &str) {
        let earlier = match self.0.lock().get(provider).filter(|it| it.uid == uid) {
            Some(DeliveryOfProvider {
                last: LastDeliveryOutcome::Failed { since, .. }, ..
            }) => Some(*since),
            Some(_) | None => None,
        };
        let since = earlier.unwrap_or_else(jiff::Timestamp::now);
        let message = super::logged(message).to_owned();
        self.put(provider, uid, LastDeliveryOutcome::Failed { since, message });
    }

    /// Forgets the results of Providers for which `uid_of` returns `None`, because they do not exist. A result for another uid
    /// becomes `Replaced`, since it says nothing about a Provider that was created later with the same name.
    pub(crate) fn retain(&self, uid_of: impl Fn(&ProviderKey) -> Option<String>) {
        self.0.lock().retain(|provider, result| {
            let Some(uid) = uid_of(provider) else { return false };
            if result.uid != uid {
                *result = DeliveryOfProvider { uid, last: LastDeliveryOutcome::Replaced };
            }
            true
        });
    }

    /// The outcome of the last delivery of each Provider.
    pub(crate) fn all(&self) -> BTreeMap<ProviderKey, LastDeliveryOutcome> {
        let all = self.0.lock();
        all.iter().map(|(provider, result)| (provider.clone(), result.last.clone())).collect()
    }

    /// Whether the last notification of a Provider failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.0
            .lock()
            .values()
            .any(|result| matches!(result.last, LastDeliveryOutcome::Failed { .. }))
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
        let sent = |outcome| DeliveryAttempt { outcome, asked: Some("u".to_owned()) };
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
        last.failed(&provider("gone"), "u", "404");
        last.failed(&provider("chat"), "u", "404");
        last.retain(|it| (*it == provider("chat")).then(|| "u".to_owned()));
        assert_eq!(last.all().into_keys().collect::<Vec<_>>(), [provider("chat")]);
        assert!(last.has_failures());
        last.retain(|_| None);
        assert!(!last.has_failures());
    }

    #[test]
    fn the_failure_of_a_provider_is_not_that_of_the_one_that_is_created_in_its_place() {
        let chat = provider("chat");
        let last = LastDeliveries::default();
        let replace = || last.retain(|_| Some("new".to_owned()));
        let long_ago =
            || LastDeliveryOutcome::Failed { since: Time::UNIX_EPOCH, message: "404".to_owned() };
        last.put(&chat, "old", long_ago());
        replace();
        assert_eq!(last.all().get(&chat), Some(&LastDeliveryOutcome::Replaced));
        assert!(!last.has_failures());
        // An attempt that began before the Provider was deleted ends after that.
        last.put(&chat, "old", long_ago());
        last.failed(&chat, "new", "410");
        replace();
        assert!(last.has_failures());
        let all = last.all();
        let Some(LastDeliveryOutcome::Failed { since, message }) = all.get(&chat) else {
            panic!("{all:?}");
        };
        assert!(*since > Time::UNIX_EPOCH && message == "410", "{all:?}");
    }

    #[test]
    fn a_failure_is_as_old_as_the_first_one_since_a_success_and_says_what_the_last_one_did() {
        let provider = provider("chat");
        let last = LastDeliveries::default();
        let failure = || match last.all().remove(&provider) {
            Some(LastDeliveryOutcome::Failed { since, message }) => Some((since, message)),
            Some(LastDeliveryOutcome::Accepted | LastDeliveryOutcome::Replaced) | None => None,
        };
        last.failed(&provider, "u", "404");
        let first = failure().unwrap();
        last.failed(&provider, "u", "410");
        assert_eq!(failure(), Some((first.0, "410".to_owned())));
        assert!(last.has_failures());
        last.put(&provider, "u", LastDeliveryOutcome::Accepted);
        assert_eq!(last.all().get(&provider), Some(&LastDeliveryOutcome::Accepted));
        assert!(!last.has_failures());
    }
}
