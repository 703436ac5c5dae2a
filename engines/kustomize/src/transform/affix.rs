//! `namePrefix` and `nameSuffix`.

use goyaml::v3::YamlNodeKind;

use crate::config;
use crate::edit;
use crate::error::Result;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::resources::Resources;
use crate::schema::Schema;

/// On which side of a name something is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Prefix,
    Suffix,
}

/// A prefix or suffix, and the fields that get it.
#[derive(Debug, Clone)]
pub(crate) struct Affix {
    pub(crate) side: Side,
    pub(crate) text: String,
    pub(crate) specs: Vec<FieldSpec>,
}

/// Kinds whose names are not free.
fn is_skipped(gvk: &crate::id::Gvk) -> bool {
    match gvk.kind.as_str() {
        "CustomResourceDefinition" | "Namespace" => true,
        "APIService" => gvk.group == "apiregistration.k8s.io",
        _ => false,
    }
}

impl Affix {
    pub(super) fn transform(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        let selections: Vec<_> = self.specs.iter().map(config::selection).collect();
        let budget = resources.budget();
        for resource in resources.list_mut() {
            budget.steps(self.specs.len())?;
            let gvk = resource.original_id(schema).gvk;
            if is_skipped(&gvk) {
                continue;
            }
            for (spec, selection) in self.specs.iter().zip(&selections) {
                if !gvk.is_selected(selection) {
                    continue;
                }
                if spec.path == "metadata/name" && !self.text.is_empty() {
                    let affixes = match self.side {
                        Side::Prefix => &mut resource.prefixes,
                        Side::Suffix => &mut resource.suffixes,
                    };
                    budget.bytes(size_of::<String>() + 2 * self.text.len())?;
                    affixes.push(self.text.clone());
                    resource.remember(schema, &budget)?;
                }
                let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: edit::STR };
                edit::walk(&mut resource.node, spec, Some(created), &budget, |node| {
                    let text = match self.side {
                        Side::Prefix => [self.text.as_str(), &node.value].concat(),
                        Side::Suffix => [node.value.as_str(), &self.text].concat(),
                    };
                    edit::grow_scalar(node, text, "", &budget)
                })?;
            }
        }
        Ok(())
    }
}
