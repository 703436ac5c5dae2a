//! Finds the Alerts that name the objects of an incident, and chooses which of them get a place in the Incident's status.
//!
//! Elsewhere: the patterns and labels of an Alert (`delivery`), which notifications are due (`incident_notifier`).

use std::collections::{BTreeMap, BTreeSet};

use kube_core::ResourceExt as _;
use objects::ObjectId;

use crate::delivery::incident_notifications::IncidentSubscriber;

/// The most objects of an incident that are compared with the patterns and labels of an Alert.
const MAX_MATCHED_OBJECTS: usize = 8;

/// The most Alerts for which an incident is sent.
pub(super) const MAX_ALERTS_PER_INCIDENT: usize = 64;

/// The Alerts that name objects of a kind in a namespace, by their place in the list.
#[derive(Debug, Default)]
struct AlertsByNamedObject {
    every: Vec<usize>,
    one: BTreeMap<String, Vec<usize>>,
}

/// The Alerts, indexed by the objects that they name.
#[derive(Debug, Default)]
pub(super) struct IncidentAlertIndex(BTreeMap<(String, String), AlertsByNamedObject>);

impl IncidentAlertIndex {
    /// The index of Alerts with incidents. If `confined`, Alerts only name objects of their own namespace.
    pub(super) fn new(subscribers: &[IncidentSubscriber], confined: bool) -> Self {
        let mut named: BTreeMap<(String, String), AlertsByNamedObject> = BTreeMap::new();
        for (at, IncidentSubscriber { alert, more, .. }) in subscribers.iter().enumerate() {
            let own = alert.namespace().unwrap_or_default();
            let sources = alert.spec.event_sources.iter().map(|it| {
                (it.kind.to_string(), it.namespace.clone().unwrap_or_default(), it.name.clone())
            });
            let more =
                more.iter().map(|it| (it.kind.clone(), it.namespace.clone(), it.name.clone()));
            for (kind, namespace, name) in sources.chain(more) {
                let namespace = if namespace.is_empty() { own.clone() } else { namespace };
                if confined && namespace != own {
                    continue;
                }
                let of = named.entry((kind, namespace)).or_default();
                let all = match name.as_str() {
                    "*" => &mut of.every,
                    _ => of.one.entry(name).or_default(),
                };
                if all.last() != Some(&at) {
                    all.push(at);
                }
            }
        }
        Self(named)
    }

    /// The Alerts that name some of the objects, by their place in the list, each with the first of these.
    pub(super) fn of<'o>(
        &self,
        objects: impl Iterator<Item = &'o ObjectId>,
    ) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut offered: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut offer = |alert: usize, object: usize| {
            let objects = offered.entry(alert).or_default();
            if objects.len() < MAX_MATCHED_OBJECTS {
                objects.insert(object);
            }
        };
        // How many objects of a kind and namespace those were offered that name all of them.
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (at, object) in objects.enumerate() {
            let key = (object.kind.clone(), object.namespace.clone());
            let Some(named) = self.0.get(&key) else { continue };
            named.one.get(&object.name).into_iter().flatten().for_each(|alert| offer(*alert, at));
            let count = counts.entry((&object.kind, &object.namespace)).or_default();
            *count += 1;
            if *count <= MAX_MATCHED_OBJECTS {
                named.every.iter().for_each(|alert| offer(*alert, at));
            }
        }
        offered
    }
}

/// An Alert that has something about an incident due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlertCandidate<T> {
    /// The namespace of the Alert.
    pub(super) namespace: String,
    /// Whether the status has an entry for the Alert.
    pub(super) is_known: bool,
    pub(super) due: T,
}

/// The Alerts for which an incident is sent, and the Alerts without a place in its status.
#[derive(Debug)]
pub(super) struct IncidentAlertAssignment<T> {
    pub(super) placed: Vec<T>,
    pub(super) without: Vec<T>,
}

