//! Type `gitlab`: sets a commit status, unless the commit has an equal status of the same name.
//!
//! Here: also the client that both GitLab types share.

use std::sync::Arc;

use serde_json::json;

use super::git_provider_common::{self, GitRepositoryAddress, ended, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, HttpRetryPolicy, ProviderNextAction, ProviderRequest};
use crate::go_string_functions::query;
use crate::provider_options::ProviderOptions;
use crate::secret_credentials::TlsSettings;

/// A project at GitLab, and the client for it.
#[derive(Clone)]
pub(super) struct GitlabClient {
    api: String,
    project: String,
    token: String,
    tls: Option<Arc<TlsSettings>>,
}

impl GitlabClient {
    pub(super) fn new(options: &ProviderOptions) -> Result<Self, String> {
        let token = if options.token.is_empty() { &options.password } else { &options.token };
        if token.is_empty() {
            return Err("gitlab token cannot be empty".to_owned());
        }
        let repository = GitRepositoryAddress::parse(&options.url);
        Ok(Self {
            api: format!("{}/api/v4", repository.host.trim_end_matches('/')),
            project: escape(&repository.id),
            token: token.clone(),
            tls: options.tls.clone(),
        })
    }

    pub(super) fn request(&self, method: &'static str, path: &str) -> ProviderRequest {
        let request = ProviderRequest::new(method, format!("{}{path}", self.api));
        request
            .header("Accept", "application/json")
            .header("PRIVATE-TOKEN", &self.token)
            .retry(HttpRetryPolicy::Soon)
            .tls(self.tls.clone())
    }

    pub(super) fn of_project(&self, method: &'static str, path: &str) -> ProviderRequest {
        self.request(method, &format!("/projects/{}{path}", self.project))
    }
}

/// Escapes a part of a path, including its dots.
fn escape(text: &str) -> String {
    crate::go_string_functions::path_element(text).replace('.', "%2E")
}

/// The error of an answer, in the words of GitLab's client.
pub(super) fn judge(method: &str, url: &str, answer: &HttpResponse) -> Result<(), String> {
    match answer.status {
        200..=202 | 204 | 304 => Ok(()),
        404 => Err("404 Not Found".to_owned()),
        status => {
            let body = git_provider_common::json(answer).unwrap_or_default();
            let url = url.split('?').next().unwrap_or_default();
            let message = text(&body, "/message");
            Err(format!("{method} {url}: {status} {{message: {message}}}"))
        }
    }
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let client = match GitlabClient::new(&options) {
        Ok(client) => client,
        Err(error) => return ProviderNextAction::refused(error),
    };
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let found = git_provider_common::commit(&event).and_then(|commit| {
        let state = git_provider_common::state(
            &event,
            ["success", "failed"],
            "can't convert to gitlab state",
        )?;
        Ok((commit, state))
    });
    match found {
        Ok((commit, state)) => post(client, commit, state, options.commit_status, &event),
        Err(error) => ProviderNextAction::failed(error),
    }
}

fn post(
    client: GitlabClient,
    commit: String,
    state: &'static str,
    name: String,
    event: &FluxEvent,
) -> ProviderNextAction {
    let (_, description) = name_and_description(event);
    let path = format!("/repository/commits/{}/statuses?name={}", escape(&commit), query(&name));
    let reading = client.of_project("GET", &path);
    let url = reading.url.clone();
    reading.send(move |answer| {
        let statuses = answer.and_then(|answer| {
            judge("GET", &url, &answer)?;
            let _is_json = git_provider_common::json(&answer)?;
            git_provider_common::list(&answer)
        });
        let statuses = match statuses {
            Ok(statuses) => statuses,
            Err(error) => {
                return ProviderNextAction::failed(format!(
                    "unable to list commit status: {error}"
                ));
            }
        };
        let is_known = statuses.iter().any(|status| {
            text(status, "/sha") == commit
                && text(status, "/status") == state
                && text(status, "/description") == description
                && text(status, "/name") == name
        });
        if is_known {
            return ProviderNextAction::Done;
        }
        let request = client
            .of_project("POST", &format!("/statuses/{}", escape(&commit)))
            .json(&json!({"state": state, "name": name, "description": description}));
        let url = request.url.clone();
        request.send(move |answer| ended(answer, "", |answer| judge("POST", &url, answer)))
    })
}
