//! Merges YAML files.
//!
//! Here: reading all documents of both files into one map, and writing that map. Elsewhere: when files are merged
//! (`copy.rs`), and YAML itself (`goyaml`).
//!
//! Source of the semantics: source-watcher 2.2 `internal/builder/merge.go`, apimachinery 0.36 `util/yaml`,
//! sigs.k8s.io/yaml 1.6.

use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use goyaml::YamlLimits;
use serde_json::{Map, Value};

/// The longest file that is merged, and the longest result, in bytes. Differs(flux): it has no limit.
pub(crate) const MAX_MERGED_BYTES: usize = 16 << 20;

/// About how many steps it takes to read a byte of YAML.
const STEPS_PER_BYTE: u64 = 8;

/// About how many steps a value takes after it is read.
const STEPS_PER_VALUE: u64 = 32;

/// About how many bytes a value takes in memory.
const BYTES_PER_VALUE: u64 = 64;

/// Why files were not merged, in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlFileMergeError {
    /// A file cannot be divided into documents.
    #[error("error reading YAML document: {0}")]
    Read(String),
    /// A document is not a map.
    #[error("cannot unmarshal YAML document: {0}")]
    Document(String),
    /// The merged map cannot be written as YAML.
    #[error("failed to merged YAML: {0}")]
    Write(String),
    /// The merge costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

/// Merges the map of an overlay file into the map of a base file.
///
/// Maps in both files are merged. Any other value of the overlay, including null, replaces that of the base.
///
/// # Errors
/// A file is not a map, or is too large.
pub(crate) fn merged(
    base: &[u8],
    overlay: &[u8],
    meter: &mut WorkMeter,
) -> Result<String, YamlFileMergeError> {
    let left = meter.left().bytes;
    let overlay = load(overlay, meter)?;
    let mut merged = load(base, meter)?;
    lay_over(&mut merged, overlay);
    let text = goyaml::emit_value(&&Value::Object(merged), MAX_MERGED_BYTES)
        .map_err(|error| YamlFileMergeError::Write(error.to_string()))?;
    // Only the text is kept.
    meter.free(left - meter.left().bytes);
    meter.bytes(text.len() as u64)?;
    Ok(text)
}

/// Reads all documents of a file into one map.
fn load(file: &[u8], meter: &mut WorkMeter) -> Result<Map<String, Value>, YamlFileMergeError> {
    if file.len() > MAX_MERGED_BYTES {
        let text =
            format!("a file has {} bytes, at most {MAX_MERGED_BYTES} are merged", file.len());
        return Err(YamlFileMergeError::Read(text));
    }
    meter.steps(STEPS_PER_BYTE * file.len() as u64)?;
    meter.bytes(file.len() as u64)?;
    let limits = YamlLimits { bytes: MAX_MERGED_BYTES, nodes: 1_000_000, ..YamlLimits::default() };
    let mut all = Map::new();
    for document in documents(file)? {
        let unreadable = |error: goyaml::Error| {
            YamlFileMergeError::Document(format!("error converting YAML to JSON: {error}"))
        };
        let value = goyaml::to_json_within(&document, &limits).map_err(unreadable)?;
        let mut document = match value {
            Value::Null => Map::new(),
            Value::Object(map) => map,
            Value::Bool(_) => return Err(no_map("bool")),
            Value::Number(_) => return Err(no_map("number")),
            Value::String(_) => return Err(no_map("string")),
            Value::Array(_) => return Err(no_map("array")),
        };
        let fields = document.iter_mut();
        let bytes = fields.map(|(key, value)| key.len() as u64 + with_go_numbers(value));
        let bytes: u64 = bytes.sum();
        meter.steps(STEPS_PER_VALUE * bytes / BYTES_PER_VALUE)?;
        meter.bytes(bytes)?;
        lay_over(&mut all, document);
    }
    Ok(all)
}

fn no_map(kind: &str) -> YamlFileMergeError {
    YamlFileMergeError::Document(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    ))
}

/// Divides a file into documents at lines of three dashes. A line of dashes before the first document becomes part of
/// it.
fn documents(file: &[u8]) -> Result<Vec<Vec<u8>>, YamlFileMergeError> {
    let mut documents = Vec::new();
    let mut document: Vec<u8> = Vec::new();
    let lines = file.strip_suffix(b"\n").unwrap_or(file).split(|byte| *byte == b'\n');
    for line in lines.filter(|_| !file.is_empty()) {
        if let Some(behind) = line.strip_prefix(b"---") {
            let behind = String::from_utf8_lossy(behind);
            let behind = behind.trim();
            if !behind.is_empty() && !behind.starts_with('#') {
                let text = format!("invalid Yaml document separator: {behind}");
                return Err(YamlFileMergeError::Read(text));
            }
            if !document.is_empty() {
                documents.push(std::mem::take(&mut document));
                continue;
            }
        }
        document.extend(line.strip_suffix(b"\r").unwrap_or(line));
        document.push(b'\n');
    }
    if !document.is_empty() {
        documents.push(document);
    }
    Ok(documents)
}

