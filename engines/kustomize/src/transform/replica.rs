//! `replicas`.

use goyaml::v3::YamlNodeKind;

use crate::config;
use crate::edit;
use crate::error::{Error, Result};
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::kustomization::Replica;
use crate::resources::Resources;
use crate::schema::Schema;

/// A number of replicas for the objects of a name.
#[derive(Debug, Clone)]
pub(crate) struct Replicas {
    pub(crate) replica: Replica,
    pub(crate) specs: Vec<FieldSpec>,
}

impl Replicas {
    pub(super) fn transform(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        let Replica { name, count } = &self.replica;
        let budget = resources.budget();
        let mut is_found = false;
        for spec in &self.specs {
            let selection = config::selection(spec);
            let fits = |id: &crate::id::Id| id.name == *name && id.gvk.is_selected(&selection);
            let places = resources.any_id(fits, schema)?;
            is_found |= !places.is_empty();
            let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: edit::INT };
            for at in places {
                let node = &mut resources.list_mut()[at].node;
                edit::walk(node, spec, Some(created), &budget, |node| {
                    edit::set_scalar(node, count.to_string(), edit::INT)
                })?;
            }
        }
        if is_found {
            return Ok(());
        }
        let kinds = self.specs.iter().map(|spec| config::selection(spec).to_string());
        let kinds = kinds.collect::<Vec<_>>().join(" ");
        Err(Error::new(format!(
            "resource with name {name} does not match a config with the following GVK [{kinds}]"
        )))
    }
}
