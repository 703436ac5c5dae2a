//! A folder for files that are needed only during a fetch, and that need a name in the file system.
//!
//! Only the store uses the folder, so files that a crash leaves in it can be deleted.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{ArtifactStore, Error, failed, gone_is_fine};

/// A name that begins with a dot is not a kind of artifacts, and is not served.
const SCRATCH: &str = ".scratch";

impl ArtifactStore {
    /// A folder in which repositories may be made that are removed before their run ends.
    ///
    /// # Guarantees
    /// It is empty when the store is opened. It does not count towards [`super::StoreOptions::size_limit`].
    pub fn scratch(&self) -> PathBuf {
        self.root.join(SCRATCH)
    }
}

/// Recreates the folder empty. It may have files from a process that ended.
pub(super) fn sweep(root: &Path) -> Result<(), Error> {
    let folder = root.join(SCRATCH);
    gone_is_fine(fs::remove_dir_all(&folder)).map_err(failed("remove", &folder))?;
    DirBuilder::new().mode(0o700).create(&folder).map_err(failed("create", &folder))
}

#[cfg(test)]
mod tests {
    use super::super::StoreOptions;
    use super::*;

    #[test]
    fn what_a_crash_left_is_gone_when_the_store_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = || ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        let left = open().scratch().join("git-Ab3dEf/objects/pack");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("tmp_pack"), "half").unwrap();
        let store = open();
        assert_eq!(fs::read_dir(store.scratch()).unwrap().count(), 0);
        assert_eq!(store.size(), 0);
        assert!(store.open_file(".scratch/git-Ab3dEf/objects/pack").is_err(), "it is not served");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "kept").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join(SCRATCH)).unwrap();
        let store = ArtifactStore::open(folder.path(), StoreOptions::default()).unwrap();
        assert!(fs::symlink_metadata(store.scratch()).unwrap().is_dir());
        assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "kept");
    }
}
