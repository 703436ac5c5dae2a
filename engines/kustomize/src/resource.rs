//! One object of a build: its node, and the history of its name.
//!
//! Here: names, namespaces, labels, annotations, history. Elsewhere: all objects of a build (`resources.rs`), printing an
//! object (`yaml_output.rs`).
//!
//! kustomize stores the history in annotations of the object. Here it is stored outside of the object, so that no patch can
//! change it.

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::budget::BuildBudget;
use crate::error::{Error, Result};
use crate::field_edit;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource_id::{Gvk, ResourceId};
use crate::selector::ResourceMatcher;
use crate::selector::labels::LabelSelectorSyntaxError;

/// Annotations in which kustomize stores internal data. They never appear in the output.
const NOTES: [&str; 19] = [
    "internal.config.kubernetes.io/previousKinds",
    "internal.config.kubernetes.io/previousNames",
    "internal.config.kubernetes.io/prefixes",
    "internal.config.kubernetes.io/suffixes",
    "internal.config.kubernetes.io/previousNamespaces",
    "internal.config.kubernetes.io/allowNameChange",
    "internal.config.kubernetes.io/allowKindChange",
    "internal.config.kubernetes.io/refBy",
    "internal.config.kubernetes.io/generatorBehavior",
    "internal.config.kubernetes.io/needsHashSuffix",
    "internal.config.kubernetes.io/path",
    "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
    "internal.config.kubernetes.io/helm-generated",
];

const METADATA: &str = "metadata";
const ANNOTATIONS: &str = "annotations";

/// How a generated object is combined with an existing object of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GeneratorBehavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl GeneratorBehavior {
    /// Reads a behavior. An unknown text counts as unspecified.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "create" => Self::Create,
            "replace" => Self::Replace,
            "merge" => Self::Merge,
            _ => Self::Unspecified,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }
}

/// A name that an object had before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviousResourceName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) kind: String,
}

/// An object, and the data about it that transformers need.
#[derive(Debug, Clone, Default)]
pub(crate) struct BuildResource {
    pub(crate) node: YamlNode,
    /// Oldest first.
    pub(crate) past: Vec<PreviousResourceName>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) suffixes: Vec<String>,
    pub(crate) behavior: GeneratorBehavior,
    pub(crate) needs_hash: bool,
    /// For a patch: whether it may change the name of its target.
    pub(crate) may_change_name: bool,
    pub(crate) may_change_kind: bool,
    pub(crate) is_from_helm: bool,
    /// Whether kustomize would keep notes in its annotations.
    pub(crate) is_noted: bool,
    /// Variables that read a field of this object.
    pub(crate) variables: Vec<String>,
}

/// Group, version and kind as they are written in the object.
pub(crate) fn gvk(node: &YamlNode) -> Gvk {
    let text = |name| field_edit::at(node, &[name]).map_or("", |node| node.value.as_str());
    Gvk::new(text("apiVersion"), text("kind"))
}

/// The id of an object, for uses in which it does not matter whether the kind is namespaced.
pub(crate) fn id(node: &YamlNode) -> ResourceId {
    let name = meta_text(node, "name").to_owned();
    let namespace = meta_text(node, "namespace").to_owned();
    ResourceId { gvk: gvk(node), name, namespace, is_cluster_scoped: false }
}

fn meta_text<'n>(node: &'n YamlNode, name: &str) -> &'n str {
    let field = field_edit::at(node, &[METADATA]).filter(|node| !field_edit::is_empty(node));
    let field = field.and_then(|metadata| field_edit::at(metadata, &[name]));
    field.filter(|node| !field_edit::is_empty(node)).map_or("", |node| &node.value)
}

/// A map of strings below `metadata`. Values of other types are read as text.
pub(crate) fn meta_map(node: &YamlNode, name: &str) -> BTreeMap<String, String> {
    let Some(map) = field_edit::at(node, &[METADATA, name]) else { return BTreeMap::new() };
    map.entries().map(|(key, value)| (key.value.clone(), value.value.clone())).collect()
}

/// Replaces a map of strings below `metadata`. An empty map is removed.
pub(crate) fn set_meta_map(
    node: &mut YamlNode,
    name: &str,
    strings: &BTreeMap<String, String>,
) -> Result<()> {
    let Some(metadata) = field_edit::get_or_create(node, METADATA, YamlNodeKind::Mapping)? else {
        return Ok(());
    };
    field_edit::clear(metadata, name)?;
    let strings =
        strings.iter().map(|(key, value)| (key.as_str(), field_edit::string(value.as_str())));
    field_edit::set_all(metadata, name, strings)
}

