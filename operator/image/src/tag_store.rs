//! The tags that the last scan of each ImageRepository found, in the storage folder, so that ImagePolicies have them after a
//! restart.
//!
//! They are a note in the place of the object, which is not served and goes with the object: a line with the name of the
//! image and the digest of the rest, then a line for each tag. Who changed an image gets no tags of the one before. What is
//! lost or damaged is listed anew.

use image::{TagList, read_tags};
use kube_core::ResourceExt as _;
use sources::oci::Digest;
use sources::store::{self, Slot, Store};

use crds::image::ImageRepository;
use reconcile::{Outcome, Reason, Wake};
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::context::Context;

/// The first part of the place of a list.
const REPOSITORY_FOLDER: &str = "imagerepository";

/// Where the tags of an ImageRepository are.
///
/// # Errors
/// When a name could leave the store, which the API server does not let happen.
pub(crate) fn slot(object: &ImageRepository) -> Result<Slot, store::Error> {
    Slot::new(REPOSITORY_FOLDER, &object.namespace().unwrap_or_default(), &object.name_any())
}

/// Keeps the tags of an image, in place of those from before. Blocks.
///
/// # Errors
/// The disk refuses.
pub(crate) fn keep(
    store: &Store,
    slot: &Slot,
    image: &str,
    tags: &TagList,
) -> Result<(), store::Error> {
    let note = format!("{image} {}\n{}", tags.digest(), tags.stored());
    store.keep_note(slot, note.as_bytes())
}

/// The tags of an image, in descending order; `None` if none are kept of it. Blocks.
///
/// # Errors
/// The disk refuses.
pub(crate) fn read(
    store: &Store,
    slot: &Slot,
    image: &str,
) -> Result<Option<Vec<String>>, store::Error> {
    Ok(store.note(slot)?.and_then(|note| tags_in(&note, image)))
}

/// The tags of an image in a note; `None` if it is of another image, or is not what was written.
fn tags_in(note: &[u8], image: &str) -> Option<Vec<String>> {
    let (head, tags) = std::str::from_utf8(note).ok()?.split_once('\n')?;
    let (known, digest) = head.rsplit_once(' ')?;
    let is_whole = known == image && Digest::of(tags.as_bytes()).to_string() == digest;
    if is_whole { read_tags(tags).ok() } else { None }
}

/// The tags of an image that an ImageRepository has; `why` is the reason of a failure.
///
/// # Errors
/// The disk refuses.
pub(crate) async fn tags_of(
    context: &Context,
    object: &ImageRepository,
    image: &str,
    why: Reason,
) -> Result<Option<Vec<String>>, Outcome> {
    let store = context.artifacts.clone();
    let place = slot(object);
    let image = image.to_owned();
    let work = move || {
        let tags = place.and_then(|place| read(&store, &place, &image));
        tags.map_err(|error| {
            let text = format!("failed to read the tags of {image}: {}", chain(&error));
            Outcome::Failed(why, text, Wake::default())
        })
    };
    blocking(why, "reading tags", work).await
}

#[cfg(test)]
mod tests {
    use sources::store::Options;

    use super::*;
    use crate::tag_meter;

    fn list(tags: &[&str]) -> TagList {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        TagList::of_scan(tags, &[], &mut tag_meter()).unwrap()
    }

    #[test]
    fn tags_are_those_of_the_image_that_was_scanned_and_go_with_their_object() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let slot = Slot::new(REPOSITORY_FOLDER, "apps", "app").unwrap();
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
    fn a_list_that_was_cut_off_is_none() {
        let tags = list(&["1.0", "1.1"]);
        let note = format!("r.io/a {}\n{}", tags.digest(), tags.stored());
        assert_eq!(tags_in(note.as_bytes(), "r.io/a").map(|it| it.len()), Some(2));
        for end in [0, 5, note.len() - 1, note.len() - 4] {
            assert_eq!(tags_in(&note.as_bytes()[..end], "r.io/a"), None, "{end}");
        }
        assert_eq!(tags_in(&[0xff, b'\n'], "r.io/a"), None);
    }
}
