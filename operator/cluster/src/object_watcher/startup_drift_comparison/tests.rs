//! Tests of the first comparison: what is concluded from kept comparisons and from lists.

use apply::ObjectInventory;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::{KindOwnershipMarks, OwnershipMarks};
use super::*;
use crate::fake_cluster;
use crate::metrics::MetricsRegistry;
use crate::object_watcher::stored_drift_comparisons::OwnerVersion;
use crate::work_queue::WorkQueue;

const LABEL: &str = "example.com/name";

fn ownership() -> BTreeMap<[String; 2], OwnershipMarks> {
    let marks =
        OwnershipMarks { name: LABEL, namespace: "example.com/namespace", manager: "windlass" };
    BTreeMap::from([(["g".to_owned(), "Kustomization".to_owned()], marks)])
}

fn marks() -> Arc<KindOwnershipMarks> {
    Arc::new(KindOwnershipMarks::new(ownership()))
}

/// The owner `app` with these objects in its inventory.
fn owner_of(names: &[&str]) -> AppliedOwner {
    let mut inventory = ObjectInventory::default();
    for name in names {
        inventory.add(id(name), "v1");
    }
    let version = OwnerVersion { uid: "u".to_owned(), generation: 1 };
    AppliedOwner { node: node("app"), version, inventory }
}

fn node(name: &str) -> ObjectKey {
    ObjectKey::new("g", "Kustomization", "shop", name)
}

fn id(name: &str) -> ObjectId {
    ObjectId::new("shop", name, "", "ConfigMap")
}

fn key() -> WatchKey {
    let [group, version, kind] = ["", "v1", "ConfigMap"].map(str::to_owned);
    WatchKey { group, version, kind, selection: WatchSelection::Labelled(LABEL) }
}

/// A sighting of an object without a generation.
fn sighting(version: u64, fingerprint: u64) -> SeenObjectVersion {
    SeenObjectVersion { version, fingerprint, content: 0 }
}

/// A state in which the watch is live, and one owner has an object that was compared in version 5.
fn state_with(name: &str) -> ObjectWatcherState {
    let mut state = ObjectWatcherState::of(marks());
    let task = tokio::spawn(std::future::pending::<()>());
    state.need(&node("app"), key(), || task.abort_handle());
    let watch = state.shared_watch(key());
    if let Some(running) = state.watches.get_mut(&key()) {
        running.live = true;
    }
    let tracked = TrackedObject {
        owner: state.shared_node(&node("app")),
        watch: Some(watch),
        manifest: Some(ManifestDigest::of("manifest")),
        applied: sighting(5, 70),
        writer: None,
        dirty: false,
    };
    state.track(&id(name), tracked);
    state
}

fn restored_with(name: &str) -> ObjectWatcherState {
    let mut state = state_with(name);
    let restored = UnlistedStoredObject { id: id(name), applied: sighting(5, 70) };
    let watch = state.shared_watch(key());
    state.restored.insert(watch, vec![restored]);
    state
}

#[tokio::test]
async fn only_an_object_in_the_version_that_was_compared_needs_no_comparison() {
    let app = BTreeSet::from([node("app")]);
    let nothing = BTreeSet::new();
    let cases = [
        ("unchanged", Some(sighting(5, 70)), &nothing, true, false),
        ("windlass wrote it", Some(sighting(6, 70)), &nothing, false, false),
        ("another client changed it", Some(sighting(6, 71)), &app, true, true),
        ("the cluster was restored from a backup", Some(sighting(4, 70)), &nothing, false, false),
        ("it was deleted", None, &app, true, true),
    ];
    for (what, seen, drifted, is_tracked, is_dirty) in cases {
        let mut state = restored_with("settings");
        if let Some(seen) = seen {
            state.sight(LABEL, &id("settings"), seen);
        }
        assert_eq!(&state.settle_restored(&key()), drifted, "{what}");
        let tracked = state.tracked.get(&id("settings"));
        assert_eq!(tracked.is_some(), is_tracked, "{what}");
        assert_eq!(tracked.is_some_and(|it| it.dirty), is_dirty, "{what}");
        assert!(state.settle_restored(&key()).is_empty(), "it is judged once");
    }
}

