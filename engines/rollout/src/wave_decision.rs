//! Decides which appliers may take the newest revision of their source now.
//!
//! An applier counts as updated only if its status is about this artifact; an older `Ready` does not count. A wave is open once
//! all appliers of the earlier waves are updated and their soak times have passed. Each new artifact begins again with the
//! first wave, even if the rollout of the last one failed.

use std::collections::BTreeSet;
use std::time::Duration;

use reconcile::Time;

/// The progress of an applier with the artifact of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberProgress {
    /// The applier has applied the artifact and is healthy.
    Updated,
    /// The applier has attempted the artifact and failed.
    Failed,
    /// The artifact is being applied, or the applier waits for health.
    UnderWay,
    /// The applier has not attempted the artifact.
    Pending {
        /// Whether the present state of the applier is healthy.
        is_ready: bool,
    },
    /// The applier is suspended and has not applied the artifact.
    Suspended,
}

impl MemberProgress {
    /// Whether the applier has attempted the artifact. Such an attempt is not reverted.
    const fn has_begun(self) -> bool {
        matches!(self, Self::Updated | Self::Failed | Self::UnderWay)
    }

    /// Whether the applier may still take the artifact in its wave.
    const fn awaits_wave(self) -> bool {
        !matches!(self, Self::Updated | Self::Suspended)
    }
}

/// An applier of a rollout: its wave, its cluster and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutMember {
    /// The index of its wave.
    pub wave: usize,
    /// The cluster of the applier; empty for the cluster of windlass.
    pub cluster: String,
    /// The progress of the applier.
    pub progress: MemberProgress,
    /// Whether its cluster does not respond.
    pub is_offline: bool,
    /// Whether the last decision let the applier take the artifact.
    pub was_released: bool,
}

/// How many appliers of a wave may be unavailable at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// This number of appliers.
    Count(usize),
    /// This percentage of the wave's appliers, but at least one.
    Percent(u8),
}

impl MaxUnavailable {
    fn of_wave(self, members: usize) -> usize {
        match self {
            Self::Count(count) => count.max(1),
            Self::Percent(percent) => (members.saturating_mul(usize::from(percent)) / 100).max(1),
        }
    }
}

/// The rules of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaveRules {
    /// How many appliers of the wave may be unavailable at the same time.
    pub max_unavailable: MaxUnavailable,
    /// How long all appliers must be updated before the next wave opens.
    pub soak: Duration,
}

/// How the rollout treats appliers in clusters that do not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterOfflinePolicy {
    /// The rollout waits for these appliers.
    Wait,
    /// Up to this number of clusters is left out. If there are more, the rollout waits.
    Skip(usize),
    /// No further applier takes the artifact.
    Fail,
}

/// The progress of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaveProgress {
    /// The number of appliers.
    pub members: usize,
    /// Appliers that are updated.
    pub updated: usize,
    /// Appliers that failed.
    pub failed: usize,
    /// Appliers that are left out, because they are suspended or their cluster does not respond.
    pub skipped: usize,
    /// Since when all appliers of the wave are updated. Appliers that are left out do not count.
    pub updated_since: Option<Time>,
}

/// The state of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutVerdict {
    /// All appliers are updated. Appliers that are left out do not count.
    Complete,
    /// An applier of the first wave that is not complete failed.
    Failed,
    /// Clusters do not respond, and the policy is [`ClusterOfflinePolicy::Fail`].
    ClustersOffline,
    /// A wave is complete, and its soak time is not over.
    Soaking,
    /// Appliers are taking the artifact.
    Progressing,
}

/// Which appliers may take the artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutDecision {
    /// Whether each applier may, in their order.
    pub released: Vec<bool>,
    /// The progress of each wave.
    pub waves: Vec<WaveProgress>,
    /// The first wave that is not over; `None` if all waves are over.
    pub wave: Option<usize>,
    /// The state of the rollout.
    pub verdict: RolloutVerdict,
}

