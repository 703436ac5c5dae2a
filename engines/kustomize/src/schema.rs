//! Which lists of which kinds are merged, and which kinds live in namespaces: what kustomize takes from OpenAPI.
//!
//! Here: asking. Below: reading OpenAPI documents and the built-in table (`schema/read.rs`), which is made from the
//! OpenAPI of Kubernetes 1.21.2 that kustomize 5.8.1 has built in (`schema/builtin.txt` says how).
//! Elsewhere: merging (`merge.rs`).

mod read;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub use read::ReadError;

/// What Kubernetes' own kinds look like.
static BUILTIN: LazyLock<Schema> =
    LazyLock::new(|| read::builtin(include_str!("schema/builtin.txt")));

/// How often a reference may lead to another one.
const MAX_REFERENCES: usize = 100;

/// A name, which is part of the program where it is built in: the table is read by every process.
type Text = Cow<'static, str>;

/// What is known about kinds.
///
/// Of the built-in kinds only what leads to merged lists is kept, and fields of any content: that a field is known
/// matters for nothing else.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Shared: documents are added to a copy.
    shapes: Arc<Vec<Shape>>,
    definitions: Arc<BTreeMap<Text, usize>>,
    /// By API version and kind.
    kinds: Arc<BTreeMap<(Text, Text), usize>>,
    /// Whether kinds live in namespaces.
    scopes: Arc<BTreeMap<(Text, Text), bool>>,
}

/// What is known of one definition or field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shape {
    /// The definition that it is instead.
    reference: Option<String>,
    fields: BTreeMap<Text, usize>,
    /// Of fields that are not named.
    additional: Option<usize>,
    is_list: bool,
    items: Option<usize>,
    /// Whether the items of a list are merged.
    is_merged: bool,
    /// What makes items the same; none if it is the item itself.
    keys: Vec<String>,
}

impl Schema {
    /// What kustomize knows without being told: Kubernetes 1.21.2 and its own kinds.
    pub fn builtin() -> Self {
        BUILTIN.clone()
    }

    /// What the document of an `openapi: {path: …}` says, in the place of what is built in. Scopes of built-in kinds
    /// stay known.
    ///
    /// # Errors
    /// The text is neither JSON nor YAML, or no OpenAPI.
    pub fn with_openapi(document: &str) -> Result<Self, ReadError> {
        let mut schema = Self { scopes: BUILTIN.scopes.clone(), ..Self::default() };
        schema.add_openapi(document)?;
        Ok(schema)
    }

    /// Adds what a document says; it wins over what is known.
    ///
    /// # Errors
    /// As [`Self::with_openapi`].
    pub fn add_openapi(&mut self, document: &str) -> Result<(), ReadError> {
        read::add(self, document)
    }

    /// What is known of a kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<Resource<'_>> {
        let shape = *find(&self.kinds, api_version, kind)?;
        Some(Resource { schema: self, shapes: None, shape })
    }

    /// Whether objects of a kind live in namespaces; `None` if that is not known, where kustomize takes them to.
    pub fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        find(&self.scopes, api_version, kind).copied()
    }

    /// What a comment says about its field, if it is a schema in JSON.
    pub fn of_comment(&self, comment: &str) -> Option<Resource<'_>> {
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
        Some(Resource { schema: self, shapes: Some(Arc::new(shapes)), shape: 0 })
    }

    fn definition(&self, name: &str) -> Option<Resource<'_>> {
        let shape = *self.definitions.get(name)?;
        Some(Resource { schema: self, shapes: None, shape })
    }
}

/// What is noted of a kind.
fn find<'m, 'k, T>(
    map: &'m BTreeMap<(Cow<'k, str>, Cow<'k, str>), T>,
    api_version: &'k str,
    kind: &'k str,
) -> Option<&'m T> {
    map.get(&(Cow::Borrowed(api_version), Cow::Borrowed(kind)))
}

/// What is known of a kind, of a field, or of the items of a list.
#[derive(Debug, Clone)]
pub struct Resource<'s> {
    schema: &'s Schema,
    /// The shapes of a comment, if it comes from one.
    shapes: Option<Arc<Vec<Shape>>>,
    shape: usize,
}

impl<'s> Resource<'s> {
    /// What is known of a field.
    pub fn field(&self, name: &str) -> Option<Self> {
        let shape = self.get()?;
        self.follow(shape.fields.get(name).copied().or(shape.additional)?)
    }

    /// What is known of a list's items; `None` also if it is no list.
    pub fn elements(&self) -> Option<Self> {
        let shape = self.get()?;
        self.follow(shape.items.filter(|_| shape.is_list)?)
    }

    /// Whether a list here is merged with another, item by item, rather than replaced.
    pub fn is_merged(&self) -> bool {
        self.get().is_some_and(|shape| shape.is_merged)
    }

    /// The fields that make items of a merged list the same; none if items that are equal are.
    pub fn merge_keys(&self) -> &[String] {
        self.get().map(|shape| shape.keys.as_slice()).unwrap_or_default()
    }

    fn get(&self) -> Option<&Shape> {
        self.shapes.as_ref().unwrap_or(&self.schema.shapes).get(self.shape)
    }

    fn follow(&self, shape: usize) -> Option<Self> {
        let mut found = Self { shape, ..self.clone() };
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = &found.get()?.reference else { return Some(found) };
            found = self.schema.definition(reference)?;
        }
        None
    }
}

#[cfg(test)]
mod tests;
