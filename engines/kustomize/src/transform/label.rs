//! `labels`, `commonLabels` and `commonAnnotations`.

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::error::Result;
use crate::field_edit;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::resources::BuildResources;

/// Labels or annotations, and the maps to which they are added.
#[derive(Debug, Clone)]
pub(crate) struct LabelTransformer {
    pub(crate) strings: BTreeMap<String, String>,
    pub(crate) specs: Vec<FieldSpec>,
}

impl LabelTransformer {
    pub(super) fn transform(&self, resources: &mut BuildResources) -> Result<()> {
        if self.strings.is_empty() {
            return Ok(());
        }
        let created = CreatedNodeType { kind: YamlNodeKind::Mapping, tag: field_edit::MAP };
        let budget = resources.budget();
        for resource in resources.list_mut() {
            for (key, value) in &self.strings {
                for spec in &self.specs {
                    field_edit::walk(&mut resource.node, spec, Some(created), &budget, |node| {
                        field_edit::grow_field(node, key, YamlNode::string(value.as_str()), &budget)
                    })?;
                }
            }
        }
        Ok(())
    }
}