/// Decides which appliers may take the artifact. `updated_since` has one entry for each wave, taken from the last decision
/// about the same artifact. Of several healthy appliers, the first ones in the order of `members` are released. So with the same
/// order and health, a decision without `was_released`, as after a restart, releases those that were released before.
#[must_use]
pub fn decide(
    rules: &[WaveRules],
    members: &[RolloutMember],
    offline: ClusterOfflinePolicy,
    updated_since: &[Option<Time>],
    now: Time,
) -> RolloutDecision {
    let is_away = |it: &&RolloutMember| it.is_offline && it.progress != MemberProgress::Updated;
    // A cluster that several appliers name counts once.
    let clusters: BTreeSet<&str> =
        members.iter().filter(is_away).map(|it| it.cluster.as_str()).collect();
    let skips = matches!(offline, ClusterOfflinePolicy::Skip(most) if clusters.len() <= most);
    let stops = offline == ClusterOfflinePolicy::Fail && !clusters.is_empty();
    let is_skipped =
        |it: &RolloutMember| it.progress == MemberProgress::Suspended || skips && is_away(&it);
    let mut released: Vec<bool> = members.iter().map(|it| it.progress.has_begun()).collect();
    let mut waves = Vec::new();
    let mut current: Option<usize> = None;
    for (index, rule) in rules.iter().enumerate() {
        let since = updated_since.get(index).copied().flatten();
        let progress = progress(index, members, is_skipped, since, now);
        if current.is_none() && !stops {
            release(index, *rule, members, is_skipped, &mut released);
        }
        let is_awaited = members.iter().any(|it| it.wave > index && it.progress.awaits_wave());
        if current.is_none() && !is_over(&progress, *rule, is_awaited, now) {
            current = Some(index);
        }
        waves.push(progress);
    }
    let in_current = current.and_then(|index| waves.get(index));
    let verdict = match in_current {
        None => RolloutVerdict::Complete,
        Some(_) if stops => RolloutVerdict::ClustersOffline,
        Some(wave) if wave.failed > 0 => RolloutVerdict::Failed,
        Some(wave) if wave.updated_since.is_some() => RolloutVerdict::Soaking,
        Some(_) => RolloutVerdict::Progressing,
    };
    RolloutDecision { released, waves, wave: current, verdict }
}

/// The progress of a wave.
fn progress(
    index: usize,
    members: &[RolloutMember],
    is_skipped: impl Fn(&RolloutMember) -> bool,
    since: Option<Time>,
    now: Time,
) -> WaveProgress {
    let mut wave = WaveProgress::default();
    for member in members.iter().filter(|it| it.wave == index) {
        wave.members += 1;
        if is_skipped(member) {
            wave.skipped += 1;
            continue;
        }
        match member.progress {
            MemberProgress::Updated => wave.updated += 1,
            MemberProgress::Failed => wave.failed += 1,
            MemberProgress::UnderWay
            | MemberProgress::Pending { .. }
            | MemberProgress::Suspended => {}
        }
    }
    let is_updated = wave.updated + wave.skipped == wave.members;
    // If the clock was set back, the soak time still does not become longer.
    wave.updated_since = is_updated.then(|| since.map_or(now, |since| since.min(now)));
    wave
}

/// Whether the next wave may begin. A wave does not soak if none of its appliers was updated, or if no applier of a later wave
/// waits for it, as after the last wave.
fn is_over(wave: &WaveProgress, rule: WaveRules, is_awaited: bool, now: Time) -> bool {
    let Some(since) = wave.updated_since else { return false };
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    wave.updated == 0 || !is_awaited || passed >= rule.soak
}

