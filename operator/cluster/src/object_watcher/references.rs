//! Secrets, ConfigMaps and ServiceAccounts that specs name: who read which version, and which watch sees them.
//!
//! One watch of a kind sees all that is named in a namespace, and one sees all namespaces where many are; a watch for
//! each object would be thousands. Of what they see only what is named is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use objects::ObjectId;
use reconcile::ObjectKey;

use super::watcher_state::{RecentObjectEvents, WatchKey, WatchMoment, is_newer};
use crate::discovery::ApiResourceLocation;
use crate::resource_version::is_later;
use crate::watch::WatchSelection;

/// The most namespaces in which a kind has one watch for each. With more there is one watch for all namespaces.
const MAX_WATCHED_NAMESPACES_PER_KIND: usize = 32;

/// The time until a refused watch is tried again.
const REFUSED_FOR: Duration = Duration::from_secs(3600);

/// An object that a spec names, as a run read it.
pub struct RunReferenceRead {
    /// Its kind.
    pub resource: ApiResourceLocation,
    /// Its id.
    pub id: ObjectId,
    /// The version that was read; none if it was not there.
    pub version: Option<u64>,
    /// The moment before it was read.
    pub since: WatchMoment,
}

struct WatchedReference {
    resource: ApiResourceLocation,
    /// Who named it, and the version that was read.
    users: BTreeMap<ObjectKey, Option<u64>>,
    /// The state that a watch saw last: `Some(None)` if the object does not exist, `None` if no watch saw it yet.
    seen: Option<Option<u64>>,
}

/// Group and kind.
type GroupKindKey = (String, String);

/// The Secrets, ConfigMaps and ServiceAccounts that specs name, with the objects that read them and the
/// watches that see them.
#[derive(Default)]
pub(super) struct WatchedReferences {
    named: BTreeMap<ObjectId, WatchedReference>,
    /// What a node named.
    by_user: BTreeMap<ObjectKey, BTreeSet<ObjectId>>,
    /// How many objects of a kind are named in a namespace.
    places: BTreeMap<GroupKindKey, BTreeMap<String, usize>>,
    /// Kinds that are watched in all namespaces at once.
    wide: BTreeSet<GroupKindKey>,
    /// Watches that the API server refused, and when.
    refused: BTreeMap<WatchKey, Instant>,
    /// What watches for references saw last.
    recent: RecentObjectEvents,
}

fn kind_of(id: &ObjectId) -> GroupKindKey {
    (id.group.clone(), id.kind.clone())
}

impl WatchedReferences {
    /// The moment before something is read.
    pub(super) fn now(&self) -> WatchMoment {
        self.recent.now()
    }

    /// Notes that a node names an object. Returns whether the object is known to have changed since it was read.
    pub(super) fn add(&mut self, user: &ObjectKey, referred: &RunReferenceRead) -> bool {
        let RunReferenceRead { resource, id, version, since } = referred;
        self.by_user.entry(user.clone()).or_default().insert(id.clone());
        let places = &mut self.places;
        let reference = self.named.entry(id.clone()).or_insert_with(|| {
            let place = places.entry(kind_of(id)).or_default().entry(id.namespace.clone());
            *place.or_default() += 1;
            WatchedReference { resource: resource.clone(), users: BTreeMap::new(), seen: None }
        });
        // Another user may name it in another version of its kind, which then stays.
        if reference.users.keys().all(|it| it == user) {
            reference.resource.clone_from(resource);
        }
        reference.users.insert(user.clone(), *version);
        // That it is missing may be out of date: a watch lags, and reports it when it exists.
        let is_newer = matches!(
            (reference.seen, version), (Some(Some(seen)), Some(read)) if is_later(seen, *read)
        );
        is_newer || self.recent.differs_since(id, *since, *version)
    }

    /// Whether a version of an object is the last one that a watch saw.
    pub(super) fn is_seen_in(&self, id: &ObjectId, version: u64) -> bool {
        self.named.get(id).is_some_and(|reference| reference.seen == Some(Some(version)))
    }

