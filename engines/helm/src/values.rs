//! Merges the values of a chart, its sub-charts, and the user.
//!
//! Here: the limits and errors. Elsewhere: coalescing (`values/coalesce.rs`), dependencies and imported values
//! (`values/dependencies.rs`), finding and copying values (`values/table.rs`), a HelmRelease's `valuesFrom`
//! (`values/values_from.rs`), the source of each value (`values/value_origin.rs`), and JSON (`values/json.rs`).

mod coalesce;
mod dependencies;
mod json;
mod table;
#[cfg(test)]
mod tests;
mod value_origin;
mod values_from;

use golang::work_meter::StopSignal;

pub(crate) use coalesce::coalesce_until;
pub use coalesce::{CoalescedValues, coalesce, merge};
pub use dependencies::process_dependencies;
pub(crate) use dependencies::process_dependencies_until;
pub use json::{NotJsonError, to_json};
pub(crate) use table::empty;
pub use table::over;
pub use value_origin::{ValuesLayer, ValuesLeaf, layers, provenance};
pub use values_from::{
    UnresolvedValuesReference, ValuesReference, ValuesReferenceData, ValuesReferenceError,
    ValuesReferenceLookup, ValuesReferenceProblem, ValuesReferenceReader, compose, digest, read,
    yaml,
};

/// How deep values may be nested. Differs(helm): only its stack limits the depth.
pub const MAX_DEPTH: usize = 256;

/// How many values one call may copy or compare. Differs(helm): it has no limit.
///
/// Imports can put a table into itself, or double it repeatedly. Helm would then never end.
pub const MAX_STEPS: usize = 1 << 22;

/// Why values could not be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The values of a sub-chart are not a table. The message is Helm's.
    #[error("type mismatch on {chart}: {found}")]
    NotTable {
        /// The name of the sub-chart.
        chart: String,
        /// The value as Helm shows it, with its Go type. It may be a secret.
        found: String,
    },
    /// The values are nested deeper than [`MAX_DEPTH`].
    #[error("values are nested deeper than {MAX_DEPTH} tables and lists")]
    TooDeep,
    /// The time of the caller is over.
    #[error("the time limit was exceeded while merging values")]
    TooLong,
    /// There are more values than [`MAX_STEPS`].
    #[error("values are too many: more than {MAX_STEPS} in the chart and those in it")]
    TooMany,
}

/// How many values one call may still merge, and how many bytes of them its warnings may still show.
#[derive(Debug)]
pub(crate) struct ValuesBudget {
    steps: usize,
    /// How many bytes of values the warnings may still show.
    words: usize,
    stop: StopSignal,
}

/// How many bytes of values the warnings of one call may show together. Differs(helm): it has no limit.
const MAX_WARNING_BYTES: usize = 16 << 20;

/// As how many values a table counts, in addition to its content. A table takes more memory than a value.
const TABLE_VALUE_COUNT: usize = 4;

/// After how many values the stop signal of the caller is checked.
const VALUES_PER_STOP_CHECK: usize = 1 << 10;

impl ValuesBudget {
    pub(crate) fn new() -> Self {
        Self::until(StopSignal::default())
    }

    /// A budget that also ends when the caller sets the signal.
    pub(crate) fn until(stop: StopSignal) -> Self {
        Self { steps: MAX_STEPS, words: MAX_WARNING_BYTES, stop }
    }

    /// How many bytes the next shown value may have.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Charges for a shown value.
    pub(crate) fn say(&mut self, bytes: usize) {
        self.words = self.words.saturating_sub(bytes);
    }

    /// Charges for a table, without its content.
    pub(crate) fn spend_table(&mut self) -> Result<(), Error> {
        self.steps = self.steps.checked_sub(TABLE_VALUE_COUNT).ok_or(Error::TooMany)?;
        Ok(())
    }

    /// Charges for a value that is nested this deep.
    pub(crate) fn spend(&mut self, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.steps = self.steps.checked_sub(1).ok_or(Error::TooMany)?;
        if self.steps.is_multiple_of(VALUES_PER_STOP_CHECK) && self.stop.is_set() {
            return Err(Error::TooLong);
        }
        Ok(())
    }
}
