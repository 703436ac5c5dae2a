//! Tags that a policy skips, because an applier of its namespace failed with them and was rolled back.
//!
//! Otherwise the latest tag would be the one that failed, and an automation would commit it again. Of other namespaces nothing
//! counts: what one tenant lists does not choose the tags of another.
//! Differs(flux): there a rollback is undone as soon as an automation runs.
//!
//! Elsewhere: which images a Quarantine lists (`windlass_quarantine`), the order of tags (`tag_choice`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::windlass_release::Quarantine;
use image::ImageName;
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, RunOutcome, Time};
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::run_context::RunContext;

/// The tag of an image that is named without a tag.
const DEFAULT_TAG: &str = "latest";

/// How many skipped tags a message names at most.
const MAX_NAMED_TAGS: usize = 3;

/// The tags of one image that Quarantines list, with the name of one of these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct QuarantinedTags(BTreeMap<String, String>);

impl QuarantinedTags {
    /// The tags of an image, by its canonical name, that Quarantines of the namespace of a policy list.
    ///
    /// # Errors
    /// It is not known which Quarantines there are.
    pub(super) async fn of(
        context: &RunContext,
        node: &ObjectKey,
        image: &str,
        retry_at: Time,
    ) -> Result<Self, RunOutcome> {
        let known = known_quarantines::of_namespace(context, node, retry_at).await?;
        Ok(Self::listed_by(&known, image))
    }

    fn listed_by(quarantines: &[Arc<Quarantine>], image: &str) -> Self {
        let mut tags = BTreeMap::new();
        for quarantine in quarantines {
            // The last good result may have the same tag with another digest.
            let good = quarantine.spec.last_good.iter().flat_map(|good| &good.images);
            let good: BTreeSet<&str> = good.filter_map(|listed| tag_of(listed, image)).collect();
            let failed = windlass_quarantine::quarantined_images(quarantine);
            let failed = failed.filter_map(|listed| tag_of(listed, image));
            let failed = failed.filter(|tag| !good.contains(tag));
            tags.extend(failed.map(|tag| (tag.to_owned(), quarantine.name_any())));
        }
        Self(tags)
    }

    /// Whether a tag is skipped.
    pub(super) fn has(&self, tag: &str) -> bool {
        self.0.contains_key(tag)
    }

    /// The message about skipped tags of an image, for people. Empty if no tag is skipped.
    pub(super) fn text(&self, tags: &[String]) -> String {
        let mut named = tags.iter().filter_map(|tag| Some((tag, self.0.get(tag)?)));
        let first: Vec<String> = named
            .by_ref()
            .take(MAX_NAMED_TAGS)
            .map(|(tag, quarantine)| format!("{tag} (Quarantine {quarantine})"))
            .collect();
        match (first.is_empty(), named.count()) {
            (true, _) => String::new(),
            (false, 0) => format!("; skipped as quarantined: {}", first.join(", ")),
            (false, more) => {
                format!("; skipped as quarantined: {} and {more} more", first.join(", "))
            }
        }
    }
}

/// The tag of a container's image, if the image has this canonical name. A digest behind the tag does not matter. `None` for
/// other images.
fn tag_of<'i>(listed: &'i str, image: &str) -> Option<&'i str> {
    // Most are other images, and there may be many.
    let last = image.rsplit('/').next().unwrap_or_default();
    if !listed.contains(last) {
        return None;
    }
    let tagged = listed.split_once('@').map_or(listed, |(tagged, _)| tagged);
    // A colon before the last slash belongs to the port of the registry.
    let (name, tag) = match tagged.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (tagged, DEFAULT_TAG),
    };
    let canonical = ImageName::parse(name, false).ok()?.to_string();
    (canonical == image).then_some(tag)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quarantine(failed: &[&str], good: &[&str]) -> Arc<Quarantine> {
        let result = |images: &[&str]| json!({"digest": "d", "revision": "r", "images": images});
        let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "shop-1", "namespace": "shop"},
            "spec": {"result": result(failed), "lastGood": result(good), "action": "RollBack"}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_tag_of_an_image_is_found_however_the_image_is_written() {
        for (listed, tag) in [
            ("r.io:5000/a/app:1.2", Some("1.2")),
            ("r.io:5000/a/app:1.2@sha256:0", Some("1.2")),
            ("r.io:5000/a/app", Some("latest")),
            ("r.io:5000/a/other:1.2", None),
            ("r.io/a/app:1.2", None),
            ("", None),
        ] {
            assert_eq!(tag_of(listed, "r.io:5000/a/app"), tag, "{listed}");
        }
        assert_eq!(tag_of("alpine:3", "index.docker.io/library/alpine"), Some("3"));
    }

    #[test]
    fn only_tags_that_the_last_good_result_does_not_have_are_skipped() {
        let all = [quarantine(&["r.io/app:2", "r.io/proxy:1"], &["r.io/app:1", "r.io/proxy:1"])];
        let tags = QuarantinedTags::listed_by(&all, "r.io/app");
        assert!(tags.has("2") && !tags.has("1"));
        assert_eq!(QuarantinedTags::listed_by(&all, "r.io/proxy"), QuarantinedTags::default());
        let moved = [quarantine(&["r.io/app:2@sha256:b"], &["r.io/app:2@sha256:a"])];
        assert!(!QuarantinedTags::listed_by(&moved, "r.io/app").has("2"), "the tag was good");
        let known = ["1".to_owned(), "2".to_owned()];
        assert_eq!(tags.text(&known), "; skipped as quarantined: 2 (Quarantine shop-1)");
        assert_eq!(QuarantinedTags::default().text(&known), "");
    }
}