    /// Forgets the objects that a node names.
    pub(super) fn forget(&mut self, user: &ObjectKey) {
        self.forget_others(user, &BTreeSet::new());
    }

    /// Forgets the objects that a node names, but those that it names again: what is known of their watches stays.
    pub(super) fn forget_others(&mut self, user: &ObjectKey, kept: &BTreeSet<&ObjectId>) {
        let Some(own) = self.by_user.get_mut(user) else { return };
        let left: Vec<ObjectId> = own.extract_if(.., |id| !kept.contains(id)).collect();
        if own.is_empty() {
            self.by_user.remove(user);
        }
        for id in left {
            let Some(reference) = self.named.get_mut(&id) else { continue };
            reference.users.remove(user);
            if !reference.users.is_empty() {
                continue;
            }
            self.named.remove(&id);
            self.refused.retain(|key, _| key.named_object().as_ref() != Some(&id));
            let Some(places) = self.places.get_mut(&kind_of(&id)) else { continue };
            if let Some(count) = places.get_mut(&id.namespace) {
                *count -= 1;
                if *count == 0 {
                    places.remove(&id.namespace);
                    let is_all = places.is_empty();
                    // No reference needs a watch there any more, so its refusal is forgotten.
                    self.refused.retain(|key, _| {
                        let is_there = match &key.selection {
                            WatchSelection::InNamespace(namespace) => *namespace == id.namespace,
                            WatchSelection::All => is_all,
                            WatchSelection::Named(..) | WatchSelection::Labelled(_) => false,
                        };
                        !(is_there && key.kind == id.kind && key.group == id.group)
                    });
                }
            }
        }
    }

    /// Whether a node names anything.
    pub(super) fn has(&self, user: &ObjectKey) -> bool {
        self.by_user.contains_key(user)
    }

    /// The watch for an object that a spec names. If every watch that sees it was refused, `None` where only dependents name it,
    /// which ask for it again anyway; others try the one by name until it is allowed.
    pub(super) fn key_of(&self, id: &ObjectId) -> Option<WatchKey> {
        let WatchedReference { resource, users, .. } = self.named.get(id)?;
        let is_for_dependents = users.keys().all(ObjectKey::is_part);
        let named = WatchSelection::Named(id.namespace.clone(), id.name.clone());
        let mut ways = Vec::new();
        if !id.namespace.is_empty() {
            if self.wide.contains(&kind_of(id)) {
                ways.push(WatchSelection::All);
            }
            ways.push(WatchSelection::InNamespace(id.namespace.clone()));
        }
        ways.push(named.clone());
        let mut keys = ways.into_iter().map(|way| WatchKey::new(resource, way));
        let allowed = keys.find(|key| !self.refused.contains_key(key));
        allowed.or_else(|| (!is_for_dependents).then(|| WatchKey::new(resource, named)))
    }

    /// The watches that see what a node named.
    pub(super) fn needed_by(&self, user: &ObjectKey) -> BTreeSet<WatchKey> {
        self.by_user.get(user).into_iter().flatten().filter_map(|id| self.key_of(id)).collect()
    }

    /// The objects that a node names, each with its kind.
    pub(super) fn of(&self, user: &ObjectKey) -> Vec<(ApiResourceLocation, ObjectId)> {
        let own = self.by_user.get(user).into_iter().flatten();
        own.filter_map(|id| Some((self.named.get(id)?.resource.clone(), id.clone()))).collect()
    }

    /// Chooses one watch of all namespaces for each kind that is named in many namespaces. Returns the nodes whose
    /// watches change.
    pub(super) fn widen(&mut self) -> BTreeSet<ObjectKey> {
        let many: Vec<GroupKindKey> = (self.places.iter())
            .filter(|(kind, places)| {
                places.len() > MAX_WATCHED_NAMESPACES_PER_KIND && !self.wide.contains(*kind)
            })
            .map(|(kind, _)| kind.clone())
            .collect();
        if many.is_empty() {
            return BTreeSet::new();
        }
        let affected = self.named.iter().filter(|(id, _)| many.contains(&kind_of(id)));
        let users = affected.flat_map(|(_, reference)| reference.users.keys().cloned()).collect();
        self.wide.extend(many);
        users
    }

