//! Finding the requested reference among those of a remote.
//!
//! Here: a name, the tag of the highest version, and what decides between tags of one version.
//! Elsewhere: the questions that are asked (`conversation`), what is remembered between operations (`server_cache`).

use tempfile::TempDir;

use super::conversation::{Conversation, History, RemoteReference};
use super::server_cache::GitServerCache;
use super::wire::Wire;
use super::{Context, Error, Reference, Remote, scratch_repository, snapshot};
use crate::versions::Range;

/// Tags that are the same version but for its metadata; their commits have to be examined.
const MOST_TIED: usize = 64;

/// What is looked for.
pub(super) enum Sought<'a> {
    /// A reference by its full name.
    Name(&'a str),
    /// The tag of the highest version in a range.
    Highest(&'a Range),
}

impl Sought<'_> {
    fn prefix(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Highest(_) => "refs/tags/",
        }
    }

    /// The matching references: one, unless tags are of the same version.
    fn among(&self, all: Vec<RemoteReference>) -> Vec<RemoteReference> {
        match self {
            Self::Name(name) => all.into_iter().filter(|found| found.name == *name).collect(),
            Self::Highest(range) => {
                let tag = |found: &RemoteReference| {
                    found.name.strip_prefix("refs/tags/").map(str::to_owned)
                };
                let tags: Vec<String> = all.iter().filter_map(tag).collect();
                let best = range.highest(tags.iter().map(String::as_str));
                all.into_iter()
                    .filter(|it| tag(it).is_some_and(|tag| best.contains(&tag.as_str())))
                    .collect()
            }
        }
    }
}

/// Finds what is sought: without shaking hands if that was done before, else properly.
pub(super) fn look(
    remote: &Remote,
    sought: &Sought<'_>,
    reference: &Reference,
    context: &Context,
    wire: &Wire,
) -> Result<RemoteReference, Error> {
    let known = &context.known;
    let found = match look_again(remote, sought, known, wire)? {
        Some(found) => found,
        None => {
            let mut conversation = Conversation::open(remote, known, wire)?;
            let found = look_up(&mut conversation, sought, reference, wire)?;
            remember(&conversation, remote, known);
            found
        }
    };
    newest(found, remote, context, wire)
}

/// Lets the next lookup begin with its question. A reference was found, so the server answers such questions.
pub(super) fn remember(conversation: &Conversation, remote: &Remote, known: &GitServerCache) {
    match conversation.advertisement() {
        Some(said) => known.remember(remote, said),
        None => known.forget(remote),
    }
}

/// Looks without shaking hands again. `None`: it must be asked for properly.
///
/// A missing reference counts only after a real handshake: it is not concluded from a remembered one.
fn look_again(
    remote: &Remote,
    sought: &Sought<'_>,
    known: &GitServerCache,
    wire: &Wire,
) -> Result<Option<Vec<RemoteReference>>, Error> {
    let Some(resumed) = Conversation::resume(remote, known, wire) else { return Ok(None) };
    let listed = resumed.and_then(|mut talk| talk.references(&[sought.prefix()]));
    let found = listed.ok().map(|all| sought.among(all)).filter(|found| !found.is_empty());
    if found.is_none() {
        known.forget(remote);
        wire.check()?;
        wire.start_over();
    }
    Ok(found)
}

/// Looks in a conversation; gives at least one.
pub(super) fn look_up(
    conversation: &mut Conversation,
    sought: &Sought<'_>,
    reference: &Reference,
    wire: &Wire,
) -> Result<Vec<RemoteReference>, Error> {
    let found = sought.among(conversation.references(&[sought.prefix()])?);
    if !found.is_empty() {
        return Ok(found);
    }
    // Only now does it matter whether there is anything at all.
    if conversation.references(&["refs/heads/", "refs/tags/"])?.is_empty() {
        return Err(Error::EmptyRepository { remote: wire.remote() });
    }
    Err(match sought {
        Sought::Name(_) => super::no_such(reference, wire),
        Sought::Highest(range) => {
            Error::NoMatch { remote: wire.remote(), range: range.to_string() }
        }
    })
}

/// The one whose commit is the youngest; of equal ones the last by name.
///
/// Parity(flux): versions that differ by what does not count, such as metadata, are ordered by when they were committed.
/// Differs(flux): in Flux the order of equally old ones is random.
pub(super) fn newest(
    mut found: Vec<RemoteReference>,
    remote: &Remote,
    context: &Context,
    wire: &Wire,
) -> Result<RemoteReference, Error> {
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if let [_, _, ..] = found.as_slice() {
        if found.len() > MOST_TIED {
            let remote = wire.remote();
            let limit = MOST_TIED.to_string();
            let what = format!("the number of tags that are the same version as {}", found[0].name);
            return Err(Error::TooLarge { remote, what, limit });
        }
        let times = commit_times(&found, remote, context, wire)?;
        let mut dated: Vec<_> = times.into_iter().zip(found).collect();
        dated.sort_by_key(|(time, _)| *time);
        found = dated.into_iter().map(|(_, found)| found).collect();
    }
    found.pop().ok_or_else(|| Error::EmptyRepository { remote: wire.remote() })
}

/// When commits were made, by the clock of the committer; `None` for an object that is not a commit.
///
/// They are fetched without their files where the server can do that, and remembered, since it cannot change.
fn commit_times(
    found: &[RemoteReference],
    remote: &Remote,
    context: &Context,
    wire: &Wire,
) -> Result<Vec<Option<i64>>, Error> {
    let known = &context.known;
    let mut missing: Vec<_> = found.iter().map(|found| found.id).collect();
    missing.retain(|id| known.commit_time(*id).is_none());
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(found.iter().map(|found| known.commit_time(found.id).flatten()).collect());
    }
    let scratch: TempDir = scratch_repository(context)?;
    let mut conversation = Conversation::open(remote, known, wire)?;
    conversation.fetch(&missing, History::NoneNorFiles, scratch.path(), remote.limits.file)?;
    let objects = snapshot::objects(&scratch, &remote.limits)?;
    let time = |found: &RemoteReference| {
        let time = known.commit_time(found.id).unwrap_or_else(|| {
            let time = snapshot::commit_time(found.id, &objects);
            known.remember_commit_time(found.id, time);
            time
        });
        Ok(time)
    };
    found.iter().map(time).collect()
}
