//! Adds labels and annotations to a stream of objects, without a build.
//!
//! Flux does this to the output of Helm with parts of kustomize (helm-controller 1.6 `internal/postrender`).
//! Elsewhere: builds (`build.rs`), the transformers (`transform/label.rs`).

use std::collections::BTreeMap;

use crate::budget::BuildBudget;
use crate::error::Result;
use crate::fieldspec::FieldSpec;
use crate::manifest;
use crate::openapi_schema::OpenApiSchemas;
use crate::resources::BuildResources;
use crate::transform::ResourceTransformer;
use crate::transform::label::LabelTransformer;
use crate::yaml_output;

/// The metadata field to which strings are added. A missing field is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataField {
    /// `metadata.labels`
    Labels,
    /// `metadata.annotations`
    Annotations,
}

/// Adds strings to all objects of a stream, one set after the other, and replaces existing ones. Returns the stream as a build
/// prints it.
///
/// Unlike a build, it keeps all objects.
///
/// # Errors
/// A document of the stream is not an object with a name, or the same object occurs twice. The messages are kustomize's.
pub fn add_common_metadata<'t>(
    stream: &[u8],
    strings: impl IntoIterator<Item = (MetadataField, &'t BTreeMap<String, String>)>,
    budget: &BuildBudget,
) -> Result<String> {
    let schema = OpenApiSchemas::builtin();
    let mut resources = BuildResources::of(manifest::parse(stream, budget)?, &schema, budget)?;
    for (field, strings) in strings {
        let path = match field {
            MetadataField::Labels => "metadata/labels",
            MetadataField::Annotations => "metadata/annotations",
        };
        let spec = FieldSpec { path: path.to_owned().into(), create: true, ..FieldSpec::default() };
        let strings = LabelTransformer { strings: strings.clone(), specs: vec![spec] };
        ResourceTransformer::Labels(strings).transform(&mut resources, &schema)?;
    }
    yaml_output::stream(resources.list(), budget)
}