#[tokio::test]
async fn an_object_whose_status_changed_is_not_compared_and_its_health_is_not_known() {
    let at = |version: u64, content: u64| SeenObjectVersion { content, ..sighting(version, 70) };
    let app = node("app");
    for (seen, agreement) in [
        (at(5, 9), StoredComparisonMatch::Same),
        (at(6, 9), StoredComparisonMatch::SameButStatus),
        (at(6, 8), StoredComparisonMatch::Changed),
    ] {
        let mut state = state_with("web");
        if let Some(tracked) = state.tracked.get_mut(&id("web")) {
            tracked.applied = at(5, 9);
        }
        let kinds = state.compared(&app).unwrap();
        let version = OwnerVersion { uid: "u".to_owned(), generation: 1 };
        let note = String::new();
        let kept =
            StoredDriftComparison { version, is_free: true, reads_health: false, note, kinds };
        let watch = state.shared_watch(key());
        let restored = UnlistedStoredObject { id: id("web"), applied: at(5, 9) };
        state.restored.insert(watch, vec![restored]);
        state.sight(LABEL, &id("web"), seen);
        assert!(state.settle_restored(&key()).is_empty());
        assert_eq!(state.compare_kept(&app, &kept), agreement, "{seen:?}");
    }
}

#[tokio::test]
async fn what_a_run_compared_meanwhile_is_not_judged_by_the_file() {
    let mut state = restored_with("settings");
    if let Some(tracked) = state.tracked.get_mut(&id("settings")) {
        tracked.applied = sighting(9, 90);
    }
    state.sight(LABEL, &id("settings"), sighting(8, 80));
    assert!(state.settle_restored(&key()).is_empty());
    assert!(state.tracked.get(&id("settings")).is_some_and(|it| !it.dirty));
}

#[tokio::test]
async fn what_is_kept_of_an_owner_is_found_again() {
    let mut state = state_with("settings");
    let kinds = state.compared(&node("app")).unwrap();
    let version = OwnerVersion { uid: "u".to_owned(), generation: 1 };
    let note = String::new();
    let kept = StoredDriftComparison { version, is_free: true, reads_health: true, note, kinds };
    assert_eq!(kept.kinds[0].objects[0].name, "settings");
    let compared = |state: &ObjectWatcherState| state.compare_kept(&node("app"), &kept);
    assert_eq!(compared(&state), StoredComparisonMatch::Changed, "no watch has seen the object");
    state.sight(LABEL, &id("settings"), sighting(5, 70));
    assert_eq!(compared(&state), StoredComparisonMatch::Same);
    if let Some(tracked) = state.tracked.get_mut(&id("settings")) {
        tracked.dirty = true;
    }
    assert_eq!(compared(&state), StoredComparisonMatch::Changed, "it has drifted");
    assert_eq!(state.compared(&node("app")), None, "drift is not kept");
    assert_eq!(state.compared(&node("other")), Some(Vec::new()), "an owner without objects");
}

#[tokio::test]
async fn nothing_is_kept_of_an_owner_whose_object_another_applier_has_applied() {
    let mut state = state_with("settings");
    assert!(state.compared(&node("app")).is_some());
    let other = TrackedObject {
        owner: state.shared_node(&node("other")),
        watch: Some(state.shared_watch(key())),
        manifest: Some(ManifestDigest::of("another manifest")),
        applied: sighting(6, 71),
        writer: None,
        dirty: false,
    };
    state.track(&id("settings"), other);
    assert_eq!(state.compared(&node("app")), None);
}

#[test]
fn a_small_installation_waits_shortly_for_lists() {
    assert_eq!(list_timeout(0), Duration::from_secs(6));
    assert_eq!(list_timeout(1_000), Duration::from_secs(8));
    assert_eq!(list_timeout(1_000_000), Duration::from_secs(15));
}

