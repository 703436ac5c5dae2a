//! Makes commits on top of a fetched commit, and sends them in one push.
//!
//! Elsewhere: objects and the pack (`objects`), the bytes of the protocol (`receive_pack`), the connection (`git_connection`).

use std::collections::{BTreeMap, BTreeSet};

use gix::hash::ObjectId;
use gix::objs::FindExt as _;
use jiff::Timestamp;

use super::error::{PushError, PushRejection, PushRejectionCause, RejectedReference};
use super::objects::{GitFileChange, NewGitObjects};
use super::receive_pack::{
    self, LONGEST_TEXT, MOST_COMMANDS, MOST_OPTIONS, NegotiatedCapabilities, PushStatusReport,
    ReferenceCommand,
};
use super::signer::CommitSigner;
use crate::error::shown;
use crate::git_connection::{GitConnection, HistoryDepth, agent};
use crate::operation_limits::GitOperation;
use crate::reference::{full_name, hash};
use crate::{Error, GitOperationContext, GitRemote, GitSnapshot, leads_to, scratch_repository};

/// The name and e-mail address of an author or committer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitIdentity {
    /// May be empty.
    pub name: String,
    /// The e-mail address, without `<` and `>`.
    pub email: String,
}

/// The metadata of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommitMetadata {
    /// The author.
    pub author: CommitIdentity,
    /// The committer.
    pub committer: CommitIdentity,
    /// The message. It is stored unchanged, even if it is empty. Only NUL is left out.
    pub message: String,
    /// The time of writing, committing and signing.
    pub at: Timestamp,
}

/// The request for one push.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushRequest {
    /// The references that are to be elsewhere.
    pub references: Vec<ReferenceUpdate>,
    /// Push options, which hooks of the server read. If the server does not support them, nothing is pushed.
    pub options: Vec<String>,
}

/// An update of a reference to the newest commit, or to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceUpdate {
    /// The full name, such as `refs/heads/main`.
    pub name: String,
    /// A commit that the server has, in forty hexadecimal digits, instead of the newest one.
    pub commit: Option<String>,
    /// The rule for the former commit of the reference.
    pub rule: ReferenceUpdateRule,
}

/// The rule for the former commit of a reference, under which the reference may be updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceUpdateRule {
    /// The reference may be missing, or at an ancestor of the new commit. The fetched reference must not have moved.
    FastForward,
    /// The reference may be missing, or at this commit. This is a force push that overwrites nothing else.
    OverwriteOnly(Option<String>),
    /// The reference may be anywhere. This is a force push.
    Overwrite,
}

/// A push that the server accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// The newest commit: forty hexadecimal digits.
    pub commit: String,
    /// The references that were updated. The others were there already.
    pub updated: Vec<String>,
}

/// The commit on which new commits are based.
struct CommitBase {
    id: ObjectId,
    /// The full name of the reference that it was fetched by, if it was one.
    reference: Option<String>,
    parents: Vec<ObjectId>,
}

/// A fetched commit, and commits on top of it that the server does not have yet.
///
/// # Guarantees
/// Nothing is written to a disk. Unchanged files, modes, links and submodules are not read, and stay. The same changes and
/// details make the same commits, unless the signature contains random data.
pub struct PushWorkspace<'s> {
    base: Option<CommitBase>,
    objects: NewGitObjects<'s>,
    tree: Option<ObjectId>,
    commits: Vec<ObjectId>,
}

