//! Type `azuredevops`: sets a commit status, unless the newest status of the same context is equal.

use serde_json::{Value, json};

use super::git_provider_common::{self, GitRepositoryAddress, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction, ProviderRequest};
use crate::go_string_functions::path_element;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let repository = GitRepositoryAddress::parse(&options.url);
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    let parts: Vec<_> = repository.id.split('/').collect();
    let [organization, project, _, name] = *parts else {
        let id = crate::go_string_functions::quoted(&repository.id);
        return ProviderNextAction::refused(format!("invalid repository id {id}"));
    };
    if options.token.is_empty() {
        return ProviderNextAction::refused(
            "failed to acquire azure devops token: the identity of a workload is not supported \
             here; put a personal access token into the key 'token' of the Secret",
        );
    }
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let found = git_provider_common::commit(&event).and_then(|commit| {
        let state = git_provider_common::state(
            &event,
            ["succeeded", "error"],
            "can't convert to azure devops state",
        )?;
        Ok((commit, state))
    });
    let (commit, state) = match found {
        Ok(found) => found,
        Err(error) => return ProviderNextAction::failed(error),
    };
    let genre = match event.meta("summary") {
        Some(summary) => format!("fluxcd:{summary}"),
        None => "fluxcd".to_owned(),
    };
    let (_, description) = name_and_description(&event);
    let status = json!({
        "context": {"genre": genre, "name": options.commit_status},
        "description": description,
        "state": state,
    });
    let url = format!(
        "{}/{organization}/{}/_apis/git/repositories/{}/commits/{}/statuses",
        repository.host,
        path_element(project),
        path_element(name),
        path_element(&commit)
    );
    post(&options, &url, status)
}

fn post(options: &ProviderOptions, url: &str, status: Value) -> ProviderNextAction {
    let request = |method| {
        ProviderRequest::new(method, url)
            .header("Accept", "application/json;api-version=6.0")
            .basic("", &options.token)
            .tls(options.tls.clone())
    };
    let writing =
        request("POST").json(&status).header("Content-Type", "application/json;charset=utf-8");
    request("GET").send(move |answer| {
        let statuses = answer.and_then(|answer| {
            judge(&answer)?;
            let body = git_provider_common::json(&answer)?;
            Ok(body.get("value").and_then(Value::as_array).cloned().unwrap_or_default())
        });
        match statuses {
            Err(error) => {
                ProviderNextAction::failed(format!("could not list commit statuses: {error}"))
            }
            Ok(statuses) if is_known(&statuses, &status) => ProviderNextAction::Done,
            Ok(_) => writing.send(|answer| {
                let result = answer.and_then(|answer| {
                    judge(&answer)?;
                    git_provider_common::json(&answer).map(drop)
                });
                ProviderNextAction::end(
                    result.map_err(|error| format!("could not create commit status: {error}")),
                )
            }),
        }
    })
}

/// Whether the newest status of the context is equal. Statuses that lack a member are ignored.
fn is_known(statuses: &[Value], status: &Value) -> bool {
    let members = ["/context/name", "/context/genre", "/state", "/description"];
    let is_whole =
        |it: &&Value| members.iter().all(|path| it.pointer(path).is_some_and(Value::is_string));
    let is_its = |it: &&Value| members[..2].iter().all(|path| text(it, path) == text(status, path));
    let newest = statuses.iter().filter(is_whole).find(is_its);
    newest.is_some_and(|it| members[2..].iter().all(|path| text(it, path) == text(status, path)))
}

fn judge(answer: &HttpResponse) -> Result<(), String> {
    if answer.is_success() {
        return Ok(());
    }
    let body = git_provider_common::json(answer).unwrap_or_default();
    match body.get("message").and_then(Value::as_str) {
        Some(message) => Err(message.to_owned()),
        None => Err(format!("REST call returned status code {}", answer.status)),
    }
}
