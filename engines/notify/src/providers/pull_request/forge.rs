//! The differences between GitHub, GitLab, Gitea and Forgejo for pull requests: paths, queries, fields.
//!
//! In the folder: comments and commit statuses (`comments`), merged pull requests and their reviews (`reviews`). Elsewhere:
//! logins and addresses (`github`, `gitlab`, `gitea`), the order of requests (`pull_request`).
//!
//! Source of the semantics: the REST APIs of GitHub (2022-11-28), GitLab (v4) and Gitea (v1), which Forgejo shares.

mod comments;
mod reviews;

use golang::time::{GoTime, GoTimeZone, RFC3339};
use serde_json::{Map, Value};

pub(super) use self::comments::{ListedComment, NewCommitStatus, PAGE_COMMENTS};
pub(super) use self::reviews::{
    ForgeReview, MergedPullRequest, PAGE_PUSHES, PAGE_REVIEWS, ReviewVerdict, is_commit,
};
use super::{PullRequest, PullRequestOutcome, PullRequestProposal};
use crate::event_delivery::{
    HttpResponse, HttpRetryPolicy, MAX_ANSWER, ProviderNextAction, ProviderRequest,
};
use crate::go_string_functions::query;
use crate::provider_options::ProviderOptions;
use crate::providers::git_provider_common::{GitRepositoryAddress, text};
use crate::providers::{gitea, github, gitlab};

/// How many pull requests are on a page. Their bodies may be long, and a whole page must be read.
pub(super) const PAGE_ITEMS: usize = 25;

/// Longest address of a page that is shown, in bytes.
const LONGEST_URL_BYTES: usize = 2048;

/// A forge that has pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgeKind {
    GitHub,
    GitLab,
    /// Gitea and Forgejo.
    Gitea,
}

impl ForgeKind {
    /// The forge for which a type of Provider is. `None` if the type is for no forge.
    pub(super) fn of(kind: &str) -> Option<Self> {
        match kind {
            "github" | "githubpullrequestcomment" => Some(Self::GitHub),
            "gitlab" | "gitlabmergerequestcomment" => Some(Self::GitLab),
            "gitea" | "giteapullrequestcomment" => Some(Self::Gitea),
            _ => None,
        }
    }
}

/// Which pull requests are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullRequestListFilter {
    /// Open pull requests.
    Open,
    /// Pull requests that were closed or merged. Those updated last come first.
    Ended,
}

/// The words of a forge. Members of answers are JSON pointers.
struct ForgeApiDialect {
    noun: &'static str,
    /// The path of pull requests below the repository.
    path: &'static str,
    /// The query for open pull requests, and the one for closed and merged ones.
    open: &'static str,
    ended: &'static str,
    /// The method of an update.
    update: &'static str,
    /// The state of an open pull request.
    open_state: &'static str,
    number: &'static str,
    url: &'static str,
    body: &'static str,
    head: &'static str,
    head_repository: &'static str,
    base: &'static str,
    base_repository: &'static str,
    /// The members of a new pull request that name its branches.
    new_head: &'static str,
    new_base: &'static str,
}

const GITHUB_DIALECT: ForgeApiDialect = ForgeApiDialect {
    noun: "pull request",
    path: "/pulls",
    open: "state=open",
    ended: "state=closed&sort=updated&direction=desc",
    update: "PATCH",
    open_state: "open",
    number: "/number",
    url: "/html_url",
    body: "/body",
    head: "/head/ref",
    head_repository: "/head/repo/id",
    base: "/base/ref",
    base_repository: "/base/repo/id",
    new_head: "head",
    new_base: "base",
};

const GITLAB_DIALECT: ForgeApiDialect = ForgeApiDialect {
    noun: "merge request",
    path: "/merge_requests",
    open: "state=opened",
    // Closed and merged pull requests have different states, so all states are requested.
    ended: "state=all&order_by=updated_at&sort=desc",
    update: "PUT",
    open_state: "opened",
    number: "/iid",
    url: "/web_url",
    body: "/description",
    head: "/source_branch",
    head_repository: "/source_project_id",
    base: "/target_branch",
    base_repository: "/target_project_id",
    new_head: "source_branch",
    new_base: "target_branch",
};

