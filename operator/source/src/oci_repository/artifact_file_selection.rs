//! Selects the files of an artifact: the files of a layer without the ignored ones.
//!
//! Elsewhere: fetching the layer (`sources::oci`), unpacking it and writing the archive (`artifacts::archive`).

use std::io::Write;

use artifacts::archive::{self, ArchiveContents};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use reconcile::{NextRunTrigger, RunOutcome};
use sources::source_condition_reasons::ARCHIVE_OPERATION_FAILED;
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use windlass_cluster::error::chain;

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, text, NextRunTrigger::default())
}

/// The files of a layer that are archived.
///
/// Parity(flux): `.sourceignore` files of the layer hold, and `spec.ignore` after them.
pub(super) fn contents(
    tree: &MemoryTree,
    ignore: Option<&str>,
) -> Result<ArchiveContents<RelPath>, RunOutcome> {
    let mut contents = ArchiveContents::new();
    let mut ignore_files = Vec::new();
    for (path, entry) in tree.walk() {
        let added = match entry {
            FileMetadata::Dir => contents.dir(path.clone()),
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())
            }
        };
        added.map_err(|error| failed(chain(&error)))?;
        if entry != FileMetadata::Dir && path.name() == Some(IGNORE_FILE) {
            let text = tree.read(path).map_err(|error| failed(error.to_string()))?;
            let folder = path.parent().unwrap_or_else(RelPath::root);
            ignore_files.push((folder, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    let ignored =
        IgnoreMatcher::new(&ignore_files, ignore).map_err(|error| failed(chain(&error)))?;
    contents.leave_out(&ignored);
    Ok(contents)
}

/// Writes the selected contents of an artifact as an archive.
pub(super) fn write(
    out: &mut dyn Write,
    tree: &MemoryTree,
    contents: &ArchiveContents<RelPath>,
) -> Result<(), archive::Error> {
    archive::write(out, contents, |_, path| tree.read(path)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(files: &[(&str, &str)], ignore: Option<&str>) -> Vec<String> {
        let tree = MemoryTree::from_files(files.iter().copied()).unwrap();
        let contents = contents(&tree, ignore).unwrap();
        let mut archive = Vec::new();
        write(&mut archive, &tree, &contents).unwrap();
        let tree = archive::extract(&*archive, &archive::ExtractOptions::default()).unwrap();
        let files = tree.walk().filter(|(_, entry)| *entry != FileMetadata::Dir);
        files.map(|(path, _)| path.to_string()).collect()
    }

    #[test]
    fn a_layer_is_packed_again_without_what_is_ignored() {
        let files = [("a.yaml", "1"), ("b/c.md", "2"), ("b/d.yaml", "3"), ("e.png", "4")];
        assert_eq!(kept(&files, None), ["a.yaml", "b/c.md", "b/d.yaml"]);
        assert_eq!(kept(&files, Some("*.md")), ["a.yaml", "b/d.yaml", "e.png"]);
        let own = [
            (".sourceignore", "/a.yaml"),
            ("a.yaml", "1"),
            ("b/.sourceignore", "*.md"),
            ("b/c.md", "2"),
        ];
        assert_eq!(kept(&own, None), [".sourceignore", "b/.sourceignore"]);
        assert_eq!(kept(&own, Some("!a.yaml")), [".sourceignore", "a.yaml", "b/.sourceignore"]);
    }
}
