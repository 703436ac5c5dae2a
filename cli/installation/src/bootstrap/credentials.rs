//! The credentials with which the cluster reads the repository, and with which this command writes to it.
//!
//! A given key or password serves for both. Without one, the user's own `git` writes, and the cluster reads with the
//! credentials in its Secret.
//! For SSH, windlass makes a key if the Secret has none. The programs of OpenSSH make keys and read host keys. `git` needs
//! OpenSSH for SSH anyway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

use super::repository_move;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::ClusterConnection;

/// What was given on the command line.
#[derive(Debug, Clone, Args)]
pub(super) struct GitCredentialsArgs {
    /// Name of the Secret with the credentials, in the namespace of windlass
    #[arg(long, default_value = "flux-system", value_name = "SECRET")]
    pub(super) secret_name: String,
    /// User name for https://
    #[arg(long, env = "GIT_USERNAME", default_value = "git", value_name = "NAME")]
    username: String,
    /// Password or token for https://
    #[arg(long, env = "GIT_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    password: Option<String>,
    /// Private key for ssh://
    #[arg(long, value_name = "PATH")]
    private_key_file: Option<PathBuf>,
    /// Host keys for ssh://, as ~/.ssh/known_hosts has them; by default the server is asked
    #[arg(long, value_name = "PATH")]
    known_hosts_file: Option<PathBuf>,
}

impl GitCredentialsArgs {
    /// Uses a token of a hosting service.
    pub(super) fn token(secret_name: &str, token: &str) -> Self {
        Self { password: Some(token.to_owned()), ..Self::key(secret_name) }
    }

    /// Uses a deploy key. A key is made if the Secret has none.
    pub(super) fn key(secret_name: &str) -> Self {
        Self {
            secret_name: secret_name.to_owned(),
            username: "git".to_owned(),
            password: None,
            private_key_file: None,
            known_hosts_file: None,
        }
    }
}

/// The credentials of the repository.
pub(super) struct RepositoryCredentials {
    /// The data of the Secret. Empty if anyone may read the repository.
    data: BTreeMap<String, String>,
    /// Environment variables for the user's `git`. Empty if its own configuration has credentials.
    environment: Vec<(String, OsString)>,
    is_generated: bool,
    /// Whether the Secret has to be written.
    is_new: bool,
    /// The files that the environment variables name.
    _files: TempDir,
}

/// Checks the URL of a repository.
///
/// # Errors
/// The form of the URL is not supported, or the URL contains a password.
pub(super) fn check(url: &Url, allow_http: bool) -> anyhow::Result<()> {
    ensure!(url.password().is_none(), "--url has a password: pass --password");
    match url.scheme() {
        "ssh" => {
            ensure!(!url.username().is_empty(), "--url has no user: ssh://git@HOST/PATH");
            ensure!(url.host_str().is_some_and(|it| !it.starts_with('-')), "--url has no host");
        }
        "https" => ensure!(url.username().is_empty(), "--url has a user: pass --username"),
        "http" if allow_http => {
            ensure!(url.username().is_empty(), "--url has a user: pass --username");
        }
        "http" => bail!("http:// is not encrypted: use https://, or pass --allow-insecure-http"),
        other => bail!("--url begins with {other}://: use ssh:// or https://"),
    }
    Ok(())
}

impl RepositoryCredentials {
    /// Chooses the credentials: those that the user gave, or those in the Secret for this repository. Otherwise, it makes a key
    /// for `ssh://`.
    ///
    /// # Errors
    /// A file cannot be read, the server shows no host key, or the Secret cannot be read.
    pub(super) async fn find(
        cluster: &ClusterConnection,
        namespace: &str,
        url: &Url,
        given: &GitCredentialsArgs,
        ca: Option<String>,
    ) -> anyhow::Result<Self> {
        let secret = &given.secret_name;
        let found = kept(cluster, namespace, secret).await?;
        let source = repository_move::read_source(cluster, namespace).await?;
        let earlier = source.as_ref().and_then(|it| repository_of(it, secret));
        // Credentials of one repository must not be sent to the server of another repository.
        let kept = match earlier.filter(|earlier| !is_same(earlier, url)) {
            Some(earlier) if !found.is_empty() => {
                let text = format!(
                    "Secret/{namespace}/{secret} is of {earlier}: its credentials are replaced by those of {url}"
                );
                say(ProgressGlyph::Action, &text);
                BTreeMap::new()
            }
            _ => found.clone(),
        };
        let mut credentials = match url.scheme() {
            "ssh" => Self::of_ssh(url, given, &kept)?,
            _ => Self::of_http(given, kept, ca)?,
        };
        credentials.is_new =
            credentials.data.iter().any(|(key, value)| found.get(key) != Some(value));
        Ok(credentials)
    }

