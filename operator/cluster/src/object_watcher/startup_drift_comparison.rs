//! The first comparison of applied objects after a start: which owners need no request, and which come first.
//!
//! A process that starts again in the same storage folder has the comparisons of the one before ([`super::kept_comparisons`]).
//! Lists of metadata show which objects have not changed since. A comparison is used only for an object of which at most the
//! status has changed: everything else is compared as after a start without files.
//!
//! A process without files, such as a standby that takes over, sees in the same lists which objects are missing or were changed
//! by another client last. Their owners come first, so that drift does not wait for the comparison of thousands of objects. The
//! same holds for changes that watches show later, as long as the first comparison of an owner is still to come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use objects::{Gvk, ObjectId};
use reconcile::ObjectKey;
use tokio::time::{Instant, timeout_at};

use super::ObjectWatcher;
use super::stored_drift_comparisons::{
    AppliedOwner, DriftComparisonFolder, StoredComparedObject, StoredComparisonKind,
    StoredDriftComparison, StoredRunFacts,
};
use super::watcher_state::{
    ManifestDigest, ObjectWatcherState, SeenObjectVersion, TrackedObject, WatchKey,
};
use crate::discovery::ApiResourceLocation;
use crate::metrics::WakeReason;
use crate::resource_version::is_later;
use crate::watch::WatchSelection;

/// How long the lists of all applied objects may take at least. After this time, objects that were not listed are compared like
/// others.
const LIST_TIMEOUT: Duration = Duration::from_secs(6);

/// How much longer the lists may take for each owner.
const LIST_TIMEOUT_PER_OWNER: Duration = Duration::from_millis(2);

/// How long the lists may take at most.
const MAX_LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// How many owners may come first because an object of theirs may have drifted. With more of them, windlass cannot tell what
/// is urgent, and a cluster that was restored from a backup would get all requests at once.
pub(super) const MAX_URGENT_OWNERS: usize = 1_000;

/// How long the first runs of this many owners wait for lists.
fn list_timeout(owners: usize) -> Duration {
    let owners = u32::try_from(owners).unwrap_or(u32::MAX);
    (LIST_TIMEOUT + LIST_TIMEOUT_PER_OWNER.saturating_mul(owners)).min(MAX_LIST_TIMEOUT)
}

/// The owners of a kind that were ready before the start, with the comparisons that the process before has kept about them.
pub struct OwnersAtStart {
    owners: Arc<[AppliedOwner]>,
    found: BTreeMap<ObjectKey, StoredDriftComparison>,
}

impl OwnersAtStart {
    /// Whether there is a comparison that may be used for an owner. The others have nothing to wait for.
    pub fn has_comparison(&self, owner: &ObjectKey) -> bool {
        self.found.contains_key(owner)
    }
}

impl ObjectWatcher {
    /// Keeps comparisons in this folder from now on. They are used after a restart by a process with the same `key`, which
    /// stands for everything that comparisons depend on besides the owners. Only the first call counts.
    pub fn keep_comparisons_in(&self, folder: PathBuf, key: &str) {
        let path = folder.display().to_string();
        match DriftComparisonFolder::open(folder, key) {
            Ok(folder) => drop(self.kept.set(Arc::new(folder))),
            Err(error) => tracing::warn!(
                folder = path,
                error = %error,
                "comparisons cannot be kept in the storage folder; after a restart, all objects are compared again"
            ),
        }
    }

    /// Keeps the comparison of an owner's objects, after a run that found all of them as desired. Objects that cannot be
    /// watched or are not known to be as desired leave nothing to keep.
    pub fn keep_comparison(&self, owner: &ObjectKey, facts: StoredRunFacts) {
        let Some(folder) = self.kept.get().cloned() else { return };
        // A note is about the state at the start, and this run knows a later one.
        folder.notes.lock().remove(owner);
        let compared = self.state().compared(owner);
        let owner = owner.clone();
        tokio::task::spawn_blocking(move || {
            let kept = match compared {
                Some(kinds) => {
                    let StoredRunFacts { version, is_free, reads_health, note } = facts;
                    let kept =
                        StoredDriftComparison { version, is_free, reads_health, note, kinds };
                    folder.write(&owner, &kept)
                }
                None => folder.remove(&owner),
            };
            if let Err(error) = kept {
                tracing::debug!(owner = %owner, error = %error, "the comparison was not kept");
            }
        });
    }