/// Sets one annotation. All annotations become strings.
pub(crate) fn set_annotation(node: &mut YamlNode, key: &str, value: &str) -> Result<()> {
    let mut annotations = meta_map(node, ANNOTATIONS);
    annotations.insert(key.to_owned(), value.to_owned());
    set_meta_map(node, ANNOTATIONS, &annotations)
}

impl BuildResource {
    /// Creates an object without a history, apart from the history in kustomize's own annotations.
    pub(crate) fn new(node: YamlNode) -> Self {
        let mut resource = Self { node, ..Self::default() };
        resource.take_notes();
        resource
    }

    /// Takes kustomize's notes out of the annotations.
    fn take_notes(&mut self) {
        let annotations = self.annotations();
        self.is_noted =
            annotations.keys().any(|key| key.starts_with("internal.config.kubernetes.io/"));
        if !self.is_noted {
            return;
        }
        let note = |name: &str| {
            let name = format!("internal.config.kubernetes.io/{name}");
            annotations.get(&name).filter(|text| !text.is_empty()).map(String::as_str)
        };
        let list = |name: &str| -> Vec<String> {
            note(name).map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
        };
        let names = list("previousNames");
        let namespaces = list("previousNamespaces");
        let kinds = list("previousKinds");
        if names.len() == namespaces.len() && names.len() == kinds.len() {
            let past = names.into_iter().zip(namespaces).zip(kinds);
            self.past = past
                .map(|((name, namespace), kind)| PreviousResourceName { namespace, name, kind })
                .collect();
        }
        self.prefixes = list("prefixes");
        self.suffixes = list("suffixes");
        self.behavior = GeneratorBehavior::parse(note("generatorBehavior").unwrap_or_default());
        self.needs_hash = note("needsHashSuffix") == Some("enabled");
        self.may_change_name = note("allowNameChange") == Some("enabled");
        self.may_change_kind = note("allowKindChange") == Some("enabled");
        self.is_from_helm = note("helm-generated") == Some("true");
    }

    pub(crate) fn gvk(&self) -> Gvk {
        gvk(&self.node)
    }

    pub(crate) fn kind(&self) -> &str {
        field_edit::at(&self.node, &["kind"]).map_or("", |node| &node.value)
    }

    pub(crate) fn api_version(&self) -> &str {
        field_edit::at(&self.node, &["apiVersion"]).map_or("", |node| &node.value)
    }

    pub(crate) fn name(&self) -> &str {
        meta_text(&self.node, "name")
    }

