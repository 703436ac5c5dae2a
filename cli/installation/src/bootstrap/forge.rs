//! `windlass bootstrap github|gitlab|gitea`: creates the repository if it does not exist, and registers the deploy key with
//! which the cluster reads it.
//!
//! Both are single requests to the API of the hosting service. They use the token that also pushes.
//! Elsewhere: the content of the repository and the cluster (`super`), keys and Secrets (`super::credentials`).

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use http::{Method, StatusCode};
use http_client::TlsConfig;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use url::Url;

use super::credentials::GitCredentialsArgs;
use super::{BootstrapSyncArgs, GitBootstrapArgs};
use crate::install::manifests::InstallManifestFlags;
use windlass_cli_runtime::connection::{ProgressGlyph, WindlassConnectionFlags, say};

/// How long the hosting service may take to answer a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes that are read of an answer, and of characters that are shown of its message.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
const MAX_SHOWN_MESSAGE_CHARACTERS: usize = 300;

/// A service that hosts Git repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgeService {
    GitHub,
    GitLab,
    Gitea,
}

impl fmt::Display for ForgeService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GitHub => "GitHub",
            Self::GitLab => "GitLab",
            Self::Gitea => "Gitea",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RepositoryVisibility {
    Private,
    Internal,
    Public,
}

/// The flags of `windlass bootstrap github`, `gitlab` and `gitea`.
#[derive(Debug, Clone, Args)]
pub(super) struct ForgeBootstrapArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    #[command(flatten)]
    manifests: InstallManifestFlags,
    #[command(flatten)]
    following: BootstrapSyncArgs,
    /// User, organization or group that has the repository
    #[arg(long)]
    owner: String,
    /// Name of the repository; it is created if it does not exist
    #[arg(long)]
    repository: String,
    /// Host of the service, if it is not the public one
    #[arg(long, value_name = "HOST")]
    hostname: Option<String>,
    /// Host and port of the service for ssh://, if they are not those of https://
    #[arg(long, value_name = "HOST[:PORT]")]
    ssh_hostname: Option<String>,
    /// The owner is the user of the token, and no organization
    #[arg(long)]
    personal: bool,
    /// Who may read a repository that is created
    #[arg(long, value_enum, default_value = "private")]
    visibility: RepositoryVisibility,
    /// The cluster reads the repository with the token, instead of a deploy key
    #[arg(long)]
    token_auth: bool,
    /// The deploy key may also push
    #[arg(long)]
    read_write_key: bool,
    /// Name of the Secret with the credentials, in the namespace of windlass
    #[arg(long, default_value = "flux-system", value_name = "SECRET")]
    secret_name: String,
    /// Token of the service; by default that of $GITHUB_TOKEN, $GITLAB_TOKEN or $GITEA_TOKEN
    #[arg(long, hide_env_values = true)]
    token: Option<String>,
}

impl ForgeBootstrapArgs {
    /// The flags for bootstrapping from any Git server.
    ///
    /// # Errors
    /// The names do not form a valid URL.
    pub(super) fn as_git(&self, forge: &ForgeRepository) -> anyhow::Result<GitBootstrapArgs> {
        let (url, given) = match self.token_auth {
            true => (forge.url()?, forge.given(&self.secret_name)),
            false => (forge.ssh_url()?, GitCredentialsArgs::key(&self.secret_name)),
        };
        Ok(GitBootstrapArgs {
            connection: self.connection.clone(),
            manifests: self.manifests.clone(),
            given,
            url,
            allow_insecure_http: false,
            silent: false,
            following: self.following.clone(),
        })
    }
}

/// A repository of a hosting service.
pub(super) struct ForgeRepository {
    service: ForgeService,
    /// The address of the service, `https://HOST/`.
    host: Url,
    /// The address for SSH keys, `ssh://git@HOST/`.
    ssh: Url,
    owner: String,
    repository: String,
    is_personal: bool,
    visibility: RepositoryVisibility,
    read_only: bool,
    token: String,
    tls: TlsConfig,
}