impl<'s> PushWorkspace<'s> {
    /// Begins on top of a commit that was fetched.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn on(snapshot: &'s GitSnapshot, remote: &GitRemote) -> Result<Self, PushError> {
        let name = remote.url.to_string();
        let mut buffer = Vec::new();
        let commit = snapshot.objects.find_commit(&snapshot.id, &mut buffer).map_err(|error| {
            Error::Protocol { remote: name.clone(), cause: error.probable_cause().to_string() }
        })?;
        let parents = commit.parents().collect();
        let reference = snapshot.revision.name.as_ref().map(|name| match name.as_str() {
            full if full.starts_with("refs/") => full.to_owned(),
            branch => format!("refs/heads/{branch}"),
        });
        let base = CommitBase { id: snapshot.id, reference, parents };
        let objects = NewGitObjects::new(Some(&snapshot.objects), name, snapshot.limits.entries);
        Ok(Self { base: Some(base), objects, tree: Some(snapshot.tree), commits: Vec::new() })
    }

    /// Begins in a repository without commits.
    pub fn of_empty_repository(remote: &GitRemote) -> Self {
        let objects = NewGitObjects::new(None, remote.url.to_string(), remote.limits.entries);
        Self { base: None, objects, tree: None, commits: Vec::new() }
    }

    fn newest(&self) -> Option<ObjectId> {
        self.commits.last().copied().or(self.base.as_ref().map(|base| base.id))
    }

    /// The newest commit: forty hexadecimal digits. `None` in a repository without commits.
    pub fn head(&self) -> Option<String> {
        self.newest().map(|id| id.to_string())
    }

    /// Makes a commit of changed files on top of the newest commit, and returns its hash. The files are given by their paths
    /// from the root. `None` without a commit if no file differs.
    ///
    /// # Errors
    /// [`PushError::Unwritable`] for a path that leads out of the tree, through a file, link or submodule, or to one of the
    /// latter two; [`PushError::Unsigned`]. Nothing is changed then.
    pub fn commit(
        &mut self,
        changes: &BTreeMap<String, GitFileChange>,
        details: &NewCommitMetadata,
        signer: Option<&CommitSigner>,
    ) -> Result<Option<String>, PushError> {
        let made = self.try_commit(changes, details, signer);
        if !matches!(made, Ok(Some(_))) {
            self.objects.discard();
        }
        made
    }

    /// Whether a commit of changed files on top of the newest commit is possible, and a file would differ. The changes are not
    /// kept.
    ///
    /// # Errors
    /// As [`Self::commit`], except for errors of signing.
    pub fn differs(
        &mut self,
        changes: &BTreeMap<String, GitFileChange>,
    ) -> Result<bool, PushError> {
        let edited = self.objects.edit(self.tree, changes);
        self.objects.discard();
        Ok(edited?.is_some())
    }

    fn try_commit(
        &mut self,
        changes: &BTreeMap<String, GitFileChange>,
        details: &NewCommitMetadata,
        signer: Option<&CommitSigner>,
    ) -> Result<Option<String>, PushError> {
        let Some(tree) = self.objects.edit(self.tree, changes)? else { return Ok(None) };
        let seconds = details.at.as_second();
        let mut commit = gix::objs::Commit {
            tree,
            parents: self.newest().into_iter().collect(),
            author: details.author.at(seconds),
            committer: details.committer.at(seconds),
            encoding: None,
            message: details.message.replace('\0', "").into(),
            extra_headers: Vec::new(),
        };
        if let Some(signer) = signer {
            let payload = self.objects.bytes(&commit)?;
            let signature = signer.sign(&payload, u64::try_from(seconds).unwrap_or_default())?;
            commit.extra_headers.push(("gpgsig".into(), signature.into()));
        }
        let id = self.objects.add_commit(&commit)?;
        self.tree = Some(tree);
        self.commits.push(id);
        Ok(Some(id.to_string()))
    }

    /// Sends all commits in one push, and updates the references. If the server supports it, all references are updated or
    /// none is.
    ///
    /// A reference that is at the newest commit already is not touched. If all are, nothing is sent, and that is success. It
    /// blocks, as a fetch does, and takes no longer than [`GitRemote::timeout`].
    ///
    /// # Errors
    /// See [`PushError`]. Its variants tell which commits may be at the server now.
    pub fn push(
        &self,
        request: &PushRequest,
        remote: &GitRemote,
        context: &GitOperationContext,
    ) -> Result<PushOutcome, PushError> {
        let wire = GitOperation::new(remote, context);
        let empty = || Error::EmptyRepository { remote: wire.remote() };
        let new = self.newest().ok_or_else(empty)?;
        check(request, &wire)?;
        let mut conversation = GitConnection::open_to_push(remote, &context.known, &wire)?;
        let advertised = advertised(&mut conversation)?;
        let mut commands = Vec::new();
        for update in &request.references {
            let old = advertised.get(&update.name).copied();
            let new = update.commit.as_deref().map_or(Ok(new), hash)?;
            if old == Some(new) {
                continue;
            }
            if !self.is_admitted(update, old, remote, context, &wire)? {
                return Err(outdated(&update.name, &wire));
            }
            commands.push(ReferenceCommand { old, new, name: update.name.clone() });
        }
        if commands.is_empty() {
            return Ok(PushOutcome { commit: new.to_string(), updated: Vec::new() });
        }
        let agreement = agree(&conversation, commands.len(), &request.options, &wire)?;
        let agent = agent().1.unwrap_or_default();
        let pack = self.objects.pack()?;
        let sent = receive_pack::request(&commands, agreement, &agent, &request.options, &pack);
        drop(pack);
        let answer = conversation.send_pack(&sent, agreement.is_banded)?;
        drop(conversation);
        let Some(report) = receive_pack::report(&answer, agreement.is_banded, &commands) else {
            let cause = "the report on the push is incomplete or contradicts itself".to_owned();
            return Err(PushError::Unanswered(Error::Protocol { remote: wire.remote(), cause }));
        };
        if report.rejected.is_empty() && report.unpack_error.is_none() {
            return Ok(PushOutcome { commit: new.to_string(), updated: report.updated });
        }
        Err(rejection(report, &commands, remote, context, &wire))
    }

    /// Whether a reference may be updated from its present commit.
    fn is_admitted(
        &self,
        update: &ReferenceUpdate,
        old: Option<ObjectId>,
        remote: &GitRemote,
        context: &GitOperationContext,
        wire: &GitOperation,
    ) -> Result<bool, Error> {
        let is_own = |base: &CommitBase| base.reference.as_ref() == Some(&update.name);
        let is_fetched = self.base.as_ref().is_some_and(is_own);
        let old = match (&update.rule, old) {
            (ReferenceUpdateRule::Overwrite, _) => return Ok(true),
            (ReferenceUpdateRule::OverwriteOnly(expected), old) => {
                return Ok(*expected == old.map(|id| id.to_string()));
            }
            // The fetched reference is gone.
            (ReferenceUpdateRule::FastForward, None) => return Ok(!is_fetched),
            (ReferenceUpdateRule::FastForward, Some(old)) => old,
        };
        if let Some(commit) = &update.commit {
            return is_in_history(hash(commit)?, old, remote, context, wire);
        }
        if self.commits.contains(&old) {
            return Ok(true);
        }
        let Some(base) = &self.base else { return Ok(false) };
        // One that was fetched and is elsewhere was pushed to.
        if base.id == old || is_fetched {
            return Ok(base.id == old);
        }
        Ok(base.parents.contains(&old) || is_in_history(base.id, old, remote, context, wire)?)
    }
}

