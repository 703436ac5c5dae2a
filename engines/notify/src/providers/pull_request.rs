//! Pull requests: opens or updates the pull request for a pushed branch at its forge.
//!
//! Here: the order of requests, and the reaction to responses. In the folder: comment and commit status of a check (`check`),
//! the reviews of a merged pull request (`review`), differences between GitHub, GitLab, Gitea and Forgejo (`forge`), the
//! driver of each conversation (`conversation`), failed responses (`forge_failure`). Elsewhere: logins and addresses
//! (`github`, `gitlab`, `gitea`), redirects (`event_delivery`), connections and further attempts (the program).
//!
//! A merge request of GitLab counts as a pull request here.

mod check_report;
mod forge;
mod forge_call_sequence;
mod forge_failure;
mod review_lookup;

use serde_json::Value;

pub use self::check_report::{
    CheckCommentOutcome, PullRequestCheck, PullRequestCheckPosting, PullRequestCheckResult,
};
use self::forge::{Forge, ForgeKind, ListedPullRequest, PAGE_ITEMS, PullRequestListFilter};
use self::forge_call_sequence::ForgeCallResultSlot;
pub use self::forge_call_sequence::{ForgeCallSequence, ForgeCallStep, PullRequestError};
use self::forge_failure::{PROVIDER_ADVICE, accepted};
pub use self::review_lookup::{
    PullRequestReviewLookup, PullRequestReviewQuery, PullRequestReviewResult, ReviewedPullRequest,
};
use super::git_provider_common::GitRepositoryAddress;
use super::pull_request_comment::without_commands;
use crate::api_objects::{Alert, Provider, SecretData};
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::assemble;

/// Longest title, in bytes. GitLab and Gitea accept 255 characters.
const LONGEST_TITLE_BYTES: usize = 255;

/// Longest body, in bytes. GitHub accepts 65 536 characters.
const LONGEST_BODY_BYTES: usize = 60 << 10;

/// The text at the end of a body that was shortened.
const SHORTENED_BODY_END: &str = "\n\n(shortened)";

/// Most pages of a list that are read.
const MAX_PAGES: u32 = 40;

/// Prefixes of a title with which users mark a draft at one of the forges.
const DRAFT_MARKS: [&str; 5] = ["Draft:", "[Draft]", "(Draft)", "WIP:", "[WIP]"];

/// The proposal to merge a branch into another one of the same repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequestProposal {
    /// The URL to which the branch was pushed. The Provider's address belongs to the same repository, but may have another
    /// scheme, host or port.
    pub repository: String,
    /// The branch to merge into.
    pub base: String,
    /// The branch that was pushed, and has a commit that `base` lacks.
    pub head: String,
    /// When the last commit of `head` was made, in seconds since 1970.
    pub committed: i64,
    /// The title. Only its first line that is not empty is used, up to 255 bytes.
    pub title: String,
    /// The body in Markdown, up to 60 KiB. Lines that a forge would execute are shown instead.
    pub body: String,
}

/// The change that was made to the pull request of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestOutcome {
    /// A pull request was opened.
    Created,
    /// The open pull request got a new title or body.
    Updated,
    /// The open pull request already had this title and body.
    Unchanged,
    /// A user closed or merged the pull request after the branch's last commit. No other one is opened until there is a newer
    /// commit, because a user who closes a pull request rejects its commits.
    Ended,
}

/// The pull request of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// The number of the pull request in the repository.
    pub number: u64,
    /// The URL of its page; empty if the forge returns none that can be shown.
    pub url: String,
    /// The change that was made to it.
    pub change: PullRequestOutcome,
}

/// The conversation with a forge that opens or updates the pull request for a branch.
///
/// An open pull request is found by its two branches, regardless of its author. If there is none, one is opened. If title and
/// body differ, they are replaced, but a user's draft mark stays in the title.
///
/// # Guarantees
/// At most one request changes something, and it is the last one. Only complete lists prove that there is no open pull request.
pub type PullRequestUpsert = ForgeCallSequence<PullRequest>;

/// The next step of the driver of a [`PullRequestUpsert`].
pub type PullRequestUpsertStep = ForgeCallStep<PullRequest>;

impl PullRequestUpsert {
    /// Creates a conversation with the forge of a Provider. The Provider's type must be for commit statuses or pull request
    /// comments at GitHub, GitLab or Gitea, and its address must be the URL of the repository.
    ///
    /// `now` is in seconds since 1970. `secret` returns a Secret by namespace and name, or `None` if it is missing.
    pub fn new(
        proposal: PullRequestProposal,
        provider: &Provider,
        now: i64,
        secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    ) -> Self {
        let result = ForgeCallResultSlot::default();
        let flow = begin(proposal, provider, now, secret, result.clone());
        Self::of(flow, result)
    }
}

