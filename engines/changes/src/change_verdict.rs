//! The verdict about a change, from the progress of all its members.

use std::time::Duration;

use reconcile::Time;

use super::member_state::MemberState;

/// How long a change may last without a member that ends, before the change is stalled.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(3600);

/// How many members a sentence names.
const MAX_NAMED: usize = 5;

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// A member has not ended yet.
    Progressing,
    /// All members succeeded, or were suspended.
    Succeeded,
    /// All members have ended, and one of them failed.
    Failed,
    /// The source got a new revision before all members ended.
    Superseded,
    /// A member was rolled back to the result that was applied before.
    RolledBack,
    /// No member has ended for a long time.
    Stalled,
}

impl ChangeVerdict {
    /// Whether the verdict is about members that have ended. [`Self::Superseded`] and [`Self::Stalled`] are about
    /// members that have not.
    const fn is_about_ends(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::RolledBack)
    }
}

/// How many members are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberCounts {
    /// Members in the state [`MemberState::Failed`].
    pub failed: usize,
    /// Members in the state [`MemberState::RolledBack`].
    pub rolled_back: usize,
    /// Members in the state [`MemberState::Progressing`].
    pub progressing: usize,
    /// Members in the state [`MemberState::Waiting`].
    pub waiting: usize,
    /// Members in the state [`MemberState::Skipped`].
    pub skipped: usize,
    /// Members in the state [`MemberState::Succeeded`].
    pub succeeded: usize,
}

impl MemberCounts {
    /// Counts one more member of the change in this state.
    pub const fn add(&mut self, state: MemberState) {
        let count = match state {
            MemberState::Failed => &mut self.failed,
            MemberState::RolledBack => &mut self.rolled_back,
            MemberState::Progressing => &mut self.progressing,
            MemberState::Waiting => &mut self.waiting,
            MemberState::Skipped => &mut self.skipped,
            MemberState::Succeeded => &mut self.succeeded,
        };
        *count += 1;
    }

    /// The number of all members.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.ended() + self.progressing + self.waiting
    }

    /// The number of members that have ended.
    const fn ended(&self) -> usize {
        self.failed + self.rolled_back + self.skipped + self.succeeded
    }

    /// The sum of both counts.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            failed: self.failed + other.failed,
            rolled_back: self.rolled_back + other.rolled_back,
            progressing: self.progressing + other.progressing,
            waiting: self.waiting + other.waiting,
            skipped: self.skipped + other.skipped,
            succeeded: self.succeeded + other.succeeded,
        }
    }

    /// The counts as text, such as `3 succeeded, 1 failed`.
    fn words(&self) -> String {
        let all = [
            (self.failed, "failed"),
            (self.rolled_back, "went back"),
            (self.progressing, "in progress"),
            (self.waiting, "waiting"),
            (self.skipped, "suspended"),
            (self.succeeded, "succeeded"),
        ];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }
}

/// The facts for a verdict about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeVerdictFacts {
    /// The members of all namespaces.
    pub counts: MemberCounts,
    /// Whether the list of members is final.
    pub is_closed: bool,
    /// Whether the source has a newer revision.
    pub is_superseded: bool,
    /// Whether a user requested a rollback, and it was carried out as far as possible.
    pub is_rolled_back: bool,
    /// When a member last ended. If none has, it is the beginning of the change.
    pub progressed: Time,
    /// The previous verdict.
    pub before: ChangeVerdict,
}

/// Judges a change by its members, its source and the time.
#[must_use]
pub fn verdict(change: &ChangeVerdictFacts, now: Time) -> ChangeVerdict {
    let ChangeVerdictFacts { counts, before, .. } = change;
    if change.is_rolled_back {
        return ChangeVerdict::RolledBack;
    }
    if change.is_superseded {
        return if before.is_about_ends() { *before } else { ChangeVerdict::Superseded };
    }
    if !change.is_closed || counts.ended() < counts.total() {
        // The verdict stays although a member is retried, resumed, or observed anew after a restart.
        if before.is_about_ends() {
            return *before;
        }
        let since = Duration::try_from(now.duration_since(change.progressed)).unwrap_or_default();
        return match since >= PROGRESS_DEADLINE {
            true => ChangeVerdict::Stalled,
            false => ChangeVerdict::Progressing,
        };
    }
    match (counts.rolled_back, counts.failed) {
        (0, 0) => ChangeVerdict::Succeeded,
        (0, _) => ChangeVerdict::Failed,
        _ => ChangeVerdict::RolledBack,
    }
}

