//! `replicas`.

use goyaml::v3::YamlNodeKind;

use crate::error::{Error, Result};
use crate::field_edit;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::kustomization::ReplicaEntry;
use crate::openapi_schema::OpenApiSchemas;
use crate::resources::BuildResources;
use crate::transformer_config;

/// A number of replicas for the objects of a name.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaTransformer {
    pub(crate) replica: ReplicaEntry,
    pub(crate) specs: Vec<FieldSpec>,
}

impl ReplicaTransformer {
    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        let ReplicaEntry { name, count } = &self.replica;
        let budget = resources.budget();
        let mut is_found = false;
        for spec in &self.specs {
            let selection = transformer_config::selection(spec);
            let fits = |id: &crate::resource_id::ResourceId| {
                id.name == *name && id.gvk.is_selected(&selection)
            };
            let places = resources.any_id(fits, schema)?;
            is_found |= !places.is_empty();
            let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: field_edit::INT };
            for at in places {
                let node = &mut resources.list_mut()[at].node;
                field_edit::walk(node, spec, Some(created), &budget, |node| {
                    field_edit::set_scalar(node, count.to_string(), field_edit::INT)
                })?;
            }
        }
        if is_found {
            return Ok(());
        }
        let kinds = self.specs.iter().map(|spec| transformer_config::selection(spec).to_string());
        let kinds = kinds.collect::<Vec<_>>().join(" ");
        Err(Error::new(format!(
            "resource with name {name} does not match a config with the following GVK [{kinds}]"
        )))
    }
}