fn begin(
    proposal: PullRequestProposal,
    provider: &Provider,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    result: ForgeCallResultSlot<PullRequest>,
) -> ProviderNextAction {
    let kind = &provider.spec.r#type;
    let Some(forge_kind) = ForgeKind::of(kind) else {
        return ProviderNextAction::failed(format!(
            "a Provider of type `{kind}` is not for a forge; name one of type `github`, `gitlab` or `gitea`, which is \
             also for Forgejo"
        ));
    };
    let options = match assemble(provider, &Alert::default(), String::new(), now, secret) {
        Ok((options, _)) => options,
        Err(message) => return ProviderNextAction::failed(message),
    };
    if let Err(message) = check(&proposal, &options.url) {
        return ProviderNextAction::failed(message);
    }
    let proposal =
        PullRequestProposal { title: title(&proposal), body: body(&proposal.body), ..proposal };
    forge::connect(forge_kind, &options, move |forge| {
        PullRequestUpsertSteps { forge, proposal, result, now }.list(PullRequestListFilter::Open, 1)
    })
}

/// Checks the proposal as far as that is possible without the forge.
fn check(proposal: &PullRequestProposal, address: &str) -> Result<(), String> {
    let PullRequestProposal { repository, base, head, .. } = proposal;
    if base.is_empty() || head.is_empty() || base == head {
        return Err(format!(
            "a pull request needs two branches: `{head}` cannot be merged into `{base}`; push to another branch"
        ));
    }
    if address.is_empty() {
        return Err("the Provider has no address; `spec.address` is the URL of the repository, as for commit statuses"
            .to_owned());
    }
    let [asked, pushed] = [address, repository.as_str()].map(|url| {
        let id = GitRepositoryAddress::parse(url).id.to_ascii_lowercase();
        let id = id.trim_end_matches('/');
        id.strip_suffix(".git").unwrap_or(id).to_owned()
    });
    // One of both may have the path below which the forge is served.
    let is_end = |path: &str, end: &str| {
        !end.is_empty()
            && path.strip_suffix(end).is_some_and(|it| it.is_empty() || it.ends_with('/'))
    };
    if is_end(&asked, &pushed) || is_end(&pushed, &asked) {
        return Ok(());
    }
    Err(format!(
        "the Provider is for `{asked}`, and the branch was pushed to `{pushed}`; `spec.address` of the Provider is the \
         URL of the repository"
    ))
}

/// The title in a form that forges accept.
fn title(proposal: &PullRequestProposal) -> String {
    let mut lines = proposal.title.lines().map(|line| line.replace(char::is_control, " "));
    let Some(line) = lines.find(|line| !line.trim().is_empty()) else {
        return format!("Merge {} into {}", proposal.head, proposal.base);
    };
    shortened_title(line.trim())
}

fn shortened_title(title: &str) -> String {
    title[..title.floor_char_boundary(LONGEST_TITLE_BYTES)].trim_end().to_owned()
}

/// The body in a form that forges accept.
fn body(text: &str) -> String {
    // Invisible characters are removed, because a forge's database may reject them.
    let is_unseen = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    // GitLab removes commands from a body, so the body would differ in every comparison.
    let text = without_commands(&text.trim_end().replace(is_unseen, ""));
    if text.len() <= LONGEST_BODY_BYTES {
        return text;
    }
    let most = LONGEST_BODY_BYTES - SHORTENED_BODY_END.len();
    format!("{}{SHORTENED_BODY_END}", &text[..text.floor_char_boundary(most)])
}

/// Replaces a title. The draft mark of the old title stays.
fn titled(current: &str, title: &str) -> String {
    let mark = |text: &str| {
        DRAFT_MARKS.into_iter().find(|mark| {
            text.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark))
        })
    };
    match mark(current) {
        Some(found) if mark(title).is_none() => {
            let rest = current[found.len()..].trim_start();
            let mark = &current[..current.len() - rest.len()];
            shortened_title(&format!("{mark}{title}"))
        }
        _ => title.to_owned(),
    }
}

/// Whether two bodies are equal apart from line ends, which some forges rewrite.
fn is_same_body(one: &str, other: &str) -> bool {
    one.trim_end().lines().eq(other.trim_end().lines())
}

/// The conclusion from one page of a list.
enum PullRequestPageMatch {
    /// The pull request that counts.
    Match(ListedPullRequest),
    /// The pull request may be on the next page.
    NextPage,
    /// The list is complete, and contains no matching pull request.
    Absent,
}

/// The steps of a conversation, once the login is known.
struct PullRequestUpsertSteps {
    forge: Forge,
    proposal: PullRequestProposal,
    result: ForgeCallResultSlot<PullRequest>,
    now: i64,
}

