//! The facts about all Namespaces that windlass uses: labels, deletion, and whether they require verified sources
//! (`windlass.dev/require-verified`).
//!
//! Here: a watch of all Namespaces. Elsewhere: when a source counts as verified (`windlass_runtime::source_catalog`), and
//! which lifecycles a label requires (`windlass_runtime::lifecycle`). The appliers ask for the policy.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use objects::Gvk;
use parking_lot::Mutex;
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome};
use tokio::sync::watch;

use crate::ClusterConnection;
use crate::discovery::ApiResourceLocation;
use crate::object_decode::MetadataOnly;
use crate::watch::{WatchSelection, WatcherEvent};
use crate::work_queue::WorkQueue;

/// The annotation of a Namespace that makes appliers in it apply only verified sources. The value `false` switches that off.
const ANNOTATION: &str = "windlass.dev/require-verified";

/// The condition reason for a Namespace whose policy is not known.
const POLICY_UNKNOWN: ConditionReason = ConditionReason::new("VerificationPolicyUnknown");

/// The dependency graph node that stands for a Namespace. Appliers wait for this node, and so for changes of the policy.
pub fn node_of(namespace: &str) -> ObjectKey {
    ObjectKey::new("", "Namespace", "", namespace)
}

/// The dependency graph node that stands for the labels of a Namespace. Objects wait for it if labels decide what they may do.
pub fn labels_node_of(namespace: &str) -> ObjectKey {
    ObjectKey::new("", "NamespaceLabels", "", namespace)
}

/// The list of Namespaces that require verified sources, as far as it is known.
enum NamespaceListState {
    /// The Namespaces were not listed yet.
    Nothing,
    /// The Namespaces could not be listed, for this reason.
    Failed(String),
    /// The Namespaces that have the annotation.
    Listed(BTreeSet<String>),
}

/// The facts about a Namespace that other objects depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceFacts {
    /// The labels of the Namespace.
    pub labels: BTreeMap<String, String>,
    /// Whether the Namespace is being deleted, so that no object can be created in it.
    pub is_terminating: bool,
}

impl NamespaceFacts {
    fn of(namespace: &MetadataOnly) -> Self {
        let labels = namespace.metadata["labels"].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &serde_json::Value)| {
            (key.clone(), value.as_str().unwrap_or_default().to_owned())
        };
        Self {
            labels: labels.map(text).collect(),
            is_terminating: !namespace.metadata["deletionTimestamp"].is_null(),
        }
    }
}

/// The policies of all Namespaces. They come from the Namespace objects, which tenants cannot write.
pub struct NamespacePolicies {
    known: watch::Sender<NamespaceListState>,
    facts: Mutex<BTreeMap<String, NamespaceFacts>>,
    /// The Namespaces whose labels changed.
    relabeled: Mutex<BTreeSet<String>>,
}

impl Default for NamespacePolicies {
    fn default() -> Self {
        Self {
            known: watch::Sender::new(NamespaceListState::Nothing),
            facts: Mutex::default(),
            relabeled: Mutex::default(),
        }
    }
}

impl NamespacePolicies {
    /// Waits until the Namespaces were listed, or could not be listed.
    pub async fn known(&self) {
        let mut known = self.known.subscribe();
        // `self` owns the sender, so it still exists.
        drop(known.wait_for(|known| !matches!(known, NamespaceListState::Nothing)).await);
    }

    /// The facts about a Namespace. `None` if the watch did not see the Namespace.
    pub fn facts(&self, namespace: &str) -> Option<NamespaceFacts> {
        self.facts.lock().get(namespace).cloned()
    }

    fn saw(&self, namespace: &MetadataOnly) {
        let now = NamespaceFacts::of(namespace);
        let labels = now.labels.clone();
        let before = self.facts.lock().insert(namespace.name.clone(), now);
        if before.is_none_or(|before| before.labels != labels) {
            self.relabeled.lock().insert(namespace.name.clone());
        }
    }

    /// The Namespaces whose labels changed since the last call.
    fn relabeled(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.relabeled.lock())
    }

    /// Whether the appliers of a namespace may apply only verified sources.
    ///
    /// # Errors
    /// The policy is not known, so nothing may be applied.
    pub fn is_verified_only(&self, namespace: &str) -> Result<bool, RunOutcome> {
        let why = match &*self.known.borrow() {
            NamespaceListState::Listed(all) => return Ok(all.contains(namespace)),
            NamespaceListState::Failed(why) => why.clone(),
            NamespaceListState::Nothing => "they have not been listed yet".to_owned(),
        };
        let text = format!("cannot tell whether namespace {namespace} has {ANNOTATION}: {why}");
        Err(RunOutcome::Failed(POLICY_UNKNOWN, text, NextRunTrigger::default()))
    }
}