    pub(crate) fn namespace(&self) -> &str {
        meta_text(&self.node, "namespace")
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        meta_map(&self.node, "labels")
    }

    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        meta_map(&self.node, ANNOTATIONS)
    }

    pub(crate) fn set_labels(&mut self, labels: &BTreeMap<String, String>) -> Result<()> {
        set_meta_map(&mut self.node, "labels", labels)
    }

    pub(crate) fn set_annotations(&mut self, strings: &BTreeMap<String, String>) -> Result<()> {
        set_meta_map(&mut self.node, ANNOTATIONS, strings)
    }

    pub(crate) fn set_name(&mut self, name: &str) -> Result<()> {
        field_edit::set_at(&mut self.node, &[METADATA], "name", field_edit::untyped(name))
    }

    /// Sets the namespace. An empty namespace is removed.
    pub(crate) fn set_namespace(&mut self, namespace: &str) -> Result<()> {
        if !namespace.is_empty() {
            let value = field_edit::untyped(namespace);
            return field_edit::set_at(&mut self.node, &[METADATA], "namespace", value);
        }
        match field_edit::get_mut(&mut self.node, METADATA)? {
            Some(metadata) => field_edit::clear(metadata, "namespace"),
            None => Ok(()),
        }
    }

    pub(crate) fn set_kind(&mut self, kind: &str) -> Result<()> {
        field_edit::set_field(&mut self.node, "kind", field_edit::untyped(kind))
    }

    pub(crate) fn set_api_version(&mut self, api_version: &str) -> Result<()> {
        field_edit::set_field(&mut self.node, "apiVersion", field_edit::untyped(api_version))
    }

    /// Whether the whole object was deleted.
    pub(crate) fn is_gone(&self) -> bool {
        field_edit::is_empty(&self.node)
    }

    /// The present id of the object.
    pub(crate) fn id(&self, schema: &OpenApiSchemas) -> ResourceId {
        let api_version = self.api_version();
        let kind = self.kind();
        let is_cluster_scoped = schema.is_namespaced(api_version, kind) == Some(false);
        let name = self.name().to_owned();
        let namespace = self.namespace().to_owned();
        ResourceId { gvk: Gvk::new(api_version, kind), name, namespace, is_cluster_scoped }
    }

    /// The earlier ids of the object, oldest first.
    ///
    /// Parity(kustomize): groups and versions are the current ones, and every kind counts as namespaced.
    pub(crate) fn past_ids(&self) -> impl DoubleEndedIterator<Item = ResourceId> {
        let api_version = self.api_version();
        self.past.iter().map(move |past| ResourceId {
            gvk: Gvk::new(api_version, &past.kind),
            name: past.name.clone(),
            namespace: past.namespace.clone(),
            is_cluster_scoped: false,
        })
    }

    /// The original id of the object.
    pub(crate) fn original_id(&self, schema: &OpenApiSchemas) -> ResourceId {
        let first = self.past_ids().next();
        first.unwrap_or_else(|| self.id(schema))
    }

    /// Records the present id before it changes.
    ///
    /// # Errors
    /// The build has exceeded its budget.
    pub(crate) fn remember(&mut self, schema: &OpenApiSchemas, budget: &BuildBudget) -> Result<()> {
        let strings = self.name().len() + self.namespace().len() + self.kind().len();
        budget.bytes(size_of::<PreviousResourceName>() + 3 * strings)?;
        let id = self.id(schema);
        let namespace = id.effective_namespace().to_owned();
        // Parity(kustomize): what is empty cannot be noted, and then the three lists no longer fit together.
        self.past.push(PreviousResourceName { namespace, name: id.name, kind: id.gvk.kind });
        self.note();
        Ok(())
    }

    /// Notes that kustomize would keep notes in the annotations from now on.
    pub(crate) fn note(&mut self) {
        self.is_noted = true;
        self.keep_annotations();
    }

    /// Creates an empty map of annotations if kustomize would have stored internal data in it.
    ///
    /// Parity(kustomize): a JSON patch can add one below them without making them first.
    pub(crate) fn keep_annotations(&mut self) {
        let path = [METADATA, ANNOTATIONS];
        let has_any =
            field_edit::at(&self.node, &path).is_some_and(|node| !field_edit::is_empty(node));
        if !self.is_noted || has_any {
            return;
        }
        if let Ok(Some(metadata)) = field_edit::get_mut(&mut self.node, METADATA)
            && metadata.kind == YamlNodeKind::Mapping
            && field_edit::clear(metadata, ANNOTATIONS).is_ok()
        {
            metadata.content.push(field_edit::untyped(ANNOTATIONS));
            metadata.content.push(YamlNode::mapping([]));
        }
    }

    /// Whether the prefixes and suffixes may come from the same layers as those of `other`.
    pub(crate) fn has_affixes_of(&self, other: &Self, allow_empty: bool) -> bool {
        let same = |own: &[String], others: &[String]| {
            allow_empty && (own.is_empty() || others.is_empty()) || is_same_ending(own, others)
        };
        same(&self.prefixes, &other.prefixes) && same(&self.suffixes, &other.suffixes)
    }

    /// Copies name, namespace, labels, annotations and history from the object that this one replaces.
    pub(crate) fn take_metadata_from(&mut self, other: &Self) -> Result<()> {
        let mut labels = other.labels();
        labels.extend(self.labels());
        self.set_labels(&labels)?;
        let mut annotations = other.annotations();
        annotations.extend(self.annotations());
        self.set_annotations(&annotations)?;
        self.needs_hash &= other.needs_hash;
        self.past.clone_from(&other.past);
        self.prefixes.clone_from(&other.prefixes);
        self.suffixes.clone_from(&other.suffixes);
        self.behavior = other.behavior;
        self.may_change_name = other.may_change_name;
        self.may_change_kind = other.may_change_kind;
        self.is_from_helm = other.is_from_helm;
        self.is_noted = other.is_noted;
        let name = other.name().to_owned();
        let namespace = other.namespace().to_owned();
        self.set_name(&name)?;
        self.set_namespace(&namespace)?;
        self.variables.clone_from(&other.variables);
        self.keep_annotations();
        Ok(())
    }

    /// Removes kustomize's notes from the annotations, which all become strings.
    pub(crate) fn forget_notes(&mut self, also: &[&str]) -> Result<()> {
        let mut annotations = self.annotations();
        annotations
            .retain(|key, _| !NOTES.contains(&key.as_str()) && !also.contains(&key.as_str()));
        self.set_annotations(&annotations)
    }

    /// The values of a map of strings that is a field of the object.
    pub(crate) fn strings(&self, name: &str) -> BTreeMap<String, String> {
        let Some(map) = field_edit::at(&self.node, &[name]) else { return BTreeMap::new() };
        let strings = map.entries();
        strings
            .map(|(key, value)| {
                (field_edit::text(key).to_owned(), field_edit::text(value).to_owned())
            })
            .collect()
    }
}

