//! A remote server of each kind behind a relay, the objects that follow it, and the served versions. `data_loss_incidents`
//! uses the same servers.
//!
//! The contents of a version are mostly random, so compression does not shorten the transfer.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use artifacts::archive::{ExtractOptions, extract};
use e2e::git_server::{GitReadAccess, GitServer, SshServer, StoryGitRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, REQUESTED_AT};
use e2e::harness::{Story, StoryObject};
use e2e::http_fault_proxy::HttpFaultProxy;
use e2e::random_sequence::RandomSequence;
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use e2e::servers::web::FileWebServer;
use e2e::tcp_relay::TcpRelay;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tree::{FileTree as _, MemoryTree};

const API: &str = "source.toolkit.fluxcd.io/v1";

/// The name of every object here.
const NAME: &str = "app";

/// The file with the number of the version.
const VERSION: &str = "version.txt";

/// How a source is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceFetchMethod {
    GitHttp,
    GitSsh,
    Bucket,
    OciRepository,
    HelmRepository,
    HelmChart,
    HttpArchive,
}

enum UpstreamServer {
    Git { server: Box<GitServer>, repository: StoryGitRepository, ssh: Option<SshServer> },
    S3(S3Server),
    Registry(RegistryServer),
    Charts(ChartServer),
    Web(FileWebServer),
}

/// A remote server of one kind behind a relay. A test publishes versions on it, and source objects follow it.
pub(crate) struct RelayedUpstream {
    way: SourceFetchMethod,
    server: UpstreamServer,
    /// The relay between the server and the program that fetches.
    pub(crate) relay: TcpRelay,
    /// The proxy between the server and the relay, for tests of wrong answers.
    faults: Option<HttpFaultProxy>,
    /// The size of a version's contents before compression, in bytes.
    bytes: usize,
    /// Further files of each version.
    more: Vec<(String, String)>,
}

/// The digest of bytes, in the format of statuses.
fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A text that compression cannot shorten to less than half.
fn chance(version: u32, bytes: usize) -> String {
    let mut random = RandomSequence::new(u64::from(version));
    let mut text = String::with_capacity(bytes + 17);
    while text.len() < bytes {
        writeln!(text, "{:016x}", random.number()).ok();
    }
    text
}

