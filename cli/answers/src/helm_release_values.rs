//! The Helm values of a HelmRelease, with the source that sets each value. Values from Secrets are masked.
//!
//! Elsewhere: reading and merging the values (`helm_controller::helm_release::values`), tracking their sources
//! (`helm::values::provenance`).

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use crds::ConfigKind;
use crds::helm::HelmRelease;
use golang::GoRuntimeValue;
use helm::values::{
    ValuesLayer, ValuesLeaf, coalesce, layers, process_dependencies, provenance, to_json,
};
use objects::Object;
use reconcile::RunOutcome;
use serde::Serialize;
use serde_json::json;

use super::command_scope::CommandScope;
use helm_controller::helm_release::values::{self, ReleaseValues, ValuesFromObjects};
use windlass_cli_helm::template::load_chart;

/// The text that replaces a value from a Secret.
const MASK: &str = "****";

/// A value and the source that sets it.
#[derive(Debug, Serialize)]
pub struct HelmValueOrigin {
    /// The path of the value.
    pub path: String,
    /// The value. It is masked if it comes from a Secret.
    pub value: serde_json::Value,
    /// The source that sets the value.
    pub source: String,
    /// The sources whose values were overridden.
    pub overrode: Vec<String>,
}

/// The values of a HelmRelease.
#[derive(Debug)]
pub struct HelmReleaseValues {
    /// Each value with its source.
    pub origins: Vec<HelmValueOrigin>,
    /// All values in the form of a values file. Values from Secrets are masked.
    pub masked: serde_json::Value,
}

/// Reads the values of a HelmRelease. If the folder or archive of the chart is given, the chart's own values are included.
///
/// # Errors
/// The values cannot be read or merged.
pub async fn read(
    site: &CommandScope,
    object: Object,
    chart: Option<&Path>,
) -> anyhow::Result<HelmReleaseValues> {
    let (layers, result) = gather(site, object, chart).await?;
    let leaves = provenance(&result, &layers)?;
    let origins = leaves.iter().map(|leaf| show(leaf, &layers)).collect();
    let mut masked = to_json(&result)?;
    for leaf in leaves.iter().filter(|leaf| is_secret(leaf, &layers)) {
        mask(&mut masked, &leaf.path);
    }
    Ok(HelmReleaseValues { origins, masked })
}

/// The sources of the values, from the lowest to the highest precedence, and the merged values.
async fn gather(
    site: &CommandScope,
    object: Object,
    chart: Option<&Path>,
) -> anyhow::Result<(Vec<ValuesLayer>, golang::value::GoMap)> {
    ensure!(object.kind() == "HelmRelease", "only a HelmRelease has values");
    let namespace = object.namespace().to_owned();
    let release: HelmRelease =
        serde_json::from_value(object.into_value()).context("the HelmRelease cannot be read")?;
    let objects = referenced(site, &namespace, &release).await;
    let whole = compose(&namespace, &release, &objects)?;
    let mut found = Vec::new();
    for reference in &release.spec.values_from {
        let mut alone = release.clone();
        (alone.spec.values, alone.spec.values_from) = (None, vec![reference.clone()]);
        let key = reference.values_key.as_deref().unwrap_or("values.yaml");
        let name = format!("{}/{}:{key}", reference.kind.as_str(), reference.name);
        let values = compose(&namespace, &alone, &objects)?.map;
        found.push(ValuesLayer { name, at: Vec::new(), values });
    }
    let mut inline = release.clone();
    inline.spec.values_from = Vec::new();
    let values = compose(&namespace, &inline, &objects)?.map;
    found.push(ValuesLayer { name: "spec.values".to_owned(), at: Vec::new(), values });
    let Some(path) = chart else { return Ok((found, whole.map)) };
    let mut chart = load_chart(path).map_err(anyhow::Error::msg)?;
    let own = layers(&chart);
    process_dependencies(&mut chart, &whole.map)?;
    // Imported values appear only in the merged values of the chart.
    let imported = layers(&chart)
        .into_iter()
        .map(|it| ValuesLayer { name: format!("{} (import)", it.name), ..it });
    let all = imported.chain(own).chain(found).collect();
    Ok((all, coalesce(&chart, &whole.map)?.values))
}

/// Reads the ConfigMaps and Secrets that `valuesFrom` names.
async fn referenced(
    site: &CommandScope,
    namespace: &str,
    release: &HelmRelease,
) -> ValuesFromObjects {
    let mut objects = ValuesFromObjects::new();
    for named in &release.spec.values_from {
        let place = (named.kind, named.name.clone());
        if objects.contains_key(&place) {
            continue;
        }
        let found = match named.kind {
            ConfigKind::Secret => {
                site.cluster.secret(namespace, &named.name).await.map(|it| it.map(|(data, _)| data))
            }
            ConfigKind::ConfigMap => {
                let found = site.cluster.config_map(namespace, &named.name).await;
                found.map(|it| {
                    it.map(|(data, _)| {
                        data.into_iter().map(|(key, it)| (key, it.into_bytes())).collect()
                    })
                })
            }
        };
        objects.insert(place, found);
    }
    objects
}

fn compose(
    namespace: &str,
    release: &HelmRelease,
    objects: &ValuesFromObjects,
) -> anyhow::Result<ReleaseValues> {
    match values::compose(namespace, &release.spec, objects) {
        Ok(values) => Ok(values),
        Err(RunOutcome::Failed(_, text, _)) => bail!(text),
        Err(_) => bail!("the values cannot be put together"),
    }
}

fn is_secret(leaf: &ValuesLeaf, layers: &[ValuesLayer]) -> bool {
    let is_of_secret = |at: usize| layers.get(at).is_some_and(|it| it.name.starts_with("Secret/"));
    // If no source contains a value unchanged, it may be composed from a Secret. So it counts as secret.
    leaf.source.map_or_else(|| layers.iter().any(|it| it.name.starts_with("Secret/")), is_of_secret)
}

fn show(leaf: &ValuesLeaf, layers: &[ValuesLayer]) -> HelmValueOrigin {
    let name = |at: usize| layers.get(at).map(|it| it.name.clone()).unwrap_or_default();
    let path = leaf.path.join(".").replace(".[", "[");
    let value = match is_secret(leaf, layers) {
        true => json!(MASK),
        false => json_of(&leaf.value),
    };
    let source = leaf.source.map_or_else(|| "computed".to_owned(), name);
    HelmValueOrigin {
        path,
        value,
        source,
        overrode: leaf.overrode.iter().map(|at| name(*at)).collect(),
    }
}

fn json_of(value: &GoRuntimeValue) -> serde_json::Value {
    let table =
        golang::value::GoMap::new(golang::value::GoType::Any, [("v".into(), value.clone())]);
    to_json(&table).map(|it| it["v"].clone()).unwrap_or_default()
}

/// Replaces the value at a path with the mask.
fn mask(values: &mut serde_json::Value, path: &[String]) {
    let mut at = values;
    for part in path {
        let index =
            part.strip_prefix('[').and_then(|it| it.strip_suffix(']')?.parse::<usize>().ok());
        let next = match (at.is_array(), index) {
            (true, Some(index)) => at.get_mut(index),
            _ => at.get_mut(part),
        };
        let Some(next) = next else { return };
        at = next;
    }
    *at = json!(MASK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_masked_wherever_they_stand() {
        let mut values = json!({"a": {"[0]": [1, {"b": "hunter2"}]}});
        mask(&mut values, &["a", "[0]", "[1]", "b"].map(str::to_owned));
        assert_eq!(values, json!({"a": {"[0]": [1, {"b": "****"}]}}));
    }
}
