//! `labels`, `commonLabels` and `commonAnnotations`.

use std::collections::BTreeMap;

use goyaml::v3::{Node, YamlNodeKind};

use crate::edit;
use crate::error::Result;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::resources::Resources;

/// Labels or annotations, and the maps that get them.
#[derive(Debug, Clone)]
pub(crate) struct Strings {
    pub(crate) strings: BTreeMap<String, String>,
    pub(crate) specs: Vec<FieldSpec>,
}

impl Strings {
    pub(super) fn transform(&self, resources: &mut Resources) -> Result<()> {
        if self.strings.is_empty() {
            return Ok(());
        }
        let created = CreatedNodeType { kind: YamlNodeKind::Mapping, tag: edit::MAP };
        let budget = resources.budget();
        for resource in resources.list_mut() {
            for (key, value) in &self.strings {
                for spec in &self.specs {
                    edit::walk(&mut resource.node, spec, Some(created), &budget, |node| {
                        edit::grow_field(node, key, Node::string(value.as_str()), &budget)
                    })?;
                }
            }
        }
        Ok(())
    }
}