    /// Deletes the kept comparison of an owner that is gone.
    pub(super) fn forget_comparison(&self, owner: &ObjectKey) {
        let Some(folder) = self.kept.get() else { return };
        folder.notes.lock().remove(owner);
        if let Err(error) = folder.remove(owner) {
            tracing::debug!(owner = %owner, error = %error, "the kept comparison was not deleted");
        }
    }

    /// The note that was kept with the comparison of an owner, if all its objects were found unchanged after the start: in the
    /// versions of the comparison, or with another status if the owner reads no health. It may be empty. Each note is returned
    /// once.
    pub fn take_note(&self, owner: &ObjectKey) -> Option<String> {
        self.kept.get()?.notes.lock().remove(owner)
    }

    /// How many objects of an owner are tracked. Those that a run skipped are not.
    pub fn tracked_count(&self, owner: &ObjectKey) -> usize {
        self.state().tracked_of(owner).count()
    }

    /// The versions of an owner's objects that have not changed since they were compared.
    pub fn unmoved_versions(&self, owner: &ObjectKey) -> BTreeMap<ObjectId, u64> {
        let state = self.state();
        let tracked = state.tracked_of(owner).filter(|(id, it)| state.is_settled(id, it));
        tracked.map(|(id, it)| (id.clone(), it.applied.version)).collect()
    }

    /// Watches the objects of these owners before the first runs. A standby then knows at its takeover which objects were
    /// changed by others.
    pub async fn observe_inventories(&self, owners: &[AppliedOwner]) {
        self.watch_inventories(owners, list_timeout(owners.len())).await;
    }

    /// The comparisons that the process before has kept about owners of a kind. `owners` are all of that kind that were ready.
    /// This sends no request.
    pub async fn kept_comparisons(&self, kind: &str, owners: Vec<AppliedOwner>) -> OwnersAtStart {
        let owners: Arc<[AppliedOwner]> = owners.into();
        let found = self.kept_of(kind, &owners).await;
        OwnersAtStart { owners, found }
    }

    /// The owners of a kind, among those that were ready before the start, that run at once: their comparison needs no request,
    /// or one of their objects may have drifted. This waits for lists of their objects, for a limited time.
    pub async fn confirm_after_start(
        &self,
        kind: &str,
        at_start: OwnersAtStart,
    ) -> BTreeSet<ObjectKey> {
        let OwnersAtStart { owners, found } = at_start;
        let patience = list_timeout(owners.len());
        let deadline = Instant::now() + patience;
        let mut keys = self.watch_inventories(&owners, patience).await;
        let kinds = found.values().flat_map(|kept| &kept.kinds).map(|it| it.kind.clone());
        let resources = self.locate(kinds.collect(), patience).await;
        let mut restored = BTreeSet::new();
        let drifted = {
            let mut state = self.state();
            for (owner, kept) in &found {
                if let Some(watched) = self.restore(&mut state, owner, kept, &resources) {
                    keys.extend(watched);
                    restored.insert(owner.clone());
                }
            }
            state.settle_restored_in(&keys)
        };
        self.wake_drifted(drifted);
        self.await_lists(&keys, deadline).await;
        let mut first = self.urgent(kind, &owners);
        let state = self.state();
        for (owner, kept) in found {
            if !restored.contains(&owner) {
                continue;
            }
            match state.compare_kept(&owner, &kept) {
                StoredComparisonMatch::Same => {}
                StoredComparisonMatch::SameButStatus if !kept.reads_health => {}
                StoredComparisonMatch::SameButStatus | StoredComparisonMatch::Changed => continue,
            }
            if let Some(folder) = self.kept.get() {
                folder.notes.lock().insert(owner.clone(), kept.note);
            }
            if kept.is_free {
                first.insert(owner);
            }
        }
        first
    }

    /// The kept comparisons of a kind.
    async fn kept_of(
        &self,
        kind: &str,
        owners: &Arc<[AppliedOwner]>,
    ) -> BTreeMap<ObjectKey, StoredDriftComparison> {
        let Some(folder) = self.kept.get().cloned() else { return BTreeMap::new() };
        let kind = kind.to_owned();
        let owners = owners.clone();
        let read = tokio::task::spawn_blocking(move || folder.read(&kind, &owners));
        read.await.unwrap_or_default()
    }

    /// The owners with an object that is missing or was changed by another client last. There are none if there are too many.
    fn urgent(&self, kind: &str, owners: &Arc<[AppliedOwner]>) -> BTreeSet<ObjectKey> {
        let label =
            self.marks.all.iter().find(|(names, _)| names.last().is_some_and(|it| it == kind));
        let Some(label) = label.map(|(_, marks)| marks.name) else { return BTreeSet::new() };
        let mut state = self.state();
        let urgent = owners.iter().filter(|owner| state.may_have_drifted(label, owner));
        let urgent: BTreeSet<ObjectKey> = urgent.map(|owner| owner.node.clone()).collect();
        state.changed_by_others.insert(label, None);
        if urgent.len() > MAX_URGENT_OWNERS {
            return BTreeSet::new();
        }
        state.await_comparisons(owners);
        urgent
    }