/// Whether `ancestor` is the commit `tip` of the remote, or in its history. A branch at `ancestor` then has no commit that
/// `tip` lacks. The history is fetched, without files if the server supports that. It blocks, as a fetch does.
///
/// # Errors
/// A hash is not valid, or the server does not send the history.
pub fn is_ancestor(
    remote: &GitRemote,
    tip: &str,
    ancestor: &str,
    context: &GitOperationContext,
) -> Result<bool, Error> {
    let tip = hash(tip)?;
    let ancestor = hash(ancestor)?;
    if tip == ancestor {
        return Ok(true);
    }
    is_in_history(tip, ancestor, remote, context, &GitOperation::new(remote, context))
}

/// Whether a commit is in the history of another. Only the whole history shows that. It is fetched without files if the server
/// supports that.
fn is_in_history(
    tip: ObjectId,
    wanted: ObjectId,
    remote: &GitRemote,
    context: &GitOperationContext,
    wire: &GitOperation,
) -> Result<bool, Error> {
    let scratch = scratch_repository(context)?;
    let mut conversation = GitConnection::open(remote, &context.known, wire)?;
    let largest = remote.limits.file;
    conversation.fetch(&[tip], HistoryDepth::AllNorFiles, scratch.path(), largest)?;
    drop(conversation);
    leads_to(tip, wanted, &scratch, remote, wire)
}

impl CommitIdentity {
    /// The signature line of a commit. Characters that would end a name or an address early are left out, as Git does.
    fn at(&self, seconds: i64) -> gix::actor::Signature {
        let clean = |text: &str| {
            let kept = text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>'));
            kept.collect::<String>().trim().to_owned()
        };
        gix::actor::Signature {
            name: clean(&self.name).into(),
            email: clean(&self.email).into(),
            time: gix::date::Time::new(seconds, 0),
        }
    }
}

