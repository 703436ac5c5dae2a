//! The Secrets, ConfigMaps and ServiceAccounts that specs name: which run read which version, and which watch sees the object.
//!
//! A watch for each object would mean thousands of watches. So one watch of a kind covers a namespace, or all namespaces if
//! many are needed. Only the objects that specs name are remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use objects::ObjectId;
use reconcile::ObjectKey;

use super::watcher_state::{RecentObjectEvents, WatchKey, WatchMoment, is_newer};
use crate::discovery::ApiResourceLocation;
use crate::resource_version::is_later;
use crate::watch::WatchSelection;

/// The most namespaces in which a kind has a watch of its own. With more namespaces, one watch covers all of them.
const MAX_WATCHED_NAMESPACES_PER_KIND: usize = 32;

/// How long after a refusal a watch is tried again.
const REFUSED_FOR: Duration = Duration::from_secs(3600);

/// An object that a spec names, as a run read it.
pub struct RunReferenceRead {
    /// The kind of the object.
    pub resource: ApiResourceLocation,
    /// The id of the object.
    pub id: ObjectId,
    /// The version that the run read. `None` if the object did not exist.
    pub version: Option<u64>,
    /// The moment before the run read the object.
    pub since: WatchMoment,
}

struct WatchedReference {
    resource: ApiResourceLocation,
    /// The reconciled objects whose specs name the object, with the version that each of them read.
    users: BTreeMap<ObjectKey, Option<u64>>,
    /// The version that a watch saw last. `Some(None)` if the object does not exist, and `None` if no watch has seen it yet.
    seen: Option<Option<u64>>,
}

/// Group and kind.
type GroupKindKey = (String, String);

/// The Secrets, ConfigMaps and ServiceAccounts that specs name, with the objects that read them and the
/// watches that see them.
#[derive(Default)]
pub(super) struct WatchedReferences {
    named: BTreeMap<ObjectId, WatchedReference>,
    /// The objects that each reconciled object names.
    by_user: BTreeMap<ObjectKey, BTreeSet<ObjectId>>,
    /// How many objects of each kind are named in each namespace.
    places: BTreeMap<GroupKindKey, BTreeMap<String, usize>>,
    /// The kinds that are watched in all namespaces at once.
    wide: BTreeSet<GroupKindKey>,
    /// The watches that the API server forbids, and since when.
    refused: BTreeMap<WatchKey, Instant>,
    /// The last changes that the watches for references saw.
    recent: RecentObjectEvents,
}

fn kind_of(id: &ObjectId) -> GroupKindKey {
    (id.group.clone(), id.kind.clone())
}

impl WatchedReferences {
    /// The current moment, to be taken before a read.
    pub(super) fn now(&self) -> WatchMoment {
        self.recent.now()
    }

    /// Notes that a reconciled object names an object. Returns whether a watch has seen a change since the object was read.
    pub(super) fn add(&mut self, user: &ObjectKey, referred: &RunReferenceRead) -> bool {
        let RunReferenceRead { resource, id, version, since } = referred;
        self.by_user.entry(user.clone()).or_default().insert(id.clone());
        let places = &mut self.places;
        let reference = self.named.entry(id.clone()).or_insert_with(|| {
            let place = places.entry(kind_of(id)).or_default().entry(id.namespace.clone());
            *place.or_default() += 1;
            WatchedReference { resource: resource.clone(), users: BTreeMap::new(), seen: None }
        });
        // Another reconciled object may name the object in another version of its kind. Then that version stays.
        if reference.users.keys().all(|it| it == user) {
            reference.resource.clone_from(resource);
        }
        reference.users.insert(user.clone(), *version);
        // A lagging watch may not know yet that an object exists, and reports it later. So an unseen object is no change.
        let is_newer = matches!(
            (reference.seen, version), (Some(Some(seen)), Some(read)) if is_later(seen, *read)
        );
        is_newer || self.recent.differs_since(id, *since, *version)
    }

    /// Whether a watch saw this version of an object last.
    pub(super) fn is_seen_in(&self, id: &ObjectId, version: u64) -> bool {
        self.named.get(id).is_some_and(|reference| reference.seen == Some(Some(version)))
    }

    /// Forgets the objects that a reconciled object names.
    pub(super) fn forget(&mut self, user: &ObjectKey) {
        self.forget_others(user, &BTreeSet::new());
    }

    /// Forgets the objects that a reconciled object names, except those in `kept`. The state of their watches stays.
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
                    // No reference needs a watch there any more, so the refusals are forgotten.
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

    /// Whether a reconciled object names any object.
    pub(super) fn has(&self, user: &ObjectKey) -> bool {
        self.by_user.contains_key(user)
    }

    /// The watch for an object that a spec names: the widest one that the API server allows. If it forbids all of them, the
    /// watch by name is retried. But if only dependent reconciled objects name the object, there is none, because they read
    /// the object again anyway.
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

    /// The watches that a reconciled object needs for the objects that it names.
    pub(super) fn needed_by(&self, user: &ObjectKey) -> BTreeSet<WatchKey> {
        self.by_user.get(user).into_iter().flatten().filter_map(|id| self.key_of(id)).collect()
    }

    /// The objects that a reconciled object names, each with its kind.
    pub(super) fn of(&self, user: &ObjectKey) -> Vec<(ApiResourceLocation, ObjectId)> {
        let own = self.by_user.get(user).into_iter().flatten();
        own.filter_map(|id| Some((self.named.get(id)?.resource.clone(), id.clone()))).collect()
    }

    /// Switches each kind that is named in many namespaces to one watch of all namespaces. Returns the reconciled objects
    /// whose watches change.
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

    /// Notes that the API server forbids a watch, so that narrower watches are used.
    pub(super) fn refuse(&mut self, key: &WatchKey, now: Instant) {
        self.refused.insert(key.clone(), now);
    }

    /// Allows watches again that the API server forbade long ago, because rights may have been granted since. Returns the
    /// reconciled objects whose watches change.
    pub(super) fn permit_again(&mut self, now: Instant) -> BTreeSet<ObjectKey> {
        let is_over =
            |_: &WatchKey, at: &mut Instant| now.saturating_duration_since(*at) >= REFUSED_FOR;
        let over: Vec<WatchKey> =
            self.refused.extract_if(.., is_over).map(|(key, _)| key).collect();
        let ids = over.iter().flat_map(|key| self.expected(key));
        let users = ids.filter_map(|id| self.named.get(id)).flat_map(|it| it.users.keys().cloned());
        users.collect()
    }

    /// Notes the version of an object that a watch saw, or its deletion if `None`. Returns the reconciled objects to wake.
    pub(super) fn note(&mut self, id: &ObjectId, now: Option<u64>) -> BTreeSet<ObjectKey> {
        self.recent.add(id, now);
        let Some(reference) = self.named.get_mut(id) else { return BTreeSet::new() };
        reference.seen = Some(now);
        let woken = reference.users.iter().filter(|(_, read)| is_newer(now, **read));
        woken.map(|(user, _)| user.clone()).collect()
    }

    /// The named objects that a complete list of a watch should contain.
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
        // Refused watches are tried again later, for all reconciled objects that need them.
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
        // A spec that names the object has no other way to be woken.
        references.add(&node("app"), &read);
        assert_eq!(references.key_of(&read.id), Some(one));
        references.forget(&node("app"));
        references.forget(&dependent);
        assert!(references.named.is_empty() && references.refused.is_empty());
        assert!(references.by_user.is_empty());
    }
}
