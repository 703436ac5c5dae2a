//! Which lists of which kinds are merged, and which kinds live in namespaces: what kustomize takes from OpenAPI.
//!
//! Here: asking. Below: what is built in (`schema/builtin.rs`), OpenAPI documents and comments (`schema/read.rs`).
//! Elsewhere: merging (`merge.rs`).

mod builtin;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use read::ReadError;

/// How often a reference may lead to another one.
const MAX_REFERENCES: usize = 100;

/// The schemas of kinds.
///
/// Of the built-in kinds only what leads to merged lists is kept, and fields of any content: other fields do not need a
/// schema.
#[derive(Debug, Clone)]
pub struct OpenApiSchemas {
    /// Whether what is built in is known besides what was added.
    is_builtin_known: bool,
    /// Shared: documents are added to a copy.
    added: Arc<SchemaAdditions>,
}

/// The schemas of documents.
#[derive(Debug, Clone, Default)]
struct SchemaAdditions {
    shapes: Vec<SchemaShape>,
    definitions: BTreeMap<String, usize>,
    /// By API version and kind.
    kinds: BTreeMap<(String, String), usize>,
    /// Whether kinds live in namespaces.
    scopes: BTreeMap<(String, String), bool>,
}

/// The schema of one definition or field, as a document has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SchemaShape {
    /// The definition that it is instead.
    reference: Option<String>,
    fields: BTreeMap<String, usize>,
    /// Of fields that are not named.
    additional: Option<usize>,
    is_list: bool,
    items: Option<usize>,
    /// Whether the items of a list are merged.
    is_merged: bool,
    /// What makes items the same; none if it is the item itself.
    keys: Vec<String>,
}

impl OpenApiSchemas {
    /// What kustomize knows without `openapi` files: Kubernetes 1.21.2 and its own kinds.
    pub fn builtin() -> Self {
        Self { is_builtin_known: true, added: Arc::default() }
    }

    /// The schemas of the document of an `openapi: {path: …}`, instead of the built-in ones. Scopes of built-in kinds
    /// stay known.
    ///
    /// # Errors
    /// The text is neither JSON nor YAML, or no OpenAPI.
    pub(crate) fn with_openapi(document: &Value) -> Result<Self, ReadError> {
        let mut schema = Self { is_builtin_known: false, added: Arc::default() };
        schema.add_openapi(document)?;
        Ok(schema)
    }

    /// Adds the schemas of a document, which win over the existing ones.
    ///
    /// # Errors
    /// As [`Self::with_openapi`].
    pub(crate) fn add_openapi(&mut self, document: &Value) -> Result<(), ReadError> {
        read::add(self, document)
    }

    /// The schema of a kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<ResourceSchema<'_>> {
        let place = match find(&self.added.kinds, api_version, kind) {
            Some(place) => SchemaOrigin::Added(*place),
            None if self.is_builtin_known => SchemaOrigin::Builtin(builtin::of(api_version, kind)?),
            None => return None,
        };
        Some(ResourceSchema { schema: self, place })
    }

    /// Whether objects of a kind live in namespaces; `None` if that is not known, where kustomize takes them to.
    pub fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        // Parity(kustomize): the scope of a built-in kind stays as it is, even if a document sets another one.
        builtin::is_namespaced(api_version, kind)
            .or_else(|| find(&self.added.scopes, api_version, kind).copied())
    }

    /// The schema in a comment about its field, if it is JSON.
    pub(crate) fn of_comment(&self, comment: &str) -> Option<ResourceSchema<'_>> {
        let json = comment.trim_start_matches('#').trim_start();
        if !json.starts_with('{') {
            return None;
        }
        let shapes = read::comment(json)?;
        let reference = shapes.first().and_then(|shape| shape.reference.as_deref());
        // A reference to what is not known counts as a schema that knows nothing.
        if let Some(known) = reference.and_then(|reference| self.definition(reference)) {
            return Some(known);
        }
        Some(ResourceSchema { schema: self, place: SchemaOrigin::Comment(Arc::new(shapes), 0) })
    }

    fn definition(&self, name: &str) -> Option<ResourceSchema<'_>> {
        let place = match self.added.definitions.get(name) {
            Some(place) => SchemaOrigin::Added(*place),
            None if self.is_builtin_known => SchemaOrigin::Builtin(builtin::definition(name)?),
            None => return None,
        };
        Some(ResourceSchema { schema: self, place })
    }
}

