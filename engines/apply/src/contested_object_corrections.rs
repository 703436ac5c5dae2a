//! Objects that another field manager changes repeatedly: how often windlass corrects them, and the message about them.
//!
//! The owner of a contested object is not Ready until the contest has ended, even while the object matches its
//! manifest. Otherwise incidents and other results of conditions would end and begin with each correction.
//!
//! Elsewhere: the rate of corrections (`reconcile::CorrectionBudget`), finding the other field manager
//! (`field_conflict`), and how a contested object stops waking its owner (`ObjectWatcher::hush`).

use std::collections::BTreeMap;
use std::time::Duration;

use objects::ObjectId;
use reconcile::{CorrectionBudget, Time};

use crate::object_changes::ObjectChange;

/// The corrections of one owner, with the objects that another field manager keeps changing.
#[derive(Default)]
pub struct ContestedObjectCorrections {
    corrections: CorrectionBudget<ObjectId>,
    /// The messages about objects that are contested, or were contested at their last correction.
    strings: BTreeMap<ObjectId, String>,
    /// The objects whose correction was audited, each with the stretch of time in which that happened.
    audited: BTreeMap<ObjectId, i64>,
}

impl ContestedObjectCorrections {
    /// Whether a drifted object may be corrected now. `digest` names its manifest. `text` makes the message that is
    /// kept while the object is contested.
    pub fn allows(
        &mut self,
        id: &ObjectId,
        digest: &str,
        now: Time,
        pause: Duration,
        text: impl FnOnce() -> String,
    ) -> bool {
        let is_allowed = self.corrections.take(id, digest, now, pause).is_ok();
        self.strings.retain(|id, _| self.corrections.has(id));
        match self.corrections.contested_until(id, now) {
            Some(_) => drop(self.strings.insert(id.clone(), text())),
            None => drop(self.strings.remove(id)),
        }
        is_allowed
    }

    /// Notes that an object is corrected now regardless of the budget: at the interval, on request, or because its
    /// manifest changed. A contested object stays contested.
    pub fn corrected(&mut self, id: &ObjectId, now: Time, pause: Duration) {
        self.corrections.corrected(id, now, pause);
    }

    /// Ends the contest for an object that matches its manifest again although another client changed it. This happens,
    /// for example, when the spec now ignores the fields of that client.
    pub fn end(&mut self, id: &ObjectId) {
        if self.strings.remove(id).is_some() {
            self.corrections.end_contest(id);
        }
    }

    /// Drops the messages about objects that `is_kept` does not choose.
    pub fn retain(&mut self, is_kept: impl Fn(&ObjectId) -> bool) {
        self.strings.retain(|id, _| is_kept(id));
    }

    /// The changes of objects whose correction was not audited in this stretch of time. They count as audited from now
    /// on.
    pub fn unaudited(&mut self, stretch: i64, changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
        self.audited.retain(|_, of| *of == stretch);
        let is_new =
            |change: &ObjectChange| self.audited.insert(change.id.clone(), stretch).is_none();
        changes.into_iter().filter(is_new).collect()
    }

