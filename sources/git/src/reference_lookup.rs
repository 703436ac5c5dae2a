//! Finds the requested reference among the references of a remote, and the commits that a fetch requests.
//!
//! Here: a name, the tag of the highest version, and the choice between tags of one version.
//! Elsewhere: the requests (`git_connection`), the cache between operations (`server_cache`).

use gix::hash::ObjectId;

use super::git_connection::{AdvertisedReference, GitConnection, HistoryDepth};
use super::operation_limits::GitOperation;
use super::reference::RemoteReferenceQuery;
use super::{
    Error, GitOperationContext, GitReference, GitRemote, commit_snapshot, scratch_repository,
};

/// The most tags of one version that differ only by build metadata. Their commits have to be examined.
const MOST_TIED: usize = 64;

/// The prefixes of branches and tags. A repository without any counts as empty.
const BRANCHES_AND_TAGS: [&str; 2] = ["refs/heads/", "refs/tags/"];

/// One operation on a remote: [`tip`](super::tip) or [`fetch`](super::fetch).
pub(super) struct GitFetchOperation<'a> {
    pub(super) remote: &'a GitRemote,
    pub(super) reference: &'a GitReference,
    pub(super) context: &'a GitOperationContext,
    pub(super) wire: &'a GitOperation,
}

/// The request of a fetch in one conversation.
pub(super) struct FetchRequest {
    /// The hashes of the commits, and of tags that lead to commits, that the server has to send.
    pub(super) wants: Vec<ObjectId>,
    pub(super) history: HistoryDepth,
    /// The requested commit. It has no name if it was requested by its hash.
    pub(super) target: AdvertisedReference,
}

impl RemoteReferenceQuery {
    fn prefixes(&self) -> Vec<&str> {
        match self {
            Self::Named(name) | Self::CommitOn(_, name) => vec![name.as_str()],
            Self::Highest(_) => vec!["refs/tags/"],
            Self::Commit(_) | Self::CommitAnywhere(_) => BRANCHES_AND_TAGS.to_vec(),
        }
    }

    /// The matching references: one for a name, the tags of the highest version for a range, and all for a bare commit.
    fn among(&self, all: Vec<AdvertisedReference>) -> Vec<AdvertisedReference> {
        match self {
            Self::Named(name) | Self::CommitOn(_, name) => {
                all.into_iter().filter(|found| found.name == *name).collect()
            }
            Self::Highest(range) => {
                let tags = all.iter().filter_map(|it| it.name.strip_prefix("refs/tags/"));
                let best = range.highest(tags).into_iter().map(|tag| format!("refs/tags/{tag}"));
                let best: Vec<String> = best.collect();
                all.into_iter().filter(|it| best.contains(&it.name)).collect()
            }
            Self::Commit(_) | Self::CommitAnywhere(_) => all,
        }
    }
}

