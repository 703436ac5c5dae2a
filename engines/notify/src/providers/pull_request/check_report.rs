//! The result of a check on a pull request: one comment, which later checks edit, and a commit status.
//!
//! Here: the order of requests, and which comment is used. Elsewhere: differences between forges (`forge`), the driver
//! (`conversation`), the text of the comment (the caller).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::forge::{
    self, Forge, ForgeKind, ListedComment, NewCommitStatus, PAGE_COMMENTS, is_commit,
};
use super::forge_call_sequence::{ForgeCallResultSlot, ForgeCallSequence, PullRequestError};
use super::forge_failure::{COMMAND_ADVICE, accepted, is_rate_limit};
use super::is_same_body;
use crate::api_objects::{Alert, Provider, SecretData};
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::assemble;
use crate::providers::pull_request_comment::without_commands;

/// The most pages of comments that are read. GitHub allows at most 2500 comments on a pull request.
const MAX_COMMENT_PAGES: u32 = 250;

/// The most additional comments of its own that one check deletes.
const MAX_DELETED_COMMENTS: usize = 20;

/// The result of a check on a pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequestCheck {
    /// The number of the pull request in the repository.
    pub number: u64,
    /// The commit that was checked, as 40 or 64 hexadecimal digits.
    pub commit: String,
    /// The first line of the comment, by which later checks find it.
    pub marker: String,
    /// The text of the comment in Markdown, cut to the forge's limit. Lines that a forge would execute are shown as text.
    pub comment: String,
    /// The name of the commit status.
    pub status: String,
    /// Whether the commit status is a success.
    pub is_success: bool,
    /// The description of the commit status. GitHub accepts 140 characters.
    pub description: String,
}

/// The change that was made to the comment of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckCommentOutcome {
    /// The comment was created.
    Created,
    /// The text of the comment was replaced.
    Updated,
    /// The comment already had this text.
    Unchanged,
    /// No change, because the pull request has another commit than the checked one.
    OtherCommit,
}

/// The result of posting a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestCheckResult {
    /// The change to the comment. The commit status is set in any case.
    pub comment: CheckCommentOutcome,
}

/// The conversation with a forge that writes the comment of a check and sets its commit status.
///
/// The status is set first. The comment is the oldest one by the token's user that begins with the marker. It is created if
/// there is none, and its text is replaced if it differs.
///
/// # Guarantees
/// A comment of another author is never edited or deleted. Only complete lists prove that there is no comment. If several
/// checks run at once, only the oldest of their comments stays. The comment is not changed if the pull request has another
/// commit than the checked one, because such a check is late or has a wrong number.
pub type PullRequestCheckPosting = ForgeCallSequence<PullRequestCheckResult>;

impl PullRequestCheckPosting {
    /// Creates a conversation with the forge of a Provider. The Provider's type must be `github`, `gitlab` or `gitea`, and its
    /// address the URL of the repository.
    ///
    /// `now` is in seconds since 1970. `secret` returns a Secret by namespace and name, or `None` if it is missing.
    pub fn new(
        check: PullRequestCheck,
        provider: &Provider,
        now: i64,
        secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    ) -> Self {
        let result = ForgeCallResultSlot::default();
        let flow = begin(check, provider, now, secret, result.clone());
        Self::of(flow, result)
    }
}

fn begin(
    check: PullRequestCheck,
    provider: &Provider,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    result: ForgeCallResultSlot<PullRequestCheckResult>,
) -> ProviderNextAction {
    let kind = &provider.spec.r#type;
    let Some(forge_kind) = ForgeKind::of(kind) else {
        return ProviderNextAction::failed(format!("`{kind}` is not a forge"));
    };
    if !is_commit(&check.commit) {
        return ProviderNextAction::failed(format!(
            "`{}` is not the name of a commit: 40 or 64 hexadecimal digits are",
            check.commit
        ));
    }
    if check.marker.is_empty() || !check.comment.starts_with(&check.marker) {
        return ProviderNextAction::failed("the comment does not begin with its marker");
    }
    let options = match assemble(provider, &Alert::default(), String::new(), now, secret) {
        Ok((options, _)) => options,
        Err(message) => return ProviderNextAction::failed(message),
    };
    let check = PullRequestCheck { comment: without_commands(&check.comment), ..check };
    forge::connect(forge_kind, &options, move |forge| {
        let steps = PullRequestCheckSteps {
            forge,
            check,
            result,
            now,
            status_error: None,
            author: String::new(),
            seen: BTreeSet::new(),
            own: BTreeMap::new(),
            is_created: false,
            deleted: 0,
        };
        steps.set_status()
    })
}