    /// The API server refuses a watch, so that narrower ones are needed.
    pub(super) fn refuse(&mut self, key: &WatchKey, now: Instant) {
        self.refused.insert(key.clone(), now);
    }

    /// Permits watches again that were refused long ago, because rights may have been granted. Returns the nodes whose
    /// watches change.
    pub(super) fn permit_again(&mut self, now: Instant) -> BTreeSet<ObjectKey> {
        let is_over =
            |_: &WatchKey, at: &mut Instant| now.saturating_duration_since(*at) >= REFUSED_FOR;
        let over: Vec<WatchKey> =
            self.refused.extract_if(.., is_over).map(|(key, _)| key).collect();
        let ids = over.iter().flat_map(|key| self.expected(key));
        let users = ids.filter_map(|id| self.named.get(id)).flat_map(|it| it.users.keys().cloned());
        users.collect()
    }

    /// Notes the version of an object that a watch saw; `None` if it was deleted. Returns the nodes to wake.
    pub(super) fn note(&mut self, id: &ObjectId, now: Option<u64>) -> BTreeSet<ObjectKey> {
        self.recent.add(id, now);
        let Some(reference) = self.named.get_mut(id) else { return BTreeSet::new() };
        reference.seen = Some(now);
        let woken = reference.users.iter().filter(|(_, read)| is_newer(now, **read));
        woken.map(|(user, _)| user.clone()).collect()
    }