/// The entry of a kind. The maps are empty but for the few builds with documents of their own.
fn find<'m, T>(
    map: &'m BTreeMap<(String, String), T>,
    api_version: &str,
    kind: &str,
) -> Option<&'m T> {
    if map.is_empty() {
        return None;
    }
    map.get(&(api_version.to_owned(), kind.to_owned()))
}

/// The schema of a kind, of a field, or of the items of a list.
#[derive(Debug, Clone)]
pub struct ResourceSchema<'s> {
    schema: &'s OpenApiSchemas,
    place: SchemaOrigin,
}

/// Where it is known from.
#[derive(Debug, Clone)]
enum SchemaOrigin {
    Builtin(builtin::BuiltinShape),
    Added(usize),
    /// The shapes of a comment, and which of them it is.
    Comment(Arc<Vec<SchemaShape>>, usize),
}

impl ResourceSchema<'_> {
    /// The schema of a field.
    pub fn field(&self, name: &str) -> Option<Self> {
        if let SchemaOrigin::Builtin(shape) = &self.place {
            return Some(self.at(SchemaOrigin::Builtin(shape.field(name)?)));
        }
        let shape = self.shape()?;
        self.follow(shape.fields.get(name).copied().or(shape.additional)?)
    }

    /// The schema of a list's items; `None` also if it is not a list.
    pub fn elements(&self) -> Option<Self> {
        if let SchemaOrigin::Builtin(shape) = &self.place {
            return Some(self.at(SchemaOrigin::Builtin(shape.items()?)));
        }
        let shape = self.shape()?;
        self.follow(shape.items.filter(|_| shape.is_list)?)
    }

    /// Whether a list here is merged with another, item by item, rather than replaced.
    pub fn is_merged(&self) -> bool {
        match &self.place {
            SchemaOrigin::Builtin(shape) => shape.is_merged(),
            _ => self.shape().is_some_and(|shape| shape.is_merged),
        }
    }

    /// The fields that make items of a merged list the same; none if items that are equal are.
    pub(crate) fn merge_keys(&self) -> Vec<String> {
        match &self.place {
            SchemaOrigin::Builtin(shape) => shape.keys().map(str::to_owned).collect(),
            _ => self.shape().map(|shape| shape.keys.clone()).unwrap_or_default(),
        }
    }

    fn at(&self, place: SchemaOrigin) -> Self {
        Self { place, ..*self }
    }

    /// The shape, unless it is built in.
    fn shape(&self) -> Option<&SchemaShape> {
        match &self.place {
            SchemaOrigin::Builtin(_) => None,
            SchemaOrigin::Added(at) => self.schema.added.shapes.get(*at),
            SchemaOrigin::Comment(shapes, at) => shapes.get(*at),
        }
    }

    /// Another shape from the same place, or the definition that it refers to.
    fn follow(&self, shape: usize) -> Option<Self> {
        let mut found = match &self.place {
            SchemaOrigin::Comment(shapes, _) => {
                self.at(SchemaOrigin::Comment(shapes.clone(), shape))
            }
            _ => self.at(SchemaOrigin::Added(shape)),
        };
        for _ in 0..MAX_REFERENCES {
            let reference = found.shape().and_then(|shape| shape.reference.as_deref());
            let Some(reference) = reference else { return Some(found) };
            found = self.schema.definition(reference)?;
        }
        None
    }
}

#[cfg(test)]
mod tests;
