//! Shows a commit as a folder. It resolves symbolic links, and reads a file only when the build needs it.
//!
//! Elsewhere: fetching the commit ([`git`]).

use std::collections::{BTreeMap, VecDeque};

use git::{CheckoutItem, Error, FetchedCheckout, TreeEntryKind};

/// Go's number for symbolic links on the way to a file.
const MOST_LINKS: usize = 255;

/// A commit with the folders that its paths imply.
#[derive(Debug)]
pub(super) struct CommitWorktree {
    checkout: FetchedCheckout,
    /// The nodes by path. The path of the root is empty.
    nodes: BTreeMap<String, WorktreeNode>,
}

#[derive(Debug)]
enum WorktreeNode {
    Dir,
    File(CheckoutItem),
    Link(CheckoutItem),
}

/// The target of a path, relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorktreeTarget {
    Dir(String),
    File(String),
}

/// The reason why a path has no target.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorktreePathError {
    /// No file exists at this path.
    #[error("no such file or directory")]
    Missing(String),
    /// A link at this path cannot be followed.
    #[error("it leaves the repository")]
    Outside(String),
    #[error("too many links")]
    TooManyLinks(String),
    #[error(transparent)]
    Git(#[from] Error),
}

impl CommitWorktree {
    pub(super) fn new(checkout: FetchedCheckout) -> Self {
        let mut nodes = BTreeMap::from([(String::new(), WorktreeNode::Dir)]);
        for item in checkout.items() {
            let mut path = item.path.as_str();
            while let Some((parent, _)) = path.rsplit_once('/') {
                if nodes.contains_key(parent) {
                    break;
                }
                nodes.insert(parent.to_owned(), WorktreeNode::Dir);
                path = parent;
            }
            let node = match item.kind {
                TreeEntryKind::Submodule => WorktreeNode::Dir,
                TreeEntryKind::Symlink => WorktreeNode::Link(item.clone()),
                TreeEntryKind::File { .. } => WorktreeNode::File(item.clone()),
            };
            nodes.insert(item.path.clone(), node);
        }
        Self { checkout, nodes }
    }

    /// Follows a path, relative to the root, with all its links.
    pub(super) fn resolve(&self, path: &str) -> Result<WorktreeTarget, WorktreePathError> {
        let split = |text: &str| -> Vec<String> { text.split('/').map(str::to_owned).collect() };
        let mut left = VecDeque::from(split(path));
        let mut at = String::new();
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." if at.is_empty() => return Err(WorktreePathError::Outside(path.to_owned())),
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = if at.is_empty() { part } else { format!("{at}/{part}") };
            match self.nodes.get(&next) {
                None => return Err(WorktreePathError::Missing(next)),
                Some(WorktreeNode::Dir) => at = next,
                Some(WorktreeNode::File(_)) if left.iter().all(String::is_empty) => {
                    return Ok(WorktreeTarget::File(next));
                }
                Some(WorktreeNode::File(_)) => return Err(WorktreePathError::Missing(next)),
                Some(WorktreeNode::Link(item)) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(WorktreePathError::TooManyLinks(path.to_owned()));
                    }
                    let target = self.checkout.read(item)?;
                    let target = String::from_utf8_lossy(&target);
                    if target.starts_with('/') {
                        return Err(WorktreePathError::Outside(next));
                    }
                    let rest = std::mem::take(&mut left);
                    left = split(&target).into_iter().chain(rest).collect();
                }
            }
        }
        Ok(WorktreeTarget::Dir(at))
    }

    /// The content of a file, links followed.
    ///
    /// `None` for a folder.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, WorktreePathError> {
        match self.resolve(path)? {
            WorktreeTarget::Dir(_) => Ok(None),
            WorktreeTarget::File(path) => match self.nodes.get(&path) {
                Some(WorktreeNode::File(item)) => Ok(Some(self.checkout.read(item)?)),
                _ => Err(WorktreePathError::Missing(path)),
            },
        }
    }
}
