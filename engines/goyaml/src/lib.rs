//! YAML as Go's libraries read and write it.
//!
//! Kubernetes, Helm and kustomize use two Go libraries for YAML: go-yaml v2 below `sigs.k8s.io/yaml`, and go-yaml v3.
//! Both differ from the YAML specification, from each other, and from every Rust crate. Another library may therefore
//! read a manifest differently.
//!
//! Reading turns bytes into characters (`reader`), tokens (`scanner`), events (`parser`), nodes (`node`), Go values
//! (`decode`, `scalar_resolve`) and JSON (`json`). No function recurses over its input, and [`YamlLimits`] bound it.
//! [`IncrementalYamlReader`] reads a large document piece by piece. Writing is in [`emit`](mod@emit). Version 3, whose nodes
//! are read, changed and written with their comments, is in [`v3`]. It shares all steps up to the parser.
//!
//! This crate does not know what a value means in a Kubernetes object.

mod decode;
mod decode_target;
mod document_stream_split;
pub mod emit;
mod error;
mod event;
mod go_format;
mod incremental_reader;
mod json;
mod limits;
mod node;
mod parser;
mod reader;
mod scalar_resolve;
mod scanner;
mod simple_document_fast_path;
mod token;
pub mod v3;
mod value;

pub use decode_target::{DecodeTarget, is_field};
pub use document_stream_split::{YamlDocument, documents};
pub use emit::{EmittableValue, EmittableView, YamlEmitError, emit, emit_value, emit_with_escapes};
pub use error::Error;
pub use incremental_reader::IncrementalYamlReader;
pub use limits::YamlLimits;
pub use simple_document_fast_path::ValueBuilder;

use limits::YamlBudget;
use serde_json::Value;

/// The Go library whose YAML is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum YamlDialect {
    /// go-yaml v2.4.3 below `sigs.k8s.io/yaml` v1.6.0. Helm's values and templates, Kubernetes' own readers, and all
    /// output of kustomize use it.
    #[default]
    V2,
    /// go-yaml v3.0.4. Kustomize reads and edits manifests with it, including their comments.
    V3,
}

/// Reads the first document of `input`, as `YAMLToJSON` of `sigs.k8s.io/yaml` does.
///
/// The text after that document is not examined. If there is no document, the value is null. If a key is set twice, the
/// last value counts. The value equals the parsed JSON text of Go, so `1.0` is the integer 1. [`YamlLimits::default`]
/// applies.
pub fn to_json(input: &[u8]) -> Result<Value, Error> {
    to_value::<simple_document_fast_path::JsonBuilder>(input)
}

/// Like [`to_json`], with these limits.
pub fn to_json_within(input: &[u8], limits: &YamlLimits) -> Result<Value, Error> {
    let plain = if limits.nodes < simple_document_fast_path::MAX_VALUES
        || limits.bytes < input.len()
    {
        None
    } else {
        simple_document_fast_path::read::<simple_document_fast_path::JsonBuilder>(input, |_, _| {
            true
        })
    };
    match plain {
        Some(value) => Ok(value),
        None => first_document_within(input, false, &DecodeTarget::Any, limits),
    }
}

/// Like [`to_json_strict`], with these limits.
pub fn to_json_strict_within(input: &[u8], limits: &YamlLimits) -> Result<Value, Error> {
    first_document_within(input, true, &DecodeTarget::Any, limits)
}

/// Like [`to_json`], but the result has the value type of another library, which `M` builds.
pub fn to_value<M: ValueBuilder>(input: &[u8]) -> Result<M::Value, Error> {
    match simple_document_fast_path::read::<M>(input, |_, _| true) {
        Some(value) => Ok(value),
        None => first_document(input, false, &DecodeTarget::Any).map(M::json),
    }
}

/// Like [`to_json`], for a caller that needs only some of the entries.
///
/// `wants` gets a key, and in how many lists and maps the key is, counted from one. It returns whether the entry is
/// needed. Other entries may be missing from the value, with everything in them. An error in any entry is still an
/// error.
pub fn to_json_of(input: &[u8], wants: impl Fn(usize, &str) -> bool) -> Result<Value, Error> {
    match simple_document_fast_path::read::<simple_document_fast_path::JsonBuilder>(input, wants) {
        Some(value) => Ok(value),
        None => first_document(input, false, &DecodeTarget::Any),
    }
}

/// Like [`to_json`], for a Go type of a known shape.
pub fn to_json_for(input: &[u8], target: &DecodeTarget) -> Result<Value, Error> {
    first_document(input, false, target)
}

/// Reads the first document of `input`, as `YAMLToJSONStrict` of `sigs.k8s.io/yaml` does.
///
/// Unlike in [`to_json`], a key that is set twice is an error, even if a merge key sets it.
pub fn to_json_strict(input: &[u8]) -> Result<Value, Error> {
    first_document(input, true, &DecodeTarget::Any)
}

fn first_document(input: &[u8], strict: bool, target: &DecodeTarget) -> Result<Value, Error> {
    first_document_within(input, strict, target, &YamlLimits::default())
}

fn first_document_within(
    input: &[u8],
    strict: bool,
    target: &DecodeTarget,
    limits: &YamlLimits,
) -> Result<Value, Error> {
    let mut budget = YamlBudget::new(input, limits)?;
    let Some(nodes) = node::first_document(input, 0, &mut budget)? else {
        return Ok(Value::Null);
    };
    let (values, root) = decode::decode(&nodes, strict, &mut budget)?;
    json::to_json_for(&values, root, target).map_err(|error| error.or_at(nodes.root().start))
}
