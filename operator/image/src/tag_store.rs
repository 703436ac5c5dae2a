//! Stores the tags that the last scan of each ImageRepository found, so that ImagePolicies have them after a restart.
//!
//! The tags are a note file in the storage place of the ImageRepository. It is not served, and it is deleted with the object.
//! Its first line has the name of the image, the status's revision of the tags, and the digest of the other lines. Each other
//! line is a tag. The tags of a former image do not count. A note that is lost, damaged, or of another revision than the
//! status is replaced by a new scan.

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use image::{TagList, read_tags};
use kube_core::ResourceExt as _;
use sources::oci::OciDigest;

use crds::image::ImageRepository;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use windlass_cluster::error::chain;

/// The first part of the place of a list.
const REPOSITORY_FOLDER: &str = "imagerepository";

/// The storage place of the tags of an ImageRepository.
///
/// # Errors
/// A name could lead out of the store. The API server does not accept such names.
pub(crate) fn slot(object: &ImageRepository) -> Result<ObjectFolder, store::Error> {
    ObjectFolder::new(
        REPOSITORY_FOLDER,
        &object.namespace().unwrap_or_default(),
        &object.name_any(),
    )
}

/// Stores the tags of an image, in place of the former tags. Equal tags are not written again. Blocks.
///
/// # Errors
/// The disk refuses the write.
pub(crate) fn keep(
    store: &ArtifactStore,
    slot: &ObjectFolder,
    image: &str,
    tags: &TagList,
) -> Result<(), store::Error> {
    let note = note(image, tags);
    if matches!(store.note(slot), Ok(Some(known)) if known == note.as_bytes()) {
        return Ok(());
    }
    store.keep_note(slot, note.as_bytes())
}

fn note(image: &str, tags: &TagList) -> String {
    format!("{image} {} {}\n{}", tags.checksum(), tags.digest(), tags.stored())
}

/// Reads the tags of an image, in descending order. `None` if no tags are stored. Blocks.
///
/// # Errors
/// The disk refuses the read.
pub(crate) fn read(
    store: &ArtifactStore,
    slot: &ObjectFolder,
    image: &str,
) -> Result<Option<Vec<String>>, store::Error> {
    Ok(store.note(slot)?.and_then(|note| read_tags(StoredTagsNote::of(&note, image)?.tags).ok()))
}

/// The content of a note.
struct StoredTagsNote<'n> {
    /// The revision that the status has of the tags.
    revision: &'n str,
    /// A line for each.
    tags: &'n str,
}

impl<'n> StoredTagsNote<'n> {
    /// Parses a note. `None` if it is of another image, or damaged.
    fn of(note: &'n [u8], image: &str) -> Option<Self> {
        let (head, tags) = std::str::from_utf8(note).ok()?.split_once('\n')?;
        let (head, digest) = head.rsplit_once(' ')?;
        let (known, revision) = head.rsplit_once(' ')?;
        let is_whole = known == image && OciDigest::of(tags.as_bytes()).to_string() == digest;
        is_whole.then_some(Self { revision, tags })
    }
}

/// The tags of an ImageRepository's image. `why` is the condition reason of a failure. Blocks.
///
/// # Errors
/// The disk refuses the read.
pub(crate) fn tags_of(
    store: &ArtifactStore,
    object: &ImageRepository,
    image: &str,
    why: ConditionReason,
) -> Result<Option<Vec<String>>, RunOutcome> {
    let tags = slot(object).and_then(|place| read(store, &place, image));
    tags.map_err(|error| {
        let text = format!("failed to read the tags of {image}: {}", chain(&error));
        RunOutcome::Failed(why, text, NextRunTrigger::default())
    })
}

/// The revision of the tags of an ImageRepository's image. `None` if there are no readable tags. Blocks.
pub(crate) fn revision_of(
    store: &ArtifactStore,
    object: &ImageRepository,
    image: &str,
) -> Option<String> {
    let note = store.note(&slot(object).ok()?).ok()??;
    StoredTagsNote::of(&note, image).map(|kept| kept.revision.to_owned())
}

#[cfg(test)]
mod tests {
    use artifacts::store::StoreOptions;

    use super::*;
    use crate::tag_meter;

    fn list(tags: &[&str]) -> TagList {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        TagList::of_scan(tags, &[], &mut tag_meter()).unwrap()
    }

    #[test]
    fn tags_are_those_of_the_image_that_was_scanned_and_go_with_their_object() {
        let folder = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        let slot = ObjectFolder::new(REPOSITORY_FOLDER, "apps", "app").unwrap();
        assert_eq!(read(&store, &slot, "r.io/a").unwrap(), None);
        keep(&store, &slot, "r.io/a", &list(&["1", "2"])).unwrap();
        let found = read(&store, &slot, "r.io/a").unwrap();
        assert_eq!(found, Some(vec!["2".to_owned(), "1".to_owned()]));
        assert_eq!(read(&store, &slot, "r.io/b").unwrap(), None, "another image");
        keep(&store, &slot, "r.io/a", &list(&[])).unwrap();
        assert_eq!(read(&store, &slot, "r.io/a").unwrap(), Some(Vec::new()));
        store.remove(&slot).unwrap();
        assert_eq!(read(&store, &slot, "r.io/a").unwrap(), None);
    }

    #[test]
    fn the_same_tags_are_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;

        let folder = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        let slot = ObjectFolder::new(REPOSITORY_FOLDER, "apps", "app").unwrap();
        // A note that is written is another file.
        let kept = |image: &str, tags: &[&str]| {
            keep(&store, &slot, image, &list(tags)).unwrap();
            let place = folder.path().join(slot.path()).join(".note");
            std::fs::File::open(place).unwrap()
        };
        let inode = |file: &std::fs::File| file.metadata().unwrap().ino();
        // All of them stay open, so that no number is used twice.
        let first = kept("r.io/a", &["1", "2"]);
        let again = kept("r.io/a", &["2", "1"]);
        let other_tags = kept("r.io/a", &["1", "3"]);
        let other_image = kept("r.io/b", &["1", "3"]);
        assert_eq!(inode(&first), inode(&again));
        assert_ne!(inode(&again), inode(&other_tags));
        assert_ne!(inode(&other_tags), inode(&other_image));
    }

    #[test]
    fn a_list_that_was_cut_off_is_none() {
        let tags = list(&["1.0", "1.1"]);
        let note = note("r.io/a", &tags);
        let revision = |note: &[u8], image: &str| {
            StoredTagsNote::of(note, image).map(|kept| kept.revision.to_owned())
        };
        assert_eq!(revision(note.as_bytes(), "r.io/a"), Some(tags.checksum()));
        assert_eq!(revision(note.as_bytes(), "r.io/b"), None);
        for end in [0, 5, note.len() - 1, note.len() - 4] {
            assert_eq!(revision(&note.as_bytes()[..end], "r.io/a"), None, "{end}");
        }
        assert_eq!(revision(&[0xff, b'\n'], "r.io/a"), None);
    }
}
