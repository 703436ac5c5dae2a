//! Parses manifests, with their layers and annotations, and chooses the manifest of an index.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Error, OciDigest};

pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The `Accept` header of requests for manifests.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// The most bytes of all annotations together. It is the limit for an object of Kubernetes, since the annotations become part
/// of a status.
const MOST_ANNOTATED: usize = 256 << 10;

/// The manifest of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciManifest {
    /// The media type of its configuration, which determines the kind of artifact.
    pub config: String,
    /// The layers, in their order.
    pub layers: Vec<LayerDescriptor>,
    /// The annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// The description of a layer in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerDescriptor {
    /// The media type.
    pub media_type: String,
    /// The digest of the layer's bytes.
    pub digest: OciDigest,
    /// The number of the layer's bytes.
    pub size: u64,
}

impl OciManifest {
    /// The first layer of a media type, or without one the first of all.
    ///
    /// Parity(flux): the strings.
    ///
    /// # Errors
    /// [`Error::NoLayer`].
    pub fn layer(&self, media_type: Option<&str>) -> Result<&LayerDescriptor, Error> {
        let first = self.layers.first();
        let first =
            first.ok_or_else(|| Error::NoLayer("no layers found in artifact".to_owned()))?;
        let Some(wanted) = media_type else { return Ok(first) };
        self.layers.iter().find(|layer| layer.media_type == wanted).ok_or_else(|| {
            Error::NoLayer(format!("failed to find layer with media type '{wanted}' in artifact"))
        })
    }
}

/// What a manifest was parsed as: that of an image, or an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedManifest {
    Image(OciManifest),
    /// An index, and which of its manifests is used.
    Index(OciDigest),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<RawDescriptor>,
    #[serde(default)]
    layers: Option<Vec<RawDescriptor>>,
    #[serde(default)]
    manifests: Option<Vec<RawDescriptor>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    platform: Option<ImagePlatform>,
}

#[derive(Deserialize)]
struct ImagePlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Parses bytes that the registry sent with a media type. `place` is for messages.
pub(super) fn parse(media_type: &str, bytes: &[u8], place: &str) -> Result<ParsedManifest, Error> {
    let senseless = |reason: String| Error::Protocol { request: place.to_owned(), reason };
    let raw: RawManifest = serde_json::from_slice(bytes)
        .map_err(|error| senseless(format!("it is not a manifest: {error}")))?;
    let sent = media_type.split(';').next().unwrap_or_default().trim();
    // The media type in the bytes counts, because the digest covers the bytes.
    let kind = raw.media_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(sent);
    match kind {
        OCI_MANIFEST | DOCKER_MANIFEST => image(raw, place).map(ParsedManifest::Image),
        OCI_INDEX | DOCKER_INDEX => ours(raw, place).map(ParsedManifest::Index),
        other => Err(Error::UnsupportedMediaType {
            place: place.to_owned(),
            found: super::registry_response::shown(other),
        }),
    }
}

fn image(raw: RawManifest, place: &str) -> Result<OciManifest, Error> {
    let annotations = raw.annotations.unwrap_or_default();
    let length = annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if length > MOST_ANNOTATED {
        let what = format!("the annotations of {place}");
        return Err(Error::TooLarge { what, limit: MOST_ANNOTATED as u64 });
    }
    let layer = |raw: RawDescriptor| {
        let digest = OciDigest::parse(&raw.digest)?;
        Ok(LayerDescriptor { media_type: raw.media_type, digest, size: raw.size })
    };
    let layers = raw.layers.unwrap_or_default().into_iter().map(layer);
    Ok(OciManifest {
        config: raw.config.map(|config| config.media_type).unwrap_or_default(),
        layers: layers.collect::<Result<_, Error>>()?,
        annotations,
    })
}

