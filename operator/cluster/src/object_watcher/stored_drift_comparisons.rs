//! Comparisons of applied objects that outlive the process, as files of the storage folder.
//!
//! There is one file for each owner. It has the digest of each applied manifest, and the version and hashes of the metadata in
//! which the live object was compared with it. A file counts only for the same uid and generation of its owner, and all files
//! count only for a process with the same version and flags. A file that is damaged counts as missing, so that its objects are
//! compared.
//!
//! Here: the folder and its files. Elsewhere: which objects are written, and what is concluded after a start
//! ([`super::startup_drift_comparison`]).

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use apply::ObjectInventory;
use kube::ResourceExt as _;
use objects::{Gvk, ObjectId};
use parking_lot::Mutex;
use reconcile::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::windlass_kind::WindlassKind;

/// The file with the key of the process that wrote the others.
const KEY_FILE: &str = "key";

/// The beginning of the names of files that are being written.
const UNFINISHED: &str = "unfinished-";

/// The most bytes of a file. An owner with more objects is compared after each start.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The most bytes of all files of a kind that are read after a start. The largest files are left out first, so that an owner of
/// many objects takes no memory from the others. What is left out is compared.
const MAX_READ_BYTES: u64 = 96 << 20;

/// The bytes before the content of a file: its digest in hex, and the end of the line.
const DIGEST_LINE_BYTES: u64 = 65;

/// The version of an owner: which object it is, and which spec it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerVersion {
    pub(super) uid: String,
    pub(super) generation: i64,
}

impl OwnerVersion {
    /// The version of an object.
    pub fn of<K: WindlassKind>(object: &K) -> Self {
        let generation = object.meta().generation.unwrap_or_default();
        Self { uid: object.uid().unwrap_or_default(), generation }
    }
}

/// An owner of applied objects in the cluster of the watcher, by its metadata and status.
#[derive(Debug, Clone)]
pub struct AppliedOwner {
    /// The owner in the graph of objects.
    pub(super) node: ObjectKey,
    pub(super) version: OwnerVersion,
    /// The objects that it applied, if it corrects the drift of all of them. Otherwise empty.
    pub(super) inventory: ObjectInventory,
}

impl AppliedOwner {
    /// An owner with the entries of its inventory: id and API version. Entries that cannot be read are left out.
    pub fn new<'e, K: WindlassKind>(
        owner: &K,
        entries: impl Iterator<Item = [&'e str; 2]>,
    ) -> Self {
        let namespace = owner.namespace().unwrap_or_default();
        let node = ObjectKey::new(&K::group(&()), &K::kind(&()), &namespace, &owner.name_any());
        let mut inventory = ObjectInventory::default();
        for [id, version] in entries {
            if let Ok(id) = id.parse() {
                inventory.add(id, version);
            }
        }
        Self { node, version: OwnerVersion::of(owner), inventory }
    }

    /// The kinds of its objects.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Gvk> {
        self.inventory.ids().filter_map(|id| {
            let ObjectId { group, kind, .. } = id.clone();
            Some(Gvk { group, version: self.inventory.version(id)?.to_owned(), kind })
        })
    }
}

/// The facts about the last run of an owner that are kept in addition to its objects.
#[derive(Debug, Clone)]
pub struct StoredRunFacts {
    /// The version of the owner that the run was about.
    pub version: OwnerVersion,
    /// Whether the next run sends no request if no object has changed. Such runs need no pace.
    pub is_free: bool,
    /// Whether a run reads the health of objects, so that changes of their statuses count.
    pub reads_health: bool,
    /// A text of the kind, which [`super::ObjectWatcher::take_note`] returns after a restart.
    pub note: String,
}

/// The comparison of the objects of an owner, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredDriftComparison {
    pub(super) version: OwnerVersion,
    pub(super) is_free: bool,
    pub(super) reads_health: bool,
    pub(super) note: String,
    pub(super) kinds: Vec<StoredComparisonKind>,
}

