//! `.Chart`: the fields of `Chart.yaml`, as a map with Go's names of the fields.

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoType};

use super::common_values::of;
use crate::chart::{ChartDependency, ChartMaintainer, ChartMetadata};

/// The value `.Chart` for a chart.
pub(super) fn table(metadata: &ChartMetadata, is_root: bool) -> GoMap {
    let text = |text: &String| GoRuntimeValue::from(text.as_str());
    let maintainers = metadata.maintainers.iter().map(maintainer);
    let dependencies = metadata.dependencies.iter().flatten().map(dependency);
    of([
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", strings(&metadata.sources)),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", strings(&metadata.keywords)),
        ("Maintainers", GoRuntimeValue::list(maintainers)),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", GoRuntimeValue::from(metadata.deprecated)),
        ("Annotations", GoRuntimeValue::Map(annotations(metadata))),
        ("KubeVersion", text(&metadata.kube_version)),
        ("Dependencies", GoRuntimeValue::list(dependencies)),
        ("Type", text(&metadata.kind)),
        ("IsRoot", GoRuntimeValue::from(is_root)),
    ])
}

fn strings(strings: &[String]) -> GoRuntimeValue {
    GoRuntimeValue::list(strings.iter().map(|text| GoRuntimeValue::from(text.as_str())))
}

fn annotations(metadata: &ChartMetadata) -> GoMap {
    match &metadata.annotations {
        None => GoMap::nil(GoType::String),
        Some(annotations) => {
            let entries = annotations.iter();
            let entries = entries
                .map(|(name, text)| (name.as_str().into(), GoRuntimeValue::from(text.as_str())));
            GoMap::new(GoType::String, entries)
        }
    }
}

fn maintainer(maintainer: &ChartMaintainer) -> GoRuntimeValue {
    GoRuntimeValue::Map(of([
        ("Name", GoRuntimeValue::from(maintainer.name.as_str())),
        ("Email", GoRuntimeValue::from(maintainer.email.as_str())),
        ("URL", GoRuntimeValue::from(maintainer.url.as_str())),
    ]))
}

fn dependency(dependency: &ChartDependency) -> GoRuntimeValue {
    let text = |text: &String| GoRuntimeValue::from(text.as_str());
    GoRuntimeValue::Map(of([
        ("Name", text(&dependency.name)),
        ("Version", text(&dependency.version)),
        ("Repository", text(&dependency.repository)),
        ("Condition", text(&dependency.condition)),
        ("Tags", strings(&dependency.tags)),
        ("Enabled", GoRuntimeValue::from(dependency.enabled)),
        ("ImportValues", GoRuntimeValue::list(dependency.import_values.iter().cloned())),
        ("Alias", text(&dependency.alias)),
    ]))
}