#[tokio::test]
async fn an_object_that_is_missing_or_was_changed_by_others_makes_its_owner_urgent() {
    let mut state = state_with("settings");
    state.sight(LABEL, &id("settings"), sighting(5, 70));
    state.note_last_change(LABEL, &id("settings"), || true);
    assert!(!state.may_have_drifted(LABEL, &owner_of(&["gone"])), "nothing is noted by now");
    state.changed_by_others.insert(LABEL, Some(BTreeSet::new()));
    assert!(!state.may_have_drifted(LABEL, &owner_of(&["settings"])));
    assert!(state.may_have_drifted(LABEL, &owner_of(&["settings", "gone"])));
    state.note_last_change(LABEL, &id("settings"), || true);
    assert!(state.may_have_drifted(LABEL, &owner_of(&["settings"])));
    state.note_last_change(LABEL, &id("settings"), || false);
    assert!(!state.may_have_drifted(LABEL, &owner_of(&["settings"])));
    if let Some(watch) = state.watches.get_mut(&key()) {
        watch.live = false;
    }
    assert!(!state.may_have_drifted(LABEL, &owner_of(&["gone"])), "the watch does not know");
}

#[test]
fn the_newest_change_says_who_changed_an_object_last() {
    let metadata = |entries: &[(&str, &str, &str)]| {
        let entry = |(manager, subresource, time): &(&str, &str, &str)| json!({"manager": manager, "subresource": subresource, "time": format!("2026-01-01T00:00:0{time}Z")});
        json!({"managedFields": entries.iter().map(entry).collect::<Vec<Value>>()})
    };
    let ours = ("windlass", "", "2");
    let cases = [
        (vec![ours], false),
        (vec![ours, ("kubectl", "", "1")], false),
        (vec![ours, ("kubectl", "", "3")], true),
        (vec![ours, ("kube-controller-manager", "status", "3")], false),
        (vec![("kubectl", "", "1")], true),
        (vec![], false),
    ];
    for (entries, expected) in cases {
        assert_eq!(marks().is_changed_by_others(&metadata(&entries)), expected, "{entries:?}");
    }
}

/// A watcher whose watch runs and has not listed anything yet, with the queue of its wakes.
async fn watching() -> (Arc<ObjectWatcher>, UnboundedReceiver<ObjectKey>) {
    let (cluster, _writes) = fake_cluster::with_objects(Vec::new()).await;
    let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
    let woken = work_queue.open(["g", "Kustomization"]);
    let watcher = ObjectWatcher::new(cluster, work_queue, ownership());
    let task = tokio::spawn(std::future::pending::<()>());
    {
        let mut state = watcher.state();
        state.need(&node("app"), key(), || task.abort_handle());
        state.changed_by_others.insert(LABEL, Some(BTreeSet::new()));
    }
    (watcher, woken)
}

/// The metadata of an object of `app` in a version, with the manager that changed it last.
fn changed_by(manager: &str, version: &str) -> Value {
    json!({"name": "settings", "namespace": "shop", "resourceVersion": version,
        "labels": {LABEL: "app", "example.com/namespace": "shop"}, "managedFields": [
            {"manager": "windlass", "time": "2026-01-01T00:00:01Z"},
            {"manager": manager, "time": "2026-01-01T00:00:02Z"}]})
}

fn owners(all: impl IntoIterator<Item = AppliedOwner>) -> Arc<[AppliedOwner]> {
    all.into_iter().collect()
}

