//! `.Chart`: what `Chart.yaml` says, as a map with Go's names of the fields.

use golang::Value;
use golang::value::{Map, Type};

use super::table::of;
use crate::chart::{Dependency, Maintainer, Metadata};

/// `.Chart` of a chart.
pub(super) fn table(metadata: &Metadata, is_root: bool) -> Map {
    let text = |text: &String| Value::from(text.as_str());
    let maintainers = metadata.maintainers.iter().map(maintainer);
    let dependencies = metadata.dependencies.iter().flatten().map(dependency);
    of([
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", strings(&metadata.sources)),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", strings(&metadata.keywords)),
        ("Maintainers", Value::list(maintainers)),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", Value::from(metadata.deprecated)),
        ("Annotations", Value::Map(annotations(metadata))),
        ("KubeVersion", text(&metadata.kube_version)),
        ("Dependencies", Value::list(dependencies)),
        ("Type", text(&metadata.kind)),
        ("IsRoot", Value::from(is_root)),
    ])
}

fn strings(strings: &[String]) -> Value {
    Value::list(strings.iter().map(|text| Value::from(text.as_str())))
}

fn annotations(metadata: &Metadata) -> Map {
    match &metadata.annotations {
        None => Map::nil(Type::String),
        Some(annotations) => {
            let entries = annotations.iter();
            let entries =
                entries.map(|(name, text)| (name.as_str().into(), Value::from(text.as_str())));
            Map::new(Type::String, entries)
        }
    }
}

fn maintainer(maintainer: &Maintainer) -> Value {
    Value::Map(of([
        ("Name", Value::from(maintainer.name.as_str())),
        ("Email", Value::from(maintainer.email.as_str())),
        ("URL", Value::from(maintainer.url.as_str())),
    ]))
}

fn dependency(dependency: &Dependency) -> Value {
    let text = |text: &String| Value::from(text.as_str());
    Value::Map(of([
        ("Name", text(&dependency.name)),
        ("Version", text(&dependency.version)),
        ("Repository", text(&dependency.repository)),
        ("Condition", text(&dependency.condition)),
        ("Tags", strings(&dependency.tags)),
        ("Enabled", Value::from(dependency.enabled)),
        ("ImportValues", Value::list(dependency.import_values.iter().cloned())),
        ("Alias", text(&dependency.alias)),
    ]))
}
