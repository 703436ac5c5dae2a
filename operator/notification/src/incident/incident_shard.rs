//! Decides which process keeps an Incident, if several processes divide the objects by a selector.
//!
//! The process that reconciles the subject keeps the Incident. The present labels of the subject decide. If the subject is
//! gone, the labels decide that the Incident got from it when it was created. So an Incident follows its subject to another
//! shard, and has one writer as long as the selectors exclude each other. Only the process that sent notifications of a
//! Provider knows how they ended. That process keeps the Incident of the class `Delivery`, and its shard is in the name of the
//! Incident.
//!
//! Elsewhere: the objects that keep incidents (`incident_store`), the labels of subjects (`observed_objects`).

use std::collections::BTreeMap;

use cause::CauseKind;
use crds::windlass_notification::Incident;
use kube_core::ResourceExt as _;
use objects::{LabelSelector, ObjectId};
use sha2::{Digest as _, Sha256};

use super::incident_store;

/// The number of characters of a selector's hash in the name of a shard.
const SHARD_NAME_LENGTH: usize = 8;

/// The known state of the subject of an Incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncidentSubjectPresence {
    /// The subject exists.
    Exists {
        /// Whether its labels assign it to this process.
        is_selected: bool,
    },
    /// The subject does not exist.
    Absent,
    /// The kind of the subject was not listed.
    Unknown,
}

/// The part of the Incidents that this process keeps.
pub(super) struct IncidentShard {
    selector: LabelSelector,
    /// The name of the shard in its Lease. Empty if this process keeps all objects.
    name: String,
}

impl IncidentShard {
    pub(super) fn new(selector: &LabelSelector) -> Self {
        let name = match selector.text() {
            "" => String::new(),
            text => hex::encode(Sha256::digest(text)).chars().take(SHARD_NAME_LENGTH).collect(),
        };
        Self { selector: selector.clone(), name }
    }

    /// The suffix of an Incident's name, by its class. Empty if any process may keep the Incident.
    pub(super) fn suffix_of(&self, problem: CauseKind) -> &str {
        if problem == CauseKind::Delivery { &self.name } else { "" }
    }

    /// Whether this process keeps an Incident. Of one whose subject is not known yet no process does.
    pub(super) fn keeps(
        &self,
        incident: &Incident,
        presence_of: impl FnOnce(&ObjectId) -> IncidentSubjectPresence,
    ) -> bool {
        // There is no other process.
        if self.name.is_empty() {
            return true;
        }
        let Some((subject, problem)) = incident_store::identity(incident) else { return false };
        if problem == CauseKind::Delivery.to_string() {
            let own = incident_store::name(&subject, &problem, &self.name);
            return incident.name_any() == own;
        }
        match presence_of(&subject) {
            IncidentSubjectPresence::Exists { is_selected } => is_selected,
            IncidentSubjectPresence::Absent => {
                let labels = incident.labels();
                self.selector.selects(|key| labels.get(key).map(String::as_str))
            }
            IncidentSubjectPresence::Unknown => false,
        }
    }
}

/// Whether a text is the name of a shard.
pub(super) fn is_shard_name(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == SHARD_NAME_LENGTH && text.bytes().all(is_hex)
}

