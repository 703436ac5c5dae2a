//! Records when each digest was first seen under each tag of an image, for policies with a minimum age.
//!
//! Here: from which time a tag counts, and the lines that are stored. Elsewhere: the file and the clock (the controllers),
//! which tags are worth a request (`policy.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The most digests that are kept.
const MAX_KEPT_DIGESTS: usize = 4096;

/// When the digests of the tags of one image were first seen. Times are in whole seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagHistory {
    /// Digests by tag.
    tags: BTreeMap<String, BTreeMap<String, Timestamp>>,
}

/// A digest under a tag.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DigestFirstSeen {
    at: Timestamp,
    tag: String,
    digest: String,
}

impl TagHistory {
    /// Reads the output of [`Self::stored`] at the time `now`. Malformed lines are left out.
    ///
    /// A time in the future is replaced by `now`. A wrong clock then delays a tag no longer than a lost file would.
    pub fn read(stored: &str, now: Timestamp) -> Self {
        let now = whole_seconds(now);
        let mut history = Self::default();
        for line in stored.lines().take(MAX_KEPT_DIGESTS) {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let [tag, digest, seconds] = words.as_slice() else { continue };
            let at = seconds.parse::<i64>().ok().and_then(|it| Timestamp::from_second(it).ok());
            if let Some(at) = at {
                history.keep(tag, digest, at.min(now));
            }
        }
        history
    }

    /// A line for each digest under a tag.
    pub fn stored(&self) -> String {
        let lines = self.tags.iter().flat_map(|(tag, digests)| {
            digests.iter().map(move |(digest, at)| format!("{tag} {digest} {}\n", at.as_second()))
        });
        lines.collect()
    }

    /// Records that a tag has a digest at the time `now`. Returns the time at which this was first seen.
    pub fn see(&mut self, tag: &str, digest: &str, now: Timestamp) -> Timestamp {
        let known = self.tags.get(tag).and_then(|digests| digests.get(digest)).copied();
        known.unwrap_or_else(|| {
            let now = whole_seconds(now);
            self.keep(tag, digest, now);
            now
        })
    }

    fn keep(&mut self, tag: &str, digest: &str, at: Timestamp) {
        self.tags.entry(tag.to_owned()).or_default().insert(digest.to_owned(), at);
    }

    /// The earliest time at which a tag counts, if all digests seen under it are younger than `min_age`. `None` if one is old
    /// enough, or none was seen.
    pub fn waits_until(&self, tag: &str, min_age: Duration, now: Timestamp) -> Option<Timestamp> {
        let first = self.tags.get(tag)?.values().min()?;
        Some(counts_from(*first, min_age)).filter(|at| *at > now)
    }

    /// The earliest time after `now` at which a digest reaches the age `min_age`; `None` if none does.
    pub fn next_change(&self, min_age: Duration, now: Timestamp) -> Option<Timestamp> {
        let times = self.tags.values().flat_map(BTreeMap::values);
        times.map(|first| counts_from(*first, min_age)).filter(|at| *at > now).min()
    }

    /// Removes digests beyond the limit. Digests that are old enough go first, beginning with the oldest. If that is not
    /// sufficient, the newest digests go, because they will be seen again.
    pub fn trim(&mut self, min_age: Duration, now: Timestamp) {
        let count: usize = self.tags.values().map(BTreeMap::len).sum();
        let excess = count.saturating_sub(MAX_KEPT_DIGESTS);
        if excess == 0 {
            return;
        }
        let all = std::mem::take(&mut self.tags).into_iter().flat_map(|(tag, digests)| {
            digests.into_iter().map(move |(digest, at)| DigestFirstSeen {
                at,
                tag: tag.clone(),
                digest,
            })
        });
        let mut all: Vec<DigestFirstSeen> = all.collect();
        all.sort();
        let old = all.partition_point(|it| counts_from(it.at, min_age) <= now);
        for sight in all.into_iter().skip(old.min(excess)).take(MAX_KEPT_DIGESTS) {
            self.keep(&sight.tag, &sight.digest, sight.at);
        }
    }
}

