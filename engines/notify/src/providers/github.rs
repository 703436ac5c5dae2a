//! Type `github`: sets a commit status, unless the newest status of the same context is equal.
//!
//! Here: also the client that all GitHub types share. It logs in by a token or as a GitHub App.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::git_provider_common::{self, GitRepositoryAddress, ended, text};
use super::name_and_description;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;
use crate::secret_credentials::TlsSettings;

/// A repository at GitHub, and the client for it.
#[derive(Clone)]
pub(super) struct GithubClient {
    api: String,
    pub(super) owner: String,
    pub(super) name: String,
    token: String,
    tls: Option<Arc<TlsSettings>>,
    /// The name of the app, where its comments are looked for.
    pub(super) app: String,
}

impl GithubClient {
    pub(super) fn request(&self, method: &'static str, path: &str) -> ProviderRequest {
        let url = format!("{}/repos/{}/{}{path}", self.api, self.owner, self.name);
        self.dress(ProviderRequest::new(method, url))
    }

    pub(super) fn user(&self) -> ProviderRequest {
        self.dress(ProviderRequest::new("GET", format!("{}/user", self.api)))
    }

    /// Requests the user of the token by GraphQL, which the token of an app may do, too.
    pub(super) fn viewer(&self) -> ProviderRequest {
        // Below `/api` where REST is below `/api/v3`.
        let api = self.api.strip_suffix("/v3").unwrap_or(&self.api);
        let request = ProviderRequest::new("POST", format!("{api}/graphql"));
        self.dress(request).json(&json!({"query": "query { viewer { login } }"}))
    }

    fn dress(&self, request: ProviderRequest) -> ProviderRequest {
        // Parity(flux): the certificates are for self-hosted servers.
        let tls = self.tls.clone().filter(|_| self.api != "https://api.github.com");
        request
            .header("Accept", "application/vnd.github.v3+json")
            .header("X-GitHub-Api-Version", "2022-11-28")
            .bearer(&self.token)
            .tls(tls)
    }
}

/// Logs in and calls `then` with the client.
pub(super) fn connect(
    options: &ProviderOptions,
    wants_login: bool,
    then: impl FnOnce(GithubClient) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    let token = if options.token.is_empty() { &options.password } else { &options.token };
    if !token.is_empty() {
        return match client(&options.url, token.clone(), options.tls.clone()) {
            Ok(client) => then(client),
            Err(error) => ProviderNextAction::refused(error),
        };
    }
    if !options.secret.data.contains_key("githubAppID") {
        return ProviderNextAction::refused("github token or github app details must be specified");
    }
    let url = options.url.clone();
    let tls = options.tls.clone();
    as_app(options, wants_login, move |token, app| match client(&url, token, tls) {
        Ok(client) => then(GithubClient { app, ..client }),
        Err(error) => ProviderNextAction::refused(error),
    })
}

fn client(
    address: &str,
    token: String,
    tls: Option<Arc<TlsSettings>>,
) -> Result<GithubClient, String> {
    let repository = GitRepositoryAddress::parse(address);
    let Some((owner, name)) = repository.owner_and_name() else {
        return Err(format!("invalid repository id: '{}'", repository.id));
    };
    let owner = owner.to_owned();
    let name = name.to_owned();
    // Parity(go-github): a host with a port is self-hosted, and one called `api` has no other path.
    let api = match repository.host.split_once("://").map_or("", |(_, host)| host) {
        "github.com" => "https://api.github.com".to_owned(),
        host if host.starts_with("api.") || host.contains(".api.") => repository.host,
        _ => format!("{}/api/v3", repository.host.trim_end_matches(':')),
    };
    Ok(GithubClient { api, owner, name, token, tls, app: String::new() })
}

/// Requests a token of an installation, and the name of the app if it is needed.
fn as_app(
    options: &ProviderOptions,
    wants_login: bool,
    then: impl FnOnce(String, String) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    let app = match GithubApp::new(options) {
        Ok(app) => app,
        Err(error) => return ProviderNextAction::refused(error),
    };
    let token =
        move |slug: String,
              app: GithubApp,
              then: Box<dyn FnOnce(String, String) -> ProviderNextAction + Send>| {
            app.installation(move |app, id| {
                let request =
                    app.request("POST", &format!("/app/installations/{id}/access_tokens"));
                request.send(move |answer| {
                    match answer.and_then(|answer| judged("POST", &answer)) {
                        Ok(answer) => then(text(&answer, "/token").to_owned(), slug),
                        Err(error) => ProviderNextAction::refused(format!(
                            "could not get installation token: {error}"
                        )),
                    }
                })
            })
        };
    let then: Box<dyn FnOnce(String, String) -> ProviderNextAction + Send> = Box::new(then);
    if !wants_login {
        return token(String::new(), app, then);
    }
    app.request("GET", "/app").send(move |answer| {
        match answer.and_then(|answer| judged("GET", &answer)) {
            Ok(answer) => token(text(&answer, "/slug").to_owned(), app, then),
            Err(error) => ProviderNextAction::refused(format!("could not get app: {error}")),
        }
    })
}

