//! `images`.

use golang::regexp::Regexp;
use goyaml::v3::{Kind, Node};

use crate::edit;
use crate::error::{Error, Result, Within as _};
use crate::fieldspec::FieldSpec;
use crate::kustomization::Image;
use crate::resources::Resources;

/// A new name, tag or digest for an image, and the fields that may hold it.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    image: Image,
    pattern: Regexp,
    specs: Vec<FieldSpec>,
}

impl Images {
    /// # Errors
    /// The image's name is no regular expression. Differs(kustomize): it crashes.
    pub(crate) fn new(image: Image, specs: Vec<FieldSpec>) -> Result<Self> {
        let name = &image.name;
        let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
        let pattern = Regexp::new(&pattern).map_err(|error| {
            Error::new(error.to_string()).within(format_args!("image {name:?}"))
        })?;
        Ok(Self { image, pattern, specs })
    }

    pub(super) fn transform(&self, resources: &mut Resources) -> Result<()> {
        let list = resources.list_mut();
        // Parity(kustomize): whatever is called `containers` is changed first, so ordinary ones are changed twice.
        for resource in list.iter_mut() {
            if resource.kind() != "CustomResourceDefinition" {
                self.visit(&mut resource.node)?;
            }
        }
        for resource in list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            for spec in &self.specs {
                edit::walk(&mut resource.node, spec, None, |node| self.set(node))?;
            }
        }
        Ok(())
    }

    /// Looks for containers anywhere; nodes lie at most [`crate::manifest::MAX_DEPTH`] deep.
    fn visit(&self, node: &mut Node) -> Result<()> {
        if edit::is_null(node) {
            return Ok(());
        }
        match node.kind {
            Kind::Mapping => {
                for at in (1..node.content.len()).step_by(2) {
                    self.visit(&mut node.content[at])?;
                    let is_list = matches!(
                        node.content[at - 1].value.as_str(),
                        "containers" | "initContainers"
                    );
                    if is_list && node.content[at].kind == Kind::Sequence {
                        for container in node.content[at].content.iter_mut() {
                            if let Some(image) = edit::get_mut(container, "image")? {
                                self.set(image)?;
                            }
                        }
                    }
                }
                Ok(())
            }
            Kind::Sequence => node.content.iter_mut().try_for_each(|item| self.visit(item)),
            _ => Ok(()),
        }
    }

    fn set(&self, node: &mut Node) -> Result<()> {
        edit::check_kind(node, Kind::Scalar)?;
        if !self.pattern.is_match(&node.value) {
            return Ok(());
        }
        let changed = self.image.applied(&node.value);
        edit::set_scalar(node, changed, "").within(|| "image")
    }
}

impl Image {
    /// What an image that is meant becomes.
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
