//! CRDs that a chart brings along in `crds/`.
//!
//! Elsewhere: whether they are installed or printed.

use super::name::extension;
use super::{Chart, ChartFile};

/// A file of CRDs.
#[derive(Debug, Clone)]
pub struct ChartCrdFile {
    /// Its path, with the charts that it is in: `app/charts/db/crds/backup.yaml`.
    pub path: String,
    /// The file, named as in its own chart.
    pub file: ChartFile,
}

/// The CRDs of a chart, then those of the charts in it, each in the order of its files.
///
/// Helm takes them after dependencies were processed: of charts that are switched off it takes none.
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