    /// The locations of those kinds that are served. An aggregated API server that does not respond delays neither the other
    /// API groups nor the start: only a third of the patience is for this.
    async fn locate(
        &self,
        kinds: BTreeSet<Gvk>,
        patience: Duration,
    ) -> BTreeMap<Gvk, ApiResourceLocation> {
        let deadline = Instant::now() + patience / 3;
        let mut groups: BTreeMap<String, Vec<Gvk>> = BTreeMap::new();
        for kind in kinds {
            groups.entry(kind.api_version()).or_default().push(kind);
        }
        let located = groups.into_values().map(|kinds| async move {
            let mut found = Vec::new();
            for kind in kinds {
                match timeout_at(deadline, self.cluster.resource(&kind)).await {
                    Ok(Ok(resource)) => found.push((kind, resource)),
                    Ok(Err(_)) => {}
                    Err(_) => break,
                }
            }
            found
        });
        join_all(located).await.into_iter().flatten().collect()
    }

    /// Watches the kinds in the inventories of owners, and returns these watches.
    async fn watch_inventories(
        &self,
        owners: &[AppliedOwner],
        patience: Duration,
    ) -> BTreeSet<WatchKey> {
        let kinds = owners.iter().flat_map(AppliedOwner::kinds).collect();
        let resources = self.locate(kinds, patience).await;
        let mut state = self.state();
        let mut keys = BTreeSet::new();
        for owner in owners {
            let label = self.marks.label_of(&owner.node);
            let kinds: BTreeSet<Gvk> = owner.kinds().collect();
            for resource in kinds.iter().filter_map(|kind| resources.get(kind)) {
                // The first event of the watch must find this entry.
                state.changed_by_others.entry(label).or_insert_with(|| Some(BTreeSet::new()));
                self.ensure(&mut state, &owner.node, resource, WatchSelection::Labelled(label));
                if resource.watchable {
                    keys.insert(WatchKey::labelled(resource, label));
                }
            }
        }
        keys
    }

    /// Tracks the objects of a kept comparison, and returns their watches. `None` if the comparison cannot be used: an owner that
    /// has run meanwhile knows more than its file, and a kind that cannot be watched any more cannot be confirmed.
    fn restore(
        &self,
        state: &mut ObjectWatcherState,
        owner: &ObjectKey,
        kept: &StoredDriftComparison,
        resources: &BTreeMap<Gvk, ApiResourceLocation>,
    ) -> Option<BTreeSet<WatchKey>> {
        let is_watchable = |it: &StoredComparisonKind| {
            resources.get(&it.kind).is_some_and(|resource| resource.watchable)
        };
        if state.owned.contains_key(owner) || !kept.kinds.iter().all(is_watchable) {
            return None;
        }
        let label = self.marks.label_of(owner);
        let mut keys = BTreeSet::new();
        for StoredComparisonKind { kind, objects } in &kept.kinds {
            let Some(resource) = resources.get(kind) else { continue };
            self.ensure(state, owner, resource, WatchSelection::Labelled(label));
            let key = state.shared_watch(WatchKey::labelled(resource, label));
            for object in objects {
                let id = ObjectId::new(&object.namespace, &object.name, &kind.group, &kind.kind);
                let Some(manifest) = ManifestDigest::from_hex(&object.manifest) else { continue };
                if state.tracked.contains_key(&id) {
                    continue;
                }
                let applied = object.sighting();
                let tracked = TrackedObject {
                    owner: state.shared_node(owner),
                    watch: Some(key.clone()),
                    manifest: Some(manifest),
                    applied,
                    writer: None,
                    dirty: false,
                };
                state.track(&id, tracked);
                state
                    .restored
                    .entry(key.clone())
                    .or_default()
                    .push(UnlistedStoredObject { id, applied });
            }
            keys.insert(WatchKey::clone(&key));
        }
        Some(keys)
    }

    /// Wakes owners whose objects drifted while no process watched them, unless there are too many. All of them run in turn.
    pub(super) fn wake_drifted(&self, drifted: BTreeSet<ObjectKey>) {
        if drifted.len() > MAX_URGENT_OWNERS {
            return;
        }
        for owner in drifted {
            self.work_queue.wake(&owner, WakeReason::Drift);
        }
    }

