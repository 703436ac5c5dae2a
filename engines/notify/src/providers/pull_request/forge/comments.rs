//! Comments on pull requests and commit statuses at GitHub, GitLab, Gitea and Forgejo.
//!
//! Elsewhere: the order of requests (`pull_request/check_report.rs`). A note of GitLab counts as a comment here.

use serde_json::{Map, Value, json};

use super::{Forge, ForgeClient};
use crate::event_delivery::{HttpResponse, ProviderRequest};
use crate::providers::git_provider_common::text;

/// How many comments are on a page. A comment at GitHub has up to 65 536 characters, each up to 6 bytes as JSON. A page of the
/// longest comments must fit into the read limit, or comments of other users would make a check fail.
pub(in crate::providers::pull_request) const PAGE_COMMENTS: usize = 10;

/// The end of the names of GitHub's bots. Users cannot have such a name.
const BOT_SUFFIX: &str = "[bot]";

/// A comment in a response of the forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::providers::pull_request) struct ListedComment {
    pub(in crate::providers::pull_request) id: u64,
    /// The name of the comment's author; empty if the forge no longer has the author.
    pub(in crate::providers::pull_request) author: String,
    pub(in crate::providers::pull_request) body: String,
}

/// A commit status that is set.
pub(in crate::providers::pull_request) struct NewCommitStatus<'s> {
    pub(in crate::providers::pull_request) commit: &'s str,
    pub(in crate::providers::pull_request) name: &'s str,
    pub(in crate::providers::pull_request) is_success: bool,
    pub(in crate::providers::pull_request) description: &'s str,
}

impl Forge {
    pub(super) fn is_gitlab(&self) -> bool {
        matches!(self.client, ForgeClient::GitLab(_))
    }

    /// The request for the token's user.
    pub(in crate::providers::pull_request) fn user(&self) -> ProviderRequest {
        self.once(match &self.client {
            ForgeClient::GitHub(client) => client.user(),
            ForgeClient::GitLab(client) => client.request("GET", "/user"),
            ForgeClient::Gitea(client) => client.request("GET", "/user"),
        })
    }

    /// The request for the bot of a token that may not read its user, such as the token of a GitHub workflow. `None` at
    /// other forges.
    pub(in crate::providers::pull_request) fn bot(&self) -> Option<ProviderRequest> {
        match &self.client {
            ForgeClient::GitHub(client) => Some(self.once(client.viewer())),
            ForgeClient::GitLab(_) | ForgeClient::Gitea(_) => None,
        }
    }