/// Packs files with `tar` and gzip. Returns the bytes of the archive.
fn packed(files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    for (path, text) in files {
        std::fs::write(folder.path().join(path), text)?;
    }
    let mut tar = std::process::Command::new("tar");
    let output = tar.args(["-cz", "-C"]).arg(folder.path()).arg(".").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

impl UpstreamServer {
    /// Starts the server of a kind. Returns its address.
    async fn start(way: SourceFetchMethod) -> Result<(Self, SocketAddr)> {
        let (server, address) = match way {
            SourceFetchMethod::GitHttp | SourceFetchMethod::GitSsh => {
                let server = GitServer::start(GitReadAccess::Open)?;
                let repository = server.repository(NAME)?;
                let ssh = (way == SourceFetchMethod::GitSsh).then(|| server.ssh()).transpose()?;
                let url = match &ssh {
                    Some(ssh) => ssh.url(&repository),
                    None => server.url(&repository),
                };
                (Self::Git { server: Box::new(server), repository, ssh }, host(&url)?.to_owned())
            }
            SourceFetchMethod::Bucket => {
                let server = S3Server::start().await?;
                server.bucket(NAME).await?;
                let address = server.endpoint();
                (Self::S3(server), address)
            }
            SourceFetchMethod::OciRepository => {
                let registry = RegistryServer::start().await?;
                let address = registry.host().to_owned();
                (Self::Registry(registry), address)
            }
            SourceFetchMethod::HelmChart => {
                let server = ChartServer::start(None)?;
                let address = host(&server.url())?.to_owned();
                (Self::Charts(server), address)
            }
            SourceFetchMethod::HelmRepository | SourceFetchMethod::HttpArchive => {
                let server = FileWebServer::start().await?;
                let address = server.address().to_string();
                (Self::Web(server), address)
            }
        };
        Ok((server, address.parse::<SocketAddr>()?))
    }
}

impl RelayedUpstream {
    /// Starts the server and the relay, without any version.
    pub(crate) async fn start(way: SourceFetchMethod, bytes: usize) -> Result<Self> {
        let (server, address) = UpstreamServer::start(way).await?;
        let relay = TcpRelay::start(address).await?;
        Ok(Self { way, server, relay, faults: None, bytes, more: Vec::new() })
    }

    /// Starts a plain HTTP server that can give wrong answers. Each version contains these additional files.
    pub(crate) async fn start_with_faults(
        way: SourceFetchMethod,
        more: Vec<(String, String)>,
    ) -> Result<Self> {
        let (server, address) = UpstreamServer::start(way).await?;
        let faults = HttpFaultProxy::start(address).await?;
        let relay = TcpRelay::start(faults.address()).await?;
        Ok(Self { way, server, relay, faults: Some(faults), bytes: 1000, more })
    }

    /// The proxy that gives wrong answers.
    pub(crate) fn faults(&self) -> Result<&HttpFaultProxy> {
        self.faults.as_ref().context("it was started without faults")
    }

    /// Publishes a version of the files on the upstream server.
    pub(crate) async fn publish(&self, version: u32) -> Result<()> {
        let says = version.to_string();
        let more = chance(version, self.bytes);
        let own = [(VERSION, &*says), ("more.txt", &*more)];
        let others = self.more.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        let files: Vec<(&str, &str)> = own.into_iter().chain(others).collect();
        match &self.server {
            UpstreamServer::Git { repository, .. } => repository.commit(&files, &says).map(drop),
            UpstreamServer::S3(server) => {
                for (key, text) in files {
                    server.put(NAME, key, text).await?;
                }
                Ok(())
            }
            UpstreamServer::Registry(registry) => {
                registry.push_files(NAME, "latest", &files, json!({})).await.map(drop)
            }
            UpstreamServer::Charts(server) => {
                let yaml = format!("apiVersion: v2\nname: {NAME}\nversion: 0.0.{version}\n");
                let files: Vec<_> = files.into_iter().chain([("Chart.yaml", &*yaml)]).collect();
                server.publish(&files)
            }
            UpstreamServer::Web(server) if self.way == SourceFetchMethod::HttpArchive => {
                server.put("app.tar.gz", packed(&files)?);
                Ok(())
            }
            UpstreamServer::Web(server) => {
                server.put("index.yaml", index(version, &more));
                Ok(())
            }
        }
    }

    /// The object whose artifact is observed.
    pub(crate) fn target(&self) -> StoryObject {
        match self.way {
            SourceFetchMethod::HttpArchive => {
                StoryObject::new("source.windlass.dev/v1alpha1", "HTTPArchive", NAME)
            }
            SourceFetchMethod::GitHttp | SourceFetchMethod::GitSsh => {
                StoryObject::git_repository(NAME)
            }
            SourceFetchMethod::Bucket => StoryObject::new(API, "Bucket", NAME),
            SourceFetchMethod::OciRepository => StoryObject::new(API, "OCIRepository", NAME),
            SourceFetchMethod::HelmRepository => StoryObject::new(API, "HelmRepository", NAME),
            SourceFetchMethod::HelmChart => StoryObject::new(API, "HelmChart", NAME),
        }
    }

    /// The object through which others use the artifact of the source. `None` if that is the source itself.
    pub(crate) fn offered(&self) -> Option<StoryObject> {
        (self.way == SourceFetchMethod::HttpArchive)
            .then(|| StoryObject::new(API, "ExternalArtifact", NAME))
    }

    /// Creates the objects. They reach the server through the relay.
    pub(crate) async fn create(&self, story: &Story) -> Result<()> {
        let at = self.relay.address();
        let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": data});
        let object = |kind: &str, spec: Value| json!({"apiVersion": API, "kind": kind, "metadata": {"name": NAME}, "spec": spec});
        let objects = match &self.server {
            UpstreamServer::Git { server, repository, ssh: None } => {
                let url = moved(&server.url(repository), at)?;
                return story.git_repository(NAME, &url, json!({})).await;
            }
            UpstreamServer::Git { repository, ssh: Some(ssh), .. } => {
                let url = ssh.url(repository);
                let port = at.port();
                let hosts = ssh.known_hosts()?;
                let key = hosts.split_once(' ').context("no known host")?.1;
                let known_hosts = format!("[127.0.0.1]:{port} {key}");
                let data = json!({"identity": ssh.identity()?, "known_hosts": known_hosts});
                story.apply_value(secret(data)).await?;
                let more = json!({"secretRef": {"name": NAME}});
                return story.git_repository(NAME, &moved(&url, at)?, more).await;
            }
            UpstreamServer::S3(_) => vec![
                secret(json!({"accesskey": ACCESS, "secretkey": SECRET})),
                object(
                    "Bucket",
                    json!({"interval": NEVER, "endpoint": at.to_string(), "bucketName": NAME,
                        "insecure": true, "secretRef": {"name": NAME}}),
                ),
            ],
            UpstreamServer::Registry(_) => vec![object(
                "OCIRepository",
                json!({"interval": NEVER, "url": format!("oci://{at}/{NAME}"), "insecure": true}),
            )],
            UpstreamServer::Charts(_) => vec![
                object("HelmRepository", json!({"interval": NEVER, "url": format!("http://{at}")})),
                object(
                    "HelmChart",
                    json!({"interval": NEVER, "chart": NAME,
                        "sourceRef": {"kind": "HelmRepository", "name": NAME}}),
                ),
            ],
            UpstreamServer::Web(_) if self.way == SourceFetchMethod::HttpArchive => vec![json!({
                "apiVersion": "source.windlass.dev/v1alpha1", "kind": "HTTPArchive",
                "metadata": {"name": NAME},
                "spec": {"interval": NEVER, "url": format!("http://{at}/app.tar.gz")},
            })],
            UpstreamServer::Web(_) => vec![object(
                "HelmRepository",
                json!({"interval": NEVER, "url": format!("http://{at}")}),
            )],
        };
        for object in objects {
            story.apply_value(object).await?;
        }
        Ok(())
    }

    /// Requests a reconciliation of the newest version. The relay passes `hold_after` bytes.
    pub(crate) async fn reconcile(&self, story: &Story, hold_after: Option<u64>) -> Result<()> {
        let hold = || hold_after.into_iter().for_each(|bytes| self.relay.hold_after(bytes));
        if self.way != SourceFetchMethod::HelmChart {
            hold();
            return story.request(&self.target()).await.map(drop);
        }
        // The index is not observed, so the relay passes the whole index first.
        let chart = self.target();
        let repository = StoryObject::new(API, "HelmRepository", NAME);
        story.merge(&chart, json!({"spec": {"suspend": true}})).await?;
        let token = story.request(&repository).await?;
        let is_handled = |it: &DynamicObject| it.data["status"]["lastHandledReconcileAt"] == token;
        story.await_object(&repository, DEFAULT_WAIT_TIMEOUT, is_handled).await?;
        hold();
        // This is a single write, so there is only one reconciliation. A second one might still be running when the story
        // continues.
        let asked = json!({"annotations": {REQUESTED_AT: token}});
        story.merge(&chart, json!({"metadata": asked, "spec": {"suspend": false}})).await.map(drop)
    }

    /// The version of an artifact. Checks that its contents are complete.
    pub(crate) fn version(&self, artifact: &[u8]) -> Result<u32> {
        if self.way == SourceFetchMethod::HelmRepository {
            let text = std::str::from_utf8(artifact)?;
            ensure!(text.ends_with(END), "the index is not whole");
            return Ok(text.lines().next().unwrap_or_default().trim_start_matches("# ").parse()?);
        }
        let files: MemoryTree = extract(artifact, &ExtractOptions::default())?;
        let is_version = |path: &&tree::RelPath| path.name() == Some(VERSION);
        let path = files.walk().map(|(path, _)| path).find(is_version);
        let text = files.read(path.context("an archive without a version")?)?;
        Ok(std::str::from_utf8(&text)?.parse()?)
    }

    /// The version that is served at the address in the status. `None` while there is no such address.
    pub(crate) async fn served(&self, story: &Story) -> Result<Option<u32>> {
        let object = story.expect(&self.target()).await?;
        let artifact = &object.data["status"]["artifact"];
        let Some(url) = artifact["url"].as_str() else { return Ok(None) };
        let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
        let found = digest(&bytes);
        ensure!(artifact["digest"] == found, "{url} has {found} in place of {artifact}");
        ensure!(artifact["size"] == bytes.len(), "{url} has {} bytes: {artifact}", bytes.len());
        self.version(&bytes).with_context(|| format!("{url} is not whole")).map(Some)
    }

    /// Waits until a version is served. Checks that every served artifact is complete.
    pub(crate) async fn await_version(&self, story: &Story, version: u32) -> Result<DynamicObject> {
        let begun = std::time::Instant::now();
        while self.served(story).await? != Some(version) {
            if begun.elapsed() > DEFAULT_WAIT_TIMEOUT {
                let status = story.expect(&self.target()).await?.data["status"].take();
                bail!("version {version} of {:?} did not come; its status is {status}", self.way);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        story.await_ready(&self.target()).await
    }

    /// The folder of the artifacts in the storage.
    pub(crate) fn slot(&self, story: &Story, storage: &Path) -> PathBuf {
        let kind = match self.way {
            SourceFetchMethod::GitHttp | SourceFetchMethod::GitSsh => "gitrepository",
            SourceFetchMethod::Bucket => "bucket",
            SourceFetchMethod::OciRepository => "ocirepository",
            SourceFetchMethod::HelmRepository => "helmrepository",
            SourceFetchMethod::HelmChart => "helmchart",
            SourceFetchMethod::HttpArchive => "httparchive",
        };
        storage.join(kind).join(&story.namespace).join(NAME)
    }
}

/// The last line of each index.
const END: &str = "# the end\n";

/// An index of one chart with a long description.
fn index(version: u32, text: &str) -> String {
    let mut index = format!(
        "# {version}\napiVersion: v1\nentries:\n  app:\n  - name: app\n    version: 0.0.{version}\n    urls: [app.tgz]\n    \
         description: |\n"
    );
    for line in text.lines() {
        writeln!(index, "      {line}").ok();
    }
    index + END
}

/// The host and port of a URL.
fn host(url: &str) -> Result<&str> {
    let place = url.split_once("://").context("no scheme")?.1.split('/').next();
    let place = place.context("no host")?;
    Ok(place.split_once('@').map_or(place, |(_, host)| host))
}

/// The same URL with another address.
fn moved(url: &str, to: SocketAddr) -> Result<String> {
    Ok(url.replacen(host(url)?, &to.to_string(), 1))
}
