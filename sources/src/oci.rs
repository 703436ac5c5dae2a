//! OCI registries: resolves and lists tags, and fetches manifests and layers. It never pushes.
//!
//! Here: the registry and the credentials ([`RemoteOciRepository`]), the requests ([`RegistrySession`]).
//! In the folder: names of repositories and digests (`oci_names`), credentials of a docker config (`docker_config`),
//! certificates (`certificates`), logins of AWS (`ecr`), challenges and tokens (`auth_challenge`, `token`), one request with
//! its answers to them (`http_request`), parsing manifests (`manifest`), the platforms of an image (`platforms`), the tag
//! that is the newest version (`tag_selection`), artifacts that are attached to an image (`referrers`), Helm charts
//! ([`chart`]), the cache (`registry_session_cache`).
//! Elsewhere: the HTTP client itself ([`http_client`]), unpacking a layer ([`artifacts::archive`], the program).
//!
//! The semantics are those of the OCI distribution specification 1.1, and Flux's where that leaves a choice.

mod auth_challenge;
mod certificates;
pub mod chart;
mod docker_config;
mod ecr;
mod error;
mod http_request;
mod manifest;
mod oci_names;
mod platforms;
mod referrers;
mod registry_response;
mod registry_session_cache;
mod tag_selection;
mod tags;
mod token;

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use artifacts::archive::DigestingWriter;
use http_client::{HttpProxy, TlsConfig};
use objects::RedactedValue;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use registry_response::read;
use registry_session_cache::RegistryAuthState;

pub use certificates::tls_from_secret;
pub use docker_config::RegistryKeyring;
pub use error::Error;
pub use manifest::{LayerDescriptor, OciManifest};
pub use oci_names::{ManifestReference, OciDigest, OciRepositoryName};
pub use platforms::{OciPlatform, PlatformSupport};
pub use registry_session_cache::RegistrySessionCache;
pub use tag_selection::TagSelection;

/// The limits of every conversation with a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryLimits {
    /// Bytes of a manifest, which the specification asks registries to accept up to 4 MiB of.
    pub manifest: u64,
    /// Bytes of a layer.
    pub layer: u64,
    /// Pages of a listing of tags.
    pub pages: usize,
    /// Bytes of one page.
    pub page: u64,
    /// Tags in all pages.
    pub tags: usize,
}

impl Default for RegistryLimits {
    /// 4 MiB, 1 GiB, 500 pages of 4 MiB with 200 000 tags.
    fn default() -> Self {
        Self { manifest: 4 << 20, layer: 1 << 30, pages: 500, page: 4 << 20, tags: 200_000 }
    }
}

/// The credentials for a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RegistryAuth {
    /// Anonymous access. A registry may require a token even for that.
    #[default]
    Anonymous,
    /// A user and a password, sent to the registry or to the token service that it names.
    Basic {
        /// User.
        username: String,
        /// Password or token.
        password: RedactedValue<String>,
    },
    /// A user and a password from a cloud ([`RegistrySessionCache::login_to_aws`]). If the registry refuses them before they expire,
    /// a [`RegistrySession`] requests new ones once.
    Login {
        /// User.
        username: String,
        /// Password.
        password: RedactedValue<String>,
    },
    /// A refresh token, as `docker login` leaves it (`identitytoken`).
    Identity(RedactedValue<String>),
    /// A token for the registry itself (`registrytoken`).
    Bearer(RedactedValue<String>),
}

/// A repository of a registry, with the settings for its connection.
#[derive(Debug, Clone)]
pub struct RemoteOciRepository {
    /// The name of the repository.
    pub repository: OciRepositoryName,
    /// The credentials.
    pub auth: RegistryAuth,
    /// Authorities that are trusted beside the system's, and the client certificate.
    pub tls: TlsConfig,
    /// The proxy for the registry. Without one, the proxy of the environment.
    pub proxy: Option<HttpProxy>,
    /// Whether plain HTTP is tried after HTTPS fails, and any certificate accepted where `tls` has no authority.
    pub insecure: bool,
    /// The time limit for each operation, with all its requests.
    pub timeout: Duration,
    /// Bounds.
    pub limits: RegistryLimits,
}