/// Releases appliers of an open wave, up to the limit of unavailable appliers. Unhealthy appliers come first, because they are
/// unavailable already.
fn release(
    index: usize,
    rule: WaveRules,
    members: &[RolloutMember],
    is_skipped: impl Fn(&RolloutMember) -> bool,
    released: &mut [bool],
) {
    let mut broken = Vec::new();
    let mut ready = Vec::new();
    let mut count: usize = 0;
    let mut in_flight: usize = 0;
    for (member, released) in members.iter().zip(released).filter(|(it, _)| it.wave == index) {
        count += 1;
        if is_skipped(member) {
            // An offline applier takes the artifact when its cluster responds. A suspended one is pending after it is resumed,
            // and counts from then on.
            *released |= member.progress != MemberProgress::Suspended;
            continue;
        }
        match member.progress {
            MemberProgress::Updated | MemberProgress::Suspended => {}
            MemberProgress::Failed | MemberProgress::UnderWay => in_flight += 1,
            MemberProgress::Pending { .. } if member.was_released => {
                *released = true;
                in_flight += 1;
            }
            MemberProgress::Pending { is_ready: false } => broken.push(released),
            MemberProgress::Pending { is_ready: true } => ready.push(released),
        }
    }
    let limit = rule.max_unavailable.of_wave(count);
    let mut unavailable = in_flight + broken.len();
    for released in broken {
        if in_flight < limit {
            *released = true;
            in_flight += 1;
        }
    }
    for released in ready {
        if unavailable < limit {
            *released = true;
            unavailable += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: MemberProgress = MemberProgress::Pending { is_ready: true };
    const BROKEN: MemberProgress = MemberProgress::Pending { is_ready: false };

    fn now() -> Time {
        "2026-11-30T09:00:00Z".parse().unwrap()
    }

    fn earlier(seconds: u64) -> Time {
        now().checked_sub(Duration::from_secs(seconds)).unwrap()
    }

    fn member(wave: usize, progress: MemberProgress) -> RolloutMember {
        let cluster = String::new();
        RolloutMember { wave, cluster, progress, is_offline: false, was_released: false }
    }

    fn offline(wave: usize, cluster: &str) -> RolloutMember {
        RolloutMember { cluster: cluster.to_owned(), is_offline: true, ..member(wave, BROKEN) }
    }

    fn rules(count: usize, most: usize, soak: u64) -> Vec<WaveRules> {
        let soak = Duration::from_secs(soak);
        vec![WaveRules { max_unavailable: MaxUnavailable::Count(most), soak }; count]
    }

    fn decided(
        rules: &[WaveRules],
        members: &[RolloutMember],
        since: &[Option<Time>],
    ) -> RolloutDecision {
        decide(rules, members, ClusterOfflinePolicy::Wait, since, now())
    }

    #[test]
    fn production_waits_until_the_wave_before_reports_this_artifact() {
        let rules = rules(2, 5, 0);
        // Its `Ready` is True, and about the artifact before.
        let stale = decided(&rules, &[member(0, OLD), member(1, OLD)], &[]);
        assert_eq!(stale.released, [true, false]);
        assert_eq!((stale.wave, stale.verdict), (Some(0), RolloutVerdict::Progressing));
        let running = [member(0, MemberProgress::UnderWay), member(1, OLD)];
        assert_eq!(decided(&rules, &running, &[]).released, [true, false]);
        let updated = [member(0, MemberProgress::Updated), member(1, OLD)];
        assert_eq!(decided(&rules, &updated, &[]).released, [true, true]);
    }

    #[test]
    fn a_bad_artifact_stops_at_the_first_wave() {
        let rules = rules(2, 1, 0);
        let members = [member(0, MemberProgress::Failed), member(0, OLD), member(1, OLD)];
        let failed = decided(&rules, &members, &[]);
        assert_eq!(failed.released, [true, false, false]);
        assert_eq!((failed.wave, failed.verdict), (Some(0), RolloutVerdict::Failed));
    }

    #[test]
    fn the_first_wave_honours_its_limit_as_the_last_does() {
        let rules = rules(1, 2, 0);
        let fresh = vec![member(0, OLD); 5];
        assert_eq!(decided(&rules, &fresh, &[]).released, [true, true, false, false, false]);
        let mut half = fresh;
        half[3].was_released = true;
        half[4].progress = MemberProgress::UnderWay;
        assert_eq!(decided(&rules, &half, &[]).released, [false, false, false, true, true]);
        half[4].progress = MemberProgress::Updated;
        assert_eq!(decided(&rules, &half, &[]).released, [true, false, false, true, true]);
    }

    #[test]
    fn a_decision_that_remembers_nothing_releases_the_same_appliers_again() {
        let decided_now = |all: &[MemberProgress]| {
            let members: Vec<RolloutMember> = all.iter().map(|it| member(0, *it)).collect();
            decided(&rules(1, 2, 0), &members, &[None]).released
        };
        assert_eq!(decided_now(&[OLD, OLD, OLD, OLD]), [true, true, false, false]);
        // Killed while it updated the first two: only one of them reported that.
        for one_reported in [[MemberProgress::UnderWay, OLD], [OLD, MemberProgress::UnderWay]] {
            let [first, second] = one_reported;
            let released = decided_now(&[first, second, OLD, OLD]);
            assert_eq!(released, [true, true, false, false]);
        }
    }

    #[test]
    fn who_is_unavailable_anyway_goes_first_and_counts() {
        let members = [member(0, OLD), member(0, BROKEN), member(0, OLD)];
        assert_eq!(decided(&rules(1, 1, 0), &members, &[]).released, [false, true, false]);
        assert_eq!(decided(&rules(1, 2, 0), &members, &[]).released, [true, true, false]);
        let failed = [member(0, MemberProgress::Failed), member(0, BROKEN)];
        assert_eq!(decided(&rules(1, 1, 0), &failed, &[]).released, [true, false]);
    }

    #[test]
    fn the_next_wave_waits_for_the_soak_time_which_begins_anew_after_a_failure() {
        let rules = rules(2, 1, 60);
        let members = [member(0, MemberProgress::Updated), member(1, OLD)];
        let begins = decided(&rules, &members, &[]);
        assert_eq!(begins.waves[0].updated_since, Some(now()));
        assert_eq!(begins.verdict, RolloutVerdict::Soaking);
        let soaks = decided(&rules, &members, &[Some(earlier(59)), None]);
        assert_eq!(soaks.released, [true, false]);
        let over = decided(&rules, &members, &[Some(earlier(60)), None]);
        assert_eq!((over.released, over.wave), (vec![true, true], Some(1)));
        let broken = [member(0, MemberProgress::Failed), member(1, OLD)];
        let broken = decided(&rules, &broken, &[Some(earlier(60)), None]);
        assert_eq!(
            (broken.waves[0].updated_since, &broken.released[..]),
            (None, &[true, false][..])
        );
        let future = now().checked_add(Duration::from_secs(3600)).unwrap();
        let set_back = decided(&rules, &members, &[Some(future), None]);
        assert_eq!(set_back.waves[0].updated_since, Some(now()));
    }

    #[test]
    fn a_superseded_artifact_leaves_nothing_behind_that_could_hang() {
        // Both waves were under way with the artifact before, of which nothing is asked any more.
        let members = [member(0, BROKEN), member(1, BROKEN)];
        let next = decided(&rules(2, 1, 60), &members, &[]);
        assert_eq!((next.released, next.wave), (vec![true, false], Some(0)));
    }

    #[test]
    fn suspended_appliers_and_empty_waves_are_left_out_and_counted() {
        let members = [member(0, MemberProgress::Suspended), member(2, OLD)];
        let decision = decided(&rules(3, 1, 60), &members, &[]);
        assert_eq!(decision.wave, Some(2));
        assert_eq!(decision.released, [false, true], "what is resumed waits for its turn");
        assert_eq!((decision.waves[0].skipped, decision.waves[0].members), (1, 1));
    }

    #[test]
    fn all_may_take_it_when_the_last_wave_is_over_and_a_new_applier_waits_for_its_own() {
        let rules = rules(2, 1, 60);
        let mut members =
            vec![member(0, MemberProgress::Updated), member(1, MemberProgress::Updated)];
        let since = [Some(earlier(600)), Some(earlier(1))];
        let decision = decided(&rules, &members, &since);
        assert_eq!((decision.wave, decision.verdict), (None, RolloutVerdict::Complete));
        let at_once = decided(&rules, &members, &[]);
        assert_eq!(at_once.verdict, RolloutVerdict::Complete, "nothing waits for the soak time");
        members.push(member(0, OLD));
        let decision = decided(&rules, &members, &since);
        assert_eq!((decision.wave, decision.released), (Some(0), vec![true, true, true]));
    }

    #[test]
    fn clusters_that_do_not_respond_are_waited_for_skipped_up_to_a_limit_or_stop_it() {
        let rules = rules(2, 3, 0);
        let members = [
            member(0, MemberProgress::Updated),
            offline(0, "east"),
            offline(0, "east"),
            member(1, OLD),
        ];
        let with = |policy| decide(&rules, &members, policy, &[], now());
        assert_eq!(with(ClusterOfflinePolicy::Wait).wave, Some(0));
        let skipped = with(ClusterOfflinePolicy::Skip(1));
        assert_eq!((skipped.wave, skipped.waves[0].skipped), (Some(1), 2), "it counts once");
        assert_eq!(skipped.released, [true; 4], "it takes the revision when it responds");
        let mut more = members.to_vec();
        more.push(offline(0, "west"));
        let waits = decide(&rules, &more, ClusterOfflinePolicy::Skip(1), &[], now());
        assert_eq!((waits.wave, waits.released[3]), (Some(0), false));
        let stopped = with(ClusterOfflinePolicy::Fail);
        assert_eq!(stopped.verdict, RolloutVerdict::ClustersOffline);
        assert_eq!(stopped.released, [true, false, false, false]);
    }

    #[test]
    fn a_part_of_a_wave_is_at_least_one_applier() {
        assert_eq!(MaxUnavailable::Percent(25).of_wave(3), 1);
        assert_eq!(MaxUnavailable::Percent(25).of_wave(8), 2);
        assert_eq!(MaxUnavailable::Percent(100).of_wave(8), 8);
    }
}