/// Whether one list is the end of the other. An empty list matches only an empty list.
fn is_same_ending(left: &[String], right: &[String]) -> bool {
    if left.is_empty() || right.is_empty() {
        return left.is_empty() && right.is_empty();
    }
    left.ends_with(right) || right.ends_with(left)
}

/// Checks the fields that every object needs.
///
/// # Errors
/// kustomize's message.
pub(crate) fn check_metadata(node: &YamlNode) -> Result<()> {
    let gvk_text = |name| field_edit::at(node, &[name]).filter(|node| !field_edit::is_empty(node));
    let api_version = gvk_text("apiVersion");
    let kind = gvk_text("kind");
    let metadata = field_edit::at(node, &[METADATA]).filter(|node| !field_edit::is_empty(node));
    let in_meta = |name| {
        let found = metadata.and_then(|metadata| field_edit::at(metadata, &[name]));
        found.filter(|node| !field_edit::is_empty(node))
    };
    let known = ["name", "namespace", "labels", ANNOTATIONS];
    if api_version.is_none() && kind.is_none() && known.iter().all(|name| in_meta(name).is_none()) {
        return Err(Error::new("missing Resource metadata"));
    }
    let strings = |node: Option<&YamlNode>| {
        node.map(|node| field_edit::text(node).to_owned()).unwrap_or_default()
    };
    let missing = |what: &str| {
        let map = |name: &str| {
            let entries = meta_map(node, name);
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("map[{}]", entries.join(" "))
        };
        let meta = format!(
            "{{{{{} {}}} {{{{{} {}}} {} {}}}}}",
            strings(api_version),
            strings(kind),
            strings(in_meta("name")),
            strings(in_meta("namespace")),
            map("labels"),
            map(ANNOTATIONS)
        );
        Err(Error::new(format!("missing {what} in object {meta}")))
    };
    let kind = strings(kind);
    if kind.is_empty() {
        return missing("kind");
    }
    if kind.ends_with("List") {
        return Ok(());
    }
    if in_meta("name").is_none_or(|name| name.value.is_empty()) {
        return missing("metadata.name");
    }
    Ok(())
}

impl BuildResource {
    /// Whether this is the present id of the object.
    pub(crate) fn has_id(&self, id: &ResourceId, schema: &OpenApiSchemas) -> bool {
        self.name() == id.name && self.kind() == id.gvk.kind && self.id(schema).is_same(id)
    }

    /// Whether this was an earlier id of the object.
    pub(crate) fn had_id(&self, id: &ResourceId) -> bool {
        let could = |past: &PreviousResourceName| past.name == id.name && past.kind == id.gvk.kind;
        self.past.iter().any(could) && self.past_ids().any(|past| past.is_same(id))
    }

    /// The steps for checking whether a selector matches the object.
    pub(crate) fn steps_of(&self, matcher: &ResourceMatcher) -> usize {
        let id = self.api_version().len() + self.kind().len() + self.name().len();
        let past: usize = self.past.iter().map(|past| past.name.len() + past.kind.len()).sum();
        let marks =
            |name| field_edit::at(&self.node, &[METADATA, name]).map_or(0, |map| map.content.len());
        let marks = if matcher.has_marks() { marks("labels") + marks(ANNOTATIONS) } else { 0 };
        1_000 + matcher.steps(id + self.namespace().len()) + past + 64 * marks
    }

    /// Whether the labels and annotations match a selector.
    ///
    /// # Errors
    /// One of the label selectors is not valid.
    pub(crate) fn has_marks_of(&self, matcher: &ResourceMatcher) -> Result<bool> {
        if !matcher.has_marks() {
            return Ok(true);
        }
        let failed = |error: LabelSelectorSyntaxError| Error::new(error.to_string());
        let labels = self.labels();
        let annotations = self.annotations();
        let labels = matcher.matches_labels(|key| labels.get(key).map(String::as_str));
        if !labels.map_err(failed)? {
            return Ok(false);
        }
        let annotations =
            matcher.matches_annotations(|key| annotations.get(key).map(String::as_str));
        annotations.map_err(failed)
    }
}