const GITEA_DIALECT: ForgeApiDialect = ForgeApiDialect {
    ended: "state=closed&sort=recentupdate",
    head_repository: "/head/repo_id",
    base_repository: "/base/repo_id",
    ..GITHUB_DIALECT
};

enum ForgeClient {
    GitHub(github::GithubClient),
    GitLab(gitlab::GitlabClient),
    Gitea(gitea::GiteaClient),
}

/// A repository at a forge, and the client for it.
pub(super) struct Forge {
    client: ForgeClient,
    dialect: &'static ForgeApiDialect,
    /// The path of the repository, for messages.
    pub(super) repository: String,
    proxy: String,
}

/// Logs in and calls `then` with the forge.
pub(super) fn connect(
    kind: ForgeKind,
    options: &ProviderOptions,
    then: impl FnOnce(Forge) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    let repository = GitRepositoryAddress::parse(&options.url).id;
    let proxy = options.proxy.clone();
    match kind {
        ForgeKind::GitHub => github::connect(options, false, move |client| {
            let client = ForgeClient::GitHub(client);
            then(Forge { client, dialect: &GITHUB_DIALECT, repository, proxy })
        }),
        ForgeKind::GitLab => match gitlab::GitlabClient::new(options) {
            Ok(client) => {
                let client = ForgeClient::GitLab(client);
                then(Forge { client, dialect: &GITLAB_DIALECT, repository, proxy })
            }
            Err(message) => ProviderNextAction::failed(message),
        },
        ForgeKind::Gitea => match gitea::GiteaClient::below_path(options) {
            Ok(client) => {
                let client = ForgeClient::Gitea(client);
                then(Forge { client, dialect: &GITEA_DIALECT, repository, proxy })
            }
            Err(message) => ProviderNextAction::failed(message),
        },
    }
}

/// A pull request in a list of the forge.
pub(super) struct ListedPullRequest {
    pub(super) number: u64,
    url: String,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) is_open: bool,
    /// When the pull request was closed or merged, or else last updated, in seconds since 1970.
    pub(super) ended: i64,
}

impl ListedPullRequest {
    pub(super) fn pull_request(self, change: PullRequestOutcome) -> PullRequest {
        PullRequest { number: self.number, url: self.url, change }
    }
}