impl ForgeRepository {
    /// The repository that the flags name.
    ///
    /// # Errors
    /// There is no token, or a name is not valid.
    pub(super) fn new(service: ForgeService, args: &ForgeBootstrapArgs) -> anyhow::Result<Self> {
        let (variable, public) = match service {
            ForgeService::GitHub => ("GITHUB_TOKEN", "github.com"),
            ForgeService::GitLab => ("GITLAB_TOKEN", "gitlab.com"),
            ForgeService::Gitea => ("GITEA_TOKEN", "gitea.com"),
        };
        let token = args.token.clone().or_else(|| std::env::var(variable).ok());
        let token = token
            .filter(|it| !it.is_empty())
            .with_context(|| format!("no {service} token: set ${variable}, or pass --token"))?;
        let host = args.hostname.as_deref().unwrap_or(public);
        let host = Url::parse(&format!("https://{host}/"))
            .ok()
            .filter(|it| it.path() == "/" && it.username().is_empty() && it.query().is_none())
            .with_context(|| format!("--hostname {host} is not the name of a host"))?;
        // The port of `https://` does not apply to `ssh://`.
        let ssh = args.ssh_hostname.as_deref().or(host.host_str()).unwrap_or_default();
        let ssh = Url::parse(&format!("ssh://git@{ssh}/"))
            .ok()
            .filter(|it| it.path() == "/" && it.username() == "git" && it.password().is_none())
            .filter(|it| it.query().is_none() && it.fragment().is_none())
            .filter(|it| it.host_str().is_some_and(|host| !host.starts_with('-')))
            .with_context(|| format!("--ssh-hostname {ssh} is not the name of a host"))?;
        let is_name = |text: &str, slashes: bool| {
            let is_part = |part: &str| {
                !part.is_empty()
                    && !part.starts_with(['.', '-'])
                    && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            };
            if slashes { text.split('/').all(is_part) } else { is_part(text) }
        };
        // GitLab groups can contain groups, so the owner may be a path.
        let owner_is_name = is_name(&args.owner, service == ForgeService::GitLab);
        ensure!(owner_is_name, "--owner {} is not a valid {service} owner name", args.owner);
        let name = args.repository.trim_end_matches(".git");
        ensure!(
            is_name(name, false),
            "--repository {name} is not a valid {service} repository name"
        );
        ensure!(
            service == ForgeService::GitLab || args.visibility != RepositoryVisibility::Internal,
            "--visibility internal is for GitLab: {service} has private and public repositories"
        );
        let tls = TlsConfig { ca: args.following.ca()?.map(String::into_bytes), identity: None };
        Ok(Self {
            service,
            host,
            ssh,
            owner: args.owner.clone(),
            repository: name.to_owned(),
            is_personal: args.personal,
            visibility: args.visibility,
            read_only: !args.read_write_key,
            token,
            tls,
        })
    }

    /// The URL to which the token pushes.
    ///
    /// # Errors
    /// The names do not form a valid URL.
    pub(super) fn url(&self) -> anyhow::Result<Url> {
        Ok(self.host.join(&format!("{}/{}.git", self.owner, self.repository))?)
    }

    /// The URL from which the cluster reads with a deploy key.
    ///
    /// # Errors
    /// The names do not form a valid URL.
    pub(super) fn ssh_url(&self) -> anyhow::Result<Url> {
        Ok(self.ssh.join(&format!("{}/{}.git", self.owner, self.repository))?)
    }

    /// The credentials for pushing: the token, in a Secret of this name.
    pub(super) fn given(&self, secret_name: &str) -> GitCredentialsArgs {
        GitCredentialsArgs::token(secret_name, &self.token)
    }

    /// Creates the repository if it does not exist.
    ///
    /// # Errors
    /// The service rejects the request, or did not respond.
    pub(super) async fn ensure_repository(&self) -> anyhow::Result<()> {
        let name = format!("{}/{}", self.owner, self.repository);
        let found = self.send(Method::GET, &self.of_repository(""), None).await?;
        match found {
            (status, _) if status.is_success() => return Ok(()),
            (StatusCode::NOT_FOUND, _) => {}
            (status, body) => {
                bail!("cannot read repository {name} on {}: {}", self.service, said(status, &body))
            }
        }
        let (path, body) = self.creation().await?;
        let (status, body) = self.send(Method::POST, &path, Some(&body)).await?;
        ensure!(
            status.is_success(),
            "{} rejected creating repository {name}: {}; create it, or pass --personal if the owner is the user of the \
             token",
            self.service,
            said(status, &body)
        );
        say(ProgressGlyph::Success, &format!("repository {name} created"));
        Ok(())
    }

