//! Records which source, spec and inputs a result was built from. Two results can then be compared, and the last good result
//! can be built again.
//!
//! The facts of a good result are in the metadata of its entry in `status.history`, which only windlass writes.
//! Elsewhere: which entries the history has (`reconcile::SnapshotHistory`).

use std::collections::BTreeMap;

/// Metadata key: the path of the artifact below the storage root.
const ARTIFACT_PATH: &str = "windlass.dev/ArtifactPath";

/// Metadata key: the digest of the artifact.
const ARTIFACT_DIGEST: &str = "windlass.dev/ArtifactDigest";

/// Metadata key: the digest of the spec.
const SPEC: &str = "windlass.dev/SpecDigest";

/// Metadata key: the digest of the Secrets and ConfigMaps that the build reads, computed with a key of the cluster.
const INPUTS: &str = "windlass.dev/InputsDigest";

/// Metadata key: the images, separated by spaces. The name of an image contains no space.
const IMAGES: &str = "windlass.dev/Images";

/// The longest list of images in the metadata, in bytes.
const MAX_IMAGES_LENGTH: usize = 4096;

/// Flux's metadata key: the revision of the source.
const REVISION: &str = "revision";

/// The source, spec and inputs that a result was built from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BuildInputsRecord {
    /// Names the result.
    pub digest: String,
    /// The revision of the source.
    pub revision: String,
    /// The digest of the artifact.
    pub artifact_digest: String,
    /// The path of the artifact below the storage root.
    pub artifact_path: String,
    /// The digest of the spec, without the fields that only decide when it is applied.
    pub spec: String,
    /// Identifies the content of the Secrets and ConfigMaps that the build reads; empty if there are none. It reveals no value.
    pub inputs: String,
    /// The images of the result's workloads, if they are known.
    pub images: Vec<String>,
}

impl BuildInputsRecord {
    /// The metadata to add to the history entry of a good result. The entry already has the digest and the revision.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let images = known_images(self.images.clone()).join(" ");
        let all = [
            (IMAGES, &images),
            (ARTIFACT_PATH, &self.artifact_path),
            (ARTIFACT_DIGEST, &self.artifact_digest),
            (SPEC, &self.spec),
            (INPUTS, &self.inputs),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// Reads the facts from a history entry; `None` if it was written without them.
    #[must_use]
    pub fn of_entry(digest: &str, metadata: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| metadata.get(key).cloned().unwrap_or_default();
        let facts = Self {
            digest: digest.to_owned(),
            revision: text(REVISION),
            artifact_digest: text(ARTIFACT_DIGEST),
            artifact_path: text(ARTIFACT_PATH),
            spec: text(SPEC),
            inputs: text(INPUTS),
            images: text(IMAGES).split_whitespace().map(str::to_owned).collect(),
        };
        let is_complete = ![&facts.artifact_digest, &facts.artifact_path, &facts.spec]
            .into_iter()
            .any(String::is_empty);
        is_complete.then_some(facts)
    }
}

/// The images to record for a result. A list that is too long is recorded as empty, because a part of the list would look
/// complete.
#[must_use]
pub fn known_images(mut images: Vec<String>) -> Vec<String> {
    images.retain(|image| !image.is_empty() && !image.contains(char::is_whitespace));
    let length: usize = images.iter().map(|image| image.len().saturating_add(1)).sum();
    if length > MAX_IMAGES_LENGTH { Vec::new() } else { images }
}

/// Whether two artifacts belong to the same source, because they are in the same folder. A path with `..` belongs to no source,
/// because a path from a status may be manipulated.
#[must_use]
pub fn is_of_same_source(one: &str, other: &str) -> bool {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let is_plain = |path: &str| path.split('/').all(|part| !part.is_empty() && part != "..");
    is_plain(one) && is_plain(other) && folder(one).is_some() && folder(one) == folder(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> BuildInputsRecord {
        BuildInputsRecord {
            digest: "sha256:1".to_owned(),
            revision: "main@sha1:1".to_owned(),
            artifact_digest: "sha256:a".to_owned(),
            artifact_path: "gitrepository/apps/app/1.tar.gz".to_owned(),
            spec: "sha256:s".to_owned(),
            inputs: String::new(),
            images: vec!["example.com/app:1".to_owned(), "example.com/proxy:2".to_owned()],
        }
    }

    #[test]
    fn a_list_of_images_that_is_too_long_is_left_out_and_not_cut() {
        let image = "example.com/app:1".to_owned();
        let many = BuildInputsRecord { images: vec![image; 1000], ..facts() };
        let metadata = many.metadata();
        assert_eq!(
            BuildInputsRecord::of_entry("sha256:1", &metadata).map(|it| it.images.len()),
            Some(0)
        );
    }

    #[test]
    fn facts_are_read_as_they_were_written() {
        let with_inputs = BuildInputsRecord { inputs: "hmac-sha256:i".to_owned(), ..facts() };
        for of in [facts(), with_inputs] {
            let mut metadata = of.metadata();
            metadata.insert("revision".to_owned(), of.revision.clone());
            assert_eq!(BuildInputsRecord::of_entry(&of.digest, &metadata), Some(of));
        }
    }

    #[test]
    fn an_entry_without_an_artifact_or_a_spec_has_no_facts() {
        for missing in [ARTIFACT_PATH, ARTIFACT_DIGEST, SPEC] {
            let mut metadata = facts().metadata();
            metadata.remove(missing);
            assert_eq!(BuildInputsRecord::of_entry("sha256:1", &metadata), None, "{missing}");
        }
    }

    #[test]
    fn artifacts_of_one_source_lie_in_one_folder() {
        let own = "gitrepository/apps/app/1.tar.gz";
        assert!(is_of_same_source(own, "gitrepository/apps/app/2.tar.gz"));
        for other in [
            "gitrepository/apps/other/1.tar.gz",
            "gitrepository/apps/app/../other/1.tar.gz",
            "gitrepository/apps/app//1.tar.gz",
            "1.tar.gz",
            "",
        ] {
            assert!(!is_of_same_source(own, other), "{other}");
            assert!(!is_of_same_source(other, own), "{other}");
        }
    }
}