impl Forge {
    /// The forge's term for a pull request.
    pub(super) fn noun(&self) -> &'static str {
        self.dialect.noun
    }

    /// A request about the repository. It is not retried here, because the program retries.
    fn request(&self, method: &'static str, path: &str) -> ProviderRequest {
        let request = match &self.client {
            ForgeClient::GitHub(client) => client.request(method, path),
            ForgeClient::GitLab(client) => client.of_project(method, path),
            ForgeClient::Gitea(client) => client.of_repository(method, path),
        };
        self.once(request)
    }

    /// The request without retries, sent through the proxy.
    fn once(&self, request: ProviderRequest) -> ProviderRequest {
        request.proxy(&self.proxy).retry(HttpRetryPolicy::Never)
    }

    /// The request for a page of a list. The first page is 1.
    pub(super) fn list(
        &self,
        proposal: &PullRequestProposal,
        list: PullRequestListFilter,
        page: u32,
    ) -> ProviderRequest {
        let base = query(&proposal.base);
        let head = &proposal.head;
        let filter = match &self.client {
            ForgeClient::GitHub(client) => {
                let head = query(&format!("{}:{head}", client.owner));
                format!("head={head}&base={base}&per_page={PAGE_ITEMS}")
            }
            ForgeClient::GitLab(_) => {
                let head = query(head);
                format!("source_branch={head}&target_branch={base}&per_page={PAGE_ITEMS}")
            }
            // Gitea cannot filter by the head branch, and old versions also ignore the base branch.
            ForgeClient::Gitea(_) => format!("base_branch={base}&limit={PAGE_ITEMS}"),
        };
        let state = match list {
            PullRequestListFilter::Open => self.dialect.open,
            PullRequestListFilter::Ended => self.dialect.ended,
        };
        let path = self.dialect.path;
        self.request("GET", &format!("{path}?{state}&{filter}&page={page}"))
    }

    /// The request that opens a pull request.
    pub(super) fn create(&self, proposal: &PullRequestProposal) -> ProviderRequest {
        let mut fields = self.fields(&proposal.title, &proposal.body);
        fields.insert(self.dialect.new_head.to_owned(), proposal.head.as_str().into());
        fields.insert(self.dialect.new_base.to_owned(), proposal.base.as_str().into());
        self.request("POST", self.dialect.path).json(&fields)
    }

    /// The request that replaces the title and body of a pull request.
    pub(super) fn update(&self, number: u64, title: &str, body: &str) -> ProviderRequest {
        let path = format!("{}/{number}", self.dialect.path);
        self.request(self.dialect.update, &path).json(&self.fields(title, body))
    }

    fn fields(&self, title: &str, body: &str) -> Map<String, Value> {
        let member = self.dialect.body.trim_start_matches('/');
        let fields = [("title", title), (member, body)];
        fields.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect()
    }

    /// The pull requests on a page.
    ///
    /// # Errors
    /// The answer is no list, or too long.
    pub(super) fn items(&self, answer: &HttpResponse) -> Result<Vec<Value>, &'static str> {
        if answer.body.len() >= MAX_ANSWER {
            return Err("the answer has 4 MiB or more, which is not read");
        }
        let unreadable = "the answer is not a list in JSON; check the address of the repository";
        serde_json::from_slice(&answer.body).map_err(|_| unreadable)
    }

    /// Whether there is another page. `items` is the number of items on this page, and `asked` the requested number. A server
    /// may have a lower limit than requested.
    pub(super) fn has_next_page(&self, answer: &HttpResponse, items: usize, asked: usize) -> bool {
        match answer.get("link") {
            Some(links) => links.contains("rel=\"next\"") && items > 0,
            None => items >= asked,
        }
    }

    /// Whether a pull request is between the two branches of this repository. Pull requests from forks are not.
    pub(super) fn is_of(&self, item: &Value, proposal: &PullRequestProposal) -> bool {
        let id = |pointer: &str| item.pointer(pointer).and_then(Value::as_i64);
        let repository = id(self.dialect.base_repository);
        text(item, self.dialect.head) == proposal.head
            && text(item, self.dialect.base) == proposal.base
            && repository.is_some()
            && repository == id(self.dialect.head_repository)
    }

    /// When a pull request was last updated, in seconds since 1970.
    pub(super) fn updated(&self, item: &Value) -> i64 {
        time(item, "/updated_at").unwrap_or(i64::MAX)
    }

    /// Reads a pull request.
    ///
    /// # Errors
    /// It has no number.
    pub(super) fn read(&self, item: &Value) -> Result<ListedPullRequest, &'static str> {
        let number = item.pointer(self.dialect.number).and_then(Value::as_u64);
        let number = number.ok_or("the answer lacks the number")?;
        let url = text(item, self.dialect.url);
        let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
        let is_shown =
            url.len() <= LONGEST_URL_BYTES && url.bytes().all(|it| it.is_ascii_graphic());
        // GitLab sets no `closed_at` for merged pull requests.
        let ended = time(item, "/closed_at").max(time(item, "/merged_at"));
        Ok(ListedPullRequest {
            number,
            url: if is_web && is_shown { url.to_owned() } else { String::new() },
            title: text(item, "/title").trim().to_owned(),
            body: text(item, self.dialect.body).to_owned(),
            is_open: text(item, "/state") == self.dialect.open_state,
            ended: ended.unwrap_or_else(|| self.updated(item)),
        })
    }
}

/// A time in RFC 3339 at a JSON pointer, in seconds since 1970. `None` if there is no such time.
fn time(item: &Value, pointer: &str) -> Option<i64> {
    let time = GoTime::parse(RFC3339, text(item, pointer), &GoTimeZone::Utc).ok()?;
    Some(time.unix())
}
