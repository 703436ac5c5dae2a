//! The schemas that kustomize takes from OpenAPI: which lists of which kinds are merged, and which kinds are namespaced.
//!
//! Here: reading schemas. Below: built-in schemas (`openapi_schema/builtin.rs`), OpenAPI documents and comments
//! (`openapi_schema/openapi_document.rs`). Elsewhere: merging (`strategic_merge.rs`).

mod builtin;
mod openapi_document;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use openapi_document::OpenApiReadError;

/// The most references that are followed in a row.
const MAX_REFERENCES: usize = 100;

/// The schemas of kinds.
///
/// For built-in kinds, only fields that lead to merged lists are kept, and fields that allow any content. Other fields need no
/// schema.
#[derive(Debug, Clone)]
pub struct OpenApiSchemas {
    /// Whether the built-in schemas are used in addition to the added ones.
    is_builtin_known: bool,
    /// The added schemas. They are shared between copies; adding a document copies them.
    added: Arc<AddedOpenApiSchemas>,
}

/// The schemas that documents of a build add to the built-in ones.
#[derive(Debug, Clone, Default)]
struct AddedOpenApiSchemas {
    shapes: Vec<SchemaShape>,
    definitions: BTreeMap<String, usize>,
    /// The definitions of kinds, by API version and kind.
    kinds: BTreeMap<(String, String), usize>,
    /// Whether kinds live in namespaces.
    scopes: BTreeMap<(String, String), bool>,
}

/// The schema of one definition or field in a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SchemaShape {
    /// The definition that this schema refers to.
    reference: Option<String>,
    fields: BTreeMap<String, usize>,
    /// The schema of fields that are not named.
    additional: Option<usize>,
    is_list: bool,
    items: Option<usize>,
    /// Whether the items of a list are merged.
    is_merged: bool,
    /// The keys by which items are the same; empty if the items themselves are compared.
    keys: Vec<String>,
}

impl OpenApiSchemas {
    /// The schemas that kustomize knows without `openapi` files: Kubernetes 1.21.2 and its own kinds.
    pub fn builtin() -> Self {
        Self { is_builtin_known: true, added: Arc::default() }
    }

    /// The schemas from a document in `openapi: {path: …}`, instead of the built-in ones. Which built-in kinds are namespaced
    /// stays known.
    ///
    /// # Errors
    /// The text is neither JSON nor YAML, or is not OpenAPI.
    pub(crate) fn with_openapi(document: &Value) -> Result<Self, OpenApiReadError> {
        let mut schema = Self { is_builtin_known: false, added: Arc::default() };
        schema.add_openapi(document)?;
        Ok(schema)
    }

    /// Adds the schemas of a document. They take precedence over the existing ones.
    ///
    /// # Errors
    /// As [`Self::with_openapi`].
    pub(crate) fn add_openapi(&mut self, document: &Value) -> Result<(), OpenApiReadError> {
        openapi_document::add(self, document)
    }

    /// The schema of a kind. `None` if no schema describes the kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<ResourceSchema<'_>> {
        let place = match find(&self.added.kinds, api_version, kind) {
            Some(place) => SchemaOrigin::Added(*place),
            None if self.is_builtin_known => SchemaOrigin::Builtin(builtin::of(api_version, kind)?),
            None => return None,
        };
        Some(ResourceSchema { schema: self, place })
    }

    /// Whether a kind is namespaced; `None` if that is unknown. kustomize then treats the kind as namespaced.
    pub fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        // Parity(kustomize): the scope of a built-in kind stays as it is, even if a document sets another one.
        builtin::is_namespaced(api_version, kind)
            .or_else(|| find(&self.added.scopes, api_version, kind).copied())
    }

    /// The schema in a comment on a field. `None` if the comment is not the JSON of a schema.
    pub(crate) fn of_comment(&self, comment: &str) -> Option<ResourceSchema<'_>> {
        let json = comment.trim_start_matches('#').trim_start();
        if !json.starts_with('{') {
            return None;
        }
        let shapes = openapi_document::comment(json)?;
        let reference = shapes.first().and_then(|shape| shape.reference.as_deref());
        // A reference to an unknown definition counts as an empty schema.
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

/// The entry of a kind in a map. `None` if the kind has no entry. The maps are empty but for the few builds with
/// documents of their own.
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

/// The source of a schema.
#[derive(Debug, Clone)]
enum SchemaOrigin {
    Builtin(builtin::BuiltinShape),
    Added(usize),
    /// The schemas from a comment, and the index of this one.
    Comment(Arc<Vec<SchemaShape>>, usize),
}

impl ResourceSchema<'_> {
    /// The schema of a field. `None` if this schema does not describe the field.
    pub fn field(&self, name: &str) -> Option<Self> {
        if let SchemaOrigin::Builtin(shape) = &self.place {
            return Some(self.at(SchemaOrigin::Builtin(shape.field(name)?)));
        }
        let shape = self.shape()?;
        self.follow(shape.fields.get(name).copied().or(shape.additional)?)
    }

    /// The schema of a list's items; `None` if the schema is unknown or not that of a list.
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

    /// The fields by which items of a merged list are the same; none if whole items are compared.
    pub(crate) fn merge_keys(&self) -> Vec<String> {
        match &self.place {
            SchemaOrigin::Builtin(shape) => shape.keys().map(str::to_owned).collect(),
            _ => self.shape().map(|shape| shape.keys.clone()).unwrap_or_default(),
        }
    }

    fn at(&self, place: SchemaOrigin) -> Self {
        Self { place, ..*self }
    }

    /// The shape of this schema. `None` if the schema is built in.
    fn shape(&self) -> Option<&SchemaShape> {
        match &self.place {
            SchemaOrigin::Builtin(_) => None,
            SchemaOrigin::Added(at) => self.schema.added.shapes.get(*at),
            SchemaOrigin::Comment(shapes, at) => shapes.get(*at),
        }
    }

    /// The schema with this number from the same source. A reference is followed to its definition. `None` if the
    /// reference leads nowhere.
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