    /// Waits until each of these watches has listed its objects or failed.
    async fn await_lists(&self, keys: &BTreeSet<WatchKey>, deadline: Instant) {
        let all = async {
            loop {
                let answered = self.watch_answered.notified();
                if self.state().have_answered(keys) {
                    return;
                }
                answered.await;
            }
        };
        if timeout_at(deadline, all).await.is_err() {
            tracing::info!(
                "the applied objects were not listed in time, so they are compared one by one"
            );
        }
    }
}

/// How far the objects of an owner are as its kept comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredComparisonMatch {
    /// Each object is in the version that was compared.
    Same,
    /// The statuses of some objects have changed.
    SameButStatus,
    /// An object has changed in another way, or this is not known.
    Changed,
}

impl StoredComparedObject {
    /// The version and hashes in which the object was compared.
    fn sighting(&self) -> SeenObjectVersion {
        let Self { version, fingerprint, content, .. } = *self;
        SeenObjectVersion { version, fingerprint, content }
    }
}

/// An object of a kept comparison whose watch has not listed it yet.
pub(super) struct UnlistedStoredObject {
    id: ObjectId,
    /// The sighting in the comparison.
    applied: SeenObjectVersion,
}

impl ObjectWatcherState {
    /// The objects of an owner as they were compared, by kind. `None` if it is not known that all of them are as desired.
    fn compared(&self, owner: &ObjectKey) -> Option<Vec<StoredComparisonKind>> {
        // An object that another applier applied since is not among the tracked objects, so it would not be compared.
        if self.has_superseded(owner) {
            return None;
        }
        let mut kinds: BTreeMap<Gvk, Vec<StoredComparedObject>> = BTreeMap::new();
        for (id, tracked) in self.tracked_of(owner) {
            if tracked.dirty || tracked.writer.is_some() {
                return None;
            }
            let WatchKey { group, version, kind, .. } = WatchKey::clone(tracked.watch.as_ref()?);
            let object = StoredComparedObject {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                manifest: tracked.manifest?.to_hex(),
                version: tracked.applied.version,
                fingerprint: tracked.applied.fingerprint,
                content: tracked.applied.content,
            };
            kinds.entry(Gvk { group, version, kind }).or_default().push(object);
        }
        Some(
            kinds
                .into_iter()
                .map(|(kind, objects)| StoredComparisonKind { kind, objects })
                .collect(),
        )
    }

    /// Judges the objects of kept comparisons that a watch has listed by now. Returns the owners of objects that drifted.
    ///
    /// The process before may have ended during a write that its file does not have. So an object is forgotten and compared again
    /// unless at most its status has changed.
    pub(super) fn settle_restored(&mut self, key: &WatchKey) -> BTreeSet<ObjectKey> {
        let mut drifted = BTreeSet::new();
        for UnlistedStoredObject { id, applied } in self.restored.remove(key).unwrap_or_default() {
            let Some(tracked) = self.tracked.get(&id) else { continue };
            // A run may have compared or written it meanwhile.
            if tracked.applied != applied || tracked.writer.is_some() {
                continue;
            }
            let owner = ObjectKey::clone(&tracked.owner);
            let seen = self.sighted_by(key, &id);
            if let Some(seen) = seen.filter(|seen| seen.fingerprint == applied.fingerprint) {
                // After a restore of the cluster from a backup, versions are lower.
                if !seen.is_same_but_status(applied) || is_later(applied.version, seen.version) {
                    self.untrack(&owner, &id);
                } else if let Some(tracked) = self.tracked.get_mut(&id) {
                    tracked.applied = seen;
                }
            } else if let Some(tracked) = self.tracked.get_mut(&id) {
                tracked.dirty = true;
                drifted.insert(owner);
            }
        }
        drifted
    }

    /// As [`Self::settle_restored`], for those of the watches that are live already.
    fn settle_restored_in(&mut self, keys: &BTreeSet<WatchKey>) -> BTreeSet<ObjectKey> {
        let mut drifted = BTreeSet::new();
        for key in keys {
            if self.watches.get(key).is_some_and(|watch| watch.live) {
                drifted.append(&mut self.settle_restored(key));
            }
        }
        drifted
    }