    /// The name of the token's user.
    ///
    /// # Errors
    /// The response has no name.
    pub(in crate::providers::pull_request) fn user_name(
        &self,
        answer: &HttpResponse,
    ) -> Result<String, &'static str> {
        let user: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let name = text(&user, if self.is_gitlab() { "/username" } else { "/login" });
        if name.is_empty() { Err("the answer lacks the name") } else { Ok(name.to_owned()) }
    }

    /// The name of the bot, in the form that comments have as their author.
    ///
    /// # Errors
    /// The response has no name.
    pub(in crate::providers::pull_request) fn bot_name(
        &self,
        answer: &HttpResponse,
    ) -> Result<String, &'static str> {
        let bot: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        match text(&bot, "/data/viewer/login") {
            "" => Err("the answer lacks the name"),
            name if name.ends_with(BOT_SUFFIX) => Ok(name.to_owned()),
            // Without the suffix, the name could belong to a user.
            name => Ok(format!("{name}{BOT_SUFFIX}")),
        }
    }

    /// The request for a pull request.
    pub(in crate::providers::pull_request) fn pull_request(&self, number: u64) -> ProviderRequest {
        self.request("GET", &format!("{}/{number}", self.dialect.path))
    }

    /// The last commit of a pull request.
    ///
    /// # Errors
    /// The response has no commit.
    pub(in crate::providers::pull_request) fn head_commit(
        &self,
        answer: &HttpResponse,
    ) -> Result<String, &'static str> {
        let found: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let commit = text(&found, if self.is_gitlab() { "/sha" } else { "/head/sha" });
        if commit.is_empty() { Err("the answer lacks the commit") } else { Ok(commit.to_owned()) }
    }

    /// The request to set a commit status. It replaces a status of the same name for the same commit.
    pub(in crate::providers::pull_request) fn set_status(
        &self,
        status: &NewCommitStatus<'_>,
    ) -> ProviderRequest {
        let NewCommitStatus { commit, name, is_success, description } = *status;
        let is_gitlab = self.is_gitlab();
        let failure = if is_gitlab { "failed" } else { "failure" };
        let state = if is_success { "success" } else { failure };
        let mut fields = Map::new();
        fields.insert("state".to_owned(), state.into());
        fields.insert("description".to_owned(), description.into());
        let name_member = if is_gitlab { "name" } else { "context" };
        fields.insert(name_member.to_owned(), name.into());
        self.request("POST", &format!("/statuses/{commit}")).json(&fields)
    }

    /// The path of a pull request's comments.
    fn comments_path(&self, number: u64) -> String {
        match self.client {
            ForgeClient::GitLab(_) => format!("/merge_requests/{number}/notes"),
            ForgeClient::GitHub(_) | ForgeClient::Gitea(_) => format!("/issues/{number}/comments"),
        }
    }

    /// The path of a comment.
    fn comment_path(&self, number: u64, id: u64) -> String {
        match self.client {
            ForgeClient::GitLab(_) => format!("/merge_requests/{number}/notes/{id}"),
            ForgeClient::GitHub(_) | ForgeClient::Gitea(_) => format!("/issues/comments/{id}"),
        }
    }

    /// The request for a page of a pull request's comments, with the oldest first. The first page is 1. Gitea has one page and
    /// returns it for every page number.
    pub(in crate::providers::pull_request) fn list_comments(
        &self,
        number: u64,
        page: u32,
    ) -> ProviderRequest {
        let query = match self.client {
            ForgeClient::GitHub(_) => format!("per_page={PAGE_COMMENTS}"),
            ForgeClient::GitLab(_) => {
                format!("order_by=created_at&sort=asc&per_page={PAGE_COMMENTS}")
            }
            ForgeClient::Gitea(_) => format!("limit={PAGE_COMMENTS}"),
        };
        self.request("GET", &format!("{}?{query}&page={page}", self.comments_path(number)))
    }

    /// Reads a comment.
    ///
    /// # Errors
    /// It has no id.
    pub(in crate::providers::pull_request) fn read_comment(
        &self,
        item: &Value,
    ) -> Result<ListedComment, &'static str> {
        let author = if self.is_gitlab() { "/author/username" } else { "/user/login" };
        let id = item.get("id").and_then(Value::as_u64);
        Ok(ListedComment {
            id: id.ok_or("the answer lacks the id of a comment")?,
            author: text(item, author).to_owned(),
            body: text(item, "/body").to_owned(),
        })
    }

    /// Writes a comment on a pull request.
    pub(in crate::providers::pull_request) fn create_comment(
        &self,
        number: u64,
        body: &str,
    ) -> ProviderRequest {
        self.request("POST", &self.comments_path(number)).json(&json!({"body": body}))
    }

    /// Replaces the text of a comment.
    pub(in crate::providers::pull_request) fn update_comment(
        &self,
        number: u64,
        id: u64,
        body: &str,
    ) -> ProviderRequest {
        let path = self.comment_path(number, id);
        self.request(self.dialect.update, &path).json(&json!({"body": body}))
    }

    /// The request that deletes a comment of a pull request.
    pub(in crate::providers::pull_request) fn delete_comment(
        &self,
        number: u64,
        id: u64,
    ) -> ProviderRequest {
        self.request("DELETE", &self.comment_path(number, id))
    }
}
