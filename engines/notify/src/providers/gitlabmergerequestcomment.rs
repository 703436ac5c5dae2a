//! Type `gitlabmergerequestcomment`: writes a note on a merge request. Later events update the note.

use serde_json::json;

use super::git_provider_common::{self, ended, text};
use super::gitlab::{GitlabClient, judge};
use super::pull_request_comment::PullRequestComment;
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderNextAction::refused("provider UID cannot be empty");
    }
    let client = match GitlabClient::new(&options) {
        Ok(client) => client,
        Err(error) => return ProviderNextAction::refused(error),
    };
    let request = client.request("GET", "/user");
    let url = request.url.clone();
    request.send(move |answer| {
        let user = answer.and_then(|answer| {
            judge("GET", &url, &answer).and_then(|()| git_provider_common::json(&answer))
        });
        match user {
            Ok(user) => write(client, &uid, &event, text(&user, "/username").to_owned()),
            Err(error) => ProviderNextAction::refused(format!(
                "failed to get authenticated user info: {error}"
            )),
        }
    })
}

fn write(client: GitlabClient, uid: &str, event: &FluxEvent, login: String) -> ProviderNextAction {
    let comment = PullRequestComment::new("flux-mr-comment-key", uid, event);
    let number = match git_provider_common::number(event, "ParseInt") {
        Ok(number) => number,
        Err(error) => return ProviderNextAction::failed(error),
    };
    let notes = format!("/merge_requests/{number}/notes");
    let query = "order_by=created_at&per_page=100&sort=asc";
    let reading = client.of_project("GET", &format!("{notes}?{query}"));
    let url = reading.url.clone();
    reading.send(move |answer| {
        let found = answer.and_then(|answer| {
            judge("GET", &url, &answer)?;
            let _is_json = git_provider_common::json(&answer)?;
            git_provider_common::list(&answer)
        });
        let found = match found {
            Ok(found) => comment.find(&found, "/author/username", &login),
            Err(error) => {
                return ProviderNextAction::failed(format!(
                    "failed to list merge request notes: {error}"
                ));
            }
        };
        let (method, path, words) = match found {
            Some(id) => ("PUT", format!("{notes}/{id}"), "update"),
            None => ("POST", notes, "create"),
        };
        let request = client.of_project(method, &path).json(&json!({"body": comment.body}));
        let url = request.url.clone();
        request.send(move |answer| {
            let words = format!("failed to {words} merge request note: ");
            ended(answer, &words, |answer| judge(method, &url, answer))
        })
    })
}
