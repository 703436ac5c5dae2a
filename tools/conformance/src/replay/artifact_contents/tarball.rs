//! Replays cases about archives: the entries that a tree becomes, and the files that an archive becomes.

use std::convert::Infallible;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use artifacts::archive::{
    ArchiveContents, ExtractOptions, SymlinkPolicy, extract, extract_to_dir, write,
};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::{Value, json};
use tree::{FileKind, FileTree as _, RelPath};

use super::super::case::{
    Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil, same, same_value,
};
use super::inside;

pub(super) fn tarball(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "archive" => archive(&case),
        "untar" => untar(&case),
        _ => Err(case.unsupported(&[])),
    }
}

/// The failure of a case that cannot run. The cause is this machine or the case itself.
fn cannot(what: &str, error: impl std::fmt::Display) -> CaseFailure {
    CaseFailure::NotRun(format!("{what}: {error}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TarballTreeCase {
    #[serde(deserialize_with = "nil")]
    tree: Vec<TarballNode>,
    ignore: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TarballNode {
    path: String,
    r#type: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    body: String,
    #[serde(rename = "link")]
    _link: Option<String>,
}

fn archive(case: &Case) -> CaseJudgement {
    let TarballTreeCase { tree, ignore } = case.inputs()?;
    let mut contents = ArchiveContents::new();
    let mut ignore_files = Vec::new();
    for node in tree {
        let path = inside(&node.path)?;
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let collision = |error| cannot("a tree that cannot be", error);
        match node.r#type.as_str() {
            "file" => {
                if path.name() == Some(IGNORE_FILE) {
                    ignore_files.push((folder, node.body.clone()));
                }
                let mode = u32::from_str_radix(&node.mode, 8)
                    .map_err(|error| cannot("a mode that is not octal", error))?;
                let body = node.body.into_bytes();
                contents.file(path, mode & 0o111 != 0, body).map_err(collision)?;
            }
            "dir" => contents.dir(path).map_err(collision)?,
            // Links are not archived. Their folders are, because the caller leaves out only the links.
            "symlink" => contents.dir(folder).map_err(collision)?,
            other => return Err(CaseFailure::NotRun(format!("unknown type {other} in a tree"))),
        }
    }
    case.judge(entries(contents, &ignore_files, ignore.as_deref()))
}

/// The entries of the archive, as another implementation reads them.
fn entries(
    mut contents: ArchiveContents<Vec<u8>>,
    ignore_files: &[(RelPath, String)],
    ignore: Option<&str>,
) -> Result<Value, String> {
    let matcher = IgnoreMatcher::new(ignore_files, ignore).map_err(|error| error.to_string())?;
    contents.leave_out(&matcher);
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, Infallible>(body.clone());
    let archive = write(Vec::new(), &contents, load).map_err(|error| error.to_string())?;
    let mut tar = tar::Archive::new(GzDecoder::new(archive.as_slice()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_pax = entry.pax_extensions()?.is_some();
        let header = entry.header();
        Ok(json!({
            "name": name,
            "type": if header.entry_type().is_dir() { "dir" } else { "file" },
            "mode": format!("{:04o}", header.mode()?),
            "size": header.size()?,
            "uid": header.uid()?,
            "gid": header.gid()?,
            "mtime": header.mtime()?,
            "format": if is_pax { "PAX" } else { "USTAR" },
        }))
    };
    let entries: std::io::Result<Value> =
        tar.entries().and_then(|entries| entries.map(read).collect());
    entries.map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UntarCase {
    #[serde(deserialize_with = "nil")]
    entries: Vec<TarballEntry>,
    #[serde(default, deserialize_with = "nil")]
    options: UntarOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::replay) struct TarballEntry {
    pub(in crate::replay) name: String,
    pub(in crate::replay) r#type: String,
    #[serde(default)]
    pub(in crate::replay) link: String,
    pub(in crate::replay) mode: u32,
    #[serde(default)]
    pub(in crate::replay) body: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct UntarOptions {
    skip_symlinks: u8,
    max_size: Option<i64>,
}

impl UntarOptions {
    fn extract(&self) -> ExtractOptions {
        ExtractOptions {
            symlinks: if self.skip_symlinks == 1 {
                SymlinkPolicy::Skip
            } else {
                SymlinkPolicy::Refuse
            },
            max_size: match self.max_size {
                // Flux's default, which differs from windlass's.
                None => Some(100 << 20),
                Some(max) => max.try_into().ok(),
            },
            ..ExtractOptions::default()
        }
    }
}

/// Unpacks an archive into a folder, and into memory.
fn untar(case: &Case) -> CaseJudgement {
    let UntarCase { entries, options } = case.inputs()?;
    let archive = build(&entries)?;
    let folder = tempfile::tempdir().map_err(|error| cannot("no folder", error))?;
    let place = folder.path();
    let on_disk = match extract_to_dir(archive.as_slice(), &options.extract(), place) {
        Ok(()) => Ok(files_in(place).map_err(|error| cannot("the folder cannot be read", error))?),
        Err(error) => Err(error.to_string().replace(&place.display().to_string(), "${DIR}")),
    };
    case.judge(on_disk)?;

    let in_memory = extract(archive.as_slice(), &options.extract());
    match (in_memory, &case.answer) {
        (Ok(tree), ReferenceAnswer::Out(_)) => {
            let wanted: Vec<Value> = case.list()?;
            let body = |file: &Value| file.get("body").cloned().unwrap_or_else(|| json!(""));
            let wanted = wanted.iter().map(|file| json!([file["path"], body(file)]));
            let mut found: Vec<(&str, Vec<u8>)> = Vec::new();
            for (path, _) in tree.walk().filter(|(_, entry)| entry.kind() == FileKind::File) {
                let body = tree.read(path).map_err(|error| cannot("not in the tree", error))?;
                found.push((path.as_str(), body.to_vec()));
            }
            found.sort();
            let found =
                found.iter().map(|(path, body)| json!([path, String::from_utf8_lossy(body)]));
            same_value(&wanted.collect(), &found.collect())
        }
        (Err(error), ReferenceAnswer::Error(wanted)) => {
            same(&wanted.replace("${DIR}/", ""), &error.to_string())
        }
        (in_memory, _) => {
            same("what the folder got", &format!("in memory {:?}", in_memory.map(drop)))
        }
    }
}

/// A tar archive in gzip, as Go's `archive/tar` would write these entries.
pub(in crate::replay) fn build(entries: &[TarballEntry]) -> Result<Vec<u8>, CaseFailure> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let failed = |error: std::io::Error| cannot("an archive that cannot be written", error);
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        let name = entry.name.as_bytes();
        let link = entry.link.as_bytes();
        let long =
            [("path", name), ("linkpath", link)].into_iter().filter(|(_, text)| text.len() > 100);
        tar.append_pax_extensions(long).map_err(failed)?;
        let short = |text: &'_ [u8]| text[..text.len().min(100)].to_vec();
        header.as_old_mut().name[..short(name).len()].copy_from_slice(&short(name));
        header.as_old_mut().linkname[..short(link).len()].copy_from_slice(&short(link));
        header.set_mode(entry.mode);
        header.set_entry_type(match entry.r#type.as_str() {
            "file" => tar::EntryType::Regular,
            "dir" => tar::EntryType::Directory,
            "symlink" => tar::EntryType::Symlink,
            "hardlink" => tar::EntryType::Link,
            "fifo" => tar::EntryType::Fifo,
            "char" => tar::EntryType::Char,
            "block" => tar::EntryType::Block,
            "xglobal" => tar::EntryType::XGlobalHeader,
            other => {
                return Err(CaseFailure::NotRun(format!("unknown type {other} in an archive")));
            }
        });
        header.set_size(entry.body.len() as u64);
        header.set_cksum();
        tar.append(&header, entry.body.as_bytes()).map_err(failed)?;
    }
    let mut gzip = tar.into_inner().map_err(failed)?;
    gzip.flush().and_then(|()| gzip.finish()).map_err(failed)
}

/// The files below a folder in the order of their paths, in the form of the cases.
fn files_in(root: &Path) -> std::io::Result<Value> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for child in fs::read_dir(folder)? {
            let place = child?.path();
            let metadata = fs::symlink_metadata(&place)?;
            if metadata.is_dir() {
                open.push(place);
                continue;
            }
            let name = place.strip_prefix(root).unwrap_or(&place).to_string_lossy().into_owned();
            if !metadata.is_file() {
                found.push(json!({"path": name, "type": "neither file nor folder"}));
                continue;
            }
            let mode = metadata.permissions().mode() & 0o7777;
            // The mode of the file may forbid its owner to read it.
            fs::set_permissions(&place, fs::Permissions::from_mode(0o600))?;
            let body = fs::read(&place)?;
            let mut file = json!({
                "path": name,
                "type": "file",
                "mode": if mode == 0 { "0".to_owned() } else { format!("0{mode:o}") },
            });
            if !body.is_empty() {
                file["body"] = String::from_utf8_lossy(&body).into();
            }
            found.push(file);
        }
    }
    found.sort_by(|a, b| a["path"].as_str().cmp(&b["path"].as_str()));
    Ok(found.into())
}
