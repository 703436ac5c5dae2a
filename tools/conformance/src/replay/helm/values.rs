//! Replays cases about values of charts, of their subcharts and of HelmReleases.

use std::collections::BTreeMap;

use ::helm::chart::{Chart, ChartDependency, ChartMetadata};
use ::helm::values::{
    self, CoalescedValues, ValuesLayer, ValuesLeaf, ValuesReference, ValuesReferenceLookup, digest,
    process_dependencies, yaml,
};
use golang::GoRuntimeValue;
use golang::value::GoMap;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::case::{Case, CaseFailure, CaseJudgement, nil, same, same_value};
use super::{json, render, table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValuesCaseInputs {
    chart: GivenChart,
    #[serde(default)]
    values: Json,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenChart {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    name: String,
    #[serde(default = "first")]
    version: String,
    #[serde(default)]
    values: Json,
    dependencies: Option<Vec<GivenDependency>>,
    #[serde(default, deserialize_with = "nil")]
    charts: Vec<Self>,
}

fn first() -> String {
    "1.0.0".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[derive(Default)]
struct GivenDependency {
    name: String,
    version: String,
    repository: String,
    condition: String,
    tags: Vec<String>,
    import_values: Vec<Json>,
    alias: String,
}

impl GivenChart {
    pub(super) fn chart(self) -> Result<Chart, CaseFailure> {
        let dependencies = self.dependencies.map(|listed| {
            let listed = listed.into_iter().map(|given| ChartDependency {
                name: given.name,
                version: given.version,
                repository: given.repository,
                condition: given.condition,
                tags: given.tags,
                import_values: given.import_values.iter().map(GoRuntimeValue::from_json).collect(),
                alias: given.alias,
                enabled: false,
            });
            listed.collect()
        });
        let Self { api_version, name, version, .. } = self;
        Ok(Chart {
            metadata: ChartMetadata {
                api_version,
                name,
                version,
                dependencies,
                ..ChartMetadata::default()
            },
            values: table(&self.values)?,
            charts: self.charts.into_iter().map(Self::chart).collect::<Result<_, _>>()?,
            ..Chart::default()
        })
    }
}

pub(super) fn coalesce(case: Case) -> CaseJudgement {
    if case.op == "render" {
        return render::values(case);
    }
    if !matches!(case.op.as_str(), "coalesce" | "merge" | "process") {
        return Err(case.unsupported(&[]));
    }
    let ValuesCaseInputs { chart, values, warnings: wanted } = case.inputs()?;
    let mut chart = chart.chart()?;
    let user = table(&values)?;
    if case.op == "coalesce"
        && let Ok(done) = values::coalesce(&chart, &user)
    {
        has_sources(&chart, &user, &done)?;
    }
    let mut warnings = Vec::new();
    let mut whole = |coalesced: Result<CoalescedValues, values::Error>| match coalesced {
        Ok(mut done) => {
            warnings.append(&mut done.warnings);
            Ok(Ok(json(&done.values)?))
        }
        Err(error) => Ok(Err(error.to_string())),
    };
    let got = match case.op.as_str() {
        "coalesce" => whole(values::coalesce(&chart, &user))?,
        "merge" => whole(values::merge(&chart, &user))?,
        _ => match process_dependencies(&mut chart, &user) {
            Ok(mut said) => match whole(values::coalesce(&chart, &user))? {
                Ok(last) => {
                    warnings.append(&mut said);
                    Ok(json!({"tree": tree(&chart)?, "final": last}))
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error.to_string()),
        },
    };
    let is_error = got.is_err();
    case.judge(got)?;
    let mut warnings: Vec<String> =
        warnings.iter().map(::helm::warning::HelmWarning::text_with_values).collect();
    warnings.sort();
    if is_error { Ok(()) } else { same(&wanted.join("\n"), &warnings.join("\n")) }
}

/// Checks the sources that `windlass values` prints for a merge. Every value has a source, no value is missing, and
/// values of the user take precedence over all others.
fn has_sources(chart: &Chart, user: &GoMap, done: &CoalescedValues) -> Result<(), CaseFailure> {
    let whole = json(&done.values)?;
    let mut layers = values::layers(chart);
    let own = layers.len();
    layers.push(ValuesLayer { name: "user".to_owned(), at: Vec::new(), values: user.clone() });
    let leaves = values::provenance(&done.values, &layers);
    let leaves = leaves.map_err(|error| CaseFailure::NotRun(error.to_string()))?;
    let given = json(user)?;
    let mut left = whole.clone();
    let differs = |leaf: &ValuesLeaf, why: &str| CaseFailure::Mismatch {
        wanted: whole.to_string(),
        got: format!("{} {why}, set by {:?}", leaf.path.join("."), leaf.source),
    };
    for leaf in &leaves {
        // Helm gives each chart a table of globals, which has no source.
        let is_made = leaf.path.last().is_some_and(|it| it == "global")
            // A chart with the name `global` is its own table of globals. Then values appear in places that no source
            // has.
            || leaf.path.iter().filter(|it| *it == "global").count() > 1;
        if leaf.source.is_none() && !is_made {
            return Err(differs(leaf, "has no source"));
        }
        // Globals of a parent chart take precedence over the user's globals for a subchart.
        let result = placed(&mut whole.clone(), &leaf.path).cloned();
        let is_given =
            placed(&mut given.clone(), &leaf.path).is_some_and(|it| Some(&*it) == result.as_ref());
        if is_given && leaf.source != Some(own) {
            return Err(differs(leaf, "is the user's"));
        }
        let place = placed(&mut left, &leaf.path).ok_or_else(|| differs(leaf, "is not there"))?;
        *place = Json::Null;
    }
    let mut pending = vec![&left];
    while let Some(value) = pending.pop() {
        match value {
            Json::Object(fields) => pending.extend(fields.values()),
            Json::Array(items) => pending.extend(items),
            Json::Null => {}
            other => {
                let got = format!("{other} is left out");
                return Err(CaseFailure::Mismatch { wanted: whole.to_string(), got });
            }
        }
    }
    Ok(())
}

/// The value at a path that `windlass values` prints. `None` if there is no value at this path.
fn placed<'j>(value: &'j mut Json, path: &[String]) -> Option<&'j mut Json> {
    let mut at = value;
    for part in path {
        let index =
            part.strip_prefix('[').and_then(|it| it.strip_suffix(']')?.parse::<usize>().ok());
        at = match (at.is_array(), index) {
            (true, Some(index)) => at.get_mut(index)?,
            _ => at.get_mut(part)?,
        };
    }
    Some(at)
}

/// A chart in the form of the cases.
fn tree(chart: &Chart) -> Result<Json, CaseFailure> {
    let charts = chart.charts.iter().map(tree).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({"name": chart.metadata.name, "values": json(&chart.values)?, "charts": charts}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HelmValuesComposeInputs {
    namespace: String,
    inline: Json,
    #[serde(deserialize_with = "nil")]
    refs: Vec<GivenValuesReference>,
    objects: BTreeMap<String, BTreeMap<String, String>>,
    yaml: Option<String>,
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GivenValuesReference {
    kind: String,
    name: String,
    values_key: Option<String>,
    #[serde(default)]
    target_path: String,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    literal: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestInputs {
    text: String,
    values: Json,
    yaml: String,
}

pub(super) fn compose(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "merge" => compose_all(case),
        "digest" => {
            let DigestInputs { text, values, yaml: wanted } = case.inputs()?;
            let read = match values::read(text.as_bytes()) {
                Ok(read) => read,
                Err(error) => return same("values", &format!("error: {error}")),
            };
            same_value(&json(&table(&values)?)?, &json(&read)?)?;
            same(&wanted, &yaml(&read).map_err(|error| CaseFailure::NotRun(error.to_string()))?)?;
            case.judge(digest(&read).map(Json::from).map_err(|error| error.to_string()))
        }
        _ => Err(case.unsupported(&[])),
    }
}

fn compose_all(case: Case) -> CaseJudgement {
    let inputs: HelmValuesComposeInputs = case.inputs()?;
    let references = inputs.refs.into_iter().map(|given| ValuesReference {
        kind: given.kind,
        name: given.name,
        values_key: given.values_key,
        target_path: given.target_path,
        optional: given.optional,
        literal: given.literal,
    });
    let references: Vec<ValuesReference> = references.collect();
    let mut lookup = |kind: &str, name: &str| {
        if name == "forbidden" {
            return Err("access refused".to_owned());
        }
        Ok(match inputs.objects.get(&format!("{kind}/{name}")) {
            Some(data) => {
                let bytes =
                    |(key, text): (&String, &String)| (key.clone(), text.clone().into_bytes());
                ValuesReferenceLookup::Data(data.iter().map(bytes).collect())
            }
            None => ValuesReferenceLookup::Absent(format!(
                "{}s \"{name}\" not found",
                kind.to_lowercase()
            )),
        })
    };
    let inline = table(&inputs.inline)?;
    let composed = values::compose(&inputs.namespace, &inline, &references, &mut lookup);
    let composed = match composed {
        Ok(values) => values,
        Err(error) => return case.judge(Err(error.to_string())),
    };
    case.judge(Ok(json(&composed)?))?;
    let text =
        |text: Result<String, values::NotJsonError>| text.unwrap_or_else(|error| error.to_string());
    same(&inputs.yaml.unwrap_or_default(), &text(yaml(&composed)))?;
    same(&inputs.digest.unwrap_or_default(), &text(digest(&composed)))
}
