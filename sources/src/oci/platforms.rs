//! The platforms of an image. They are in the entries of an index, or in the configuration of a single manifest.
//!
//! Elsewhere: layers and annotations (`manifest`), which platforms an image needs (the program).

use std::fmt;

use reqwest::Method;
use serde::Deserialize;

use super::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use super::registry_response::{accepted, read, shown};
use super::{Error, OciDigest, RegistrySession};

/// The variant of `arm64` where none is named.
const DEFAULT_ARM64_VARIANT: &str = "v8";

/// The longest part of a platform, in bytes.
const MAX_PART_BYTES: usize = 64;

/// A platform for which an image may be made, such as `linux/amd64` or `linux/arm/v7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OciPlatform {
    os: String,
    architecture: String,
    /// `None` if any will do.
    variant: Option<String>,
}

/// Whether an image has the required platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformSupport {
    /// The image lacks these platforms. Empty if it lacks none.
    Lacks(Vec<OciPlatform>),
    /// The image has no platforms, for this reason.
    Unreadable(String),
}

impl OciPlatform {
    /// Reads `os/architecture` or `os/architecture/variant`; `None` if the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/').map(part_of);
        let os = parts.next()??;
        let architecture = parts.next()??;
        let variant = match parts.next() {
            Some(variant) => Some(variant?),
            None => None,
        };
        parts.next().is_none().then_some(Self { os, architecture, variant })
    }

    fn is<'f>(&self, found: &'f ImagePlatform) -> bool {
        let text = |text: &'f Option<String>| text.as_deref().unwrap_or_default();
        let variant = match text(&found.variant) {
            "" if self.architecture == "arm64" => DEFAULT_ARM64_VARIANT,
            variant => variant,
        };
        self.os == text(&found.os)
            && self.architecture == text(&found.architecture)
            && self.variant.as_deref().is_none_or(|wanted| wanted == variant)
    }
}

/// A part of a platform. `None` if the text is not valid as one.
fn part_of(text: &str) -> Option<String> {
    let is_of_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    let is_part = (1..=MAX_PART_BYTES).contains(&text.len()) && text.bytes().all(is_of_part);
    is_part.then(|| text.to_owned())
}

impl fmt::Display for OciPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

/// A platform as an index or a configuration names it.
#[derive(Deserialize)]
struct ImagePlatform {
    #[serde(default)]
    os: Option<String>,
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    variant: Option<String>,
}

/// A manifest or an index, as far as platforms are concerned.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlatformManifest {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<ConfigDescriptor>,
    #[serde(default)]
    manifests: Option<Vec<OciIndexEntry>>,
}

#[derive(Deserialize)]
struct ConfigDescriptor {
    digest: String,
}

#[derive(Deserialize)]
struct OciIndexEntry {
    #[serde(default)]
    platform: Option<ImagePlatform>,
}

/// The place of an image's platforms.
enum ImagePlatformLocation {
    /// The platforms are in the index itself.
    Index(Vec<ImagePlatform>),
    /// The platform is in the configuration with this digest.
    Config(OciDigest),
}

/// Reads a manifest or an index that was sent with a media type.
fn source_of(media_type: &str, bytes: &[u8]) -> Result<ImagePlatformLocation, String> {
    let manifest: PlatformManifest =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not a manifest: {error}"))?;
    let sent = media_type.split(';').next().unwrap_or_default().trim();
    // The media type in the bytes counts, because the digest covers the bytes.
    let kind = manifest.media_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(sent);
    match kind {
        OCI_INDEX | DOCKER_INDEX => {
            let entries = manifest.manifests.unwrap_or_default().into_iter();
            Ok(ImagePlatformLocation::Index(entries.filter_map(|entry| entry.platform).collect()))
        }
        OCI_MANIFEST | DOCKER_MANIFEST => {
            let config = manifest.config.ok_or("its manifest has no configuration")?;
            let digest = OciDigest::parse(&config.digest).map_err(|error| error.to_string())?;
            Ok(ImagePlatformLocation::Config(digest))
        }
        other => Err(format!("it has an unsupported media type: {}", shown(other))),
    }
}

fn lacking(required: &[OciPlatform], found: &[ImagePlatform]) -> PlatformSupport {
    let is_missing = |platform: &&OciPlatform| !found.iter().any(|found| platform.is(found));
    PlatformSupport::Lacks(required.iter().filter(is_missing).cloned().collect())
}

