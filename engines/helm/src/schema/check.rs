//! Checks values against one schema.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use boon::{CompileError, Compiler, Schemas, UrlLoader};
use golang::value::GoMap;
use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use parking_lot::Mutex;
use serde_json::Value as Json;

use super::cost::{self, SchemaCheckCost};
use super::pattern::ReplacedSchemaPatterns;
use super::schema_error_text;
use crate::values::to_json;
use crate::warning::{HelmWarning, WarningLevel};

/// The name of the schema in errors.
const ADDRESS: &str = "file:///values.schema.json";

/// How many steps of a render a byte of a schema costs, and how many the application of a schema to a value costs. An
/// application takes about a microsecond.
const STEPS_PER_SCHEMA_BYTE: u64 = 4;
const STEPS_PER_SCHEMA_APPLICATION: u64 = 100;

/// The heading that Helm removes from a message.
const HEADING: &str = "jsonschema validation failed with 'file:///values.schema.json#'\n";

/// Checks values. An error is Helm's message.
pub(super) fn check(
    schema: &[u8],
    values: &GoMap,
    meter: &mut WorkMeter,
    warnings: &mut Vec<HelmWarning>,
) -> Result<(), String> {
    let exhausted = |error: WorkLimitExceeded| format!("checking values is stopped: {error}\n");
    meter.steps(schema.len() as u64 * STEPS_PER_SCHEMA_BYTE).map_err(exhausted)?;
    let mut schema = parse(schema)?;
    let patterns = ReplacedSchemaPatterns::translate(&mut schema)?;
    // The compiler searches for each schema among all others, and does not watch the time.
    let subschemas = patterns.subschemas();
    meter.steps(subschemas.saturating_mul(subschemas) / 2).map_err(exhausted)?;
    let values = to_json(values).map_err(|error| error.to_string())?;
    let mut compiler = Compiler::new();
    let unresolved = UnresolvedSchemaUrns::default();
    compiler.use_loader(Box::new(NoSchemaLoader { unresolved: Arc::clone(&unresolved) }));
    let mut schemas = Schemas::new();
    let fault = |error: CompileError| compile_error(&error, &patterns);
    compiler.add_resource(ADDRESS, schema.clone()).map_err(fault)?;
    let compiled = compiler.compile(ADDRESS, &mut schemas).map_err(fault);
    warn_of(&unresolved, warnings);
    let compiled = compiled?;
    let SchemaCheckCost { depth, steps } = cost::of(&schema, &values, &patterns)?;
    meter.steps(steps as u64 * STEPS_PER_SCHEMA_APPLICATION).map_err(exhausted)?;
    meter.look().map_err(exhausted)?;
    with_stack(depth, || {
        schemas.validate(&values, compiled).map_err(|error| {
            let text = schema_error_text::tree(&error, &patterns, false);
            format!("{}\n", text.strip_prefix(HEADING).unwrap_or(&text))
        })
    })
}

/// Runs a function with a stack that is large enough for this depth of recursion.
fn with_stack(
    depth: usize,
    work: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    /// The depth for which the stack of any thread is large enough, and the stack size for the greatest depth.
    const MAX_INLINE_DEPTH: usize = 30;
    const VALIDATION_STACK_BYTES: usize = 32 << 20;
    if depth <= MAX_INLINE_DEPTH {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(VALIDATION_STACK_BYTES)
            .spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("no thread to check values in: {error}\n"))?;
        // Parity(helm 4): a panic of the library is reported as an error.
        thread.join().unwrap_or_else(|_| Err("unable to validate schema\n".to_owned()))
    })
}

/// Reads the text of a schema, with the errors of Go's `encoding/json`.
fn parse(text: &[u8]) -> Result<Json, String> {
    if text.trim_ascii().is_empty() {
        return Err("EOF".to_owned());
    }
    let (_, end) = golang::json::decode_prefix(text).map_err(|error| error.to_string())?;
    if !text[end..].trim_ascii().is_empty() {
        return Err("invalid character after top-level value".to_owned());
    }
    // Differs(helm 4): half of a surrogate pair, and more than 127 lists and tables in each other.
    let text = String::from_utf8_lossy(text);
    serde_json::from_str(&text).map_err(|error| format!("the schema cannot be read: {error}"))
}