/// Gives the places of a status to candidates; some places are already `taken`. Candidates in the namespace of the incident
/// come first, then the other namespaces in turn.
pub(super) fn places<T>(
    own: &str,
    candidates: Vec<AlertCandidate<T>>,
    taken: usize,
) -> IncidentAlertAssignment<T> {
    let mut places = IncidentAlertAssignment { placed: Vec::new(), without: Vec::new() };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut turns: BTreeMap<(usize, String), Vec<T>> = BTreeMap::new();
    for AlertCandidate { namespace, is_known, due } in candidates {
        if is_known {
            places.placed.push(due);
            continue;
        }
        let count = counts.entry(namespace.clone()).or_default();
        let turn = if namespace == own { 0 } else { *count + 1 };
        *count += 1;
        turns.entry((turn, namespace)).or_default().push(due);
    }
    let left = MAX_ALERTS_PER_INCIDENT.saturating_sub(taken);
    let mut others: Vec<T> = turns.into_values().flatten().collect();
    places.without = others.split_off(left.min(others.len()));
    places.placed.extend(others);
    places
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crds::notification::Alert;
    use serde_json::json;

    use super::*;

    fn subscriber_of(namespace: &str, source: &serde_json::Value) -> IncidentSubscriber {
        let alert: Alert = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"providerRef": {"name": "p"}, "eventSources": [source]},
        }))
        .unwrap();
        IncidentSubscriber {
            alert: Arc::new(alert),
            after: std::time::Duration::ZERO,
            reminder: None,
            more: Vec::new(),
        }
    }

    fn ids(names: &[&str]) -> Vec<ObjectId> {
        names.iter().map(|name| ObjectId::new("apps", name, "g.io", "Kustomization")).collect()
    }

    #[test]
    fn an_alert_is_offered_the_first_objects_that_it_names() {
        let all = json!({"kind": "Kustomization", "name": "*"});
        let far = json!({"kind": "Kustomization", "name": "*", "namespace": "apps"});
        let one = json!({"kind": "Kustomization", "name": "k9"});
        let other = json!({"kind": "GitRepository", "name": "*"});
        let subscribers = [("apps", &all), ("platform", &far), ("apps", &one), ("apps", &other)];
        let subscribers: Vec<_> =
            subscribers.iter().map(|(namespace, it)| subscriber_of(namespace, it)).collect();
        let names: Vec<String> = (0..20).map(|at| format!("k{at}")).collect();
        let ids = ids(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let of = |confined| IncidentAlertIndex::new(&subscribers, confined).of(ids.iter());
        let found = of(false);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(found[&0], (0..MAX_MATCHED_OBJECTS).collect());
        assert_eq!(found[&2], BTreeSet::from([9]));
        assert_eq!(of(true).keys().copied().collect::<Vec<_>>(), [0, 2]);
    }

    fn candidates(namespace: &str, count: usize) -> Vec<AlertCandidate<(String, usize)>> {
        let of = |at| AlertCandidate {
            namespace: namespace.to_owned(),
            is_known: false,
            due: (namespace.to_owned(), at),
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn many_alerts_of_one_namespace_leave_places_to_the_others() {
        let mut all = candidates("loud", 640);
        all.extend(candidates("apps", 3));
        all.extend(candidates("zzz", 2));
        let IncidentAlertAssignment { placed, without } = places("apps", all, 0);
        let count = |name: &str| placed.iter().filter(|(namespace, _)| namespace == name).count();
        assert_eq!(
            (count("apps"), count("loud"), count("zzz")),
            (3, MAX_ALERTS_PER_INCIDENT - 5, 2)
        );
        assert_eq!(placed.len() + without.len(), 645);
        assert_eq!(placed[0].0, "apps");
    }

    #[test]
    fn what_an_incident_was_sent_for_needs_no_further_place() {
        let mut all = candidates("apps", 1);
        all[0].is_known = true;
        all.extend(candidates("c", 1));
        let IncidentAlertAssignment { placed, without } =
            places("apps", all, MAX_ALERTS_PER_INCIDENT);
        assert_eq!((placed, without), (vec![("apps".to_owned(), 0)], vec![("c".to_owned(), 0)]));
    }
}
