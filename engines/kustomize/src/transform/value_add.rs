//! The plugin `ValueAddTransformer`: sets fields to a text, or adds the text to a part of the paths in them.

use goyaml::v3::YamlNodeKind;

use crate::error::{Error, Result};
use crate::field_edit;
use crate::openapi_schema::OpenApiSchemas;
use crate::resources::BuildResources;
use crate::selector::ResourceSelector;
use crate::transform::namespace::{NamespaceTransformer, RoleBindingSubjects};
use crate::yaml_path;

/// Steps that following a path costs.
const LOOKED_UP: usize = 1_000;

/// The memory of fields that may be created on a path, in addition to their names, in bytes.
const CREATED_PATH_BYTES: usize = 256;

/// A text, and the fields to which it is added.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueAddTransformer {
    pub(crate) value: String,
    pub(crate) targets: Vec<ValueAddTarget>,
}

/// The fields of some objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueAddTarget {
    pub(crate) selector: Option<ResourceSelector>,
    pub(crate) field_path: String,
    /// 0 replaces the text of a field. A larger number inserts the text as a part of the path in the field.
    pub(crate) position: i64,
}

impl ValueAddTransformer {
    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        let budget = resources.budget();
        for target in &self.targets {
            let places = match &target.selector {
                Some(selector) => resources.select(selector, schema)?,
                None => (0..resources.list().len()).collect(),
            };
            for at in places {
                let resource = &mut resources.list_mut()[at];
                if target.field_path == "metadata/namespace" {
                    let namespace = NamespaceTransformer {
                        namespace: self.value.clone(),
                        specs: Vec::new(),
                        unset_only: false,
                        subjects: RoleBindingSubjects::NamedDefault,
                    };
                    namespace.apply(resource, schema, &budget)?;
                    continue;
                }
                budget.steps(LOOKED_UP)?;
                let parts = yaml_path::split(&target.field_path, '/');
                let Some(node) =
                    yaml_path::lookup_create(&mut resource.node, &parts, YamlNodeKind::Scalar)?
                else {
                    continue;
                };
                field_edit::check_kind(node, YamlNodeKind::Scalar)?;
                let value = match usize::try_from(target.position) {
                    Ok(0) | Err(_) => self.value.clone(),
                    Ok(position) => inserted(&node.value, position - 1, &self.value),
                };
                budget.bytes(CREATED_PATH_BYTES + target.field_path.len())?;
                field_edit::grow_scalar(node, value, "", &budget)?;
            }
        }
        Ok(())
    }
}

/// Inserts a part into a path.
fn inserted(path: &str, position: usize, part: &str) -> String {
    if part.is_empty() {
        return path.to_owned();
    }
    let mut parts: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
    let mut position = position.min(parts.len());
    if parts.first() == Some(&"") && position < parts.len() {
        position += 1;
    }
    parts.insert(position.min(parts.len()), part);
    let joined = parts.join("/");
    if joined.is_empty() { joined } else { golang::path::clean(&joined) }
}

impl ValueAddTransformer {
    /// # Errors
    /// There is no target, or one without a field.
    pub(crate) fn check(&self) -> Result<()> {
        if self.targets.is_empty() {
            return Err(Error::new("must specify at least one target"));
        }
        for ValueAddTarget { field_path, position, .. } in &self.targets {
            if field_path.is_empty() {
                return Err(Error::new("fieldPath cannot be empty"));
            }
            if *position < 0 {
                let text = format!("value of FilePathPosition ({position}) cannot be negative");
                return Err(Error::new(text));
            }
        }
        Ok(())
    }
}
