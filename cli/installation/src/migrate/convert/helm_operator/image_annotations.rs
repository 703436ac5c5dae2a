//! Converts annotations of Flux v1 on a HelmRelease to ImageRepositories, ImagePolicies, and markers behind the values of
//! images.
//!
//! Here: the meaning of the annotations, and the objects. Below: values that are images (`images_in_values.rs`), tag
//! patterns (`tag_pattern.rs`). Elsewhere: ImageUpdateAutomations (`flux_v1_image_automation.rs`), writing the markers
//! (`convert/image_policy_markers.rs`).
//! Source of the semantics: Flux 1.25, `pkg/cluster/kubernetes/resource/resource.go`, `pkg/policy` and `pkg/daemon/images.go`.

use std::collections::{BTreeMap, BTreeSet};

use objects::Object;
use serde_json::{Value, json};

use super::super::image_policy_markers::ImagePolicyMarker;
use super::super::{ConversionResult, IMAGE, object, put};
use super::images_in_values::{
    HelmValuesImage, HelmValuesImageList, ImagePart, ImagePaths, containers,
};
use super::tag_pattern::ConvertedTagPolicy;

/// The prefixes of Flux v1's annotations about an object. If several are set, the first prefix has precedence.
const POLICY_PREFIXES: [&str; 2] = ["fluxcd.io/", "flux.weave.works/"];
/// The prefixes of annotations with a tag pattern for an image.
const TAG_PREFIXES: [&str; 3] = ["fluxcd.io/tag.", "flux.weave.works/tag.", "filter.fluxcd.io/"];
const REGISTRY_PREFIX: &str = "registry.fluxcd.io/";
const REPOSITORY_PREFIX: &str = "repository.fluxcd.io/";
const TAG_PATH_PREFIX: &str = "tag.fluxcd.io/";
/// The annotations about locked images, after one of [`POLICY_PREFIXES`].
const LOCK_POLICIES: [&str; 3] = ["locked", "locked_user", "locked_msg"];
/// How often Flux v1 listed the tags of an image.
const SCAN_INTERVAL: &str = "5m";
/// The longest name of an object, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// The decision of the annotations about a HelmRelease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FluxV1SyncPolicy {
    Apply,
    /// Flux v1 did not apply the HelmRelease.
    LeaveOut,
}

/// Adds the objects for the annotations of Flux v1 to the converted HelmRelease, which is the last object.
pub(super) fn convert(
    found: &Object,
    values: &Value,
    done: &mut ConversionResult,
) -> FluxV1SyncPolicy {
    let annotations = FluxV1Annotations::of(found, &mut done.notes);
    let ignore = annotations.policy("ignore").unwrap_or_default();
    let sync = match ignore {
        "true" | "sync_only" => {
            done.notes.push(format!(
                "fluxcd.io/ignore is {ignore}: the HelmRelease has kustomize.toolkit.fluxcd.io/reconcile: disabled, so that a \
                 Kustomization leaves it out as Flux did"
            ));
            FluxV1SyncPolicy::LeaveOut
        }
        "" => FluxV1SyncPolicy::Apply,
        other => {
            done.notes.push(format!("annotation fluxcd.io/ignore: {other} had no effect"));
            FluxV1SyncPolicy::Apply
        }
    };
    let reason = match (annotations.is_true("automated"), ignore) {
        (true, "true") => "Flux updated no images where fluxcd.io/ignore is \"true\"",
        (true, _) => {
            policies(found, values, &annotations, done);
            return sync;
        }
        (false, _) => "Flux updated images only where fluxcd.io/automated is \"true\"",
    };
    let keys = annotations.strings.keys().filter(|key| is_about_images(key));
    done.notes.extend(keys.map(|key| format!("annotation {key} is not converted: {reason}")));
    sync
}

/// The annotations of Flux v1 on an object.
#[derive(Debug)]
struct FluxV1Annotations {
    strings: BTreeMap<String, String>,
}

/// A tag pattern for an image.
#[derive(Debug)]
struct TagAnnotation<'a> {
    key: String,
    pattern: &'a str,
}

impl FluxV1Annotations {
    /// Reads the annotations of an object. Adds a remark for each annotation that is not converted.
    fn of(found: &Object, notes: &mut Vec<String>) -> Self {
        let mut strings = BTreeMap::new();
        let all = found.meta("annotations").and_then(Value::as_object).into_iter().flatten();
        for (key, value) in all {
            let is_of_flux = POLICY_PREFIXES.iter().any(|prefix| key.contains(prefix));
            let is_known = is_about_images(key) || after_policy_prefix(key) == Some("ignore");
            match value {
                _ if !is_of_flux => {}
                _ if !is_known => notes.push(format!("annotation {key} has no effect any more")),
                Value::String(text) => {
                    strings.insert(key.clone(), text.clone());
                }
                other => notes.push(format!(
                    "annotation {key} is not converted: {other} is not a string, so Flux ignored it"
                )),
            }
        }
        Self { strings }
    }