/// The objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredComparisonKind {
    pub(super) kind: Gvk,
    pub(super) objects: Vec<StoredComparedObject>,
}

/// An object as it was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredComparedObject {
    #[serde(rename = "ns")]
    pub(super) namespace: String,
    #[serde(rename = "n")]
    pub(super) name: String,
    /// The digest of the manifest, in hex.
    #[serde(rename = "m")]
    pub(super) manifest: String,
    /// The resourceVersion of the live object, as a number.
    #[serde(rename = "v")]
    pub(super) version: u64,
    #[serde(rename = "f")]
    pub(super) fingerprint: u64,
    #[serde(rename = "c")]
    pub(super) content: u64,
}

impl StoredDriftComparison {
    /// The number of its objects.
    pub(super) fn count(&self) -> usize {
        self.kinds.iter().map(|it| it.objects.len()).sum()
    }
}

/// The folder with the comparisons of all owners of a process.
pub(super) struct DriftComparisonFolder {
    folder: PathBuf,
    /// The beginning of the digest of each file's content, by that of its name. Equal content is not written again.
    written: Mutex<BTreeMap<u64, u64>>,
    /// The number of files that were begun, from which each gets a temporary name of its own.
    begun: AtomicU64,
    /// The notes of owners whose objects were found unchanged after the start.
    pub(super) notes: Mutex<BTreeMap<ObjectKey, String>>,
}

/// The beginning of a digest, as a number.
fn short_digest(bytes: &[u8]) -> u64 {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    hash.iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte))
}

/// A hash of the metadata of an object that changes with everything except the status. It is 0 if the API server counts no
/// generations of the object's kind, so that only the resourceVersion shows a change.
///
/// It has the times of all changes that are not of the status. After a restore of the cluster from a backup, the same generation
/// may stand for another content.
pub(super) fn content_of(metadata: &Value) -> u64 {
    if metadata.get("generation").and_then(Value::as_i64).is_none_or(|generation| generation == 0) {
        return 0;
    }
    let fields = [
        "generation",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
    ];
    let values = fields.map(|field| metadata.get(field));
    let managed = metadata.get("managedFields").and_then(Value::as_array);
    let is_of_status =
        |entry: &&Value| entry.get("subresource").and_then(Value::as_str) == Some("status");
    let managed: Vec<&Value> =
        managed.into_iter().flatten().filter(|entry| !is_of_status(entry)).collect();
    short_digest(json!([values, managed]).to_string().as_bytes())
}

fn file_name(owner: &ObjectKey) -> String {
    let ObjectKey { group, kind, namespace, name } = owner;
    let digest = Sha256::digest(format!("{group}/{namespace}/{name}"));
    format!("{kind}-{}", hex::encode(digest))
}

