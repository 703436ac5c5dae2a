//! Helm charts in registries: how Helm writes their versions into tags, and which layer is the chart.
//!
//! Elsewhere: choosing a version ([`golang::highest_version_selection`]), the content of a chart (`helm`).

use golang::semver::SemverVersion;

use super::{
    Error, FetchedLayer, LayerDescriptor, ManifestReference, OciDigest, OciManifest,
    RegistrySession, RegistrySessionCache, RemoteOciRepository, TagSelection,
};

/// The media type of the layer with the chart's archive, as Helm packs it.
pub const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// The media type of the configuration of a chart's manifest.
pub const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// The media type of the layer with a chart's provenance.
pub const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// The chart version in a tag. A tag cannot contain a `+`, and a version cannot contain a `_`, so Helm replaces one by the
/// other.
pub fn version_of(tag: &str) -> String {
    tag.replace('_', "+")
}

/// The tag that a version is kept under.
pub(crate) fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// Whether two texts are the same version of a chart. A leading `v` does not matter, and some tags have it.
pub fn is_same_version(one: &str, other: &str) -> bool {
    fn bare(version: &str) -> &str {
        version.strip_prefix('v').unwrap_or(version)
    }
    bare(one) == bare(other)
}

/// The chart version in a tag; `None` if the tag is not a full version, such as `latest` or `1.2`.
pub fn stated_version(tag: &str) -> Option<String> {
    let version = version_of(tag);
    let is_full =
        SemverVersion::parse_strict(version.strip_prefix('v').unwrap_or(&version)).is_ok();
    is_full.then_some(version)
}

/// The versions of a chart in a repository, in the registry's order. This takes one request for each page of tags.
///
/// It returns the texts of all tags, including tags that are no versions.
///
/// # Errors
/// As [`RegistrySession::tags`].
pub async fn versions(client: &RegistrySession<'_>) -> Result<Vec<String>, Error> {
    Ok(client.tags().await?.iter().map(|tag| version_of(tag)).collect())
}

/// The present digest of a chart version. This takes one HEAD request.
///
/// # Errors
/// As [`RegistrySession::resolve`].
pub async fn resolve(client: &RegistrySession<'_>, version: &str) -> Result<OciDigest, Error> {
    client.resolve(&ManifestReference::tag(&tag_of(version))?).await
}

/// The chart of a manifest with a digest.
///
/// # Errors
/// It cannot be fetched, or is not a chart.
pub async fn pull(
    client: &RegistrySession<'_>,
    digest: &OciDigest,
) -> Result<(OciManifest, FetchedLayer), Error> {
    let manifest = client.manifest(digest).await?;
    let layer = client.layer(layer_of(&manifest)?).await?;
    Ok((manifest, layer))
}

/// The highest version in a range.
///
/// Parity(flux): a version that is written in full is taken as it is, and no tag is listed for it.
///
/// # Errors
/// No tag is in the range, or the range is not valid.
pub async fn choose(
    remote: &RemoteOciRepository,
    known: &RegistrySessionCache,
    range: &str,
) -> Result<String, Error> {
    if SemverVersion::parse_strict(range).is_ok() {
        return Ok(range.to_owned());
    }
    let range = if range.is_empty() { "*" } else { range };
    let selection = TagSelection::parse(range, None, true)?;
    let tags = RegistrySession::new(remote, known)?.tags().await?;
    Ok(version_of(&selection.choose(&tags)?.text()))
}

/// Fetches the layer with the archive of a version.
///
/// # Errors
/// As [`resolve`] and [`pull`].
pub async fn fetch(
    remote: &RemoteOciRepository,
    known: &RegistrySessionCache,
    version: &str,
) -> Result<FetchedLayer, Error> {
    let session = RegistrySession::new(remote, known)?;
    let digest = resolve(&session, version).await?;
    pull(&session, &digest).await.map(|(_, layer)| layer)
}

/// The layer of a manifest that contains the chart.
///
/// # Errors
/// [`Error::NoLayer`].
pub fn layer_of(manifest: &OciManifest) -> Result<&LayerDescriptor, Error> {
    manifest.layer(Some(CHART))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_states_a_version_if_it_is_one_in_full() {
        for (tag, version) in [
            ("1.2.3", Some("1.2.3")),
            ("v1.2.3", Some("v1.2.3")),
            ("1.2.3-rc.1_build.5", Some("1.2.3-rc.1+build.5")),
            ("1.2", None),
            ("latest", None),
            ("sha256-00.sig", None),
        ] {
            assert_eq!(stated_version(tag).as_deref(), version, "{tag}");
        }
        assert!(is_same_version("v1.2.3", "1.2.3") && is_same_version("1.2.3", "1.2.3"));
        assert!(!is_same_version("1.2.3", "1.2.3+5") && !is_same_version("1.2.3", "1.2.4"));
    }
}
