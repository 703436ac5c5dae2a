//! How the last notification of each Provider ended. A Provider has no status, so its incident is derived from this.
//!
//! It is gone with the process: an Incident that is open stays so until a notification is accepted. Elsewhere: attempts
//! (`provider_queue`), the incidents (`incident`).

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reconcile::Time;

use super::provider_queues::ProviderKey;

/// How the last notification of a Provider ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LastDelivery {
    /// The service accepted it.
    Accepted,
    /// It was discarded, or several attempts failed.
    Failed {
        /// Since when the service has accepted none.
        since: Time,
        /// What the last attempt came to, without what the Secrets hold.
        message: String,
    },
}

/// How the last notification of each Provider ended that was sent any since the process started.
#[derive(Default)]
pub(crate) struct LastDeliveries(Mutex<BTreeMap<ProviderKey, LastDelivery>>);

impl LastDeliveries {
    /// The service of a Provider accepted a notification.
    pub(super) fn accepted(&self, place: &ProviderKey) {
        self.0.lock().insert(place.clone(), LastDelivery::Accepted);
    }

    /// A notification of a Provider was discarded, or several attempts failed.
    pub(super) fn failed(&self, place: &ProviderKey, message: &str) {
        let mut all = self.0.lock();
        let since = match all.get(place) {
            Some(LastDelivery::Failed { since, .. }) => *since,
            Some(LastDelivery::Accepted) | None => jiff::Timestamp::now(),
        };
        let message = super::logged(message).to_owned();
        all.insert(place.clone(), LastDelivery::Failed { since, message });
    }

    /// A Provider was deleted.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let place = ProviderKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.0.lock().remove(&place);
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
    use super::*;

    #[test]
    fn a_failure_is_as_old_as_the_first_one_since_a_success_and_says_what_the_last_one_did() {
        let place = ProviderKey { namespace: "apps".to_owned(), name: "chat".to_owned() };
        let last = LastDeliveries::default();
        let failure = || match last.all().remove(&place) {
            Some(LastDelivery::Failed { since, message }) => Some((since, message)),
            Some(LastDelivery::Accepted) | None => None,
        };
        last.failed(&place, "404");
        let first = failure().unwrap();
        last.failed(&place, "410");
        assert_eq!(failure(), Some((first.0, "410".to_owned())));
        assert!(last.has_failures());
        last.accepted(&place);
        assert_eq!(last.all().get(&place), Some(&LastDelivery::Accepted));
        assert!(!last.has_failures());
        last.failed(&place, "404");
        last.forget("apps", "chat");
        assert!(last.all().is_empty());
    }
}