    /// Compares the objects of an owner with its kept comparison, after their watches have listed them.
    fn compare_kept(
        &self,
        owner: &ObjectKey,
        kept: &StoredDriftComparison,
    ) -> StoredComparisonMatch {
        if self.tracked_of(owner).count() != kept.count() {
            return StoredComparisonMatch::Changed;
        }
        let mut agreement = StoredComparisonMatch::Same;
        for StoredComparisonKind { kind, objects } in &kept.kinds {
            for object in objects {
                let id = ObjectId::new(&object.namespace, &object.name, &kind.group, &kind.kind);
                let manifest = ManifestDigest::from_hex(&object.manifest);
                let same = self.tracked.get(&id).filter(|tracked| {
                    *tracked.owner == *owner
                        && tracked.manifest == manifest
                        && tracked.applied.is_same_but_status(object.sighting())
                        && self.is_settled(&id, tracked)
                });
                match same {
                    None => return StoredComparisonMatch::Changed,
                    Some(tracked) if tracked.applied.version == object.version => {}
                    Some(_) => agreement = StoredComparisonMatch::SameButStatus,
                }
            }
        }
        agreement
    }

    /// Whether an object has not changed since it was compared, and a live watch would show a change.
    fn is_settled(&self, id: &ObjectId, tracked: &TrackedObject) -> bool {
        !tracked.dirty && tracked.writer.is_none() && self.is_unmoved(id, tracked)
    }

    /// The version and fingerprint in which a watch by label saw an object last.
    fn sighted_by(&self, key: &WatchKey, id: &ObjectId) -> Option<SeenObjectVersion> {
        match key.selection {
            WatchSelection::Labelled(label) => self.sighted(label, id),
            WatchSelection::Named(..) | WatchSelection::InNamespace(_) | WatchSelection::All => {
                None
            }
        }
    }

    /// Whether each watch has listed its objects or failed. One that was stopped is not waited for.
    fn have_answered(&self, keys: &BTreeSet<WatchKey>) -> bool {
        keys.iter().all(|key| self.watches.get(key).is_none_or(|watch| watch.has_answered))
    }

    /// Notes whether another client was the last to change an object, as long as this decides about the order of first runs.
    pub(super) fn note_last_change(
        &mut self,
        label: &'static str,
        id: &ObjectId,
        is_of_others: impl FnOnce() -> bool,
    ) {
        if !self.changed_by_others.get(label).is_some_and(Option::is_some) {
            return;
        }
        let id = self.shared_id(label, id);
        if let Some(Some(changed)) = self.changed_by_others.get_mut(label) {
            if is_of_others() {
                changed.insert(id);
            } else {
                changed.remove(&id);
            }
        }
    }

    /// Notes that these owners are compared later. Owners all of whose objects are tracked already are left out, because their
    /// objects show drift by themselves.
    fn await_comparisons(&mut self, owners: &Arc<[AppliedOwner]>) {
        for (at, owner) in owners.iter().enumerate() {
            if self.tracked_of(&owner.node).count() < owner.inventory.len() {
                let node = self.shared_node(&owner.node);
                self.uncompared.add(node, owners, at);
            }
        }
    }

    /// The owner of an untracked object that has just changed, if the first comparison of this owner is still to come. `owner`
    /// finds it by the label of the watch, and its inventory has to have the object. It is returned once, because its next run
    /// compares all of its objects.
    pub(super) fn take_uncompared(
        &mut self,
        key: &WatchKey,
        id: &ObjectId,
        owner: impl FnOnce(&'static str) -> Option<ObjectKey>,
    ) -> Option<ObjectKey> {
        let WatchSelection::Labelled(label) = key.selection else { return None };
        // A list does not say which objects have just changed.
        let is_event = self.watches.get(key).is_some_and(|watch| watch.live);
        if self.uncompared.is_empty() || !is_event || self.tracked.contains_key(id) {
            return None;
        }
        let owner = owner(label)?;
        self.uncompared.take(&owner, id).then_some(owner)
    }

    /// Whether an object in the inventory of an owner is missing, or was changed by another client last. An object whose watch
    /// is not live is neither.
    fn may_have_drifted(&self, label: &'static str, owner: &AppliedOwner) -> bool {
        let Some(Some(changed)) = self.changed_by_others.get(label) else { return false };
        owner.inventory.ids().any(|id| {
            let is_missing = || {
                let ObjectId { group, kind, .. } = id.clone();
                let version = owner.inventory.version(id).unwrap_or_default().to_owned();
                let selection = WatchSelection::Labelled(label);
                let watch = self.watches.get(&WatchKey { group, version, kind, selection });
                watch.is_some_and(|watch| watch.live) && self.sighted(label, id).is_none()
            };
            changed.contains(id) || is_missing()
        })
    }
}

#[cfg(test)]
mod tests;