/// The steps of a conversation, once the login is known.
struct PullRequestCheckSteps {
    forge: Forge,
    check: PullRequestCheck,
    result: ForgeCallResultSlot<PullRequestCheckResult>,
    now: i64,
    /// Why the status was not set. The comment is written all the same.
    status_error: Option<PullRequestError>,
    /// The user of the token.
    author: String,
    /// The ids of all comments that were listed.
    seen: BTreeSet<u64>,
    /// The bodies of the check's own comments, by id. The lowest id is the oldest comment.
    own: BTreeMap<u64, String>,
    is_created: bool,
    deleted: usize,
}

impl PullRequestCheckSteps {
    fn end(self, comment: Result<CheckCommentOutcome, PullRequestError>) -> ProviderNextAction {
        let result = match self.status_error {
            Some(error) => Err(error),
            None => comment.map(|comment| PullRequestCheckResult { comment }),
        };
        drop(self.result.set(result));
        ProviderNextAction::Done
    }

    /// The name of the pull request in messages: `pull request 7 of acme/fleet`.
    fn subject(&self) -> String {
        format!("{} {} of {}", self.forge.noun(), self.check.number, self.forge.repository)
    }

    fn accepted(
        &self,
        what: &str,
        answer: Result<HttpResponse, String>,
        statuses: &[u16],
    ) -> Result<HttpResponse, PullRequestError> {
        accepted(what, answer, statuses, self.now, &COMMAND_ADVICE)
    }

    fn set_status(self) -> ProviderNextAction {
        let PullRequestCheck { commit, status: name, is_success, description, .. } = &self.check;
        let status = NewCommitStatus { commit, name, is_success: *is_success, description };
        let request = self.forge.set_status(&status);
        request.send(move |answer| {
            let PullRequestCheck { commit, status, .. } = &self.check;
            let repository = &self.forge.repository;
            let what =
                format!("could not set the status `{status}` of commit {commit} of {repository}");
            // The conversation continues, and its last response only decides whether a retry may help.
            let is_final = answer.as_ref().is_ok_and(|answer| answer.status < 500);
            let error = self.accepted(&what, answer, &[201]).err();
            let status_error = error
                .map(|error| PullRequestError { may_help: error.may_help || !is_final, ..error });
            Self { status_error, ..self }.ask_for_user()
        })
    }

    fn ask_for_user(self) -> ProviderNextAction {
        let user = self.forge.user();
        user.send(move |answer| {
            let is_bot = answer.as_ref().is_ok_and(|it| it.status == 403 && !is_rate_limit(it));
            match self.forge.bot().filter(|_| is_bot) {
                Some(bot) => bot.send(move |answer| self.take_author(answer, Forge::bot_name)),
                None => self.take_author(answer, Forge::user_name),
            }
        })
    }

    fn take_author(
        self,
        answer: Result<HttpResponse, String>,
        name: fn(&Forge, &HttpResponse) -> Result<String, &'static str>,
    ) -> ProviderNextAction {
        let what = "could not ask the forge whose token this is";
        let found = self.accepted(what, answer, &[200]).and_then(|answer| {
            name(&self.forge, &answer)
                .map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
        });
        match found {
            Ok(author) => Self { author, ..self }.read_pull_request(),
            Err(error) => self.end(Err(error)),
        }
    }

