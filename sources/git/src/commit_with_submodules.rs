//! Checks out a commit: its submodules, and the part of its files that a sparse checkout selects.
//!
//! Here: fetching submodules one after the other within one set of limits, and one list of all files.
//! Elsewhere: one commit ([`fetch`](super::fetch)), the URLs of submodules (`gitmodules_file`), which files are selected
//! (`sparse_checkout`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::commit_snapshot::{
    CommitMetadata, CommitTreeListing, GitSnapshot, TreeEntry, TreeEntryKind,
};
use super::gitmodules_file;
use super::signed_objects::SignableObjects;
use super::sparse_checkout::SparseCheckout;
use super::{Error, GitOperationContext, GitReference, GitRemote, GitRevision, RemoteUrl};

/// The most levels of nested submodules. go-git has the same limit, and then leaves empty folders. Here it is an error.
const MAX_SUBMODULE_DEPTH: usize = 10;
/// The most submodules of one checkout, with any nesting. Two submodules in each of ten levels would be a thousand.
const MOST_SUBMODULES: usize = 256;

/// The requested parts of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedCommitContent {
    /// Whether submodules are fetched.
    pub submodules: bool,
    /// The folders that are taken.
    pub sparse: SparseCheckout,
}

/// A fetched commit, with its submodules if they were requested.
///
/// The scratch repositories are removed when this is dropped.
#[derive(Debug)]
pub struct FetchedCheckout {
    /// The revision of the artifact.
    pub revision: GitRevision,
    /// The facts of the commit.
    pub commit: CommitMetadata,
    /// The repository first.
    parts: Vec<CheckedOutRepository>,
    items: Vec<CheckoutItem>,
    read: AtomicU64,
    limit: u64,
    remote: String,
}

#[derive(Debug)]
struct CheckedOutRepository {
    /// The path from the root of the checkout. Empty for the repository itself.
    place: String,
    /// The URL from which the repository was fetched.
    url: RemoteUrl,
    depth: usize,
    fetched: GitSnapshot,
    listing: CommitTreeListing,
}

/// A file, link or submodule of a checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutItem {
    /// The path from the root of the checkout, with `/` between its parts; see [`TreeEntry::path`].
    pub path: String,
    /// The kind of entry. A submodule is a folder, and its files are items of their own.
    pub kind: TreeEntryKind,
    part: usize,
    entry: TreeEntry,
}

/// Fetches a commit, and its submodules if they are requested, within the time and the limits of the remote.
///
/// # Guarantees
/// The credentials of the remote are only sent to its own server.
///
/// # Errors
/// As [`fetch`](super::fetch); [`Error::Submodule`] and [`Error::BadSubmodule`] for a submodule that cannot be fetched, and
/// [`Error::SparseMissing`] for a folder that is not there.
pub fn checkout(
    remote: &GitRemote,
    reference: &GitReference,
    content: &RequestedCommitContent,
    context: &GitOperationContext,
) -> Result<FetchedCheckout, Error> {
    let begun = Instant::now();
    let fetched = super::fetch(remote, reference, context)?;
    let revision = fetched.revision.clone();
    let commit = fetched.commit.clone();
    let mut parts = vec![CheckedOutRepository::new(String::new(), remote.url.clone(), 0, fetched)?];
    if content.submodules {
        fetch_submodules(remote, content, context, begun, &mut parts)?;
    }
    let items = items(&parts, &content.sparse, remote)?;
    let read = AtomicU64::new(0);
    let limit = remote.limits.total;
    let remote = remote.url.to_string();
    Ok(FetchedCheckout { revision, commit, parts, items, read, limit, remote })
}

impl CheckedOutRepository {
    fn new(
        place: String,
        url: RemoteUrl,
        depth: usize,
        fetched: GitSnapshot,
    ) -> Result<Self, Error> {
        let listing = fetched.entries()?;
        Ok(Self { place, url, depth, fetched, listing })
    }