/// Checks the request before it is sent.
fn check(request: &PushRequest, wire: &GitOperation) -> Result<(), Error> {
    let too_large = |what: &str, limit: usize| Error::TooLarge {
        remote: wire.remote(),
        what: what.to_owned(),
        limit: limit.to_string(),
    };
    if request.references.len() > MOST_COMMANDS {
        return Err(too_large("the number of references of a push", MOST_COMMANDS));
    }
    let mut names = BTreeSet::new();
    for update in &request.references {
        let invalid = |reason: &str| Error::InvalidReference {
            kind: "full reference",
            name: shown(&update.name),
            reason: reason.to_owned(),
        };
        let name = full_name("full reference", "", &update.name)?;
        if !name.starts_with("refs/") {
            return Err(invalid("it must start with refs/, as in `refs/heads/main`"));
        }
        // Git's programs would read such a branch as an option.
        if ["refs/heads/-", "refs/tags/-"].iter().any(|start| name.starts_with(start)) {
            return Err(invalid("a branch or tag must not start with `-`"));
        }
        if name.len() > LONGEST_TEXT {
            return Err(too_large("the name of a reference", LONGEST_TEXT));
        }
        if !names.insert(name) {
            return Err(invalid("it is updated twice"));
        }
    }
    if request.options.len() > MOST_OPTIONS {
        return Err(too_large("the number of push options", MOST_OPTIONS));
    }
    for option in &request.options {
        if option.len() > LONGEST_TEXT {
            return Err(too_large("a push option", LONGEST_TEXT));
        }
        if option.is_empty() || option.contains(char::is_control) {
            let message = "a push option is empty or has a control character in it".to_owned();
            return Err(Error::Refused { remote: wire.remote(), message });
        }
    }
    Ok(())
}

/// The present commits of the remote's references.
fn advertised(conversation: &mut GitConnection) -> Result<BTreeMap<String, ObjectId>, Error> {
    let all = conversation.references(&["refs/"])?;
    // A reference to an annotated tag is at the tag object, and not at the commit of the tag.
    Ok(all.into_iter().map(|found| (found.name, found.tag.unwrap_or(found.id))).collect())
}

/// Chooses the capabilities of the server that this push uses.
fn agree(
    conversation: &GitConnection,
    commands: usize,
    options: &[String],
    wire: &GitOperation,
) -> Result<NegotiatedCapabilities, Error> {
    let refused =
        |message: &str| Error::Refused { remote: wire.remote(), message: message.to_owned() };
    if !conversation.offers("report-status") {
        return Err(refused("it does not report what becomes of a push"));
    }
    if !options.is_empty() && !conversation.offers("push-options") {
        return Err(refused("it does not take push options; remove spec.git.push.options"));
    }
    Ok(NegotiatedCapabilities {
        is_banded: conversation.offers("side-band-64k"),
        is_atomic: commands > 1 && conversation.offers("atomic"),
        is_quiet: conversation.offers("quiet"),
        has_object_format: conversation.capability("object-format").as_deref() == Some("sha1"),
        has_push_options: !options.is_empty(),
        has_agent: conversation.offers("agent"),
    })
}

fn outdated(name: &str, wire: &GitOperation) -> PushError {
    let reason = "it is not where it was fetched".to_owned();
    PushError::Rejected(Box::new(PushRejection {
        remote: wire.remote(),
        cause: PushRejectionCause::Outdated,
        references: vec![RejectedReference { name: name.to_owned(), reason }],
        updated: Vec::new(),
        message: String::new(),
    }))
}

/// The rejected references, and whether the server may accept them later.
///
/// The reason is a text for people, and each server words it differently. Whether a reference moved is therefore read from the
/// reference.
fn rejection(
    report: PushStatusReport,
    commands: &[ReferenceCommand],
    remote: &GitRemote,
    context: &GitOperationContext,
    wire: &GitOperation,
) -> PushError {
    let PushStatusReport { unpack_error, updated, mut rejected } = report;
    let message = wire.overheard();
    for reference in &mut rejected {
        reference.reason = wire.quote(&reference.reason);
    }
    if let Some(reason) = unpack_error {
        let failed = |command: &ReferenceCommand| RejectedReference {
            name: command.name.clone(),
            reason: wire.quote(&reason),
        };
        rejected = commands.iter().map(failed).collect();
    }
    wire.start_over();
    let now = GitConnection::open_to_push(remote, &context.known, wire)
        .and_then(|mut conversation| advertised(&mut conversation));
    let has_moved = |command: &ReferenceCommand| {
        let is_rejected = rejected.iter().any(|rejected| rejected.name == command.name);
        is_rejected && now.as_ref().is_ok_and(|now| now.get(&command.name).copied() != command.old)
    };
    let cause = match commands.iter().any(has_moved) {
        true => PushRejectionCause::Outdated,
        false => PushRejectionCause::Declined,
    };
    let remote = wire.remote();
    PushError::Rejected(Box::new(PushRejection {
        remote,
        cause,
        references: rejected,
        updated,
        message,
    }))
}
