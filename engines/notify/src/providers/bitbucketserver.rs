//! Type `bitbucketserver`: sets a build status at Bitbucket Data Center, unless the status of the same key is equal.

use golang::url::GoUrl;
use serde_json::{Value, json};

use super::bitbucket::key;
use super::git_provider_common::{self, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{
    HttpResponse, HttpRetryPolicy, ProviderNextAction, ProviderRequest, basic,
};
use crate::go_string_functions::{join_path, quoted};
use crate::provider_options::ProviderOptions;

/// The part of a clone address between the context path and the project.
const MARK: &str = "/scm/";

/// The URL of the commits of a repository, from the address of its clone.
fn commits(address: &str) -> Result<GoUrl, String> {
    let mut url = GoUrl::parse(address.as_bytes())
        .map_err(|error| format!("could not parse git address: {error}"))?;
    let scheme = String::from_utf8_lossy(&url.scheme);
    if !matches!(&*scheme, "http" | "https") {
        return Err(format!(
            "could not parse git address: unsupported scheme type in address: {scheme}. Must be \
             http or https"
        ));
    }
    let path = String::from_utf8_lossy(&url.path);
    let path = path.strip_suffix(".git").unwrap_or(&path);
    let (context, id) = path.rsplit_once(MARK).ok_or(
        "could not parse git address: supplied provider address is not http(s) git clone url",
    )?;
    let Some((project, name)) = id.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let id = quoted(id);
        return Err(format!("could not parse git address: invalid repository id {id}"));
    };
    let commits = format!("{context}/rest/api/latest/projects/{project}/repos/{name}/commits");
    url.path = commits.into_bytes();
    Ok(url)
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let mut url = match commits(&options.url) {
        Ok(url) => url,
        Err(error) => return ProviderNextAction::refused(error),
    };
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    if options.token.is_empty() && (options.username.is_empty() || options.password.is_empty()) {
        return ProviderNextAction::refused(
            "invalid credentials, expected to be one of username/password or API Token",
        );
    }
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let found = match event.revision() {
        None => Err("missing revision metadata".to_owned()),
        Some(_) => git_provider_common::commit(&event)
            .map_err(|error| format!("could not parse revision: {error}"))
            .and_then(|commit| Ok((commit, state(&event)?))),
    };
    let (commit, state) = match found {
        Ok(found) => found,
        Err(error) => return ProviderNextAction::failed(error),
    };
    let (name, description) = name_and_description(&event);
    let payload = json!({
        "description": description,
        "key": key(&options.commit_status),
        // The pages of Bitbucket show only the name.
        "name": format!("{name} [{description}]"),
        "state": state,
        "url": options.url,
    });
    url.path = join_path(&url.path, format!("{commit}/builds").as_bytes());
    post(&options, url, without_empty(payload))
}

fn state(event: &FluxEvent) -> Result<&'static str, String> {
    let message = "bitbucket server state generated on info or error events only";
    git_provider_common::state(event, ["SUCCESSFUL", "FAILED"], message)
        .map_err(|error| format!("couldn't convert to bitbucket server state: {error}"))
}

fn without_empty(mut payload: Value) -> Value {
    if payload["description"] == ""
        && let Some(members) = payload.as_object_mut()
    {
        members.remove("description");
    }
    payload
}

fn post(options: &ProviderOptions, mut url: GoUrl, payload: Value) -> ProviderNextAction {
    let login = if options.token.is_empty() {
        basic(&options.username, &options.password)
    } else {
        format!("Bearer {}", options.token)
    };
    let request = |method, url: &GoUrl| {
        ProviderRequest::new(method, String::from_utf8_lossy(&url.to_bytes()))
            .header("Authorization", &login)
            .header("x-atlassian-token", "no-check")
            .header("x-requested-with", "XMLHttpRequest")
            .retry(HttpRetryPolicy::Doubling)
            .tls(options.tls.clone())
    };
    let writing = request("POST", &url).json(&payload);
    url.query = format!("key={}", text(&payload, "/key")).into_bytes();
    request("GET", &url).send(move |answer| match is_known(answer, &payload) {
        Err(error) => {
            ProviderNextAction::failed(format!("could not get existing commit status: {error}"))
        }
        Ok(true) => ProviderNextAction::Done,
        Ok(false) => writing.send(|answer| {
            let words = "could not post build status: could not post build commit status: ";
            git_provider_common::ended(answer, words, judge)
        }),
    })
}

fn is_known(answer: Result<HttpResponse, String>, payload: &Value) -> Result<bool, String> {
    let failed = |error| format!("failed api call to check duplicate commit status: {error}");
    let answer = answer.map_err(failed)?;
    if answer.status != 404 {
        judge(&answer).map_err(failed)?;
    }
    if answer.status != 200 {
        return Ok(false);
    }
    let known = git_provider_common::json(&answer).map_err(|error| {
        format!("could not unmarshal json response body for duplicate commit status: {error}")
    })?;
    let members = ["/key", "/state", "/description", "/name"];
    Ok(members.iter().all(|path| text(&known, path) == text(payload, path)))
}

fn judge(answer: &HttpResponse) -> Result<(), String> {
    if answer.status < 400 {
        return Ok(());
    }
    Err(format!("{} - {}", answer.status, crate::go_string_functions::status_text(answer.status)))
}
