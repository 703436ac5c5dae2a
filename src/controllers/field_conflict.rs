//! Objects that somebody else changes again and again: how often they are corrected, and what is said of them.
//!
//! Elsewhere: the buckets (`reconcile::Corrections`), who the rival is (`apply::rival`), who is not woken any more
//! meanwhile (`ObjectWatcher::hush`).

use std::collections::BTreeMap;
use std::time::Duration;

use apply::changes::ObjectChange;
use objects::ObjectId;
use reconcile::{Corrections, Time};

/// What one owner remembers of the objects that it had to correct.
#[derive(Default)]
pub(crate) struct Contests {
    corrections: Corrections<ObjectId>,
    strings: BTreeMap<ObjectId, (String, Time)>,
    /// Objects with whose correction an audit has dealt, and in which stretch of time.
    audited: BTreeMap<ObjectId, i64>,
}

impl Contests {
    /// Whether an object that drifted from the manifest with this digest is corrected now. If not, `text` says why.
    pub(crate) fn allows(
        &mut self,
        (id, digest): (&ObjectId, &str),
        now: Time,
        pause: Duration,
        text: impl FnOnce() -> String,
    ) -> bool {
        match self.corrections.take(id, digest, now, pause) {
            Ok(()) => {
                match self.corrections.contested_until(id, now) {
                    Some(until) => drop(self.strings.insert(id.clone(), (text(), until))),
                    None => drop(self.strings.remove(id)),
                }
                true
            }
            Err(until) => {
                self.strings.insert(id.clone(), (text(), until));
                false
            }
        }
    }

    /// Corrections that no audit of this stretch of time is about, which one is from now on.
    pub(crate) fn unaudited(
        &mut self,
        stretch: i64,
        changes: Vec<ObjectChange>,
    ) -> Vec<ObjectChange> {
        self.audited.retain(|_, of| *of == stretch);
        let is_new =
            |change: &ObjectChange| self.audited.insert(change.id.clone(), stretch).is_none();
        changes.into_iter().filter(is_new).collect()
    }

    /// What is contested now, how that is told, and when it is worth another run.
    pub(crate) fn standing(&mut self, now: Time) -> BTreeMap<ObjectId, (String, Time)> {
        self.strings.retain(|_, (_, until)| now < *until);
        self.strings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_audited_once_in_a_stretch_of_time() {
        let change = |name: &str| ObjectChange {
            id: ObjectId::new("shop", name, "", "ConfigMap"),
            what: apply::changes::What::Changed,
            fields: Vec::new(),
        };
        let mut contests = Contests::default();
        assert_eq!(contests.unaudited(1, vec![change("a")]), [change("a")]);
        assert_eq!(contests.unaudited(1, vec![change("a"), change("b")]), [change("b")]);
        assert_eq!(contests.unaudited(2, vec![change("a")]), [change("a")]);
        assert_eq!(contests.audited.len(), 1, "what is past is forgotten");
    }

    #[test]
    fn what_is_not_corrected_any_more_is_told_until_a_pause_went_by_without_a_rival() {
        let at = |second: i64| Time::from_second(1_800_000_000 + second).unwrap();
        let pause = Duration::from_secs(60);
        let id = ObjectId::new("shop", "a", "", "ConfigMap");
        let mut contests = Contests::default();
        let allows = |contests: &mut Contests, second: i64| {
            contests.allows((&id, "d"), at(second), pause, || "by a rival".to_owned())
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
}
