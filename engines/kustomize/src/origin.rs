//! The annotations that `buildMetadata` adds to objects: where an object comes from, and which transformers changed it.

use goyaml::v3::{YamlNode, YamlNodeStyle};
use serde_json::Value;

use crate::budget::{BuildBudget, weight_of_scalar};
use crate::error::Result;
use crate::field_edit;
use crate::repository_address::RepositoryAddress;
use crate::resource::{self, BuildResource};
use crate::resource_id::ResourceId;

/// The annotation with the origin of the object.
pub(crate) const ORIGIN: &str = "config.kubernetes.io/origin";

/// The annotation with the transformers that changed the object.
pub(crate) const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";

/// The file, or the generator or transformer, that something comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourceOrigin {
    path: String,
    repo: String,
    reference: String,
    configured_in: String,
    /// `apiVersion`, `kind`, name and namespace.
    configured_by: [String; 4],
}

impl ResourceOrigin {
    /// The origin of the file or kustomization at a path, relative to this origin.
    pub(crate) fn at(&self, path: &str) -> Self {
        let mut origin = self.clone();
        match RepositoryAddress::parse(path) {
            Some(repository) => {
                origin.repo = repository.url();
                origin.reference = repository.reference;
                origin.path = golang::path::join("", &repository.dir);
            }
            None => origin.path = golang::path::join(&origin.path, path),
        }
        origin
    }

    /// The origin of objects that a field of the kustomization `file` generates or changes.
    pub(crate) fn builtin(&self, file: &str, kind: &str) -> Self {
        let text = str::to_owned;
        Self {
            path: String::new(),
            configured_in: golang::path::join(&self.path, file),
            configured_by: [text("builtin"), text(kind), String::new(), String::new()],
            ..self.clone()
        }
    }

    /// The origin of objects that a plugin generates or changes, derived from the plugin's own origin. `None` if the
    /// plugin has no origin.
    pub(crate) fn of_plugin(plugin: &BuildResource, id: &ResourceId) -> Option<Self> {
        let origin = parse(plugin.annotations().get(ORIGIN)?);
        let configured_by =
            [plugin.api_version(), &id.gvk.kind, &id.name, &id.namespace].map(str::to_owned);
        Some(Self {
            path: String::new(),
            configured_in: origin.path.clone(),
            configured_by,
            ..origin
        })
    }

    fn node(&self) -> YamlNode {
        let entries = |entries: &[(&str, &str)]| {
            let said = entries.iter().filter(|(_, value)| !value.is_empty());
            let nodes: Vec<_> =
                said.map(|(key, value)| (YamlNode::string(*key), written(value))).collect();
            nodes
        };
        let mut all = entries(&[
            ("path", &self.path),
            ("repo", &self.repo),
            ("ref", &self.reference),
            ("configuredIn", &self.configured_in),
        ]);
        let [api_version, kind, name, namespace] = &self.configured_by;
        let by = entries(&[
            ("apiVersion", api_version),
            ("kind", kind),
            ("name", name),
            ("namespace", namespace),
        ]);
        if !by.is_empty() {
            all.push((YamlNode::string("configuredBy"), YamlNode::mapping(by)));
        }
        YamlNode::mapping(all)
    }

    /// The text of the annotation.
    pub(crate) fn text(&self) -> String {
        crate::field::text(&self.node())
    }

    /// Notes that an object comes from here.
    ///
    /// # Errors
    /// Its metadata is not a map.
    pub(crate) fn put_on(&self, resource: &mut BuildResource, budget: &BuildBudget) -> Result<()> {
        let text = self.text();
        budget.bytes(weight_of_scalar(ORIGIN) + weight_of_scalar(&text))?;
        set_annotation(resource, ORIGIN, &text, budget)
    }

    /// Records on an object that this transformer changed it, or that it comes from here if it has no origin yet.
    ///
    /// # Errors
    /// The metadata is not a map.
    pub(crate) fn note_on(&self, resource: &mut BuildResource, budget: &BuildBudget) -> Result<()> {
        let annotation = |name| field_edit::at(&resource.node, &["metadata", "annotations", name]);
        if annotation(ORIGIN).is_none() {
            return self.put_on(resource, budget);
        }
        let mut text =
            annotation(TRANSFORMATIONS).map(|node| node.value.clone()).unwrap_or_default();
        let added = crate::field::text(&YamlNode::sequence(vec![self.node()]));
        budget.bytes(weight_of_scalar(&added))?;
        text.push_str(&added);
        set_annotation(resource, TRANSFORMATIONS, &text, budget)
    }
}

/// Sets an annotation, for which all are set anew.
fn set_annotation(
    resource: &mut BuildResource,
    key: &str,
    text: &str,
    budget: &BuildBudget,
) -> Result<()> {
    let annotations = field_edit::at(&resource.node, &["metadata", "annotations"]);
    let entries = annotations.map_or(0, |annotations| annotations.content.len());
    budget.steps(256 * (1 + entries) + text.len())?;
    resource::set_annotation(&mut resource.node, key, text)
}

/// Reads an annotation. One that cannot be read counts as empty.
fn parse(text: &str) -> ResourceOrigin {
    let value = goyaml::to_json(text.as_bytes()).unwrap_or(Value::Null);
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let by = value.get("configuredBy").cloned().unwrap_or(Value::Null);
    ResourceOrigin {
        path: text(&value, "path"),
        repo: text(&value, "repo"),
        reference: text(&value, "ref"),
        configured_in: text(&value, "configuredIn"),
        configured_by: ["apiVersion", "kind", "name", "namespace"].map(|name| text(&by, name)),
    }
}

/// Writes a string like go-yaml v3: in quotes if YAML 1.1 would read it as another type.
fn written(text: &str) -> YamlNode {
    let is_quoted = crate::field::is_no_text_in_yaml_1_1(text);
    let style = if is_quoted { YamlNodeStyle::DOUBLE_QUOTED } else { YamlNodeStyle::default() };
    YamlNode { style, ..YamlNode::string(text) }
}
