//! Names of repositories and tags, and digests.

use std::fmt;
use std::net::Ipv4Addr;

use super::Error;

/// The prefix of a repository's URL.
const SCHEME: &str = "oci://";
/// The registry of repositories that name none, as for Docker.
const DOCKER_HUB: &str = "index.docker.io";

/// A repository of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciRepositoryName {
    /// Host with an optional port.
    registry: String,
    path: String,
}

impl fmt::Display for OciRepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

impl OciRepositoryName {
    /// Reads `oci://registry/path`, without a tag or a digest.
    ///
    /// Parity(flux): what stands before the first `/` is a registry if it has a dot or a colon in it or is `localhost`;
    /// else the registry is Docker's.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] with the problem.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let bad = |reason: String| Error::InvalidUrl { reason };
        let name = url
            .strip_prefix(SCHEME)
            .ok_or_else(|| bad("URL must be in format 'oci://<domain>/<org>/<repo>'".to_owned()))?;
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => {
                (first, rest)
            }
            _ => (DOCKER_HUB, name),
        };
        if let Some((_, tag)) = path.split_once('@') {
            return Err(bad(format!("URL must not contain a digest; remove '@{tag}'")));
        }
        if let Some((_, tag)) = path.split_once(':') {
            return Err(bad(format!("URL must not contain a tag; remove ':{tag}'")));
        }
        let registry = match registry {
            "docker.io" => DOCKER_HUB,
            other => other,
        };
        let name = Self::of_image(registry, path)?;
        let is_official = name.registry == DOCKER_HUB && !name.path.contains('/');
        Ok(if is_official { Self { path: format!("library/{}", name.path), ..name } } else { name })
    }

    /// A repository by the host of its registry, optionally with a port, and by its path in the registry.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`]: host and path do not form a URL that stays in the repository.
    pub fn of_image(registry: &str, path: &str) -> Result<Self, Error> {
        let bad = |reason: String| Error::InvalidUrl { reason };
        if registry.contains('@') {
            let reason = "credentials belong in the Secret of spec.secretRef, not in the URL";
            return Err(bad(reason.to_owned()));
        }
        // A text that is not only the host of a URL could redirect requests, by a user, a path or a query.
        let parsed = url::Url::parse(&format!("https://{registry}/"));
        let is_host = parsed.is_ok_and(|parsed| {
            parsed.username().is_empty() && parsed.password().is_none() && parsed.path() == "/"
        });
        if !is_host || registry.contains(['?', '#', '\\', '%']) {
            return Err(bad(format!("`{registry}` is not a valid registry host")));
        }
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_known = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | '.' | '/');
        if path.len() > 255 || !path.chars().all(is_known) || !path.split('/').all(is_part) {
            return Err(bad(format!(
                "`{path}` is not a valid repository name: use at most 255 of a-z, 0-9, `_`, `-`, `.` and `/`"
            )));
        }
        Ok(Self { registry: registry.to_owned(), path: path.to_owned() })
    }

    /// The host of the registry, and the port if there is one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name of the repository in its registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Parity(flux): registries of this machine and of private IPv4 networks may use plain HTTP without `insecure`.
    pub(super) fn is_near(&self) -> bool {
        let host = match self.registry.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.registry,
        };
        let is_near = |address: Ipv4Addr| address == Ipv4Addr::LOCALHOST || address.is_private();
        host == "[::1]"
            || host.ends_with(".localhost")
            || (host == "localhost" && self.registry != host)
            || host.parse().is_ok_and(is_near)
    }
}

/// A SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OciDigest([u8; 32]);

impl OciDigest {
    /// Parses a digest.
    ///
    /// # Errors
    /// [`Error::InvalidReference`]: the text is not a digest, or of another algorithm.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::InvalidReference {
            kind: "digest",
            name: text.chars().take(200).collect(),
            reason: reason.to_owned(),
        };
        let digits =
            text.strip_prefix("sha256:").ok_or_else(|| bad("only `sha256:` is supported"))?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 64 || !digits.bytes().all(is_digit) {
            return Err(bad("64 hexadecimal digits in lower case must follow `sha256:`"));
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| bad("not hexadecimal"))?;
        Ok(Self(bytes))
    }

    pub(super) fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The name of a manifest: a tag or a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestReference {
    /// A tag, which may move.
    Tag(String),
    /// A digest, which may not.
    Digest(OciDigest),
}

impl ManifestReference {
    /// Checks a tag.
    ///
    /// # Errors
    /// [`Error::InvalidReference`]: the tag is not valid in any registry.
    pub fn tag(tag: &str) -> Result<Self, Error> {
        if !is_tag(tag) {
            let reason =
                "use at most 128 of a-z, A-Z, 0-9, `_`, `-` and `.`, not starting with `-` or `.`";
            return Err(Error::InvalidReference {
                kind: "tag",
                name: tag.chars().take(200).collect(),
                reason: reason.to_owned(),
            });
        }
        Ok(Self::Tag(tag.to_owned()))
    }

