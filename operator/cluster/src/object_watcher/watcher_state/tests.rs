//! Tests of the object watcher's state. They compare its indexes with a search of all entries.

use super::*;
use crate::object_watcher::{OwnershipMarks, RunReferenceRead};

fn id(at: usize) -> ObjectId {
    ObjectId::new("shop", &format!("object-{at}"), "", "ConfigMap")
}

fn node(at: usize) -> ObjectKey {
    ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", &format!("app-{at}"))
}

fn resource() -> ApiResourceLocation {
    ApiResourceLocation {
        gvk: objects::Gvk::new("v1", "ConfigMap"),
        plural: "configmaps".to_owned(),
        namespaced: true,
        watchable: true,
    }
}

#[test]
fn what_is_lost_before_the_answer_arrives_is_remembered() {
    let a = id(1);
    let b = id(2);
    let mut losses = RecentObjectEvents::default();
    losses.add(&a, None);
    let moment = losses.now();
    assert!(!losses.since(&a, moment));
    losses.add(&b, None);
    assert!(losses.since(&b, moment) && !losses.since(&a, moment));
    for _ in 0..MAX_REMEMBERED_CHANGES {
        losses.add(&a, None);
    }
    assert!(losses.since(&b, moment), "it is forgotten, so it may have been lost");
    assert!(
        losses.last.len() <= MAX_REMEMBERED_CHANGES && losses.order.len() <= MAX_REMEMBERED_CHANGES
    );
    let moment = losses.now();
    losses.add(&b, None);
    for at in 3..MAX_REMEMBERED_CHANGES {
        losses.add(&id(at), None);
    }
    assert!(losses.since(&b, moment) && !losses.since(&a, moment));
}

/// The same state without indexes, as sets of pairs that are searched completely.
#[derive(Default)]
struct UnindexedWatcherState {
    waits: BTreeSet<(ObjectKey, ObjectId)>,
    uses: BTreeSet<(ObjectKey, WatchKey)>,
}

impl UnindexedWatcherState {
    fn stop_waiting(&mut self, node: &ObjectKey, which: impl Fn(&ObjectId) -> bool) {
        self.waits.retain(|(who, id)| who != node || !which(id));
    }

    fn release_unused(&mut self, node: &ObjectKey) {
        let waits = self.waits.clone();
        let is_needed = |key: &WatchKey| {
            key.named_object().is_none_or(|id| waits.contains(&(node.clone(), id)))
        };
        self.uses.retain(|(who, key)| who != node || is_needed(key));
    }
}

fn check(state: &ObjectWatcherState, naive: &UnindexedWatcherState) {
    for at in 0..8 {
        let waiting: BTreeSet<ObjectKey> = naive
            .waits
            .iter()
            .filter(|(_, it)| *it == id(at))
            .map(|(who, _)| who.clone())
            .collect();
        assert_eq!(state.waiting_for(&id(at)), waiting);
        let own = naive.uses.iter().filter(|(who, _)| *who == node(at));
        let named: BTreeSet<ObjectId> = own.filter_map(|(_, key)| key.named_object()).collect();
        assert_eq!(state.named_by(&node(at)), named);
    }
    let keys: BTreeSet<&WatchKey> = naive.uses.iter().map(|(_, key)| key).collect();
    assert_eq!(state.watches.keys().map(|key| &**key).collect::<BTreeSet<_>>(), keys);
    for (key, watch) in &state.watches {
        let of_it = naive.uses.iter().filter(|(_, it)| *it == **key);
        let users: BTreeSet<Arc<ObjectKey>> = of_it.map(|(who, _)| Arc::new(who.clone())).collect();
        assert_eq!(watch.users, users);
    }
    // No index has an empty entry left.
    assert!(state.waiting.values().all(|nodes| !nodes.is_empty()));
    assert!(state.waits.values().all(|own| !own.is_empty()));
    assert!(state.uses.values().all(|own| !own.is_empty()));
}

