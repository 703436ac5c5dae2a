//! A note beside an artifact that says from which remote files the artifact was made.
//!
//! A note only saves work. A note that is lost, broken or cut off by a crash has no worse effect than a missing one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use super::{ArtifactStore, Error, ObjectFolder, UNFINISHED, failed, gone_is_fine};

/// The name of a slot's note. Because its name begins with a dot, it is not an artifact and not served. It is deleted with its
/// slot.
const NOTE: &str = ".note";

/// The largest note.
const MAX_NOTE_BYTES: u64 = 256 << 20;

impl ArtifactStore {
    /// Stores a note in a slot that has an artifact, in place of the former note.
    ///
    /// # Errors
    /// The disk refuses the write.
    pub fn keep_note(&self, slot: &ObjectFolder, note: &[u8]) -> Result<(), Error> {
        let dir = self.make_dir(slot)?;
        let place = dir.join(NOTE);
        if note.len() as u64 > MAX_NOTE_BYTES {
            return gone_is_fine(std::fs::remove_file(&place)).map_err(failed("remove", &place));
        }
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&dir);
        let mut unfinished = unfinished.map_err(failed("write to", &dir))?;
        unfinished.write_all(note).map_err(failed("write", &place))?;
        unfinished.persist(&place).map_err(|error| failed("write", &place)(error.error))?;
        Ok(())
    }

    /// Reads the note of a slot. `None` if there is none.
    ///
    /// # Errors
    /// The disk refuses the read.
    pub fn note(&self, slot: &ObjectFolder) -> Result<Option<Vec<u8>>, Error> {
        let place = self.dir(slot).join(NOTE);
        let file = match File::open(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("open", &place))?,
        };
        let mut note = Vec::new();
        file.take(MAX_NOTE_BYTES).read_to_end(&mut note).map_err(failed("read", &place))?;
        Ok(Some(note))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::StoreOptions;
    use super::*;

    #[test]
    fn a_note_is_replaced_survives_garbage_and_goes_with_its_slot() {
        let folder = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        let slot = ObjectFolder::new("bucket", "shop", "app").unwrap();
        assert_eq!(store.note(&slot).unwrap(), None);
        store.keep_note(&slot, b"one").unwrap();
        store.keep_note(&slot, b"two").unwrap();
        let fill = |out: &mut dyn io::Write| out.write_all(b"x");
        let kept = store.put(&slot, "a.tar.gz", "1", Timestamp::UNIX_EPOCH, fill).unwrap();
        store.collect_garbage(&slot, &[&kept.path], Timestamp::MAX).unwrap();
        assert_eq!(store.note(&slot).unwrap().as_deref(), Some(&b"two"[..]));
        assert!(store.open_file("bucket/shop/app/.note").is_err(), "it is not served");
        store.remove(&slot).unwrap();
        assert_eq!(store.note(&slot).unwrap(), None);
    }
}
