//! Decides which files a store deletes.
//!
//! Here: artifacts that are no longer needed, and files that a crash left unfinished.
//! Elsewhere: when it runs ([`super::ArtifactStore`] and the controllers).

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use super::object_folder::LOCK_FILE;
use super::{Error, UNFINISHED, failed, gone_is_fine};

/// The limits on the artifacts of a slot that stay.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArtifactRetention {
    /// The age above which an artifact is removed, unless it must stay.
    pub(super) ttl: Duration,
    /// The most artifacts that stay, those included that must stay.
    pub(super) records: usize,
}

/// Removes the garbage of one slot's directory, and returns the names of the removed files.
pub(super) fn collect(
    dir: &Path,
    keep: &[&str],
    retention: &ArtifactRetention,
    now: Timestamp,
) -> Result<Vec<String>, Error> {
    let found = artifacts(dir)?;
    let mut removed = Vec::new();
    let mut refused = None;
    for file in garbage(found, keep, retention, now) {
        let place = dir.join(&file);
        match gone_is_fine(fs::remove_file(&place)) {
            Ok(()) => removed.push(file),
            Err(error) => refused = refused.or(Some(failed("remove", &place)(error))),
        }
    }
    refused.map_or(Ok(removed), Err)
}

/// Chooses the files to remove, oldest first.
///
/// Differs(flux): when some artifacts are too old, Flux counts those twice and keeps more records than asked for.
fn garbage(
    mut found: Vec<(Timestamp, String)>,
    keep: &[&str],
    retention: &ArtifactRetention,
    now: Timestamp,
) -> Vec<String> {
    found.sort();
    let mut left = found.len();
    let mut garbage = Vec::new();
    let mut fresh = Vec::new();
    for (modified, file) in found.into_iter().filter(|(_, file)| !keep.contains(&file.as_str())) {
        // A time in the future makes no age at all.
        let age = Duration::try_from(now.duration_since(modified)).unwrap_or_default();
        if age > retention.ttl {
            garbage.push(file);
            left -= 1;
        } else {
            fresh.push(file);
        }
    }
    let surplus = left.saturating_sub(retention.records);
    garbage.extend(fresh.into_iter().take(surplus));
    garbage
}

/// The finished artifacts in a directory, with their times of writing. Links are not touched.
fn artifacts(dir: &Path) -> Result<Vec<(Timestamp, String)>, Error> {
    let mut found = Vec::new();
    for (name, metadata) in children(dir)? {
        if metadata.is_file() && !name.starts_with('.') && !name.ends_with(LOCK_FILE) {
            let modified = metadata.modified().map_err(failed("read", &dir.join(&name)))?;
            found.push((Timestamp::try_from(modified).unwrap_or_default(), name));
        }
    }
    Ok(found)
}

/// The directories of all slots.
pub(super) fn slots(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut dirs = vec![root.to_owned()];
    for _level in ["kind", "namespace", "name"] {
        let mut below = Vec::new();
        for dir in dirs {
            let children = children(&dir)?.into_iter();
            below.extend(
                children.filter(|(_, found)| found.is_dir()).map(|(name, _)| dir.join(name)),
            );
        }
        dirs = below;
    }
    Ok(dirs)
}

/// Removes files that were being written when the process ended.
pub(super) fn sweep(root: &Path) -> Result<(), Error> {
    for dir in slots(root)? {
        for (name, metadata) in children(&dir)? {
            // A second name of an artifact is a link, and unfinished for a moment too.
            let is_ours = metadata.is_file() || metadata.is_symlink();
            if is_ours && name.starts_with(UNFINISHED) {
                let place = dir.join(name);
                gone_is_fine(fs::remove_file(&place)).map_err(failed("remove", &place))?;
            }
        }
    }
    Ok(())
}

/// The entries of a directory. It does not follow links. A missing directory has no entries.
///
/// Names that are not UTF-8 are left out: the store does not make such names.
pub(super) fn children(dir: &Path) -> Result<Vec<(String, fs::Metadata)>, Error> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(failed("read", dir))?,
    };
    let mut found = Vec::new();
    for child in listed {
        let child = child.map_err(failed("read", dir))?;
        let Ok(name) = child.file_name().into_string() else { continue };
        match child.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => found.push((name, metadata.map_err(failed("read", &child.path()))?)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Artifacts as `name:age in seconds`, one minute and two records, `current` and `named` are kept.
    fn check(found: &str, goes: &[&str]) {
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let parse = |artifact: &str| {
            let (name, age) = artifact.split_once(':').expect("name:age");
            let age: i64 = age.parse().expect("seconds");
            let modified = Timestamp::from_second(now.as_second() - age).expect("a time");
            (modified, name.to_owned())
        };
        let retention = ArtifactRetention { ttl: Duration::from_secs(60), records: 2 };
        let found: Vec<_> = found.split(' ').map(parse).collect();
        assert_eq!(
            garbage(found.clone(), &["current", "named"], &retention, now),
            goes,
            "{found:?}"
        );
    }

    #[test]
    fn what_goes_depends_on_age_first_and_on_number_then() {
        check("current:0", &[]);
        check("current:900", &[]);
        check("a:10 current:0", &[]);
        check("a:60 current:0", &[]);
        check("a:61 current:0", &["a"]);
        check("a:30 b:20 current:10", &["a"]);
        check("a:30 b:20 c:15 current:10", &["a", "b"]);
        check("current:500 a:30 b:20", &["a"]);
        check("a:90 b:30 c:20 current:10", &["a", "b"]);
        check("a:90 b:80 current:70", &["a", "b"]);
        check("b:20 a:20 current:10", &["a"]);
        check("a:-500 b:20 current:10", &["b"]);
        check("named:900 current:0", &[]);
        check("named:900 a:61 current:0", &["a"]);
        check("named:900 a:30 current:0", &["a"]);
    }
}
