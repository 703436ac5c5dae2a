//! The transformers, which change the objects of a build, behind one type.
//!
//! Below: one file for each transformer. Elsewhere: their order (`kustomization_target.rs`), their configuration as plugins
//! (`builtin_plugin.rs`).

pub(crate) mod affix;
pub(crate) mod image;
pub(crate) mod label;
pub(crate) mod namespace;
pub(crate) mod patch;
pub(crate) mod replacement;
pub(crate) mod replica;
pub(crate) mod structured_replacement;
pub(crate) mod value_add;

use crate::budget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::name_hash;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::{self, BuildResource};
use crate::resources::BuildResources;

/// A transformer with its configuration.
#[derive(Debug, Clone)]
pub(crate) enum ResourceTransformer {
    StrategicMerge(patch::StrategicMergeTransformer),
    Patch(patch::PatchTransformer),
    Json6902(patch::Json6902Transformer),
    Namespace(namespace::NamespaceTransformer),
    Affix(affix::AffixTransformer),
    Labels(label::LabelTransformer),
    Replicas(replica::ReplicaTransformer),
    Images(image::ImageTransformer),
    Replacements(replacement::ReplacementTransformer),
    ValueAdd(value_add::ValueAddTransformer),
    Hash,
    Several(Vec<Self>),
}

impl ResourceTransformer {
    /// Whether the transformer merges a patch into one of the objects, and therefore uses the schema.
    ///
    /// # Errors
    /// The build has exceeded its budget.
    pub(crate) fn merges(
        &self,
        resources: &BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<bool> {
        match self {
            Self::StrategicMerge(_) => Ok(true),
            Self::Patch(patch) => patch.merges(resources, schema),
            _ => Ok(false),
        }
    }

    /// The name of the transformer in errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::StrategicMerge(_) => "PatchStrategicMergeTransformer",
            Self::Patch(_) => "PatchTransformer",
            Self::Json6902(_) => "PatchJson6902Transformer",
            Self::Namespace(_) => "NamespaceTransformer",
            Self::Affix(affix) => match affix.side {
                affix::AffixPosition::Prefix => "PrefixTransformer",
                affix::AffixPosition::Suffix => "SuffixTransformer",
            },
            Self::Labels(_) => "LabelTransformer",
            Self::Replicas(_) => "ReplicaCountTransformer",
            Self::Images(_) => "ImageTagTransformer",
            Self::Replacements(_) => "ReplacementTransformer",
            Self::ValueAdd(_) => "ValueAddTransformer",
            Self::Hash => "HashTransformer",
            Self::Several(_) => "PrefixSuffixTransformer",
        }
    }

    /// Changes the objects.
    ///
    /// # Errors
    /// The transformation fails. Some objects may already be changed.
    pub(crate) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        match self {
            Self::StrategicMerge(patches) => patches.transform(resources, schema),
            Self::Patch(patch) => patch.transform(resources, schema),
            Self::Json6902(patch) => patch.transform(resources, schema),
            Self::Namespace(namespace) => namespace.transform(resources, schema),
            Self::Affix(affix) => affix.transform(resources, schema),
            Self::Labels(strings) => strings.transform(resources),
            Self::Replicas(replicas) => replicas.transform(resources, schema),
            Self::Images(images) => images.transform(resources),
            Self::Replacements(replacements) => replacements.transform(resources),
            Self::ValueAdd(addition) => addition.transform(resources, schema),
            Self::Hash => add_hashes(resources, schema),
            Self::Several(all) => all.iter().try_for_each(|one| one.transform(resources, schema)),
        }
    }
}

/// Adds hashes to the names of objects that need one.
fn add_hashes(resources: &mut BuildResources, schema: &OpenApiSchemas) -> Result<()> {
    if !resources.list().iter().any(|resource| resource.needs_hash) {
        return Ok(());
    }
    let budget = resources.budget();
    for resource in resources.list_mut().iter_mut().filter(|resource| resource.needs_hash) {
        let named = || named(resource);
        let weight = budget::weight(&resource.node);
        let _json = budget.hold(2 * weight).map_err(Error::from).if_exhausted(named)?;
        let hash = name_hash::hash(resource)?;
        resource.remember(schema, &budget)?;
        let name = [resource.name(), "-", &hash].concat();
        resource.set_name(&name)?;
    }
    Ok(())
}

/// The name of an object in the error about an exceeded budget.
pub(crate) fn named(resource: &BuildResource) -> String {
    format!("object {}", resource::id(&resource.node))
}
