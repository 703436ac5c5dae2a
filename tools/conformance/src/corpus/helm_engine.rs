//! Runs windlass's Helm engine in this process, with the steps of `windlass template` that need no disk.
//!
//! This module loads a chart from its files and renders it. The same seed gives the same random bytes. `answer` runs
//! the whole command.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use e2e::random_sequence::RandomSequence;
use golang::time::{GoTime, GoTimeZone};
use golang::value::{GoMap, GoType};
use golang::work_meter::StopSignal;
use helm::RenderEnvironment;
use helm::capabilities::Capabilities;
use helm::chart::{Chart, ChartFile, load, validate};
use helm::render::{ChartTemplates, REQUIRED_STACK_BYTES, ReleaseToRender, RenderMode};
use helm::template::{self, RenderRequest, RenderedRelease};
use parking_lot::Mutex;

/// Loads a chart from its files, by their paths within the chart.
///
/// # Errors
/// The error that the command would print.
pub fn chart(files: BTreeMap<String, Vec<u8>>) -> anyhow::Result<Chart> {
    let file = |(name, data): (String, Vec<u8>)| ChartFile { name, data: data.into() };
    let loaded = load::folder("chart", files.into_iter().map(file).collect())?;
    validate::installable(&loaded.chart)?;
    validate::dependencies_present(&loaded.chart)?;
    Ok(loaded.chart)
}

/// Loads a chart from a folder or an archive.
///
/// # Errors
/// The error that the command would print.
pub fn chart_at(path: &Path) -> anyhow::Result<Chart> {
    if path.is_dir() {
        return chart(super::read_folder(path)?);
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(load::archive(&bytes)?.chart)
}

/// A render environment without a cluster, at the beginning of 2030. The seed repeats its random bytes.
pub fn environment(seed: u64) -> RenderEnvironment {
    let zone = GoTimeZone::fixed("UTC", 0);
    let random = Mutex::new(RandomSequence::new(seed));
    let fill = move |buffer: &mut [u8]| {
        let mut random = random.lock();
        for part in buffer.chunks_mut(8) {
            let bytes = random.number().to_le_bytes();
            part.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
    };
    RenderEnvironment {
        now: GoTime::from_unix(1_893_456_000, 0, zone.clone()),
        local: zone,
        random: Arc::new(fill),
        capabilities: Arc::new(Capabilities::default()),
        cluster: None,
        stop: StopSignal::default(),
        names: None,
    }
}

/// Renders a chart with its own values. `templates` are the parsed templates that an earlier render returned.
///
/// # Errors
/// The error that the command would print.
///
/// # Assumes
/// It is called within [`on_stack`].
pub fn render(
    chart: &Chart,
    templates: Option<ChartTemplates>,
    env: &RenderEnvironment,
) -> anyhow::Result<RenderedRelease> {
    let name = "rel".to_owned();
    let namespace = "default".to_owned();
    let request = RenderRequest {
        chart: chart.clone(),
        values: &GoMap::new(GoType::Any, []),
        release: ReleaseToRender { name, namespace, revision: 1, is_upgrade: false },
        mode: RenderMode::default(),
        skip_schema: false,
        sub_notes: false,
        templates,
        post_render: None,
    };
    Ok(template::render(request, env, &mut Vec::new())?)
}

/// Runs work on a thread with a stack that is large enough for templates.
///
/// # Errors
/// When the thread cannot be started, or the work panics.
pub fn on_stack<T: Send>(work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(REQUIRED_STACK_BYTES)
            .spawn_scoped(scope, work)?;
        thread.join().map_err(|_| anyhow!("a panic"))
    })
}
