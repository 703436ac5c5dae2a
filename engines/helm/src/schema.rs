//! `values.schema.json`: whether values are what a chart asks for.
//!
//! Drafts 4 to 2020-12 by the crate `boon`, whose author wrote the library that Helm uses; both come to the same
//! verdicts and trees of errors.
//! Here: a chart's schema and those of the charts in it. Below: one schema (`schema/check.rs`), patterns
//! (`schema/pattern.rs`), what checking may cost (`schema/cost.rs`), Helm's words (`schema/schema_error_text.rs`).
//!
//! Differs(helm 4): nothing is fetched. A `$ref` to another file or address is an error; one to a `urn:` allows
//! everything and is warned of, as it is there.

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

/// How much checking values against one schema may take, in applications of a schema to a value.
///
/// Differs(helm 4): it has no limit, and a small schema can take it forever.
pub const MAX_STEPS: usize = 500_000;

/// How deep schemas may be applied within each other, to a value and what is in it. Differs(helm 4): it has no limit.
pub const MAX_DEPTH: usize = 300;

/// How many patterns a schema may have. Differs(helm 4): it has no limit.
pub const MAX_PATTERNS: usize = 1_000;

/// How many of them may take more than 64 KiB when they are compiled. Differs(helm 4): it has no limit.
pub const MAX_LARGE_PATTERNS: usize = 16;

/// Why values do not fit their schemas: Helm's text, a line or more for each chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Checks values against the schemas of a chart and the charts in it.
///
/// `values` are those that templates see: put together, with the tables of inner charts under their names.
///
/// Errors of one value are reported in the order of keys. Differs(helm 4): in Helm the order changes from run to run.
///
/// # Errors
/// Everything that does not fit, or why a schema cannot be used.
/// Helm shows it behind ``values don't meet the specifications of the schema(s) in the following chart(s):``.
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

/// [`validate`] within the rest of a meter, with the warnings of [`check_one`].
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
        // The first chart is to be taken first.
        for inner in chart.charts.iter().rev() {
            match values.get(inner.metadata.name.as_bytes()) {
                None | Some(GoRuntimeValue::Nil) => {}
                Some(values) => pending.push((inner, values)),
            }
        }
    }
    if text.is_empty() { Ok(()) } else { Err(SchemaError(text)) }
}
