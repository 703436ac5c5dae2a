//! An OCI registry: Debian's `docker-registry`, which is the CNCF's distribution 2.8.
//!
//! Here: starting it open, with a password, over TLS; pushing artifacts to it, as `flux push artifact` would.
//! It gives no tokens and no referrers: a story that needs those answers writes a server of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::certificate_authority::TestCertificateAuthority;
use crate::control_plane::free_ports;
use crate::process_reaper::ProcessReaper;

/// Who may pull and push where a password is asked for.
pub const USER: &str = "walker";
/// The password of [`USER`].
pub const PASSWORD: &str = "r3gistry-passw0rd";
/// [`PASSWORD`] as bcrypt has it, which is all that the registry reads.
const HASHED: &str = "$2y$05$abcdefghijklmnopqrstuuCE1jn9pfL/PEErQye5.cx8EC7GI.arC";

/// The media type of manifests that are pushed.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of indexes that are pulled.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media types that Flux gives to what it pushes.
const FLUX_CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
/// The media type of a layer with manifests, as Flux pushes it.
pub const FLUX_LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// A registry on loopback. Ends, with all that was pushed, when dropped or when this process ends.
pub struct RegistryServer {
    host: String,
    authority: Option<TestCertificateAuthority>,
    has_password: bool,
    client: Client,
    folder: PathBuf,
    _reaper: ProcessReaper,
}

/// A layer to be pushed.
pub struct PushedLayer<'a> {
    /// What it is.
    pub media_type: &'a str,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl RegistryServer {
    /// Starts a registry without authentication, over plain HTTP.
    pub async fn start() -> Result<Self> {
        Self::start_with(None, false).await
    }

    /// Starts a registry for [`USER`] only.
    pub async fn start_with_password() -> Result<Self> {
        Self::start_with(None, true).await
    }

    /// Starts a registry for [`USER`] only, over HTTPS, with a certificate that [`RegistryServer::authority`] vouches
    /// for.
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
        // JSON is YAML too.
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

    /// What the registry wrote, its requests among it.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Who vouches for the registry's certificate; none over plain HTTP.
    pub fn authority(&self) -> Option<&TestCertificateAuthority> {
        self.authority.as_ref()
    }

    /// A repository as an OCIRepository names it.
    pub fn url(&self, repository: &str) -> String {
        format!("oci://{}/{repository}", self.host)
    }

    /// A docker config with credentials for this registry.
    pub fn docker_config(&self, password: &str) -> String {
        json!({"auths": {&self.host: {"username": USER, "password": password}}}).to_string()
    }

    /// Pushes files as Flux does: one layer, packed by `tar`. Gives the digest of the manifest.
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

    /// Pushes layers under a manifest of their own. Gives the digest of the manifest.
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

    /// Pushes a manifest or an index, under a tag or, where that is empty, its digest. Gives the digest. What it refers to has to be there.
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

    /// The manifest or index under a tag or a digest.
    pub async fn manifest(&self, repository: &str, reference: &str) -> Result<Value> {
        let url = format!("{}/v2/{repository}/manifests/{reference}", self.base());
        let accept = format!("{MANIFEST}, {INDEX}");
        let request = self.authorized(self.client.get(url).header("accept", accept));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Pushes bytes. Gives their digest.
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

    /// Files as a compressed archive.
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

/// The registry's program, on the `PATH` or named by `$WINDLASS_REGISTRY`.
fn program() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("WINDLASS_REGISTRY").filter(|it| !it.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    super::installed(&["docker-registry", "registry"], "docker-registry")
        .context("or name a program of github.com/distribution/distribution in WINDLASS_REGISTRY")
}
