//! `windlass values`: the values of a HelmRelease, and which source set each of them.
//!
//! Elsewhere: reading and merging them (`helm_controller::helm_release::values`), the sources (`helm::values::provenance`).

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use crds::ConfigKind;
use crds::helm::HelmRelease;
use golang::GoRuntimeValue;
use helm::values::{
    ValuesLayer, ValuesLeaf, coalesce, layers, process_dependencies, provenance, to_json,
};
use reconcile::RunOutcome;
use serde::Serialize;
use serde_json::json;

use super::command_scope::{ClusterScope, CommandScope};
use super::complete;
use super::kind_argument;
use super::output::{ReportFormat, report};
use helm_controller::helm_release::values::{self, ReferencedObjects, ReleaseValues};
use windlass_cli_helm::template::load_chart;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, cut};

/// The flags of `windlass values`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ValuesArgs {
    /// The HelmRelease
    #[arg(required = true, num_args = 1..=2, value_name = "[hr/]NAME", add = complete::objects_of("hr"))]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Folder or archive of the chart; also show the chart's default values
    #[arg(long, value_name = "PATH")]
    chart: Option<PathBuf>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ValuesFormat::Table, value_name = "FORMAT")]
    output: ValuesFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ValuesFormat {
    /// A line for each value: where it comes from, and what it overrides
    Table,
    /// The same as JSON
    Json,
    /// The values as a values file
    Yaml,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass values web -n apps                   which source sets which value
  windlass values hr/web --chart ./charts/web   with the chart's own values
  windlass values web -o yaml > values.yaml     the values as a file

Values of Secrets are printed as ****.

Exit status: 0; 2 if the values cannot be put together; 3 if the cluster cannot be reached.";

/// What stands for a value of a Secret.
const MASK: &str = "****";

/// A value, for machines.
#[derive(Debug, Serialize)]
struct HelmValueOrigin {
    path: String,
    value: serde_json::Value,
    source: String,
    overrode: Vec<String>,
}

/// Prints values.
///
/// # Errors
/// They cannot be read or put together.
pub(super) fn run(args: &ValuesArgs) -> anyhow::Result<ExitCode> {
    let (layers, result) = args.place.run(async |site| gather(&site, args).await)?;
    let leaves = provenance(&result, &layers)?;
    let shown: Vec<HelmValueOrigin> = leaves.iter().map(|leaf| show(leaf, &layers)).collect();
    match args.output {
        ValuesFormat::Json => {
            report(&shown, ReportFormat::Json)?;
        }
        ValuesFormat::Yaml => {
            let mut values = to_json(&result)?;
            for leaf in leaves.iter().filter(|leaf| is_secret(leaf, &layers)) {
                mask(&mut values, &leaf.path);
            }
            print(&goyaml::emit(&values)?)?;
        }
        ValuesFormat::Table => {
            print(&table(&shown, TerminalScreen::of_stdout()))?;
            if shown.is_empty() {
                say(ProgressGlyph::Action, "neither spec.values nor spec.valuesFrom sets a value");
            }
        }
    }
    Ok(ExitCode::Success)
}

fn table(shown: &[HelmValueOrigin], on: TerminalScreen) -> String {
    let rows = shown.iter().map(|it| {
        let value = match &it.value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let value = cut(&value, 60);
        let [path, value, source, overrode] =
            [it.path.as_str(), &value, &it.source, &it.overrode.join(", ")].map(TableCell::new);
        vec![path, value, source.vital(), overrode]
    });
    let mut table = PagedTable::new(&["VALUE", "IS", "SET BY", "OVERRIDES"], on);
    table.page(&rows.collect::<Vec<_>>())
}

/// What the values come from, from the lowest on, and what they come to.
async fn gather(
    site: &CommandScope,
    args: &ValuesArgs,
) -> anyhow::Result<(Vec<ValuesLayer>, golang::value::GoMap)> {
    let words = match args.what.as_slice() {
        [name] if !name.contains('/') => vec!["helmrelease".to_owned(), name.clone()],
        words => words.to_vec(),
    };
    let target = kind_argument::one(&site.cluster, &words).await?;
    ensure!(target.resource.gvk.kind == "HelmRelease", "only a HelmRelease has values");
    let object = kind_argument::read(site, &target).await?;
    let namespace = object.namespace().to_owned();
    let release: HelmRelease =
        serde_json::from_value(object.into_value()).context("the HelmRelease cannot be read")?;
    let objects = read(site, &namespace, &release).await;
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
    let Some(path) = &args.chart else { return Ok((found, whole.map)) };
    let mut chart = load_chart(path).map_err(anyhow::Error::msg)?;
    let own = layers(&chart);
    process_dependencies(&mut chart, &whole.map)?;
    // What is imported stands in the chart's values afterwards only.
    let imported = layers(&chart)
        .into_iter()
        .map(|it| ValuesLayer { name: format!("{} (import)", it.name), ..it });
    let all = imported.chain(own).chain(found).collect();
    Ok((all, coalesce(&chart, &whole.map)?.values))
}

/// Reads what `valuesFrom` names.
async fn read(site: &CommandScope, namespace: &str, release: &HelmRelease) -> ReferencedObjects {
    let mut objects = ReferencedObjects::new();
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
    objects: &ReferencedObjects,
) -> anyhow::Result<ReleaseValues> {
    match values::compose(namespace, &release.spec, objects) {
        Ok(values) => Ok(values),
        Err(RunOutcome::Failed(_, text, _)) => bail!(text),
        Err(_) => bail!("the values cannot be put together"),
    }
}

fn is_secret(leaf: &ValuesLeaf, layers: &[ValuesLayer]) -> bool {
    let is_of_secret = |at: usize| layers.get(at).is_some_and(|it| it.name.starts_with("Secret/"));
    // A value that no source has as it is may be put together from a Secret.
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

/// Replaces the value at a path.
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
    fn the_table_fits_terminals_of_both_widths() {
        let leaf = |path: &str, value: serde_json::Value, source: &str, overrode: &[&str]| {
            HelmValueOrigin {
                path: path.to_owned(),
                value,
                source: source.to_owned(),
                overrode: overrode.iter().map(|it| (*it).to_owned()).collect(),
            }
        };
        let shown = [
            leaf(
                "image.tag",
                json!("1.4.0"),
                "spec.values",
                &["chart shop", "ConfigMap/defaults:values.yaml"],
            ),
            leaf("database.password", json!(MASK), "Secret/shop:values.yaml", &[]),
            leaf("ingress.hosts[0]", json!("a very long name ".repeat(6)), "chart shop", &[]),
        ];
        let text = crate::goldens::at_both_widths(|on| table(&shown, on));
        expect_test::expect_file!["goldens/values.txt"].assert_eq(&text);
    }

    #[test]
    fn values_of_secrets_are_masked_wherever_they_stand() {
        let mut values = json!({"a": {"[0]": [1, {"b": "hunter2"}]}});
        mask(&mut values, &["a", "[0]", "[1]", "b"].map(str::to_owned));
        assert_eq!(values, json!({"a": {"[0]": [1, {"b": "****"}]}}));
    }
}
