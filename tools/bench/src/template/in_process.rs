//! Renders a chart many times with windlass's engine in this process, after loading and parsing it once.
//!
//! `e2e/testbed/helm` does the same with Helm's engine, and `super` measures whole processes.

use std::path::Path;
use std::time::Instant;

use conformance::corpus::helm_engine;

/// The seconds of each render of a chart with its own values, from the values to the manifests.
///
/// # Errors
/// When the chart cannot be rendered.
pub(super) fn seconds(path: &Path, times: u16) -> anyhow::Result<Option<Vec<f64>>> {
    helm_engine::on_stack(|| {
        let chart = helm_engine::chart_at(path)?;
        let env = helm_engine::environment(0);
        let mut templates = Some(helm_engine::render(&chart, None, &env)?.templates);
        let mut seconds = Vec::new();
        for _ in 0..times {
            let begun = Instant::now();
            let rendered = helm_engine::render(&chart, templates.take(), &env)?;
            seconds.push(begun.elapsed().as_secs_f64());
            templates = Some(rendered.templates);
        }
        Ok(Some(seconds))
    })?
}