    fn policy(&self, name: &str) -> Option<&str> {
        let mut keys = POLICY_PREFIXES.iter().map(|prefix| format!("{prefix}{name}"));
        keys.find_map(|key| self.strings.get(&key)).map(String::as_str)
    }

    fn is_true(&self, name: &str) -> bool {
        self.policy(name) == Some("true")
    }

    /// The tag patterns for an image. The first one has precedence.
    fn patterns(&self, container: &str) -> Vec<TagAnnotation<'_>> {
        let keys = TAG_PREFIXES.iter().map(|prefix| format!("{prefix}{container}"));
        keys.filter_map(|key| {
            let pattern = self.strings.get(&key)?;
            Some(TagAnnotation { key, pattern })
        })
        .collect()
    }

    /// The paths of images in the values, by the name of the image.
    fn paths(&self) -> BTreeMap<String, ImagePaths> {
        let mut all: BTreeMap<String, ImagePaths> = BTreeMap::new();
        for (key, path) in &self.strings {
            let path = Some(path.clone());
            if let Some(name) = key.strip_prefix(REGISTRY_PREFIX) {
                all.entry(name.to_owned()).or_default().registry = path;
            } else if let Some(name) = key.strip_prefix(REPOSITORY_PREFIX) {
                all.entry(name.to_owned()).or_default().repository = path;
            } else if let Some(name) = key.strip_prefix(TAG_PATH_PREFIX) {
                all.entry(name.to_owned()).or_default().tag = path;
            }
        }
        all
    }

    /// The annotations with tag patterns, each with the name of its image.
    fn pattern_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.strings.keys().filter_map(|key| {
            let name = TAG_PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix))?;
            Some((key.as_str(), name))
        })
    }
}

fn after_policy_prefix(key: &str) -> Option<&str> {
    POLICY_PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix))
}

fn is_about_images(key: &str) -> bool {
    let prefixes = [REGISTRY_PREFIX, REPOSITORY_PREFIX, TAG_PATH_PREFIX];
    TAG_PREFIXES.iter().chain(&prefixes).any(|prefix| key.starts_with(prefix))
        || after_policy_prefix(key)
            .is_some_and(|name| name == "automated" || LOCK_POLICIES.contains(&name))
}

/// The image policies of a HelmRelease whose images Flux v1 updated.
fn policies(
    found: &Object,
    values: &Value,
    annotations: &FluxV1Annotations,
    done: &mut ConversionResult,
) {
    let HelmValuesImageList { containers, problems } = containers(values, &annotations.paths());
    for (name, problem) in &problems {
        done.notes.push(format!("image {name} is not updated: {problem}"));
    }
    if containers.is_empty() && problems.is_empty() {
        done.notes.push(
            "annotation fluxcd.io/automated is not converted: Flux found no image in spec.values"
                .to_owned(),
        );
    }
    for (key, name) in annotations.pattern_names() {
        let is_image = problems.contains_key(name) || containers.iter().any(|it| it.name == name);
        if !is_image {
            let text =
                format!("annotation {key} is not converted: spec.values has no image {name}");
            done.notes.push(text);
        }
    }
    let mut release = ReleaseImages {
        namespace: found.namespace(),
        name: found.name(),
        is_locked: annotations.is_true("locked"),
        names: BTreeSet::new(),
    };
    for (at, container) in containers.iter().enumerate() {
        match containers.iter().skip(at + 1).rfind(|it| it.overlaps(container)) {
            Some(other) => done.notes.push(format!(
                "image {} is not converted: its values are those of image {}, whose pattern counts",
                container.name, other.name
            )),
            None => release.add(container, annotations, done),
        }
    }
    release.note_lock(annotations, done);
}

/// The images of one HelmRelease.
struct ReleaseImages<'o> {
    namespace: &'o str,
    name: &'o str,
    /// Whether a user locked the images, so they stay until a user unlocks them.
    is_locked: bool,
    /// The names of the ImagePolicies so far.
    names: BTreeSet<String>,
}

