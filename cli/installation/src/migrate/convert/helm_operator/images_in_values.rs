//! Finds the values of a HelmRelease that Flux v1 treats as images, with the names that the annotations use for them.
//!
//! Here: the paths of an image and its tag in `spec.values`. Elsewhere: the annotations about an image (`image_annotations.rs`).
//! Source of the semantics: Flux 1.25, `pkg/cluster/kubernetes/resource/helmrelease.go` and `pkg/image/image.go`.

use std::collections::BTreeMap;

use image::ImageName;
use serde_json::{Map, Value};

/// The name of the image at the top of the values. Parity(flux).
const TOP_CONTAINER: &str = "chart-image";
/// The hosts of Docker Hub. An image name without a host means Docker Hub.
const DOCKER_HUB_HOSTS: [&str; 2] = ["docker.io", "index.docker.io"];
/// The longest tag of an image, in bytes.
const MAX_TAG_BYTES: usize = 128;

/// The paths of an image's values that the annotations give, with dots between the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ImagePaths {
    pub(super) registry: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) tag: Option<String>,
}

/// The part of an image that a value contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImagePart {
    /// The image with its tag, `name:tag`.
    Reference,
    Name,
    Tag,
}

/// A value that is set when the image changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelmValuePath {
    /// The keys that lead from the root of the values to the value.
    pub(super) path: Vec<String>,
    pub(super) part: ImagePart,
}

/// An image in the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelmValuesImage {
    /// The name of the image in annotations.
    pub(super) name: String,
    /// The image without its tag, as in an ImageRepository.
    pub(super) image: String,
    pub(super) tag: String,
    /// Whether YAML reads the tag as a number. In that case, `1.10` has already become `1.1`.
    pub(super) is_tag_number: bool,
    pub(super) places: Vec<HelmValuePath>,
}

impl HelmValuesImage {
    /// Whether this image and another one share a value.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.places.iter().any(|place| other.places.iter().any(|it| it.path == place.path))
    }
}

/// The images in the values of a release.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HelmValuesImageList {
    /// The images in Flux's order: the image at the root, and then by name.
    pub(super) containers: Vec<HelmValuesImage>,
    /// Images that no marker can update, with the reason, by the name of the image.
    pub(super) problems: BTreeMap<String, String>,
}

/// A text in the values, or a number that stands for a text.
#[derive(Debug, Clone)]
struct ValueText {
    path: Vec<String>,
    text: String,
    is_number: bool,
}

/// The values over which an image is split.
#[derive(Debug, Clone)]
struct SplitImageValues {
    registry: Option<ValueText>,
    /// The image, or its repository.
    image: ValueText,
    tag: Option<ValueText>,
}

/// Finds the images of a HelmRelease: at the root of its values, below each of their keys, and at the paths in annotations. If
/// two have the same name, the annotations have precedence.
pub(super) fn containers(
    values: &Value,
    mapped: &BTreeMap<String, ImagePaths>,
) -> HelmValuesImageList {
    let mut found = BTreeMap::new();
    let none = Map::new();
    let top = values.as_object().unwrap_or(&none);
    if let Some(image) = detected(top, &[]) {
        found.insert(TOP_CONTAINER.to_owned(), image.container(TOP_CONTAINER));
    }
    for (key, value) in top {
        let image = value.as_object().and_then(|below| detected(below, &[key.as_str()]));
        if let Some(image) = image {
            found.insert(key.clone(), image.container(key));
        }
    }
    let mut problems = BTreeMap::new();
    for (name, paths) in mapped {
        match mapped_image(values, paths).and_then(|image| image.container(name)) {
            Ok(container) => {
                found.insert(name.clone(), Ok(container));
            }
            // Parity(flux): what was found under the name without the annotations counts then.
            Err(problem) => {
                problems.insert(name.clone(), problem);
            }
        }
    }
    let mut list = HelmValuesImageList { containers: Vec::new(), problems };
    for (name, container) in found {
        match container {
            Ok(container) => list.containers.push(container),
            Err(problem) => {
                list.problems.entry(name).or_insert(problem);
            }
        }
    }
    list.containers.sort_by_key(|it| it.name != TOP_CONTAINER);
    list
}

/// Finds an image in Helm values. `image` is a text beside `registry` and `tag`, or a map with `repository`, `registry` and
/// `tag`. `None` if `image` is neither.
fn detected(map: &Map<String, Value>, base: &[&str]) -> Option<SplitImageValues> {
    match map.get("image")? {
        Value::String(_) => image_values(map, base, "image"),
        Value::Object(below) => {
            let base: Vec<&str> = base.iter().copied().chain(["image"]).collect();
            image_values(below, &base, "repository")
        }
        _ => None,
    }
}

fn image_values(map: &Map<String, Value>, base: &[&str], image: &str) -> Option<SplitImageValues> {
    let text = |key: &str| {
        let path = base.iter().copied().chain([key]).map(str::to_owned).collect();
        map.get(key).and_then(|value| ValueText::of(value, path))
    };
    let image = text(image).filter(|it| !it.is_number)?;
    Some(SplitImageValues {
        registry: text("registry").filter(|it| !it.is_number),
        image,
        tag: text("tag"),
    })
}

