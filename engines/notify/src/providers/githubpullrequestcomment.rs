//! Type `githubpullrequestcomment`: writes a comment on a pull request. Later events update the comment.

use serde_json::json;

use super::git_provider_common::{self, ended, text};
use super::github::{GithubClient, connect, judge};
use super::pull_request_comment::PullRequestComment;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderNextAction::refused("provider UID cannot be empty");
    }
    connect(&options, true, move |client| {
        if !client.app.is_empty() {
            let login = format!("{}[bot]", client.app);
            return write(client, &uid, &event, login);
        }
        let request = client.user();
        let url = request.url.clone();
        request.send(move |answer| {
            let user = answer.and_then(|answer| {
                judge("GET", &url, &answer)?;
                if answer.body.is_empty() {
                    Ok(json!({}))
                } else {
                    git_provider_common::json(&answer)
                }
            });
            match user {
                Ok(user) => write(client, &uid, &event, text(&user, "/login").to_owned()),
                Err(error) => ProviderNextAction::refused(format!(
                    "failed to get authenticated user info: {error}"
                )),
            }
        })
    })
}

fn write(client: GithubClient, uid: &str, event: &FluxEvent, login: String) -> ProviderNextAction {
    let comment = PullRequestComment::new("flux-pr-comment-key", uid, event);
    let number = match git_provider_common::number(event, "Atoi") {
        Ok(number) => number,
        Err(error) => return ProviderNextAction::failed(error),
    };
    // Parity(flux): without a number the comments of all issues are looked through.
    let listed = if number == 0 { String::new() } else { format!("/{number}") };
    let query = "direction=asc&per_page=100&sort=created";
    let reading = client.request("GET", &format!("/issues{listed}/comments?{query}"));
    let url = reading.url.clone();
    reading.send(move |answer| {
        let comments = answer.and_then(|answer| {
            judge("GET", &url, &answer).and_then(|()| git_provider_common::list(&answer))
        });
        let comments = match comments {
            Ok(comments) => comments,
            Err(error) => {
                return ProviderNextAction::failed(format!(
                    "failed to list pull request comments: {error}"
                ));
            }
        };
        let found = comment.find(&comments, "/user/login", &login);
        let (method, path, words) = match found {
            Some(id) => ("PATCH", format!("/issues/comments/{id}"), "update"),
            None => ("POST", format!("/issues/{number}/comments"), "create"),
        };
        let request = client.request(method, &path).json(&json!({"body": comment.body}));
        let url = request.url.clone();
        request.send(move |answer| {
            let judge = |answer: &HttpResponse| judge(method, &url, answer);
            ended(answer, &format!("failed to {words} pull request comment: "), judge)
        })
    })
}