/// Parity(flux): every number is a float64, which whole numbers above 2^53 lose digits by. Says how many bytes a value takes,
/// about, with what aliases repeat. The depth is bounded by the reader.
fn with_go_numbers(value: &mut Value) -> u64 {
    match value {
        Value::Number(number) => {
            *value = number.as_f64().map_or(Value::Null, Value::from);
            BYTES_PER_VALUE
        }
        Value::Array(items) => BYTES_PER_VALUE + items.iter_mut().map(with_go_numbers).sum::<u64>(),
        Value::Object(fields) => {
            let fields = fields.iter_mut();
            let bytes = fields.map(|(key, value)| key.len() as u64 + with_go_numbers(value));
            BYTES_PER_VALUE + bytes.sum::<u64>()
        }
        Value::String(text) => BYTES_PER_VALUE + text.len() as u64,
        Value::Null | Value::Bool(_) => BYTES_PER_VALUE,
    }
}

/// Merges one map into another, including maps within them. The YAML reader bounds the depth.
fn lay_over(base: &mut Map<String, Value>, overlay: Map<String, Value>) {
    for (key, value) in overlay {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};

    use super::*;

    fn merge(base: &str, overlay: &str) -> Result<String, YamlFileMergeError> {
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        merged(base.as_bytes(), overlay.as_bytes(), &mut meter)
    }

    #[test]
    fn maps_are_merged_and_all_else_is_replaced() {
        let base = "a: {b: 1, c: [1, 2]}\nd: {e: 1}\n";
        let overlay = "a: {c: [3], f: x}\nd: null\n";
        let wanted = "a:\n  b: 1\n  c:\n  - 3\n  f: x\nd: null\n";
        assert_eq!(merge(base, overlay).as_deref(), Ok(wanted));
    }

    #[test]
    fn numbers_are_floats_as_in_go() {
        let merged = merge("a: 9007199254740993\nb: 1.0\n", "c: -0\n");
        assert_eq!(merged.as_deref(), Ok("a: 9007199254740992\nb: 1\nc: 0\n"));
    }

    #[test]
    fn documents_end_where_kubernetes_ends_them() {
        let split = |text: &str| documents(text.as_bytes()).unwrap().len();
        for (text, count) in [
            ("", 0),
            ("---\n", 1),
            ("---\na: 1\n---\n", 1),
            ("a: 1\n--- # next\nb: 1", 2),
            ("a: 1\n ---\n", 1),
        ] {
            assert_eq!(split(text), count, "{text:?}");
        }
        assert_eq!(documents(b"a: |\r\n  x"), Ok(vec![b"a: |\n  x\n".to_vec()]));
        let error = merge("--- x\n", "").unwrap_err().to_string();
        assert_eq!(error, "error reading YAML document: invalid Yaml document separator: x");
    }

    #[test]
    fn of_a_merge_only_the_text_stays_counted() {
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes: 2_000 }, StopSignal::default());
        for _ in 0..100 {
            assert_eq!(merged(b"a: 1\n", b"b: 1\n", &mut meter).as_deref(), Ok("a: 1\nb: 1\n"));
        }
        assert_eq!(meter.left().bytes, 1_000);
    }

    #[test]
    fn texts_that_aliases_repeat_are_counted() {
        let aliases = vec!["*a"; 100].join(", ");
        let document = format!("a: &a {}\nb: [{aliases}]\n", "x".repeat(1_000));
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes: 50_000 }, StopSignal::default());
        let exceeded = Err(YamlFileMergeError::Work(WorkLimitExceeded::Bytes(50_000)));
        assert_eq!(merged(b"", document.as_bytes(), &mut meter), exceeded);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let large = "a: 1\n".repeat(MAX_MERGED_BYTES / 5 + 1);
        assert!(matches!(merge(&large, ""), Err(YamlFileMergeError::Read(_))));
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: 1000, bytes: 1000 }, StopSignal::default());
        let exceeded = Err(YamlFileMergeError::Work(WorkLimitExceeded::Steps(1000)));
        assert_eq!(merged(b"", "a: 1\n".repeat(100).as_bytes(), &mut meter), exceeded);
    }
}
