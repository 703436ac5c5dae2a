//! What is packed and kept, what is not written again, and what counts as drift.

use serde_json::{Value, json};

use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;

/// A generator with a status, of generation 1.
fn generator(status: &Value) -> ArtifactGenerator {
    serde_json::from_value(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
        "metadata": {"name": "gen", "namespace": "apps", "generation": 1},
        "spec": {}, "status": status,
    }))
    .unwrap()
}

fn request(name: &str, from: &str) -> ArtifactRequest {
    let copy = json!([{"from": from, "to": "@artifact/"}]);
    let artifact = json!({"name": name, "originRevision": "@src", "copy": copy});
    let artifact = serde_json::from_value(artifact).unwrap();
    ArtifactRequest { artifact, labels: BTreeMap::new() }
}

/// Makes artifacts of a source that is called `src`.
fn maker(
    kept: &TemporaryArtifactStore,
    object: &ArtifactGenerator,
    files: &[(&str, &str)],
) -> ArtifactMaker {
    let tree = MemoryTree::from_files(files.iter().copied()).unwrap();
    let source = ObservedSource { revision: "main@sha1:1".to_owned(), ..ObservedSource::default() };
    ArtifactMaker::new(
        kept.store.clone(),
        object,
        SourceTreesByAlias::from([("src".to_owned(), Arc::new(tree))]),
        BTreeMap::from([("src".to_owned(), source)]),
    )
}