/// A layer that was fetched and has its digest.
#[derive(Debug)]
pub struct FetchedLayer {
    /// The bytes of the layer, in a file without a name, at the beginning of the file.
    pub file: File,
    /// The number of bytes.
    pub size: u64,
}

/// A session with one repository of a registry, which holds its login.
#[derive(Debug)]
pub struct RegistrySession<'a> {
    remote: &'a RemoteOciRepository,
    known: &'a RegistrySessionCache,
    access: Arc<RegistryAuthState>,
    /// The login that replaces a refused one.
    renewed: OnceCell<RenewedLogin>,
    http: reqwest::Client,
}

#[derive(Debug)]
struct RenewedLogin {
    auth: RegistryAuth,
    access: Arc<RegistryAuthState>,
}

impl<'a> RegistrySession<'a> {
    /// A client that uses the cached tokens and connections of the registry.
    ///
    /// # Errors
    /// [`Error::BadSecret`]: the certificates or the proxy in the Secrets cannot be used.
    pub fn new(
        remote: &'a RemoteOciRepository,
        known: &'a RegistrySessionCache,
    ) -> Result<Self, Error> {
        let http = known.client(remote)?;
        let access = known.access(remote);
        let renewed = OnceCell::new();
        Ok(Self { remote, known, access, renewed, http })
    }

    /// The credentials for the registry.
    fn auth(&self) -> &RegistryAuth {
        self.renewed.get().map_or(&self.remote.auth, |renewed| &renewed.auth)
    }

    fn access(&self) -> &RegistryAuthState {
        self.renewed.get().map_or(&self.access, |renewed| &renewed.access)
    }

    /// Replaces a refused login by another one, if there is another.
    async fn renew_login(&self, is_plain: bool) -> Result<bool, Error> {
        if !matches!(self.remote.auth, RegistryAuth::Login { .. }) {
            return Ok(false);
        }
        let renew = || async {
            let auth = self.known.login_instead(self.remote).await?;
            let access = self
                .known
                .access(&RemoteOciRepository { auth: auth.clone(), ..self.remote.clone() });
            access.set_plain(Some(is_plain));
            Ok::<_, Error>(RenewedLogin { auth, access })
        };
        let renewed = self.renewed.get_or_try_init(renew).await?;
        Ok(renewed.auth != self.remote.auth)
    }

    /// Resolves a reference to a digest. This takes one HEAD request, or none if the reference is a digest.
    ///
    /// # Errors
    /// The registry does not return the digest. The errors include [`Error::NotFound`] and [`Error::Unauthorized`].
    pub async fn resolve(&self, reference: &ManifestReference) -> Result<OciDigest, Error> {
        if let ManifestReference::Digest(digest) = reference {
            return Ok(digest.clone());
        }
        let path = format!("manifests/{}", reference.text());
        self.within(async {
            let head = self.ask(Method::HEAD, &path, manifest::ACCEPTED).await?;
            if head.status().is_success()
                && let Some(digest) = registry_response::digest(&head)
            {
                return Ok(digest);
            }
            // Parity(flux): registries that answer no HEAD, or without a digest, are asked for the manifest; unlike the
            // answer to a HEAD, that one also has the error message.
            let (_, bytes) = self.manifest_bytes(&path).await?;
            Ok(OciDigest::of(&bytes))
        })
        .await
    }

    /// All tags, in the registry's order.
    ///
    /// # Errors
    /// The registry does not list them, or has more than [`RegistryLimits`] allow.
    pub async fn tags(&self) -> Result<Vec<String>, Error> {
        self.within(tags::list(self)).await
    }