/// The time from which a digest counts that was first seen at `first_seen`.
pub fn counts_from(first_seen: Timestamp, min_age: Duration) -> Timestamp {
    let min_age = SignedDuration::try_from(min_age).unwrap_or(SignedDuration::MAX);
    first_seen.checked_add(min_age).unwrap_or(Timestamp::MAX)
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn time(text: &str) -> Timestamp {
        format!("2026-11-{text}Z").parse().unwrap()
    }

    #[test]
    fn a_tag_counts_once_a_digest_of_it_was_seen_long_ago() {
        let mut history = TagHistory::default();
        let first = time("24T10:00:00");
        assert_eq!(history.waits_until("v1", DAY, first), None, "it was never seen");
        assert_eq!(history.see("v1", "sha256:a", time("24T10:00:00.9")), first);
        assert_eq!(history.see("v1", "sha256:a", time("24T20:00:00")), first);
        assert_eq!(history.waits_until("v1", DAY, time("25T09:59:59")), Some(time("25T10:00:00")));
        assert_eq!(history.waits_until("v1", DAY, time("25T10:00:00")), None);
        assert_eq!(history.waits_until("v2", DAY, time("24T10:00:00")), None);
        // It moves, and back.
        let moved = time("25T12:00:00");
        assert_eq!(history.see("v1", "sha256:b", moved), moved);
        assert_eq!(history.see("v1", "sha256:a", moved), first);
        assert_eq!(history.waits_until("v1", DAY, moved), None, "it may have moved back");
        assert_eq!(history.next_change(DAY, moved), Some(time("26T12:00:00")));
        assert_eq!(history.next_change(DAY, time("26T12:00:00")), None);
        assert_eq!(history.next_change(Duration::MAX, moved), Some(Timestamp::MAX));
    }

    #[test]
    fn what_is_kept_is_read_and_what_is_damaged_is_seen_anew() {
        let mut history = TagHistory::default();
        history.see("v1", "sha256:a", time("24T10:00:00"));
        history.see("v1", "sha256:b", time("24T11:00:00"));
        history.see("v2", "sha256:a", time("24T12:00:00"));
        let now = time("24T13:00:00");
        assert_eq!(TagHistory::read(&history.stored(), now), history);
        let damaged =
            "v1\nv1 sha256:a\nv1 sha256:a x\nv1 sha256:a 1 2\n\nv1 sha256:a 99999999999999999\n";
        assert_eq!(TagHistory::read(damaged, now), TagHistory::default());
        // A clock that was wrong does not make a tag wait for years.
        let mut future = TagHistory::default();
        future.see("v1", "sha256:a", time("30T00:00:00"));
        let read = TagHistory::read(&future.stored(), now);
        assert_eq!(read.waits_until("v1", DAY, now), Some(time("25T13:00:00")));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_waits_longest_stays() {
        let now = time("24T10:00:00");
        let mut history = TagHistory::default();
        for at in 0..MAX_KEPT_DIGESTS {
            history.see(&format!("v{at}"), "sha256:a", now);
        }
        history.trim(DAY, now);
        assert_eq!(history.stored().lines().count(), MAX_KEPT_DIGESTS);
        let old = time("22T10:00:00");
        history.keep("old", "sha256:a", old);
        history.keep("older", "sha256:a", time("21T10:00:00"));
        history.see("new", "sha256:a", time("24T11:00:00"));
        history.trim(DAY, time("24T11:00:00"));
        let kept = |tag: &str| history.tags.contains_key(tag);
        assert_eq!(
            [kept("older"), kept("old"), kept("v0"), kept("new")],
            [false, false, true, false]
        );
        assert_eq!(history.stored().lines().count(), MAX_KEPT_DIGESTS);
    }
}