    /// The request that creates the repository.
    async fn creation(&self) -> anyhow::Result<(String, Value)> {
        let private = self.visibility != RepositoryVisibility::Public;
        if self.service != ForgeService::GitLab {
            let path = match self.is_personal {
                true => "user/repos".to_owned(),
                false => format!("orgs/{}/repos", self.owner),
            };
            return Ok((path, json!({"name": self.repository, "private": private})));
        }
        let visibility = match self.visibility {
            RepositoryVisibility::Private => "private",
            RepositoryVisibility::Internal => "internal",
            RepositoryVisibility::Public => "public",
        };
        let mut body =
            json!({"name": self.repository, "path": self.repository, "visibility": visibility});
        if !self.is_personal {
            let (status, group) =
                self.send(Method::GET, &format!("groups/{}", encoded(&self.owner)), None).await?;
            ensure!(
                status.is_success(),
                "cannot read group {} on GitLab: {}",
                self.owner,
                said(status, &group)
            );
            body["namespace_id"] = group["id"].clone();
        }
        Ok(("projects".to_owned(), body))
    }

    /// Registers a key that may read the repository.
    ///
    /// # Errors
    /// The service rejects the request, or did not respond.
    pub(super) async fn register(&self, public_key: &str, title: &str) -> anyhow::Result<()> {
        let key = public_key.trim();
        let (path, body) = match self.service {
            ForgeService::GitLab => (
                self.of_repository("/deploy_keys"),
                json!({"title": title, "key": key, "can_push": !self.read_only}),
            ),
            ForgeService::GitHub | ForgeService::Gitea => (
                self.of_repository("/keys"),
                json!({"title": title, "key": key, "read_only": self.read_only}),
            ),
        };
        let (status, body) = self.send(Method::POST, &path, Some(&body)).await?;
        ensure!(
            status.is_success(),
            "{} rejected the deploy key: {}; the token needs the right to administer the repository, or pass \
             --token-auth",
            self.service,
            said(status, &body)
        );
        let rights = if self.read_only { "read" } else { "read and write" };
        say(ProgressGlyph::Success, &format!("deploy key `{title}` may {rights} the repository"));
        Ok(())
    }

    fn of_repository(&self, rest: &str) -> String {
        match self.service {
            ForgeService::GitLab => {
                format!(
                    "projects/{}{rest}",
                    encoded(&format!("{}/{}", self.owner, self.repository))
                )
            }
            _ => format!("repos/{}/{}{rest}", self.owner, self.repository),
        }
    }

    /// The base URL of the service's API.
    fn api(&self) -> String {
        let host = &self.host;
        match self.service {
            ForgeService::GitHub if host.host_str() == Some("github.com") => {
                "https://api.github.com/".to_owned()
            }
            ForgeService::GitHub => format!("{host}api/v3/"),
            ForgeService::GitLab => format!("{host}api/v4/"),
            ForgeService::Gitea => format!("{host}api/v1/"),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let client = http_client::client(&self.tls, None)?;
        let url = format!("{}{path}", self.api());
        let (name, value) = match self.service {
            ForgeService::GitHub => ("Authorization", format!("Bearer {}", self.token)),
            ForgeService::GitLab => ("PRIVATE-TOKEN", self.token.clone()),
            ForgeService::Gitea => ("Authorization", format!("token {}", self.token)),
        };
        let mut request = client
            .request(method, &url)
            .timeout(REQUEST_TIMEOUT)
            .header("User-Agent", concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .header(name, value);
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = request.send().await.map_err(|error| {
            anyhow::anyhow!("{url} cannot be reached: {}", http_client::root_cause(&error))
        })?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await? {
            ensure!(
                bytes.len() + part.len() <= MAX_RESPONSE_BYTES,
                "{url} answers more than 1 MiB"
            );
            bytes.extend_from_slice(&part);
        }
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The message of a service about a request that it rejected.
fn said(status: StatusCode, body: &Value) -> String {
    let message = body.get("message").or_else(|| body.get("error"));
    let text = match message {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let text: String =
        text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_MESSAGE_CHARACTERS).collect();
    if text.is_empty() { status.to_string() } else { format!("{status}: {text}") }
}

#[cfg(test)]
mod tests;