    /// Fetches the manifest with a digest. If the digest is of an index, the result is the manifest for `linux/amd64`, as in
    /// Flux.
    ///
    /// # Guarantees
    /// The manifest has the requested digest, or an index with that digest names it.
    ///
    /// # Errors
    /// The manifest cannot be fetched, or the bytes are not a manifest.
    pub async fn manifest(&self, digest: &OciDigest) -> Result<OciManifest, Error> {
        self.within(async {
            let mut digest = digest.clone();
            // An index may lead to a manifest, and to no other index.
            for _ in 0..2 {
                let path = format!("manifests/{digest}");
                let (media_type, bytes) = self.manifest_bytes(&path).await?;
                self.check("manifest", &digest, OciDigest::of(&bytes))?;
                match manifest::parse(&media_type, &bytes, &self.place(&path))? {
                    manifest::ParsedManifest::Image(manifest) => return Ok(manifest),
                    manifest::ParsedManifest::Index(next) => digest = next,
                }
            }
            let found = "an index inside an index".to_owned();
            Err(Error::UnsupportedMediaType { place: self.place("manifests"), found })
        })
        .await
    }

    /// Fetches a layer.
    ///
    /// # Guarantees
    /// The bytes have the layer's digest and size. Nothing is left on the disk once the file is closed.
    ///
    /// # Errors
    /// The layer cannot be fetched completely, has another digest, or is too large.
    pub async fn layer(&self, layer: &LayerDescriptor) -> Result<FetchedLayer, Error> {
        let path = format!("blobs/{}", layer.digest);
        let too_large = |limit| Error::TooLarge { what: self.place(&path), limit };
        if layer.size > self.remote.limits.layer {
            return Err(too_large(self.remote.limits.layer));
        }
        let disk =
            |error: std::io::Error| Error::Disk { what: self.place(&path), why: error.to_string() };
        self.within(async {
            let asked = self.ask(Method::GET, &path, "*/*").await?;
            let mut answer = registry_response::accepted(self, Method::GET, &path, asked).await?;
            let mut out = DigestingWriter::new(tempfile::tempfile().map_err(disk)?);
            let mut received: u64 = 0;
            while let Some(chunk) = answer.chunk().await.map_err(|error| self.unanswered(&error))? {
                received = received.saturating_add(chunk.len() as u64);
                if received > layer.size {
                    return Err(too_large(layer.size));
                }
                out.write_all(&chunk).map_err(disk)?;
            }
            let (mut file, sealed) = out.finish();
            self.check("layer", &layer.digest, OciDigest::parse(&sealed.digest)?)?;
            file.rewind().map_err(disk)?;
            Ok(FetchedLayer { file, size: sealed.size })
        })
        .await
    }

    /// The bytes of a manifest, with its media type.
    async fn manifest_bytes(&self, path: &str) -> Result<(String, Vec<u8>), Error> {
        let asked = self.ask(Method::GET, path, manifest::ACCEPTED).await?;
        let answer = registry_response::accepted(self, Method::GET, path, asked).await?;
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let claimed = registry_response::digest(&answer);
        let bytes = read(self, path, answer, self.remote.limits.manifest).await?;
        if let Some(claimed) = claimed {
            self.check("manifest", &claimed, OciDigest::of(&bytes))?;
        }
        Ok((media_type, bytes))
    }

    fn check(
        &self,
        what: &'static str,
        expected: &OciDigest,
        found: OciDigest,
    ) -> Result<(), Error> {
        if *expected == found {
            return Ok(());
        }
        let place = self.remote.repository.to_string();
        Err(Error::Mismatch { what, place, expected: expected.clone() })
    }

    /// The subject of a request, for people.
    fn place(&self, path: &str) -> String {
        format!("{}: {path}", self.remote.repository)
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.remote.timeout;
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_elapsed| {
            Err(Error::TimedOut { registry: self.remote.repository.registry().to_owned(), limit })
        })
    }
}

impl OciDigest {
    /// The SHA-256 of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_sha256(Sha256::digest(bytes).into())
    }
}

#[cfg(test)]
mod tests;
