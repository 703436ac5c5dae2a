//! Watches CustomResourceDefinitions. A change makes windlass forget the discovery of the group, and wakes objects that wait
//! for one of its kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use objects::Gvk;
use reconcile::ObjectKey;

use super::ClusterConnection;
use super::discovery::ApiResourceLocation;
use super::object_decode::{MetadataOnly, ObjectDecodeForm as _};
use super::watch::{WatchSelection, WatcherEvent};
use super::work_queue::WorkQueue;

/// A CRD change wakes the waiting objects twice. This is the time until the second wake.
const SERVED_AFTER: Duration = Duration::from_secs(2);

/// The dependency graph node that stands for all kinds of a group. Objects wait for this node while a kind of the group is not
/// served.
pub fn kinds_of(group: &str) -> ObjectKey {
    ObjectKey::new("apiextensions.k8s.io", "CustomResourceDefinition", "", group)
}

/// Follows CRDs until the process ends. Each change clears the discovery of its group and wakes the objects that wait for it.
pub async fn follow_crds(cluster: ClusterConnection, work_queue: Arc<WorkQueue>) {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let resource = ApiResourceLocation {
        gvk,
        plural: "customresourcedefinitions".to_owned(),
        namespaced: false,
        watchable: true,
    };
    let mut events = pin!(cluster.watch_metadata(&resource, &WatchSelection::All));
    let mut known = WatchedCrdVersions::default();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        for group in known.changed_by(event) {
            cluster.forget_group(&group);
            work_queue.changed(&kinds_of(&group));
            // An API server may serve a kind a moment after its CRD says so.
            let work_queue = work_queue.clone();
            let kinds = kinds_of(&group);
            tokio::spawn(async move {
                tokio::time::sleep(SERVED_AFTER).await;
                work_queue.changed(&kinds);
            });
        }
    }
}

/// The CRDs that the watch has seen, each with its version.
#[derive(Default)]
struct WatchedCrdVersions {
    /// `None` until the first list has ended, because the CRDs of that list are not changes.
    known: Option<BTreeMap<String, String>>,
    listing: BTreeMap<String, String>,
}

impl WatchedCrdVersions {
    /// The groups whose CRDs were created, changed or deleted. After an interruption, the new list is compared with the old
    /// one.
    fn changed_by(&mut self, event: WatcherEvent<MetadataOnly>) -> BTreeSet<String> {
        let group = |name: &str| name.split_once('.').map(|(_, group)| group.to_owned());
        match event {
            WatcherEvent::Listing => self.listing.clear(),
            WatcherEvent::Listed(object) => {
                self.listing.insert(object.name.clone(), object.version().to_owned());
            }
            WatcherEvent::ListEnded => {
                let now = std::mem::take(&mut self.listing);
                let Some(before) = self.known.replace(now.clone()) else { return BTreeSet::new() };
                let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
                let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
                return changed.filter_map(|name| group(name)).collect();
            }
            WatcherEvent::Applied(object) => {
                let known = self.known.get_or_insert_default();
                known.insert(object.name.clone(), object.version().to_owned());
                return group(&object.name).into_iter().collect();
            }
            WatcherEvent::Deleted(object) => {
                self.known.get_or_insert_default().remove(&object.name);
                return group(&object.name).into_iter().collect();
            }
            WatcherEvent::Live | WatcherEvent::Interrupted => {}
        }
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(name: &str, version: &str) -> MetadataOnly {
        let object = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
        MetadataOnly::read(object.as_bytes()).unwrap()
    }

    fn listed(known: &mut WatchedCrdVersions, all: &[(&str, &str)]) -> Vec<String> {
        let mut changed = known.changed_by(WatcherEvent::Listing);
        for (name, version) in all {
            changed.extend(known.changed_by(WatcherEvent::Listed(crd(name, version))));
        }
        changed.extend(known.changed_by(WatcherEvent::ListEnded));
        changed.into_iter().collect()
    }

    #[test]
    fn crds_that_come_change_or_go_in_a_gap_of_the_watch_are_noticed() {
        let mut known = WatchedCrdVersions::default();
        let first = [("as.one.io", "1"), ("bs.two.io", "2"), ("cs.three.io", "3")];
        assert!(listed(&mut known, &first).is_empty(), "nobody missed a kind before");
        assert!(listed(&mut known, &first).is_empty());
        let later = [("bs.two.io", "4"), ("cs.three.io", "3"), ("ds.four.io", "5")];
        assert_eq!(listed(&mut known, &later), ["four.io", "one.io", "two.io"]);
        let seen = known.changed_by(WatcherEvent::Applied(crd("bs.two.io", "6")));
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["two.io"]);
        known.changed_by(WatcherEvent::Deleted(crd("cs.three.io", "7")));
        let after = [("bs.two.io", "6"), ("ds.four.io", "5")];
        assert!(listed(&mut known, &after).is_empty(), "the watch has told of them");
    }
}
