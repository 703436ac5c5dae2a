//! Pauses writes of Incidents after the API server rejected a write.
//!
//! An API server that does not work pauses all writes. A refusal of one Incident pauses writes of that Incident, and the
//! creation of others in its namespace, since a quota may be the reason. So no tenant stops the incidents of another.
//!
//! Elsewhere: the writes (`incident_store`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long nothing is written to an API server that does not work, or created in a namespace where a creation was rejected.
const WRITE_BACKOFF_DELAY: Duration = Duration::from_secs(10);

/// How long an Incident is not written after a repeated refusal with the same text.
const REPEATED_REFUSAL_DELAY: Duration = Duration::from_secs(300);

/// The most refusals that are remembered.
const MAX_REMEMBERED_REFUSALS: usize = 10_000;

/// The scope of a refused write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncidentWriteRefusalScope {
    /// The server does not work, or its answer was lost.
    OfServer,
    /// The API server rejects this Incident.
    OfIncident,
    /// Another write created the Incident, and the watch has not reported it yet.
    Early,
}

/// The pauses in writing Incidents after the API server rejected a write: of all writes, of creation in
/// a namespace, or of one Incident.
#[derive(Debug, Default)]
pub(super) struct IncidentWriteBackoff {
    all: Option<Instant>,
    /// The end of the pause of creations, by namespace.
    namespaces: BTreeMap<String, Instant>,
    /// The end of the pause of an Incident's writes, by namespace and name.
    incidents: BTreeMap<(String, String), Instant>,
}

impl IncidentWriteBackoff {
    /// Forgets pauses that have ended.
    pub(super) fn pass(&mut self, now: Instant) {
        self.all = self.all.filter(|until| *until > now);
        self.namespaces.retain(|_, until| *until > now);
        self.incidents.retain(|_, until| *until > now);
    }

    /// Whether anything may be written.
    pub(super) fn is_open(&self) -> bool {
        self.all.is_none()
    }

    /// Whether an Incident may be written.
    pub(super) fn allows(&self, namespace: &str, name: &str) -> bool {
        let is_refused = || self.incidents.contains_key(&(namespace.to_owned(), name.to_owned()));
        self.is_open() && !is_refused()
    }

    /// Whether an Incident may be created in a namespace.
    pub(super) fn allows_creation(&self, namespace: &str) -> bool {
        self.is_open() && !self.namespaces.contains_key(namespace)
    }

    /// Records that the API server refused the write of an Incident. The next writes wait, as far as the refusal reaches.
    pub(super) fn refused(
        &mut self,
        namespace: &str,
        name: &str,
        refusal: IncidentWriteRefusalScope,
        now: Instant,
    ) {
        let limit = match refusal {
            IncidentWriteRefusalScope::OfServer => {
                self.all = Some(now + WRITE_BACKOFF_DELAY);
                return;
            }
            IncidentWriteRefusalScope::OfIncident => {
                self.namespaces.insert(namespace.to_owned(), now + WRITE_BACKOFF_DELAY);
                REPEATED_REFUSAL_DELAY
            }
            IncidentWriteRefusalScope::Early => WRITE_BACKOFF_DELAY,
        };
        if self.incidents.len() < MAX_REMEMBERED_REFUSALS {
            let key = (namespace.to_owned(), name.to_owned());
            self.incidents.insert(key, now + limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_a_namespace_stops_no_writes_in_others() {
        let mut pauses = IncidentWriteBackoff::default();
        let now = Instant::now();
        pauses.refused("a", "i", IncidentWriteRefusalScope::OfIncident, now);
        assert!(!pauses.allows("a", "i") && !pauses.allows_creation("a"));
        assert!(pauses.allows("a", "j"), "existing Incidents are still updated");
        assert!(pauses.allows("b", "i") && pauses.allows_creation("b"));
        pauses.pass(now + WRITE_BACKOFF_DELAY);
        assert!(pauses.allows_creation("a") && !pauses.allows("a", "i"));
        pauses.pass(now + REPEATED_REFUSAL_DELAY);
        assert!(pauses.allows("a", "i"));
    }

    #[test]
    fn a_server_that_does_not_work_gets_no_writes_for_a_while() {
        let mut pauses = IncidentWriteBackoff::default();
        let now = Instant::now();
        pauses.refused("a", "i", IncidentWriteRefusalScope::OfServer, now);
        assert!(!pauses.is_open() && !pauses.allows("b", "i") && !pauses.allows_creation("b"));
        pauses.pass(now + WRITE_BACKOFF_DELAY);
        assert!(pauses.allows("a", "i"));
    }
}
