//! Tests of which copies are due, and of what is said about those that fail.

use serde_json::{Value, json};

use super::*;

pub(super) fn repository(name: &str, change: impl FnOnce(&mut Value)) -> Arc<OCIRepository> {
    let path = format!("ocirepository/shop/{name}/1.tar.gz");
    let mut object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {"interval": "1h", "url": "oci://registry.example.com/app"},
        "status": {"observedGeneration": 1, "artifact": {
            "path": path, "url": format!("http://leader:9090/{path}"), "revision": "main@sha256:1",
            "digest": "sha256:0", "lastUpdateTime": "2026-01-01T00:00:00Z"}}});
    change(&mut object);
    Arc::new(serde_json::from_value(object).unwrap())
}

/// The names of the sources that are due.
fn due(copies: &mut ArtifactCopies, objects: &[Arc<OCIRepository>], now: Instant) -> Vec<String> {
    copies.due(objects, now).iter().map(|due| due.object.name_any()).collect()
}

/// Ends the copy of the artifact in the status of an object.
fn end(copies: &mut ArtifactCopies, object: &OCIRepository, is_copied: bool, now: Instant) {
    let named = NamedArtifact::of(artifact_to_copy(object).unwrap());
    let result = if is_copied { Ok(named) } else { Err("refused".to_owned()) };
    copies.note(EndedCopy { node: node_of(object), result: Some(result) }, now);
}

#[test]
fn an_artifact_is_copied_once_and_another_path_or_digest_is_another_artifact() {
    let now = Instant::now();
    let mut copies = ArtifactCopies::default();
    let app = repository("app", |_| {});
    assert_eq!(due(&mut copies, std::slice::from_ref(&app), now), ["app"]);
    assert!(due(&mut copies, std::slice::from_ref(&app), now).is_empty(), "it is running");
    end(&mut copies, &app, true, now);
    assert!(due(&mut copies, std::slice::from_ref(&app), now).is_empty(), "it is copied");
    for (field, value) in [("path", "ocirepository/shop/app/2.tar.gz"), ("digest", "sha256:1")] {
        let moved = repository("app", |it| it["status"]["artifact"][field] = json!(value));
        assert_eq!(due(&mut copies, std::slice::from_ref(&moved), now), ["app"], "{field}");
        copies.note(EndedCopy { node: node_of(&*moved), result: None }, now);
    }
}

#[test]
fn a_copy_that_fails_is_tried_later_and_later_and_at_once_with_another_leader() {
    let begun = Instant::now();
    let mut copies = ArtifactCopies::default();
    copies.follow_leader(Some("windlass-0:9090"));
    let app = [repository("app", |_| {})];
    let moved = [repository("app", |it| it["status"]["artifact"]["digest"] = json!("sha256:1"))];
    assert_eq!(due(&mut copies, &app, begun), ["app"]);
    end(&mut copies, &app[0], false, begun);
    assert!(due(&mut copies, &moved, begun).is_empty(), "it has just failed");
    let second = begun + MIN_RETRY_DELAY;
    assert_eq!(due(&mut copies, &moved, second), ["app"]);
    end(&mut copies, &app[0], false, second);
    assert!(due(&mut copies, &app, second + MIN_RETRY_DELAY).is_empty());
    assert_eq!(due(&mut copies, &app, second + 2 * MIN_RETRY_DELAY), ["app"]);
    end(&mut copies, &app[0], false, second);
    copies.follow_leader(Some("windlass-0:9090"));
    assert!(due(&mut copies, &app, second).is_empty());
    copies.follow_leader(Some("windlass-1:9090"));
    assert_eq!(due(&mut copies, &app, second), ["app"]);
}

#[test]
fn artifacts_of_signed_sources_and_of_deleted_ones_are_not_copied() {
    let objects = [
        repository("app", |_| {}),
        repository("empty", |it| it["status"] = json!({})),
        repository("signed", |it| it["spec"]["verify"] = json!({"provider": "cosign"})),
        repository("deleted", |it| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    ];
    assert_eq!(due(&mut ArtifactCopies::default(), &objects, Instant::now()), ["app"]);
}

#[test]
fn sources_that_are_not_copied_are_reported_now_and_then() {
    let begun = Instant::now();
    let mut copies = ArtifactCopies::default();
    assert_eq!(copies.report(begun), None);
    for name in ["app", "web"] {
        end(&mut copies, &repository(name, |_| {}), false, begun);
    }
    let both = UncopiedSources { count: 2, error: "refused".to_owned() };
    assert_eq!(copies.report(begun), Some(both));
    assert_eq!(copies.report(begun), None);
    end(&mut copies, &repository("app", |_| {}), true, begun);
    let one = UncopiedSources { count: 1, error: "refused".to_owned() };
    assert_eq!(copies.report(begun + REPORT_INTERVAL), Some(one));
}

#[test]
fn a_source_that_is_gone_is_forgotten_once_and_not_while_its_copy_is_in_flight() {
    let now = Instant::now();
    let mut copies = ArtifactCopies::default();
    let app = repository("app", |_| {});
    end(&mut copies, &app, true, now);
    let moved = repository("app", |it| it["status"]["artifact"]["digest"] = json!("sha256:1"));
    assert_eq!(due(&mut copies, std::slice::from_ref(&moved), now), ["app"]);
    assert!(copies.forget_gone::<OCIRepository>(&[]).is_empty());
    end(&mut copies, &moved, true, now);
    assert_eq!(copies.forget_gone::<OCIRepository>(&[]), [node_of(&*app)]);
    assert!(copies.forget_gone::<OCIRepository>(&[]).is_empty());
}

#[test]
fn a_removal_that_failed_pauses_all_and_comes_again_after_the_others() {
    let node = |name: &str| node_named::<OCIRepository>("apps", name);
    let mut gone = GoneSourceFolders::new(BTreeSet::from([node("a"), node("b")]));
    let now = Instant::now();
    assert_eq!(gone.next(now), Some(node("a")));
    gone.note_failure(node("a"), now);
    assert_eq!(gone.next(now), None, "the API server may not respond");
    let later = now + REMOVAL_PAUSE;
    assert_eq!(gone.next(later), Some(node("b")));
    assert_eq!(gone.next(later), Some(node("a")));
    assert_eq!(gone.next(later), None);
}
