//! Merged pull requests at GitHub, GitLab, Gitea and Forgejo: which pull request became a commit, which account pushed its last
//! commit, and which accounts reviewed it.
//!
//! Elsewhere: the order of requests, and which reviews count (`pull_request/review_lookup.rs`). An approval of GitLab counts as a
//! review here. Comments and commit statuses are not read, because an account that can push can write them.

use serde_json::Value;

use super::{Forge, ForgeClient, LONGEST_URL_BYTES, time};
use crate::event_delivery::{HttpResponse, MAX_ANSWER, ProviderRequest};
use crate::go_string_functions::{path_element, query};
use crate::providers::git_provider_common::text;

/// How many reviews are on a page. The body of a GitHub review has up to 65 536 characters, and a whole page must be read.
pub(in crate::providers::pull_request) const PAGE_REVIEWS: usize = 10;

/// How many pushes are on a page. Gitea returns no more by default.
pub(in crate::providers::pull_request) const PAGE_PUSHES: usize = 50;

/// The length of a commit hash in digits, for both hash algorithms of Git.
const COMMIT_DIGITS: [usize; 2] = [40, 64];

/// The longest name of an account.
const MAX_ACCOUNT_BYTES: usize = 255;

/// A pull request that was merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::providers::pull_request) struct MergedPullRequest {
    pub(in crate::providers::pull_request) number: u64,
    pub(in crate::providers::pull_request) url: String,
    pub(in crate::providers::pull_request) is_merged: bool,
    /// The commits that the pull request became.
    pub(in crate::providers::pull_request) merge_commits: Vec<String>,
    /// The branch that the pull request was merged into.
    pub(in crate::providers::pull_request) branch: String,
    pub(in crate::providers::pull_request) author: String,
    /// The last commit. For Gitea it is the present commit of the branch, see [`Forge::merged_head`].
    pub(in crate::providers::pull_request) head_commit: String,
    pub(in crate::providers::pull_request) head_branch: String,
    /// The repository of the branch, which may be a fork; empty if it does not exist any more.
    pub(in crate::providers::pull_request) head_repository: String,
    /// The commit with which the changes are compared. For GitHub it is the starting point for finding that commit.
    pub(in crate::providers::pull_request) base_commit: String,
    /// When it was merged, in seconds since 1970; `None` if the forge does not return the time.
    pub(in crate::providers::pull_request) merged_at: Option<i64>,
}

/// The verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::providers::pull_request) enum ReviewVerdict {
    Approves,
    /// The review requests changes.
    Objects,
    /// The review was dismissed.
    Dismissed,
    /// The review is only a comment, or is not finished.
    None,
}

/// A review of a pull request, as the forge returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::providers::pull_request) struct ForgeReview {
    pub(in crate::providers::pull_request) id: u64,
    pub(in crate::providers::pull_request) account: String,
    pub(in crate::providers::pull_request) verdict: ReviewVerdict,
    /// Whether the review is about the last commit.
    pub(in crate::providers::pull_request) is_of_head: bool,
}

/// Whether a text is the full name of a commit.
pub(in crate::providers::pull_request) fn is_commit(text: &str) -> bool {
    COMMIT_DIGITS.contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit())
}

/// The name of an account; empty if the value is not a valid account name, because no policy can name such an account.
fn account(value: &Value, pointer: &str) -> String {
    let name = text(value, pointer);
    let is_name = name.len() <= MAX_ACCOUNT_BYTES && name.bytes().all(|it| it.is_ascii_graphic());
    if is_name { name.to_owned() } else { String::new() }
}

/// The JSON object in a response.
///
/// # Errors
/// The response has another form, or is too long.
fn object(answer: &HttpResponse) -> Result<Value, &'static str> {
    if answer.body.len() >= MAX_ANSWER {
        return Err("the answer has 4 MiB or more, which is not read");
    }
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if value.is_object() { Ok(value) } else { Err("the answer is not an object in JSON") }
}

/// The reference in which Gitea keeps the last commit of a pull request, below `refs`.
fn head_reference(number: u64) -> String {
    format!("pull/{number}/head")
}

impl Forge {
    /// A request for something that decides, which no other server may answer.
    fn read_request(&self, path: &str) -> ProviderRequest {
        self.request("GET", path).stay_at_server()
    }