/// The labels of an object by which a selector assigns it to a shard. An Incident about the object gets these labels and no
/// others, since some labels name the Kustomization or HelmRelease that manages an object.
pub(super) fn shard_labels(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let of = |key: &str| Some((key.to_owned(), labels.get(key)?.clone()));
    selector.keys().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use crds::windlass_notification::{IncidentSpec, IncidentSubject};

    use super::*;

    const KEY: &str = "sharding.fluxcd.io/key";

    /// The processes of three shards, of which the last has what has no label.
    fn shards() -> [IncidentShard; 3] {
        let selectors = ["sharding.fluxcd.io/key=one", "sharding.fluxcd.io/key=two"];
        let [one, two] =
            selectors.map(|text| IncidentShard::new(&LabelSelector::parse(text).unwrap()));
        [one, two, IncidentShard::new(&LabelSelector::parse("!sharding.fluxcd.io/key").unwrap())]
    }

    /// An Incident that the process of a shard created about an object with a label.
    fn incident(problem: CauseKind, creator: &IncidentShard, label: &str) -> Incident {
        let subject = IncidentSubject {
            api_version: "g.io/v1".to_owned(),
            kind: "Kustomization".to_owned(),
            name: "app".to_owned(),
            uid: None,
        };
        let id = ObjectId::new("apps", "app", "g.io", "Kustomization");
        let reason = problem.to_string();
        let name = incident_store::name(&id, &reason, creator.suffix_of(problem));
        let spec = IncidentSpec { subject, reason, ..IncidentSpec::default() };
        let mut incident = Incident::new(&name, spec);
        incident.metadata.namespace = Some("apps".to_owned());
        let labels = BTreeMap::from([
            (KEY.to_owned(), label.to_owned()),
            ("kustomize.toolkit.fluxcd.io/name".to_owned(), "all".to_owned()),
        ]);
        incident.metadata.labels = Some(shard_labels(&creator.selector, &labels));
        incident
    }

    /// Which of the processes keep an Incident.
    fn keepers(
        incident: &Incident,
        presence_of: impl Fn(&IncidentShard) -> IncidentSubjectPresence,
    ) -> Vec<bool> {
        shards().iter().map(|it| it.keeps(incident, |_| presence_of(it))).collect()
    }

    #[test]
    fn an_incident_follows_its_subject_to_the_shard_that_has_it_now() {
        let [one, two, _] = shards();
        let mut incident = incident(CauseKind::Fetch, &one, "one");
        let exists = |label: &'static str| {
            move |it: &IncidentShard| IncidentSubjectPresence::Exists {
                is_selected: it
                    .selector
                    .selects(|key| (key == KEY && !label.is_empty()).then_some(label)),
            }
        };
        assert_eq!(keepers(&incident, exists("one")), [true, false, false]);
        assert_eq!(keepers(&incident, exists("two")), [false, true, false]);
        assert_eq!(keepers(&incident, exists("")), [false, false, true]);
        assert_eq!(keepers(&incident, |_| IncidentSubjectPresence::Absent), [true, false, false]);
        assert_eq!(keepers(&incident, |_| IncidentSubjectPresence::Unknown), [false; 3]);
        // What a user does to the labels of the Incident matters only once its subject is gone.
        incident.metadata.labels = None;
        assert_eq!(keepers(&incident, exists("two")), [false, true, false]);
        assert_eq!(keepers(&incident, |_| IncidentSubjectPresence::Absent), [false, false, true]);
        assert_eq!(incident.name_any(), self::incident(CauseKind::Fetch, &two, "two").name_any());
    }

    #[test]
    fn an_incident_has_the_labels_by_which_its_subject_is_selected_and_no_others() {
        let [one, ..] = shards();
        let labels = incident(CauseKind::Fetch, &one, "one").metadata.labels.unwrap();
        assert_eq!(labels, BTreeMap::from([(KEY.to_owned(), "one".to_owned())]));
    }

    #[test]
    fn an_incident_about_deliveries_is_of_the_process_that_sends_them() {
        let [one, two, _] = shards();
        let exists = |_: &IncidentShard| IncidentSubjectPresence::Exists { is_selected: true };
        let mut incident = incident(CauseKind::Delivery, &two, "one");
        assert_eq!(keepers(&incident, exists), [false, true, false]);
        incident.metadata.labels = None;
        assert_eq!(keepers(&incident, |_| IncidentSubjectPresence::Absent), [false, true, false]);
        let own = self::incident(CauseKind::Delivery, &one, "one");
        assert_ne!(own.name_any(), incident.name_any());
    }

    #[test]
    fn a_process_without_a_selector_keeps_all_incidents() {
        let all = IncidentShard::new(&LabelSelector::default());
        assert_eq!(all.name, "");
        let [one, ..] = shards();
        assert!(is_shard_name(&one.name), "{}", one.name);
        for problem in [CauseKind::Fetch, CauseKind::Delivery] {
            let incident = incident(problem, &one, "one");
            assert!(incident_store::identity(&incident).is_some(), "{problem}");
            assert!(all.keeps(&incident, |_| IncidentSubjectPresence::Unknown), "{problem}");
        }
    }
}