/// The verdict as a sentence. `named` has the members that did not succeed, the most important first. Members of other
/// namespaces are not among them.
#[must_use]
pub fn sentence(counts: &MemberCounts, unchanged: usize, named: &[String]) -> String {
    let total = counts.total();
    let same = match unchanged {
        0 => String::new(),
        1 => "; 1 applier builds the same as before".to_owned(),
        many => format!("; {many} appliers build the same as before"),
    };
    if total == 0 {
        return format!("it changes no applier{same}");
    }
    let members = if total == 1 { "1 member".to_owned() } else { format!("{total} members") };
    let names = match named.len() {
        0 => String::new(),
        all if all > MAX_NAMED => {
            let some = named.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
            format!(" ({some} and {} more)", all - MAX_NAMED)
        }
        _ => format!(" ({})", named.join(", ")),
    };
    format!("{members}: {}{names}{same}", counts.words())
}

#[cfg(test)]
mod tests {
    use MemberState::{Failed, Progressing, RolledBack, Skipped, Succeeded, Waiting};

    use super::*;

    fn counts(states: &[MemberState]) -> MemberCounts {
        let mut counts = MemberCounts::default();
        states.iter().for_each(|state| counts.add(*state));
        counts
    }

    fn change(states: &[MemberState]) -> ChangeVerdictFacts {
        ChangeVerdictFacts {
            counts: counts(states),
            is_closed: true,
            is_superseded: false,
            is_rolled_back: false,
            progressed: Time::UNIX_EPOCH,
            before: ChangeVerdict::Progressing,
        }
    }

    fn judged(change: &ChangeVerdictFacts) -> ChangeVerdict {
        verdict(change, Time::from_second(60).unwrap())
    }

    #[test]
    fn a_change_is_judged_when_all_members_came_to_their_end() {
        assert_eq!(judged(&change(&[Succeeded, Skipped])), ChangeVerdict::Succeeded);
        assert_eq!(judged(&change(&[])), ChangeVerdict::Succeeded, "it changes nothing");
        assert_eq!(judged(&change(&[Succeeded, Failed])), ChangeVerdict::Failed);
        assert_eq!(judged(&change(&[Failed, RolledBack])), ChangeVerdict::RolledBack);
        assert_eq!(judged(&change(&[Failed, Progressing])), ChangeVerdict::Progressing);
        assert_eq!(judged(&change(&[Succeeded, Waiting])), ChangeVerdict::Progressing);
        let open = ChangeVerdictFacts { is_closed: false, ..change(&[Succeeded]) };
        assert_eq!(judged(&open), ChangeVerdict::Progressing);
        let repeated = ChangeVerdictFacts { before: ChangeVerdict::Failed, ..open };
        assert_eq!(judged(&repeated), ChangeVerdict::Failed);
    }

    #[test]
    fn a_change_that_makes_no_progress_for_an_hour_is_stalled_and_goes_on_later() {
        let waiting = change(&[Succeeded, Waiting]);
        let late = Time::from_second(3_600).unwrap();
        assert_eq!(verdict(&waiting, late), ChangeVerdict::Stalled);
        let ended = ChangeVerdictFacts { before: ChangeVerdict::Stalled, ..change(&[Succeeded]) };
        assert_eq!(verdict(&ended, late), ChangeVerdict::Succeeded);
    }

    #[test]
    fn a_source_that_moves_on_supersedes_what_has_no_verdict() {
        let superseded = ChangeVerdictFacts { is_superseded: true, ..change(&[Progressing]) };
        assert_eq!(judged(&superseded), ChangeVerdict::Superseded);
        let stalled = ChangeVerdictFacts { before: ChangeVerdict::Stalled, ..superseded };
        assert_eq!(judged(&stalled), ChangeVerdict::Superseded);
        let failed = ChangeVerdictFacts { before: ChangeVerdict::Failed, ..superseded };
        assert_eq!(judged(&failed), ChangeVerdict::Failed);
    }

    #[test]
    fn a_rollback_is_the_verdict_also_where_some_members_stay() {
        let asked = ChangeVerdictFacts { is_rolled_back: true, ..change(&[RolledBack, Succeeded]) };
        assert_eq!(judged(&asked), ChangeVerdict::RolledBack);
    }

    #[test]
    fn a_sentence_counts_members_and_names_some() {
        let of = counts(&[Failed, Succeeded, Succeeded]);
        let named = ["ks/shop".to_owned()];
        assert_eq!(sentence(&of, 0, &named), "3 members: 1 failed, 2 succeeded (ks/shop)");
        let many: Vec<String> = (0..7).map(|at| format!("ks/{at}")).collect();
        let said = sentence(&counts(&[Failed; 7]), 2, &many);
        assert_eq!(
            said,
            "7 members: 7 failed (ks/0, ks/1, ks/2, ks/3, ks/4 and 2 more); 2 appliers build the same as before"
        );
        let none = sentence(&MemberCounts::default(), 1, &[]);
        assert_eq!(none, "it changes no applier; 1 applier builds the same as before");
    }
}