#[tokio::test]
async fn what_others_change_before_the_first_comparison_of_an_owner_wakes_it_once() {
    let (watcher, mut woken) = watching().await;
    let settings = id("settings");
    let owners = owners([owner_of(&["settings"])]);
    let see = |manager: &str, version: &str| {
        watcher.saw(&key(), &settings, &changed_by(manager, version));
    };
    see("windlass", "1");
    watcher.set_live(&key(), true);
    see("kubectl", "2");
    assert!(woken.try_recv().is_err(), "a standby starts no run");
    assert_eq!(watcher.urgent("Kustomization", &owners), BTreeSet::from([node("app")]));
    see("windlass", "3");
    assert!(woken.try_recv().is_err(), "windlass changed it");
    watcher.set_live(&key(), false);
    see("kubectl", "4");
    assert!(woken.try_recv().is_err(), "it is only listed");
    watcher.set_live(&key(), true);
    see("kubectl", "4");
    assert!(woken.try_recv().is_err(), "the list has shown this change");
    see("kubectl", "5");
    assert_eq!(woken.try_recv().ok(), Some(node("app")));
    see("kubectl", "6");
    assert!(woken.try_recv().is_err(), "the run compares all objects");
    watcher.state().await_comparisons(&owners);
    watcher.lost(&key(), &settings, Some(&changed_by("windlass", "7")));
    assert_eq!(woken.try_recv().ok(), Some(node("app")), "it was deleted");
}

#[tokio::test]
async fn neither_a_status_after_an_edit_nor_an_object_of_no_inventory_wakes_an_owner() {
    let (watcher, mut woken) = watching().await;
    watcher.set_live(&key(), true);
    watcher.state().await_comparisons(&owners([owner_of(&["other", "settings"])]));
    let forged = id("forged");
    watcher.saw(&key(), &forged, &changed_by("kubectl", "1"));
    watcher.lost(&key(), &forged, Some(&changed_by("kubectl", "2")));
    assert!(woken.try_recv().is_err(), "its labels name the owner, which has not applied it");
    let edited = |generation: u64, version: &str| {
        let mut metadata = changed_by("kubectl", version);
        metadata["generation"] = json!(generation);
        metadata
    };
    watcher.set_live(&key(), false);
    watcher.saw(&key(), &id("settings"), &edited(2, "3"));
    watcher.set_live(&key(), true);
    watcher.saw(&key(), &id("settings"), &edited(2, "4"));
    assert!(woken.try_recv().is_err(), "only its status has changed since the edit");
    watcher.saw(&key(), &id("settings"), &edited(3, "5"));
    assert_eq!(woken.try_recv().ok(), Some(node("app")));
}

#[tokio::test]
async fn after_many_urgent_owners_the_others_wait_for_their_turns() {
    let many = |count: usize| {
        let owner = |at: usize| AppliedOwner {
            node: node(&format!("app{at}")),
            ..owner_of(&[format!("settings{at}").as_str()])
        };
        owners((0..count).map(owner))
    };
    let mut state = ObjectWatcherState::of(marks());
    state.await_comparisons(&many(MAX_URGENT_OWNERS + 1));
    for at in 0..MAX_URGENT_OWNERS {
        let owner = node(&format!("app{at}"));
        assert!(state.uncompared.take(&owner, &id(&format!("settings{at}"))), "{at}");
    }
    assert!(state.uncompared.is_empty());

    let (watcher, _woken) = watching().await;
    watcher.set_live(&key(), true);
    assert!(watcher.urgent("Kustomization", &many(MAX_URGENT_OWNERS + 1)).is_empty());
    assert!(watcher.state().uncompared.is_empty(), "all of their objects are missing");
}

#[tokio::test]
async fn an_owner_that_was_compared_or_is_gone_is_woken_by_its_tracked_objects_only() {
    let state_before = || {
        let mut state = state_with("settings");
        state.await_comparisons(&owners([owner_of(&["settings"])]));
        assert!(state.uncompared.is_empty(), "all of its objects are tracked");
        state.await_comparisons(&owners([owner_of(&["settings", "other"])]));
        assert!(!state.uncompared.is_empty());
        state
    };
    let mut compared = state_before();
    let tracked = TrackedObject {
        owner: compared.shared_node(&node("app")),
        watch: Some(compared.shared_watch(key())),
        manifest: Some(ManifestDigest::of("manifest")),
        applied: sighting(5, 70),
        writer: None,
        dirty: false,
    };
    compared.track(&id("other"), tracked);
    assert!(compared.uncompared.is_empty());
    let mut gone = state_before();
    gone.untrack_all(&node("app"));
    assert!(gone.uncompared.is_empty());
}