/// The status of a generator that made this.
fn status_of(entry: &InventoryEntry) -> Value {
    json!({
        "inventory": [entry], "observedSourcesDigest": "sources",
        "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    })
}

#[test]
fn an_artifact_is_packed_without_what_no_source_has_and_says_where_it_comes_from() {
    let kept = TemporaryArtifactStore::new();
    let files = [("deploy/web.yaml", "kind: Web\n"), ("deploy/a.jpg", "x"), ("b.yaml", "x")];
    let mut maker = maker(&kept, &generator(&json!({})), &files);
    let made = maker.make(&request("one", "@src/deploy/**"), None).unwrap();
    let Artifact { path, digest, .. } = &made.artifact;
    assert_eq!(*path, format!("externalartifact/apps/one/{}", made.entry.filename));
    assert!(made.is_stored && kept.store.verify(path, digest).unwrap());
    assert_eq!(made.artifact.revision, format!("latest@{digest}"));
    assert_eq!(made.artifact.metadata[ORIGIN_REVISION], "main@sha1:1");
    assert_eq!(made.entry.digest, *digest);
    let tree = kept.store.load(path, digest, &ExtractOptions::default()).unwrap();
    let paths: Vec<&str> = tree.walk().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["web.yaml"]);
}

#[test]
fn a_file_that_would_have_the_same_bytes_is_not_written_again() {
    let kept = TemporaryArtifactStore::new();
    let files = [("a.yaml", "a: 1\n")];
    let request = request("one", "@src/**");
    let first = maker(&kept, &generator(&json!({})), &files).make(&request, None).unwrap();
    let object = generator(&status_of(&first.entry));
    let again = maker(&kept, &object, &files).make(&request, None).unwrap();
    assert!(!again.is_stored);
    assert_eq!((&again.entry, again.artifact.size), (&first.entry, first.artifact.size));

    let other = maker(&kept, &object, &[("a.yaml", "a: 2\n")]).make(&request, None).unwrap();
    assert!(other.is_stored && other.entry.filename != first.entry.filename);
    let store = &kept.store;
    let is_there = |made: &StoredGeneratedArtifact| store.open_file(&made.artifact.path).is_ok();
    assert!(is_there(&first) && is_there(&other), "the former one is still named");
    // A run that failed offered the other one, which is in no inventory.
    let third = maker(&kept, &object, &[("a.yaml", "a: 3\n")])
        .make(&request, Some(&other.artifact))
        .unwrap();
    assert!(is_there(&other) && is_there(&third), "the one that is offered is still named");

    store.remove_file(&first.artifact.path).unwrap();
    let restored = maker(&kept, &object, &files).make(&request, None).unwrap();
    assert!(restored.is_stored && restored.entry == first.entry);
}

#[test]
fn the_file_that_is_offered_is_not_overwritten_with_other_bytes() {
    let kept = TemporaryArtifactStore::new();
    let request = request("one", "@src/**");
    let files = [("a.sh", "true\n")];
    let first = maker(&kept, &generator(&json!({})), &files).make(&request, None).unwrap();
    // The name of the file does not depend on execute bits.
    let executable = |object: &ArtifactGenerator| {
        let mut maker = maker(&kept, object, &[]);
        let mut tree = MemoryTree::builder(TreeLimits::default());
        tree.file(&RelPath::parse("a.sh").unwrap(), &b"true\n"[..], true).unwrap();
        maker.trees.insert("src".to_owned(), Arc::new(tree.build()));
        maker
    };
    let object = generator(&status_of(&first.entry));
    let second = executable(&object).make(&request, Some(&first.artifact)).unwrap();
    assert!(second.is_stored && second.artifact.digest != first.artifact.digest);
    for made in [&first, &second] {
        let Artifact { path, digest, .. } = &made.artifact;
        assert!(kept.store.verify(path, digest).unwrap(), "{path} has another digest");
    }
    let object = generator(&status_of(&second.entry));
    let third = executable(&object).make(&request, Some(&second.artifact)).unwrap();
    assert!(!third.is_stored, "the file has the same bytes");
    assert_eq!(third.entry, second.entry);
}

#[test]
fn a_build_that_fails_names_the_artifact_and_a_pattern_of_paths_stalls() {
    let kept = TemporaryArtifactStore::new();
    let mut maker = maker(&kept, &generator(&json!({})), &[("a.yaml", "a: 1\n")]);
    let failed = maker.make(&request("two", "@zz/**"), None).err().unwrap();
    let text = "two build failed: failed to apply copy operations: failed to apply copy operation from \
                '@zz/**' to '@artifact/': source alias 'zz' not found";
    assert_eq!(
        failed,
        RunOutcome::Failed(
            condition_reason::BUILD_FAILED,
            text.to_owned(),
            NextRunTrigger::default()
        )
    );
    let climbs = maker.make(&request("two", "@src/../b"), None).err().unwrap();
    assert!(climbs.text().ends_with("path escapes from parent"), "{climbs:?}");
    let spec = GeneratorSpec { path_pattern: "@src/{".to_owned(), ..GeneratorSpec::default() };
    let stalled = maker.requests(&spec).err().unwrap();
    assert!(
        matches!(stalled, RunOutcome::Stalled(condition_reason::BUILD_FAILED, _)),
        "{stalled:?}"
    );
    assert!(stalled.text().starts_with("failed to expand path pattern: "), "{stalled:?}");
}

#[test]
fn what_is_lost_damaged_or_interrupted_is_drift() {
    let kept = TemporaryArtifactStore::new();
    let request = request("one", "@src/**");
    let files = [("a.yaml", "a: 1\n")];
    let made = maker(&kept, &generator(&json!({})), &files).make(&request, None).unwrap();
    let spec =
        GeneratorSpec { artifacts: vec![request.artifact.clone()], ..GeneratorSpec::default() };
    let external = BTreeSet::from([ExternalArtifactState::from(&made.entry)]);
    let status = status_of(&made.entry);
    let drift =
        |status: &Value| drift(&kept.store, &generator(status), &spec, "sources", &external);
    assert_eq!(drift(&status), None);

    let mut interrupted = status.clone();
    interrupted["conditions"][0]["status"] = json!("Unknown");
    assert_eq!(drift(&interrupted), Some(ArtifactRebuildReason::NotReady));

    let file = kept.folder.join(&made.artifact.path);
    std::fs::write(&file, "damaged").unwrap();
    assert_eq!(drift(&status), Some(ArtifactRebuildReason::ArtifactCorrupted));
    assert!(!file.exists(), "it is served no more");
    assert_eq!(drift(&status), Some(ArtifactRebuildReason::ArtifactMissing));
}