    /// The objects that a complete list of a watch should contain.
    pub(super) fn expected(&self, key: &WatchKey) -> BTreeSet<&ObjectId> {
        let is_selected = |id: &ObjectId| match &key.selection {
            WatchSelection::All => true,
            WatchSelection::InNamespace(namespace) => id.namespace == *namespace,
            WatchSelection::Named(namespace, name) => {
                id.namespace == *namespace && id.name == *name
            }
            WatchSelection::Labelled(_) => false,
        };
        let of_kind = |id: &&ObjectId| id.kind == key.kind && id.group == key.group;
        self.named.keys().filter(of_kind).filter(|id| is_selected(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use objects::Gvk;

    use super::*;

    fn referred(
        references: &WatchedReferences,
        namespace: &str,
        version: Option<u64>,
    ) -> RunReferenceRead {
        let resource = ApiResourceLocation {
            gvk: Gvk::new("v1", "Secret"),
            plural: "secrets".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let id = ObjectId::new(namespace, "password", "", "Secret");
        RunReferenceRead { resource, id, version, since: references.now() }
    }

    fn node(name: &str) -> ObjectKey {
        ObjectKey::new("source.toolkit.fluxcd.io", "GitRepository", "shop", name)
    }

    #[test]
    fn a_referred_object_wakes_when_it_is_another_than_was_read() {
        let mut references = WatchedReferences::default();
        let user = node("app");
        let read = referred(&references, "shop", Some(7));
        assert!(!references.add(&user, &read));
        assert_eq!(references.note(&read.id, Some(7)), BTreeSet::new());
        assert_eq!(references.note(&read.id, Some(6)), BTreeSet::new(), "the watch lags");
        assert_eq!(references.note(&read.id, Some(8)), BTreeSet::from([user.clone()]));
        assert_eq!(references.note(&read.id, None), BTreeSet::from([user]));
    }

    #[test]
    fn a_referred_object_that_was_missing_wakes_when_it_is_there() {
        let mut references = WatchedReferences::default();
        let user = node("app");
        let read = referred(&references, "shop", None);
        assert!(!references.add(&user, &read));
        assert_eq!(references.note(&read.id, None), BTreeSet::new());
        assert_eq!(references.note(&read.id, Some(1)), BTreeSet::from([user]));
    }

    #[test]
    fn what_changes_between_reading_and_naming_is_noticed() {
        let mut references = WatchedReferences::default();
        let user = node("app");
        let read = referred(&references, "shop", Some(7));
        references.note(&read.id, Some(8));
        assert!(references.add(&user, &read), "nobody had named it when it changed");
        let read = referred(&references, "shop", Some(8));
        references.note(&read.id, Some(8));
        assert!(!references.add(&user, &read), "the list shows what was read");
        let read = referred(&references, "shop", Some(8));
        references.note(&read.id, None);
        assert!(references.add(&user, &read), "it is gone since");
    }

    #[test]
    fn many_namespaces_are_seen_by_one_watch_unless_that_is_refused() {
        let mut references = WatchedReferences::default();
        let named: Vec<(ObjectKey, RunReferenceRead)> = (0..=MAX_WATCHED_NAMESPACES_PER_KIND)
            .map(|at| {
                let read = referred(&references, &format!("ns-{at}"), Some(1));
                (node(&at.to_string()), read)
            })
            .collect();
        for (user, read) in &named[..MAX_WATCHED_NAMESPACES_PER_KIND] {
            references.add(user, read);
        }
        assert_eq!(references.widen(), BTreeSet::new());
        let (last, read) = &named[MAX_WATCHED_NAMESPACES_PER_KIND];
        references.add(last, read);
        assert_eq!(references.widen().len(), MAX_WATCHED_NAMESPACES_PER_KIND + 1);
        let all = references.key_of(&read.id).unwrap();
        assert_eq!(all.selection, WatchSelection::All);
        assert_eq!(references.needed_by(last), BTreeSet::from([all.clone()]));
        assert_eq!(references.expected(&all).len(), MAX_WATCHED_NAMESPACES_PER_KIND + 1);
        let now = Instant::now();
        references.refuse(&all, now);
        let own = references.key_of(&read.id).unwrap();
        assert_eq!(own.selection, WatchSelection::InNamespace(read.id.namespace.clone()));
        references.refuse(&own, now);
        let one = references.key_of(&read.id).unwrap();
        assert!(matches!(one.selection, WatchSelection::Named(..)));
        // What is refused is tried again later, by all whom it is about.
        assert_eq!(references.permit_again(now + REFUSED_FOR / 2), BTreeSet::new());
        assert_eq!(
            references.permit_again(now + REFUSED_FOR).len(),
            MAX_WATCHED_NAMESPACES_PER_KIND + 1
        );
        assert_eq!(references.key_of(&read.id), Some(all.clone()));
        references.refuse(&all, now);
        references.refuse(&own, now);
        references.refuse(&one, now);
        assert_eq!(references.key_of(&read.id), Some(one.clone()), "it is tried on");
        for (user, _) in &named {
            references.forget(user);
        }
        assert!(references.named.is_empty() && references.by_user.is_empty());
        assert!(references.places.values().all(BTreeMap::is_empty));
        assert!(references.refused.is_empty(), "nobody asks there any more");
    }

    #[test]
    fn a_watch_that_is_refused_stays_refused_for_dependents_that_name_the_object_again() {
        let mut references = WatchedReferences::default();
        let dependent = node("app").part("dependsOn");
        let read = referred(&references, "shop", Some(1));
        references.add(&dependent, &read);
        let now = Instant::now();
        let own = references.key_of(&read.id).unwrap();
        references.refuse(&own, now);
        let one = references.key_of(&read.id).unwrap();
        references.refuse(&one, now);
        assert_eq!(references.key_of(&read.id), None, "nothing of it may be watched");
        references.forget_others(&dependent, &BTreeSet::from([&read.id]));
        references.add(&dependent, &read);
        assert_eq!(references.needed_by(&dependent), BTreeSet::new(), "and is not tried each run");
        // A spec that refers to the object has nothing else that wakes it.
        references.add(&node("app"), &read);
        assert_eq!(references.key_of(&read.id), Some(one));
        references.forget(&node("app"));
        references.forget(&dependent);
        assert!(references.named.is_empty() && references.refused.is_empty());
        assert!(references.by_user.is_empty());
    }
}