    fn of_ssh(
        url: &Url,
        given: &GitCredentialsArgs,
        kept: &BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let files = private_folder()?;
        ensure!(given.password.is_none(), "--password is for https://: pass --private-key-file");
        let known_hosts = match (&given.known_hosts_file, kept.get("known_hosts")) {
            (Some(path), _) => read(path)?,
            (None, Some(kept)) if knows(kept, url, files.path())? => kept.clone(),
            (None, _) => host_keys(url)?,
        };
        let key = files.path().join("identity");
        let mut is_generated = false;
        let identity = match (&given.private_key_file, kept.get("identity")) {
            (Some(path), _) => read(path)?,
            (None, Some(kept)) => kept.clone(),
            (None, None) => {
                is_generated = true;
                generate(&key)?;
                read(&key)?
            }
        };
        if !is_generated {
            write_private(&key, &identity)?;
        }
        let public = public_half(&key)?;
        let hosts = files.path().join("known_hosts");
        write_private(&hosts, &known_hosts)?;
        let mut environment = Vec::new();
        if given.private_key_file.is_some() {
            let command = format!(
                "ssh -i '{}' -o IdentitiesOnly=yes -o UserKnownHostsFile='{}' -o StrictHostKeyChecking=yes \
                 -o BatchMode=yes",
                key.display(),
                hosts.display()
            );
            environment.push(("GIT_SSH_COMMAND".to_owned(), command.into()));
        }
        let data = BTreeMap::from([
            ("identity".to_owned(), identity),
            ("identity.pub".to_owned(), public),
            ("known_hosts".to_owned(), known_hosts),
        ]);
        let is_new = data.iter().any(|(key, value)| kept.get(key) != Some(value));
        Ok(Self { data, environment, is_generated, is_new, _files: files })
    }

