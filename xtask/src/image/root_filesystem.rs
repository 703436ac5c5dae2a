//! Makes the root file system of the image in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::platform::ImagePlatform;

/// The user and the group that run the program. The manifests name the same number.
pub(super) const NONROOT_USER_ID: u32 = 65532;
/// The path of the program in the image.
pub(super) const PROGRAM: &str = "/usr/local/bin/windlass";
/// The folder in which the program stores artifacts.
pub(super) const STORAGE: &str = "/data";

/// The file with certificate authorities of Debian's `ca-certificates`. The program reads it at the same path in the
/// image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Folders that the user may write to, with their modes.
pub(super) const WRITABLE_FOLDER_MODES: [(&str, u32); 2] = [("data", 0o755), ("tmp", 0o1777)];

/// Makes the root file system in a folder. Files that were in the folder before are deleted.
///
/// # Errors
/// When the program or something that it needs is not on this machine.
pub(super) fn make(top: &Path, program: &Path, platform: ImagePlatform) -> anyhow::Result<()> {
    if top.exists() {
        fs::remove_dir_all(top).with_context(|| top.display().to_string())?;
    }
    put(top, program, PROGRAM, 0o755)?;
    for library in libraries(program, platform)? {
        put(top, &library, &platform.in_image(&library).to_string_lossy(), 0o755)?;
    }
    ensure!(
        Path::new(AUTHORITIES).is_file(),
        "{AUTHORITIES} is not there: install the package ca-certificates"
    );
    put(top, Path::new(AUTHORITIES), AUTHORITIES, 0o644)?;
    let text = |path: &str, text: String| {
        let place = top.join(path);
        fs::write(&place, text).with_context(|| place.display().to_string())
    };
    text(
        "etc/passwd",
        format!("nonroot:x:{NONROOT_USER_ID}:{NONROOT_USER_ID}:nonroot:{STORAGE}:/sbin/nologin\n"),
    )?;
    text("etc/group", format!("nonroot:x:{NONROOT_USER_ID}:\n"))?;
    text("etc/nsswitch.conf", "hosts: files dns\n".to_owned())?;
    for (folder, mode) in WRITABLE_FOLDER_MODES {
        let place = top.join(folder);
        fs::create_dir_all(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Copies a file to a path of the image. A symbolic link is copied as the file that it names.
fn put(top: &Path, from: &Path, to: &str, mode: u32) -> anyhow::Result<()> {
    let place = top.join(to.trim_start_matches('/'));
    let folder = place.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, &place).with_context(|| from.display().to_string())?;
    fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// The libraries that a program is linked with, and the loader, as `ldd` finds them.
fn libraries(program: &Path, platform: ImagePlatform) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = platform.ldd(program).output().context("ldd cannot be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "ldd {}: {said}", program.display());
    ensure!(!said.contains("not found"), "{} misses a library: {said}", program.display());
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(|path| platform.on_this_machine(Path::new(path))).collect())
}
