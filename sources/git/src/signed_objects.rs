//! The objects of a fetch that may have signatures: the commit, and the tag by which it was found.
//!
//! Elsewhere: signatures themselves (the engine `signatures`), finding a tag (`reference_lookup`).

use gix::hash::ObjectId;
use gix::objs::{FindExt as _, Kind};

use super::Error;
use super::operation_limits::GitOperation;

/// The most levels of tags of tags. Git itself has no limit.
const MAX_TAG_DEPTH: usize = 16;

/// A tag by which a commit was found.
#[derive(Debug, Clone)]
pub(super) struct ResolvedTag {
    name: String,
    id: Option<ObjectId>,
}

impl ResolvedTag {
    /// The tag object of a full reference name, if the name is of a tag.
    ///
    /// # Errors
    /// The tag leads to another commit than the server claims, so its signature would be for another commit.
    pub(super) fn of(
        refname: &str,
        id: Option<ObjectId>,
        commit: ObjectId,
        objects: &gix::odb::Handle,
        wire: &GitOperation,
    ) -> Result<Option<Self>, Error> {
        if let Some(id) = id
            && target(id, objects) != Some(commit)
        {
            let cause = format!("`{refname}` does not lead to commit {commit}");
            return Err(Error::Protocol { remote: wire.remote(), cause });
        }
        let name = refname.strip_prefix("refs/tags/");
        Ok(name.map(|name| Self { name: name.to_owned(), id }))
    }
}

/// The object to which a tag leads, through any tags between. `None` if an object is missing or too many tags follow
/// each other.
fn target(tag: ObjectId, objects: &gix::odb::Handle) -> Option<ObjectId> {
    let mut id = tag;
    let mut buffer = Vec::new();
    for _ in 0..MAX_TAG_DEPTH {
        if objects.find(&id, &mut buffer).ok()?.kind != Kind::Tag {
            return Some(id);
        }
        id = objects.find_tag(&id, &mut buffer).ok()?.target();
    }
    None
}

/// The objects of a commit that may be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignableObjects {
    /// The hash of the commit: forty hexadecimal digits in lower case.
    pub sha: String,
    /// The object of the commit, without the header that Git hashes before it.
    pub commit: Vec<u8>,
    /// The tag by which it was found.
    pub tag: Option<SignableTag>,
}

/// A tag by which a commit was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignableTag {
    /// The name of the tag, without `refs/tags/`.
    pub name: String,
    /// The hash of the tag object, and the object. `None` for a lightweight tag.
    pub object: Option<(String, Vec<u8>)>,
}

impl SignableObjects {
    /// Reads the signed objects: the commit, and the tag if it has an object.
    pub(super) fn read(
        id: ObjectId,
        tag: Option<&ResolvedTag>,
        objects: &gix::odb::Handle,
    ) -> Result<Self, gix::Error> {
        let read = |id: ObjectId| {
            let mut buffer = Vec::new();
            let data = objects.find(&id, &mut buffer)?.data.to_vec();
            Ok::<_, gix::Error>((id.to_string(), data))
        };
        let tag = tag.map(|tag| {
            let name = tag.name.clone();
            let object = tag.id.map(read).transpose()?;
            Ok::<_, gix::Error>(SignableTag { name, object })
        });
        let (sha, commit) = read(id)?;
        Ok(Self { sha, commit, tag: tag.transpose()? })
    }
}