    /// Credentials for `https://` with a password. Without a password, the Secret's credentials apply, or those in git's own
    /// configuration.
    ///
    /// # Errors
    /// A key was given, or a file cannot be written.
    pub(super) fn of_http(
        given: &GitCredentialsArgs,
        kept: BTreeMap<String, String>,
        ca: Option<String>,
    ) -> anyhow::Result<Self> {
        let files = private_folder()?;
        ensure!(given.private_key_file.is_none(), "--private-key-file is for ssh://");
        let mut environment = Vec::new();
        let mut settings: Vec<(&str, String)> = Vec::new();
        let mut data = BTreeMap::new();
        if let Some(password) = &given.password {
            data.insert("username".to_owned(), given.username.clone());
            data.insert("password".to_owned(), password.clone());
            let pair = STANDARD.encode(format!("{}:{password}", given.username));
            // The password is neither on a command line nor in a URL, where other users could read it.
            settings.push(("http.extraHeader", format!("Authorization: Basic {pair}")));
            settings.push(("credential.helper", String::new()));
        } else {
            data.clone_from(&kept);
        }
        if let Some(ca) = ca {
            let path = files.path().join("ca.crt");
            write_private(&path, &ca)?;
            // This is an environment variable, because a variable in the user's own environment would override a Git setting.
            environment.push(("GIT_SSL_CAINFO".to_owned(), path.into()));
            data.insert("ca.crt".to_owned(), ca);
        }
        if !settings.is_empty() {
            environment.push(("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string().into()));
        }
        for (at, (key, value)) in settings.into_iter().enumerate() {
            environment.push((format!("GIT_CONFIG_KEY_{at}"), key.into()));
            environment.push((format!("GIT_CONFIG_VALUE_{at}"), value.into()));
        }
        let is_new = data != kept;
        Ok(Self { data, environment, is_generated: false, is_new, _files: files })
    }

    /// Whether the cluster needs a Secret to read the repository.
    pub(super) fn has_secret(&self) -> bool {
        !self.data.is_empty()
    }

    /// Whether this command made a new key, which the server does not know yet.
    pub(super) fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// The public SSH key, if this run generated the key pair. `None` if the user provided the credentials.
    pub(super) fn generated_key(&self) -> Option<&str> {
        self.is_generated.then(|| self.data.get("identity.pub").map(String::as_str))?
    }

    /// The environment variables for `git`.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&str, &OsString)> {
        self.environment.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The Secret, if it has to be written.
    ///
    /// # Errors
    /// Its name is not valid.
    pub(super) fn secret(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Object>> {
        if !self.is_new {
            return Ok(None);
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": self.data,
        });
        Ok(Some(Object::new(object).context("a Secret")?))
    }
}

/// The URL of the repository that a source reads with the Secret of this name. `None` if the source names another Secret or
/// none.
fn repository_of(source: &Object, secret: &str) -> Option<String> {
    let spec = source.get("spec")?;
    let url = spec["url"].as_str().filter(|_| spec["secretRef"]["name"] == secret)?;
    Some(url.to_owned())
}

/// Whether two URLs refer to the same repository.
fn is_same(earlier: &str, url: &Url) -> bool {
    let plain = |url: &str| {
        let url = url.trim_end_matches('/');
        url.strip_suffix(".git").unwrap_or(url).to_owned()
    };
    let earlier = Url::parse(earlier).map_or_else(|_| earlier.to_owned(), String::from);
    plain(&earlier) == plain(url.as_str())
}

/// Whether the known hosts contain a key of a server. This also works for hashed names.
fn knows(known_hosts: &str, url: &Url, folder: &Path) -> anyhow::Result<bool> {
    let path = folder.join("kept_known_hosts");
    write_private(&path, known_hosts)?;
    let host = url.host_str().unwrap_or_default();
    let name = match url.port().unwrap_or(22) {
        22 => host.to_owned(),
        port => format!("[{}]:{port}", host.trim_matches(['[', ']'])),
    };
    let output = Command::new("ssh-keygen")
        .args(["-F", &name, "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .context("`ssh-keygen` cannot be started: install OpenSSH first")?;
    // The exit status is 1 if no key was found.
    Ok(output.status.success())
}

/// The data of the Secret. Empty if the Secret does not exist.
async fn kept(
    cluster: &ClusterConnection,
    namespace: &str,
    name: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let resource = cluster.resource(&Gvk::new("v1", "Secret")).await?;
    let found = cluster.get(&resource, namespace, name).await?;
    let data = found.as_ref().and_then(|it| it.get("data")).and_then(Value::as_object);
    let mut kept = BTreeMap::new();
    for (key, value) in data.into_iter().flatten() {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        let text = String::from_utf8(bytes)
            .with_context(|| format!("Secret {namespace}/{name}: {key} is not text"))?;
        kept.insert(key.clone(), text);
    }
    Ok(kept)
}

fn private_folder() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("windlass-credentials-").tempdir()?)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    // OpenSSH refuses a key whose last line has no line break.
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(file.write_all(format!("{text}{end}").as_bytes())?)
}

/// Runs a program of OpenSSH and returns its output.
fn openssh(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{program}` cannot be started: install OpenSSH first"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program}` failed: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn generate(path: &Path) -> anyhow::Result<()> {
    let path = path.to_string_lossy();
    openssh("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &path]).map(drop)
}

/// The public key of a private key. Fails for a key with a passphrase, because the cluster could not use such a key.
fn public_half(path: &Path) -> anyhow::Result<String> {
    openssh("ssh-keygen", &["-y", "-P", "", "-f", &path.to_string_lossy()])
        .context("the private key cannot be read; keys with a passphrase are not supported")
}

/// The host keys that a server presents. Parity(flux): they are trusted at first sight, so windlass prints their fingerprints.
fn host_keys(url: &Url) -> anyhow::Result<String> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().unwrap_or(22).to_string();
    let shown = openssh("ssh-keyscan", &["-T", "20", "-p", &port, host])?;
    let keys: Vec<&str> =
        shown.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    ensure!(!keys.is_empty(), "{host}:{port} shows no host key; pass --known-hosts-file");
    for key in &keys {
        let mut fields = key.split_whitespace().skip(1);
        let kind = fields.next().unwrap_or_default();
        let blob = fields.next().unwrap_or_default();
        let digest = sha256(&STANDARD.decode(blob).unwrap_or_default());
        say(ProgressGlyph::Warning, &format!("host key of {host}: {kind} SHA256:{digest}"));
    }
    Ok(keys.join("\n") + "\n")
}

/// A fingerprint in the format of OpenSSH.
fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(sha2::Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
