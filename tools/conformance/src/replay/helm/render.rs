//! Replays cases about templates: one text in a chart, values as templates see them, and signatures of functions.
//!
//! `template_command.rs` runs the command with whole charts.

use std::sync::Arc;

use ::helm::RenderEnvironment;
use ::helm::capabilities::Capabilities;
use ::helm::chart::{Chart, ChartFile, ChartMetadata};
use ::helm::render::{ChartTemplates, ReleaseToRender, RenderMode, functions};
use ::helm::values::coalesce;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same};
use super::table;
use super::values::GivenChart;

/// The environment in which the cases were recorded, as far as templates can read it.
pub(in super::super) fn env() -> RenderEnvironment {
    let local = GoTimeZone::fixed("UTC", 0);
    let now = jiff::Timestamp::now();
    RenderEnvironment {
        now: GoTime::from_unix(now.as_second(), now.subsec_nanosecond().into(), local.clone()),
        local,
        random: Arc::new(fill),
        capabilities: Arc::new(Capabilities::default()),
        cluster: None,
        stop: StopSignal::default(),
        names: None,
    }
}

fn fill(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("every Linux has it");
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateTextCase {
    tpl: String,
    /// The answer, if it is not UTF-8.
    out_base64: Option<String>,
    #[serde(default)]
    values: Json,
}

/// Renders one text as the only template of a chart.
pub(super) fn text(case: Case) -> CaseJudgement {
    let TemplateTextCase { tpl, values, out_base64 } = case.inputs()?;
    let metadata = ChartMetadata {
        name: "c".to_owned(),
        version: "0.1.0".to_owned(),
        api_version: "v2".to_owned(),
        ..ChartMetadata::default()
    };
    let name = "templates/t.yaml";
    let template = ChartFile { name: name.to_owned(), data: tpl.into_bytes().into() };
    let chart = Chart { metadata, templates: vec![template], ..Chart::default() };
    let coalesced = coalesce(&chart, &table(&values)?);
    let values = coalesced.map_err(|error| CaseFailure::NotRun(error.to_string()))?.values;
    let release = ReleaseToRender {
        name: "rel".to_owned(),
        namespace: "default".to_owned(),
        revision: 1,
        is_upgrade: false,
    };
    let text = rendered(&chart, &values, &release, &format!("c/{name}"));
    match (out_base64, text) {
        (Some(wanted), Ok(got)) => same(&wanted, &STANDARD.encode(got)),
        (_, text) => case.judge(text.map(|text| String::from_utf8_lossy(&text).into())),
    }
}

/// Renders a chart and returns the text of one of its files. The text is empty if the chart renders no such file.
fn rendered(
    chart: &Chart,
    values: &GoMap,
    release: &ReleaseToRender,
    file: &str,
) -> Result<Vec<u8>, String> {
    let render = |templates: ChartTemplates| {
        templates.render(chart, values, release, &env(), RenderMode::default(), &mut Vec::new())
    };
    let mut files =
        ChartTemplates::parse(chart).and_then(render).map_err(|error| error.to_string())?;
    Ok(files.remove(file).unwrap_or_default())
}

/// Compares the signature of a function. Go's errors about arguments depend on it.
pub(super) fn function(case: Case) -> CaseJudgement {
    let wanted = match &case.answer {
        ReferenceAnswer::Out(Json::String(signature)) => signature.clone(),
        _ => return Err(CaseFailure::NotRun("no signature is recorded".to_owned())),
    };
    let functions = functions();
    let Some(signature) = functions.signature(&case.name) else {
        return case.judge(Err("no such function".to_owned()));
    };
    // Every function here may fail, so the recorded signatures leave that out.
    let got = signature.to_string();
    let with_error = got.rsplit_once(") ").map(|(head, out)| format!("{head}) ({out}, error)"));
    case.judge(Ok(Json::from(with_error.filter(|with| *with == wanted).unwrap_or(got))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderInputs {
    chart: GivenChart,
    #[serde(default)]
    values: Json,
    release: GivenRelease,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct GivenRelease {
    name: String,
    namespace: String,
    revision: i64,
    is_upgrade: bool,
    #[serde(rename = "IsInstall")]
    _is_install: bool,
}

/// A template that prints the data of templates, except the parts that only template files have.
const SEEN: &str =
    r#"{{ toJson (dict "Chart" (omit .Chart "IsRoot") "Release" .Release "Values" .Values) }}"#;

/// Compares the values and the release that templates see.
pub(super) fn values(case: Case) -> CaseJudgement {
    let RenderInputs { chart, values, release } = case.inputs()?;
    let mut chart = chart.chart()?;
    let data = SEEN.as_bytes().into();
    chart.templates.push(ChartFile { name: "templates/t.json".to_owned(), data });
    let coalesced = match coalesce(&chart, &table(&values)?) {
        Ok(coalesced) => coalesced.values,
        Err(error) => return case.judge(Err(error.to_string())),
    };
    let release = ReleaseToRender {
        name: release.name,
        namespace: release.namespace,
        revision: release.revision,
        is_upgrade: release.is_upgrade,
    };
    let file = format!("{}/templates/t.json", chart.metadata.name);
    let text = rendered(&chart, &coalesced, &release, &file);
    let seen =
        text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    case.judge(seen)
}
