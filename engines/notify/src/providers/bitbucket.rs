//! Type `bitbucket`: sets a build status at bitbucket.org, unless the status of the same key is equal.

use aws_lc_rs::digest;
use serde_json::{Value, json};

use super::git_provider_common::{self, GitRepositoryAddress, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;

/// The request for a build status, with its credentials.
struct BuildStatusRequest {
    url: String,
    token: (String, String),
    payload: Value,
}

/// The key of a build, which may have at most forty characters.
pub(super) fn key(id: &str) -> String {
    hex::encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, id.as_bytes()))
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.token.is_empty() {
        return ProviderNextAction::refused("bitbucket token cannot be empty");
    }
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    let repository = GitRepositoryAddress::parse(&options.url);
    let Some((username, password)) =
        options.token.split_once(':').filter(|(_, password)| !password.contains(':'))
    else {
        return ProviderNextAction::refused(
            "invalid token format, expected to be <user>:<password>",
        );
    };
    let Some((owner, name)) = repository.owner_and_name() else {
        let id = crate::go_string_functions::quoted(&repository.id);
        return ProviderNextAction::refused(format!("invalid repository id {id}"));
    };
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let found = git_provider_common::commit(&event).and_then(|commit| {
        let state = git_provider_common::state(
            &event,
            ["SUCCESSFUL", "FAILED"],
            "can't convert to bitbucket state",
        )?;
        Ok((commit, state))
    });
    let (commit, state) = match found {
        Ok(found) => found,
        Err(error) => return ProviderNextAction::failed(error),
    };
    let (build, description) = name_and_description(&event);
    let payload = json!({
        "key": key(&options.commit_status),
        "url": "https://bitbucket.org",
        "state": state,
        "name": build,
        "description": description,
    });
    let api = "https://api.bitbucket.org/2.0/repositories";
    let status = BuildStatusRequest {
        url: format!("{api}/{owner}/{name}/commit/{commit}/statuses/build"),
        token: (username.to_owned(), password.to_owned()),
        payload,
    };
    post(options, status)
}

fn post(options: ProviderOptions, status: BuildStatusRequest) -> ProviderNextAction {
    let BuildStatusRequest { url, token: (username, password), payload } = status;
    let reading = ProviderRequest::new("GET", format!("{url}/{}", text(&payload, "/key")))
        .basic(&username, &password)
        .tls(options.tls.clone());
    let request = ProviderRequest::new("POST", url)
        .json(&payload)
        .basic(&username, &password)
        .tls(options.tls);
    reading.send(move |answer| {
        let known = match answer {
            Ok(answer) if answer.status == 404 => Ok(Value::Null),
            Ok(answer) => judge(&answer).and_then(|()| git_provider_common::json(&answer)),
            Err(error) => Err(error),
        };
        match known {
            Err(error) => {
                ProviderNextAction::failed(format!("could not get commit status: {error}"))
            }
            Ok(known) if is_same(&known, &payload) => ProviderNextAction::Done,
            Ok(_) => request.send(|answer| {
                ProviderNextAction::end(answer.and_then(|answer| {
                    judge(&answer)?;
                    git_provider_common::json(&answer).map(drop)
                }))
            }),
        }
    })
}

fn is_same(known: &Value, payload: &Value) -> bool {
    ["/state", "/description"].iter().all(|path| text(known, path) == text(payload, path))
}

fn judge(answer: &HttpResponse) -> Result<(), String> {
    if matches!(answer.status, 200 | 201 | 202 | 204) { Ok(()) } else { Err(answer.status_line()) }
}
