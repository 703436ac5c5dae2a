//! windlass's engine in this process: a chart is loaded and parsed once and rendered many times.
//!
//! Elsewhere: the same of Helm's engine (`e2e/testbed/helm`), whole processes (`super`).

use std::path::Path;

/// Seconds of each render of a chart with its own values; none while this program has no such engine.
///
/// # Errors
/// When the chart cannot be rendered.
#[expect(clippy::unnecessary_wraps, reason = "the engine fails where a chart is broken")]
pub(super) fn seconds(_chart: &Path, _times: u16) -> anyhow::Result<Option<Vec<f64>>> {
    Ok(None)
}