    fn read_pull_request(self) -> ProviderNextAction {
        let request = self.forge.pull_request(self.check.number);
        request.send(move |answer| {
            let what = format!("could not read {}", self.subject());
            let head = self.accepted(&what, answer, &[200]).and_then(|answer| {
                let head = self.forge.head_commit(&answer);
                head.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match head {
                Ok(head) if head.eq_ignore_ascii_case(&self.check.commit) => self.list(1),
                Ok(_) => self.end(Ok(CheckCommentOutcome::OtherCommit)),
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Reads a page of the comments, and continues from there.
    fn list(mut self, page: u32) -> ProviderNextAction {
        let request = self.forge.list_comments(self.check.number, page);
        request.send(move |answer| match self.read_page(page, answer) {
            Ok(true) => self.list(page + 1),
            Ok(false) => self.settle(),
            Err(error) => self.end(Err(error)),
        })
    }

    /// Keeps the comments of a page that belong to the check. Returns whether there is another page.
    fn read_page(
        &mut self,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<bool, PullRequestError> {
        let what = format!("could not list the comments of {}", self.subject());
        let answer = self.accepted(&what, answer, &[200])?;
        let lasting = |why: &str| PullRequestError::lasting(format!("{what}: {why}"));
        let items = self.forge.items(&answer).map_err(lasting)?;
        let mut is_page_new = false;
        for item in &items {
            let comment = self.forge.read_comment(item).map_err(lasting)?;
            is_page_new |= self.seen.insert(comment.id);
            if self.is_own(&comment) {
                self.own.insert(comment.id, comment.body);
            }
        }
        // A server without pages returns the same list for every page.
        if !is_page_new || !self.forge.has_next_page(&answer, items.len(), PAGE_COMMENTS) {
            return Ok(false);
        }
        if page >= MAX_COMMENT_PAGES {
            return Err(lasting("it has more comments than windlass reads"));
        }
        Ok(true)
    }

    fn is_own(&self, comment: &ListedComment) -> bool {
        !self.author.is_empty()
            && comment.author == self.author
            && comment.body.trim_start().starts_with(&self.check.marker)
    }

    /// Sets the oldest comment to the text of the check.
    fn settle(self) -> ProviderNextAction {
        let Some((id, body)) = self.own.first_key_value() else { return self.create() };
        let id = *id;
        let change = match (is_same_body(body, &self.check.comment), self.is_created) {
            (true, true) => CheckCommentOutcome::Created,
            (true, false) => CheckCommentOutcome::Unchanged,
            (false, _) => return self.update(id),
        };
        self.delete_others(change)
    }

    fn create(self) -> ProviderNextAction {
        if self.is_created {
            let message = format!("the comment on {} was deleted meanwhile", self.subject());
            return self.end(Err(PullRequestError {
                may_help: true,
                ..PullRequestError::lasting(message)
            }));
        }
        let request = self.forge.create_comment(self.check.number, &self.check.comment);
        request.send(move |answer| {
            let what = format!("could not comment on {}", self.subject());
            let created = self.accepted(&what, answer, &[201]).and_then(|answer| {
                let item = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
                let comment = self.forge.read_comment(&item);
                comment.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match created {
                // Another check may have created a comment since the list was read. The author of this comment is the token's
                // user, under whatever name the forge returns.
                Ok(ListedComment { id, author, body }) => {
                    let own = BTreeMap::from([(id, body)]);
                    let seen = BTreeSet::new();
                    Self { author, own, seen, is_created: true, ..self }.list(1)
                }
                Err(error) => self.end(Err(error)),
            }
        })
    }

    fn update(self, id: u64) -> ProviderNextAction {
        let request = self.forge.update_comment(self.check.number, id, &self.check.comment);
        request.send(move |answer| {
            let what = format!("could not edit the comment on {}", self.subject());
            match self.accepted(&what, answer, &[200]) {
                Ok(_) => self.delete_others(CheckCommentOutcome::Updated),
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Deletes the comments that other checks created at the same time.
    fn delete_others(mut self, change: CheckCommentOutcome) -> ProviderNextAction {
        let other = self.own.keys().nth(1).copied();
        let Some(id) = other.filter(|_| self.deleted < MAX_DELETED_COMMENTS) else {
            return self.end(Ok(change));
        };
        self.own.remove(&id);
        self.deleted += 1;
        let request = self.forge.delete_comment(self.check.number, id);
        request.send(move |answer| {
            let what = format!("could not delete a second comment on {}", self.subject());
            // Another check may have deleted the comment already.
            match self.accepted(&what, answer, &[200, 202, 204, 404]) {
                Ok(_) => self.delete_others(change),
                Err(error) => self.end(Err(error)),
            }
        })
    }
}
