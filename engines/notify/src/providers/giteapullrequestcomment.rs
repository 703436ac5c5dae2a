//! Type `giteapullrequestcomment`: a comment on a pull request, which later events update.

use serde_json::json;

use super::comment::Comment;
use super::git::{self, ended, text};
use super::gitea::{Client, connect, judge, list};
use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    let uid = options.provider.uid.clone();
    if uid.is_empty() {
        return Flow::refused("provider UID cannot be empty");
    }
    connect(&options, move |client| {
        client.request("GET", "/user").send(move |answer| {
            match answer.and_then(|answer| judge(&answer).and_then(|()| git::json(&answer))) {
                Ok(user) => write(client, &uid, &event, text(&user, "/login").to_owned()),
                Err(error) => {
                    Flow::refused(format!("failed to get authenticated user info: {error}"))
                }
            }
        })
    })
}

fn write(client: Client, uid: &str, event: &Event, login: String) -> Flow {
    let comment = Comment::new("flux-pr-comment-key", uid, event);
    let number = match git::number(event, "Atoi") {
        Ok(number) => number,
        Err(error) => return Flow::failed(error),
    };
    let path = format!("/issues/{number}/comments");
    let reading = client.of_repository("GET", &format!("{path}?limit=100&page=1"));
    reading.send(move |answer| {
        let found = answer.and_then(|answer| judge(&answer).and_then(|()| list(&answer)));
        let found = match found {
            Ok(comments) => comment.find(&comments, "/user/login", &login),
            Err(error) => {
                return Flow::failed(format!("failed to list pull request comments: {error}"));
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
