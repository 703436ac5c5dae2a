//! Checks values against the `values.schema.json` of a chart.
//!
//! The crate `boon` checks drafts 4 to 2020-12. Its author also wrote the library that Helm uses, and both give the
//! same verdicts and trees of errors. Here: the schemas of a chart and its sub-charts. Below: one schema
//! (`schema/check.rs`), patterns (`schema/pattern.rs`), the cost of a check (`schema/cost.rs`), and Helm's messages
//! (`schema/schema_error_text.rs`).
//!
//! Differs(helm 4): no schema is fetched. A `$ref` to another file or address is an error. A `$ref` to a `urn:` allows
//! everything and causes a warning, as in Helm.

mod check;
mod cost;
mod pattern;
mod schema_error_text;
#[cfg(test)]
mod tests;

use golang::GoRuntimeValue;
use golang::value::GoMap;
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

use crate::chart::Chart;
use crate::warning::HelmWarning;

/// How many times schemas may be applied to values in one check.
///
/// Differs(helm 4): it has no limit, and a small schema can keep it busy forever.
pub const MAX_STEPS: usize = 500_000;

/// How deep the applications of schemas may be nested. Differs(helm 4): it has no limit.
pub const MAX_DEPTH: usize = 300;

/// How many patterns a schema may have. Differs(helm 4): it has no limit.
pub const MAX_PATTERNS: usize = 1_000;

/// How many patterns may take more than 64 KiB when they are compiled. Differs(helm 4): it has no limit.
pub const MAX_LARGE_PATTERNS: usize = 16;

/// The problems of values that do not match their schemas: Helm's text, with at least one line for each chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Checks values against the schemas of a chart and its sub-charts.
///
/// `values` are the merged values that templates see, with the tables of sub-charts under their names.
///
/// Errors of one value are reported in the order of keys. Differs(helm 4): in Helm the order changes from run to run.
///
/// # Errors
/// All values that do not match, or why a schema cannot be used. Helm shows this text after ``values don't meet the
/// specifications of the schema(s) in the following chart(s):``.
pub fn validate(chart: &Chart, values: &GoMap) -> Result<(), SchemaError> {
    let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
    validate_within(chart, values, &mut meter, &mut Vec::new())
}

/// Checks values against one schema, within the rest of a meter.
///
/// Each `urn:` that cannot be resolved is added to `warnings`, once. Parity(helm 4): Helm warns of each once.
pub(crate) fn check_one(
    schema: &[u8],
    values: &GoMap,
    meter: &mut WorkMeter,
    warnings: &mut Vec<HelmWarning>,
) -> Result<(), String> {
    check::check(schema, values, meter, warnings)
}

/// Like [`validate`], within the rest of a meter, and with the warnings of [`check_one`].
pub(crate) fn validate_within(
    chart: &Chart,
    values: &GoMap,
    meter: &mut WorkMeter,
    warnings: &mut Vec<HelmWarning>,
) -> Result<(), SchemaError> {
    let mut text = String::new();
    let mut pending = vec![(chart, GoRuntimeValue::Map(values.clone()))];
    while let Some((chart, values)) = pending.pop() {
        let name = &chart.metadata.name;
        let GoRuntimeValue::Map(values) = values else {
            let found = values.type_name();
            text.push_str(&format!(
                "{name}:\ninvalid type for values: expected object (map), got {found}\n"
            ));
            continue;
        };
        if let Some(schema) = &chart.schema
            && let Err(problem) = check::check(schema, &values, meter, warnings)
        {
            text.push_str(&format!("{name}:\n{problem}"));
        }
        // The stack is processed from its end, so the first chart has to be pushed last.
        for inner in chart.charts.iter().rev() {
            match values.get(inner.metadata.name.as_bytes()) {
                None | Some(GoRuntimeValue::Nil) => {}
                Some(values) => pending.push((inner, values)),
            }
        }
    }
    if text.is_empty() { Ok(()) } else { Err(SchemaError(text)) }
}
