//! Type `gitlabmergerequestcomment`: writes a note on a merge request. Later events update the note.

use serde_json::json;

use super::comment::PullRequestComment;
use super::gitlab::{GitlabClient, judge};
use super::provider_repository::{self, ended, text};
use crate::event::FluxEvent;
use crate::provider_options::ProviderOptions;
use crate::provider_request::ProviderFlow;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderFlow {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return ProviderFlow::refused("provider UID cannot be empty");
    }
    let client = match GitlabClient::new(&options) {
        Ok(client) => client,
        Err(error) => return ProviderFlow::refused(error),
    };
    let request = client.request("GET", "/user");
    let url = request.url.clone();
    request.send(move |answer| {
        let user = answer.and_then(|answer| {
            judge("GET", &url, &answer).and_then(|()| provider_repository::json(&answer))
        });
        match user {
            Ok(user) => write(client, &uid, &event, text(&user, "/username").to_owned()),
            Err(error) => {
                ProviderFlow::refused(format!("failed to get authenticated user info: {error}"))
            }
        }
    })
}

fn write(client: GitlabClient, uid: &str, event: &FluxEvent, login: String) -> ProviderFlow {
    let comment = PullRequestComment::new("flux-mr-comment-key", uid, event);
    let number = match provider_repository::number(event, "ParseInt") {
        Ok(number) => number,
        Err(error) => return ProviderFlow::failed(error),
    };
    let notes = format!("/merge_requests/{number}/notes");
    let query = "order_by=created_at&per_page=100&sort=asc";
    let reading = client.of_project("GET", &format!("{notes}?{query}"));
    let url = reading.url.clone();
    reading.send(move |answer| {
        let found = answer.and_then(|answer| {
            judge("GET", &url, &answer)?;
            let _is_json = provider_repository::json(&answer)?;
            provider_repository::list(&answer)
        });
        let found = match found {
            Ok(found) => comment.find(&found, "/author/username", &login),
            Err(error) => {
                return ProviderFlow::failed(format!(
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
