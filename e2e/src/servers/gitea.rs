//! Gitea, with its API, its webhooks, and Git over HTTP and SSH.
//!
//! Here: running it with one user, tokens, repositories, and requests to its API. If a story needs TLS, `tls_proxy` runs in
//! front of it.
//! Elsewhere: building it (`binaries`), other Git servers (`git_server`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control_plane::{free_ports, tail, write_private};
use crate::git_server::StoryGitRepository;
use crate::harness::await_until;
use crate::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use crate::process_reaper::ProcessReaper;
use testbed::binaries::{GO, GoBuildRecipe, MissingSourcePart, ProgramSet, module};

/// The user of the server, who has all rights.
pub const USER: &str = "walker";
/// The password of [`USER`].
const PASSWORD: &str = "g1tea-passw0rd";

/// The Go module of Gitea. Its folder also contains the templates and texts that the program reads.
const MODULE: &str = "code.gitea.io/gitea@v1.26.4";

const GITEA: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe {
        name: "gitea",
        module: "gitea",
        package: "code.gitea.io/gitea",
        // Clients ask for the version. Without this flag, the version is `development`.
        link_flags: "-s -w -X main.Version=1.26.4",
        tags: "sqlite sqlite_unlock_notify",
        lacks: MissingSourcePart::Nothing,
    }],
    module_files: &["gitea/go.mod", "gitea/go.sum"],
    advice: GO,
};

/// A running server. It ends, and its repositories are removed, when it is dropped or when this process ends.
pub struct GiteaServer {
    port: u16,
    ssh_port: u16,
    client: reqwest::Client,
    log: PathBuf,
    _reaper: ProcessReaper,
    /// The folder of the local repositories.
    local: TempDir,
}

/// A repository of [`USER`] on the server, and the local repository that is pushed to it.
pub struct GiteaRepository {
    /// The local repository, in which stories commit.
    pub local: StoryGitRepository,
    /// The URL for reading, without `.git`, as Providers use it.
    pub url: String,
    /// The path in the API: `repos/<owner>/<name>`.
    pub path: String,
    remote: String,
}

impl GiteaRepository {
    /// Commits files and pushes the current branch. Returns the commit.
    pub fn push(&self, files: &[(&str, String)]) -> Result<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (*path, &**it)).collect();
        let commit = self.local.commit(&files, "a change")?;
        self.local.git(&["push", "-q", &self.remote, "HEAD"])?;
        Ok(commit)
    }

    /// Resets a branch of the server to a commit that the local repository has.
    ///
    /// # Errors
    /// The local repository does not have the commit, or the server refuses the push.
    pub fn reset(&self, branch: &str, commit: &str) -> Result<()> {
        let branch = format!("+{commit}:refs/heads/{branch}");
        self.local.git(&["push", "-q", &self.remote, &branch]).map(drop)
    }
}

impl GiteaServer {
    /// Starts a server without repositories.
    pub async fn start() -> Result<Self> {
        let program = GITEA.ensure(None)?["gitea"].clone();
        let assets = module(MODULE)?;
        let folder = tempfile::Builder::new().prefix("windlass-gitea-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        let [port, ssh_port] = free_ports()?;
        let host_key = rcgen::KeyPair::generate().context("cannot generate a host key")?;
        write_private(&folder.join("host.key"), &host_key.serialize_pem())?;
        let config = folder.join("app.ini");
        write_private(&config, &settings(&folder, &assets, [port, ssh_port]))?;
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command.arg("--config").arg(&config).args(arguments);
            // The server must not write to the home directory of the user who runs the tests.
            command.current_dir(&folder).env("HOME", &folder);
            command
        };
        let log = folder.join("log");
        let mut child = reaper.spawn(&mut run(&["web"]), &log)?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let local = tempfile::Builder::new().prefix("windlass-pushed-").tempdir()?;
        let server = Self { port, ssh_port, client, log, _reaper: reaper, local };
        let health = format!("{}/api/healthz", server.url());
        let is_ended = await_until("Gitea to begin", super::SERVER_START_TIMEOUT, async || {
            if child.try_wait()?.is_some() {
                return Ok(Some(true));
            }
            let answer = server.client.get(&health).send().await?;
            Ok(answer.status().is_success().then_some(false))
        });
        let is_ended = is_ended.await.with_context(|| tail(&server.log, 20))?;
        ensure!(!is_ended, "Gitea ended during the start:\n{}", tail(&server.log, 20));
        let mail = format!("{USER}@testbed.example");
        let create = ["admin", "user", "create", "--admin", "--must-change-password=false"];
        let given = ["--username", USER, "--password", PASSWORD, "--email", &mail];
        let mut create = tokio::process::Command::from(run(&[&create[..], &given].concat()));
        let output = create.output().await.context("cannot start gitea")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(output.status.success(), "no user was created: {said}");
        Ok(server)
    }

