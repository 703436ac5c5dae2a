//! `namespace`.

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::budget::BuildBudget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::fieldspec::{CreatedNodeType, FieldSpec};
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::BuildResource;
use crate::resources::BuildResources;

/// Steps that examining an object costs.
const LOOKED_AT: usize = 256;

/// Which subjects of role bindings get the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleBindingSubjects {
    NamedDefault,
    ServiceAccounts,
    None,
}

/// A namespace, and the fields in which it is set in addition to `metadata.namespace`.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceTransformer {
    pub(crate) namespace: String,
    pub(crate) specs: Vec<FieldSpec>,
    pub(crate) unset_only: bool,
    pub(crate) subjects: RoleBindingSubjects,
}

impl NamespaceTransformer {
    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        let budget = resources.budget();
        for resource in resources.list_mut() {
            if resource.is_gone() || resource.is_from_helm {
                continue;
            }
            resource.remember(schema, &budget)?;
            self.apply(resource, schema, &budget)?;
        }
        check_ids(resources.list(), schema)
    }

    pub(super) fn apply(
        &self,
        resource: &mut BuildResource,
        schema: &OpenApiSchemas,
        budget: &BuildBudget,
    ) -> Result<()> {
        budget.steps(LOOKED_AT)?;
        let id = resource.id(schema);
        if !id.is_cluster_scoped {
            let spec = FieldSpec {
                path: "metadata/namespace".into(),
                create: true,
                ..FieldSpec::default()
            };
            let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: "" };
            field_edit::walk(&mut resource.node, &spec, Some(created), budget, |node| {
                self.set(node, budget)
            })?;
        }
        let is_binding = |kind: &str| matches!(kind, "RoleBinding" | "ClusterRoleBinding");
        let binds = is_binding(&id.gvk.kind);
        if binds {
            self.bind(&mut resource.node, budget)?;
        }
        let is_core = resource.api_version() == "v1";
        let created = CreatedNodeType { kind: YamlNodeKind::Scalar, tag: field_edit::STR };
        for spec in &self.specs {
            let is_done = match &*spec.path {
                "metadata/namespace" => true,
                "metadata/name" => !is_core,
                "subjects/namespace" => binds && is_binding(&spec.kind),
                _ => false,
            };
            if is_done {
                continue;
            }
            let set = field_edit::walk(&mut resource.node, spec, Some(created), budget, |node| {
                self.set(node, budget)
            });
            set.map_err(|error| {
                let text = error.to_string();
                let is_kind =
                    text.contains("wrong node kind: ") && !text.contains("but got ScalarNode");
                error.within(match is_kind {
                    true => "namespace field specs must target scalar nodes",
                    false => "namespace transformation failed",
                })
            })?;
        }
        Ok(())
    }

    fn set(&self, node: &mut YamlNode, budget: &BuildBudget) -> Result<()> {
        let is_set = node.kind == YamlNodeKind::Scalar && !field_edit::text(node).is_empty();
        if self.unset_only && is_set {
            return Ok(());
        }
        field_edit::grow_scalar(node, self.namespace.as_str(), field_edit::STR, budget)
    }

    /// Sets the namespace of the subjects of a role binding.
    ///
    /// Parity(kustomize): a subject of any kind that is called `default` counts as a service account.
    fn bind(&self, object: &mut YamlNode, budget: &BuildBudget) -> Result<()> {
        let (field, wanted) = match self.subjects {
            RoleBindingSubjects::None => return Ok(()),
            RoleBindingSubjects::NamedDefault => ("name", "default"),
            RoleBindingSubjects::ServiceAccounts => ("kind", "ServiceAccount"),
        };
        let Some(subjects) = field_edit::get_mut(object, "subjects")? else { return Ok(()) };
        if field_edit::is_null(subjects) {
            return Ok(());
        }
        let setting = || "setting namespace on (cluster)role binding subjects";
        field_edit::check_kind(subjects, YamlNodeKind::Sequence).within(setting)?;
        for subject in subjects.content.iter_mut() {
            let looking = || format!("looking up {field} on (cluster)role binding subject");
            let value = field_edit::get(subject, field).within(looking).within(setting)?;
            let Some(value) = value.filter(|value| !field_edit::is_null(value)) else { continue };
            field_edit::check_kind(value, YamlNodeKind::Scalar).within(looking).within(setting)?;
            if value.value != wanted {
                continue;
            }
            if let Some(node) =
                field_edit::get_or_create(subject, "namespace", YamlNodeKind::Scalar)?
            {
                self.set(node, budget).within(setting)?;
            }
        }
        Ok(())
    }
}

fn check_ids(resources: &[BuildResource], schema: &OpenApiSchemas) -> Result<()> {
    let mut known = BTreeMap::new();
    for (at, resource) in resources.iter().enumerate() {
        let id = resource.id(schema);
        let (gvk, name, namespace) = id.key();
        let key = (gvk.clone(), name.to_owned(), namespace.to_owned());
        if known.insert(key, at).is_some() {
            let text = format!("namespace transformation produces ID conflict: {id} comes twice");
            return Err(Error::new(text));
        }
    }
    Ok(())
}
