//! Whether rollouts have moved on a moment ago. Passes are more frequent then.
//!
//! An applier may wait for days, such as for its window. Such a wait is not worth frequent passes.

use std::time::{Duration, Instant};

use rollout::wave_decision::{RolloutDecision, RolloutVerdict};

/// For how long passes are frequent after the last change of a decision.
const FREQUENT_PASSES_WITHIN: Duration = Duration::from_secs(10);

/// The decisions about artifacts that appliers take at present, and when one of them last changed.
#[derive(Debug)]
pub(crate) struct RecentProgress {
    under_way: Vec<RolloutDecision>,
    changed: Instant,
}

impl RecentProgress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { under_way: Vec::new(), changed: now }
    }

    /// Notes the decisions of a pass. Returns whether appliers take an artifact, and one of the decisions changed a moment ago.
    pub(crate) fn note(&mut self, decisions: Vec<RolloutDecision>, now: Instant) -> bool {
        let is_under_way = |it: &RolloutDecision| it.verdict == RolloutVerdict::Progressing;
        let under_way: Vec<RolloutDecision> = decisions.into_iter().filter(is_under_way).collect();
        if under_way != self.under_way {
            self.under_way = under_way;
            self.changed = now;
        }
        let since = now.saturating_duration_since(self.changed);
        !self.under_way.is_empty() && since < FREQUENT_PASSES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use rollout::wave_decision::WaveProgress;

    use super::*;

    fn decision(updated: usize, verdict: RolloutVerdict) -> RolloutDecision {
        let wave = WaveProgress { members: 3, updated, ..WaveProgress::default() };
        RolloutDecision { released: vec![true; 3], waves: vec![wave], wave: Some(0), verdict }
    }

    #[test]
    fn passes_are_frequent_while_appliers_are_updated_and_not_while_they_only_wait() {
        let begun = Instant::now();
        let mut recent = RecentProgress::new(begun);
        let mut note = |seconds: u64, decision: RolloutDecision| {
            recent.note(vec![decision], begun + Duration::from_secs(seconds))
        };
        assert!(note(100, decision(0, RolloutVerdict::Progressing)));
        assert!(note(109, decision(0, RolloutVerdict::Progressing)));
        assert!(!note(110, decision(0, RolloutVerdict::Progressing)), "nothing has changed");
        assert!(note(200, decision(1, RolloutVerdict::Progressing)));
        assert!(!note(201, decision(3, RolloutVerdict::Complete)));
        assert!(!note(202, decision(1, RolloutVerdict::Failed)));
        assert!(note(203, decision(0, RolloutVerdict::Progressing)), "a newer artifact");
    }
}