fn judged(method: &str, answer: &HttpResponse) -> Result<Value, String> {
    if !answer.is_success() {
        return Err(format!("{method}: received non 2xx response status {}", answer.status_line()));
    }
    git_provider_common::json(answer)
}

/// Access to GitHub as a GitHub App.
struct GithubApp {
    api: String,
    /// Proves the identity of the app, for ten minutes.
    jwt: String,
    owner: Option<String>,
    installation: Option<String>,
    proxy: String,
    tls: Option<Arc<TlsSettings>>,
}

impl GithubApp {
    fn new(options: &ProviderOptions) -> Result<Self, String> {
        let secret = &options.secret;
        let id = secret.text("githubAppID").unwrap_or_default();
        let owner = secret.text("githubAppInstallationOwner");
        let installation = secret.text("githubAppInstallationID");
        let key = secret.bytes("githubAppPrivateKey").unwrap_or_default();
        let api = secret.text("githubAppBaseURL").filter(|url| !url.is_empty());
        Ok(Self {
            api: api.map_or_else(
                || "https://api.github.com".to_owned(),
                |url| url.trim_end_matches('/').to_owned(),
            ),
            jwt: jwt(&id, key, options.now)?,
            owner,
            installation,
            proxy: options.proxy.clone(),
            tls: options.tls.clone(),
        })
    }

    fn request(&self, method: &'static str, path: &str) -> ProviderRequest {
        ProviderRequest::new(method, format!("{}{path}", self.api))
            .header("Accept", "application/vnd.github.v3+json")
            .bearer(&self.jwt)
            .proxy(&self.proxy)
            .tls(self.tls.clone())
    }

    /// Finds the installation of the app by its owner. The owner is an organization, or else a user.
    ///
    /// Parity(flux): the installation is asked for by the owner's name (`auth/githubapp` 0.54.1 of fluxcd/pkg), and so is found
    /// however many installations the app has.
    fn installation(
        self,
        then: impl FnOnce(Self, String) -> ProviderNextAction + Send + 'static,
    ) -> ProviderNextAction {
        if let Some(id) = &self.installation {
            let id = id.clone();
            return then(self, id);
        }
        let owner = self.owner.clone().unwrap_or_default();
        self.installation_at(&format!("/orgs/{owner}/installation"), move |app, found| {
            let of_organization = match found {
                Ok(id) => return then(app, id),
                Err(error) => error,
            };
            app.installation_at(&format!("/users/{owner}/installation"), move |app, found| {
                match found {
                    Ok(id) => then(app, id),
                    Err(of_user) => ProviderNextAction::refused(format!(
                        "failed to find organization installation: {of_organization}\n\
                         failed to find user installation: {of_user}"
                    )),
                }
            })
        })
    }

    /// Reads the id of the installation at a path.
    fn installation_at(
        self,
        path: &str,
        then: impl FnOnce(Self, Result<String, String>) -> ProviderNextAction + Send + 'static,
    ) -> ProviderNextAction {
        let request = self.request("GET", path);
        let url = request.url.clone();
        request.send(move |answer| {
            let found = answer.and_then(|answer| {
                judge("GET", &url, &answer)?;
                git_provider_common::json(&answer)
            });
            let id = |it: Value| it.get("id").and_then(Value::as_i64).unwrap_or_default();
            then(self, found.map(|it| id(it).to_string()))
        })
    }
}

fn jwt(id: &str, key: &[u8], now: i64) -> Result<String, String> {
    let unusable = "could not parse private key: invalid key: Key must be a PEM encoded PKCS1 or \
                    PKCS8 key";
    let pem =
        x509_parser::pem::Pem::iter_from_buffer(key).next().and_then(Result::ok).ok_or(unusable)?;
    let pair = RsaKeyPair::from_der(&pem.contents)
        .or_else(|_| RsaKeyPair::from_pkcs8(&pem.contents))
        .map_err(|_| unusable)?;
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(&json!({"alg": "RS256", "typ": "JWT"}));
    let claims = part(&json!({"iss": id, "iat": now - 60, "exp": now + 540}));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "could not sign the token of the GitHub App")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The error of an answer, in the words of GitHub's client.
pub(super) fn judge(method: &str, url: &str, answer: &HttpResponse) -> Result<(), String> {
    if answer.is_success() {
        return Ok(());
    }
    let body = git_provider_common::json(answer).unwrap_or_default();
    let message = text(&body, "/message");
    Err(format!("{method} {url}: {} {message} []", answer.status))
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.commit_status.is_empty() {
        return ProviderNextAction::refused("commit status cannot be empty");
    }
    let context = options.commit_status.clone();
    connect(&options, false, move |client| {
        if event.is_progressing() {
            return ProviderNextAction::Done;
        }
        let found = git_provider_common::commit(&event).and_then(|commit| {
            let state = git_provider_common::state(
                &event,
                ["success", "failure"],
                "can't convert to github state",
            )?;
            Ok((commit, state))
        });
        match found {
            Ok((commit, state)) => {
                let (_, description) = name_and_description(&event);
                let status =
                    json!({"state": state, "context": context, "description": description});
                post(client, &commit, status)
            }
            Err(error) => ProviderNextAction::failed(error),
        }
    })
}

