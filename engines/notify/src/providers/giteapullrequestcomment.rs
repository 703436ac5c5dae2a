//! Type `giteapullrequestcomment`: writes a comment on a pull request. Later events update the comment.

use serde_json::json;

use super::comment::PullRequestComment;
use super::gitea::{GiteaClient, connect, judge, list};
use super::provider_repository::{self, ended, text};
use crate::event::FluxEvent;
use crate::provider_options::ProviderOptions;
use crate::provider_request::ProviderFlow;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderFlow {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderFlow::refused("provider UID cannot be empty");
    }
    connect(&options, move |client| {
        client.request("GET", "/user").send(move |answer| {
            match answer
                .and_then(|answer| judge(&answer).and_then(|()| provider_repository::json(&answer)))
            {
                Ok(user) => write(client, &uid, &event, text(&user, "/login").to_owned()),
                Err(error) => {
                    ProviderFlow::refused(format!("failed to get authenticated user info: {error}"))
                }
            }
        })
    })
}

fn write(client: GiteaClient, uid: &str, event: &FluxEvent, login: String) -> ProviderFlow {
    let comment = PullRequestComment::new("flux-pr-comment-key", uid, event);
    let number = match provider_repository::number(event, "Atoi") {
        Ok(number) => number,
        Err(error) => return ProviderFlow::failed(error),
    };
    let path = format!("/issues/{number}/comments");
    let reading = client.of_repository("GET", &format!("{path}?limit=100&page=1"));
    reading.send(move |answer| {
        let found = answer.and_then(|answer| judge(&answer).and_then(|()| list(&answer)));
        let found = match found {
            Ok(comments) => comment.find(&comments, "/user/login", &login),
            Err(error) => {
                return ProviderFlow::failed(format!(
                    "failed to list pull request comments: {error}"
                ));
            }
        };
        let (method, path, words) = match found {
            Some(id) => ("PATCH", format!("/issues/comments/{id}"), "update"),
            None => ("POST", path, "create"),
        };
        let request = client.of_repository(method, &path).json(&json!({"body": comment.body}));
        request.send(move |answer| {
            ended(answer, &format!("failed to {words} pull request comment: "), judge)
        })
    })
}