impl ReleaseImages<'_> {
    /// Converts an image, or adds a remark that says why not.
    fn add(
        &mut self,
        container: &HelmValuesImage,
        annotations: &FluxV1Annotations,
        done: &mut ConversionResult,
    ) {
        let HelmValuesImage { name: container_name, image, tag, .. } = container;
        let patterns = annotations.patterns(container_name);
        let subject = format!("image {container_name} ({image})");
        let (pattern, described) = match patterns.first() {
            Some(TagAnnotation { key, pattern }) => (*pattern, format!("{key}: {pattern}")),
            None => ("glob:*", format!("no filter.fluxcd.io/{container_name}, which means glob:*")),
        };
        for TagAnnotation { key, .. } in patterns.iter().skip(1).filter(|it| it.pattern != pattern)
        {
            done.notes.push(format!("{subject}: {key} is not converted: {described} counts"));
        }
        let policy = match ConvertedTagPolicy::of(pattern) {
            Ok(policy) => policy,
            Err(reason) => {
                done.notes.push(format!("{subject} is not converted: {described}: {reason}"));
                return;
            }
        };
        let own = unique(&mut self.names, &object_name(&format!("{}-{container_name}", self.name)));
        if let Some(remark) = &policy.remark {
            done.notes.push(format!("{subject}: {described}: {remark}"));
        }
        if !policy.takes(tag) {
            let hint = match pattern.starts_with("semver:") {
                true => " (a version needs three numbers there)",
                false => "",
            };
            done.notes.push(format!(
                "{subject}: its tag {tag} does not count for ImagePolicy {own}, which has {described}{hint}: the first tag \
                 that counts replaces it"
            ));
        }
        if container.is_tag_number {
            done.notes.push(format!(
                "{subject}: its tag {tag} is a number: write it in quotes as the registry has it, since 1.10 is 1.1"
            ));
        }
        self.write(container, &own, &policy, done);
    }

    /// Makes the objects of an image, and the markers of its values.
    fn write(
        &self,
        container: &HelmValuesImage,
        name: &str,
        policy: &ConvertedTagPolicy,
        done: &mut ConversionResult,
    ) {
        let image = &container.image;
        let repository = object_name(image);
        done.notes.push(format!(
            "ImageRepository {repository}: name a Secret in spec.secretRef if {image} needs credentials; Flux had those of the \
             ServiceAccount default"
        ));
        let scan = json!({"image": image, "interval": SCAN_INTERVAL});
        done.images.push(object(IMAGE, "ImageRepository", self.namespace, &repository, &scan));
        let mut spec = json!({"imageRepositoryRef": {"name": repository}});
        policy.put_into(&mut spec);
        put(&mut spec, &["suspend"], json!(self.is_locked));
        done.images.push(object(IMAGE, "ImagePolicy", self.namespace, name, &spec));
        done.markers.extend(container.places.iter().map(|place| {
            let part = match place.part {
                ImagePart::Reference => "",
                ImagePart::Name => ":name",
                ImagePart::Tag => ":tag",
            };
            let values = ["spec", "values"].into_iter().map(str::to_owned);
            ImagePolicyMarker {
                path: values.chain(place.path.iter().cloned()).collect(),
                setter: format!("{}:{name}{part}", self.namespace),
            }
        }));
    }

    /// Adds a remark about who locked the images, and how to unlock them.
    fn note_lock(&self, annotations: &FluxV1Annotations, done: &mut ConversionResult) {
        let reason = match (self.is_locked, self.names.is_empty()) {
            (true, false) => None,
            (true, true) => Some("there is no ImagePolicy"),
            (false, _) => Some("fluxcd.io/locked is not \"true\""),
        };
        let mut because = String::new();
        for policy in LOCK_POLICIES {
            let Some(text) = annotations.policy(policy) else { continue };
            match reason {
                Some(reason) => {
                    let text = format!("annotation fluxcd.io/{policy} is not converted: {reason}");
                    done.notes.push(text);
                }
                None if policy == "locked_user" => because.push_str(&format!(" by `{text}`")),
                None if policy == "locked_msg" => {
                    because.push_str(&format!(" because of `{text}`"));
                }
                None => {}
            }
        }
        for name in self.names.iter().filter(|_| self.is_locked) {
            done.notes.push(format!(
                "images were locked{because}: ImagePolicy {name} is suspended until `windlass resume imagepolicy/{name} -n {}`",
                self.namespace
            ));
        }
    }
}

/// Makes a name unique among the known names, and adds it to them.
pub(super) fn unique(known: &mut BTreeSet<String>, name: &str) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|it| !known.contains(it)).unwrap_or_default();
    known.insert(free.clone());
    free
}

/// Converts a text to a valid object name: lower-case letters, digits and single hyphens.
pub(super) fn object_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        let is_of_name = c.is_ascii_lowercase() || c.is_ascii_digit();
        if name.len() >= MAX_NAME_BYTES {
            break;
        }
        match is_of_name {
            true => name.push(c),
            false if name.is_empty() || name.ends_with('-') => {}
            false => name.push('-'),
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    if name.is_empty() { "image".to_owned() } else { name }
}
