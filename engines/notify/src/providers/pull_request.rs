//! Pull requests: the one that asks to merge a pushed branch is opened at its forge, or updated.
//!
//! Here: what is sent in which order, and what follows from the answers. In the folder: comment and commit status of a
//! check (`check`), the reviews of the one that became a commit (`review`), what GitHub, GitLab, Gitea and Forgejo name
//! differently (`forge`), how each conversation goes on (`conversation`), answers that are no success (`refusal`). Elsewhere:
//! logins and addresses (`github`, `gitlab`, `gitea`), redirects (`provider_request`), connections and further attempts (the
//! program).
//!
//! A merge request of GitLab is a pull request here.

mod check;
mod conversation;
mod forge;
mod refusal;
mod review;

use serde_json::Value;

pub use self::check::{
    CheckCommentChange, PullRequestCheck, PullRequestCheckConversation, PullRequestCheckResult,
};
use self::conversation::SharedResult;
pub use self::conversation::{ForgeConversation, ForgeStep, PullRequestError};
use self::forge::{Forge, ForgeKind, ListedPullRequest, PAGE_ITEMS, PullRequestListFilter};
use self::refusal::{PROVIDER_ADVICE, accepted};
pub use self::review::{
    PullRequestReviewConversation, PullRequestReviewQuery, PullRequestReviewResult,
    ReviewedPullRequest,
};
use super::comment::without_commands;
use super::provider_repository::ProviderRepository;
use crate::api_objects::{Alert, Provider, SecretData};
use crate::provider_options::assemble;
use crate::provider_request::{HttpResponse, ProviderFlow};

/// Longest title, in bytes: GitLab and Gitea take 255 characters.
const LONGEST_TITLE_BYTES: usize = 255;

/// Longest body, in bytes: GitHub takes 65 536 characters.
const LONGEST_BODY_BYTES: usize = 60 << 10;

/// What stands at the end of a body that was longer.
const SHORTENED_BODY_END: &str = "\n\n(shortened)";

/// Most pages of a list that are read.
const MAX_PAGES: u32 = 40;

/// By what a title begins that a person made a draft, at one of the forges.
const DRAFT_MARKS: [&str; 5] = ["Draft:", "[Draft]", "(Draft)", "WIP:", "[WIP]"];

/// What is proposed: to merge a branch into another one of the same repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequestProposal {
    /// The URL to which the branch was pushed. The address of the Provider is one of the same repository, whose scheme,
    /// host and port may differ.
    pub repository: String,
    /// The branch into which it is merged.
    pub base: String,
    /// The branch that was pushed, and has a commit that `base` lacks.
    pub head: String,
    /// When the last commit of `head` was made, in seconds since 1970.
    pub committed: i64,
    /// The title; of several lines the first one that is not empty counts, up to 255 bytes.
    pub title: String,
    /// The body in Markdown, up to 60 KiB. Lines that a forge would execute are shown instead.
    pub body: String,
}

/// The change that was made to the pull request of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestChange {
    /// It was opened.
    Created,
    /// It was open with another title or body.
    Updated,
    /// It was open as it should be.
    Unchanged,
    /// It was closed or merged after the last commit of the branch was made. No other one is opened before there is a
    /// newer commit: a person who closes a pull request refuses the commits that it has.
    Ended,
}

/// The pull request of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number in the repository.
    pub number: u64,
    /// Its page; empty if the forge names none that can be shown.
    pub url: String,
    /// What became of it.
    pub change: PullRequestChange,
}

/// The conversation with a forge that leads to one pull request for a branch.
///
/// The open one is found by its two branches and not by its author; it is opened if there is none, and its title and body
/// are replaced if they differ. A mark by which a person made it a draft stays in the title.
///
/// # Guarantees
/// At most one request changes something, and it is the last one. That there is no open one is concluded from whole lists
/// only.
pub type PullRequestConversation = ForgeConversation<PullRequest>;

/// The next step of the driver of a [`PullRequestConversation`].
pub type PullRequestStep = ForgeStep<PullRequest>;

impl PullRequestConversation {
    /// A conversation with the forge of a Provider, whose type is one of a commit status or of comments on pull requests
    /// at GitHub, GitLab or Gitea, and whose address is the URL of the repository.
    ///
    /// `now` is in seconds since 1970; `secret` gives a Secret by namespace and name.
    pub fn new(
        proposal: PullRequestProposal,
        provider: &Provider,
        now: i64,
        secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    ) -> Self {
        let result = SharedResult::default();
        let flow = begin(proposal, provider, now, secret, result.clone());
        Self::of(flow, result)
    }
}

