//! The platforms that an image has to have before its tag counts.
//!
//! Here: the annotation. Elsewhere: which platforms an image has (`sources::oci`), and how a tag that lacks a platform is
//! treated (`candidate_image_check`).

use crds::image::ImagePolicy;
use kube_core::ResourceExt as _;
use reconcile::RunOutcome;
use sources::oci::OciPlatform;

use crate::image_kind_run::INVALID_POLICY;

/// The annotation with the platforms, between commas.
pub(super) const REQUIRED_PLATFORMS: &str = "windlass.dev/required-platforms";

/// The most platforms that may be required.
const MAX_PLATFORMS: usize = 16;

/// The platforms that the images of a policy have to have.
///
/// # Errors
/// The annotation is not a list of platforms.
pub(super) fn of(object: &ImagePolicy) -> Result<Vec<OciPlatform>, RunOutcome> {
    let Some(text) = object.annotations().get(REQUIRED_PLATFORMS) else { return Ok(Vec::new()) };
    let invalid = |why: String| {
        RunOutcome::Stalled(INVALID_POLICY, format!("annotation {REQUIRED_PLATFORMS}: {why}"))
    };
    let mut platforms = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let Some(platform) = OciPlatform::parse(part) else {
            return Err(invalid(format!("`{part}` is not a platform such as linux/arm64")));
        };
        platforms.push(platform);
        if platforms.len() > MAX_PLATFORMS {
            return Err(invalid(format!("it has more than {MAX_PLATFORMS} platforms")));
        }
    }
    Ok(platforms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_that_is_no_list_of_platforms_stalls_the_policy() {
        let platforms = |text: &str| {
            let metadata = json!({"name": "app", "annotations": {REQUIRED_PLATFORMS: text}});
            let spec = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
            let object = json!({"metadata": metadata, "spec": spec});
            let object: ImagePolicy = serde_json::from_value(object).unwrap();
            of(&object)
        };
        let read = platforms("linux/amd64, linux/arm/v7").unwrap();
        let read: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(read, ["linux/amd64", "linux/arm/v7"]);
        let many = vec!["linux/amd64"; MAX_PLATFORMS + 1].join(",");
        for (text, why) in [
            ("", "`` is not a platform such as linux/arm64"),
            ("linux/amd64,", "`` is not a platform such as linux/arm64"),
            ("amd64", "`amd64` is not a platform such as linux/arm64"),
            (many.as_str(), "it has more than 16 platforms"),
        ] {
            let outcome = platforms(text).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(INVALID_POLICY, _)), "{outcome:?}");
            let expected = format!("annotation windlass.dev/required-platforms: {why}");
            assert_eq!(outcome.text(), expected);
        }
    }
}
