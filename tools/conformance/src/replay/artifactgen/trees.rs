//! Reads the trees of recorded cases, with files, folders, links and archives.

use std::collections::BTreeMap;

use artifacts::archive::{ExtractOptions, SymlinkPolicy, extract};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath, TreeBuildError, TreeLimits};

use crate::replay::artifact_contents::tarball::{TarballEntry, build};
use crate::replay::case::CaseFailure;

/// How symbolic links are treated, because windlass's trees have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkHandling {
    /// A link is replaced by its target if that is inside of the source.
    Followed,
    /// Links are left out.
    Left,
}

/// How many links may lead from one to the next.
const MAX_LINKS: usize = 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct RecordedTreeNode {
    text: Option<String>,
    symlink: Option<String>,
    base64: Option<String>,
    tarball: Option<Map<String, Value>>,
    #[serde(default)]
    exec: bool,
    #[serde(default)]
    dir: bool,
}

enum TreeNode {
    File { body: Vec<u8>, executable: bool },
    Folder,
    Link(String),
}

fn unknown(error: impl std::fmt::Display) -> CaseFailure {
    CaseFailure::NotRun(format!("a tree that is not known: {error}"))
}

fn node(value: &Value) -> Result<TreeNode, CaseFailure> {
    if let Value::String(text) = value {
        return Ok(TreeNode::File { body: text.clone().into_bytes(), executable: false });
    }
    let form: RecordedTreeNode = serde_json::from_value(value.clone()).map_err(unknown)?;
    match form {
        RecordedTreeNode { dir: true, .. } => Ok(TreeNode::Folder),
        RecordedTreeNode { symlink: Some(to), .. } => Ok(TreeNode::Link(to)),
        RecordedTreeNode { tarball: Some(tree), exec, .. } => {
            Ok(TreeNode::File { body: tarball(&tree)?, executable: exec })
        }
        RecordedTreeNode { base64: Some(text), exec, .. } => {
            let body = STANDARD.decode(text).map_err(unknown)?;
            Ok(TreeNode::File { body, executable: exec })
        }
        RecordedTreeNode { text, exec, .. } => {
            Ok(TreeNode::File { body: text.unwrap_or_default().into_bytes(), executable: exec })
        }
    }
}

/// Makes an archive of a tree. Names are kept as they are.
fn tarball(tree: &Map<String, Value>) -> Result<Vec<u8>, CaseFailure> {
    let entry = |(name, value): (&String, &Value)| {
        let entry = |r#type: &str, mode| TarballEntry {
            name: name.clone(),
            r#type: r#type.to_owned(),
            link: String::new(),
            mode,
            body: String::new(),
        };
        Ok(match node(value)? {
            TreeNode::File { body, executable } => TarballEntry {
                body: String::from_utf8(body).map_err(unknown)?,
                ..entry("file", if executable { 0o755 } else { 0o644 })
            },
            TreeNode::Folder => entry("dir", 0o755),
            TreeNode::Link(link) => TarballEntry { link, ..entry("symlink", 0o777) },
        })
    };
    let entries: Result<Vec<TarballEntry>, CaseFailure> = tree.iter().map(entry).collect();
    build(&entries?)
}

/// Reads the trees of all sources.
pub(super) fn trees(
    sources: &BTreeMap<String, Map<String, Value>>,
    links: LinkHandling,
) -> Result<BTreeMap<String, MemoryTree>, CaseFailure> {
    sources.iter().map(|(alias, source)| Ok((alias.clone(), tree(source, links)?))).collect()
}

pub(super) fn tree(
    source: &Map<String, Value>,
    links: LinkHandling,
) -> Result<MemoryTree, CaseFailure> {
    let mut builder = MemoryTree::builder(TreeLimits::default());
    let mut targets = BTreeMap::new();
    for (path, value) in source {
        let path = RelPath::parse(path).map_err(unknown)?;
        match node(value)? {
            TreeNode::File { body, executable } => {
                builder.file(&path, body, executable).map_err(unknown)?;
            }
            TreeNode::Folder => builder.dir(&path).map_err(unknown)?,
            TreeNode::Link(to) => {
                if let Some(folder) = path.parent() {
                    builder.dir(&folder).map_err(unknown)?;
                }
                targets.insert(path, to);
            }
        }
    }
    let mut tree = builder.build();
    if links == LinkHandling::Followed {
        // Two passes are needed, because the target of a link may contain links.
        for _ in 0..2 {
            tree = followed(&tree, &targets).map_err(unknown)?;
        }
    }
    Ok(tree)
}

/// A tree in which links are replaced by their targets.
fn followed(
    tree: &MemoryTree,
    targets: &BTreeMap<RelPath, String>,
) -> Result<MemoryTree, TreeBuildError> {
    let mut builder = tree.to_builder(TreeLimits::default());
    for link in targets.keys() {
        let Some(target) = target(targets, link) else { continue };
        for (path, metadata) in tree.walk() {
            let Some(inner) = path.strip_prefix(&target) else { continue };
            let to = link.join(inner.as_str())?;
            match (metadata, tree.read(path)) {
                (FileMetadata::File { executable, .. }, Ok(body)) => {
                    builder.file(&to, body, executable)?;
                }
                _ => builder.dir(&to)?,
            }
        }
    }
    Ok(builder.build())
}

/// The final target of a link. `None` if that is outside of the tree, or if the links are a circle.
fn target(links: &BTreeMap<RelPath, String>, link: &RelPath) -> Option<RelPath> {
    let mut at = link.clone();
    for _ in 0..MAX_LINKS {
        let Some(to) = links.get(&at) else { return Some(at) };
        at = at.parent()?.join(to).ok()?;
    }
    None
}

/// Reads the archives of a case by unpacking them as windlass does.
pub(super) struct CaseTarballReader;

impl artifactgen::TarballReader for CaseTarballReader {
    fn read(&self, tarball: &[u8], limits: &TreeLimits) -> Result<MemoryTree, String> {
        let options = ExtractOptions {
            symlinks: SymlinkPolicy::Refuse,
            limits: *limits,
            ..ExtractOptions::default()
        };
        extract(tarball, &options).map_err(|error| error.to_string())
    }
}