fn begin(
    proposal: PullRequestProposal,
    provider: &Provider,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    result: SharedResult<PullRequest>,
) -> ProviderFlow {
    let kind = &provider.spec.r#type;
    let Some(forge_kind) = ForgeKind::of(kind) else {
        return ProviderFlow::failed(format!(
            "a Provider of type `{kind}` is not for a forge; name one of type `github`, `gitlab` or `gitea`, which is \
             also for Forgejo"
        ));
    };
    let options = match assemble(provider, &Alert::default(), String::new(), now, secret) {
        Ok((options, _)) => options,
        Err(message) => return ProviderFlow::failed(message),
    };
    if let Err(message) = check(&proposal, &options.url) {
        return ProviderFlow::failed(message);
    }
    let proposal =
        PullRequestProposal { title: title(&proposal), body: body(&proposal.body), ..proposal };
    forge::connect(forge_kind, &options, move |forge| {
        PullRequestSteps { forge, proposal, result, now }.list(PullRequestListFilter::Open, 1)
    })
}

/// Checks what can be known without the forge.
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
        let id = ProviderRepository::parse(url).id.to_ascii_lowercase();
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

/// The title as a forge takes it.
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

/// The body as a forge takes it.
fn body(text: &str) -> String {
    // A database may refuse what cannot be seen.
    let is_unseen = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    // GitLab takes commands out of the body, which would differ each time then.
    let text = without_commands(&text.trim_end().replace(is_unseen, ""));
    if text.len() <= LONGEST_BODY_BYTES {
        return text;
    }
    let most = LONGEST_BODY_BYTES - SHORTENED_BODY_END.len();
    format!("{}{SHORTENED_BODY_END}", &text[..text.floor_char_boundary(most)])
}

/// A title in the place of another one, whose mark of a draft stays.
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

/// Whether two bodies are the same but for the ends of lines, which some forges rewrite.
fn is_same_body(one: &str, other: &str) -> bool {
    one.trim_end().lines().eq(other.trim_end().lines())
}

/// What follows from a page of a list.
enum PageVerdict {
    /// The pull request that counts.
    Match(ListedPullRequest),
    /// It may be on the next page.
    NextPage,
    /// The list is read, and it has none that counts.
    Absent,
}

/// The steps of a conversation, once the login is known.
struct PullRequestSteps {
    forge: Forge,
    proposal: PullRequestProposal,
    result: SharedResult<PullRequest>,
    now: i64,
}

impl PullRequestSteps {
    fn end(self, result: Result<PullRequest, PullRequestError>) -> ProviderFlow {
        drop(self.result.set(result));
        ProviderFlow::Done
    }

    /// Reads a page of a list, and goes on from there.
    fn list(self, list: PullRequestListFilter, page: u32) -> ProviderFlow {
        let request = self.forge.list(&self.proposal, list, page);
        request.send(move |answer| match (self.read_page(list, page, answer), list) {
            (Err(error), _) => self.end(Err(error)),
            (Ok(PageVerdict::NextPage), _) => self.list(list, page + 1),
            (Ok(PageVerdict::Match(found)), PullRequestListFilter::Open) => self.update(found),
            (Ok(PageVerdict::Match(found)), PullRequestListFilter::Ended) => {
                self.end(Ok(found.pull_request(PullRequestChange::Ended)))
            }
            (Ok(PageVerdict::Absent), PullRequestListFilter::Open) => {
                self.list(PullRequestListFilter::Ended, 1)
            }
            (Ok(PageVerdict::Absent), PullRequestListFilter::Ended) => self.create(),
        })
    }

    fn read_page(
        &self,
        list: PullRequestListFilter,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<PageVerdict, PullRequestError> {
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
                return Ok(PageVerdict::Match(found));
            }
        }
        // What ended after the commit was updated after it, too.
        let is_older = |item: &Value| forge.updated(item) < proposal.committed;
        let is_past = list == PullRequestListFilter::Ended && items.last().is_some_and(is_older);
        if is_past || !forge.has_next_page(&answer, items.len(), PAGE_ITEMS) {
            return Ok(PageVerdict::Absent);
        }
        if page < MAX_PAGES {
            return Ok(PageVerdict::NextPage);
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

    /// Has the open one say what is proposed.
    fn update(self, found: ListedPullRequest) -> ProviderFlow {
        let title = titled(&found.title, &self.proposal.title);
        if title == found.title && is_same_body(&found.body, &self.proposal.body) {
            return self.end(Ok(found.pull_request(PullRequestChange::Unchanged)));
        }
        let request = self.forge.update(found.number, &title, &self.proposal.body);
        request.send(move |answer| {
            let Forge { repository, .. } = &self.forge;
            let noun = self.forge.noun();
            let what = format!("could not update {noun} {} of {repository}", found.number);
            let accepted = accepted(&what, answer, &[200, 201], self.now, &PROVIDER_ADVICE);
            self.end(accepted.map(|_| found.pull_request(PullRequestChange::Updated)))
        })
    }

    fn create(self) -> ProviderFlow {
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
                    // It is there now, and another attempt finds it.
                    let unreadable = |why: &str| PullRequestError {
                        may_help: true,
                        ..PullRequestError::lasting(format!("{what}: {why}"))
                    };
                    self.forge.read(&item).map_err(unreadable)
                });
            self.end(created.map(|found| found.pull_request(PullRequestChange::Created)))
        })
    }
}