    /// The URL of the API and of the repositories.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The host and port of [`GiteaServer::url`].
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The host and port of its SSH server.
    pub fn ssh_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ssh_port).into()
    }

    /// The log of the server so far.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// Makes a token with all rights of [`USER`].
    pub async fn token(&self, name: &str) -> Result<String> {
        let path = format!("users/{USER}/tokens");
        let made = self.ask(Method::POST, &path, json!({"name": name, "scopes": ["all"]})).await?;
        made["sha1"].as_str().map(str::to_owned).context("Gitea made no token")
    }

    /// Deletes the access token with this name.
    pub async fn revoke(&self, name: &str) -> Result<()> {
        self.ask(Method::DELETE, &format!("users/{USER}/tokens/{name}"), Value::Null)
            .await
            .map(drop)
    }

    /// Creates an empty public repository, and a local repository that is pushed to it.
    pub async fn repository(&self, name: &str) -> Result<GiteaRepository> {
        let body = json!({"name": name, "private": false, "default_branch": "main"});
        self.ask(Method::POST, "user/repos", body).await?;
        let folder = self.local.path();
        let local = StoryGitRepository::create(&folder.join("bare"), &folder.join("work"), name)?;
        let address = self.address();
        Ok(GiteaRepository {
            local,
            url: format!("http://{address}/{USER}/{name}"),
            path: format!("repos/{USER}/{name}"),
            remote: format!("http://{USER}:{PASSWORD}@{address}/{USER}/{name}.git"),
        })
    }

    /// Opens a pull request from a pushed branch to `main`, and returns its number.
    ///
    /// Gitea handles a push in a queue, so it may not know the branch right after the push. So this function
    /// first waits until Gitea knows the branch.
    pub async fn open_pull_request(&self, of: &GiteaRepository, branch: &str) -> Result<String> {
        let path = format!("{}/branches/{branch}", of.path);
        let what = format!("Gitea to know the branch {branch}");
        await_until(&what, DEFAULT_WAIT_TIMEOUT, async || Ok(self.get(&path).await.ok())).await?;
        let request = json!({"head": branch, "base": "main", "title": "a change"});
        let opened = self.ask(Method::POST, &format!("{}/pulls", of.path), request).await?;
        Ok(opened["number"].to_string())
    }

    /// The answer of the API to `/api/v1/<path>`.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, Value::Null).await
    }

    /// Sends a request to the API as [`USER`]. Returns `null` if the answer is empty.
    ///
    /// # Errors
    /// The answer is not a success. The error contains its status and its text.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value> {
        let url = format!("{}/api/v1/{path}", self.url());
        let mut request = self.client.request(method.clone(), url);
        request = request.basic_auth(USER, Some(PASSWORD));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))
    }
}

/// Features that no story uses are off. So the server starts quickly and sends no requests to the internet.
fn settings(folder: &Path, assets: &Path, [port, ssh_port]: [u16; 2]) -> String {
    let folder = folder.display();
    let assets = assets.display();
    format!(
        "WORK_PATH = {folder}\n\
         ; Test machines may have no other user, and it refuses to run as root without.\n\
         I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true\n\
         [security]\nINSTALL_LOCK = true\nSECRET_KEY = windlass\nINTERNAL_TOKEN = windlass-internal\n\
         [server]\nHTTP_ADDR = 127.0.0.1\nHTTP_PORT = {port}\nROOT_URL = http://127.0.0.1:{port}/\n\
         STATIC_ROOT_PATH = {assets}\nAPP_DATA_PATH = {folder}/data\nOFFLINE_MODE = true\nLFS_START_SERVER = false\n\
         START_SSH_SERVER = true\nSSH_LISTEN_HOST = 127.0.0.1\nSSH_DOMAIN = 127.0.0.1\nSSH_PORT = {ssh_port}\n\
         BUILTIN_SSH_SERVER_USER = git\nSSH_SERVER_HOST_KEYS = {folder}/host.key\n\
         [database]\nDB_TYPE = sqlite3\nPATH = {folder}/gitea.db\nSQLITE_JOURNAL_MODE = WAL\n\
         [repository]\nROOT = {folder}/repositories\n\
         [log]\nMODE = console\nLEVEL = Trace\n\
         [webhook]\nALLOWED_HOST_LIST = loopback\n\
         [service]\nDISABLE_REGISTRATION = true\n\
         [oauth2]\nENABLED = false\n\
         [actions]\nENABLED = false\n\
         [packages]\nENABLED = false\n\
         [indexer]\nISSUE_INDEXER_TYPE = db\n\
         [cron]\nENABLED = false\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::binaries::testbed;

    #[test]
    fn the_version_that_is_named_is_the_one_that_is_built() {
        let text = std::fs::read_to_string(testbed().join("gitea/go.mod")).unwrap();
        let (path, version) = MODULE.split_once('@').unwrap();
        let wanted = format!("{path} {version}");
        assert!(text.lines().any(|line| line.contains(&wanted)), "go.mod has no {wanted}");
        let flags = GITEA.recipes[0].link_flags;
        assert!(flags.ends_with(version.trim_start_matches('v')), "{flags}");
    }
}