fn gone_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl DriftComparisonFolder {
    /// Opens the folder. If a process with another key wrote the files, they are deleted.
    pub(super) fn open(folder: PathBuf, key: &str) -> io::Result<Self> {
        let key = hex::encode(Sha256::digest(key));
        let key_file = folder.join(KEY_FILE);
        if fs::read_to_string(&key_file).is_ok_and(|it| it == key) {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let is_unfinished =
                    entry.file_name().into_string().is_ok_and(|it| it.starts_with(UNFINISHED));
                if is_unfinished {
                    gone_is_fine(fs::remove_file(entry.path()))?;
                }
            }
        } else {
            gone_is_fine(fs::remove_dir_all(&folder))?;
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            fs::write(&key_file, key)?;
        }
        Ok(Self {
            folder,
            written: Mutex::default(),
            begun: AtomicU64::default(),
            notes: Mutex::default(),
        })
    }

    /// Writes the comparison of an owner. It blocks. After a crash, the file is the old one, the new one, or damaged.
    pub(super) fn write(&self, owner: &ObjectKey, kept: &StoredDriftComparison) -> io::Result<()> {
        let content = serde_json::to_vec(kept)?;
        if u64::try_from(content.len()).map_or(true, |length| length > MAX_FILE_BYTES) {
            return self.remove(owner);
        }
        let name = file_name(owner);
        let place = short_digest(name.as_bytes());
        let digest = short_digest(&content);
        if self.written.lock().get(&place) == Some(&digest) {
            return Ok(());
        }
        let mut bytes = hex::encode(Sha256::digest(&content)).into_bytes();
        bytes.push(b'\n');
        bytes.extend(content);
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!("{UNFINISHED}{number}"));
        let written = fs::write(&unfinished, bytes)
            .and_then(|()| fs::rename(&unfinished, self.folder.join(name)));
        if written.is_err() {
            // On a full disk, there would be one more with each run.
            gone_is_fine(fs::remove_file(&unfinished))?;
        }
        written?;
        self.written.lock().insert(place, digest);
        Ok(())
    }

    /// Deletes the comparison of an owner.
    pub(super) fn remove(&self, owner: &ObjectKey) -> io::Result<()> {
        let name = file_name(owner);
        self.written.lock().remove(&short_digest(name.as_bytes()));
        gone_is_fine(fs::remove_file(self.folder.join(name)))
    }

    /// Reads the comparisons of these owners of a kind. It deletes the files of all other owners of that kind, and those that
    /// are damaged or about another version of their owner, except files that this process has written. It blocks.
    pub(super) fn read(
        &self,
        kind: &str,
        owners: &[AppliedOwner],
    ) -> BTreeMap<ObjectKey, StoredDriftComparison> {
        let wanted: BTreeMap<String, &AppliedOwner> =
            owners.iter().map(|owner| (file_name(&owner.node), owner)).collect();
        let of_kind = format!("{kind}-");
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<(u64, String)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let length = entry.metadata().map_or(u64::MAX, |it| it.len());
                name.starts_with(&of_kind).then_some((length, name))
            })
            .collect();
        files.sort();
        let mut found = BTreeMap::new();
        let mut left = MAX_READ_BYTES;
        for (length, name) in files {
            let owner = wanted.get(&name);
            left = left.saturating_sub(length);
            if owner.is_some() && left == 0 {
                continue;
            }
            let kept = owner
                .and_then(|owner| self.load(&name).filter(|kept| kept.version == owner.version));
            match owner.zip(kept) {
                Some((owner, kept)) => {
                    found.insert(owner.node.clone(), kept);
                }
                None if self.written.lock().contains_key(&short_digest(name.as_bytes())) => {}
                None => drop(fs::remove_file(self.folder.join(&name))),
            }
        }
        found
    }

    /// The content of a file. `None` if it is damaged.
    fn load(&self, name: &str) -> Option<StoredDriftComparison> {
        let path = self.folder.join(name);
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES + DIGEST_LINE_BYTES {
            return None;
        }
        let bytes = fs::read(&path).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (digest, rest) = bytes.split_at_checked(end)?;
        let content = rest.get(1..)?;
        if hex::encode(Sha256::digest(content)).as_bytes() != digest {
            return None;
        }
        serde_json::from_slice(content).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, generation: i64) -> AppliedOwner {
        AppliedOwner {
            node: ObjectKey::new("g", "Kustomization", "shop", name),
            version: OwnerVersion { uid: format!("uid of {name}"), generation },
            inventory: ObjectInventory::default(),
        }
    }

    fn comparison(of: &AppliedOwner) -> StoredDriftComparison {
        let object = StoredComparedObject {
            namespace: "shop".to_owned(),
            name: "settings".to_owned(),
            manifest: hex::encode([7; 32]),
            version: 5,
            fingerprint: u64::MAX,
            content: 0,
        };
        let kind = Gvk::new("v1", "ConfigMap");
        StoredDriftComparison {
            version: of.version.clone(),
            is_free: true,
            reads_health: true,
            note: String::new(),
            kinds: vec![StoredComparisonKind { kind, objects: vec![object] }],
        }
    }

    #[test]
    fn a_comparison_is_read_by_the_next_process_with_the_same_key() {
        let storage = tempfile::tempdir().unwrap();
        let folder = || storage.path().join("comparisons");
        let web = owner("web", 3);
        let kept = comparison(&web);
        let before = DriftComparisonFolder::open(folder(), "1.0 flags").unwrap();
        before.write(&web.node, &kept).unwrap();
        let read = |key: &str, of: &AppliedOwner| {
            let opened = DriftComparisonFolder::open(folder(), key).unwrap();
            opened.read("Kustomization", std::slice::from_ref(of)).remove(&of.node)
        };
        assert_eq!(read("1.0 flags", &web), Some(kept.clone()));
        assert_eq!(read("1.0 flags", &owner("web", 4)), None, "another spec");
        before.remove(&web.node).unwrap();
        before.write(&web.node, &kept).unwrap();
        assert_eq!(read("1.1 flags", &web), None, "another process");
        assert_eq!(read("1.0 flags", &web), None, "they were deleted");
    }

    #[test]
    fn a_damaged_file_counts_as_missing_and_files_without_an_owner_are_deleted() {
        let storage = tempfile::tempdir().unwrap();
        let folder = DriftComparisonFolder::open(storage.path().to_owned(), "").unwrap();
        let [web, api, gone] = ["web", "api", "gone"].map(|name| owner(name, 1));
        for it in [&web, &api, &gone] {
            folder.write(&it.node, &comparison(it)).unwrap();
        }
        let of_another_kind = ObjectKey::new("g", "HelmRelease", "shop", "web");
        folder.write(&of_another_kind, &comparison(&web)).unwrap();
        let path = storage.path().join(file_name(&web.node));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let folder = DriftComparisonFolder::open(storage.path().to_owned(), "").unwrap();
        let found = folder.read("Kustomization", &[web, api.clone()]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&api.node]);
        let mut left: Vec<String> = fs::read_dir(storage.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected =
            vec![file_name(&of_another_kind), file_name(&api.node), KEY_FILE.to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn the_content_changes_with_generation_and_metadata_and_not_with_the_status() {
        let metadata = |change: &dyn Fn(&mut Value)| {
            let mut metadata = json!({"name": "web", "resourceVersion": "5", "generation": 2,
                "labels": {"app": "web"}, "managedFields": [
                    {"manager": "windlass", "time": "2026-01-01T00:00:00Z"},
                    {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:00Z"}]});
            change(&mut metadata);
            content_of(&metadata)
        };
        let content = metadata(&|_| {});
        assert_ne!(content, 0);
        assert_eq!(metadata(&|it| it["resourceVersion"] = json!("6")), content);
        let later = json!("2026-01-01T00:00:01Z");
        assert_eq!(metadata(&|it| it["managedFields"][1]["time"] = later.clone()), content);
        assert_ne!(metadata(&|it| it["managedFields"][0]["time"] = later.clone()), content);
        assert_ne!(metadata(&|it| it["generation"] = json!(3)), content);
        assert_ne!(metadata(&|it| it["labels"]["app"] = json!("api")), content);
        assert_ne!(metadata(&|it| it["annotations"] = json!({"a": "b"})), content);
        assert_eq!(
            content_of(&json!({"resourceVersion": "5"})),
            0,
            "a ConfigMap has no generation"
        );
    }

    #[test]
    fn equal_content_is_written_once() {
        let storage = tempfile::tempdir().unwrap();
        let folder = DriftComparisonFolder::open(storage.path().to_owned(), "").unwrap();
        let web = owner("web", 1);
        for _ in 0..2 {
            folder.write(&web.node, &comparison(&web)).unwrap();
        }
        assert_eq!(folder.begun.load(Ordering::Relaxed), 1);
        folder
            .write(&web.node, &StoredDriftComparison { is_free: false, ..comparison(&web) })
            .unwrap();
        assert_eq!(folder.begun.load(Ordering::Relaxed), 2);
    }
}
