//! Archives of a release. The same files give the same bytes.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Packs the files of a directory into a `.tar.gz`. All of them are below `name` in it, without times and owners.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn archive(top: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for path in files(top)? {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let known = file.metadata()?;
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(if known.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 });
        header.set_size(known.len());
        let place = Path::new(name).join(path.strip_prefix(top)?);
        archive.append_data(&mut header, place, file)?;
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    Ok(packed.finish()?)
}

/// All files below a directory, sorted.
fn files(top: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
