//! Replays cases about values, checked against the schemas of a chart and of its subcharts.

use std::sync::Arc;

use ::helm::chart::Chart;
use ::helm::schema::validate;
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same};
use super::table;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaCaseInputs {
    chart: GivenChart,
    values: Json,
    /// The lines of the error in sorted order, because Go's order is random.
    err_lines_any_order: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenChart {
    name: String,
    schema: Option<String>,
    #[serde(default)]
    charts: Vec<Self>,
}

impl GivenChart {
    fn chart(self) -> Chart {
        let mut chart = Chart::default();
        chart.metadata.name = self.name;
        chart.schema = self.schema.map(|text| Arc::from(text.into_bytes()));
        chart.charts = self.charts.into_iter().map(Self::chart).collect();
        chart
    }
}

pub(super) fn check(case: Case) -> CaseJudgement {
    let SchemaCaseInputs { chart, values, err_lines_any_order } = case.inputs()?;
    let got = validate(&chart.chart(), &table(&values)?).map_err(|error| error.to_string());
    match (err_lines_any_order, got, &case.answer) {
        (Some(wanted), Err(got), ReferenceAnswer::Elsewhere) => {
            let mut lines: Vec<_> = got.lines().filter(|line| !line.is_empty()).collect();
            lines.sort_unstable();
            same(&wanted.join("\n"), &lines.join("\n"))
        }
        (Some(wanted), Ok(()), _) => same(&wanted.join("\n"), "ok"),
        (Some(_), Err(_), _) => Err(CaseFailure::NotRun("two answers are recorded".to_owned())),
        (None, got, _) => case.judge(got.map(|()| "ok".into())),
    }
}
