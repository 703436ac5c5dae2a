//! Which notifications of a Provider are sent one after the other: those about the same object, and at services with a status
//! for each commit also those about the same commit. All others may be sent at the same time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What a notification is about, as hashes. Notifications that share one are sent one after the other. Two objects with the
/// same hash wait for each other without need, and nothing else follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryOrder {
    object: u64,
    /// `None` if the event has no revision.
    commit: Option<u64>,
}

impl DeliveryOrder {
    /// The order of a notification about an event. The version of the API does not count, because controllers may report
    /// about an object in several.
    pub(super) fn of(event: &notify::FluxEvent) -> Self {
        let notify::ObjectReference { kind, namespace, name, .. } = &event.object;
        let commit = event.revision().map(commit_of);
        Self {
            object: hash(&[event.object.group(), kind, namespace, name]),
            commit: commit.filter(|it| !it.is_empty()).map(|it| hash(&[it])),
        }
    }

    /// The hash of the object.
    pub(super) fn object(self) -> u64 {
        self.object
    }

    /// Whether both are about one object.
    pub(super) fn is_about_object_of(self, other: Self) -> bool {
        self.object == other.object
    }

    /// The hashes that count at a service. `by_commit` is true if it has a status for each commit.
    pub(super) fn hashes(self, by_commit: bool) -> impl Iterator<Item = u64> {
        std::iter::once(self.object).chain(self.commit.filter(|_| by_commit))
    }
}

/// The end of a revision, which names the commit. The branch before it may differ.
fn commit_of(revision: &str) -> &str {
    revision.rsplit([':', '/']).next().unwrap_or_default()
}

fn hash(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn order(name: &str, api_version: &str, revision: Option<&str>) -> DeliveryOrder {
        let [kind, namespace] = ["Kustomization", "apps"].map(str::to_owned);
        let [name, api_version] = [name, api_version].map(str::to_owned);
        let object =
            notify::ObjectReference { kind, namespace, name, api_version, ..Default::default() };
        let metadata: BTreeMap<String, String> =
            revision.map(|it| ("revision".to_owned(), it.to_owned())).into_iter().collect();
        DeliveryOrder::of(&notify::FluxEvent { object, metadata, ..Default::default() })
    }

    fn share(first: DeliveryOrder, second: DeliveryOrder, by_commit: bool) -> bool {
        let hashes: Vec<u64> = first.hashes(by_commit).collect();
        second.hashes(by_commit).any(|hash| hashes.contains(&hash))
    }

    #[test]
    fn notifications_about_one_object_wait_for_each_other_whatever_they_say() {
        let first = order("app", "g.io/v1", Some("main@sha1:1"));
        assert!(share(first, order("app", "g.io/v1beta2", Some("main@sha1:2")), false));
        assert!(share(first, order("app", "g.io/v1", None), true));
        assert!(!share(first, order("other", "g.io/v1", Some("main@sha1:2")), true));
    }

    #[test]
    fn those_about_one_commit_wait_for_each_other_at_services_with_statuses() {
        let of = |name: &str, revision: &str| order(name, "g.io/v1", Some(revision));
        let first = of("a", "main@sha1:1");
        for same in ["main@sha1:1", "release@sha1:1", "sha1:1", "main/1"] {
            assert!(share(first, of("b", same), true), "{same}");
            assert!(!share(first, of("b", same), false), "{same}");
        }
        assert!(!share(order("a", "g.io/v1", Some("")), of("b", ""), true), "it has no commit");
    }
}
