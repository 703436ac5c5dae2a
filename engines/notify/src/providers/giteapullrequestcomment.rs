//! Type `giteapullrequestcomment`: writes a comment on a pull request. Later events update the comment.

use serde_json::json;

use super::git_provider_common::{self, ended, text};
use super::gitea::{GiteaClient, connect, judge, list};
use super::pull_request_comment::PullRequestComment;
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderNextAction::refused("provider UID cannot be empty");
    }
    connect(&options, move |client| {
        client.request("GET", "/user").send(move |answer| {
            match answer
                .and_then(|answer| judge(&answer).and_then(|()| git_provider_common::json(&answer)))
            {
                Ok(user) => write(client, &uid, &event, text(&user, "/login").to_owned()),
                Err(error) => ProviderNextAction::refused(format!(
                    "failed to get authenticated user info: {error}"
                )),
            }
        })
    })
}

fn write(client: GiteaClient, uid: &str, event: &FluxEvent, login: String) -> ProviderNextAction {
    let comment = PullRequestComment::new("flux-pr-comment-key", uid, event);
    let number = match git_provider_common::number(event, "Atoi") {
        Ok(number) => number,
        Err(error) => return ProviderNextAction::failed(error),
    };
    let path = format!("/issues/{number}/comments");
    let reading = client.of_repository("GET", &format!("{path}?limit=100&page=1"));
    reading.send(move |answer| {
        let found = answer.and_then(|answer| judge(&answer).and_then(|()| list(&answer)));
        let found = match found {
            Ok(comments) => comment.find(&comments, "/user/login", &login),
            Err(error) => {
                return ProviderNextAction::failed(format!(
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