    /// The tag, or the digest, as it stands in a URL.
    pub fn text(&self) -> String {
        match self {
            Self::Tag(tag) => tag.clone(),
            Self::Digest(digest) => digest.to_string(),
        }
    }

    /// The revision of an artifact. `digest` is the digest to which this reference was resolved. The revision is `tag@digest`,
    /// or the digest alone if the reference is a digest.
    pub fn revision(&self, digest: &OciDigest) -> String {
        match self {
            Self::Tag(tag) => format!("{tag}@{digest}"),
            Self::Digest(_) => digest.to_string(),
        }
    }
}

/// Whether a registry may have a tag of that name, by the OCI distribution specification.
pub(super) fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || matches!(c, '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_as_flux_reads_it() {
        for (url, expected) in [
            ("oci://ghcr.io/org/app", "ghcr.io/org/app"),
            ("oci://localhost/app", "localhost/app"),
            ("oci://127.0.0.1:5000/a/b/c", "127.0.0.1:5000/a/b/c"),
            ("oci://[::1]:5000/a", "[::1]:5000/a"),
            ("oci://docker.io/org/app", "index.docker.io/org/app"),
            ("oci://org/app", "index.docker.io/org/app"),
            ("oci://app", "index.docker.io/library/app"),
        ] {
            assert_eq!(OciRepositoryName::parse(url).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_repository_is_refused() {
        for (url, expected) in [
            ("https://ghcr.io/org/app", "URL must be in format"),
            ("oci://ghcr.io/org/app:v1", "URL must not contain a tag; remove ':v1'"),
            ("oci://ghcr.io/org/app@sha256:1", "must not contain a digest"),
            ("oci://ghcr.io/", "is not a valid repository name"),
            ("oci://ghcr.io/Org/app", "is not a valid repository name"),
            ("oci://ghcr.io/org/../app", "is not a valid repository name"),
            ("oci://ghcr.io/org//app", "is not a valid repository name"),
            ("oci://ghcr.io/org/app?x=1", "is not a valid repository name"),
            ("oci://me:secret@ghcr.io/app", "credentials belong in the Secret"),
            ("oci://ghcr.io:x/app", "is not a valid registry host"),
            ("oci://gh%63r.io/app", "is not a valid registry host"),
            ("oci://", "is not a valid repository name"),
        ] {
            let error = OciRepositoryName::parse(url).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
        assert!(OciRepositoryName::parse(&format!("oci://h.io/{}", "a".repeat(256))).is_err());
    }

    #[test]
    fn the_name_of_an_image_stays_in_its_repository() {
        let name = OciRepositoryName::of_image("index.docker.io", "localhost/app").unwrap();
        assert_eq!(name.to_string(), "index.docker.io/localhost/app");
        for (registry, path) in [
            ("ghcr.io", "../app"),
            ("ghcr.io", "a//b"),
            ("me@ghcr.io", "a"),
            ("gh%63r.io", "a"),
            ("ghcr.io", "a/"),
        ] {
            assert!(OciRepositoryName::of_image(registry, path).is_err(), "{registry}/{path}");
        }
    }

    #[test]
    fn plain_http_is_for_registries_nearby() {
        let near =
            |host: &str| OciRepositoryName::parse(&format!("oci://{host}/a")).unwrap().is_near();
        for host in [
            "127.0.0.1:5000",
            "localhost:5000",
            "10.1.2.3",
            "192.168.1.1:80",
            "[::1]:5000",
            "r.localhost:1",
        ] {
            assert!(near(host), "{host}");
        }
        for host in [
            "ghcr.io",
            "localhost",
            "8.8.8.8",
            "172.32.0.1",
            "127.0.0.1.nip.io",
            "registry.svc:5000",
        ] {
            assert!(!near(host), "{host}");
        }
    }

    #[test]
    fn digests_and_tags_are_checked() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(OciDigest::parse(&digest).unwrap().to_string(), digest);
        for bad in ["", "sha256:", "sha512:00", &digest.to_uppercase(), &digest[..70]] {
            assert!(OciDigest::parse(bad).is_err(), "{bad}");
        }
        for good in ["latest", "v1.0.0_build-1", "_a", &"a".repeat(128)] {
            assert!(ManifestReference::tag(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "../x", ".a", "-a", "a+b", "a b", &"a".repeat(129)] {
            assert!(ManifestReference::tag(bad).is_err(), "{bad}");
        }
    }
}
