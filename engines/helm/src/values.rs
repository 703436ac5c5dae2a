//! Values of a chart, of the charts in it, and of the user, put together.
//!
//! Here: what is offered, errors. Elsewhere: coalescing (`values/coalesce.rs`), dependencies and what is imported from
//! them (`values/dependencies.rs`), finding and copying (`values/table.rs`), a HelmRelease's `valuesFrom`
//! (`values/references.rs`), which source set a value (`values/value_origin.rs`), JSON (`values/json.rs`).

mod coalesce;
mod dependencies;
mod json;
mod references;
mod table;
#[cfg(test)]
mod tests;
mod value_origin;

use golang::work_meter::StopSignal;

pub(crate) use coalesce::coalesce_until;
pub use coalesce::{CoalescedValues, coalesce, merge};
pub use dependencies::process_dependencies;
pub(crate) use dependencies::process_dependencies_until;
pub use json::{NotJsonError, to_json};
pub use references::{
    ReferencedData, UnresolvedValuesReference, ValuesReference, ValuesReferenceError,
    ValuesReferenceLookup, ValuesReferenceProblem, ValuesReferenceReader, compose, digest, read,
    yaml,
};
pub(crate) use table::empty;
pub use table::over;
pub use value_origin::{ValuesLayer, ValuesLeaf, layers, provenance};

/// How deep values may be nested. Differs(helm): it goes as deep as its stack.
pub const MAX_DEPTH: usize = 256;

/// How many values are copied or compared at most in one call. Differs(helm): it has no limit.
///
/// Imports can put a table into itself, or double it again and again: then Helm never ends.
pub const MAX_STEPS: usize = 1 << 22;

/// Why values could not be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The values of a sub-chart are not a table. The message is Helm's.
    #[error("type mismatch on {chart}: {found}")]
    NotTable {
        /// The sub-chart.
        chart: String,
        /// The value as Helm shows it: Go's type and the value. A person may have put a secret there.
        found: String,
    },
    /// Beyond [`MAX_DEPTH`].
    #[error("values are nested deeper than {MAX_DEPTH} tables and lists")]
    TooDeep,
    /// The caller's time is over.
    #[error("the time limit was exceeded while merging values")]
    TooLong,
    /// Beyond [`MAX_STEPS`].
    #[error("values are too many: more than {MAX_STEPS} in the chart and those in it")]
    TooMany,
}

/// How many values one call may still merge, and how many bytes of them its warnings may still show.
#[derive(Debug)]
pub(crate) struct ValuesBudget {
    steps: usize,
    /// Bytes of values that warnings may still show.
    words: usize,
    stop: StopSignal,
}

/// How many bytes of values the warnings of one call show together. Differs(helm): it has no limit.
const MAX_WARNING_BYTES: usize = 16 << 20;

/// How many values a table counts for beside what is in it: it takes more room.
const TABLE_VALUE_COUNT: usize = 4;

/// After how many values the caller's time is checked.
const VALUES_PER_STOP_CHECK: usize = 1 << 10;

impl ValuesBudget {
    pub(crate) fn new() -> Self {
        Self::until(StopSignal::default())
    }

    /// A meter that ends when the caller's signal is set.
    pub(crate) fn until(stop: StopSignal) -> Self {
        Self { steps: MAX_STEPS, words: MAX_WARNING_BYTES, stop }
    }

    /// How long the next value that is shown may be.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Counts a value that is shown.
    pub(crate) fn say(&mut self, bytes: usize) {
        self.words = self.words.saturating_sub(bytes);
    }

    /// Counts a table beside what is in it.
    pub(crate) fn spend_table(&mut self) -> Result<(), Error> {
        self.steps = self.steps.checked_sub(TABLE_VALUE_COUNT).ok_or(Error::TooMany)?;
        Ok(())
    }

    /// Counts a value that is nested this deep.
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