    /// The objects that are contested now, each with its message and the time at which it may be corrected again.
    pub fn standing(&self, now: Time) -> BTreeMap<ObjectId, (String, Time)> {
        let standing = self.strings.iter().filter_map(|(id, text)| {
            let until = self.corrections.contested_until(id, now)?;
            Some((id.clone(), (text.clone(), until)))
        });
        standing.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_audited_once_in_a_stretch_of_time() {
        let change = |name: &str| ObjectChange {
            id: ObjectId::new("shop", name, "", "ConfigMap"),
            what: crate::object_changes::ObjectChangeKind::Changed,
            fields: Vec::new(),
        };
        let mut contests = ContestedObjectCorrections::default();
        assert_eq!(contests.unaudited(1, vec![change("a")]), [change("a")]);
        assert_eq!(contests.unaudited(1, vec![change("a"), change("b")]), [change("b")]);
        assert_eq!(contests.unaudited(2, vec![change("a")]), [change("a")]);
        assert_eq!(contests.audited.len(), 1, "what is past is forgotten");
    }

    #[test]
    fn a_paused_correction_is_reported_until_a_pause_went_by_without_a_conflict() {
        let at = |second: i64| Time::from_second(1_800_000_000 + second).unwrap();
        let pause = Duration::from_secs(60);
        let id = ObjectId::new("shop", "a", "", "ConfigMap");
        let mut contests = ContestedObjectCorrections::default();
        let allows = |contests: &mut ContestedObjectCorrections, second: i64| {
            contests.allows(&id, "d", at(second), pause, || "by a rival".to_owned())
        };
        for second in 0..10 {
            assert!(allows(&mut contests, second));
            assert!(contests.standing(at(second)).is_empty());
        }
        assert!(!allows(&mut contests, 10));
        assert_eq!(contests.standing(at(10))[&id], ("by a rival".to_owned(), at(70)));
        // Corrected again, and called contested until the rival has kept off for a minute.
        assert!(allows(&mut contests, 70));
        assert_eq!(contests.standing(at(70))[&id].1, at(130));
        assert!(contests.standing(at(130)).is_empty());
    }

    #[test]
    fn an_object_stays_contested_that_the_interval_or_another_manifest_corrects() {
        let at = |second: i64| Time::from_second(1_800_000_000 + second).unwrap();
        let pause = Duration::from_secs(60);
        let id = ObjectId::new("shop", "a", "", "ConfigMap");
        let mut contests = ContestedObjectCorrections::default();
        let allows = |contests: &mut ContestedObjectCorrections, digest: &str, second: i64| {
            contests.allows(&id, digest, at(second), pause, || "by a rival".to_owned())
        };
        while allows(&mut contests, "d", 0) {}
        // The interval comes round when the pause is over, as it does where both are as long.
        contests.corrected(&id, at(60), pause);
        assert_eq!(contests.standing(at(60))[&id], ("by a rival".to_owned(), at(120)));
        assert!(!allows(&mut contests, "d", 62));
        // A commit gives it another manifest, and the rival undoes that, too.
        contests.corrected(&id, at(130), pause);
        assert!(contests.standing(at(130)).contains_key(&id));
        assert!(allows(&mut contests, "e", 132));
        assert!(contests.standing(at(132)).contains_key(&id));
        assert!(!allows(&mut contests, "e", 134));
        assert!(contests.standing(at(134)).contains_key(&id));
    }

    #[test]
    fn a_contest_ends_at_once_where_its_fields_are_left_to_the_rival() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let pause = Duration::from_secs(60);
        let [a, b] = ["a", "b"].map(|name| ObjectId::new("shop", name, "", "ConfigMap"));
        let mut contests = ContestedObjectCorrections::default();
        let allows = |contests: &mut ContestedObjectCorrections, id: &ObjectId| {
            contests.allows(id, "d", now, pause, || "by a rival".to_owned())
        };
        while allows(&mut contests, &a) {}
        while allows(&mut contests, &b) {}
        contests.end(&a);
        assert_eq!(
            contests.standing(now).into_keys().collect::<Vec<_>>(),
            std::slice::from_ref(&b)
        );
        // Where the rival only seemed to give in, ten further corrections are not due.
        assert!(!allows(&mut contests, &a));
        contests.retain(|id| *id == a);
        assert_eq!(contests.standing(now).into_keys().collect::<Vec<_>>(), [a]);
    }

    #[test]
    fn what_was_corrected_a_few_times_is_not_forgotten_when_it_is_found_as_it_should_be() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let pause = Duration::from_secs(60);
        let id = ObjectId::new("shop", "a", "", "ConfigMap");
        let mut contests = ContestedObjectCorrections::default();
        let mut allows = || {
            let is_allowed = contests.allows(&id, "d", now, pause, String::new);
            contests.end(&id);
            is_allowed
        };
        assert_eq!((0..20).filter(|_| allows()).count(), 10);
    }
}
