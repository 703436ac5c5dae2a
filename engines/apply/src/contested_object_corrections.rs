//! Objects that another field manager changes repeatedly: how often windlass corrects them, and the message about them.
//!
//! The owner of a contested object is not Ready until the contest has ended, even while the object matches its
//! manifest. Otherwise incidents and other results of conditions would end and begin with each correction.
//!
//! A contest ends after a whole pause without a correction. It ends at once by these facts: the owner does not apply the
//! contested fields or the object any more ([`ContestedObjectCorrections::retain_applied`]), or another client itself
//! made the object match its manifest ([`ContestedObjectCorrections::end`]). A restart of the process forgets all contests.
//!
//! Elsewhere: the rate of corrections (`reconcile::CorrectionBudget`), finding the other field manager
//! (`field_conflict`), the contested fields (`object_contest`), and how a contested object stops waking its owner
//! (`ObjectWatcher::hush`).

use std::collections::BTreeMap;
use std::time::Duration;

use objects::{Object, ObjectId};
use reconcile::{CorrectionBudget, Time};

use crate::drift_ignore_rules::DriftIgnoreRules;
use crate::object_changes::ObjectChange;
use crate::object_contest::ObjectContest;

/// The corrections of one owner, with the objects that another field manager keeps changing.
#[derive(Default)]
pub struct ContestedObjectCorrections {
    corrections: CorrectionBudget<ObjectId>,
    /// The objects that are contested, or were contested at their last correction.
    contests: BTreeMap<ObjectId, ObjectContest>,
    /// The objects whose correction was audited, each with the stretch of time in which that happened.
    audited: BTreeMap<ObjectId, i64>,
}

impl ContestedObjectCorrections {
    /// Whether a drifted object may be corrected now. `digest` names its manifest. `contest` makes what is kept while the
    /// object is contested.
    pub fn allows(
        &mut self,
        id: &ObjectId,
        digest: &str,
        now: Time,
        pause: Duration,
        contest: impl FnOnce() -> ObjectContest,
    ) -> bool {
        let is_allowed = self.corrections.take(id, digest, now, pause).is_ok();
        self.contests.retain(|id, _| self.corrections.has(id));
        match self.corrections.contested_until(id, now) {
            Some(_) => drop(self.contests.insert(id.clone(), contest())),
            None => drop(self.contests.remove(id)),
        }
        is_allowed
    }

    /// Whether [`Self::allows`] with the same arguments would make a contest. Finding its fields takes time and memory.
    pub fn would_be_contested(
        &self,
        id: &ObjectId,
        digest: &str,
        now: Time,
        pause: Duration,
    ) -> bool {
        self.corrections.would_be_contested(id, digest, now, pause)
    }

    /// Notes that an object is corrected now regardless of the budget: at the interval, on request, or because its
    /// manifest changed. A contested object stays contested.
    pub fn corrected(&mut self, id: &ObjectId, now: Time, pause: Duration) {
        self.corrections.corrected(id, now, pause);
    }

    /// Ends the contest about an object. The caller has found that another client made it match its manifest, or that its
    /// owner skips it.
    pub fn end(&mut self, id: &ObjectId) {
        if self.contests.remove(id).is_some() {
            self.corrections.end_contest(id);
        }
    }

    /// Ends all contests, because the owner corrects nothing any more. The corrections before that still count.
    pub fn end_all(&mut self) {
        for id in std::mem::take(&mut self.contests).into_keys() {
            self.corrections.end_contest(&id);
        }
    }