#[tokio::test]
async fn the_indexes_agree_with_a_search_of_everything() {
    let mut state = ObjectWatcherState::default();
    let mut naive = UnindexedWatcherState::default();
    let mut seed = 7_u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((seed >> 33) % bound).unwrap()
    };
    for _ in 0..4_000 {
        let who = node(below(8));
        let what = id(below(8));
        match below(6) {
            0 | 1 => {
                state.wait(&who, &what);
                naive.waits.insert((who.clone(), what.clone()));
                let selection = match below(3) {
                    0 => WatchSelection::Labelled("label"),
                    _ => WatchSelection::Named(what.namespace.clone(), what.name.clone()),
                };
                let key = WatchKey::new(&resource(), selection);
                let begin = || tokio::spawn(std::future::pending::<()>()).abort_handle();
                state.need(&who, key.clone(), begin);
                naive.uses.insert((who, key));
            }
            2 => {
                state.stop_waiting(&who, |_| true);
                naive.stop_waiting(&who, |_| true);
            }
            3 => {
                state.stop_waiting(&who, |it| *it == what);
                naive.stop_waiting(&who, |it| *it == what);
            }
            4 => {
                state.release_unused(&who);
                naive.release_unused(&who);
            }
            _ => {
                state.release(&who, |key| key.named_object().is_none());
                naive.uses.retain(|(it, key)| *it != who || key.named_object().is_some());
            }
        }
        check(&state, &naive);
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_last_user_and_what_it_saw_is_forgotten() {
    let mut state = ObjectWatcherState::default();
    let key = WatchKey::labelled(&resource(), "label");
    for at in 0..2 {
        let begin = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        state.need(&node(at), key.clone(), begin);
    }
    let seen = SeenObjectVersion { version: 5, fingerprint: 6, content: 0 };
    state.sight("label", &id(1), seen);
    state.release(&node(0), |_| true);
    assert_eq!(state.sighted("label", &id(1)), Some(seen));
    assert_eq!(state.expected(&key, "label"), BTreeSet::from([&id(1)]));
    state.release(&node(1), |_| true);
    assert_eq!(state.sighted("label", &id(1)), None);
    assert!(state.watches.is_empty());
}

/// An object that an applier applied.
fn applied_by(at: usize) -> TrackedObject {
    TrackedObject {
        owner: Arc::new(node(at)),
        watch: None,
        manifest: Some(ManifestDigest::of(&format!("digest-{at}"))),
        applied: SeenObjectVersion::default(),
        writer: None,
        dirty: false,
    }
}

/// The applier that applied an object last, and whether the object has drifted.
fn applier(state: &ObjectWatcherState, at: usize) -> Option<(ObjectKey, bool)> {
    state.tracked.get(&id(at)).map(|it| (ObjectKey::clone(&it.owner), it.dirty))
}

#[test]
fn an_object_that_one_of_several_nodes_gives_up_is_that_of_the_node_before() {
    let mut state = ObjectWatcherState::default();
    for at in 0..3 {
        state.track(&id(1), applied_by(at));
    }
    assert_eq!(applier(&state, 1), Some((node(2), false)));
    assert_eq!(state.tracked_of(&node(0)).count(), 0);
    state.untrack(&node(2), &id(1));
    assert_eq!(applier(&state, 1), Some((node(1), true)), "it is compared again");
    assert_eq!(state.tracked_of(&node(1)).count(), 1);
    state.untrack_all(&node(1));
    assert_eq!(applier(&state, 1), Some((node(0), true)));
    state.untrack_all(&node(0));
    assert_eq!(applier(&state, 1), None);
    assert!(state.superseded.is_empty() && state.superseded_of.is_empty());
    assert!(state.owned.is_empty());
}

#[test]
fn a_node_that_no_longer_applies_an_object_does_not_get_it_back() {
    let mut state = ObjectWatcherState::default();
    state.track(&id(1), applied_by(0));
    state.track(&id(2), applied_by(0));
    state.track(&id(1), applied_by(1));
    state.track(&id(2), applied_by(1));
    state.untrack(&node(0), &id(1));
    assert_eq!(applier(&state, 1), Some((node(1), false)));
    state.untrack_all(&node(0));
    assert!(state.superseded.is_empty() && state.superseded_of.is_empty());
    state.untrack_all(&node(1));
    assert!(state.tracked.is_empty() && state.owned.is_empty());
}

#[test]
fn nodes_that_apply_an_object_in_turn_are_remembered_once() {
    let mut state = ObjectWatcherState::default();
    for at in 0..10 {
        state.track(&id(1), applied_by(at % 2));
    }
    assert_eq!(state.superseded.values().map(Vec::len).sum::<usize>(), 1);
    assert_eq!(state.superseded_of.keys().map(|node| &**node).collect::<Vec<_>>(), [&node(0)]);
}

#[test]
fn an_object_that_left_two_nodes_at_once_is_remembered_for_neither() {
    let mut state = ObjectWatcherState::default();
    for at in 0..2 {
        state.track(&id(1), applied_by(at));
        state.track(&id(2), applied_by(at));
    }
    // The second applier deletes the object, so for the first applier it has drifted.
    state.untrack(&node(1), &id(1));
    assert_eq!(applier(&state, 1), Some((node(0), true)));
    state.untrack_others(&node(0), |it| *it == id(2));
    assert_eq!(applier(&state, 1), None);
    assert!(state.tracked_of(&node(0)).all(|(_, it)| !it.dirty));
    assert_eq!(applier(&state, 2), Some((node(1), false)));
    state.untrack(&node(1), &id(2));
    assert_eq!(applier(&state, 2), Some((node(0), true)), "the first one still applies it");
}

#[test]
fn a_write_that_fails_does_not_hide_drift_from_another_node() {
    let seen = SeenObjectVersion { version: 5, fingerprint: 6, content: 0 };
    let mut state = ObjectWatcherState::default();
    state.track(&id(1), applied_by(0));
    let begin_write = |state: &mut ObjectWatcherState| {
        state.tracked.get_mut(&id(1)).unwrap().writer = Some(Arc::new(node(1)));
    };
    begin_write(&mut state);
    assert_eq!(state.fail(&node(1), &id(1)), None, "nothing has changed");
    begin_write(&mut state);
    state.sight("", &id(1), seen);
    assert_eq!(state.fail(&node(1), &id(1)), Some(node(0)));
    assert_eq!(applier(&state, 1), Some((node(0), true)));
    // The owner has a run planned for the drift.
    state.hushed.insert(id(1));
    begin_write(&mut state);
    assert_eq!(state.fail(&node(1), &id(1)), None);
}

#[test]
fn what_a_run_read_has_drifted_although_no_watch_has_seen_it() {
    let mut state = ObjectWatcherState::default();
    state.track(&id(1), applied_by(0));
    let applied = state.tracked[&id(1)].applied;
    let by_another = SeenObjectVersion {
        version: applied.version + 1,
        fingerprint: applied.fingerprint + 1,
        ..applied
    };
    assert!(state.has_drifted_to(&node(0), &id(1), by_another));
    assert!(
        !state.has_drifted_to(&node(1), &id(1), by_another),
        "it is not that of the other node"
    );
    // A loss may have been before the answer, so the object is compared, but nothing says that it changed.
    state.tracked.get_mut(&id(1)).unwrap().dirty = true;
    assert!(!state.has_drifted_to(&node(0), &id(1), applied));
}

#[test]
fn drift_that_a_node_cannot_correct_is_that_of_the_node_before() {
    let mut state = ObjectWatcherState::default();
    state.track(&id(1), applied_by(0));
    state.track(&id(1), applied_by(1));
    assert!(!state.hides_drift(&node(1), &id(1)), "it has not drifted");
    state.tracked.get_mut(&id(1)).unwrap().dirty = true;
    assert!(state.hides_drift(&node(1), &id(1)) && !state.hides_drift(&node(0), &id(1)));
    assert_eq!(state.fail(&node(1), &id(1)), Some(node(0)));
    assert_eq!(applier(&state, 1), Some((node(0), true)));
    assert!(!state.hides_drift(&node(0), &id(1)), "there is no other node");
    assert_eq!(state.fail(&node(0), &id(1)), None);
    assert!(state.tracked.is_empty());
}

#[test]
fn the_labels_of_an_owner_show_that_a_write_of_another_one_is_not_in_a_sighting() {
    let marks = |name, namespace| OwnershipMarks { name, namespace, manager: "manager" };
    let kind = |node: &ObjectKey| [node.group.clone(), node.kind.clone()];
    let mut release = node(2);
    release.kind = "HelmRelease".to_owned();
    let marks = KindOwnershipMarks::new(BTreeMap::from([
        (kind(&node(0)), marks("name", "namespace")),
        (kind(&release), marks("release-name", "release-namespace")),
    ]));
    let metadata = serde_json::json!({"labels": {"name": "app-0", "namespace": "shop"}});
    assert!(marks.is_before_write(&node(0), &node(1), &metadata));
    assert!(!marks.is_before_write(&node(1), &node(0), &metadata), "they are those of the writer");
    assert!(!marks.is_before_write(&node(0), &node(0), &metadata), "it is its own write");
    assert!(!marks.is_before_write(&node(0), &release, &metadata), "other labels are added");
}

#[tokio::test]
async fn what_was_read_of_a_reference_counts_while_a_live_watch_saw_no_other_version() {
    let mut state = ObjectWatcherState::default();
    let user = node(1);
    let since = state.references.now();
    let read = RunReferenceRead { resource: resource(), id: id(1), version: Some(7), since };
    state.references.add(&user, &read);
    assert!(!state.confirms_reference(&id(1), 7), "there is no watch");
    let key = state.references.key_of(&id(1)).unwrap();
    let begin = || tokio::spawn(std::future::pending::<()>()).abort_handle();
    state.need(&user, key.clone(), begin);
    state.references.note(&id(1), Some(7));
    assert!(!state.confirms_reference(&id(1), 7), "the watch has not listed everything");
    state.watches.get_mut(&key).unwrap().live = true;
    assert!(state.confirms_reference(&id(1), 7));
    state.references.note(&id(1), Some(8));
    assert!(!state.confirms_reference(&id(1), 7) && state.confirms_reference(&id(1), 8));
    state.references.note(&id(1), None);
    assert!(!state.confirms_reference(&id(1), 8), "it is gone");
    state.references.note(&id(1), Some(9));
    state.watches.get_mut(&key).unwrap().live = false;
    assert!(!state.confirms_reference(&id(1), 9), "the watch is interrupted");
}

#[tokio::test]
async fn tables_share_the_ids_the_nodes_and_the_watches_that_they_hold() {
    let mut state = ObjectWatcherState::default();
    state.sight("", &id(1), SeenObjectVersion::default());
    let owner = state.shared_node(&node(0));
    state.track(&id(1), TrackedObject { owner, ..applied_by(0) });
    let key = WatchKey::labelled(&resource(), "");
    let begin = || tokio::spawn(std::future::pending::<()>()).abort_handle();
    state.need(&node(0), key.clone(), begin);
    let (tracked, _) = state.tracked.get_key_value(&id(1)).unwrap();
    // The id is shared by the sightings, the tracked objects and the owned objects.
    assert_eq!(Arc::strong_count(tracked), 3);
    let (owner, _) = state.owned.get_key_value(&node(0)).unwrap();
    // The applier is shared by the owned objects, the tracked objects, its watches, and the users of the watch.
    assert_eq!(Arc::strong_count(owner), 4);
    let (watch, _) = state.watches.get_key_value(&key).unwrap();
    assert_eq!(Arc::strong_count(watch), 2);
}
