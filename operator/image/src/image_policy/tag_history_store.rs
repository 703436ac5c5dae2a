//! When the digests of the tags were first seen, in the storage folder, so that a restart makes none of them wait again.
//!
//! It is a note in the place of the ImagePolicy, which is not served and goes with the object: a line with the name of the
//! image and the digest of the rest, then the lines of the engine. What is lost, damaged or of another image is seen anew.

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::image::ImagePolicy;
use image::TagHistory;
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use sources::oci::OciDigest;

/// The first part of the place of a history.
const POLICY_FOLDER: &str = "imagepolicy";

/// Where the history of an ImagePolicy is.
///
/// # Errors
/// When a name could leave the store, which the API server does not let happen.
pub(super) fn slot(object: &ImagePolicy) -> Result<ObjectFolder, store::Error> {
    ObjectFolder::new(POLICY_FOLDER, &object.namespace().unwrap_or_default(), &object.name_any())
}

/// Keeps the history of the tags of an image, in place of the one from before. The same is not written again. Blocks.
///
/// # Errors
/// The disk refuses.
pub(super) fn keep(
    store: &ArtifactStore,
    slot: &ObjectFolder,
    image: &str,
    history: &TagHistory,
) -> Result<(), store::Error> {
    let stored = history.stored();
    let note = format!("{image} {}\n{stored}", OciDigest::of(stored.as_bytes()));
    if matches!(store.note(slot), Ok(Some(known)) if known == note.as_bytes()) {
        return Ok(());
    }
    store.keep_note(slot, note.as_bytes())
}

/// The history of the tags of an image; an empty one if none is kept of it. Blocks.
///
/// # Errors
/// The disk refuses.
pub(super) fn read(
    store: &ArtifactStore,
    slot: &ObjectFolder,
    image: &str,
    now: Timestamp,
) -> Result<TagHistory, store::Error> {
    let note = store.note(slot)?.unwrap_or_default();
    let stored = stored_of(&note, image).unwrap_or_default();
    Ok(TagHistory::read(stored, now))
}

/// The lines of a note; `None` if it is of another image, or is not what was written.
fn stored_of<'n>(note: &'n [u8], image: &str) -> Option<&'n str> {
    let (head, stored) = std::str::from_utf8(note).ok()?.split_once('\n')?;
    let (known, digest) = head.rsplit_once(' ')?;
    let is_whole = known == image && OciDigest::of(stored.as_bytes()).to_string() == digest;
    is_whole.then_some(stored)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use artifacts::store::StoreOptions;

    use super::*;

    #[test]
    fn a_history_is_that_of_one_image_and_a_damaged_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        let slot = ObjectFolder::new(POLICY_FOLDER, "apps", "app").unwrap();
        let now: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
        let kept = |image: &str| read(&store, &slot, image, now).unwrap();
        assert_eq!(kept("r.io/a"), TagHistory::default());
        let mut history = TagHistory::default();
        history.see("v1", "sha256:a", now);
        keep(&store, &slot, "r.io/a", &history).unwrap();
        assert_eq!(kept("r.io/a"), history);
        assert_eq!(kept("r.io/b"), TagHistory::default(), "another image");
        let place = folder.path().join(slot.path()).join(".note");
        let note = fs::read(&place).unwrap();
        fs::write(&place, &note[..note.len() - 2]).unwrap();
        assert_eq!(kept("r.io/a"), TagHistory::default(), "damaged");
        store.remove(&slot).unwrap();
        assert_eq!(kept("r.io/a"), TagHistory::default(), "removed");
    }
}