impl RegistrySession<'_> {
    /// Finds which of the given platforms the image with a digest lacks. This takes one request for an index, and one more for
    /// the configuration of a single manifest.
    ///
    /// # Guarantees
    /// The answer depends only on the content with this digest, so it never changes.
    ///
    /// # Errors
    /// The registry does not send the content. The errors include [`Error::NotFound`].
    pub async fn platform_support(
        &self,
        digest: &OciDigest,
        required: &[OciPlatform],
    ) -> Result<PlatformSupport, Error> {
        self.within(async {
            let path = format!("manifests/{digest}");
            let (media_type, bytes) = match self.manifest_bytes(&path).await {
                Err(error @ Error::TooLarge { .. }) => {
                    return Ok(PlatformSupport::Unreadable(error.to_string()));
                }
                manifest => manifest?,
            };
            self.check("manifest", digest, OciDigest::of(&bytes))?;
            let config = match source_of(&media_type, &bytes) {
                Err(why) => return Ok(PlatformSupport::Unreadable(why)),
                Ok(ImagePlatformLocation::Index(found)) => return Ok(lacking(required, &found)),
                Ok(ImagePlatformLocation::Config(config)) => config,
            };
            let path = format!("blobs/{config}");
            let asked = self.ask(Method::GET, &path, "*/*").await?;
            let answer = accepted(self, Method::GET, &path, asked).await?;
            let bytes = match read(self, &path, answer, self.remote.limits.manifest).await {
                Err(error @ Error::TooLarge { .. }) => {
                    return Ok(PlatformSupport::Unreadable(error.to_string()));
                }
                bytes => bytes?,
            };
            self.check("configuration", &config, OciDigest::of(&bytes))?;
            Ok(match serde_json::from_slice::<ImagePlatform>(&bytes) {
                Ok(found) => lacking(required, &[found]),
                Err(error) => {
                    PlatformSupport::Unreadable(format!("its configuration is not one: {error}"))
                }
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn platforms(texts: &[&str]) -> Vec<OciPlatform> {
        texts.iter().map(|text| OciPlatform::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_platform_has_two_or_three_parts() {
        for text in ["linux/amd64", "linux/arm/v7", "windows/amd64"] {
            assert_eq!(OciPlatform::parse(text).unwrap().to_string(), text);
        }
        let long = format!("linux/{}", "a".repeat(MAX_PART_BYTES + 1));
        for text in
            ["", "linux", "linux/", "/amd64", "a/b/c/d", "Linux/amd64", "linux/ amd64", &long]
        {
            assert_eq!(OciPlatform::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_index_has_the_platforms_that_its_entries_name() {
        let index = json!({"mediaType": OCI_INDEX, "manifests": [
            {"platform": {"os": "linux", "architecture": "amd64", "variant": null}},
            {"platform": {"os": "linux", "architecture": "arm64"}},
            {"platform": {"os": "linux", "architecture": "arm", "variant": "v6"}},
            {"platform": {"os": "unknown", "architecture": "unknown"}},
            {"digest": "sha256:0"}]});
        let Ok(ImagePlatformLocation::Index(found)) = source_of("", index.to_string().as_bytes())
        else {
            panic!("not an index")
        };
        let lacks = |texts: &[&str]| match lacking(&platforms(texts), &found) {
            PlatformSupport::Lacks(all) => all.iter().map(OciPlatform::to_string).collect(),
            PlatformSupport::Unreadable(why) => vec![why],
        };
        assert_eq!(lacks(&["linux/amd64", "linux/arm64", "linux/arm"]), Vec::<String>::new());
        assert_eq!(lacks(&["linux/arm64/v8", "linux/arm64/v9"]), ["linux/arm64/v9"]);
        assert_eq!(
            lacks(&["linux/arm/v7", "linux/arm/v6", "windows/amd64"]),
            ["linux/arm/v7", "windows/amd64"]
        );
    }

    #[test]
    fn the_media_type_in_the_bytes_counts_and_what_is_no_image_has_no_platforms() {
        let config = format!("sha256:{}", "01".repeat(32));
        let both = json!({"mediaType": OCI_MANIFEST, "config": {"digest": config},
            "manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]});
        let found = source_of(OCI_INDEX, both.to_string().as_bytes());
        assert!(
            matches!(found, Ok(ImagePlatformLocation::Config(digest)) if digest.to_string() == config)
        );
        for (value, why) in [
            (json!({"mediaType": "text/plain"}), "it has an unsupported media type: text/plain"),
            (json!({"mediaType": DOCKER_MANIFEST}), "its manifest has no configuration"),
        ] {
            assert_eq!(source_of("", value.to_string().as_bytes()).err().unwrap(), why);
        }
        assert!(source_of(OCI_INDEX, b"<html>").is_err());
    }
}
