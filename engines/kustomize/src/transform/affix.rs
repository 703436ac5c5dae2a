//! `namePrefix` and `nameSuffix`.

use goyaml::v3::YamlNodeKind;

use crate::error::Result;
use crate::field_edit;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::openapi_schema::OpenApiSchemas;
use crate::resources::BuildResources;
use crate::transformer_config;

/// On which side of a name something is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AffixPosition {
    Prefix,
    Suffix,
}

/// A prefix or suffix, and the fields to which it is added.
#[derive(Debug, Clone)]
pub(crate) struct AffixTransformer {
    pub(crate) side: AffixPosition,
    pub(crate) text: String,
    pub(crate) specs: Vec<FieldSpec>,
}

/// Kinds whose names must not be changed.
fn is_skipped(gvk: &crate::resource_id::Gvk) -> bool {
    match gvk.kind.as_str() {
        "CustomResourceDefinition" | "Namespace" => true,
        "APIService" => gvk.group == "apiregistration.k8s.io",
        _ => false,
    }
}

impl AffixTransformer {
    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        let selections: Vec<_> = self.specs.iter().map(transformer_config::selection).collect();
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
                        AffixPosition::Prefix => &mut resource.prefixes,
                        AffixPosition::Suffix => &mut resource.suffixes,
                    };
                    budget.bytes(size_of::<String>() + 2 * self.text.len())?;
                    affixes.push(self.text.clone());
                    resource.remember(schema, &budget)?;
                }
                let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: field_edit::STR };
                field_edit::walk(&mut resource.node, spec, Some(created), &budget, |node| {
                    let text = match self.side {
                        AffixPosition::Prefix => [self.text.as_str(), &node.value].concat(),
                        AffixPosition::Suffix => [node.value.as_str(), &self.text].concat(),
                    };
                    field_edit::grow_scalar(node, text, "", &budget)
                })?;
            }
        }
        Ok(())
    }
}
