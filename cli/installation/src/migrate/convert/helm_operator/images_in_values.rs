//! Which values of a HelmRelease Flux v1 takes for images, each under the name that its annotations have for it.
//!
//! Here: the places of an image, and of its tag, in `spec.values`. Elsewhere: what annotations say of an image
//! (`images.rs`).
//! Source of the semantics: Flux 1.25, `pkg/cluster/kubernetes/resource/helmrelease.go` and `pkg/image/image.go`.

use std::collections::BTreeMap;

use image::ImageName;
use serde_json::{Map, Value};

/// The name of the image at the top of the values. Parity(flux).
const TOP_CONTAINER: &str = "chart-image";
/// Hosts of Docker Hub, which an image need not name.
const DOCKER_HUB_HOSTS: [&str; 2] = ["docker.io", "index.docker.io"];
/// The longest tag of an image.
const MAX_TAG_BYTES: usize = 128;

/// Where annotations say that an image is: paths in the values, with dots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ImagePaths {
    pub(super) registry: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) tag: Option<String>,
}

/// What of an image stands in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImagePart {
    /// `name:tag`.
    Reference,
    Name,
    Tag,
}

/// A value that is set with the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelmValuePath {
    /// The keys that lead to it, from the values on.
    pub(super) path: Vec<String>,
    pub(super) part: ImagePart,
}

/// An image in the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelmValuesImage {
    /// How annotations name it.
    pub(super) name: String,
    /// The image without its tag, as an ImageRepository has it.
    pub(super) image: String,
    pub(super) tag: String,
    /// Whether the tag is a number for YAML, so that `1.10` became `1.1` before it could be read.
    pub(super) is_tag_number: bool,
    pub(super) places: Vec<HelmValuePath>,
}

impl HelmValuesImage {
    /// Whether a value of this image is one of another one, too.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.places.iter().any(|place| other.places.iter().any(|it| it.path == place.path))
    }
}

/// The images of some values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HelmValuesImageList {
    /// In Flux's order: the one at the top, then by name.
    pub(super) containers: Vec<HelmValuesImage>,
    /// By the name of an image that no marker can update: why not.
    pub(super) problems: BTreeMap<String, String>,
}

/// A string of the values, or a number that stands for one.
#[derive(Debug, Clone)]
struct ValueText {
    path: Vec<String>,
    text: String,
    is_number: bool,
}

/// The values that an image is divided into.
#[derive(Debug, Clone)]
struct ImageValues {
    registry: Option<ValueText>,
    /// The image, or its repository.
    image: ValueText,
    tag: Option<ValueText>,
}

/// Finds the images of a HelmRelease: at the top of its values, below each of their keys, and where annotations say so.
/// Of two with one name the annotations count.
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

/// `image` as a text with `registry` and `tag` in the same map, or as a map with `repository`, `registry` and `tag`.
fn detected(map: &Map<String, Value>, base: &[&str]) -> Option<ImageValues> {
    match map.get("image")? {
        Value::String(_) => image_values(map, base, "image"),
        Value::Object(below) => {
            let base: Vec<&str> = base.iter().copied().chain(["image"]).collect();
            image_values(below, &base, "repository")
        }
        _ => None,
    }
}

fn image_values(map: &Map<String, Value>, base: &[&str], image: &str) -> Option<ImageValues> {
    let text = |key: &str| {
        let path = base.iter().copied().chain([key]).map(str::to_owned).collect();
        map.get(key).and_then(|value| ValueText::of(value, path))
    };
    let image = text(image).filter(|it| !it.is_number)?;
    Some(ImageValues {
        registry: text("registry").filter(|it| !it.is_number),
        image,
        tag: text("tag"),
    })
}

/// The image to which annotations lead.
fn mapped_image(values: &Value, paths: &ImagePaths) -> Result<ImageValues, String> {
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
    Ok(ImageValues { registry, image: text(repository)?, tag })
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

impl ImageValues {
    /// The image with its places, or why it cannot be updated.
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
        let SettableImage { full, tag, is_tag_number, places } = match (tag, own_tag) {
            (Some(_), Some(_)) => return Err("it has a tag twice".to_owned()),
            (None, None) => return Err("it has no tag".to_owned()),
            (Some(tag), None) => {
                let place = HelmValuePath { path: tag.path, part: ImagePart::Tag };
                let name = HelmValuePath { path: image.path, part: ImagePart::Name };
                let name = registry.is_none().then_some(name);
                let places = name.into_iter().chain([place]).collect();
                SettableImage { full, tag: tag.text, is_tag_number: tag.is_number, places }
            }
            (None, Some(own_tag)) => {
                let full = match host {
                    Some(host) => without_registry(host, base, &full)?,
                    None => full,
                };
                let place = HelmValuePath { path: image.path, part: ImagePart::Reference };
                let tag = own_tag.to_owned();
                SettableImage { full, tag, is_tag_number: false, places: vec![place] }
            }
        };
        check_name(host, &full)?;
        if !is_tag(&tag) {
            return Err(format!("`{tag}` is not a tag"));
        }
        Ok(HelmValuesImage { name: name.to_owned(), image: full, tag, is_tag_number, places })
    }
}

/// An image whose parts are known, but not yet checked.
struct SettableImage {
    full: String,
    tag: String,
    is_tag_number: bool,
    places: Vec<HelmValuePath>,
}

/// An image and its tag. A colon before a slash is that of a port.
fn divided(image: &str) -> (&str, Option<&str>) {
    match image.rsplit_once(':') {
        Some((base, tag)) if !tag.contains('/') => (base, Some(tag)),
        _ => (image, None),
    }
}

/// The name by which a value that has no registry, but a tag, can be set: a marker sets the whole name of the image, and
/// only one of Docker Hub is whole without its registry.
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

/// Whether an image is read as Flux v1 read it: from its registry.
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