    /// Ends the contests about fields and objects that the owner does not apply any more. These are fields that are not
    /// in their manifest, fields that `rules` leave to other clients, and objects for which `manifest` returns `None`.
    /// The corrections of objects without a manifest are forgotten. A run calls this in any state, but not for
    /// manifests that wait for an approval.
    pub fn retain_applied<'m>(
        &mut self,
        manifest: impl Fn(&ObjectId) -> Option<&'m Object>,
        rules: &DriftIgnoreRules,
    ) {
        self.corrections.retain(|id| manifest(id).is_some());
        let is_ended = |&(id, contest): &(&ObjectId, &ObjectContest)| {
            manifest(id).is_none_or(|manifest| contest.has_ended(manifest, rules))
        };
        let ended: Vec<ObjectId> =
            self.contests.iter().filter(is_ended).map(|(id, _)| id.clone()).collect();
        for id in &ended {
            self.end(id);
        }
    }

    /// Whether no correction is remembered, and so no contest.
    pub fn is_empty(&self) -> bool {
        self.corrections.is_empty()
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
        let standing = self.contests.iter().filter_map(|(id, contest)| {
            let until = self.corrections.contested_until(id, now)?;
            Some((id.clone(), (contest.text.clone(), until)))
        });
        standing.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::drift_ignore_rules::DriftIgnoreTarget;

    /// A contest about `/data/value`.
    fn by_a_rival() -> ObjectContest {
        let field = ["f:data", "f:value"].map(str::to_owned).to_vec();
        ObjectContest { text: "by a rival".to_owned(), fields: vec![field] }
    }

    fn config_map(name: &str, data: Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": "shop"}}))
        .unwrap()
    }

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
            contests.allows(&id, "d", at(second), pause, by_a_rival)
        };
        for second in 0..10 {
            assert!(!contests.would_be_contested(&id, "d", at(second), pause));
            assert!(allows(&mut contests, second));
            assert!(contests.standing(at(second)).is_empty());
        }
        assert!(contests.would_be_contested(&id, "d", at(10), pause));
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
            contests.allows(&id, digest, at(second), pause, by_a_rival)
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
    fn a_contest_ends_at_once_where_the_rival_gives_in() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let pause = Duration::from_secs(60);
        let [a, b] = ["a", "b"].map(|name| ObjectId::new("shop", name, "", "ConfigMap"));
        let mut contests = ContestedObjectCorrections::default();
        let allows = |contests: &mut ContestedObjectCorrections, id: &ObjectId| {
            contests.allows(id, "d", now, pause, by_a_rival)
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
        contests.end_all();
        assert!(contests.standing(now).is_empty());
        assert!(!allows(&mut contests, &a));
    }

    #[test]
    fn a_contest_ends_with_the_first_run_that_does_not_apply_its_fields_whatever_it_finds() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let pause = Duration::from_secs(60);
        let manifest = config_map("a", json!({"value": "1", "other": "1"}));
        let id = manifest.id();
        let paths = vec!["/data/value".to_owned()];
        let ignoring = DriftIgnoreRules::new(&[(DriftIgnoreTarget::default(), paths)]).unwrap();
        let nothing_ignored = DriftIgnoreRules::default();
        let contested = || {
            let mut contests = ContestedObjectCorrections::default();
            while contests.allows(&id, "d", now, pause, by_a_rival) {}
            contests
        };
        let mut contests = contested();
        contests.retain_applied(|_| Some(&manifest), &nothing_ignored);
        assert!(contests.standing(now).contains_key(&id), "the field is applied as before");
        contests.retain_applied(|_| Some(&manifest), &ignoring);
        assert!(contests.standing(now).is_empty(), "a rule leaves the field to the rival");
        // The write of a new manifest, which follows, does not prolong what has ended.
        contests.corrected(&id, now, pause);
        assert!(contests.standing(now).is_empty());

        let mut contests = contested();
        let without = config_map("a", json!({"other": "1"}));
        contests.retain_applied(|_| Some(&without), &nothing_ignored);
        assert!(contests.standing(now).is_empty(), "the manifest does not have the field");

        let mut contests = contested();
        contests.retain_applied(|_| None, &nothing_ignored);
        assert!(contests.is_empty(), "the owner does not have the object");
        assert!(contests.allows(&id, "d", now, pause, by_a_rival), "it came back");
    }

    #[test]
    fn what_was_corrected_a_few_times_is_not_forgotten_when_it_is_found_as_it_should_be() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let pause = Duration::from_secs(60);
        let id = ObjectId::new("shop", "a", "", "ConfigMap");
        let mut contests = ContestedObjectCorrections::default();
        let mut allows = || {
            let is_allowed = contests.allows(&id, "d", now, pause, by_a_rival);
            contests.end(&id);
            is_allowed
        };
        assert_eq!((0..20).filter(|_| allows()).count(), 10);
    }
}