/// Watches Namespaces, and wakes the appliers of a Namespace whose policy changes.
pub async fn follow(
    cluster: ClusterConnection,
    work_queue: Arc<WorkQueue>,
    namespaces: Arc<NamespacePolicies>,
) {
    let resource = ApiResourceLocation {
        gvk: Gvk::new("v1", "Namespace"),
        plural: "namespaces".to_owned(),
        namespaced: false,
        watchable: true,
    };
    let mut events = pin!(cluster.watch_metadata(&resource, &WatchSelection::All));
    let mut listing = BTreeSet::new();
    while let Some(event) = events.next().await {
        let changed = match event {
            Ok(event) => namespaces.take(event, &mut listing),
            Err(error) => namespaces.failed(&error.to_string()),
        };
        for namespace in changed {
            work_queue.changed(&node_of(&namespace));
        }
        for namespace in namespaces.relabeled() {
            work_queue.changed(&labels_node_of(&namespace));
        }
    }
}

fn is_marked(namespace: &MetadataOnly) -> bool {
    // A value that cannot be read still counts as the policy.
    let value = namespace.metadata["annotations"][ANNOTATION].as_str();
    value.is_some_and(|value| value != "false")
}

impl NamespacePolicies {
    /// Handles an event of the watch. Returns the Namespaces whose policy changed.
    fn take(
        &self,
        event: WatcherEvent<MetadataOnly>,
        listing: &mut BTreeSet<String>,
    ) -> BTreeSet<String> {
        let mut now = match &*self.known.borrow() {
            NamespaceListState::Listed(all) => all.clone(),
            NamespaceListState::Nothing | NamespaceListState::Failed(_) => BTreeSet::new(),
        };
        match &event {
            WatcherEvent::Listed(namespace) | WatcherEvent::Applied(namespace) => {
                self.saw(namespace);
            }
            WatcherEvent::Deleted(namespace) => {
                let mut facts = self.facts.lock();
                facts.remove(&namespace.name);
            }
            WatcherEvent::Listing
            | WatcherEvent::ListEnded
            | WatcherEvent::Live
            | WatcherEvent::Interrupted => {}
        }
        match event {
            WatcherEvent::Listing => {
                listing.clear();
                return BTreeSet::new();
            }
            WatcherEvent::Listed(namespace) => {
                // The later version of a Namespace that a list has twice counts.
                match is_marked(&namespace) {
                    true => listing.insert(namespace.name),
                    false => listing.remove(&namespace.name),
                };
                return BTreeSet::new();
            }
            WatcherEvent::ListEnded => now = std::mem::take(listing),
            WatcherEvent::Applied(namespace) if is_marked(&namespace) => {
                now.insert(namespace.name);
            }
            WatcherEvent::Applied(namespace) | WatcherEvent::Deleted(namespace) => {
                now.remove(&namespace.name);
            }
            WatcherEvent::Live | WatcherEvent::Interrupted => return BTreeSet::new(),
        }
        let before = self.known.send_replace(NamespaceListState::Listed(now.clone()));
        match before {
            NamespaceListState::Listed(before) => {
                before.symmetric_difference(&now).cloned().collect()
            }
            // Earlier callers got an error instead of a list. So every Namespace counts as changed, also without the
            // annotation.
            NamespaceListState::Failed(_) => self.facts.lock().keys().cloned().collect(),
            NamespaceListState::Nothing => BTreeSet::new(),
        }
    }

