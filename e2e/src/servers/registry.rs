//! An OCI registry from the Debian package `docker-registry`, which is CNCF distribution 2.8.
//!
//! Here: starting it without a password, with a password, or over TLS, and pushing artifacts to it as `flux push artifact`
//! does.
//! It supports neither tokens nor referrers. A story that needs them writes its own server.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::certificate_authority::TestCertificateAuthority;
use crate::control_plane::free_ports;
use crate::process_reaper::ProcessReaper;

/// The user who may pull and push if the registry requires a password.
pub const USER: &str = "walker";
/// The password of [`USER`].
pub const PASSWORD: &str = "r3gistry-passw0rd";
/// [`PASSWORD`] in the bcrypt format, which is the only format that the registry reads.
const HASHED: &str = "$2y$05$abcdefghijklmnopqrstuuCE1jn9pfL/PEErQye5.cx8EC7GI.arC";

/// The media type of pushed manifests.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of pulled indexes.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of the config that Flux pushes.
const FLUX_CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
/// The media type of a layer with manifests, as Flux pushes it.
pub const FLUX_LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// A registry on loopback. It ends, and its content is removed, when it is dropped or when this process ends.
pub struct RegistryServer {
    host: String,
    authority: Option<TestCertificateAuthority>,
    has_password: bool,
    client: Client,
    folder: PathBuf,
    _reaper: ProcessReaper,
}

/// A layer of an OCI artifact that a test pushes.
pub struct PushedLayer<'a> {
    /// The media type of the layer.
    pub media_type: &'a str,
    /// The bytes of the layer.
    pub bytes: Vec<u8>,
}

impl RegistryServer {
    /// Starts a registry without authentication, over plain HTTP.
    pub async fn start() -> Result<Self> {
        Self::start_with(None, false).await
    }

    /// Starts a registry over plain HTTP that accepts only [`USER`].
    pub async fn start_with_password() -> Result<Self> {
        Self::start_with(None, true).await
    }

    /// Starts a registry over HTTPS that accepts only [`USER`]. [`RegistryServer::authority`] has signed its certificate.
    pub async fn start_tls() -> Result<Self> {
        Self::start_with(Some(TestCertificateAuthority::generate()?), true).await
    }

    async fn start_with(
        authority: Option<TestCertificateAuthority>,
        has_password: bool,
    ) -> Result<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new().prefix("windlass-registry-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        let [port] = free_ports()?;
        let host = format!("127.0.0.1:{port}");
        let mut config = json!({
            "version": 0.1,
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
            "http": {"addr": host},
        });
        if has_password {
            let users = folder.join("htpasswd");
            std::fs::write(&users, format!("{USER}:{HASHED}\n"))?;
            config["auth"] = json!({"htpasswd": {"realm": "registry", "path": users}});
        }
        let mut client = Client::builder().no_proxy();
        if let Some(authority) = &authority {
            let issued = authority.issue_server(&["127.0.0.1", "localhost"])?;
            let certificate = folder.join("tls.crt");
            let key = folder.join("tls.key");
            std::fs::write(&certificate, issued.certificate)?;
            std::fs::write(&key, issued.key)?;
            config["http"]["tls"] = json!({"certificate": certificate, "key": key});
            let own = reqwest::Certificate::from_pem(authority.certificate().as_bytes())?;
            client = client.tls_certs_only([own]);
        }
        // JSON is valid YAML.
        let path = folder.join("config.yml");
        std::fs::write(&path, config.to_string())?;
        reaper.spawn(Command::new(program).arg("serve").arg(&path), &folder.join("log"))?;
        let client = client.build()?;
        let registry = Self { host, authority, has_password, client, folder, _reaper: reaper };
        registry.await_start().await?;
        Ok(registry)
    }

    async fn await_start(&self) -> Result<()> {
        let url = format!("{}/v2/", self.base());
        crate::harness::await_until(
            "the registry to begin",
            super::SERVER_START_TIMEOUT,
            async || Ok(self.client.get(&url).send().await.ok().map(drop)),
        )
        .await
        .with_context(|| self.log())
    }

    /// The log of the registry, which contains its requests.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The host and port of the registry.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The certificate authority of the registry. `None` over plain HTTP.
    pub fn authority(&self) -> Option<&TestCertificateAuthority> {
        self.authority.as_ref()
    }

    /// The URL of a repository, for an OCIRepository.
    pub fn url(&self, repository: &str) -> String {
        format!("oci://{}/{repository}", self.host)
    }

