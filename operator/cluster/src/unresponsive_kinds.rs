//! Remembers kinds whose API server did not respond a moment ago, so that the next requests about them fail at once.
//!
//! A dead aggregated API server or conversion webhook blocks each request until its time limit. The requests share one
//! connection, which carries only a limited number at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use objects::Gvk;
use parking_lot::Mutex;

/// For how long no request about a kind is sent after one got no response.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// The kinds, each with the time when a request got no response.
#[derive(Debug, Default)]
pub struct UnresponsiveKinds(Mutex<BTreeMap<Gvk, Instant>>);

impl UnresponsiveKinds {
    /// Notes that a request about a kind got no response.
    pub fn add(&self, kind: &Gvk, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|_, at| now.saturating_duration_since(*at) < SILENT_FOR);
        all.insert(kind.clone(), now);
    }

    /// Whether a request about a kind got no response a moment ago.
    #[must_use]
    pub fn has(&self, kind: &Gvk, now: Instant) -> bool {
        let at = self.0.lock().get(kind).copied();
        at.is_some_and(|at| now.saturating_duration_since(at) < SILENT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_silent_for_a_while_and_then_asked_again() {
        let silent = UnresponsiveKinds::default();
        let begin = Instant::now();
        let kind = |name: &str| Gvk::new("metrics.k8s.io/v1beta1", name);
        silent.add(&kind("PodMetrics"), begin);
        assert!(silent.has(&kind("PodMetrics"), begin));
        assert!(!silent.has(&kind("NodeMetrics"), begin), "another kind");
        assert!(!silent.has(&kind("PodMetrics"), begin + SILENT_FOR));
        silent.add(&kind("NodeMetrics"), begin + SILENT_FOR);
        assert_eq!(silent.0.lock().len(), 1, "what is over is forgotten");
    }
}