impl GitFetchOperation<'_> {
    /// Finds the reference of a query. If an earlier handshake is remembered, it sends no new one.
    pub(super) fn look(&self, query: &RemoteReferenceQuery) -> Result<AdvertisedReference, Error> {
        let found = match self.look_again(query)? {
            Some(found) => found,
            None => {
                let mut conversation = self.open()?;
                let found = self.look_up(query, &mut conversation)?;
                self.remember(&conversation);
                found
            }
        };
        self.newest(found)
    }

    /// The request of a fetch. It is looked up in the conversation, except for a bare commit.
    pub(super) fn fetch_request(
        &self,
        query: &RemoteReferenceQuery,
        conversation: &mut GitConnection,
    ) -> Result<FetchRequest, Error> {
        let bare = |id: ObjectId| AdvertisedReference { name: String::new(), id, tag: None };
        Ok(match query {
            RemoteReferenceQuery::Named(_) | RemoteReferenceQuery::Highest(_) => {
                let found = self.look_up(query, conversation)?;
                self.remember(conversation);
                let target = self.newest(found)?;
                let wants = vec![target.tag.unwrap_or(target.id)];
                FetchRequest { wants, history: HistoryDepth::None, target }
            }
            RemoteReferenceQuery::CommitOn(id, _) => {
                let tip = self.newest(self.look_up(query, conversation)?)?.id;
                let history = if tip == *id { HistoryDepth::None } else { HistoryDepth::All };
                FetchRequest { wants: vec![tip], history, target: bare(*id) }
            }
            RemoteReferenceQuery::Commit(id) => {
                FetchRequest { wants: vec![*id], history: HistoryDepth::None, target: bare(*id) }
            }
            RemoteReferenceQuery::CommitAnywhere(id) => {
                let found = self.look_up(query, conversation)?;
                let mut wants: Vec<ObjectId> = found.into_iter().map(|found| found.id).collect();
                wants.sort_unstable();
                wants.dedup();
                FetchRequest { wants, history: HistoryDepth::All, target: bare(*id) }
            }
        })
    }

    pub(super) fn open(&self) -> Result<GitConnection, Error> {
        GitConnection::open(self.remote, &self.context.known, self.wire)
    }

    /// Looks the reference up with a remembered handshake. `None` if there is no such handshake, or if the answer does not
    /// count.
    ///
    /// A reference counts as missing only after a new handshake.
    fn look_again(
        &self,
        query: &RemoteReferenceQuery,
    ) -> Result<Option<Vec<AdvertisedReference>>, Error> {
        let known = &self.context.known;
        let Some(resumed) = GitConnection::resume(self.remote, known, self.wire) else {
            return Ok(None);
        };
        let listed = resumed.and_then(|mut it| it.references(&query.prefixes()));
        let found = listed.ok().map(|all| query.among(all)).filter(|found| !found.is_empty());
        if found.is_none() {
            known.forget(self.remote);
            self.wire.check()?;
            self.wire.start_over();
        }
        Ok(found)
    }

    /// Lists the matching references in a conversation. There is at least one.
    fn look_up(
        &self,
        query: &RemoteReferenceQuery,
        conversation: &mut GitConnection,
    ) -> Result<Vec<AdvertisedReference>, Error> {
        let prefixes = query.prefixes();
        let found = query.among(conversation.references(&prefixes)?);
        if !found.is_empty() {
            return Ok(found);
        }
        let remote = self.wire.remote();
        // Only at this point does it matter whether the repository is empty.
        if prefixes == BRANCHES_AND_TAGS || conversation.references(&BRANCHES_AND_TAGS)?.is_empty()
        {
            return Err(Error::EmptyRepository { remote });
        }
        Err(match query {
            RemoteReferenceQuery::Highest(range) => {
                Error::NoMatch { remote, range: range.to_string() }
            }
            RemoteReferenceQuery::CommitOn(_, name) => {
                let branch = name.trim_start_matches("refs/heads/").to_owned();
                super::no_such(&GitReference::Branch(branch), self.wire)
            }
            _ => super::no_such(self.reference, self.wire),
        })
    }

    /// Lets the next lookup skip the handshake. The server found a reference, so it answers such requests.
    fn remember(&self, conversation: &GitConnection) {
        let known = &self.context.known;
        match conversation.advertisement() {
            Some(said) => known.remember(self.remote, said),
            None => known.forget(self.remote),
        }
    }

    /// The reference whose commit is the youngest; of equally old ones the last by name.
    ///
    /// Parity(flux): versions that differ only by what does not count, such as metadata, are ordered by when they were
    /// committed.
    /// Differs(flux): in Flux the order of equally old ones is random.
    fn newest(&self, mut found: Vec<AdvertisedReference>) -> Result<AdvertisedReference, Error> {
        let remote = self.wire.remote();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        if let [first, _, ..] = found.as_slice() {
            if found.len() > MOST_TIED {
                let what =
                    format!("the number of tags that are the same version as {}", first.name);
                return Err(Error::TooLarge { remote, what, limit: MOST_TIED.to_string() });
            }
            let times = self.commit_times(&found)?;
            let mut dated: Vec<_> = times.into_iter().zip(found).collect();
            dated.sort_by_key(|(time, _)| *time);
            found = dated.into_iter().map(|(_, found)| found).collect();
        }
        found.pop().ok_or(Error::EmptyRepository { remote })
    }

    /// The times of commits, by the clock of the committer. `None` for an object that is not a commit.
    ///
    /// The commits are fetched without files if the server supports that. The times are remembered, since they cannot change.
    fn commit_times(&self, found: &[AdvertisedReference]) -> Result<Vec<Option<i64>>, Error> {
        let known = &self.context.known;
        let limits = &self.remote.limits;
        let mut missing: Vec<_> = found.iter().map(|found| found.id).collect();
        missing.retain(|id| known.commit_time(*id).is_none());
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(found.iter().map(|found| known.commit_time(found.id).flatten()).collect());
        }
        let scratch = scratch_repository(self.context)?;
        self.open()?.fetch(&missing, HistoryDepth::NoneNorFiles, scratch.path(), limits.file)?;
        let objects = commit_snapshot::objects(&scratch, limits)?;
        let time = |found: &AdvertisedReference| {
            known.commit_time(found.id).unwrap_or_else(|| {
                let time = commit_snapshot::commit_time(found.id, &objects);
                known.remember_commit_time(found.id, time);
                time
            })
        };
        Ok(found.iter().map(time).collect())
    }
}
