//! Stores in the storage folder when the digests of tags were first seen, so that tags do not wait again after a restart.
//!
//! The record is a note file in the storage place of the ImagePolicy. It is not served, and it is deleted with the object. It
//! has a line with the name of the image and the digest of the other lines, and then the lines of the engine. If a note is
//! lost, damaged or of another image, all digests count as first seen now.

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::image::ImagePolicy;
use image::TagHistory;
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use sources::oci::OciDigest;

/// The first part of the place of a history.
const POLICY_FOLDER: &str = "imagepolicy";

/// The storage place of the history of an ImagePolicy.
///
/// # Errors
/// A name could lead out of the store. The API server does not accept such names.
pub(super) fn slot(object: &ImagePolicy) -> Result<ObjectFolder, store::Error> {
    ObjectFolder::new(POLICY_FOLDER, &object.namespace().unwrap_or_default(), &object.name_any())
}

/// Stores the history of the tags of an image, in place of the former history. An equal history is not written again. Blocks.
///
/// # Errors
/// The disk refuses the write.
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

/// Reads the history of the tags of an image. It is empty if none is stored. Blocks.
///
/// # Errors
/// The disk refuses the read.
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

/// The lines of a note. `None` if it is of another image, or damaged.
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
