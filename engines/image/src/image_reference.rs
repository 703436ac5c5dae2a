//! Names of images, read like go-containerregistry with its weak rules, and references to one version of an image.
//!
//! Elsewhere: requests to registries (the sources).

use std::fmt;
use std::net::Ipv4Addr;

use golang::url::GoUrl;

/// The host name of Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// An alias of Docker Hub.
const DOCKER_HUB_ALIAS: &str = "docker.io";

/// Why `spec.image` is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// The text begins with a scheme.
    #[error("image '{image}' should not include URL scheme; remove '{scheme}://'")]
    Scheme {
        /// The whole text.
        image: String,
        /// The text before `://`.
        scheme: String,
    },
    /// The text is not an image reference.
    #[error("could not parse reference: {0}")]
    Malformed(String),
    /// The text has a tag or a digest.
    #[error("image '{image}' should not include a tag; remove ':{tag}'")]
    Tag {
        /// The whole text.
        image: String,
        /// The text between the first colon after the registry and the next colon.
        tag: String,
    },
}

/// An image without tag and digest. It displays as its canonical name, such as `index.docker.io/library/alpine`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    repository: RegistryRepository,
    is_insecure: bool,
}

/// A repository in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegistryRepository {
    registry: String,
    /// Without the `library/` that Docker Hub adds.
    path: String,
}

impl ImageName {
    /// Reads `spec.image` and `spec.insecure` of an ImageRepository.
    ///
    /// # Errors
    /// Flux's message: the text has a scheme, a tag or a digest, or is not a reference.
    pub fn parse(image: &str, is_insecure: bool) -> Result<Self, ImageNameError> {
        if let Some((scheme, _)) = image.split_once("://") {
            let scheme = scheme.to_owned();
            return Err(ImageNameError::Scheme { image: image.to_owned(), scheme });
        }
        let repository =
            repository_of(image).ok_or_else(|| ImageNameError::Malformed(image.to_owned()))?;
        let path = image.strip_prefix(repository.registry.as_str()).unwrap_or(image);
        if let Some((_, rest)) = path.split_once(':') {
            let tag = rest.split(':').next().unwrap_or_default().to_owned();
            return Err(ImageNameError::Tag { image: image.to_owned(), tag });
        }
        Ok(Self { repository, is_insecure })
    }

    /// The host of the registry, with its port.
    pub fn registry(&self) -> &str {
        &self.repository.registry
    }

    /// The name of the repository in its registry.
    pub fn repository(&self) -> String {
        self.repository.path()
    }

    /// The scheme of requests to the registry: `http` if the spec allows it, and for local hosts.
    pub fn scheme(&self) -> &'static str {
        if self.is_insecure || is_nearby(self.registry()) { "http" } else { "https" }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.repository.fmt(f)
    }
}

impl RegistryRepository {
    fn path(&self) -> String {
        let is_official = self.registry == DOCKER_HUB && !self.path.contains('/');
        format!("{}{}", if is_official { "library/" } else { "" }, self.path)
    }
}

impl fmt::Display for RegistryRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path())
    }
}

/// The host without its port of one to five digits.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if (1..=5).contains(&port.len()) && port.bytes().all(|it| it.is_ascii_digit()) =>
        {
            name
        }
        _ => host,
    }
}

/// Whether a registry is on this machine or in a private IPv4 network, so that it needs no TLS.
fn is_nearby(host: &str) -> bool {
    let address = host.split(':').next().unwrap_or_default();
    let is_private = address.parse::<Ipv4Addr>().is_ok_and(|address| address.is_private());
    let name = without_port(host);
    is_private
        || host.starts_with("localhost:")
        || host == "::1"
        || name.ends_with(".localhost")
        || matches!(name, "127.0.0.1" | "[::1]")
}