    fn path_of(&self, entry: &TreeEntry) -> String {
        match self.place.as_str() {
            "" => entry.path.clone(),
            place => format!("{place}/{}", entry.path),
        }
    }

    /// The requested submodules, each with its full path and its URL in `.gitmodules`.
    fn submodules(
        &self,
        sparse: &SparseCheckout,
    ) -> Result<Vec<(String, String, TreeEntry)>, Error> {
        let entries = &self.listing.entries;
        let mut wanted = entries
            .iter()
            .filter(|entry| {
                entry.kind == TreeEntryKind::Submodule && sparse.reaches(&self.path_of(entry))
            })
            .peekable();
        // A link could be anything, and Git does not follow it either.
        let file = |entry: &&TreeEntry| {
            entry.path == gitmodules_file::FILE && matches!(entry.kind, TreeEntryKind::File { .. })
        };
        let (Some(_), Some(file)) = (wanted.peek(), entries.iter().find(file)) else {
            return Ok(Vec::new());
        };
        if self.fetched.size(file)? > gitmodules_file::LONGEST_FILE {
            return Err(Error::TooLarge {
                remote: self.url.to_string(),
                what: format!("file `{}`", self.path_of(file)),
                limit: format!("{} bytes", gitmodules_file::LONGEST_FILE),
            });
        }
        let urls = gitmodules_file::urls(&self.fetched.read(file)?, &self.url.to_string())?;
        // Parity(flux): a submodule that `.gitmodules` does not list stays an empty folder.
        let named = wanted.filter_map(|entry| {
            let url = urls.get(&entry.path)?;
            Some((self.path_of(entry), url.clone(), entry.clone()))
        });
        Ok(named.collect())
    }
}

fn fetch_submodules(
    root: &GitRemote,
    content: &RequestedCommitContent,
    context: &GitOperationContext,
    begun: Instant,
    parts: &mut Vec<CheckedOutRepository>,
) -> Result<(), Error> {
    let mut left = VecDeque::from([0]);
    while let Some(parent) = left.pop_front() {
        for (path, url, entry) in parts[parent].submodules(&content.sparse)? {
            let from = parts[parent].url.clone();
            let depth = parts[parent].depth + 1;
            let too_many = |what: &str, limit: usize| Error::TooLarge {
                remote: root.url.to_string(),
                what: what.to_owned(),
                limit: limit.to_string(),
            };
            if depth > MAX_SUBMODULE_DEPTH {
                return Err(too_many("the nesting depth of submodules", MAX_SUBMODULE_DEPTH));
            }
            if parts.len() > MOST_SUBMODULES {
                return Err(too_many("the number of submodules", MOST_SUBMODULES));
            }
            let received = received(parts);
            let budget = SubmoduleBudget {
                timeout: root.timeout.saturating_sub(begun.elapsed()),
                received: root.limits.received.saturating_sub(received),
            };
            let sha = entry.submodule_commit();
            let (url, fetched) = fetch_one(root, &from, &path, &url, sha, budget, context)?;
            parts.push(CheckedOutRepository::new(path, url, depth, fetched)?);
            left.push_back(parts.len() - 1);
            if entries(parts) > root.limits.entries {
                let limit = root.limits.entries;
                return Err(too_many("the number of entries with submodules", limit));
            }
        }
    }
    Ok(())
}

/// The time and the bytes that are left for a submodule.
struct SubmoduleBudget {
    timeout: Duration,
    received: u64,
}