    /// Notes that the list failed. An earlier list stays valid, but without one callers get the error.
    fn failed(&self, why: &str) -> BTreeSet<String> {
        self.known.send_if_modified(|known| {
            let is_unknown = !matches!(known, NamespaceListState::Listed(_));
            if is_unknown {
                *known = NamespaceListState::Failed(format!("listing namespaces failed: {why}"));
            }
            is_unknown
        });
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use crate::object_decode::ObjectDecodeForm as _;

    use super::*;

    fn namespace(name: &str, value: Option<&str>) -> MetadataOnly {
        let annotations = match value {
            Some(value) => format!(r#","annotations":{{"{ANNOTATION}":"{value}"}}"#),
            None => String::new(),
        };
        let object =
            format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"{annotations}}}}}"#);
        MetadataOnly::read(object.as_bytes()).unwrap()
    }

    fn is_only(namespaces: &NamespacePolicies, name: &str) -> bool {
        namespaces.is_verified_only(name).unwrap()
    }

    #[test]
    fn a_policy_holds_from_the_list_on_and_follows_the_annotation() {
        let namespaces = NamespacePolicies::default();
        let mut listing = BTreeSet::new();
        let mut take = |event| namespaces.take(event, &mut listing);
        take(WatcherEvent::Listing);
        take(WatcherEvent::Listed(namespace("strict", Some("true"))));
        take(WatcherEvent::Listed(namespace("free", Some("true"))));
        take(WatcherEvent::Listed(namespace("free", Some("false"))));
        assert!(namespaces.is_verified_only("free").is_err(), "the list has not ended");
        assert!(take(WatcherEvent::ListEnded).is_empty());
        assert!(is_only(&namespaces, "strict") && !is_only(&namespaces, "free"));
        let changed = take(WatcherEvent::Applied(namespace("free", Some("true"))));
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["free"]);
        assert!(take(WatcherEvent::Applied(namespace("free", Some("true")))).is_empty());
        assert!(is_only(&namespaces, "free"));
        take(WatcherEvent::Applied(namespace("free", None)));
        take(WatcherEvent::Deleted(namespace("strict", Some("true"))));
        assert!(!is_only(&namespaces, "strict") && !is_only(&namespaces, "free"));
    }

    #[test]
    fn labels_and_the_end_of_a_namespace_are_known_from_the_moment_it_is_seen() {
        let namespaces = NamespacePolicies::default();
        let mut listing = BTreeSet::new();
        let seen = |more: &str| {
            let object =
                format!(r#"{{"metadata":{{"name":"a","labels":{{"env":"prod"}}{more}}}}}"#);
            MetadataOnly::read(object.as_bytes()).unwrap()
        };
        assert_eq!(namespaces.facts("a"), None);
        namespaces.take(WatcherEvent::Listed(seen("")), &mut listing);
        let facts = namespaces.facts("a").unwrap();
        assert_eq!((facts.labels["env"].as_str(), facts.is_terminating), ("prod", false));
        assert_eq!(namespaces.relabeled().into_iter().collect::<Vec<_>>(), ["a"]);
        let ending = seen(r#","deletionTimestamp":"2026-01-02T03:04:05Z""#);
        namespaces.take(WatcherEvent::Applied(ending), &mut listing);
        assert!(namespaces.facts("a").unwrap().is_terminating);
        assert!(namespaces.relabeled().is_empty(), "the labels are the same");
        namespaces.take(WatcherEvent::Deleted(seen("")), &mut listing);
        assert_eq!(namespaces.facts("a"), None);
    }

    #[test]
    fn any_value_but_false_is_a_policy() {
        for value in ["true", "True", "yes", "1", "", "False"] {
            assert!(is_marked(&namespace("a", Some(value))), "{value}");
        }
        assert!(!is_marked(&namespace("a", Some("false"))) && !is_marked(&namespace("a", None)));
    }

    #[test]
    fn nothing_is_allowed_by_a_list_that_failed_and_what_was_known_stays() {
        let namespaces = NamespacePolicies::default();
        let mut listing = BTreeSet::new();
        namespaces.failed("forbidden");
        let outcome = namespaces.is_verified_only("free").unwrap_err();
        assert!(matches!(outcome, RunOutcome::Failed(POLICY_UNKNOWN, ..)), "{outcome:?}");
        assert!(
            outcome.text().ends_with("listing namespaces failed: forbidden"),
            "{}",
            outcome.text()
        );
        let mut take = |event| namespaces.take(event, &mut listing);
        take(WatcherEvent::Listing);
        take(WatcherEvent::Listed(namespace("strict", Some("true"))));
        take(WatcherEvent::Listed(namespace("free", None)));
        let woken = take(WatcherEvent::ListEnded);
        assert_eq!(woken.into_iter().collect::<Vec<_>>(), ["free", "strict"], "both had an error");
        namespaces.failed("interrupted");
        assert!(is_only(&namespaces, "strict") && !is_only(&namespaces, "free"));
    }
}