/// Parity(flux): the manifest for `linux/amd64`, which is also what one without a platform is for.
fn ours(raw: RawManifest, place: &str) -> Result<OciDigest, Error> {
    let is_ours = |manifest: &RawDescriptor| {
        manifest.platform.as_ref().is_none_or(|it| it.os == "linux" && it.architecture == "amd64")
    };
    let found = raw.manifests.unwrap_or_default().into_iter().find(is_ours);
    let found = found.ok_or_else(|| Error::UnsupportedMediaType {
        place: place.to_owned(),
        found: "an index without a manifest for linux/amd64".to_owned(),
    })?;
    OciDigest::parse(&found.digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn digest(byte: &str) -> String {
        format!("sha256:{}", byte.repeat(32))
    }

    fn read(media_type: &str, value: &serde_json::Value) -> Result<ParsedManifest, Error> {
        parse(media_type, value.to_string().as_bytes(), "r.io/a: manifests/x")
    }

    #[test]
    fn layers_are_found_by_their_media_type() {
        let value = json!({"schemaVersion": 2, "config": {"mediaType": "c"}, "annotations": {"a": "b"}, "layers": [
            {"mediaType": "one", "digest": digest("01"), "size": 1},
            {"mediaType": "two", "digest": digest("02"), "size": 2}]});
        let ParsedManifest::Image(manifest) = read(OCI_MANIFEST, &value).unwrap() else {
            unreachable!()
        };
        assert_eq!(manifest.config, "c");
        assert_eq!(manifest.annotations["a"], "b");
        assert_eq!(manifest.layer(None).unwrap().size, 1);
        assert_eq!(manifest.layer(Some("two")).unwrap().size, 2);
        let error = manifest.layer(Some("three")).unwrap_err().to_string();
        assert_eq!(error, "failed to find layer with media type 'three' in artifact");
        let ParsedManifest::Image(empty) = read(DOCKER_MANIFEST, &json!({"layers": null})).unwrap()
        else {
            unreachable!()
        };
        assert_eq!(empty.layer(None).unwrap_err().to_string(), "no layers found in artifact");
    }

    #[test]
    fn of_an_index_the_manifest_for_linux_is_taken() {
        let platform = |os: &str, byte: &str| json!({"digest": digest(byte), "platform": {"os": os, "architecture": "amd64"}});
        let value = json!({"manifests": [platform("windows", "01"), platform("linux", "02")]});
        let expected = ParsedManifest::Index(OciDigest::parse(&digest("02")).unwrap());
        assert_eq!(read(OCI_INDEX, &value).unwrap(), expected);
        let any = json!({"mediaType": DOCKER_INDEX, "manifests": [{"digest": digest("02")}]});
        assert_eq!(read("", &any).unwrap(), expected);
        let none = json!({"manifests": [platform("windows", "01")]});
        assert!(matches!(read(OCI_INDEX, &none), Err(Error::UnsupportedMediaType { .. })));
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let schema_1 = "application/vnd.docker.distribution.manifest.v1+prettyjws";
        let error = read(schema_1, &json!({})).unwrap_err().to_string();
        assert!(error.contains(schema_1), "{error}");
        for text in ["", "3", "{\"layers\":[{\"size\":-1}]}", "{\"annotations\":{\"a\":1}}"] {
            assert!(
                matches!(parse(OCI_MANIFEST, text.as_bytes(), "x"), Err(Error::Protocol { .. })),
                "{text}"
            );
        }
        let deep = format!("{{\"x\":{}", "[".repeat(100_000));
        assert!(parse(OCI_MANIFEST, deep.as_bytes(), "x").is_err());
        let bad = json!({"layers": [{"digest": "sha256:../../x", "size": 1}]});
        assert!(matches!(read(OCI_MANIFEST, &bad), Err(Error::InvalidReference { .. })));
        let large = json!({"annotations": {"a": "x".repeat(300 << 10)}});
        assert!(matches!(read(OCI_MANIFEST, &large), Err(Error::TooLarge { .. })));
    }
}