/// The `urn:` names in a schema that cannot be resolved: the first [`MAX_UNRESOLVED_NAMES`].
type UnresolvedSchemaUrns = Arc<Mutex<BTreeSet<String>>>;

/// How many unresolved names of a schema cause a warning.
const MAX_UNRESOLVED_NAMES: usize = 16;

/// A loader for referenced schemas that loads none.
#[derive(Debug)]
struct NoSchemaLoader {
    unresolved: UnresolvedSchemaUrns,
}

impl UrlLoader for NoSchemaLoader {
    fn load(&self, url: &str) -> Result<Json, Box<dyn Error>> {
        if url.starts_with("urn:") {
            let mut unresolved = self.unresolved.lock();
            if unresolved.len() < MAX_UNRESOLVED_NAMES {
                unresolved.insert(url.to_owned());
            }
            return Ok(Json::Bool(true));
        }
        Err("remote schemas are not supported; move what `$ref` refers to into `$defs` of values.schema.json"
            .into())
    }
}

/// Adds a warning in Helm's words for each name that has none yet.
fn warn_of(unresolved: &UnresolvedSchemaUrns, warnings: &mut Vec<HelmWarning>) {
    const MESSAGE: &str = "unresolved URN reference ignored; using permissive schema";
    let unresolved = std::mem::take(&mut *unresolved.lock());
    for urn in unresolved {
        let warning = HelmWarning::new(WarningLevel::Warn, MESSAGE).with("urn", urn);
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

fn compile_error(error: &CompileError, patterns: &ReplacedSchemaPatterns) -> String {
    let q = schema_error_text::go_quoted;
    match error {
        CompileError::ParseUrlError { url, src } => format!("error in parsing {}: {src}", q(url)),
        CompileError::LoadUrlError { url, src } => format!("failing loading {}: {src}", q(url)),
        CompileError::UnsupportedUrlScheme { url } => {
            format!("no URLLoader registered for {}", q(url))
        }
        CompileError::InvalidMetaSchemaUrl { url, src } => {
            format!("invalid $schema in {}: {src}", q(url))
        }
        CompileError::UnsupportedDraft { url } => format!("draft {} is not supported", q(url)),
        CompileError::MetaSchemaCycle { url } => {
            format!("cycle in resolving $schema in {}", q(url))
        }
        CompileError::ValidationError { url, src } => {
            let tree = schema_error_text::tree(src, patterns, true);
            format!("{} is not valid against metaschema: {tree}", q(url))
        }
        CompileError::ParseIdError { loc } => format!("error in parsing id at {}", q(loc)),
        CompileError::ParseAnchorError { loc } => format!("error in parsing anchor at {}", q(loc)),
        CompileError::DuplicateId { url, id, ptr1, ptr2 } => {
            format!("duplicate id {} in {} at {} and {}", q(id), q(url), q(ptr1), q(ptr2))
        }
        CompileError::DuplicateAnchor { anchor, url, ptr1, ptr2 } => {
            format!("duplicate anchor {} in {} at {} and {}", q(anchor), q(url), q(ptr1), q(ptr2))
        }
        CompileError::InvalidJsonPointer(loc) => format!("invalid json-pointer {}", q(loc)),
        CompileError::JsonPointerNotFound(loc) => format!("json-pointer in {} not found", q(loc)),
        CompileError::AnchorNotFound { url, reference } => {
            format!("anchor in {} not found in schema {}", q(reference), q(url))
        }
        CompileError::UnsupportedVocabulary { url, vocabulary } => {
            format!("unsupported vocabulary {} in {}", q(vocabulary), q(url))
        }
        CompileError::InvalidRegex { url, regex, src } => {
            let regex = patterns.original(regex);
            format!("invalid regex {} at {}: {src}", q(regex), q(url))
        }
        CompileError::Bug(src) => format!("unable to validate schema: {src}"),
    }
}
