//! The entries of an archive, sorted into the order of a directory walk.
//!
//! Here: collecting paths in any order, leaving out ignored files, writing the rest.
//! Elsewhere: the bytes of an entry ([`super::TarballWriter`]).

use std::{collections::BTreeMap, error::Error as StdError, io::Write};

use tree::RelPath;

use super::{Error, TarballWriter};
use crate::ignore::IgnoreMatcher;

/// The files and folders of an archive that will be written. Each file has the source of its body.
///
/// `T` identifies the body when the archive is written: an object id, a path on disk, the bytes themselves.
#[derive(Debug, Clone)]
pub struct ArchiveContents<T> {
    entries: BTreeMap<RelPath, ArchiveItem<T>>,
}

#[derive(Debug, Clone)]
enum ArchiveItem<T> {
    Dir,
    File { executable: bool, source: T },
}

impl<T> Default for ArchiveContents<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<T> ArchiveContents<T> {
    /// An archive with only the root folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file and the folders above it. An existing file at the path is replaced.
    ///
    /// # Errors
    /// A folder is at the path, or a file is at the path of a parent folder.
    pub fn file(&mut self, path: RelPath, executable: bool, source: T) -> Result<(), Error> {
        if path.is_root() || matches!(self.entries.get(&path), Some(ArchiveItem::Dir)) {
            return Err(Error::Collision(path));
        }
        self.parents(&path)?;
        self.entries.insert(path, ArchiveItem::File { executable, source });
        Ok(())
    }

    /// Adds a folder and the folders above it, so that the folder is archived even if it is empty.
    ///
    /// # Errors
    /// A file is already at the path, or at the path of one of its parent folders.
    pub fn dir(&mut self, path: RelPath) -> Result<(), Error> {
        self.parents(&path)?;
        if path.is_root() {
            return Ok(());
        }
        if let ArchiveItem::File { .. } =
            self.entries.entry(path.clone()).or_insert(ArchiveItem::Dir)
        {
            return Err(Error::Collision(path));
        }
        Ok(())
    }

    /// Whether a path is free, which means that at most an empty folder is there.
    pub fn is_free(&self, path: &RelPath) -> bool {
        let mut found =
            self.entries.range(path.clone()..).take_while(|(it, _)| it.starts_with(path));
        match found.next() {
            None => true,
            Some((first, ArchiveItem::Dir)) => first == path && found.next().is_none(),
            Some((_, ArchiveItem::File { .. })) => false,
        }
    }

    /// Removes the ignored files and folders.
    ///
    /// Each path is judged alone. So a file may stay although its folder is removed, and a folder may stay although its files
    /// are removed.
    pub fn leave_out(&mut self, ignored: &IgnoreMatcher) {
        self.entries
            .retain(|path, item| !ignored.is_ignored(path, matches!(item, ArchiveItem::Dir)));
    }

    /// The files, in the order in which they are archived.
    pub fn files(&self) -> impl Iterator<Item = (&RelPath, &T)> {
        self.entries.iter().filter_map(|(path, item)| match item {
            ArchiveItem::File { source, .. } => Some((path, source)),
            ArchiveItem::Dir => None,
        })
    }

    fn parents(&mut self, path: &RelPath) -> Result<(), Error> {
        let mut above = path.parent();
        let mut missing = Vec::new();
        while let Some(dir) = above.filter(|dir| !dir.is_root()) {
            match self.entries.get(&dir) {
                Some(ArchiveItem::Dir) => break,
                // Nothing was added yet, so a refused path leaves no entries.
                Some(ArchiveItem::File { .. }) => return Err(Error::Collision(dir)),
                None => above = dir.parent(),
            }
            missing.push(dir);
        }
        self.entries.extend(missing.into_iter().map(|dir| (dir, ArchiveItem::Dir)));
        Ok(())
    }
}

/// Writes the whole archive. It loads one body after the other, and returns `out`.
///
/// # Guarantees
/// The bytes depend on the paths, execute bits and bodies only, not on the order in which they were collected.
///
/// # Errors
/// A body cannot be loaded, or `out` refuses what is written.
pub fn write<T, W, B, E>(
    out: W,
    contents: &ArchiveContents<T>,
    mut load: impl FnMut(&RelPath, &T) -> Result<B, E>,
) -> Result<W, Error>
where
    W: Write,
    B: AsRef<[u8]>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut writer = TarballWriter::new(out);
    writer.dir(&RelPath::root())?;
    for (path, item) in &contents.entries {
        match item {
            ArchiveItem::Dir => writer.dir(path)?,
            ArchiveItem::File { executable, source } => {
                let failed = |error: E| Error::Load { path: path.clone(), source: error.into() };
                let body = load(path, source).map_err(failed)?;
                let body = body.as_ref();
                writer.file(path, *executable, body.len() as u64, &mut &*body)?;
            }
        }
    }
    writer.finish()
}