impl PullRequestUpsertSteps {
    fn end(self, result: Result<PullRequest, PullRequestError>) -> ProviderNextAction {
        drop(self.result.set(result));
        ProviderNextAction::Done
    }

    /// Reads a page of a list, and continues from there.
    fn list(self, list: PullRequestListFilter, page: u32) -> ProviderNextAction {
        let request = self.forge.list(&self.proposal, list, page);
        request.send(move |answer| match (self.read_page(list, page, answer), list) {
            (Err(error), _) => self.end(Err(error)),
            (Ok(PullRequestPageMatch::NextPage), _) => self.list(list, page + 1),
            (Ok(PullRequestPageMatch::Match(found)), PullRequestListFilter::Open) => {
                self.update(found)
            }
            (Ok(PullRequestPageMatch::Match(found)), PullRequestListFilter::Ended) => {
                self.end(Ok(found.pull_request(PullRequestOutcome::Ended)))
            }
            (Ok(PullRequestPageMatch::Absent), PullRequestListFilter::Open) => {
                self.list(PullRequestListFilter::Ended, 1)
            }
            (Ok(PullRequestPageMatch::Absent), PullRequestListFilter::Ended) => self.create(),
        })
    }

    fn read_page(
        &self,
        list: PullRequestListFilter,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<PullRequestPageMatch, PullRequestError> {
        let Self { forge, proposal, .. } = self;
        let noun = forge.noun();
        let what = format!("could not list the {noun}s of {}", forge.repository);
        let answer = accepted(&what, answer, &[200], self.now, &PROVIDER_ADVICE)?;
        let lasting = |why: &str| PullRequestError::lasting(format!("{what}: {why}"));
        let items = forge.items(&answer).map_err(lasting)?;
        for item in items.iter().filter(|item| forge.is_of(item, proposal)) {
            let found = forge.read(item).map_err(lasting)?;
            let counts = match list {
                PullRequestListFilter::Open => found.is_open,
                PullRequestListFilter::Ended => !found.is_open && found.ended >= proposal.committed,
            };
            if counts {
                return Ok(PullRequestPageMatch::Match(found));
            }
        }
        // A pull request that ended after the commit was also updated after it.
        let is_older = |item: &Value| forge.updated(item) < proposal.committed;
        let is_past = list == PullRequestListFilter::Ended && items.last().is_some_and(is_older);
        if is_past || !forge.has_next_page(&answer, items.len(), PAGE_ITEMS) {
            return Ok(PullRequestPageMatch::Absent);
        }
        if page < MAX_PAGES {
            return Ok(PullRequestPageMatch::NextPage);
        }
        let why = match list {
            PullRequestListFilter::Open => format!(
                "there are more open {noun}s than windlass reads, and none of those that were read is of branch `{}`; \
                 close some of them",
                proposal.head
            ),
            PullRequestListFilter::Ended => format!(
                "more {noun}s were closed since the last commit of branch `{}` than windlass reads; delete the branch, or \
                 open the {noun} by hand",
                proposal.head
            ),
        };
        Err(lasting(&why))
    }

    /// Updates the open pull request to the proposed title and body.
    fn update(self, found: ListedPullRequest) -> ProviderNextAction {
        let title = titled(&found.title, &self.proposal.title);
        if title == found.title && is_same_body(&found.body, &self.proposal.body) {
            return self.end(Ok(found.pull_request(PullRequestOutcome::Unchanged)));
        }
        let request = self.forge.update(found.number, &title, &self.proposal.body);
        request.send(move |answer| {
            let Forge { repository, .. } = &self.forge;
            let noun = self.forge.noun();
            let what = format!("could not update {noun} {} of {repository}", found.number);
            let accepted = accepted(&what, answer, &[200, 201], self.now, &PROVIDER_ADVICE);
            self.end(accepted.map(|_| found.pull_request(PullRequestOutcome::Updated)))
        })
    }

    fn create(self) -> ProviderNextAction {
        let request = self.forge.create(&self.proposal);
        request.send(move |answer| {
            let PullRequestProposal { head, base, .. } = &self.proposal;
            let Forge { repository, .. } = &self.forge;
            let noun = self.forge.noun();
            let what =
                format!("could not open a {noun} of branch `{head}` into `{base}` of {repository}");
            let created =
                accepted(&what, answer, &[201], self.now, &PROVIDER_ADVICE).and_then(|answer| {
                    let item = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
                    // The pull request exists now, so another attempt will find it.
                    let unreadable = |why: &str| PullRequestError {
                        may_help: true,
                        ..PullRequestError::lasting(format!("{what}: {why}"))
                    };
                    self.forge.read(&item).map_err(unreadable)
                });
            self.end(created.map(|found| found.pull_request(PullRequestOutcome::Created)))
        })
    }
}