fn post(client: GithubClient, commit: &str, status: Value) -> ProviderNextAction {
    let request = client.request("POST", &format!("/statuses/{commit}")).json(&status);
    let reading = client.request("GET", &format!("/commits/{commit}/statuses?per_page=50"));
    let url = reading.url.clone();
    reading.send(move |answer| {
        let statuses = answer.and_then(|answer| {
            judge("GET", &url, &answer).and_then(|()| git_provider_common::list(&answer))
        });
        match statuses {
            Err(error) => {
                ProviderNextAction::failed(format!("could not list commit statuses: {error}"))
            }
            Ok(statuses) if is_known(&statuses, &status) => ProviderNextAction::Done,
            Ok(_) => {
                let url = request.url.clone();
                request.send(move |answer| {
                    let judge = |answer: &HttpResponse| judge("POST", &url, answer);
                    ended(answer, "could not create commit status: ", judge)
                })
            }
        }
    })
}

/// Whether the newest status of the context is equal. Statuses that lack a member are ignored.
fn is_known(statuses: &[Value], status: &Value) -> bool {
    let members = ["context", "state", "description"];
    let is_whole =
        |it: &&Value| members.iter().all(|name| it.get(*name).is_some_and(Value::is_string));
    let newest = statuses.iter().filter(is_whole).find(|it| it["context"] == status["context"]);
    newest.is_some_and(|it| members.iter().all(|name| it[*name] == status[*name]))
}

#[cfg(test)]
mod tests {
    use super::client;

    #[test]
    fn the_server_follows_from_the_address_with_its_port() {
        // Recorded with go-github 64 and git-urls 1.0.2, as notification-controller 1.9.3 uses them.
        for (address, api) in [
            ("https://github.com/acme/fleet", Ok("https://api.github.com")),
            ("https://github.com:443/acme/fleet", Ok("https://github.com:443/api/v3")),
            ("https://github.com:8443/acme/fleet", Ok("https://github.com:8443/api/v3")),
            ("https://github.com:/acme/fleet", Ok("https://github.com/api/v3")),
            ("http://github.com:80/acme/fleet", Ok("http://github.com:80/api/v3")),
            ("http://github.com/acme/fleet", Ok("https://api.github.com")),
            ("https://ghe.example.com:443/acme/fleet", Ok("https://ghe.example.com:443/api/v3")),
            (
                "https://ghe.example.com:8443/acme/fleet.git",
                Ok("https://ghe.example.com:8443/api/v3"),
            ),
            ("http://ghe.example.com:80/acme/fleet", Ok("http://ghe.example.com:80/api/v3")),
            ("http://ghe.example.com:8080/acme/fleet", Ok("http://ghe.example.com:8080/api/v3")),
            ("https://ghe.example.com:/acme/fleet", Ok("https://ghe.example.com/api/v3")),
            (
                "ssh://git@ghe.example.com:2222/acme/fleet",
                Ok("https://ghe.example.com:2222/api/v3"),
            ),
            ("ssh://git@github.com:22/acme/fleet", Ok("https://github.com:22/api/v3")),
            ("ssh://git@github.com/acme/fleet", Ok("https://api.github.com")),
            ("git@github.com:acme/fleet.git", Ok("https://api.github.com")),
            (
                "git@ghe.example.com:2222/acme/fleet",
                Err("invalid repository id: '2222/acme/fleet'"),
            ),
            ("ghe.example.com:8443/acme/fleet", Err("invalid repository id: '8443/acme/fleet'")),
            (
                "https://ghe.example.com:x/acme/fleet",
                Err("invalid repository id: 'ghe.example.com'"),
            ),
            (
                "https://ghe.example.com:99999/acme/fleet",
                Ok("https://ghe.example.com:99999/api/v3"),
            ),
            ("https://[::1]:8443/acme/fleet", Ok("https://[::1]:8443/api/v3")),
            (
                "https://user:pw@ghe.example.com:8443/acme/fleet",
                Ok("https://ghe.example.com:8443/api/v3"),
            ),
            ("https://api.ghe.example.com/acme/fleet", Ok("https://api.ghe.example.com")),
            ("https://api.ghe.example.com:8443/acme/fleet", Ok("https://api.ghe.example.com:8443")),
            ("https://ghe.api.example.com/acme/fleet", Ok("https://ghe.api.example.com")),
            ("https://GITHUB.com/acme/fleet", Ok("https://GITHUB.com/api/v3")),
            ("git://github.com/acme/fleet", Ok("https://api.github.com")),
            ("https://ghe.example.com:0443/acme/fleet", Ok("https://ghe.example.com:0443/api/v3")),
        ] {
            let found = client(address, String::new(), None).map(|client| client.api);
            assert_eq!(found.as_deref().map_err(String::as_str), api, "{address}");
        }
    }
}
