//! Type `githubpullrequestcomment`: writes a comment on a pull request. Later events update the comment.

use serde_json::json;

use super::comment::PullRequestComment;
use super::github::{GithubClient, connect, judge};
use super::provider_repository::{self, ended, text};
use crate::event::FluxEvent;
use crate::provider_options::ProviderOptions;
use crate::provider_request::{HttpResponse, ProviderFlow};

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderFlow {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderFlow::refused("provider UID cannot be empty");
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
                    provider_repository::json(&answer)
                }
            });
            match user {
                Ok(user) => write(client, &uid, &event, text(&user, "/login").to_owned()),
                Err(error) => {
                    ProviderFlow::refused(format!("failed to get authenticated user info: {error}"))
                }
            }
        })
    })
}

fn write(client: GithubClient, uid: &str, event: &FluxEvent, login: String) -> ProviderFlow {
    let comment = PullRequestComment::new("flux-pr-comment-key", uid, event);
    let number = match provider_repository::number(event, "Atoi") {
        Ok(number) => number,
        Err(error) => return ProviderFlow::failed(error),
    };
    // Parity(flux): without a number the comments of all issues are looked through.
    let listed = if number == 0 { String::new() } else { format!("/{number}") };
    let query = "direction=asc&per_page=100&sort=created";
    let reading = client.request("GET", &format!("/issues{listed}/comments?{query}"));
    let url = reading.url.clone();
    reading.send(move |answer| {
        let comments = answer.and_then(|answer| {
            judge("GET", &url, &answer).and_then(|()| provider_repository::list(&answer))
        });
        let comments = match comments {
            Ok(comments) => comments,
            Err(error) => {
                return ProviderFlow::failed(format!(
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