/// The repository of a reference to an image, read like `ParseReference`. The reference may have a tag, a digest, both
/// or none. `None` if the reference is not valid.
fn repository_of(reference: &str) -> Option<RegistryRepository> {
    tagged(reference).or_else(|| pinned(reference))
}

/// Whether `ParseReference` reads a text.
pub(crate) fn is_reference(text: &str) -> bool {
    repository_of(text).is_some()
}

/// The repository of a reference to an image that may have a tag. `None` if the reference is not valid.
fn tagged(reference: &str) -> Option<RegistryRepository> {
    match reference.rsplit_once(':') {
        // Behind the port of a registry comes a slash.
        Some((base, tag)) if !tag.contains('/') => {
            let is_of_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let is_tag = (1..=128).contains(&tag.len()) && tag.bytes().all(is_of_tag);
            is_tag.then(|| repository(base)).flatten()
        }
        _ => repository(reference),
    }
}

/// The repository of a reference to an image with a digest. A tag may precede the digest. `None` if the reference has
/// no valid digest.
fn pinned(reference: &str) -> Option<RegistryRepository> {
    let (base, digest) = reference.split_once('@')?;
    let hex = digest.strip_prefix("sha256:")?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if hex.len() != 64 || !hex.bytes().all(is_digit) {
        return None;
    }
    match tagged(base) {
        Some(found) => repository(&found.to_string()),
        None => repository(base),
    }
}

fn repository(name: &str) -> Option<RegistryRepository> {
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) => (host, path),
        _ => ("", name),
    };
    let is_of_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
    if !(2..=255).contains(&path.chars().count()) || !path.chars().all(is_of_path) {
        return None;
    }
    let registry = match host {
        "" | DOCKER_HUB_ALIAS => DOCKER_HUB,
        host => {
            let url = GoUrl::parse(format!("//{host}").as_bytes()).ok()?;
            (url.host == host.as_bytes()).then_some(host)?
        }
    };
    Some(RegistryRepository { registry: registry.to_owned(), path: path.to_owned() })
}

/// One version of an image, in the form of an ImagePolicy's status. It displays as a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef {
    /// The name of the image as its ImageRepository has it.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// The digest; empty if the policy does not reflect digests.
    pub digest: String,
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tag, digest } = self;
        let at = if digest.is_empty() { "" } else { "@" };
        write!(f, "{name}:{tag}{at}{digest}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_nearby_are_asked_without_tls() {
        for nearby in [
            "127.0.0.1:5000",
            "10.0.0.1",
            "192.168.1.1:80",
            "a.localhost:1",
            "[::1]",
            "localhost:1",
        ] {
            let name = ImageName::parse(&format!("{nearby}/app"), false).unwrap();
            assert_eq!(name.scheme(), "http", "{nearby}");
        }
        for far in ["registry.local", "172.32.0.1", "127.0.0.2", "a.localhost:123456", "x:80"] {
            let name = ImageName::parse(&format!("{far}/app"), false).unwrap();
            assert_eq!(name.scheme(), "https", "{far}");
        }
        assert_eq!(ImageName::parse("ghcr.io/app", true).unwrap().scheme(), "http");
    }

    #[test]
    fn a_reference_may_have_a_tag_and_a_digest() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let version = |tag: &str, digest: &str| {
            let [name, tag, digest] = ["ghcr.io/acme/app", tag, digest].map(str::to_owned);
            ImageRef { name, tag, digest }.to_string()
        };
        assert!(is_reference(&version("v1", "")) && is_reference(&version("v1", &digest)));
        for bad in [version("v 1", ""), version("v1", &digest[..70]), version(&"v".repeat(129), "")]
        {
            assert!(!is_reference(&bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[a-zA-Z0-9.:/@_ é\\[\\]-]{0,40}") {
            if let Ok(name) = ImageName::parse(&text, false) {
                let again = ImageName::parse(&name.to_string(), false).unwrap();
                prop_assert_eq!(again.to_string(), name.to_string());
            }
        }
    }
}