    /// A Docker config with credentials for this registry.
    pub fn docker_config(&self, password: &str) -> String {
        json!({"auths": {&self.host: {"username": USER, "password": password}}}).to_string()
    }

    /// Pushes files as Flux does, in one layer that `tar` packs. Returns the digest of the manifest.
    pub async fn push_files(
        &self,
        repository: &str,
        tag: &str,
        files: &[(&str, &str)],
        annotations: Value,
    ) -> Result<String> {
        let layer = PushedLayer { media_type: FLUX_LAYER, bytes: self.pack(files)? };
        self.push(repository, tag, &[layer], annotations).await
    }

    /// Pushes layers with a new manifest. Returns the digest of the manifest.
    pub async fn push(
        &self,
        repository: &str,
        tag: &str,
        layers: &[PushedLayer<'_>],
        annotations: Value,
    ) -> Result<String> {
        let mut described = Vec::new();
        for PushedLayer { media_type, bytes } in layers {
            let digest = self.push_blob(repository, bytes.clone()).await?;
            described.push(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}));
        }
        let config = self.push_blob(repository, b"{}".to_vec()).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": FLUX_CONFIG, "digest": config, "size": 2},
            "layers": described,
            "annotations": annotations,
        });
        self.push_manifest(repository, tag, &manifest).await
    }

    /// Pushes a manifest or an index under a tag, or under its digest if the tag is empty. Returns the digest. The registry
    /// must already contain everything that the manifest refers to.
    pub async fn push_manifest(
        &self,
        repository: &str,
        reference: &str,
        manifest: &Value,
    ) -> Result<String> {
        let kind = manifest["mediaType"].as_str().unwrap_or(MANIFEST).to_owned();
        let manifest = manifest.to_string();
        let digest = digest(manifest.as_bytes());
        let reference = if reference.is_empty() { &digest } else { reference };
        let url = format!("{}/v2/{repository}/manifests/{reference}", self.base());
        let request = self.client.put(url).header("content-type", kind).body(manifest);
        created(self.authorized(request).send().await?).await?;
        Ok(digest)
    }

    /// Reads the manifest or index of a tag or a digest.
    pub async fn manifest(&self, repository: &str, reference: &str) -> Result<Value> {
        let url = format!("{}/v2/{repository}/manifests/{reference}", self.base());
        let accept = format!("{MANIFEST}, {INDEX}");
        let request = self.authorized(self.client.get(url).header("accept", accept));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Pushes a blob. Returns its digest.
    pub async fn push_blob(&self, repository: &str, bytes: Vec<u8>) -> Result<String> {
        let digest = digest(&bytes);
        let url = format!("{}/v2/{repository}/blobs/uploads/", self.base());
        let begun = self.authorized(self.client.post(&url)).send().await?;
        ensure!(begun.status() == StatusCode::ACCEPTED, "{}", begun.text().await?);
        let place = begun.headers().get("location").context("no place to upload to")?.to_str()?;
        let mut place = reqwest::Url::parse(&url)?.join(place)?;
        place.query_pairs_mut().append_pair("digest", &digest);
        let request = self.client.put(place).header("content-type", "application/octet-stream");
        created(self.authorized(request.body(bytes)).send().await?).await?;
        Ok(digest)
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        if self.has_password { request.basic_auth(USER, Some(PASSWORD)) } else { request }
    }

    fn base(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.host)
    }

    /// Packs files into a compressed archive.
    fn pack(&self, files: &[(&str, &str)]) -> Result<Vec<u8>> {
        let place = tempfile::tempdir_in(&self.folder)?;
        for (path, text) in files {
            let path = place.path().join(path);
            let folder = path.parent().context("a file without a folder")?;
            std::fs::create_dir_all(folder)?;
            std::fs::write(&path, text)?;
        }
        let packed = Command::new("tar")
            .arg("-czf")
            .arg("-")
            .arg("-C")
            .arg(place.path())
            .arg(".")
            .stdin(Stdio::null())
            .output()
            .context("cannot start `tar`")?;
        ensure!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        Ok(packed.stdout)
    }
}

async fn created(answer: Response) -> Result<()> {
    let status = answer.status();
    ensure!(status == StatusCode::CREATED, "{status}: {}", answer.text().await?);
    Ok(())
}

fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// The path of the registry program: `$WINDLASS_REGISTRY`, or a program on the `PATH`.
fn program() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("WINDLASS_REGISTRY").filter(|it| !it.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    super::installed(&["docker-registry", "registry"], "docker-registry")
        .context("or name a program of github.com/distribution/distribution in WINDLASS_REGISTRY")
}