fn fetch_one(
    root: &GitRemote,
    from: &RemoteUrl,
    path: &str,
    url: &str,
    sha: String,
    budget: SubmoduleBudget,
    context: &GitOperationContext,
) -> Result<(RemoteUrl, GitSnapshot), Error> {
    let bad = |reason: String| Error::BadSubmodule {
        remote: from.to_string(),
        path: path.to_owned(),
        reason,
    };
    if budget.timeout.is_zero() {
        return Err(Error::TimedOut { remote: root.url.to_string(), timeout: root.timeout });
    }
    let url = gitmodules_file::resolve(from, url).map_err(bad)?;
    let mut remote = gitmodules_file::remote(root, url).map_err(bad)?;
    remote.timeout = budget.timeout;
    remote.limits.received = budget.received;
    let reference = GitReference::Commit { sha, branch: None, name: None };
    match super::fetch(&remote, &reference, context) {
        Ok(fetched) => Ok((remote.url, fetched)),
        Err(Error::AuthenticationFailed { remote: asked, cause })
            if !gitmodules_file::is_at_home(&root.url, &remote.url) =>
        {
            let home = root.url.authority();
            Err(bad(format!(
                "{asked} requires authentication ({cause}), and the credentials of the Secret are used for {home} \
                 only"
            )))
        }
        Err(source) => Err(Error::Submodule { path: path.to_owned(), source: Box::new(source) }),
    }
}

fn received(parts: &[CheckedOutRepository]) -> u64 {
    parts.iter().map(|part| part.fetched.received).sum()
}

fn entries(parts: &[CheckedOutRepository]) -> usize {
    parts.iter().map(|part| part.listing.entries.len() + part.listing.unreadable.len()).sum()
}

/// The requested entries of all parts.
fn items(
    parts: &[CheckedOutRepository],
    sparse: &SparseCheckout,
    remote: &GitRemote,
) -> Result<Vec<CheckoutItem>, Error> {
    let mut items = Vec::with_capacity(entries(parts));
    for (number, part) in parts.iter().enumerate() {
        for entry in &part.listing.entries {
            let path = part.path_of(entry);
            let kind = entry.kind;
            items.push(CheckoutItem { path, kind, part: number, entry: entry.clone() });
        }
    }
    if let Some(folder) = sparse.missing(items.iter().map(|item| item.path.as_str())) {
        let remote = remote.url.to_string();
        let folder = folder.to_owned();
        return Err(Error::SparseMissing { remote, folder });
    }
    items.retain(|item| sparse.takes(&item.path));
    Ok(items)
}

impl FetchedCheckout {
    /// The objects of the commit that may be signed. The commit contains the hashes of its submodules.
    ///
    /// # Errors
    /// The objects cannot be read.
    pub fn signable(&self) -> Result<SignableObjects, Error> {
        // The repository itself is always there.
        self.parts[0].fetched.signable()
    }

    /// The parents of the commit. See [`GitSnapshot::parents`].
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn parents(&self) -> Result<Vec<String>, Error> {
        // The repository itself is always there.
        self.parts[0].fetched.parents()
    }

    /// Bytes that came from remotes.
    pub fn received(&self) -> u64 {
        received(&self.parts)
    }

    /// The requested files of the commit and its submodules, in no particular order.
    pub fn items(&self) -> &[CheckoutItem] {
        &self.items
    }

    /// Paths that are not UTF-8, in a readable form. They cannot become files of an artifact.
    pub fn unreadable(&self) -> Vec<String> {
        let paths = self.parts.iter().flat_map(|part| {
            part.listing.unreadable.iter().map(|path| match part.place.as_str() {
                "" => path.clone(),
                place => format!("{place}/{path}"),
            })
        });
        paths.collect()
    }

    /// Reads an item: the content of a file, the target of a link, or no bytes for a submodule.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if a file, or all read files of all parts together, exceed the limit.
    pub fn read(&self, item: &CheckoutItem) -> Result<Vec<u8>, Error> {
        let Some(part) = self.parts.get(item.part) else { return Ok(Vec::new()) };
        let bytes = part.fetched.read(&item.entry)?;
        let length = bytes.len() as u64;
        let before = self.read.fetch_add(length, Ordering::Relaxed);
        if before.saturating_add(length) > self.limit {
            let remote = self.remote.clone();
            let limit = format!("{} bytes", self.limit);
            let what = "all files together".to_owned();
            return Err(Error::TooLarge { remote, what, limit });
        }
        Ok(bytes)
    }
}
