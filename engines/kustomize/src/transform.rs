//! What changes the objects of a build, in the form in which all transformers wait for their turn.
//!
//! Below: one file each. Elsewhere: their order (`target.rs`), their configuration as plugins (`plugin.rs`).

pub(crate) mod affix;
pub(crate) mod image;
pub(crate) mod label;
pub(crate) mod namespace;
pub(crate) mod patch;
pub(crate) mod replacement;
pub(crate) mod replica;
pub(crate) mod structured;
pub(crate) mod value_add;

use crate::error::Result;
use crate::hash;
use crate::resources::Resources;
use crate::schema::Schema;

/// A transformer and all it needs.
#[derive(Debug, Clone)]
pub(crate) enum Transformer {
    StrategicMerge(patch::StrategicMerge),
    Patch(patch::Patch),
    Json6902(patch::Json6902),
    Namespace(namespace::Namespace),
    Affix(affix::Affix),
    Labels(label::Texts),
    Replicas(replica::Replicas),
    Images(image::Images),
    Replacements(replacement::Replacements),
    ValueAdd(value_add::ValueAdd),
    Hash,
    Several(Vec<Self>),
}

impl Transformer {
    /// Whether it merges anything into one of the objects, for which it asks the schema.
    pub(crate) fn merges(&self, resources: &Resources, schema: &Schema) -> bool {
        match self {
            Self::StrategicMerge(_) => true,
            Self::Patch(patch) => patch.merges(resources, schema),
            _ => false,
        }
    }

    /// Changes the objects.
    ///
    /// # Errors
    /// What was asked for cannot be done; some objects may have been changed.
    pub(crate) fn transform(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        match self {
            Self::StrategicMerge(patches) => patches.transform(resources, schema),
            Self::Patch(patch) => patch.transform(resources, schema),
            Self::Json6902(patch) => patch.transform(resources, schema),
            Self::Namespace(namespace) => namespace.transform(resources, schema),
            Self::Affix(affix) => affix.transform(resources, schema),
            Self::Labels(texts) => texts.transform(resources),
            Self::Replicas(replicas) => replicas.transform(resources, schema),
            Self::Images(images) => images.transform(resources),
            Self::Replacements(replacements) => replacements.transform(resources),
            Self::ValueAdd(addition) => addition.transform(resources, schema),
            Self::Hash => add_hashes(resources, schema),
            Self::Several(all) => all.iter().try_for_each(|one| one.transform(resources, schema)),
        }
    }
}

/// Adds hashes to the names of the objects that ask for one.
fn add_hashes(resources: &mut Resources, schema: &Schema) -> Result<()> {
    if !resources.list().iter().any(|resource| resource.needs_hash) {
        return Ok(());
    }
    for resource in resources.list_mut().iter_mut().filter(|resource| resource.needs_hash) {
        let hash = hash::hash(resource)?;
        resource.remember(schema);
        let name = [resource.name(), "-", &hash].concat();
        resource.set_name(&name)?;
    }
    Ok(())
}
