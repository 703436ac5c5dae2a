//! `images`.

use golang::regexp::GoRegexp;
use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::budget::BuildBudget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::fieldspec::FieldSpec;
use crate::kustomization::ImageEntry;
use crate::resources::BuildResources;
use crate::simple_regex_matcher::{self, PlainRegularExpression};

/// Which images an entry of `images` changes.
#[derive(Debug, Clone)]
enum ImageNamePattern {
    /// Images of this name, with any tag and digest.
    Name(PlainRegularExpression),
    Expression(GoRegexp),
}

/// A new name, tag or digest for an image, and the fields in which it is set.
#[derive(Debug, Clone)]
pub(crate) struct ImageTransformer {
    image: ImageEntry,
    pattern: ImageNamePattern,
    specs: Vec<FieldSpec>,
}

/// Steps that looking for containers costs.
const STEPS_PER_CONTAINER_SEARCH: usize = 512;

impl ImageTransformer {
    /// The steps for [`Self::new`].
    pub(crate) const CONSTRUCTION_STEPS: usize = 100_000;

    /// # Errors
    /// The image's name is not a regular expression. Differs(kustomize): it crashes.
    pub(crate) fn new(image: ImageEntry, specs: Vec<FieldSpec>) -> Result<Self> {
        let name = &image.name;
        if let Some(name) =
            PlainRegularExpression::parse(name).filter(PlainRegularExpression::has_one_length)
        {
            return Ok(Self { image, pattern: ImageNamePattern::Name(name), specs });
        }
        let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
        let pattern = GoRegexp::new(&pattern).map_err(|error| {
            Error::new(error.to_string()).within(format_args!("image {name:?}"))
        })?;
        Ok(Self { image, pattern: ImageNamePattern::Expression(pattern), specs })
    }

    pub(super) fn transform(&self, resources: &mut BuildResources) -> Result<()> {
        let budget = resources.budget();
        let list = resources.list_mut();
        // Parity(kustomize): every field called `containers` is changed first, so ordinary ones are changed twice.
        for resource in list.iter_mut() {
            if resource.kind() != "CustomResourceDefinition" {
                budget.steps(STEPS_PER_CONTAINER_SEARCH)?;
                self.visit(&mut resource.node, &budget)?;
            }
        }
        for resource in list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            for spec in &self.specs {
                field_edit::walk(&mut resource.node, spec, None, &budget, |node| {
                    self.set(node, &budget)
                })?;
            }
        }
        Ok(())
    }

    /// Searches all fields for containers. Nodes are nested at most [`crate::manifest::MAX_DEPTH`] deep.
    fn visit(&self, node: &mut YamlNode, budget: &BuildBudget) -> Result<()> {
        if field_edit::is_null(node) {
            return Ok(());
        }
        match node.kind {
            YamlNodeKind::Mapping => {
                for at in (1..node.content.len()).step_by(2) {
                    self.visit(&mut node.content[at], budget)?;
                    let is_list = matches!(
                        node.content[at - 1].value.as_str(),
                        "containers" | "initContainers"
                    );
                    if is_list && node.content[at].kind == YamlNodeKind::Sequence {
                        for container in node.content[at].content.iter_mut() {
                            if let Some(image) = field_edit::get_mut(container, "image")? {
                                self.set(image, budget)?;
                            }
                        }
                    }
                }
                Ok(())
            }
            YamlNodeKind::Sequence => {
                node.content.iter_mut().try_for_each(|item| self.visit(item, budget))
            }
            _ => Ok(()),
        }
    }

    fn set(&self, node: &mut YamlNode, budget: &BuildBudget) -> Result<()> {
        field_edit::check_kind(node, YamlNodeKind::Scalar)?;
        budget.steps(match &self.pattern {
            ImageNamePattern::Name(name) => name.steps(node.value.len()),
            ImageNamePattern::Expression(expression) => {
                simple_regex_matcher::steps(expression, node.value.len())
            }
        })?;
        let is_meant = match &self.pattern {
            ImageNamePattern::Name(name) => is_version_of(&node.value, name),
            ImageNamePattern::Expression(pattern) => pattern.is_match(&node.value),
        };
        if !is_meant {
            return Ok(());
        }
        let changed = self.image.applied(&node.value);
        field_edit::grow_scalar(node, changed, "", budget).within(|| "image")
    }
}

impl ImageEntry {
    /// The new text of an image that is changed.
    fn applied(&self, image: &str) -> String {
        let (name, mut tag, mut digest) = split(image);
        let name = if self.new_name.is_empty() { name } else { &self.new_name };
        let suffixed;
        match (self.new_tag.as_str(), self.digest.as_str()) {
            ("", "") if !self.tag_suffix.is_empty() => {
                suffixed = format!("{tag}{}", self.tag_suffix);
                (tag, digest) = (&suffixed, "");
            }
            ("", "") => {}
            new => (tag, digest) = new,
        }
        let mut result = name.to_owned();
        for (mark, part) in [(':', tag), ('@', digest)] {
            if !part.is_empty() {
                result.push(mark);
                result.push_str(part);
            }
        }
        result
    }
}

/// Whether an image has this name. A tag and a digest may follow.
fn is_version_of(image: &str, name: &PlainRegularExpression) -> bool {
    let Some(rest) = name.after(image) else { return false };
    let is_of_version =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'{' | b'}' | b'-');
    let (tag, digest) = match rest.split_once('@') {
        Some((tag, digest)) => (tag, Some(digest)),
        None => (rest, None),
    };
    let tag = if tag.is_empty() { Some("") } else { tag.strip_prefix(':') };
    let digest = digest.map_or(Some(""), |digest| digest.strip_prefix("sha256:"));
    [tag, digest].iter().all(|part| part.is_some_and(|part| part.bytes().all(is_of_version)))
}

/// Name, tag and digest. A colon in front of the first slash belongs to the name.
fn split(image: &str) -> (&str, &str, &str) {
    let from = image.find('/').filter(|slash| *slash > 0).unwrap_or(0);
    let find = |mark| image[from..].find(mark).map(|at| from + at);
    match (find(':'), find('@')) {
        (None, None) => (image, "", ""),
        (colon, Some(at)) if colon.is_none_or(|colon| at < colon) => {
            (&image[..at], "", &image[at + 1..])
        }
        (Some(colon), Some(at)) => (&image[..colon], &image[colon + 1..at], &image[at + 1..]),
        (Some(colon), None) | (None, Some(colon)) => (&image[..colon], &image[colon + 1..], ""),
    }
}

#[cfg(test)]
mod tests {
    use golang::regexp::GoRegexp;

    use super::{PlainRegularExpression, is_version_of};

    #[test]
    fn names_that_mean_themselves_are_found_as_their_expression_finds_them() {
        const CLASS: &str = "[a-zA-Z0-9_.{}-]*";
        let parts = ["", "web", "x", "w", "b", ":", "1.2", "{}", "@", "sha256:", "/", "\n", "é"];
        for name in ["web", "a/web", "w.b", ""] {
            let plain = PlainRegularExpression::parse(name).unwrap();
            let pattern = GoRegexp::new(&format!("^{name}(:{CLASS})?(@sha256:{CLASS})?$")).unwrap();
            for number in 0..parts.len().pow(4) {
                let part = |place: u32| parts[number / parts.len().pow(place) % parts.len()];
                let image: String = (0..4).map(part).collect();
                let image = format!("{name}{image}");
                assert_eq!(is_version_of(&image, &plain), pattern.is_match(&image), "{image:?}");
            }
        }
    }
}