/// The image at the paths in annotations.
fn mapped_image(values: &Value, paths: &ImagePaths) -> Result<SplitImageValues, String> {
    let text = |path: &str| {
        let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
        let value = keys.iter().try_fold(values, |value, key| value.get(key.as_str()));
        value
            .and_then(|value| ValueText::of(value, keys))
            .ok_or_else(|| format!("spec.values.{path} is not a string"))
    };
    let Some(repository) = &paths.repository else {
        return Err("the annotation repository.fluxcd.io is missing".to_owned());
    };
    let registry = paths.registry.as_deref().map(text).transpose()?;
    let tag = paths.tag.as_deref().map(text).transpose()?;
    Ok(SplitImageValues { registry, image: text(repository)?, tag })
}

impl ValueText {
    fn of(value: &Value, path: Vec<String>) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self { path, text: text.clone(), is_number: false }),
            Value::Number(number) => Some(Self { path, text: number.to_string(), is_number: true }),
            _ => None,
        }
    }
}

impl SplitImageValues {
    /// The image with the paths of its values.
    ///
    /// # Errors
    /// The image cannot be updated, with the reason.
    fn container(self, name: &str) -> Result<HelmValuesImage, String> {
        let Self { registry, image, tag } = self;
        let is_pinned = |it: &ValueText| it.text.contains('@');
        if is_pinned(&image) || tag.as_ref().is_some_and(is_pinned) {
            return Err(
                "it names a digest, and Flux never changed those: remove the digest, and set \
                 spec.digestReflectionPolicy of the ImagePolicy to have it written with the tag"
                    .to_owned(),
            );
        }
        let (base, own_tag) = divided(&image.text);
        let host = registry.as_ref().map(|it| it.text.trim_end_matches('/'));
        let full = host.map_or_else(|| base.to_owned(), |host| format!("{host}/{base}"));
        let UncheckedValuesImage { full, tag, is_tag_number, places } = match (tag, own_tag) {
            (Some(_), Some(_)) => return Err("it has a tag twice".to_owned()),
            (None, None) => return Err("it has no tag".to_owned()),
            (Some(tag), None) => {
                let place = HelmValuePath { path: tag.path, part: ImagePart::Tag };
                let name = HelmValuePath { path: image.path, part: ImagePart::Name };
                let name = registry.is_none().then_some(name);
                let places = name.into_iter().chain([place]).collect();
                UncheckedValuesImage { full, tag: tag.text, is_tag_number: tag.is_number, places }
            }
            (None, Some(own_tag)) => {
                let full = match host {
                    Some(host) => without_registry(host, base, &full)?,
                    None => full,
                };
                let place = HelmValuePath { path: image.path, part: ImagePart::Reference };
                let tag = own_tag.to_owned();
                UncheckedValuesImage { full, tag, is_tag_number: false, places: vec![place] }
            }
        };
        check_name(host, &full)?;
        if !is_tag(&tag) {
            return Err(format!("`{tag}` is not a tag"));
        }
        Ok(HelmValuesImage { name: name.to_owned(), image: full, tag, is_tag_number, places })
    }
}

/// An image whose parts are known but not checked yet.
struct UncheckedValuesImage {
    full: String,
    tag: String,
    is_tag_number: bool,
    places: Vec<HelmValuePath>,
}

/// Splits an image into its name and its tag. A colon before a slash belongs to a port.
fn divided(image: &str) -> (&str, Option<&str>) {
    match image.rsplit_once(':') {
        Some((base, tag)) if !tag.contains('/') => (base, Some(tag)),
        _ => (image, None),
    }
}

/// The name with which a marker can set a value without a registry but with a tag. A marker sets the whole name of the image,
/// and only Docker Hub names are complete without a registry.
fn without_registry(host: &str, base: &str, full: &str) -> Result<String, String> {
    let canonical = |name: &str| ImageName::parse(name, false).ok().map(|it| it.to_string());
    let is_hub = DOCKER_HUB_HOSTS.contains(&host);
    match canonical(base) {
        Some(name) if is_hub && Some(&name) == canonical(full).as_ref() => Ok(base.to_owned()),
        _ => Err("its registry has a value of its own, and its tag has none, which no marker can set: divide the tag \
                  from the image"
            .to_owned()),
    }
}

/// Checks that windlass reads an image from the same registry as Flux v1.
fn check_name(host: Option<&str>, full: &str) -> Result<(), String> {
    let name = ImageName::parse(full, false).map_err(|error| error.to_string())?;
    let registry = host.and_then(|host| host.split('/').next());
    match registry {
        Some(registry) if registry != name.registry() && !DOCKER_HUB_HOSTS.contains(&registry) => {
            Err(format!("`{registry}` is not a registry: its name has neither a dot nor a port"))
        }
        _ => Ok(()),
    }
}

fn is_tag(text: &str) -> bool {
    let is_of_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_TAG_BYTES).contains(&text.len()) && text.bytes().all(is_of_tag)
}
