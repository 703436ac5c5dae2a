//! The data that templates of a chart see as `.`: the chart, its values, the release, the cluster, and the sub-charts.
//!
//! Elsewhere: `.Chart` (`metadata.rs`), `.Capabilities` (`capabilities.rs`), `.Files` (`crate::chart`).

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::GoMap;

use super::ReleaseToRender;
use super::capabilities::object;
use super::chart_metadata;
use super::common_values::{self, CommonValuesMap};
use crate::capabilities::Capabilities;
use crate::chart::{Chart, ChartFiles};

/// The data that the templates of one chart see.
#[derive(Debug)]
pub(super) struct RenderScope {
    /// The map with all data. Templates of the parent chart see the same map below `.Subcharts`.
    pub(super) top: GoMap,
    /// The folder of the chart's templates.
    pub(super) base_path: String,
}

impl RenderScope {
    /// The data for one file, in the map `top`. It is [`RenderScope::top`] or a copy of it.
    pub(super) fn shown_to(&self, file: &str, top: &GoMap) -> GoRuntimeValue {
        let template = [
            ("Name", GoRuntimeValue::from(file)),
            ("BasePath", GoRuntimeValue::from(self.base_path.as_str())),
        ];
        top.insert("Template", CommonValuesMap::value(common_values::of(template)));
        CommonValuesMap::value(top.clone())
    }
}

/// A chart and its sub-charts, each with its path in the outermost chart. A chart comes before its sub-charts.
pub(super) fn walk(chart: &Chart) -> Vec<(&Chart, String)> {
    let mut all = Vec::new();
    let mut pending = vec![(chart, chart.metadata.name.clone())];
    while let Some((chart, path)) = pending.pop() {
        let inner = chart.charts.iter().rev();
        let inner = inner.map(|sub| (sub, format!("{path}/charts/{}", sub.metadata.name)));
        pending.extend(inner);
        all.push((chart, path));
    }
    all
}

/// The data for the templates of each chart, in the order of [`walk`].
pub(super) fn all(
    chart: &Chart,
    values: &GoMap,
    release: &ReleaseToRender,
    capabilities: &Arc<Capabilities>,
) -> Vec<RenderScope> {
    let release = common_values::of([
        ("Name", GoRuntimeValue::from(release.name.as_str())),
        ("Namespace", GoRuntimeValue::from(release.namespace.as_str())),
        ("IsUpgrade", GoRuntimeValue::from(release.is_upgrade)),
        ("IsInstall", GoRuntimeValue::from(!release.is_upgrade)),
        ("Revision", GoRuntimeValue::int(release.revision)),
        ("Service", GoRuntimeValue::from("Helm")),
    ]);
    let shared =
        [("Release", GoRuntimeValue::Map(release)), ("Capabilities", object(capabilities))];
    let mut scopes = Vec::new();
    let mut pending = vec![(chart, chart.metadata.name.clone(), None)];
    while let Some((chart, path, parent)) = pending.pop() {
        let name = &chart.metadata.name;
        let own = match &parent {
            None => values.clone(),
            // Parity(helm 4): a name with dots is taken for a path.
            Some((above, _)) => {
                common_values::at(above, &format!("Values.{name}")).unwrap_or_default()
            }
        };
        let subcharts = GoMap::default();
        let top = common_values::of([
            (
                "Chart",
                GoRuntimeValue::Map(chart_metadata::table(&chart.metadata, parent.is_none())),
            ),
            ("Files", ChartFiles::new(&chart.files).value()),
            ("Values", CommonValuesMap::value(own)),
            ("Subcharts", GoRuntimeValue::Map(subcharts.clone())),
        ]);
        for (name, value) in &shared {
            top.insert(*name, value.clone());
        }
        if let Some((_, siblings)) = &parent {
            let siblings: &GoMap = siblings;
            siblings.insert(name.as_str(), GoRuntimeValue::Map(top.clone()));
        }
        for sub in chart.charts.iter().rev() {
            let path = format!("{path}/charts/{}", sub.metadata.name);
            pending.push((sub, path, Some((top.clone(), subcharts.clone()))));
        }
        scopes.push(RenderScope { top, base_path: format!("{path}/templates") });
    }
    scopes
}