    /// Whether the forge reports by its own status code that no pull request became a commit. Other forges return a list.
    pub(in crate::providers::pull_request) fn has_one_for_commit(&self) -> bool {
        matches!(self.client, ForgeClient::Gitea(_))
    }

    /// The request for a page of the pull requests that contain a commit. For Gitea, for the one pull request that became the
    /// commit.
    pub(in crate::providers::pull_request) fn pull_requests_of_commit(
        &self,
        commit: &str,
        page: u32,
    ) -> ProviderRequest {
        let path = match self.client {
            ForgeClient::GitHub(_) => format!("/commits/{commit}/pulls?per_page=25&page={page}"),
            ForgeClient::GitLab(_) => {
                format!("/repository/commits/{commit}/merge_requests?per_page=25&page={page}")
            }
            ForgeClient::Gitea(_) => format!("/commits/{commit}/pull"),
        };
        self.read_request(&path)
    }

    /// The pull requests in such a response.
    ///
    /// # Errors
    /// The response has another form.
    pub(in crate::providers::pull_request) fn listed_of_commit(
        &self,
        answer: &HttpResponse,
    ) -> Result<Vec<Value>, &'static str> {
        match self.has_one_for_commit() {
            true => Ok(vec![object(answer)?]),
            false => self.items(answer),
        }
    }

    /// Reads a merged pull request.
    ///
    /// # Errors
    /// A field that matters for the decision is missing.
    pub(in crate::providers::pull_request) fn merged_pull_request(
        &self,
        answer: &HttpResponse,
    ) -> Result<MergedPullRequest, &'static str> {
        self.merged(&object(answer)?)
    }

    /// Reads a merged pull request from a list. In a list, GitHub returns the time of the merge but not whether it is merged.
    ///
    /// # Errors
    /// A field that matters for the decision is missing.
    pub(in crate::providers::pull_request) fn merged(
        &self,
        item: &Value,
    ) -> Result<MergedPullRequest, &'static str> {
        let number = item.pointer(self.dialect.number).and_then(Value::as_u64);
        let number = number.ok_or("the answer lacks the number")?;
        let owned = |pointer: &str| text(item, pointer).to_owned();
        let is_gitlab = self.is_gitlab();
        let commits = |pointers: &[&str]| -> Vec<String> {
            pointers.iter().map(|it| owned(it)).filter(|it| !it.is_empty()).collect()
        };
        let mut merge_commits = match is_gitlab {
            true => commits(&["/merge_commit_sha", "/squash_commit_sha"]),
            false => commits(&["/merge_commit_sha"]),
        };
        let head_commit = owned(if is_gitlab { "/sha" } else { "/head/sha" });
        if is_gitlab && merge_commits.is_empty() {
            // The branch was fast-forwarded to the pull request's last commit.
            merge_commits.push(head_commit.clone());
        }
        if !is_commit(&head_commit) && !matches!(self.client, ForgeClient::Gitea(_)) {
            return Err("the answer lacks the last commit");
        }
        let base_commit = owned(match self.client {
            ForgeClient::GitHub(_) => "/base/sha",
            ForgeClient::GitLab(_) => "/diff_refs/base_sha",
            ForgeClient::Gitea(_) => "/merge_base",
        });
        let head_repository = match is_gitlab {
            true => item.pointer(self.dialect.head_repository).and_then(Value::as_u64),
            false => None,
        };
        let head_repository = head_repository.map(|it| it.to_string());
        let url = text(item, self.dialect.url);
        let is_shown = url.len() <= LONGEST_URL_BYTES
            && ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme))
            && url.bytes().all(|it| it.is_ascii_graphic());
        Ok(MergedPullRequest {
            number,
            url: if is_shown { url.to_owned() } else { String::new() },
            is_merged: match is_gitlab {
                true => text(item, "/state") == "merged",
                false => !text(item, "/merged_at").is_empty(),
            },
            merge_commits,
            branch: owned(self.dialect.base),
            author: account(item, if is_gitlab { "/author/username" } else { "/user/login" }),
            head_commit,
            head_branch: owned(self.dialect.head),
            head_repository: head_repository.unwrap_or_else(|| owned("/head/repo/full_name")),
            base_commit,
            merged_at: time(item, "/merged_at"),
        })
    }

    /// The request for the last commit of a pull request at the time of the merge. `None` if the pull request contains
    /// it. Gitea returns the branch's present commit, which may have changed since, and keeps the merged one in a
    /// reference.
    pub(in crate::providers::pull_request) fn merged_head(
        &self,
        number: u64,
    ) -> Option<ProviderRequest> {
        let ForgeClient::Gitea(_) = self.client else { return None };
        Some(self.read_request(&format!("/git/refs/{}", head_reference(number))))
    }

    /// The commit in such a response, which is one reference or all references with this prefix.
    ///
    /// # Errors
    /// The response does not contain it.
    pub(in crate::providers::pull_request) fn read_merged_head(
        &self,
        answer: &HttpResponse,
        number: u64,
    ) -> Result<String, &'static str> {
        let references = match object(answer) {
            Ok(one) => vec![one],
            Err(_) => self.items(answer)?,
        };
        let name = format!("refs/{}", head_reference(number));
        let found = references.iter().find(|it| text(it, "/ref") == name);
        let commit = found.map(|it| text(it, "/object/sha")).filter(|it| is_commit(it));
        Ok(commit.ok_or("the answer lacks the last commit")?.to_owned())
    }

    /// The request for the commit with which a pull request's changes are compared. `None` if the pull request contains
    /// it. The request is for the second page of GitHub's response, because that page has no files.
    pub(in crate::providers::pull_request) fn comparison(
        &self,
        pull: &MergedPullRequest,
    ) -> Option<ProviderRequest> {
        let ForgeClient::GitHub(_) = self.client else { return None };
        let MergedPullRequest { base_commit, head_commit, .. } = pull;
        let path = format!("/compare/{base_commit}...{head_commit}?per_page=1&page=2");
        Some(self.read_request(&path))
    }

    /// The commit in such a response.
    ///
    /// # Errors
    /// The response has none.
    pub(in crate::providers::pull_request) fn compared_base(
        &self,
        answer: &HttpResponse,
    ) -> Result<String, &'static str> {
        let found = object(answer)?;
        let commit = text(&found, "/merge_base_commit/sha");
        if is_commit(commit) { Ok(commit.to_owned()) } else { Err("the answer lacks the commit") }
    }

    /// The request for a page of the pushes to the repository of a pull request's branch, with the last pushes first.
    /// `None` if that repository is unknown.
    pub(in crate::providers::pull_request) fn list_pushes(
        &self,
        pull: &MergedPullRequest,
        page: u32,
    ) -> Option<ProviderRequest> {
        let repository = pull.head_repository.as_str();
        let branch = &pull.head_branch;
        let request = match &self.client {
            ForgeClient::GitHub(client) => {
                let (owner, name) = repository.split_once('/')?;
                let mut client = client.clone();
                client.owner = path_element(owner);
                client.name = path_element(name);
                let branch = query(&format!("refs/heads/{branch}"));
                client.request("GET", &format!("/activity?ref={branch}&per_page={PAGE_PUSHES}"))
            }
            ForgeClient::GitLab(client) => {
                if repository.is_empty() {
                    return None;
                }
                let filter = format!("action=pushed&per_page={PAGE_PUSHES}&page={page}");
                client.request("GET", &format!("/projects/{repository}/events?{filter}"))
            }
            ForgeClient::Gitea(client) => {
                let (owner, name) = repository.split_once('/')?;
                let [owner, name] = [owner, name].map(path_element);
                let path = format!("/repos/{owner}/{name}/activities/feeds");
                client.request("GET", &format!("{path}?limit={PAGE_PUSHES}&page={page}"))
            }
        };
        Some(self.once(request).stay_at_server())
    }

    /// Whether there may be more pages of pushes. GitHub uses cursors, and its first page is already limited to the branch.
    pub(in crate::providers::pull_request) fn has_pages_of_pushes(&self) -> bool {
        !matches!(self.client, ForgeClient::GitHub(_))
    }

    /// The account of a push, if the push made `commit` the last one of a branch. `None` for any other push.
    pub(in crate::providers::pull_request) fn pusher_of(
        &self,
        item: &Value,
        commit: &str,
    ) -> Option<String> {
        let is_it =
            |value: &Value, pointer: &str| text(value, pointer).eq_ignore_ascii_case(commit);
        let name = match self.client {
            ForgeClient::GitHub(_) if is_it(item, "/after") => account(item, "/actor/login"),
            ForgeClient::GitLab(_) if is_it(item, "/push_data/commit_to") => {
                account(item, "/author_username")
            }
            ForgeClient::Gitea(_) if text(item, "/op_type") == "commit_repo" => {
                let content: Value = serde_json::from_str(text(item, "/content")).ok()?;
                let is_head = is_it(&content, "/HeadCommit/Sha1");
                is_head.then(|| account(item, "/act_user/login"))?
            }
            ForgeClient::GitHub(_) | ForgeClient::GitLab(_) | ForgeClient::Gitea(_) => return None,
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// The request for the time since which the last commit of a pull request is the last one. `None` if reviews name
    /// their commit.
    pub(in crate::providers::pull_request) fn versions(
        &self,
        number: u64,
    ) -> Option<ProviderRequest> {
        let path = format!("/merge_requests/{number}/versions?per_page=100");
        self.is_gitlab().then(|| self.read_request(&path))
    }

    /// The time since which a commit is the last one, in seconds since 1970.
    ///
    /// # Errors
    /// Another commit is the last one, or the response does not contain the time.
    pub(in crate::providers::pull_request) fn head_since(
        &self,
        answer: &HttpResponse,
        commit: &str,
    ) -> Result<i64, &'static str> {
        let items = self.items(answer)?;
        let last = items.iter().max_by_key(|item| item.get("id").and_then(Value::as_u64));
        let last = last.ok_or("the answer has no version")?;
        if !text(last, "/head_commit_sha").eq_ignore_ascii_case(commit) {
            return Err("the last version has another commit");
        }
        time(last, "/created_at").ok_or("the answer lacks the time of the last version")
    }

    /// The request for a page of a pull request's reviews. The first page is 1, and GitLab has only one.
    pub(in crate::providers::pull_request) fn list_reviews(
        &self,
        number: u64,
        page: u32,
    ) -> ProviderRequest {
        let path = match self.client {
            ForgeClient::GitHub(_) => {
                format!("/pulls/{number}/reviews?per_page={PAGE_REVIEWS}&page={page}")
            }
            ForgeClient::GitLab(_) => format!("/merge_requests/{number}/approvals"),
            ForgeClient::Gitea(_) => {
                format!("/pulls/{number}/reviews?limit={PAGE_REVIEWS}&page={page}")
            }
        };
        self.read_request(&path)
    }

    /// The reviews on a page. For GitLab, `since` is the time at which the last commit became the last one.
    ///
    /// # Errors
    /// The response has another form.
    pub(in crate::providers::pull_request) fn reviews(
        &self,
        answer: &HttpResponse,
        head: &str,
        since: Option<i64>,
    ) -> Result<Vec<ForgeReview>, &'static str> {
        if self.is_gitlab() {
            let found = object(answer)?;
            let approvals = found.get("approved_by").and_then(Value::as_array);
            let approvals = approvals.ok_or("the answer lacks the approvals")?;
            let review = |(at, item): (usize, &Value)| ForgeReview {
                id: u64::try_from(at).unwrap_or(u64::MAX),
                account: account(item, "/user/username"),
                verdict: ReviewVerdict::Approves,
                // Times are compared in whole seconds. An approval in the same second may belong to the previous commit, so it
                // does not count.
                is_of_head: time(item, "/approved_at").zip(since).is_some_and(|(at, it)| at > it),
            };
            return Ok(approvals.iter().enumerate().map(review).collect());
        }
        let review = |item: &Value| {
            let id = item.get("id").and_then(Value::as_u64);
            let is_true = |member: &str| item.get(member).and_then(Value::as_bool) == Some(true);
            let verdict = match text(item, "/state") {
                "DISMISSED" => ReviewVerdict::Dismissed,
                "APPROVED" | "CHANGES_REQUESTED" | "REQUEST_CHANGES" if is_true("dismissed") => {
                    ReviewVerdict::Dismissed
                }
                "APPROVED" => ReviewVerdict::Approves,
                "CHANGES_REQUESTED" | "REQUEST_CHANGES" => ReviewVerdict::Objects,
                _ => ReviewVerdict::None,
            };
            let is_of_head = text(item, "/commit_id").eq_ignore_ascii_case(head);
            Ok(ForgeReview {
                id: id.ok_or("the answer lacks the id of a review")?,
                account: account(item, "/user/login"),
                verdict,
                is_of_head: is_of_head && !is_true("stale"),
            })
        };
        self.items(answer)?.iter().map(review).collect()
    }
}
