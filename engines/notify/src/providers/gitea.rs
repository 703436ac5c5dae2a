//! Type `gitea`, also for Forgejo: sets a commit status, unless the newest status of the same context is equal.
//!
//! Here: also the client that both Gitea types and pull requests share.

use std::sync::Arc;

use golang::url::GoUrl;
use serde_json::{Value, json};

use super::git_provider_common::{self, GitRepositoryAddress, ended, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction, ProviderRequest};
use crate::go_string_functions::path_element;
use crate::provider_options::ProviderOptions;
use crate::secret_credentials::TlsSettings;

/// A repository at Gitea, and the client for it.
#[derive(Clone)]
pub(super) struct GiteaClient {
    api: String,
    repository: String,
    token: String,
    proxy: String,
    tls: Option<Arc<TlsSettings>>,
}

impl GiteaClient {
    /// The client for pull requests. Gitea may be served below a path, so owner and name are the last two elements of the
    /// address.
    ///
    /// # Errors
    /// There is no token, or the address has fewer elements.
    pub(super) fn below_path(options: &ProviderOptions) -> Result<Self, String> {
        let token = if options.token.is_empty() { &options.password } else { &options.token };
        if token.is_empty() {
            return Err("gitea token cannot be empty".to_owned());
        }
        let repository = GitRepositoryAddress::parse(&options.url);
        let id = repository.id.trim_end_matches('/');
        let Some((owner, name)) = id.rsplit_once('/') else {
            return Err(format!(
                "invalid repository id {}",
                crate::go_string_functions::quoted(id)
            ));
        };
        let host = repository.host.trim_end_matches('/');
        let (server, owner) = match owner.rsplit_once('/') {
            Some((path, owner)) => (format!("{host}/{path}"), owner),
            None => (host.to_owned(), owner),
        };
        Ok(Self::new(options, token, &server, owner, name))
    }

    fn new(options: &ProviderOptions, token: &str, server: &str, owner: &str, name: &str) -> Self {
        Self {
            api: format!("{server}/api/v1"),
            repository: format!("{}/{}", path_element(owner), path_element(name)),
            token: token.to_owned(),
            proxy: options.proxy.clone(),
            tls: options.tls.clone(),
        }
    }

    pub(super) fn request(&self, method: &'static str, path: &str) -> ProviderRequest {
        ProviderRequest::new(method, format!("{}{path}", self.api))
            .header("Authorization", format!("token {}", self.token))
            .proxy(&self.proxy)
            .tls(self.tls.clone())
    }

    pub(super) fn of_repository(&self, method: &'static str, path: &str) -> ProviderRequest {
        self.request(method, &format!("/repos/{}{path}", self.repository))
    }
}

/// Requests the server's version, as Gitea's client does, and then calls `then` with it.
pub(super) fn connect(
    options: &ProviderOptions,
    then: impl FnOnce(GiteaClient) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    let token = if options.token.is_empty() { &options.password } else { &options.token };
    if token.is_empty() {
        return ProviderNextAction::refused("gitea token cannot be empty");
    }
    let repository = GitRepositoryAddress::parse(&options.url);
    let Some((owner, name)) = repository.owner_and_name() else {
        let id = crate::go_string_functions::quoted(&repository.id);
        return ProviderNextAction::refused(format!("invalid repository id {id}"));
    };
    if GoUrl::parse(options.proxy.as_bytes()).is_err() {
        return ProviderNextAction::refused("invalid proxy URL");
    }
    let server = repository.host.trim_end_matches('/');
    let client = GiteaClient::new(options, token, server, owner, name);
    client.request("GET", "/version").send(move |answer| {
        match answer
            .and_then(|answer| judge(&answer).and_then(|()| git_provider_common::json(&answer)))
        {
            Ok(_) => then(client),
            Err(error) => {
                ProviderNextAction::refused(format!("failed creating Gitea client: {error}"))
            }
        }
    })
}

/// The error of an answer, in the words of Gitea's client.
pub(super) fn judge(answer: &HttpResponse) -> Result<(), String> {
    if answer.is_success() {
        return Ok(());
    }
    let body = git_provider_common::json(answer).unwrap_or_default();
    match body.get("message").or_else(|| body.get("error")).and_then(Value::as_str) {
        Some(message) => Err(message.to_owned()),
        None => Err(format!("unknown API error: {}", answer.status)),
    }
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    let context = options.commit_status.clone();
    connect(&options, move |client| {
        let found =
            git_provider_common::commit(&event).and_then(|commit| Ok((commit, state(&event)?)));
        let (commit, state) = match found {
            Ok(found) => found,
            Err(error) => return ProviderNextAction::failed(error),
        };
        let (_, description) = name_and_description(&event);
        let status = json!({
            "state": state,
            "target_url": "",
            "description": description,
            "context": context,
        });
        post(client, &path_element(&commit), status)
    })
}

/// The commit state for an event. An event about work in progress gives `pending`, unlike at other services.
fn state(event: &FluxEvent) -> Result<&'static str, String> {
    if event.is_progressing() {
        return Ok("pending");
    }
    git_provider_common::state(event, ["success", "failure"], "can't convert to gitea state")
}

fn post(client: GiteaClient, commit: &str, status: Value) -> ProviderNextAction {
    let request = client.of_repository("POST", &format!("/statuses/{commit}")).json(&status);
    let reading = client
        .of_repository("GET", &format!("/commits/{commit}/statuses?limit=50&page=1"))
        .header("Content-Type", "application/json");
    reading.send(move |answer| {
        match answer.and_then(|answer| judge(&answer).and_then(|()| list(&answer))) {
            Err(error) => {
                ProviderNextAction::failed(format!("could not list commit statuses: {error}"))
            }
            Ok(statuses) if is_known(&statuses, &status) => ProviderNextAction::Done,
            Ok(_) => request.send(|answer| ended(answer, "", judge)),
        }
    })
}

/// The list in a response, which must be present.
pub(super) fn list(answer: &HttpResponse) -> Result<Vec<Value>, String> {
    let _is_json = git_provider_common::json(answer)?;
    git_provider_common::list(answer)
}

/// Whether the newest status of the context is equal. Statuses with an empty member are ignored.
fn is_known(statuses: &[Value], status: &Value) -> bool {
    let members =
        [("/context", "/context"), ("/status", "/state"), ("/description", "/description")];
    let is_whole = |it: &&Value| members.iter().all(|(theirs, _)| !text(it, theirs).is_empty());
    let newest = statuses
        .iter()
        .filter(is_whole)
        .find(|it| text(it, "/context") == text(status, "/context"));
    newest.is_some_and(|it| {
        members.iter().all(|(theirs, ours)| text(it, theirs) == text(status, ours))
    })
}
