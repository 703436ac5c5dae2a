//! The memory that a chart takes, for caches of charts.

use golang::GoRuntimeValue;
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

use super::Chart;
use crate::render::{PARSED_BYTES_PER_BYTE, code_length};

/// How many bytes a value in a table takes.
const TABLE_VALUE_BYTES: usize = 128;

impl Chart {
    /// About how many bytes the chart and its sub-charts take, including their parsed templates.
    pub fn size(&self) -> usize {
        let mut size = 0_usize;
        let mut pending = vec![self];
        while let Some(chart) = pending.pop() {
            for file in chart.templates.iter().chain(&chart.files) {
                size = size.saturating_add(file.name.len() + file.data.len() + TABLE_VALUE_BYTES);
            }
            for file in &chart.templates {
                size = size
                    .saturating_add(code_length(&file.data).saturating_mul(PARSED_BYTES_PER_BYTE));
            }
            size = size.saturating_add(chart.schema.as_ref().map_or(0, |schema| schema.len()));
            let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
            let walked = sprig::walk(
                &mut meter,
                &GoRuntimeValue::Map(chart.values.clone()),
                TABLE_VALUE_BYTES,
            );
            let used = WorkAllowance::UNLIMITED.bytes - meter.left().bytes;
            let values = walked.map_or(u64::MAX, |()| used);
            size = size.saturating_add(usize::try_from(values).unwrap_or(usize::MAX));
            pending.extend(&chart.charts);
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::ChartFile;

    #[test]
    fn actions_weigh_more_than_text_and_charts_in_a_chart_count() {
        let with = |text: &str| Chart {
            templates: vec![ChartFile {
                name: "templates/a".to_owned(),
                data: text.as_bytes().into(),
            }],
            ..Chart::default()
        };
        let text = with(&"x".repeat(1000));
        let actions = with(&"{{ . }}".repeat(1000));
        assert!(text.size() >= 1000 && actions.size() > 7000 * PARSED_BYTES_PER_BYTE);
        let outer = Chart { charts: vec![actions.clone()], ..text.clone() };
        assert!(outer.size() >= text.size() + actions.size() - TABLE_VALUE_BYTES);
    }
}
