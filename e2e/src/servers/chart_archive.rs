//! Makes chart archives, as chart repositories serve them.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use sources::charts::LoadedChartFiles;
use tree::{MemoryTree, RelPath};

/// Packs the archive of a chart.
///
/// # Errors
/// A path is not valid in an archive.
pub fn pack(name: &str, files: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
    let files = files.iter().map(|(path, text)| (format!("{name}/{path}"), text.clone()));
    let tree = MemoryTree::from_files(files.collect::<Vec<_>>())?;
    let mut bytes = Vec::new();
    LoadedChartFiles::in_tree(&tree, &RelPath::parse(name)?)?.write(&mut bytes)?;
    Ok(bytes)
}

/// The SHA-256 digest, in the format of a repository index.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}
