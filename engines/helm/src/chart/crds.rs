//! The CRDs in the folder `crds/` of a chart.
//!
//! Elsewhere: whether they are installed or printed.

use super::go_path_and_quote::extension;
use super::{Chart, ChartFile};

/// A file of a chart with CRDs.
#[derive(Debug, Clone)]
pub struct ChartCrdFile {
    /// The path of the file, beginning with the outermost chart: `app/charts/db/crds/backup.yaml`.
    pub path: String,
    /// The file, with its path in its own chart.
    pub file: ChartFile,
}

/// The CRDs of a chart and then those of its sub-charts, each in the order of its files.
///
/// Helm calls this after it has processed dependencies, so disabled sub-charts have no CRDs here.
pub fn crds(chart: &Chart) -> Vec<ChartCrdFile> {
    let mut found = Vec::new();
    let mut pending = vec![(chart.metadata.name.clone(), chart)];
    while let Some((place, chart)) = pending.pop() {
        let files = chart.files.iter().filter(|file| is_crd(&file.name));
        found.extend(files.map(|file| ChartCrdFile {
            path: golang::path::clean(&format!("{place}/{}", file.name)),
            file: file.clone(),
        }));
        let inner = chart.charts.iter().rev();
        pending.extend(inner.map(|it| (format!("{place}/charts/{}", it.metadata.name), it)));
    }
    found
}

fn is_crd(name: &str) -> bool {
    let extension = extension(name);
    let is_manifest = ["yaml", "yml", "json"]
        .iter()
        .any(|known| extension.strip_prefix('.').is_some_and(|it| it.eq_ignore_ascii_case(known)));
    name.starts_with("crds/") && is_manifest
}
